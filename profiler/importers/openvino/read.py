"""Counters of OpenVINO's benchmark_app → a bundle.

    import_trace(Path("benchmark_average_counters_report.csv"), Path("traces"))

The counters are those of the last inference of each infer request, averaged over requests: a call a
section, its layers laid end to end. `benchmark_report.csv` beside them tells device and latency: a
call of one request lasts as long as the median one.
Source of the format: openvinotoolkit/openvino, tools/benchmark_tool, utils/statistics_report.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import UNKNOWN, Drop, DropKind, Track
from profiler.importers.components import component
from profiler.importers.head import content_of, head_of
from profiler.importers.importer import only_path
from profiler.importers.openvino import HEADER, IMPORTER
from profiler.importers.openvino.report import COUNTERS, Report, is_report, milliseconds
from profiler.importers.placed import PlacedRun, Timed, end_to_end, timelines
from profiler.notes import Note
from profiler.trace.manifest_fields import Device

__all__ = ["read_run"]

_EXECUTED, _NO_COMMAND = "EXECUTED", ("OPTIMIZED_OUT", "NOT_RUN")
_TOTAL = "Total"
_LINE = re.compile(r"\r?\n|\r")
_LARGEST = 64 << 20  # bytes
_GRAIN_MS = 0.0005  # of a time with three decimals
_DEVICE = "openvino:0"


@dataclass(slots=True)
class _Section:
    """A table of layers up to its row `Total`; `idle` counts layers that executed nothing."""

    layers: list[Timed] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    idle: int = 0
    unread: int = 0
    total_ms: float | None = None

    @property
    def sum_ms(self) -> float:
        return sum(layer.duration_ns for layer in self.layers) / 1e6


def read_run(paths: Sequence[Path]) -> PlacedRun:
    """Read one file. Raises InputError where it holds no time of a layer."""
    counters = [one for one in paths if not is_report(head_of(one))]
    path = only_path(counters, IMPORTER.accepts)
    text = content_of(path, _LARGEST).decode("utf-8", "replace").lstrip("\ufeff")
    sections = [one for one in _sections(text) if one.layers]
    if not sections:
        raise InputError(
            f"{path} holds no time of a layer: give what `benchmark_app -report_type "
            "average_counters -pc` writes"
        )
    report = Report.beside(path)
    device = _DEVICE
    name = _name(path)
    track = Track(device, "layers", "compute")
    lasts = report.latency_ns if len(sections) == 1 else 0
    calls = [end_to_end(_submodule(name), track, one.layers, lasts_ns=lasts) for one in sections]
    longer = lasts > sections[0].sum_ms * 1e6
    placed, spans, _ = timelines(name, [[call] for call in calls])
    return PlacedRun(
        producer="openvino",
        name=name,
        path=path,
        placed=placed,
        capabilities=frozenset({"averages"}),
        spans=spans,
        devices={device: Device(hardware=report.device, provider="OpenVINO")},
        files=1 + bool(report),
        drops=(*_drops(path, sections), *([_of_median(path)] if longer else [])),
        settings=report.settings(),
        model=report.model,
    )


def _sections(text: str) -> Iterator[_Section]:
    """One table after the other: `detailed_counters` repeats its header for each request."""
    section = _Section()
    for line in _LINE.split(text):
        cells = [cell.strip() for cell in line.split(";")]
        if not any(cells) or ";".join(cells).encode() == HEADER:
            continue
        if cells[0] == _TOTAL and not any(cells[1:4]):
            section.total_ms = milliseconds(cells[4]) if len(cells) > 4 else None
            yield section
            section = _Section()
        else:
            _add(section, cells)
    if section.layers or section.unread:
        yield section


def _add(section: _Section, cells: Sequence[str]) -> None:
    time = milliseconds(cells[4]) if len(cells) == 6 else None
    status = cells[1].removeprefix("Status.") if len(cells) == 6 else ""
    if status in _NO_COMMAND:
        section.idle += 1
    elif status != _EXECUTED or time is None or not cells[0]:
        section.unread += 1
    else:
        name, _, kind, kernel = cells[:4]
        section.layers.append(Timed(name, round(time * 1e6), kind, kernel))


def _drops(path: Path, sections: Sequence[_Section]) -> Iterator[Drop]:
    layers = sum(len(one.layers) for one in sections)
    note = Note.of(DropReason.LAID_END_TO_END)
    yield Drop(DropKind.ESTIMATED_TIMES, path.name, layers, "commands", note)
    if len(sections) > 1:
        note = Note.of(DropReason.TIMELINES_APART)
        yield Drop(DropKind.ESTIMATED_TIMES, path.name, len(sections), "timelines", note)
    unread = sum(one.unread for one in sections)
    if unread:
        note = Note.of(DropReason.DAMAGED)
        yield Drop(DropKind.DROPPED_EVENTS, path.name, unread, "events", note)
    if sections[-1].total_ms is None:
        note = Note.of(DropReason.ENTRIES_CUT)
        yield Drop(DropKind.TRUNCATED_FILE, path.name, UNKNOWN, "events", note)
    for one in sections:
        slack = _GRAIN_MS * (len(one.layers) + 1)
        if one.total_ms is not None and not isclose(one.sum_ms, one.total_ms, abs_tol=slack):
            note = Note.of(
                DropReason.LAYERS_UNLIKE_TOTAL,
                layers_ns=round(one.sum_ms * 1e6),
                total_ns=round(one.total_ms * 1e6),
            )
            yield Drop(DropKind.AGGREGATE_MISMATCH, path.name, len(one.layers), "commands", note)


def _of_median(path: Path) -> Drop:
    note = Note.of(DropReason.MEDIAN_LATENCY)
    return Drop(DropKind.ESTIMATED_TIMES, path.name, 1, "calls", note)


def _name(path: Path) -> str:
    """The file's name without what the tool adds to it."""
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    for ending in COUNTERS:
        name = name.removesuffix(ending)
    name = name.rstrip("_")
    return name.removesuffix("benchmark").rstrip("_") or path.absolute().parent.name or "openvino"


def _submodule(name: str) -> str:
    return component(name) or name
