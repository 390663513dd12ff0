"""Import one column of measurements of a model's `perf.yaml` of AI Hub.

    options = {"device": "Samsung Galaxy S24", "runtime": "qnn_context_binary"}
    import_trace(Path("perf.yaml"), Path("traces"), options=options)

A measurement is one time of a component on a device, with a runtime, in a precision. Source of the
format: quic/ai-hub-models, qai_hub_models/configs/perf_yaml.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from profiler.errors import InputError
from profiler.importers.foreign_run import (
    CallLabels,
    ForeignRunBuilder,
    PlacedCall,
    TimedLayer,
    call_at,
    component,
    end_to_end,
    is_denoiser,
    nanoseconds,
    spans,
)
from profiler.importers.importer import content_of, only_path, real
from profiler.importers.openvino import plain_yaml
from profiler.trace.columns import Counter
from profiler.trace.events import RUN_STAGE, Branch, DropKind, DropReason, Track
from profiler.trace.manifest_fields import Device, Setting

_LARGEST_FILE = 16 << 20
_UNITS = {"NPU": "qnn:0", "GPU": "gpu:0", "CPU": "cpu:0"}
_ENCODERS = re.compile(r"(?i)(?<!vae_)encoder|clip|t5")
_MOST_STEPS = 10_000
_NAMED = 8  # columns that an error names


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement; `unit` is the device on which most layers run, `layers` counts layers by
    device."""

    precision: str
    component: str
    device: str
    runtime: str
    time_ns: int
    unit: str
    layers: Mapping[str, int]
    peak_bytes: int

    @property
    def column(self) -> tuple[str, str, str]:
        return self.device, self.runtime, self.precision


def read_run(
    paths: Sequence[Path],
    device: str = "",
    runtime: str = "",
    precision: str = "",
    steps: int = 0,
    guidance: str = "",
) -> ForeignRunBuilder:
    """Read the measurements of one device, runtime and precision. If several match, take the first
    that measured most components, in the file's order of devices; if nothing was chosen, all others
    become further runs. With `steps` the components make a pipeline: encoders, that many denoising
    steps, the rest. `guidance` above 1 adds a pass without the prompt.

    Raises InputError if the file cannot be read, or has no matching measurement.
    """
    path = only_path(paths, "one perf.yaml")
    document = _document(path)
    every = list(measurements_in(document))
    if not every:
        raise InputError(f"{path} holds no measured time: its jobs failed, or are of another kind")
    asked = {"device": device, "runtime": runtime, "precision": precision}
    left = [one for one in every if all(not v or getattr(one, k) == v for k, v in asked.items())]
    if not left:
        said = ", ".join(f"{key} {value!r:.60}" for key, value in asked.items() if value)
        columns = list(dict.fromkeys(" / ".join(one.column) for one in every))
        more = f" and {len(columns) - _NAMED} more" if len(columns) > _NAMED else ""
        there = ", ".join(columns[:_NAMED]) + more
        raise InputError(f"{path} has no measurement of {said}: it has {there}")
    chosen = _chosen(left, document)
    taken = [one for one in every if one.column == chosen]
    passes = _passes(path, steps, guidance)
    if steps > _MOST_STEPS:
        raise InputError(f"steps={steps} are more than {_MOST_STEPS:,}: give those of one image")
    if steps and not any(is_denoiser(_name(one)) for one in taken):
        names = ", ".join(one.component for one in taken)
        raise InputError(f"{path} has no denoiser among {names:.200}: leave out steps={steps}")
    run = _run(path, taken, len(every), steps, passes)
    if not any(asked.values()):
        run.others = [*_others(path, run, every, chosen, steps, passes)]
    return run


def measurements_in(document: Any) -> Iterator[Measurement]:
    """Yield all measurements with a time, in the order of the file; failed jobs and language models
    have none."""
    for precision, parts in _entries(_get(document, "precisions")):
        for name, one in _entries(_get(parts, "components")):
            for device, runtimes in _entries(_get(one, "performance_metrics")):
                for runtime, figures in _entries(runtimes):
                    found = _measurement(precision, name, device, runtime, figures)
                    if found is not None:
                        yield found


def _measurement(
    precision: str, name: str, device: str, runtime: str, figures: Any
) -> Measurement | None:
    time_ns = nanoseconds(_get(figures, "inference_time_milliseconds"))
    if time_ns is None:
        return None
    counts = ((unit, _get(_get(figures, "layer_counts"), unit)) for unit in ("npu", "gpu", "cpu"))
    peak = _get(_get(figures, "estimated_peak_memory_range_mb"), "max")
    return Measurement(
        *(precision, name, device, runtime),
        time_ns=time_ns,
        unit=str(_get(figures, "primary_compute_unit") or ""),
        layers={unit: n for unit, n in counts if type(n) is int and 0 < n < 1 << 31},
        peak_bytes=peak << 20 if type(peak) is int and 0 <= peak < 1 << 30 else -1,
    )


def _document(path: Path) -> Any:
    try:
        return plain_yaml(content_of(path, _LARGEST_FILE))
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path} is damaged or was cut ({reason}): fetch it again") from error


def _get(mapping: Any, key: str) -> Any:
    return mapping.get(key) if isinstance(mapping, dict) else None


