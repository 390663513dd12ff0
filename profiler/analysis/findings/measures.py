"""What rules measure against: the run's time, shares of it, and what untraced calls add."""

from __future__ import annotations

from typing import Any

import polars as pl

from profiler.analysis.findings.finding import Where
from profiler.analysis.host_side import is_accelerator
from profiler.analysis.result import Analysis
from profiler.trace.events import DropKind, device_kind

__all__ = [
    "MATERIAL",
    "UNLABELLED",
    "accelerators",
    "calls_of",
    "captures_and_replays",
    "end_to_end_ns",
    "has_queues",
    "of_server",
    "scaled",
    "share",
    "unaligned",
    "works_behind",
]

MATERIAL = 0.01  # of end to end: what cannot save more is below what repeated runs differ by
UNLABELLED = "unlabelled"  # what importers call calls of a submodule that they cannot tell
_MOST_CALLS = 8  # that a finding names
_QUEUES = frozenset(("cuda", "mps", "rocm", "xpu"))  # kinds of devices whose work is launched ahead


def end_to_end_ns(analysis: Analysis) -> int:
    """End-to-end time; without pipeline spans the time of all submodules' calls."""
    accounting = analysis.accounting
    return accounting.end_to_end_ns or sum(part.wall_ns for part in accounting.submodules)


def share(part_ns: float, whole_ns: float) -> float:
    """`part_ns / whole_ns`, 0 of nothing."""
    return part_ns / whole_ns if whole_ns > 0 else 0.0


def accelerators(analysis: Analysis) -> pl.DataFrame:
    """The rows of the idle table that are of accelerators; none without calls."""
    rows = analysis.idle if len(analysis.calls) else analysis.idle.clear()
    return rows.filter(pl.Series([is_accelerator(d) for d in rows["device"]], dtype=pl.Boolean))


def has_queues(analysis: Analysis) -> bool:
    """Whether some device works through a queue, behind calls that have returned."""
    return any(device_kind(name) in _QUEUES for name in analysis.devices["device"])


def unaligned(analysis: Analysis) -> bool:
    """Whether nothing relates the clock of some device to that of another."""
    return any(drop.kind == DropKind.UNALIGNED_CLOCK for drop in analysis.drops)


def captures_and_replays(analysis: Analysis) -> bool:
    """Whether graphs were captured in the run that replays them."""
    recording = analysis.run.recording
    graphs = recording.graphs if recording else None
    return graphs is not None and bool(graphs.captured and graphs.replays)


def of_server(analysis: Analysis) -> bool:
    """Whether devices are the models of a server, which tells of no hardware."""
    return "requests" in analysis.inputs.run.info.capabilities


def scaled(analysis: Analysis, frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """`frame`, which has the column `submodule`, with `names` times all calls over traced calls:
    what was measured in traced calls stands for the others."""
    if frame.is_empty():
        return frame
    submodules = analysis.submodules.select("submodule", "calls", "traced_calls").iter_rows()
    scale = {name: calls / traced for name, calls, traced in submodules if traced > 0}
    factor = pl.Series([scale.get(name, 1.0) for name in frame["submodule"]], dtype=pl.Float64)
    return frame.with_columns(pl.col(name) * factor for name in names)


def calls_of(analysis: Analysis, submodule: str | None = None, **columns: object) -> Where:
    """Where the calls of a submodule are; `columns` are further fields of `Where`."""
    rows = analysis.calls
    if submodule is not None:
        rows = rows.filter(pl.col("submodule") == submodule)
    for name in ("pipeline", "step"):
        if columns.get(name) is not None:
            rows = rows.filter(pl.col(name) == columns[name])
    numbers = tuple(rows["call"].head(_MOST_CALLS).to_list())
    fields: dict[str, Any] = {"submodule": submodule, **columns}
    return Where(**fields, calls=numbers)


def works_behind(analysis: Analysis) -> str:
    """A GPU with a queue on which calls were captured without their operators, and that has not
    noted when it worked on them, "" without one: a call returns once its work is launched, and what
    the host waits for it lies between calls."""
    if analysis.run.producer != "capture":
        return ""
    told = pl.col("ops_traced") | pl.col("device_duration_ns").is_not_null()
    calls = analysis.inputs.run.calls.with_columns(pl.col("device").cast(pl.String))
    each = calls.group_by("submodule", "device").agg(told=told.any()).drop_nulls("device")
    untold = sorted(each.filter(~pl.col("told"))["device"])
    return next((name for name in untold if device_kind(name) in _QUEUES), "")
