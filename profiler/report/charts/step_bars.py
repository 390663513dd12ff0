"""Durations of denoising steps as bars: of the steps, and of each submodule in them."""

from __future__ import annotations

import polars as pl

from profiler.analysis.result import Analysis
from profiler.report.model import Bars

__all__ = ["step_bars"]

_WHOLE = "step"
_LINES = 8  # submodules that run in steps


def step_bars(analysis: Analysis) -> tuple[Bars, ...]:
    """A bar a step; where several submodules run in steps, those of each of them too, below those
    of the steps."""
    rows = {_WHOLE: analysis.steps["duration_ns"].to_list(), **_of_submodules(analysis)}
    return tuple(Bars(name, values) for name, values in rows.items())


def _of_submodules(analysis: Analysis) -> dict[str, list[int]]:
    """The time in calls of each of the first submodules in each step, 0 where it was not called;
    none where only one runs in them."""
    steps = analysis.steps
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
