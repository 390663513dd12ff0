"""Who waits for whom: idle devices, the critical path, switches between providers."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.waiting.columns import BOUNDARIES, CRITICAL_PATH, IDLE, STRANDED
from profiler.messages import said, sentence
from profiler.report.charts.critical_path import critical_path
from profiler.report.charts.idle import idle
from profiler.report.excerpts import path_by_part, path_sentence, why_no_waits
from profiler.report.model import Figure, Part, ReportInput, SectionKind
from profiler.report.views import renamed, table

__all__ = ["SECTION"]

_PATH_ROWS = 30
_STRANDED = 100
_SUFFIX = "ExecutionProvider"
_IDLE = (
    "device",
    "span_ns",
    "computing_ns",
    "waiting_ns",
    "data_ns",
    "other_device_ns",
    "host_ns",
    "queued_ns",
    "between_ns",
    "between_host_ns",
    "long_gaps",
    "long_gap_ns",
    "transfer_ns",
    "overlap",
)
_PATH = (
    "part",
    "submodule",
    "device",
    "pieces",
    "path_ns",
    renamed(CRITICAL_PATH, "share", meaning="path_ns / wall time of the pipeline calls"),
)
_BOUNDARIES = (
    "submodule",
    "source",
    "target",
    "calls",
    "switches",
    "copies",
    "bytes",
    "copy_ns",
    "gap_ns",
)
_STRANDED_NODES = (
    "layer",
    "submodule",
    "op_type",
    "provider",
    "nodes",
    "busy_ns",
)


def _parts(of: ReportInput) -> tuple[Part, ...]:
    """Idle devices and the critical path of the whole run; what several providers cost."""
    return (*_idle(of), *_path(of), *_providers(of))


def _idle(of: ReportInput) -> Iterator[Part]:
    analysis = of.analysis
    title, why = said("What devices waited for, whole run"), why_no_waits(analysis)
    if why:
        yield Part(title, lead=sentence(why), always=True)
        return
    if analysis.idle.is_empty():
        return
    figure = Figure("idle", lambda theme: idle(analysis, theme))
    made = table("idle", "waiting of devices", _IDLE, IDLE, analysis.idle, shown=20)
    yield Part(title, figure=figure, table=made)


def _path(of: ReportInput) -> Iterator[Part]:
    analysis = of.analysis
    if analysis.critical_path.is_empty():
        return
    rows = path_by_part(analysis.critical_path, _PATH_ROWS)
    figure = Figure("path", lambda theme: critical_path(analysis, theme))
    made = table("path", "critical path", _PATH, CRITICAL_PATH, rows)
    yield Part(path_sentence(analysis), figure=figure, table=made)


def _providers(of: ReportInput) -> Iterator[Part]:
    short = pl.col("source", "target").str.strip_suffix(_SUFFIX)
    edges = of.analysis.boundaries.with_columns(short)
    yield Part(
        said("Switches between providers"),
        table=table("boundaries", "switches", _BOUNDARIES, BOUNDARIES, edges),
    )
    yield Part(
        said("Stranded on the host between copies, by busy time"),
        table=table(
            "stranded",
            "stranded nodes",
            _STRANDED_NODES,
            STRANDED,
            of.analysis.stranded,
            shown=of.rows(10),
            held=_STRANDED,
        ),
    )


SECTION = SectionKind(
    "idle",
    70,
    said("Idle time and critical path"),
    _parts,
    contents=said("Idle"),
    tables=("idle", "critical_path", "boundaries", "stranded"),
)
