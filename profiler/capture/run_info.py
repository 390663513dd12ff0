"""What the manifest says of a run: where it ran, on what, what it cost and what is missing.

What concerns a pipeline is taken while it is attached, so that nothing here holds on to it.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from profiler.capture import environment, overhead
from profiler.capture.call_costs import CallCost, measured_costs
from profiler.capture.operator_source import SourceSummary
from profiler.capture.options import Options
from profiler.capture.pipelines.call_settings import part_settings, submodule_settings
from profiler.capture.pipelines.components import Together
from profiler.capture.pipelines.configured import options_for
from profiler.capture.pipelines.submodules import device_of, entries, part_of
from profiler.capture.recorded_settings import cached_calls, generations, settings_of
from profiler.capture.recorder import Recorder
from profiler.capture.registry import backend_named, backend_of, device_facts
from profiler.capture.run_drops import run_drops
from profiler.capture.timeline import PipelineCall
from profiler.capture.weights import LoadedPart, LoadedWeights, loaded_part
from profiler.events import ROOT_DEVICE, Drop
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_clocks import ClockName, Clocks
from profiler.trace.manifest_fields import (
    AttributedTo,
    Attribution,
    Device,
    Recording,
    Setting,
    Submodule,
    Warmup,
)
from profiler.trace.manifest_settings import SubmoduleSettings

__all__ = [
    "PipelineFacts",
    "add_known",
    "only_called",
    "part_facts",
    "pipeline_facts",
    "run_info",
]


@dataclass(slots=True)
class PipelineFacts:
    """What the manifest says of one pipeline. `devices` and `submodules` are by name; `parts` are
    its parts with their weights, `settings` those of its submodules as they were found. `seen`:
    nobody has asked for these submodules, they were there."""

    name: str
    model: str
    devices: dict[str, Device]
    submodules: dict[str, Submodule] = field(default_factory=dict)
    parts: list[LoadedPart] = field(default_factory=list, compare=False)
    settings: dict[str, SubmoduleSettings] = field(default_factory=dict)
    seen: bool = False


def only_called(facts: PipelineFacts, called: Container[str]) -> PipelineFacts:
    """What the manifest of a run that has ended says: of what was only `seen`, that which was
    called. Libraries keep modules of their own, such as transformers its activations."""
    if not facts.seen:
        return facts
    submodules = {name: known for name, known in facts.submodules.items() if name in called}
    used = {known.device for known in submodules.values()}
    return replace(
        facts,
        submodules=submodules,
        settings={name: known for name, known in facts.settings.items() if name in called},
        devices={name: known for name, known in facts.devices.items() if name in used},
    )


def pipeline_facts(pipeline: Any, options: Options) -> PipelineFacts:
    """Describe `pipeline` as it is now."""
    placement = getattr(pipeline, "placement", None)
    known = {} if placement is None else placement.described()
    facts = PipelineFacts(
        name="" if isinstance(pipeline, Together) else type(pipeline).__name__,
        model=str(getattr(pipeline, "name_or_path", "") or ""),
        devices={},
    )
    described: set[tuple[str, int]] = set()
    for entry in entries(pipeline):
        device, part = device_of(pipeline, entry), part_of(pipeline, entry)
        facts.devices[device] = known.get(device, Device())
        if (entry.submodule, id(part)) in described:
            continue
        described.add((entry.submodule, id(part)))
        traced = options_for(pipeline, entry, options).traces_operators(entry.submodule)
        facts.submodules[entry.submodule] = _submodule(part, device, traced)
        facts.parts.append(loaded_part(entry.submodule, part, device))
    facts.settings = submodule_settings(pipeline)
    return _with_weights(facts)


def part_facts(submodule: str, part: Any, device: str, *, traced: bool) -> PipelineFacts:
    """Describe a submodule that belongs to no pipeline; `traced`: whether its operators are."""
    facts = PipelineFacts(name="", model="", devices={device: Device()})
    facts.submodules[submodule] = _submodule(part, device, traced)
    facts.parts.append(loaded_part(submodule, part, device))
    settings = part_settings(part)
    facts.settings = {} if settings is None else {submodule: settings}
    return _with_weights(facts)


def _with_weights(facts: PipelineFacts) -> PipelineFacts:
    weights = LoadedWeights()
    weights.add(facts.parts)
    for name, known in facts.submodules.items():
        facts.submodules[name] = structs.replace(known, **weights.of_submodule(name))
    return facts


def _submodule(part: Any, device: str, traced: bool) -> Submodule:
    path = backend_of(part).model_path(part)
    where = path.absolute() if path else None
    model = f"{where.parent.name}/{where.name}" if where else ""
    return Submodule(device=device, activate_profiler=traced, model=model)


def run_info(
    recorder: Recorder,
    pipelines: Sequence[PipelineFacts],
    sources: Sequence[tuple[str, SourceSummary]],
    weights: LoadedWeights,
    *,
    warmup: Warmup | None = None,
    writing: Mapping[str, int] | None = None,
    drops: Iterable[Drop] = (),
    failure: str = "",
) -> RunInfo:
    """The manifest's description of a run that has ended. `sources` are what traced operators,
    with their submodules; `weights` what was loaded of all of them; `writing` is what conversion
    and writing took, by name, in ns; `drops` is what could not be written; `failure` says what
    ended the run early, "" if nothing did."""
    costs = measured_costs(sources)
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
        submodule_settings=settings_of(
            {name: known for facts in pipelines for name, known in facts.settings.items()},
            recorder.pipelines,
        ),
        generations=(
            *generations(recorder.pipelines),
            *recorder.loops.generations(recorder.finished()),
        ),
        cached_calls=cached_calls(recorder.finished()),
        clocks=Clocks(
            clock=ClockName.REALTIME, monotonic_offset_ns=recorder.clock.monotonic_offset_ns
        ),
        overhead=structs.replace(
            overhead.tracing_cost(
                sources,
                costs,
                recorder.hooks_ns,
                recorder.traced_ns,
                overhead.whole_of(recorder),
                overhead.noise_ns(recorder, environment.crowding()),
            ),
            **(writing or {}),
        ),
        coverage=recorder.coverage.coverage(),
        warmup=warmup,
        recording=_recording(recorder, summaries),
        attribution=_attribution(sources),
        drops=run_drops(recorder, summaries, drops, failure),
    )


def _recording(recorder: Recorder, summaries: Iterable[SourceSummary]) -> Recording | None:
    """Whether allocations were asked for, where something was traced that can tell of them."""
    if not any(one.sessions and backend_named(one.backend).allocations for one in summaries):
        return None
    return Recording(profile_memory=recorder.memory)


def _submodules(
    pipelines: Iterable[PipelineFacts],
    sources: Sequence[tuple[str, SourceSummary]],
    costs: Mapping[str, CallCost],
    weights: LoadedWeights,
) -> dict[str, Submodule]:
    """What is known of each submodule: of its pipeline, its sources, and what tracing it costs."""
    found: dict[str, Submodule] = {}
    for facts in pipelines:
        found |= facts.submodules
    of_one = {"weight_bytes": None, "shared_weight_bytes": None}  # of one pipeline alone
    for name, known in found.items():
        summaries = [summary for submodule, summary in sources if submodule == name]
        sessions = sum(summary.sessions for summary in summaries)
        found[name] = structs.replace(
            known, profiled_sessions=sessions, **{**of_one, **weights.of_submodule(name)}
        )
        for summary in summaries:
            found[name] = add_known(found[name], summary.known)
    for name, measured in costs.items():
        known = found.get(name, Submodule())
        found[name] = structs.replace(known, overhead_ratio=measured.overhead_ratio())
    return found


def add_known(known: Submodule, more: Submodule) -> Submodule:
    """`known` and what another source of the submodule tells; what both list becomes one."""
    return structs.replace(
        known,
        modules={**known.modules, **more.modules},
        runtime_calls=known.runtime_calls + more.runtime_calls,
        writes_shards=known.writes_shards if more.writes_shards is None else more.writes_shards,
    )


def _joined(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, names)))


def _described(pipelines: Iterable[PipelineFacts], weights: LoadedWeights) -> dict[str, Device]:
    devices: dict[str, Device] = {ROOT_DEVICE: Device()}
    for facts in pipelines:
        devices |= facts.devices
    return {
        name: structs.replace(known, **_hardware(name), **weights.of_device(name))
        for name, known in sorted(devices.items())
    }


def _hardware(device: str) -> dict[str, Any]:
    """What is known of the hardware of a device: its name; of a GPU its memory and compute units,
    as the backend whose device it is tells."""
    if device.startswith("cpu"):
        return {"hardware": environment.hardware().cpu}
    told = device_facts(device)
    if told is None:
        return {"hardware": ""}
    return {name: getattr(told, name) for name in ("hardware", "memory_bytes", "compute_units")}


def _attribution(sources: Sequence[tuple[str, SourceSummary]]) -> dict[str, Attribution]:
    found: dict[str, Attribution] = {}
    for submodule, summary in sources:
        if not summary.total_ns:
            continue
        before = found.get(submodule, Attribution())
        attributed = before.attributed_ns + summary.attributed_ns
        total = before.total_ns + summary.total_ns
        found[submodule] = Attribution(
            to=AttributedTo.MODULES,
            attributed_ns=attributed,
            total_ns=total,
            share=attributed / total,
        )
    return found


def _settings(
    calls: Iterable[PipelineCall],
) -> tuple[dict[str, Setting], dict[str, dict[str, Setting]]]:
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
