"""Memory in the terminal: what each device needed, who held it, what is left."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from rich.table import Table
from rich.text import Text

from profiler.analysis.result import Analysis
from profiler.report.excerpts import UNCOUNTED_WEIGHTS
from profiler.report.terminal.layout import numbers, percents, sizes, sparkline, table, texts

__all__ = ["memory_sections"]


def memory_sections(analysis: Analysis, width: int) -> Iterator[tuple[str, list[Table | Text]]]:
    """Title and parts of each section; none where no counter tells of memory."""
    devices = analysis.memory_devices.drop_nulls("peak_bytes")
    if devices.is_empty():
        return
    parts: list[Table | Text] = [_devices(analysis.memory_devices, width)]
    for device in devices["device"]:
        course = analysis.memory_timeline.filter(pl.col("device") == device)["bytes"]
        label = f"{device} " if len(devices) > 1 else ""
        parts.append(Text(label + sparkline(course.to_list(), max(width - len(label), 1))))
    if not devices["weights_counted"].all():
        parts.append(Text(UNCOUNTED_WEIGHTS, style="dim"))
    yield "Memory, whole run", parts
    holders = analysis.memory.filter(pl.col("held_bytes").fill_null(0) > 0)
    if len(holders) > 1:
        yield "Who held it at the peak", [_holders(holders, width)]


def _devices(devices: pl.DataFrame, width: int) -> Table:
    when = [
        f"{submodule} step {step}" if submodule and step is not None and step >= 0 else submodule
        for submodule, step in devices.select("submodule", "step").iter_rows()
    ]
    return table(
        [
            texts("device", devices["device"]),
            sizes("peak", devices["peak_bytes"]),
            texts("in", when, rank=1, shrink=12),
            sizes("least", devices["least_bytes"], rank=4),
            sizes("weights", devices["weight_bytes"], rank=2),
            sizes("needed", devices["needed_bytes"]),
            sizes("memory", devices["size_bytes"], rank=3),
            sizes("head-room", devices["headroom_bytes"]),
        ],
        width,
    )


def _holders(holders: pl.DataFrame, width: int) -> Table:
    several = holders["device"].n_unique() > 1
    return table(
        [
            texts("submodule", holders["submodule"].fill_null("other")),
            *([texts("device", holders["device"])] if several else []),
            sizes("held", holders["held_bytes"]),
            percents("share", holders["share"]),
            sizes("weights", holders["weight_bytes"]),
            sizes("activations", holders["activation_bytes"]),
            sizes("own peak", holders["peak_bytes"], rank=1),
            numbers("calls", holders["calls"], rank=2),
        ],
        width,
    )
