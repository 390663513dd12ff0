"""Import OpenVINO benchmark_app counters: layer times per inference.

    import_trace(Path("benchmark_average_counters_report.csv"), Path("traces"))

Counters are those of the last inference of each infer request, averaged over requests, and
layers are laid end to end. `benchmark_report.csv` beside them gives device and median latency.
Source: openvinotoolkit/openvino, tools/benchmark_tool, utils/statistics_report.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path
from typing import Any

from profiler.errors import InputError
from profiler.importers.foreign_run import (
    ForeignRunBuilder,
    RequestTimes,
    StageTime,
    TimedLayer,
    component,
    end_to_end,
    nanoseconds,
    stage_run,
)
from profiler.importers.formats import OPENVINO, OPENVINO_HEADER, is_genai_metrics
from profiler.importers.importer import content_of, head_of, only_path, real
from profiler.importers.stage_times import decoded
from profiler.trace.events import UNKNOWN, DropKind, DropReason, Track
from profiler.trace.manifest_fields import Device, Setting

# --- What benchmark_app reports of its inferences, beside the counters of layers.


COUNTERS = ("average_counters_report", "detailed_counters_report", "sort_counters_report")
_REPORT = b"Command line parameters"
_LARGEST_MS = 1e9
_LARGEST = 64 << 20  # bytes
_LATENCY, _REQUESTS = "latency_(ms)", "number_of_parallel_infer_requests"
_FIGURES = {
    "total_number_of_iterations": "iterations",
    _LATENCY: "median_latency_ms",
    "avg_latency": "mean_latency_ms",
    "min_latency": "min_latency_ms",
    "max_latency": "max_latency_ms",
    "throughput": "throughput_per_s",
    "first_inference_time_(ms)": "first_inference_ms",
    _REQUESTS: "infer_requests",
    "batch_size": "batch_size",
    "precision": "precision",
    "API": "api",
}


def report_beside(path: Path) -> Path | None:
    """The path of `benchmark_report.csv` for the same inferences as the counters in `path`; None if
    it does not exist."""
    beside = path.with_name("benchmark_report.csv")
    for ending in COUNTERS:
        if ending in path.name:
            beside = path.with_name(path.name.replace(ending, "report").removesuffix(".gz"))
            break
    there = beside != path and beside.is_file() and head_of(beside).startswith(_REPORT)
    return beside if there else None


def milliseconds(text: str) -> float | None:
    """A time; None if it is invalid: `nan`, negative or above 11 days."""
    value = real(text)
    return value if 0 <= value < _LARGEST_MS else None


def _report(path: Path) -> dict[str, str]:
    """The entries of the report beside counters, with `_` for spaces in keys."""
    found = report_beside(path)
    text = content_of(found, _LARGEST).decode("utf-8", "replace") if found else ""
    pairs = (row for line in text.splitlines() if len(row := line.split(";")) == 2)
    return {key.strip().replace(" ", "_"): value.strip() for key, value in pairs}


def _settings(report: dict[str, str]) -> dict[str, Setting]:
    """The figures of a report, under the names that settings have."""
    found: dict[str, Setting] = {}
    for key, name in _FIGURES.items():
        if key in report and report[key] != "UNSPECIFIED":  # no hint of a precision
            number, text = milliseconds(report[key]), report[key][:200]
            whole = number is not None and number == int(number)
            found[name] = text if number is None else int(number) if whole else number
    return found


# --- Counters of OpenVINO's benchmark_app → a bundle: a call a section. A call of one request lasts
# as long as the median one of the report beside them.


_EXECUTED, _NO_COMMAND = "EXECUTED", ("OPTIMIZED_OUT", "NOT_RUN")
_TOTAL = "Total"
_LINE = re.compile(r"\r?\n|\r")
_GRAIN_MS = 0.0005  # the resolution of a time with three decimals
_DEVICE = "openvino:0"


@dataclass(slots=True)
class _Section:
    """A table of layers up to its row `Total`."""

    layers: list[TimedLayer] = field(default_factory=list)
    unread: int = 0
    total_ms: float | None = None

    @property
    def sum_ms(self) -> float:
        return sum(layer.duration_ns for layer in self.layers) / 1e6


def read_run(paths: Sequence[Path]) -> ForeignRunBuilder:
    """Read one file of counters, or several of metrics. Raises InputError if there is no layer
    time."""
    if any(is_genai_metrics(head_of(one)) for one in paths):
        return read_metrics(paths)
    counters = [one for one in paths if not head_of(one).startswith(_REPORT)]
    path = only_path(counters, OPENVINO.accepts)
    text = content_of(path, _LARGEST).decode("utf-8", "replace").lstrip("\ufeff")
    sections = [one for one in _sections(text) if one.layers]
    if not sections:
        raise InputError(
            f"{path} holds no time of a layer: give what `benchmark_app -report_type "
            "average_counters -pc` writes"
        )
    report, name = _report(path), _name(path)
    model = Path(report.get("-m", "")).name[:200]
    run = ForeignRunBuilder("openvino", name, path, 1 + bool(report), model)
    run.capability(averages=True)
    hardware = report.get("target_device", "")[:200]
    run.devices[_DEVICE] = Device(hardware=hardware, provider="OpenVINO")
    run.settings = _settings(report)
    # the median latency of an inference; concurrent ones wait for each other
    alone = len(sections) == 1 and report.get(_REQUESTS, "1") == "1"
    lasts = round((milliseconds(report.get(_LATENCY, "")) or 0) * 1e6) if alone else 0
    track, submodule = Track(_DEVICE, "layers", "compute"), component(name) or name
    for one in sections:
        run.timeline([end_to_end(submodule, track, one.layers, lasts_ns=lasts)])
    _add_drops(run, sections)
    if lasts > sections[0].sum_ms * 1e6:
        run.drop(DropKind.ESTIMATED_TIMES, 1, "calls", DropReason.MEDIAN_LATENCY)
    return run


def _sections(text: str) -> Iterator[_Section]:
    """Yield one table after the other: `detailed_counters` repeats its header for each request."""
    section = _Section()
    for line in _LINE.split(text):
        cells = [cell.strip() for cell in line.split(";")]
        if not any(cells) or ";".join(cells).encode() == OPENVINO_HEADER:
            continue
        if cells[0] == _TOTAL and not any(cells[1:4]):
            section.total_ms = milliseconds(cells[4]) if len(cells) > 4 else None
            yield section
            section = _Section()
            continue
        time = milliseconds(cells[4]) if len(cells) == 6 else None
        status = cells[1].removeprefix("Status.") if len(cells) == 6 else ""
        if status == _EXECUTED and time is not None and cells[0]:
            name, _, kind, kernel = cells[:4]
            section.layers.append(TimedLayer(name, round(time * 1e6), kind, kernel))
        else:
            section.unread += status not in _NO_COMMAND
    if section.layers or section.unread:
        yield section


def _add_drops(run: ForeignRunBuilder, sections: Sequence[_Section]) -> None:
    layers, timelines = sum(len(one.layers) for one in sections), len(sections)
    unread = sum(one.unread for one in sections)
    run.drop(DropKind.ESTIMATED_TIMES, layers, "commands", DropReason.LAID_END_TO_END)
    if timelines > 1:
        run.drop(DropKind.ESTIMATED_TIMES, timelines, "timelines", DropReason.TIMELINES_APART)
    run.drop(DropKind.DROPPED_EVENTS, unread, "events", DropReason.DAMAGED)
    if sections[-1].total_ms is None:
        run.drop(DropKind.TRUNCATED_FILE, UNKNOWN, "events", DropReason.ENTRIES_CUT)
    for one in sections:
        slack = _GRAIN_MS * (len(one.layers) + 1)
        if one.total_ms is not None and not isclose(one.sum_ms, one.total_ms, abs_tol=slack):
            run.drop(
                *(DropKind.AGGREGATE_MISMATCH, len(one.layers), "commands"),
                DropReason.LAYERS_UNLIKE_TOTAL,
                layers_ns=round(one.sum_ms * 1e6),
                total_ns=round(one.total_ms * 1e6),
            )


def _name(path: Path) -> str:
    """The file's name without the tool's additions."""
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    for ending in COUNTERS:
        name = name.removesuffix(ending)
    name = name.rstrip("_")
    return name.removesuffix("benchmark").rstrip("_") or path.absolute().parent.name or "openvino"


# --- YAML of untrusted files: plain values only, with a limited depth.


_DEEPEST = 20  # nested mappings and lists


def plain_yaml(data: bytes, deepest: int = _DEEPEST) -> Any:
    """The parsed document. Raises ValueError if it is not plain YAML.

    Aliases and deep nesting are refused before anything is built: a few hundred bytes of aliases
    expand without end, and nesting takes quadratic time.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        for event in yaml.parse(data, loader):
            opens = isinstance(event, yaml.CollectionStartEvent)
            depth += opens - isinstance(event, yaml.CollectionEndEvent)
            if depth > deepest or isinstance(event, yaml.AliasEvent):
                raise ValueError("it nests too deeply or uses an alias (*name)")
        return yaml.load(data, loader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


# --- Metrics of OpenVINO GenAI's image and video generation → a bundle without commands.
#
# The library writes no file: docs/openvino.md has the lines that put what its object says
# (`ImageGenerationPerfMetrics`) into JSON, under the names of its getters. Source:
# openvinotoolkit/openvino.genai, image_generation_perf_metrics.hpp.


_LARGEST_FILE = 64 << 20
_LONGEST = 200
_DENOISERS = {"transformer_inference_durations": "transformer", "unet_inference_durations": "unet"}


def read_metrics(paths: Sequence[Path]) -> ForeignRunBuilder:
    """Read metrics; each file is a pipeline call. Raises InputError if none has a time."""
    found = []
    for path in sorted(paths):
        document = decoded(content_of(path, _LARGEST_FILE))
        if isinstance(document, dict):
            found.append(_request(document))
    requests = [one for one in found if one.stages]
    path = min(paths)
    if not requests:
        raise InputError(
            f"{path} holds no time of a model: write it after `generate`, as docs/openvino.md says"
        )
    name = path.name.removesuffix(".gz").removesuffix(".json")
    return stage_run("openvino_genai", name, paths, requests)


def _request(document: Mapping[str, Any]) -> RequestTimes:
    total = nanoseconds(document.get("generate_duration")) or 0
    return RequestTimes("request", tuple(_stages(document, total)), total)


def _stages(document: Mapping[str, Any], total: int) -> Iterator[StageTime]:
    encoders = document.get("text_encoder_infer_duration")
    named = dict(encoders) if isinstance(encoders, dict) else {}
    named["vae_encoder"] = document.get("vae_encoder_infer_duration")
    for name, given in named.items():
        time = nanoseconds(given)
        if time:
            yield StageTime(str(name)[:_LONGEST], time, "encode")
    steps = _durations(document.get("iteration_durations"), total)
    for key, name in _DENOISERS.items():
        inferences = _durations(document.get(key), total)
        if inferences:
            loop = steps if len(steps) == len(inferences) else inferences
            yield StageTime(name, sum(loop), "denoise", loop)
            break
    decoder = nanoseconds(document.get("vae_decoder_infer_duration"))
    if decoder:
        yield StageTime("vae_decoder", decoder, "decode")


def _durations(given: Any, total: int) -> tuple[int, ...]:
    """Times of steps in ns. The object has µs; if only ms fit into the total, a user may have
    written ms."""
    times = [nanoseconds(one) for one in given] if isinstance(given, list) else []
    known = [one for one in times if one is not None]
    if len(known) < len(times):
        return ()
    in_ms = total > 0 and sum(known) <= total
    return tuple(known) if in_ms else tuple(round(one / 1000) for one in known)
