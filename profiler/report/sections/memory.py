"""What memory each device needed, when, who held it, and what is left."""

from __future__ import annotations

import polars as pl

from profiler.analysis.memory.columns import MEMORY, MEMORY_DEVICES
from profiler.analysis.result import Analysis
from profiler.messages import said, sentence
from profiler.report.charts import memory as memory_chart
from profiler.report.excerpts import UNCOUNTED_WEIGHTS
from profiler.report.model import Figure, Part, Section, Shown, table

__all__ = ["memory_section"]

_DEVICES = (
    Shown("device", "device", "text"),
    Shown("peak_bytes", "peak", "bytes"),
    Shown("peak_ns", "at", "ns"),
    Shown("submodule", "in", "text"),
    Shown("step", "step", "step"),
    Shown("least_bytes", "least", "bytes"),
    Shown("weight_bytes", "weights", "bytes"),
    Shown("needed_bytes", "needed", "bytes"),
    Shown("size_bytes", "memory", "bytes"),
    Shown("headroom_bytes", "head-room", "bytes"),
    Shown("counters", "counters", "list", minor=True),
)
_HOLDERS = (
    Shown("submodule", "submodule", "text"),
    Shown("device", "device", "text"),
    Shown("held_bytes", "held", "bytes"),
    Shown("share", "share", "share"),
    Shown("weight_bytes", "weights", "bytes"),
    Shown("activation_bytes", "activations", "bytes"),
    Shown("peak_bytes", "own peak", "bytes"),
    Shown("calls", "calls", "count"),
)


def memory_section(analysis: Analysis, begin_ns: int) -> Section:
    """Devices with counters of memory; times are relative to `begin_ns`."""
    devices = analysis.memory_devices
    counted = devices.drop_nulls("peak_bytes")
    if counted.is_empty():
        return Section("memory", said("Memory"), said("Memory"))
    relative = devices.with_columns(pl.col("peak_ns") - begin_ns)
    holders = analysis.memory.filter(pl.col("held_bytes").fill_null(0) > 0).with_columns(
        pl.col("submodule").fill_null("other")
    )
    note = sentence(UNCOUNTED_WEIGHTS)
    parts = (
        Part(
            said("Peak and head-room, whole run"),
            figure=Figure("memory", memory_chart.memory),
            table=table("memory_devices", "memory", _DEVICES, MEMORY_DEVICES, relative),
            notes=() if counted["weights_counted"].all() else (note,),
        ),
        Part(
            said("Who held it at the peak"),
            table=table("memory", "holders", _HOLDERS, MEMORY, holders),
        ),
    )
    return Section("memory", said("Memory"), said("Memory"), parts)
