"""The timelines of two runs below each other, as the scripts take them."""

from __future__ import annotations

from typing import Any

import polars as pl

from profiler.analysis.comparison.aligned import aligned_calls
from profiler.analysis.comparison.columns import PAIRED_CALLS
from profiler.analysis.comparison.timeline import Timeline
from profiler.report.html.table_json import described
from profiler.report.views import columns_of, renamed

__all__ = ["timelines_json"]

_MOST = 4000  # calls of a side that a page holds; of more it shows the work alone
_COLUMNS = (
    "submodule",
    "stage",
    renamed(PAIRED_CALLS, "step", kind="step"),
    renamed(PAIRED_CALLS, "base_ns", label="baseline"),
    renamed(PAIRED_CALLS, "new_ns", label="new"),
    renamed(PAIRED_CALLS, "difference_ns", label="difference"),
)


def timelines_json(base: Timeline, new: Timeline) -> dict[str, Any]:
    """Calls and stretches of both sides by column, ns from the begin of each; names are indices of
    `names`. `at` of a call is where it begins when calls stand below each other, `other` the call
    of the other side that it stands below, -1 for none."""
    pairs = aligned_calls(base, new)
    names: dict[str, int] = {}

    def coded(values: pl.Series) -> list[int]:
        return [-1 if name is None else names.setdefault(str(name), len(names)) for name in values]

    sides = []
    for timeline, own, other in ((base, "base", "new"), (new, "new", "base")):
        placed = pairs.drop_nulls(f"{own}_call").sort(f"{own}_call")
        held = len(timeline.calls) <= _MOST
        calls = timeline.calls if held else timeline.calls.clear()
        sides.append(
            {
                "run": timeline.run_id,
                "pipeline": timeline.pipeline,
                "span": timeline.span_ns,
                "calls": {
                    "start": calls["start_ns"].to_list(),
                    "duration": calls["elapsed_ns"].to_list(),
                    "step": calls["step"].to_list(),
                    "submodule": coded(calls["submodule"]),
                    "stage": coded(calls["stage"]),
                    "at": placed["at_ns"].to_list() if held else [],
                    "other": placed[f"{other}_call"].fill_null(-1).to_list() if held else [],
                },
                "stretches": {
                    "start": timeline.stretches["start_ns"].to_list(),
                    "duration": timeline.stretches["duration_ns"].to_list(),
                    "call": timeline.stretches["call"].to_list() if held else [],
                    "device": coded(timeline.stretches["device"]),
                    "role": coded(timeline.stretches["role"]),
                },
            }
        )
    ends = pairs.select(pl.col("at_ns") + pl.max_horizontal("base_ns", "new_ns")).to_series()
    return {
        "sides": sides,
        "names": [*names],
        "aligned": ends.max() or 0,
        "columns": described(columns_of(_COLUMNS, PAIRED_CALLS)),
    }
