"""Who waits for whom: idle devices, the critical path, switches between providers."""

from __future__ import annotations

import polars as pl

from profiler.analysis.result import Analysis
from profiler.analysis.waiting.columns import BOUNDARIES, CRITICAL_PATH, IDLE, STRANDED
from profiler.messages import said, sentence
from profiler.report import waiting_charts
from profiler.report.excerpts import path_by_part, path_sentence, why_no_waits
from profiler.report.lines import of_all
from profiler.report.page.content import Figure, Part, Section, Shown, table
from profiler.report.sentences.waiting import OTHER

__all__ = ["waiting_section"]

_PATH_ROWS = 30
_STRANDED = 100
_SUFFIX = "ExecutionProvider"
_IDLE = (
    Shown("device", "device", "text"),
    Shown("span_ns", "span", "ns"),
    Shown("computing_ns", "computing", "ns"),
    Shown("waiting_ns", "waiting", "ns"),
    Shown("data_ns", "for data", "ns"),
    Shown("other_device_ns", "for another device", "ns"),
    Shown("host_ns", "for the host", "ns"),
    Shown("queued_ns", "queued", "ns"),
    Shown("between_ns", "between calls", "ns"),
    Shown("between_host_ns", "of it host work", "ns"),
    Shown("long_gaps", "long gaps", "count", minor=True),
    Shown("long_gap_ns", "in these", "ns", minor=True),
    Shown("transfer_ns", "transfers", "ns"),
    Shown("overlap", "transfers hidden", "share"),
)
_PATH = (
    Shown("part", "part", "word", none=OTHER),
    Shown("submodule", "submodule", "text"),
    Shown("device", "device", "text"),
    Shown("pieces", "pieces", "count"),
    Shown("path_ns", "on the path", "ns"),
    Shown("share", "share", "share", meaning="path_ns / wall time of the pipeline calls"),
)
_BOUNDARIES = (
    Shown("submodule", "submodule", "text"),
    Shown("source", "from provider", "text"),
    Shown("target", "to provider", "text"),
    Shown("calls", "calls", "count"),
    Shown("switches", "switches", "count"),
    Shown("copies", "copies", "count"),
    Shown("bytes", "bytes", "bytes"),
    Shown("copy_ns", "copying", "ns"),
    Shown("gap_ns", "gaps", "ns"),
)
_STRANDED_NODES = (
    Shown("layer", "layer", "layer"),
    Shown("submodule", "submodule", "text"),
    Shown("op_type", "op type", "text"),
    Shown("provider", "provider", "text"),
    Shown("nodes", "nodes", "count"),
    Shown("busy_ns", "busy", "ns"),
)


def waiting_section(analysis: Analysis) -> Section:
    """Idle devices and the critical path of the whole run; what several providers cost."""
    parts = (*_idle(analysis), *_path(analysis), *_providers(analysis))
    return Section("waiting", said("Who waits for whom"), said("Waiting"), parts)


def _idle(analysis: Analysis) -> tuple[Part, ...]:
    title, why = said("What devices waited for, whole run"), why_no_waits(analysis)
    if why:
        return (Part(title, lead=sentence(why), always=True),)
    made = table("idle", "waiting of devices", _IDLE, IDLE, analysis.idle)
    figure = Figure("idle", waiting_charts.idle)
    return (Part(title, figure=figure, table=made),)


def _path(analysis: Analysis) -> tuple[Part, ...]:
    rows = analysis.critical_path
    if rows.is_empty():
        return ()
    shown = path_by_part(rows, _PATH_ROWS)
    made = table("path", "critical path", _PATH, CRITICAL_PATH, shown)
    figure = Figure("path", waiting_charts.path)
    return (Part(path_sentence(analysis), figure=figure, table=made),)


def _providers(analysis: Analysis) -> tuple[Part, ...]:
    stranded = analysis.stranded.head(_STRANDED)
    short = pl.col("source", "target").str.strip_suffix(_SUFFIX)
    edges = analysis.boundaries.with_columns(short)
    return (
        Part(
            said("Switches between providers"),
            table=table("boundaries", "switches", _BOUNDARIES, BOUNDARIES, edges),
        ),
        Part(
            said(
                "Stranded on the host between copies, {shown} by busy time",
                shown=of_all(len(stranded), len(analysis.stranded)),
            ),
            table=table("stranded", "stranded nodes", _STRANDED_NODES, STRANDED, stranded),
        ),
    )