def _entries(mapping: Any) -> Iterator[tuple[str, Any]]:
    for key, value in (mapping if isinstance(mapping, dict) else {}).items():
        yield str(key)[:200], value


def _chosen(left: Sequence[Measurement], document: Any) -> tuple[str, str, str]:
    """The device, runtime and precision that measured most components; ties go to the file's order
    of devices."""
    supported = _get(document, "supported_devices")
    order = [str(name) for name in supported] if isinstance(supported, list) else []
    counts: dict[tuple[str, str, str], int] = {}
    for one in left:
        counts[one.column] = counts.get(one.column, 0) + 1
    most = max(counts.values())
    full = [column for column, count in counts.items() if count == most]
    return min(full, key=lambda c: order.index(c[0]) if c[0] in order else len(order))


def _passes(path: Path, steps: int, guidance: str) -> int:
    """The number of denoiser passes per step."""
    if not guidance:
        return 1
    scale = real(guidance)
    if not scale >= 0:
        raise InputError(f"guidance={guidance!r:.40} is no number from 0: give the guidance scale")
    if not steps:
        raise InputError(f"guidance={guidance:.40} needs steps=N for {path}: give both")
    return 2 if scale > 1 else 1


def _name(one: Measurement) -> str:
    return component(one.component) or one.component


def _executions(
    taken: Sequence[Measurement], steps: int, passes: int
) -> Iterator[tuple[Measurement, CallLabels]]:
    """Yield what runs in order, with its labels; everything once if no steps are given."""
    if not steps:
        for one in taken:
            yield one, CallLabels(stage=RUN_STAGE)
        return
    denoisers = [one for one in taken if is_denoiser(_name(one))]
    encoders = [one for one in taken if _ENCODERS.search(_name(one)) and one not in denoisers]
    prompts: tuple[Branch, ...] = ("negative_prompt", "prompt")
    branches: tuple[Branch, ...] = ("uncond", "cond")
    for one in encoders:
        for prompt in prompts[-passes:]:
            yield one, CallLabels(stage="encode", branch=prompt)
    for step in range(steps):
        for branch in branches[-passes:]:
            for one in denoisers:
                yield one, CallLabels(stage="denoise", step=step, branch=branch)
    for one in taken:
        if one not in denoisers and one not in encoders:
            yield one, CallLabels(stage="decode")


def _run(
    path: Path, taken: Sequence[Measurement], measurements: int, steps: int, passes: int
) -> ForeignRunBuilder:
    first = taken[0]
    name = path.name.removesuffix(".gz").removesuffix(".yaml").removesuffix(".perf")
    name = path.absolute().parent.name if name == "perf" else name
    run = ForeignRunBuilder("aihub", name, path, capabilities={"averages"})
    calls, at = [], 0
    for one, labels in _executions(taken, steps, passes):
        track = Track(_UNITS.get(one.unit, "qnn:0"), one.runtime, "compute")
        named = _name(one)
        made = end_to_end(named, track, [TimedLayer(named, one.time_ns, "Inference")], at)
        if steps:
            placed = call_at(0, named, at, one.time_ns, track.device, True, **labels)
            made = PlacedCall(placed, made.commands)
        calls.append(made)
        run.devices[track.device] = Device(hardware=first.device, provider=first.runtime)
        if one.peak_bytes >= 0:
            times, values = np.array([at]), np.array([one.peak_bytes])
            label = f"{named}: estimated peak"
            run.counters.append(Counter(track.device, label, "bytes", times, values))
        at += one.time_ns
    run.timeline(calls, name)
    run.settings = _settings(taken)
    if steps:
        run.spans = list(spans(name, [one.call for one in run.calls]))
        count, reason = len(calls), DropReason.STEPS_GIVEN
        run.drop(DropKind.ESTIMATED_TIMES, count, "calls", reason, steps=steps, passes=passes)
    else:
        run.drop(DropKind.ESTIMATED_TIMES, len(taken), "calls", DropReason.STEPS_UNKNOWN)
    if measurements > len(taken):
        what, reason = "measurements", DropReason.ONE_COLUMN
        run.drop(DropKind.ESTIMATED_TIMES, len(taken), what, reason, measurements=measurements)
    return run


def _others(
    path: Path,
    run: ForeignRunBuilder,
    every: Sequence[Measurement],
    chosen: tuple[str, str, str],
    steps: int,
    passes: int,
) -> Iterator[ForeignRunBuilder]:
    """Yield a run for each other device, runtime and precision, if its measurements make the same
    pipeline."""
    for column in dict.fromkeys(one.column for one in every):
        taken = [one for one in every if one.column == column]
        if column != chosen and (not steps or any(is_denoiser(_name(one)) for one in taken)):
            other = _run(path, taken, len(every), steps, passes)
            other.name, other.pipeline = "-".join((run.name, *column)), run.name
            yield other


def _settings(taken: Sequence[Measurement]) -> dict[str, Setting]:
    """The chosen column, and how many layers of each component run on which device."""
    first = taken[0]
    found: dict[str, Setting] = {
        "device": first.device,
        "runtime": first.runtime,
        "precision": first.precision,
    }
    for one in taken:
        found |= {f"{one.component}.layers_{unit}": n for unit, n in one.layers.items()}
    return found
