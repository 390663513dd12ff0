"""Who waits for whom: idle devices, the critical path, switches between providers."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.registry import table_named
from profiler.analysis.result import Analysis
from profiler.analysis.waiting.columns import (
    CPU_FALLBACK,
    CRITICAL_PATH,
    DEVICE_TRANSITIONS,
    IDLE,
)
from profiler.analysis.waiting.gap_columns import COPIES, GAPS
from profiler.report.excerpts import (
    guessed_waits,
    path_by_part,
    path_sentence,
    why_no_waits,
)
from profiler.report.model import Bars, Figure, Part, ReportInput, SectionKind
from profiler.report.views import declared_figure, renamed, table
from profiler.text import said, sentence

__all__ = ["SECTION", "critical_path_figure", "idle_figure"]

_PATH_ROWS = 30
_CPU_FALLBACK = 100
_SUFFIX = "ExecutionProvider"
_IDLE = (
    "device",
    "span_ns",
    "computing_ns",
    "idle_ns",
    "idle_share",
    "launch_ns",
    "unknown_cause_ns",
    "sync_ns",
    "queue_ns",
    "copy_wait_ns",
    "other_device_ns",
    "host_ns",
    "host_work_ns",
    "outside_ns",
    "unused_ns",
    "collective_ns",
    "exposed_ns",
    "data_ns",
    "unrecorded_ns",
    "long_gaps",
    "long_gap_ns",
    "transfer_ns",
    "overlap_share",
)
_LATE = said(
    "Launch-bound time of calls, submodules and steps is the sum of launch-bound and sync-bound "
    "here: after a wait, too, the host launches too late."
)
_GAPS = (
    renamed(GAPS, "begin_ns", meaning="when it ran dry, from the begin of the run"),
    "length_ns",
    "cause",
    "position",
    "submodule",
    "step",
    "call",
    "device",
    "host_doing",
    "host_doing_kind",
    "host_doing_share",
    "repeated",
    "repeated_times",
)
_PATH = (
    "part",
    "submodule",
    "device",
    "pieces",
    "path_ns",
    "guessed_ns",
    renamed(CRITICAL_PATH, "share", meaning="path_ns / wall time of the pipeline calls"),
)
_DEVICE_TRANSITIONS = (
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
_FALLBACK_NODES = (
    "layer",
    "submodule",
    "op_type",
    "provider",
    "nodes",
    "total_ns",
)


def _parts(of: ReportInput) -> tuple[Part, ...]:
    """Idle devices and the critical path of the whole run; what several providers cost."""
    return (*_idle(of), *_copies(of), *_busy(of), *_gaps(of), *_path(of), *_providers(of))


def idle_figure(analysis: Analysis) -> Figure:
    """What each device did, and what it waited for otherwise."""
    return Figure("idle", "idle", (analysis.idle,))


def critical_path_figure(analysis: Analysis) -> Figure:
    """What the critical path consists of."""
    names = [part.submodule for part in analysis.accounting.submodules]
    return Figure("path", "critical_path", (analysis.critical_path, names))


def _idle(of: ReportInput) -> Iterator[Part]:
    analysis = of.analysis
    title, why = (
        said("What devices waited for, whole run"),
        why_no_waits(analysis.idle, analysis.run),
    )
    if why:
        yield Part(title, lead=sentence(why), always=True)
        return
    if analysis.idle.is_empty():
        return
    figure = idle_figure(analysis)
    made = table("idle", "waiting of devices", _IDLE, IDLE, analysis.idle, shown=20)
    late = bool((analysis.idle["sync_ns"] > 0).any())
    yield Part(title, figure=figure, table=made, notes=(_LATE,) if late else ())


def _copies(of: ReportInput) -> Iterator[Part]:
    columns = [column.name for column in COPIES]
    made = table("copies", "copies", columns, COPIES, of.analysis.copies, shown=20)
    yield Part(said("Copies, whole run"), table=made)


def _busy(of: ReportInput) -> Iterator[Part]:
    """How busy each device was over time."""
    frame = of.analysis.busy_timeline
    if not frame.is_empty():
        groups = frame.group_by("device", maintain_order=True)
        bars = tuple(
            Bars(str(device), (rows["busy_share"] * 1000).round().cast(pl.Int64).to_list())
            for (device,), rows in groups
        )
        figure = declared_figure(table_named("busy_timeline"), frame, bars)
        yield Part(said("Busy share over time"), figure=figure)


def _gaps(of: ReportInput) -> Iterator[Part]:
    relative = of.analysis.gaps.with_columns(pl.col("begin_ns") - of.begin_ns)
    made = table("gaps", "gaps", _GAPS, GAPS, relative, shown=of.rows(10))
    yield Part(said("Longest gaps, whole run"), table=made)


def _path(of: ReportInput) -> Iterator[Part]:
    analysis = of.analysis
    if analysis.critical_path.is_empty():
        return
    rows = path_by_part(analysis.critical_path, _PATH_ROWS)
    made = table("path", "critical path", _PATH, CRITICAL_PATH, rows)
    guessed = guessed_waits(analysis.critical_path)
    yield Part(
        path_sentence(analysis.critical_path),
        figure=critical_path_figure(analysis),
        table=made,
        notes=(sentence(guessed),) if guessed else (),
    )


def _providers(of: ReportInput) -> Iterator[Part]:
    short = pl.col("source", "target").str.strip_suffix(_SUFFIX)
    edges = of.analysis.device_transitions.with_columns(short)
    yield Part(
        said("Switches between providers"),
        table=table(
            "device_transitions", "switches", _DEVICE_TRANSITIONS, DEVICE_TRANSITIONS, edges
        ),
    )
    yield Part(
        said("CPU fallback between copies, by total time"),
        table=table(
            "cpu_fallback",
            "CPU fallback nodes",
            _FALLBACK_NODES,
            CPU_FALLBACK,
            of.analysis.cpu_fallback,
            shown=of.rows(10),
            held=_CPU_FALLBACK,
        ),
    )


SECTION = SectionKind(
    "idle",
    70,
    said("Idle time"),
    _parts,
    tables=(
        "idle",
        "copies",
        "busy_timeline",
        "gaps",
        "critical_path",
        "device_transitions",
        "cpu_fallback",
    ),
)
