"""What the manifest says of a run: where it ran, on what, what it cost and what is missing.

What concerns a pipeline is taken while it is attached, so that nothing here holds on to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiler.capture import environment, overhead
from profiler.capture.operator_source import SourceSummary
from profiler.capture.options import Options
from profiler.capture.pipelines.submodules import device_of, entries, part_of
from profiler.capture.recorder import Recorder
from profiler.capture.registry import backend_of
from profiler.capture.run_losses import run_losses
from profiler.capture.timeline import PipelineCall
from profiler.capture.weights import LoadedPart, LoadedWeights, loaded_part
from profiler.events import ROOT_DEVICE, Loss
from profiler.trace.manifest import RunInfo

__all__ = [
    "PipelineFacts",
    "add_known",
    "part_facts",
    "pipeline_facts",
    "run_info",
]


@dataclass(slots=True)
class PipelineFacts:
    """What the manifest says of one pipeline. `devices` and `submodules` are by name; `parts` are
    its parts with their weights."""

    name: str
    model: str
    devices: dict[str, dict[str, Any]]
    submodules: dict[str, dict[str, Any]] = field(default_factory=dict)
    parts: list[LoadedPart] = field(default_factory=list, compare=False)


def pipeline_facts(pipeline: Any, options: Options) -> PipelineFacts:
    """Describe `pipeline` as it is now."""
    placement = getattr(pipeline, "placement", None)
    known = placement.as_dict() if placement is not None else {}
    facts = PipelineFacts(
        name=type(pipeline).__name__,
        model=str(getattr(pipeline, "name_or_path", "") or ""),
        devices={},
    )
    for entry in entries(pipeline):
        device, part = device_of(pipeline, entry), part_of(pipeline, entry)
        facts.devices[device] = dict(known.get(device, {}))
        traced = options.traces_operators(entry.submodule)
        facts.submodules[entry.submodule] = _submodule(part, device, traced)
        facts.parts.append(loaded_part(entry.submodule, part, device))
    return _with_weights(facts)


def part_facts(submodule: str, part: Any, device: str, *, traced: bool) -> PipelineFacts:
    """Describe a submodule that belongs to no pipeline; `traced`: whether its operators are."""
    facts = PipelineFacts(name="", model="", devices={device: {}})
    facts.submodules[submodule] = _submodule(part, device, traced)
    facts.parts.append(loaded_part(submodule, part, device))
    return _with_weights(facts)


def _with_weights(facts: PipelineFacts) -> PipelineFacts:
    weights = LoadedWeights()
    weights.add(facts.parts)
    for name, known in facts.submodules.items():
        known.update(weights.of_submodule(name))
    return facts


def _submodule(part: Any, device: str, traced: bool) -> dict[str, Any]:
    path = backend_of(part).model_path(part)
    where = path.absolute() if path else None
    return {
        "device": device,
        "activate_profiler": traced,
        "model": f"{where.parent.name}/{where.name}" if where else "",
    }


def run_info(
    recorder: Recorder,
    pipelines: Sequence[PipelineFacts],
    sources: Sequence[tuple[str, SourceSummary]],
    weights: LoadedWeights,
    *,
    warmup: Mapping[str, Any] | None = None,
    writing: Mapping[str, int] | None = None,
    losses: Iterable[Loss] = (),
    failure: str = "",
) -> RunInfo:
    """The manifest's description of a run that has ended. `sources` are what traced operators,
    with their submodules; `weights` what was loaded of all of them; `writing` is what conversion
    and writing took, by name, in ns; `losses` is what could not be written; `failure` says what
    ended the run early, "" if nothing did."""
    costs = overhead.measured_costs(sources)
    end_to_end_ns = sum(p.end_ns - p.start_ns for p in recorder.pipelines)
    summaries = [summary for _, summary in sources]
    settings, pipeline_settings = _settings(recorder.pipelines)
    return RunInfo(
        producer="capture",
        model=_joined(facts.model for facts in pipelines),
        pipeline=_joined(facts.name for facts in pipelines),
        command_line=_command_line(),
        versions=environment.versions(),
        hardware=environment.hardware(),
        devices=_described(pipelines, weights),
        submodules=_submodules(pipelines, sources, costs, weights),
        settings=settings,
        pipeline_settings=pipeline_settings,
        clocks={
            "clock": "CLOCK_REALTIME",
            "monotonic_offset_ns": recorder.clock.monotonic_offset_ns,
        },
        overhead={
            **overhead.tracing_cost(
                sources,
                costs,
                recorder.hooks_ns,
                end_to_end_ns,
                recorder.outside_ns,
                (writing or {}).get("backpressure_ns", 0),
            ),
            **(writing or {}),
        },
        warmup=dict(warmup or {}),
        attribution=_attribution(sources),
        losses=run_losses(recorder, summaries, losses, failure),
    )


def _submodules(
    pipelines: Iterable[PipelineFacts],
    sources: Sequence[tuple[str, SourceSummary]],
    costs: Mapping[str, overhead.CallCost],
    weights: LoadedWeights,
) -> dict[str, dict[str, Any]]:
    """What is known of each submodule: of its pipeline, its sources, and what tracing it costs."""
    found: dict[str, dict[str, Any]] = {}
    for facts in pipelines:
        found |= {name: dict(known) for name, known in facts.submodules.items()}
    for name in found:
        for key in ("weight_bytes", "shared_weight_bytes"):  # of one pipeline alone
            found[name].pop(key, None)
        found[name] |= weights.of_submodule(name)
        summaries = [summary for submodule, summary in sources if submodule == name]
        found[name]["profiled_sessions"] = sum(s.sessions for s in summaries)
        for summary in summaries:
            add_known(found[name], summary.known)
    for name, measured in costs.items():
        found.setdefault(name, {})["calibration"] = measured.calibration()
    return found


def add_known(known: dict[str, Any], more: Mapping[str, Any]) -> None:
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


def _described(
    pipelines: Iterable[PipelineFacts], weights: LoadedWeights
) -> dict[str, dict[str, Any]]:
    devices: dict[str, dict[str, Any]] = {ROOT_DEVICE: {}}
    for facts in pipelines:
        devices |= facts.devices
    cpu = environment.hardware()["cpu"]
    return {
        name: {"hardware": cpu if name.startswith("cpu") else "", **known} | weights.of_device(name)
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


def _settings(calls: Iterable[PipelineCall]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The settings that all pipeline calls share, and by number of the call those that differ."""
    given = {str(call.number): call.settings for call in sorted(calls, key=lambda c: c.number)}
    texts = [{key: repr(value) for key, value in one.items()} for one in given.values()]
    first = next(iter(given.values()), {})
    common = {k: v for k, v in first.items() if all(text.get(k) == repr(v) for text in texts)}
    own = {
        number: {key: value for key, value in one.items() if key not in common}
        for number, one in given.items()
    }
    return common, own if any(own.values()) else {}


def _command_line() -> tuple[str, ...]:
    """How the program was started, without the folder that it lies in."""
    program, *arguments = sys.argv or [""]
    name = Path(program).name
    return ("profile-sd3" if name == "__main__.py" else name, *arguments)
