"""The timeline of one run as it is drawn beside another's: calls, and stretches of work by role.

found = timeline_of(run, roles)
found.calls        # `columns.TIMED_CALLS`, of the pipeline call that stands for the run
found.stretches    # `columns.STRETCHES`, at most some thousands however long the run is
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.comparison.columns import STRETCHES, TIMED_CALLS
from profiler.analysis.distinct_commands import Kinds
from profiler.run.columns import empty, schema
from profiler.run.intervals import Codes
from profiler.run.run import Run

__all__ = ["Timeline", "timeline_of"]

_STRETCHES = 1500  # of a pipeline call: work within a 1500th of it is one
_WAITS = ("host", "sync")
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """One pipeline call of a run, in ns from its begin: the calls on their devices' axis, and what
    the devices executed in them. `pipeline` is its number in the run, below 0 where there is
    none; `span_ns` is how long it took."""

    run_id: str
    pipeline: int
    span_ns: int
    calls: pl.DataFrame
    stretches: pl.DataFrame


def timeline_of(
    run: Run, placed: pl.DataFrame, kinds: Kinds, roles: pl.Series, rows: Codes
) -> Timeline:
    """The timeline of the pipeline call whose time is nearest to the median of the steady ones.

    `placed` are the run's calls as they are compared (`measure.CALL`), `roles` has the role of
    each kind, `rows` the row of each command in the calls.
    """
    tiles = run.tiles.calls.select("begin_ns", "end_ns")
    timed = pl.concat(
        [
            placed.select("call", "stage", "submodule", "branch", "step", "pipeline", "first"),
            run.calls.select(device=pl.col("device").cast(pl.String)),
            tiles.with_columns(pl.col("end_ns").clip(lower_bound=pl.col("begin_ns"))),
        ],
        how="horizontal",
    ).with_row_index("row")
    number = _representative(timed)
    kept = timed if number is None else timed.filter(pl.col("pipeline") == number)
    kept = kept.drop_nulls(["begin_ns", "end_ns"]).sort("begin_ns", "row", maintain_order=True)
    begin, end = kept["begin_ns"].min(), kept["end_ns"].max()
    if not isinstance(begin, int) or not isinstance(end, int):
        return Timeline(run.run_id, -1, 0, empty(TIMED_CALLS), empty(STRETCHES))
    calls = kept.with_columns(
        start_ns=pl.col("begin_ns") - begin, elapsed_ns=pl.col("end_ns") - pl.col("begin_ns")
    )
    stretches = _stretches(run, kinds, roles, rows, kept, begin, max(end - begin, 1))
    return Timeline(
        run.run_id,
        -1 if number is None else number,
        end - begin,
        calls.select(pl.col(name).cast(dtype) for name, dtype in schema(TIMED_CALLS).items()),
        stretches,
    )


def _representative(timed: pl.DataFrame) -> int | None:
    """The pipeline call in the middle of the steady ones, by time; of all where none is steady;
    None where no call lies in any."""
    inside = timed.filter(pl.col("pipeline") >= 0)
    each = inside.group_by("pipeline").agg(
        pl.col("first").any(), ns=pl.col("end_ns").max() - pl.col("begin_ns").min()
    )
    steady = each.filter(~pl.col("first"))
    ranked = (steady if len(steady) else each).sort("ns", "pipeline")
    return int(ranked["pipeline"][(len(ranked) - 1) // 2]) if len(ranked) else None


def _stretches(
    run: Run,
    kinds: Kinds,
    roles: pl.Series,
    rows: Codes,
    calls: pl.DataFrame,
    begin: int,
    span: int,
) -> pl.DataFrame:
    """What the devices executed in `calls`: work of one role whose pieces are closer than the
    resolution is one stretch, and of work of several roles within it the longest tells the role."""
    place = np.full(len(run.calls) + 1, -1, dtype=np.int64)
    place[calls["row"].to_numpy()] = np.arange(len(calls))
    waits = kinds.table["host"] | kinds.table["category"].cast(pl.String).is_in(_WAITS)
    worked = ~waits.to_numpy() & roles.is_not_null().to_numpy()
    chosen = np.flatnonzero((place[rows] >= 0) & worked[kinds.of_command])
    commands = run.commands[chosen] if len(chosen) < len(rows) else run.commands
    apart = max(span // _STRETCHES, 1)
    start = commands["start_ns"].to_numpy() - begin
    pieces = pl.DataFrame(
        {
            "call": place[rows[chosen]],
            "device": commands["device"].cast(pl.String),
            "role": roles.cast(pl.String).gather(kinds.of_command[chosen]),
            "window": start // apart,
            "start_ns": start,
            "end_ns": start + np.maximum(commands["duration_ns"].to_numpy(), 0),
        }
    )
    keys = ["call", "device", "window"]
    lengths = pl.col("end_ns") - pl.col("start_ns")
    windows = (
        pieces.group_by(*keys, "role")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), ns=lengths.sum())
        .sort(*keys, "ns", "role", descending=[False, False, False, True, False])
        .group_by(keys, maintain_order=True)
        .agg(pl.col("role").first(), pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort("device", "call", "start_ns")
    )
    reached = pl.col("end_ns").cum_max().over("device", "call")
    same = pl.all_horizontal(
        pl.col(name) == pl.col(name).shift() for name in ("device", "call", "role")
    )
    joined = same & (pl.col("start_ns") - reached.shift() <= apart)
    found = (
        windows.with_columns(number=(~joined.fill_null(value=False)).cum_sum())
        .group_by("number", maintain_order=True)
        .agg(
            pl.col("device", "call", "role").first(),
            pl.col("start_ns").min(),
            duration_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
        )
    )
    return found.select(pl.col(name).cast(dtype) for name, dtype in schema(STRETCHES).items())
