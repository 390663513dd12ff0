"""The tables of copies and of switches between providers."""

from __future__ import annotations

import polars as pl

from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.table import Table
from profiler.analysis.waiting.columns import CPU_FALLBACK, DEVICE_TRANSITIONS
from profiler.analysis.waiting.copies import copy_table
from profiler.analysis.waiting.device_transitions import transition_tables
from profiler.analysis.waiting.gap_columns import COPIES

__all__ = ["TABLES"]


@shared
def _transition_frames(of: Inputs) -> tuple[pl.DataFrame, pl.DataFrame]:
    return transition_tables(of.calls, of.frame, of.commands)


TABLES = (
    Table(
        name="copies",
        row="the copies of one direction on a device",
        section="idle",
        columns=COPIES,
        make=lambda of: copy_table(of.run, of.everything),
        title="Copies, whole run",
        about="Copies are the commands of category dma and copy, except collectives and fills.",
    ),
    Table(
        name="device_transitions",
        row="one pair of providers that a session switches between",
        section="idle",
        columns=DEVICE_TRANSITIONS,
        make=lambda of: _transition_frames(of)[0],
        title="Switches between providers",
        about="Providers are those of ONNX Runtime. Rows with the longest copies and gaps come "
        "first. [idle.md](idle.md) has details.",
    ),
    Table(
        name="cpu_fallback",
        row="one layer that fell back to another provider",
        section="idle",
        columns=CPU_FALLBACK,
        make=lambda of: _transition_frames(of)[1],
        title="CPU fallback between copies",
        about="The nodes of the layer ran on the host, between copies from and to a device. The "
        "longest come first. [idle.md](idle.md) has details.",
        rank=("-total_ns",),
    ),
)
