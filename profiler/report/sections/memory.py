"""What memory each device needed, when, who held it, and what is left."""

from __future__ import annotations

import polars as pl

from profiler.analysis.host_side import is_accelerator
from profiler.analysis.memory.codes import why_no_allocations
from profiler.analysis.memory.columns import MEMORY, MEMORY_DEVICES
from profiler.analysis.memory.counters import CHANGES
from profiler.analysis.result import Analysis
from profiler.report.model import Bars, Figure, Part, ReportInput, SectionKind
from profiler.report.sentences.worded import worded
from profiler.report.views import table
from profiler.text import said, sentence

__all__ = ["SECTION", "memory_figure"]

_UNCOUNTED_WEIGHTS = said("required: the peak, plus weights, which the counters leave out")
_CHANGES_ALONE = said(
    "The memory that {devices} held when the recording began is unknown and not in these "
    "figures: the trace has only changes. The head-room is at most the value shown."
)
_DEVICES = (
    "device",
    "peak_bytes",
    "peak_ns",
    "submodule",
    "step",
    "least_bytes",
    "weight_bytes",
    "needed_bytes",
    "size_bytes",
    "headroom_bytes",
    "counters",
)
_HOLDERS = (
    "submodule",
    "device",
    "held_bytes",
    "share",
    "weight_bytes",
    "activation_bytes",
    "peak_bytes",
    "calls",
)


def _parts(of: ReportInput) -> tuple[Part, ...]:
    """Devices with counters of memory, and who held it at the peak; why allocations are missing."""
    analysis, devices = of.analysis, of.analysis.memory_devices
    run = analysis.run
    missing = why_no_allocations(run.producer, run.recording, devices["counters"])
    why = () if missing is None else (sentence(worded(missing)),)
    counted = devices.drop_nulls("peak_bytes")
    if counted.is_empty():
        return (Part(notes=why, always=True),) if why else ()
    relative = devices.with_columns(pl.col("peak_ns") - of.begin_ns)
    notes = why if counted["weights_counted"].all() else (sentence(_UNCOUNTED_WEIGHTS), *why)
    holders = analysis.memory.filter(pl.col("held_bytes").fill_null(0) > 0).with_columns(
        pl.col("submodule").fill_null("other")
    )
    return (
        Part(
            said("Peak and head-room, whole run"),
            figure=memory_figure(analysis),
            table=table("memory_devices", "memory", _DEVICES, MEMORY_DEVICES, relative, shown=20),
            notes=(*_changes_alone(counted), *notes),
        ),
        Part(
            said("What held memory at the peak"),
            table=table("memory", "holders", _HOLDERS, MEMORY, holders, shown=20),
        ),
    )


def _changes_alone(devices: pl.DataFrame) -> tuple[str, ...]:
    """That accelerators may have held more, where all that a foreign trace tells are changes."""
    alone = [
        row["device"]
        for row in devices.rows(named=True)
        if is_accelerator(row["device"].rpartition("/")[2]) and _of_changes(row["counters"])
    ]
    return (said(_CHANGES_ALONE.template, devices=", ".join(alone)),) if alone else ()


def _of_changes(counters: str | None) -> bool:
    """Whether all of a device's counters count changes since they began."""
    return bool(counters) and all(CHANGES in name for name in str(counters).split(", "))


def memory_figure(analysis: Analysis) -> Figure:
    """What the counters of each device held over the run."""
    frames = (analysis.memory_timeline, analysis.memory_devices, analysis.calls)
    return Figure("memory", "memory", frames, _course(analysis))


def _course(analysis: Analysis) -> tuple[Bars, ...]:
    """What each device held over the run."""
    groups = analysis.memory_timeline.group_by("device", maintain_order=True)
    return tuple(Bars(str(device), rows["bytes"].to_list()) for (device,), rows in groups)


SECTION = SectionKind(
    "memory",
    80,
    said("Memory"),
    _parts,
    tables=("memory_devices", "memory", "memory_timeline"),
)
