"""What the manifest says of a run: where it ran, on what, what it cost and what is missing.

What concerns a pipeline is taken while it is attached, so that nothing here holds on to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiler.capture import environment, overhead
from profiler.capture.onnx_lending import model_path_of
from profiler.capture.operator_source import SourceSummary
from profiler.capture.options import Options
from profiler.capture.recorder import Recorder
from profiler.capture.shapes import device_of, entries, part_of
from profiler.capture.torch_hooks import is_module
from profiler.capture.weights import weight_bytes
from profiler.events import ROOT_DEVICE, Loss
from profiler.trace.manifest import RunInfo

__all__ = ["NOT_ENDED", "PipelineFacts", "part_facts", "pipeline_facts", "run_info"]

NOT_ENDED = Loss(
    "aborted_run", "run", 1, "runs", "the run did not end: it was killed, or its machine went down"
)
"""What the manifest of a run says until the run has ended."""


@dataclass(slots=True)
class PipelineFacts:
    """What the manifest says of one pipeline. `devices` and `submodules` are by name."""

    name: str
    model: str
    devices: dict[str, dict[str, Any]]
    submodules: dict[str, dict[str, Any]] = field(default_factory=dict)


def pipeline_facts(pipeline: Any, options: Options) -> PipelineFacts:
    """Describe `pipeline` as it is now."""
    placement = getattr(pipeline, "placement", None)
    known = placement.as_dict() if placement is not None else {}
    facts = PipelineFacts(
        name=type(pipeline).__name__,
        model=str(getattr(pipeline, "name_or_path", "") or ""),
        devices={},
    )
    parts: dict[str, dict[int, Any]] = {}  # a VAE's submodule may have two
    for entry in entries(pipeline):
        device, part = device_of(pipeline, entry), part_of(pipeline, entry)
        facts.devices[device] = dict(known.get(device, {}))
        traced = options.traces_operators(entry.submodule)
        facts.submodules[entry.submodule] = _submodule(part, device, traced)
        parts.setdefault(entry.submodule, {})[_identity(part)] = part
    counted: set[int] = set()
    for submodule, found in parts.items():
        facts.submodules[submodule] |= _weights(found, counted)
    return facts


def part_facts(submodule: str, part: Any, device: str, *, traced: bool) -> PipelineFacts:
    """Describe a submodule that belongs to no pipeline; `traced`: whether its operators are."""
    facts = PipelineFacts(name="", model="", devices={device: {}})
    facts.submodules[submodule] = {
        **_submodule(part, device, traced),
        **_weights({0: part}, set()),
    }
    return facts


def _submodule(part: Any, device: str, traced: bool) -> dict[str, Any]:
    path = model_path_of(part)
    where = path.absolute() if path else None
    return {
        "device": device,
        "activate_profiler": traced,
        "model": f"{where.parent.name}/{where.name}" if where else "",
    }


def _weights(parts: Mapping[int, Any], counted: set[int]) -> dict[str, Any]:
    """Bytes of the weights of a submodule's parts, nothing where one does not tell, and how many of
    them are `counted` already: those of parts that a submodule before it has, too."""
    sizes = {identity: weight_bytes(part) for identity, part in parts.items()}
    known = {identity: size for identity, size in sizes.items() if size is not None}
    shared = sum(size for identity, size in known.items() if identity in counted)
    counted.update(known)
    if known != sizes:
        return {}
    return {"weight_bytes": sum(known.values())} | (
        {"shared_weight_bytes": shared} if shared else {}
    )


def _identity(part: Any) -> int:
    """The same for parts that share their weights: one module, one part, one session."""
    lazy = hasattr(part, "open_session") or is_module(part)
    return id(part if lazy else getattr(part, "session", part))


def run_info(
    recorder: Recorder,
    pipelines: Sequence[PipelineFacts],
    sources: Sequence[tuple[str, SourceSummary]],
    *,
    warmup: Mapping[str, Any] | None = None,
    writing: Mapping[str, int] | None = None,
    losses: Iterable[Loss] = (),
    failure: str = "",
) -> RunInfo:
    """The manifest's description of a run that has ended. `sources` are what traced operators,
    with their submodules; `writing` is what conversion and writing took, by name, in ns; `losses`
    is what could not be written; `failure` says what ended the run early, "" if nothing did."""
    devices: dict[str, dict[str, Any]] = {ROOT_DEVICE: {}}
    submodules: dict[str, dict[str, Any]] = {}
    for facts in pipelines:
        devices |= facts.devices
        submodules |= {name: dict(known) for name, known in facts.submodules.items()}
    for name in submodules:
        summaries = [summary for submodule, summary in sources if submodule == name]
        submodules[name]["profiled_sessions"] = sum(s.sessions for s in summaries)
        for summary in summaries:
            _add(submodules[name], summary.known)
    costs = overhead.measured_costs(sources)
    for name, measured in costs.items():
        submodules.setdefault(name, {})["calibration"] = measured.calibration()
    end_to_end_ns = sum(p.end_ns - p.start_ns for p in recorder.pipelines)
    summaries = [summary for _, summary in sources]
    return RunInfo(
        producer="capture",
        model=_joined(facts.model for facts in pipelines),
        pipeline=_joined(facts.name for facts in pipelines),
        command_line=_command_line(),
        versions=environment.versions(),
        hardware=environment.hardware(),
        devices=_described(devices),
        submodules=submodules,
        settings=recorder.settings,
        clocks={
            "clock": "CLOCK_REALTIME",
            "monotonic_offset_ns": recorder.clock.monotonic_offset_ns,
        },
        overhead={
            **overhead.tracing_cost(sources, costs, recorder.hooks_ns, end_to_end_ns),
            **(writing or {}),
        },
        warmup=dict(warmup or {}),
        attribution=_attribution(sources),
        losses=(*_losses(recorder, summaries, failure), *losses),
    )


def _add(known: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Put `more` to what is known of a submodule; what several sources list becomes one."""
    for key, value in more.items():
        if isinstance(value, list):
            known[key] = known.get(key, []) + value
        elif isinstance(value, Mapping):
            known[key] = {**known.get(key, {}), **value}
        else:
            known[key] = value


def _joined(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, names)))


def _described(devices: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    cpu = environment.hardware()["cpu"]
    return {
        name: {"hardware": cpu if name.startswith("cpu") else "", **known}
        for name, known in sorted(devices.items())
    }


def _attribution(sources: Sequence[tuple[str, SourceSummary]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for submodule, summary in sources:
        if not summary.total_ns:
            continue
        before = found.get(submodule, {"attributed_ns": 0, "total_ns": 0})
        attributed = before["attributed_ns"] + summary.attributed_ns
        total = before["total_ns"] + summary.total_ns
        found[submodule] = {
            "to": "module paths",
            "attributed_ns": attributed,
            "total_ns": total,
            "share": attributed / total,
        }
    return found


def _losses(recorder: Recorder, summaries: Iterable[SourceSummary], failure: str) -> Iterator[Loss]:
    for summary in summaries:
        yield from summary.losses
    for call in recorder.invocations:
        if call.index < 0:
            step = f" of step {call.step}" if call.stage == "denoise" else ""
            detail = f"the call{step} did not return, so it has no file"
            yield Loss("untraced_call", call.submodule, 1, "calls", detail)
    if failure:
        yield Loss("aborted_run", "run", 1, "runs", f"the run ended with {failure}")


def _command_line() -> tuple[str, ...]:
    """How the program was started, without the folder that it lies in."""
    program, *arguments = sys.argv or [""]
    name = Path(program).name
    return ("profile-sd3" if name == "__main__.py" else name, *arguments)
