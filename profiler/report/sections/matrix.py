"""The step matrix that a report shows: which parts and steps have a row and a column.

Bounded, and what is left out is said: the parts with the most time have a row each, all others
one together; of more steps than columns, a column is the one of several that took longest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.report.model import Pick
from profiler.report.patterns import pattern
from profiler.text import Said, count, counted, joined, said

__all__ = ["FARTHEST", "Matrix", "matrix_of"]

_ROWS = 24  # parts with a row of their own, beside the step and its submodules
_SUBMODULES = 6
_COLUMNS = 60
FARTHEST = 1.5  # a factor of the median: what is farther from it has the same colour
_Reals = npt.NDArray[np.float64]
_KEYS = ("submodule", "layer", "role")


class Matrix(Struct, frozen=True, eq=False):
    """The rows and columns that are shown.

    `time` is ns, float64 [rows, columns], NaN where a part was not traced; `median` float64 [rows]
    over all steps. `left_out` parts share the last row, `steps` of them are `each` to a column.
    `row_picks` and `column_picks` are what a row and a column stand for (`chart_style.picking`).
    """

    names: list[str]
    columns: list[str]
    row_picks: list[Pick]
    column_picks: list[Pick]
    time: _Reals
    median: _Reals
    parts: int
    left_out: int
    steps: int
    each: int
    folded: bool

    @property
    def sentence(self) -> Said:
        """What is shown, and what is not."""
        own = self.parts - self.left_out
        which = counted(own, "operation" if self.folded else "operator")
        if self.folded:
            which = said("{operations} (equal blocks aggregated)", operations=which)
        first = said(
            "Device time of {operations} in each step, relative to the median of its row, longest "
            "first. The first row is the wall time of the step.",
            operations=which,
        )
        rest = []
        if self.left_out:
            others = count(self.left_out)
            rest.append(said("{others} others share the last row.", others=others))
        if self.each > 1:
            rest.append(said("A column is the longest of {each} steps.", each=count(self.each)))
        gaps = said(
            "Gaps: not traced in that step. Colours end at {farthest} times the median.",
            farthest=f"{FARTHEST:g}",
        )
        return joined(" ", [first, *rest, gaps])


def matrix_of(
    step_table: pl.DataFrame, times: pl.DataFrame, *, patterns: bool = True
) -> Matrix | None:
    """The matrix of `times` (`step_times`) over the steps of `step_table` (`steps`), None where
    operators of fewer than two steps were traced.

    With `patterns`, equal layers of repeated blocks are one part.
    """
    steps = step_table.select("pipeline", "step").unique(maintain_order=True)
    cells = times.join(steps.with_row_index("column"), on=["pipeline", "step"], how="inner")
    if cells.filter(_of_level("parts"))["column"].n_unique() < 2:
        return None
    if patterns:
        cells = cells.with_columns(pattern(pl.col("layer")))
    whole, submodules, parts = (_dense(cells, level, len(steps)) for level in _LEVELS)
    count_before = _number(times, "parts")
    own = parts[:_ROWS]
    rest = [part.time for part in parts[_ROWS:]]
    rows = [_Row(said("step"), {}, row.time) for row in whole[:1]]
    rows += submodules[:_SUBMODULES] + own
    if rest:
        total = np.nansum(rest, axis=0)
        others = said("{number} others", number=count(len(rest)))
        rows.append(_Row(others, {}, np.where(total > 0, total, np.nan)))
    time = np.array([row.time for row in rows])
    each = -(-len(steps) // _COLUMNS)
    return Matrix(
        names=[row.name for row in rows],
        columns=_columns(steps, each),
        row_picks=[row.pick for row in rows],
        column_picks=_column_picks(steps, each),
        time=_longest(time, each),
        median=np.nanmedian(time, axis=1),
        parts=len(parts),
        left_out=len(rest),
        steps=len(steps),
        each=each,
        folded=len(parts) < count_before,
    )


class _Row(NamedTuple):
    """A row's name, what it stands for, and its ns by step."""

    name: str
    pick: Pick
    time: _Reals


_LEVELS = ("step", "submodule", "parts")


def _of_level(level: str) -> pl.Expr:
    return ~pl.col("level").is_in(_LEVELS[:2]) if level == "parts" else pl.col("level") == level


def _number(cells: pl.DataFrame, level: str) -> int:
    return cells.filter(_of_level(level)).select(_KEYS).n_unique()


def _dense(cells: pl.DataFrame, level: str, columns: int) -> list[_Row]:
    """The parts of a level, those with most time first."""
    found = cells.filter(_of_level(level))
    summed = found.group_by(*_KEYS, "column", maintain_order=True).agg(pl.col("total_ns").sum())
    rows = summed.group_by(*_KEYS, maintain_order=True).agg(
        "column", "total_ns", total=pl.col("total_ns").sum()
    )
    made = []
    for row in rows.sort("total", descending=True, maintain_order=True).iter_rows(named=True):
        time = np.full(columns, np.nan)
        time[row["column"]] = row["total_ns"]
        named = [row[key] for key in ("layer", "role") if row[key]]
        name = " ".join(named) or row["submodule"] or said("step")
        given = {"submodule": row["submodule"], "operator": row["layer"]}
        pick = given if row["layer"] else given | {"role": row["role"]}
        made.append(_Row(name, {key: value for key, value in pick.items() if value}, time))
    return made


def _columns(steps: pl.DataFrame, each: int) -> list[str]:
    several = steps["pipeline"].n_unique() > 1
    names = [f"{p}:{s}" if several else str(s) for p, s in steps.iter_rows()]
    groups = [names[at : at + each] for at in range(0, len(names), each)]
    return [f"{group[0]}-{group[-1]}" if len(group) > 1 else group[0] for group in groups]


def _column_picks(steps: pl.DataFrame, each: int) -> list[Pick]:
    numbers = steps["step"].to_list()
    groups = [sorted(set(numbers[at : at + each])) for at in range(0, len(numbers), each)]
    return [{"step": group if len(group) > 1 else group[0]} for group in groups]


def _longest(time: _Reals, each: int) -> _Reals:
    """The longest of each `each` neighbours of a row, NaN where none is known."""
    padded = np.pad(time, ((0, 0), (0, -time.shape[1] % each)), constant_values=np.nan)
    groups = padded.reshape(len(time), -1, each)
    longest: _Reals = np.where(np.isnan(groups), -np.inf, groups).max(axis=2)
    return np.where(np.isneginf(longest), np.nan, longest)
