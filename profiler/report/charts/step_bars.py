"""Durations of denoising steps as lines of bars: of the steps, and of each submodule in them."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from rich.text import Text

from profiler.analysis.result import Analysis
from profiler.report.terminal.layout import clean, shorten, sparkline

__all__ = ["step_bars"]

_WHOLE = "step"
_LABEL = 16  # characters of a submodule's name
_LINES = 8  # submodules that run in steps


def step_bars(analysis: Analysis, width: int) -> Iterator[Text]:
    """A bar a step; where several submodules run in steps, a line for each of them too, its bars
    below those of the steps. What is longer than the line says how many steps a bar stands for."""
    steps = analysis.steps
    rows = {_WHOLE: steps["duration_ns"].to_list(), **_of_submodules(analysis, steps)}
    names = {name: shorten(clean(name), _LABEL) for name in rows}
    several = len(rows) > 1
    label = max(map(len, names.values())) + 2 if several else 0
    room = max(width - label, 1)
    for name, values in rows.items():
        head = f"{names[name]:<{label}}" if several else ""
        yield Text(head, style="dim").append(sparkline(values, room), style="not dim")
    if len(steps) > room:
        yield Text(f"each bar the longest of up to {-(-len(steps) // room)} steps", style="dim")


def _of_submodules(analysis: Analysis, steps: pl.DataFrame) -> dict[str, list[int]]:
    """The time in calls of each of the first submodules in each step, 0 where it was not called;
    none where only one runs in them."""
    calls = analysis.calls.filter(pl.col("step") >= 0)
    calls = calls.with_columns(pl.col("submodule").cast(pl.String))
    names = calls["submodule"].unique(maintain_order=True).to_list()
    if len(names) < 2:
        return {}
    end = pl.col("start_ns") + pl.col("duration_ns")
    windows = steps.select("step", begin=pl.col("start_ns"), end=end).with_row_index("row")
    inside = (
        calls.select("submodule", "step", "start_ns", "duration_ns")
        .sort("start_ns")
        .join_asof(
            windows.sort("begin"),
            left_on="start_ns",
            right_on="begin",
            by="step",
            check_sortedness=False,  # both are sorted; polars would warn that it cannot tell
        )
        .filter(pl.col("start_ns") <= pl.col("end"))
    )
    found = {}
    for name in names[:_LINES]:
        times = [0] * len(steps)
        own = inside.filter(pl.col("submodule") == name)
        for row, duration_ns in own.select("row", "duration_ns").iter_rows():
            times[row] += duration_ns
        found[name] = times
    return found
