"""Durations of denoising steps as bars: of the steps, and of each submodule in them."""

from __future__ import annotations

import polars as pl

from profiler.report.model import Bars

__all__ = ["step_bars"]

_WHOLE = "step"
_LINES = 8  # submodules that run in steps


def step_bars(steps: pl.DataFrame, calls: pl.DataFrame) -> tuple[Bars, ...]:
    """A bar a step; where several submodules run in steps, those of each of them too, below those
    of the steps."""
    rows = {_WHOLE: steps["elapsed_ns"].to_list(), **_of_submodules(steps, calls)}
    return tuple(Bars(name, values) for name, values in rows.items())


def _of_submodules(steps: pl.DataFrame, calls: pl.DataFrame) -> dict[str, list[int]]:
    """The time in calls of each of the first submodules in each step, 0 where it was not called;
    none where only one runs in them."""
    calls = calls.filter(pl.col("step") >= 0)
    calls = calls.with_columns(pl.col("submodule").cast(pl.String))
    names = calls["submodule"].unique(maintain_order=True).to_list()
    if len(names) < 2:
        return {}
    end = pl.col("start_ns") + pl.col("elapsed_ns")
    windows = steps.select("step", begin=pl.col("start_ns"), end=end).with_row_index("row")
    inside = (
        calls.select("submodule", "step", "begin_ns", "elapsed_ns")
        .sort("begin_ns")
        .join_asof(
            windows.sort("begin"),
            left_on="begin_ns",
            right_on="begin",
            by="step",
            check_sortedness=False,  # both are sorted; polars would warn that it cannot tell
        )
        .filter(pl.col("begin_ns") <= pl.col("end"))
    )
    found = {}
    for name in names[:_LINES]:
        times = [0] * len(steps)
        own = inside.filter(pl.col("submodule") == name)
        for row, elapsed_ns in own.select("row", "elapsed_ns").iter_rows():
            times[row] += elapsed_ns
        found[name] = times
    return found
