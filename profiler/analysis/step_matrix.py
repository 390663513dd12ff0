"""The step matrix: how the time of each operator changes from step to step.

Rows are operators of denoising submodules, by device time, or blocks and roles if there are too
many. Columns are steps. Medians and slopes (Theil-Sen) compare steps in which a part had its
usual number of commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.commands import CallKinds, Kinds
from profiler.analysis.context import Inputs, shared
from profiler.analysis.document import Pick
from profiler.analysis.question import Table
from profiler.analysis.redundant_work import redundant_work
from profiler.analysis.roles import kind_roles
from profiler.analysis.table_text import pattern
from profiler.analysis.timeline import ON_AXIS, PipelineCalls, step_keys
from profiler.run.columns import (
    BOOL,
    DATA_ONLY,
    INT64,
    NS,
    RATIO,
    STRING,
    Column,
    col,
    column_of,
    typed,
)
from profiler.run.intervals import Codes, Times, positions
from profiler.text import Said, count, counted, joined, percent, said

# --- Words of the tables about denoising steps: closed sets.


class PartLevel(StrEnum):
    """What a part of a step is; `block_and_role` or `role` if operators are too many."""

    STEP = "step"
    SUBMODULE = "submodule"
    OPERATOR = "operator"
    BLOCK_AND_ROLE = "block_and_role"
    ROLE = "role"


# --- The columns of the step matrix.


_PART: tuple[Column, ...] = (
    col(
        "level",
        STRING,
        "step, submodule, operator; if there are too many operators, block_and_role or role "
        "instead",
        importance=DATA_ONLY,
        codes=PartLevel,
    ),
    col(
        "submodule",
        STRING,
        "submodule to which the part belongs; null for steps",
        True,
        importance=4,
    ),
    col(
        "layer",
        STRING,
        "layer of the operator, or the block; null for steps and submodules",
        True,
        importance=DATA_ONLY,
    ),
    col("role", STRING, "role, if the level is by role", True, importance=DATA_ONLY),
)
_STEP: tuple[Column, ...] = (column_of(ON_AXIS, "pipeline"), column_of(ON_AXIS, "step"))

_SIGNED_DATA: dict[str, Any] = {"importance": DATA_ONLY, "signed": True}

STEP_OPERATORS: tuple[Column, ...] = (
    *_PART,
    col("steps", INT64, "steps in which it was traced and ran", importance=5),
    col("total_ns", NS, "its time in all of these steps; for a step, its wall time", importance=8),
    col("median_ns", NS, "median over these steps of its device time (sum of durations)"),
    col("spread", RATIO, "scaled median absolute deviation / median_ns", True, importance=3),
    col(
        "warmup_steps",
        INT64,
        "first steps of the run that took longer than later ones",
        label="warm-up",
        importance=1,
        hide_if_zero=True,
    ),
    col(
        "warmup_ns",
        NS,
        "time of these steps beyond the median of the later half of the first pipeline call",
        label="cost",
        importance=2,
        hide_if_zero=True,
    ),
    col(
        "drift_ns",
        NS,
        "change from step to step (Theil-Sen slope); null if there are too few steps",
        True,
        importance=DATA_ONLY,
        signed=True,
    ),
    *(
        col(f"drift_{end}_ns", NS, f"{word} end of its 95 % interval", True, **_SIGNED_DATA)
        for end, word in (("low", "lower"), ("high", "upper"))
    ),
    col("outliers", INT64, "steps that are outliers by the rule in the summary"),
    col(
        "outlier_ns",
        NS,
        "time of these steps beyond median_ns",
        label="cost of these",
        importance=8,
    ),
    col(
        "hoistable",
        BOOL,
        "true if its inputs do not change from step to step",
        importance=DATA_ONLY,
    ),
)

STEP_TIMES: tuple[Column, ...] = (
    *_PART,
    *_STEP,
    col("commands", INT64, "its commands in the step; for a step, its calls"),
    col("total_ns", NS, "sum of their durations; for a step, its wall time"),
)


# --- Robust statistics over rows of repeated measurements; NaN stands for what was not measured.
#
# All of them hold against outliers: medians, median absolute deviations (MAD), and the slope of
# Theil (1950) and Sen (1968, J. Am. Stat. Assoc. 63, 1379-1389), the median of the slopes between
# all pairs, with Sen's interval.


Reals = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.bool_]

SCALE = 1.4826  # the MAD times this estimates the standard deviation of normal data
DEVIATIONS = 3.0
LEAST_RATIO = 1.05
ENOUGH_VALUES = 5  # values
_POINTS = 64  # of a row whose pairs are looked at; longer rows are halved by means first
_QUANTILE = 1.9599639845400536  # of a normal distribution: 2.5 % lie above it


def medians(values: Reals) -> Reals:
    """The median of each row, NaN for rows of nothing."""
    if not values.shape[1]:
        return _nothing(values)
    ordered = np.sort(values, axis=1)  # NaN last
    known = (~np.isnan(values)).sum(axis=1)
    row = np.arange(len(values))
    found: Reals = (ordered[row, (known - 1) // 2] + ordered[row, known // 2]) / 2
    return found


def spreads(values: Reals) -> Reals:
    """The scaled MAD of each row, which is the standard deviation of normal data; NaN as in
    `medians`."""
    return SCALE * medians(np.abs(values - medians(values)[:, None]))


def outlying(values: Reals, usual: Reals) -> _Flags:
    """Return which `values` stand out by `steps.OUTLIER_RULE` from the `usual` ones of their
    row."""
    median, spread = medians(usual)[:, None], spreads(usual)[:, None]
    enough = (~np.isnan(usual)).sum(axis=1)[:, None] >= ENOUGH_VALUES
    with np.errstate(invalid="ignore"):
        found: _Flags = (
            (values > median + DEVIATIONS * spread) & (values > LEAST_RATIO * median) & enough
        )
    return found


def warm_up(values: Reals) -> tuple[npt.NDArray[np.int64], Reals]:
    """Return how many leading values of each row stand out from the later half of its values, and
    the median of that half.

    A missing value ends the warm-up; one that is longer than half of the row does not count.
    """
    rows, columns = values.shape
    if not columns:
        return np.zeros(rows, dtype=np.int64), _nothing(values)
    late = values.copy()
    late[:, : columns // 2] = np.nan
    high = outlying(values, late)
    found: npt.NDArray[np.int64] = np.cumprod(high, axis=1).sum(axis=1)
    return np.where(found > columns // 2, 0, found), medians(late)


def slopes(values: Reals) -> tuple[Reals, Reals, Reals]:
    """The slope of each row over the numbers of its columns, and the ends of its 95 % interval;
    float64 [rows], NaN if a row has fewer than five values."""
    width = 1
    while values.shape[1] > _POINTS:
        values, width = _means_of_pairs(values), width * 2
    first, second = np.triu_indices(values.shape[1], 1)
    pairs = np.sort((values[:, second] - values[:, first]) / (second - first), axis=1)
    known = (~np.isnan(values)).sum(axis=1)
    count = known * (known - 1) // 2
    error = _QUANTILE * np.sqrt(known * (known - 1) * (2 * known + 5) / 18)
    low = np.floor((count - error) / 2).astype(np.int64)
    high = np.ceil((count + error) / 2).astype(np.int64)
    few = (known < ENOUGH_VALUES) | (count == 0)
    row = np.arange(len(values))

    def at(index: npt.NDArray[np.int64]) -> Reals:
        if not pairs.shape[1]:
            return _nothing(values)
        inside = np.clip(index, 0, np.maximum(count - 1, 0))
        return np.where(few, np.nan, pairs[row, inside]) / width

    return medians(np.where(few[:, None], np.nan, pairs)) / width, at(low - 1), at(high)


def _means_of_pairs(values: Reals) -> Reals:
    """Return the means of neighbouring values, two by two. A value beside NaN stays as it is; an
    odd last column is dropped."""
    even = values.shape[1] // 2 * 2
    pairs = values[:, :even].reshape(len(values), -1, 2)
    known = (~np.isnan(pairs)).sum(axis=2)
    return np.where(known > 0, np.nansum(pairs, axis=2) / np.maximum(known, 1), np.nan)


def _nothing(values: Reals) -> Reals:
    return np.full(len(values), np.nan)


# --- How the time of each part of a step changes from step to step. A step in which a submodule was
# not traced, or not wholly, is no step of its parts.


_MAX_PARTS = 500  # parts
_CELLS = 20_000
_PARTS = ("level", "submodule", "layer", "role")


class StepMatrix(Struct, frozen=True, eq=False):
    """The times of p parts in s steps.

    `parts` has the columns level, submodule, layer, role: first whole steps, then submodules, then
    their operators (or what stands for them). `steps` are rows of the table of steps, in order of
    time. `time` in ns and `commands` are float64 [p, s], NaN if the part was not traced or did
    not run; `usual` is `time` if the part had as many commands as usual. `outlier` marks cells
    that stand out, bool [p, s]; `warm` is the number of warm-up steps of each part, int64 [p],
    `later` the median that they stand out from, float64 [p].
    `part_of_kind` is the row of the operator of each kind, -1 for none; `step_of_call` the column
    of each call, -1 for none.
    """

    parts: pl.DataFrame
    steps: pl.DataFrame
    time: Reals
    commands: Reals
    usual: Reals
    outlier: _Flags
    warm: Times
    later: Reals
    part_of_kind: Codes
    step_of_call: Codes

    def table(self, hoistable: _Flags) -> pl.DataFrame:
        """One row per part (`STEP_OPERATORS`); `hoistable` says of each kind whether its inputs do
        not change from step to step."""
        median = medians(self.usual)
        beyond = np.nan_to_num(self.time - median[:, None])
        first = np.arange(self.time.shape[1]) < self.warm[:, None]
        cold = np.nan_to_num(self.time - self.later[:, None])
        slope, low, high = slopes(np.where(first | self.outlier, np.nan, self.usual))
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = spreads(self.usual) / median
        found = self.parts.with_columns(
            steps=(~np.isnan(self.time)).sum(axis=1),
            total_ns=_whole(np.nansum(self.time, axis=1)),
            median_ns=_whole(median),
            spread=_real(spread),
            warmup_steps=self.warm,
            warmup_ns=_whole(np.where(first, cold, 0).sum(axis=1)),
            drift_ns=_real(np.rint(slope)),
            drift_low_ns=_real(np.rint(low)),
            drift_high_ns=_real(np.rint(high)),
            outliers=self.outlier.sum(axis=1),
            outlier_ns=_whole(np.where(self.outlier, beyond, 0).sum(axis=1)),
            hoistable=pl.Series(self._all_kinds(hoistable)),
        )
        order = {"step": 0, "submodule": 1}
        rank = pl.col("level").replace_strict(order, default=2, return_dtype=pl.Int64)
        ordered = found.filter(pl.col("steps") > 0).sort(
            [rank, "total_ns", "submodule", "layer", "role"],
            descending=[False, True, False, False, False],
        )
        return ordered.select(typed(STEP_OPERATORS))

    def cells(self) -> pl.DataFrame:
        """One row per part and step in which it ran (`STEP_TIMES`)."""
        row, column = np.nonzero(~np.isnan(self.time))
        found = pl.concat(
            [self.parts[row], self.steps.select("pipeline", "step")[column]], how="horizontal"
        ).with_columns(
            commands=_whole(self.commands[row, column]), total_ns=_whole(self.time[row, column])
        )
        return found.select(typed(STEP_TIMES))

    def _all_kinds(self, marked: _Flags) -> _Flags:
        """Return which parts have kinds that are all `marked`."""
        inside = self.part_of_kind >= 0
        code, parts = self.part_of_kind[inside], len(self.parts)
        kinds = np.bincount(code, minlength=parts)
        found: _Flags = (np.bincount(code, marked[inside], parts) == kinds) & (kinds > 0)
        return found


@shared
def steps_matrix(of: Inputs) -> StepMatrix:
    """The step matrix of the selected calls, over the table of steps."""
    ran, steps = of.call_kinds, of.table("steps").sort("start_ns", "pipeline", "step")
    step_of_call = _steps_of(of.calls, steps, of.pipelines)
    place = step_of_call[ran.call]
    used = np.zeros(len(of.kinds), dtype=np.bool_)
    used[ran.kind[place >= 0]] = True
    names, part_of_kind = _parts(of.kinds, kind_roles(of), used, len(steps))
    traced = _traced(of.calls, step_of_call, len(steps))
    submodules = [*dict.fromkeys(names["submodule"])]
    parts = pl.concat([_named("step", [None]), _named("submodule", submodules), names])
    offset = 1 + len(submodules)
    part_of_kind = np.where(part_of_kind >= 0, part_of_kind + offset, -1)
    shape = (len(parts), len(steps))
    time, commands = _sums(ran, part_of_kind, place, shape)
    for number, name in enumerate(submodules):
        rows = np.flatnonzero((parts["submodule"] == name).to_numpy())
        inside = rows[rows >= offset]
        known = traced.get(name, np.zeros(len(steps), dtype=np.bool_))
        time[1 + number] = time[inside].sum(axis=0)
        commands[1 + number] = commands[inside].sum(axis=0)
        time[np.ix_(rows, ~known)] = commands[np.ix_(rows, ~known)] = np.nan
    time[commands == 0] = commands[commands == 0] = np.nan
    time[0], commands[0] = steps["elapsed_ns"].to_numpy(), steps["calls"].to_numpy()
    usual = np.where(commands == _usual_number(commands), time, np.nan)
    first = steps["pipeline"] == steps["pipeline"][0] if len(steps) else steps["outlier"]
    warm, later = warm_up(usual[:, np.flatnonzero(first.to_numpy())])
    return StepMatrix(
        parts=parts,
        steps=steps,
        time=time,
        commands=commands,
        usual=usual,
        outlier=outlying(time, usual),
        warm=warm,
        later=later,
        part_of_kind=part_of_kind,
        step_of_call=step_of_call,
    )


def _usual_number(commands: Reals) -> Reals:
    """The lower median of each row's numbers of commands, float64 [p, 1]."""
    if not commands.shape[1]:
        return np.zeros((len(commands), 1))
    known = (~np.isnan(commands)).sum(axis=1)
    ordered = np.sort(commands, axis=1)
    found: Reals = ordered[np.arange(len(commands)), (known - 1) // 2][:, None]
    return found


def _steps_of(calls: pl.DataFrame, steps: pl.DataFrame, pipelines: PipelineCalls) -> Codes:
    """The row in `steps` of each call, int32, -1 for none."""
    keys = step_keys(steps["pipeline"].to_numpy(), steps["step"].to_numpy())
    order = np.argsort(keys)
    found = positions(step_keys(pipelines.number_of(calls), calls["step"].to_numpy()), keys[order])
    return np.append(order, -1)[found].astype(np.int32)


def _parts(
    kinds: Kinds, roles: pl.DataFrame, used: _Flags, steps: int
) -> tuple[pl.DataFrame, Codes]:
    """The finest parts that are not too many, and the part of each kind, -1 for none."""
    table = kinds.table.select("kind", "submodule", "layer", "host").with_columns(
        roles.select("block", pl.col("role").cast(pl.String)), used=pl.Series(used)
    )
    table = table.filter(pl.col("used") & ~pl.col("host")).drop_nulls("submodule")
    for level, *columns in _levels():
        named = table.select(pl.col("kind"), pl.lit(level).alias("level"), *columns)
        names = named.select(_PARTS).unique(maintain_order=True)
        if len(names) <= _MAX_PARTS and len(names) * steps <= _CELLS:
            break
    part = named.join(names.with_row_index("part"), on=_PARTS, nulls_equal=True)
    of_kind = np.full(len(kinds), -1, dtype=np.int64)
    of_kind[part["kind"].to_numpy()] = part["part"].to_numpy()
    return names, of_kind


def _levels() -> Iterator[tuple[str, pl.Expr, pl.Expr, pl.Expr]]:
    """Level, submodule, layer and role of parts, from fine to coarse."""
    submodule, role = pl.col("submodule"), pl.col("role")
    block, none = pl.col("block").cast(pl.String), pl.lit(None, dtype=pl.String)
    yield PartLevel.OPERATOR.value, submodule, pl.col("layer"), none.alias("role")
    yield PartLevel.BLOCK_AND_ROLE.value, submodule, block.alias("layer"), role
    yield PartLevel.ROLE.value, submodule, none.alias("layer"), role


def _named(level: str, submodules: Sequence[str | None]) -> pl.DataFrame:
    rows = [(level, submodule, None, None) for submodule in submodules]
    return pl.DataFrame(rows, schema=dict.fromkeys(_PARTS, pl.String), orient="row")


def _traced(calls: pl.DataFrame, step: Codes, steps: int) -> dict[str, _Flags]:
    """Return for each submodule the steps in which it was called and all of its calls were
    traced."""
    found = {}
    inside = calls.select(
        pl.col("submodule").cast(pl.String), "ops_traced", step=pl.Series(step)
    ).filter(pl.col("step") >= 0)
    for (name,), rows in inside.group_by("submodule", maintain_order=True):
        place = rows["step"].to_numpy()
        number = np.bincount(place, minlength=steps)
        with_operators = np.bincount(place, rows["ops_traced"].to_numpy(), steps)
        found[str(name)] = (number > 0) & (with_operators == number)
    return found


def _sums(
    ran: CallKinds, part_of_kind: Codes, place: Codes, shape: tuple[int, int]
) -> tuple[Reals, Reals]:
    """Time and number of commands of each part in each step, float64 [parts, steps]."""
    part = part_of_kind[ran.kind]
    inside = (part >= 0) & (place >= 0)
    code = part[inside].astype(np.int64) * shape[1] + place[inside]
    size = shape[0] * shape[1]
    time, commands = (
        np.bincount(code, values[inside], size).astype(np.float64).reshape(shape)
        for values in (ran.busy, ran.commands)
    )
    return time, commands


def _whole(values: Reals) -> pl.Series:
    return pl.Series(np.rint(np.nan_to_num(values)).astype(np.int64))


def _real(values: Reals) -> pl.Series:
    return pl.Series(values, dtype=pl.Float64).fill_nan(None)


# --- The tables of how the parts of steps change from step to step.


TABLES = (
    Table(
        name="step_operators",
        row="one part of the steps, and how it changes over them",
        section="time",
        columns=STEP_OPERATORS,
        make=lambda of: steps_matrix(of).table(redundant_work(of).over_steps),
        title="What changes from step to step",
        about="Parts are whole steps, submodules, and their operators (blocks and roles instead, "
        "if there are more than 500 operators); within each level the longest come first. "
        "[steps.md](steps.md) describes how warm-up, drift and outliers are found.",
        reads=("steps",),
    ),
    Table(
        name="step_times",
        row="one part in one step",
        section="time",
        columns=STEP_TIMES,
        make=lambda of: steps_matrix(of).cells(),
        title="Operators by step",
        about="This is the step matrix, of the steps in which the part was traced and ran.",
        reads=("steps",),
    ),
)


# --- The step matrix that a report shows: which parts and steps have a row and a column.
#
# Bounded, and what is left out is said: the parts with the most time have a row each. Those that
# take less than a hundredth of every step have none; if more are left than rows, they share the
# last. Of more steps than columns, a column is the one of several that took longest.


_SHOWN_PARTS = 24  # parts with a row of their own, beside the step and its submodules
_SHOWN_SUBMODULES = 6
_SHOWN_COLUMNS = 60
_SMALL = 0.01  # of a step: parts that take less in every step have no row
_FAINTEST = 0.02  # of a step: colours end no nearer to the median
_KEYS = ("submodule", "layer", "role")


class Matrix(Struct, frozen=True, eq=False):
    """The rows and columns that are shown.

    `time` is ns, float64 [rows, columns], NaN if a part was not traced; `median` float64 [rows]
    over all steps. Rows of parts start at `first_part`, below the step and its submodules;
    `sharing` parts are in the last row, `hidden` ones, with `hidden_share` of the steps, in none.
    Of all `steps`, `each` share a column. `row_picks` and `column_picks` are what a row and a
    column stand for (`picking`).
    """

    names: list[str]
    columns: list[str]
    row_picks: list[Pick]
    column_picks: list[Pick]
    time: Reals
    median: Reals
    first_part: int
    parts: int
    sharing: int
    hidden: int
    hidden_share: float
    steps: int
    each: int
    folded: bool

    @property
    def sentence(self) -> Said:
        """The sentence that says what is shown, and what is not."""
        own = self.parts - self.sharing - self.hidden
        which = counted(own, "operation" if self.folded else "operator")
        if self.folded:
            which = said("{operations} (equal blocks aggregated)", operations=which)
        first = said(
            "Device time of {operations} in each step against the median of its row, longest "
            "first. The first row is the wall time of the step.",
            operations=which,
        )
        rest = []
        if self.sharing:
            others = count(self.sharing)
            rest.append(said("{others} others share the last row.", others=others))
        if self.hidden:
            rest.append(
                said(
                    "{others} others, each below {small} of every step, are not shown: {share} "
                    "of the steps together.",
                    others=count(self.hidden),
                    small=percent(_SMALL),
                    share=percent(self.hidden_share),
                )
            )
        if self.each > 1:
            rest.append(said("A column is the longest of {each} steps.", each=count(self.each)))
        gaps = said(
            "Colours are what a cell adds to its step or saves, up to {farthest} of the median "
            "step. Gaps: not traced in that step.",
            farthest=percent(self.farthest),
        )
        return joined(" ", [first, *rest, gaps])

    @property
    def added(self) -> Reals:
        """What each cell takes more than the median of its row, as a share of the median step."""
        step = float(self.median[0]) or 1.0
        return (self.time - self.median[:, None]) / step

    @property
    def farthest(self) -> float:
        """The largest of `added` among parts, at which colours end: steps and submodules may add
        more."""
        parts = np.abs(self.added[self.first_part :])
        return max(_FAINTEST, float(np.nanmax(parts, initial=0.0)))


def matrix_of(step_table: pl.DataFrame, times: pl.DataFrame) -> Matrix | None:
    """The matrix of `times` (`step_times`) over the steps of `step_table` (`steps`), None if
    operators of fewer than two steps were traced. Equal layers of repeated blocks are one part."""
    steps = step_table.select("pipeline", "step").unique(maintain_order=True)
    cells = times.join(steps.with_row_index("column"), on=["pipeline", "step"], how="inner")
    if cells.filter(_of_level("parts"))["column"].n_unique() < 2:
        return None
    cells = cells.with_columns(pattern(pl.col("layer")))
    whole, submodules, parts = (_dense(cells, level, len(steps)) for level in _LEVELS)
    count_before = times.filter(_of_level("parts")).select(_KEYS).n_unique()
    steps_ns = np.nansum([row.time for row in whole or parts], axis=0)
    shares = np.nan_to_num([part.time for part in parts]) / np.maximum(steps_ns, 1)
    small = shares.max(axis=1) < _SMALL
    small[0] = False
    large = [part for part, hidden in zip(parts, small, strict=True) if not hidden]
    own, rest = large[:_SHOWN_PARTS], [part.time for part in large[_SHOWN_PARTS:]]
    rows = [_Row(said("step"), {}, row.time) for row in whole[:1]]
    rows += submodules[:_SHOWN_SUBMODULES]
    first_part = len(rows)
    rows += own
    if rest:
        total = np.nansum(rest, axis=0)
        others = said("{number} others", number=count(len(rest)))
        rows.append(_Row(others, {}, np.where(total > 0, total, np.nan)))
    time = np.array([row.time for row in rows])
    each = -(-len(steps) // _SHOWN_COLUMNS)
    return Matrix(
        names=[row.name for row in rows],
        columns=_columns(steps, each),
        row_picks=[row.pick for row in rows],
        column_picks=_column_picks(steps, each),
        time=_longest(time, each),
        median=medians(time),
        first_part=first_part,
        parts=len(parts),
        sharing=len(rest),
        hidden=int(small.sum()),
        hidden_share=float((shares[small] * steps_ns).sum() / max(steps_ns.sum(), 1)),
        steps=len(steps),
        each=each,
        folded=len(parts) < count_before,
    )


class _Row(NamedTuple):
    """A row's name, what it stands for, and its ns by step."""

    name: str
    pick: Pick
    time: Reals


_LEVELS = ("step", "submodule", "parts")


def _of_level(level: str) -> pl.Expr:
    return ~pl.col("level").is_in(_LEVELS[:2]) if level == "parts" else pl.col("level") == level


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


def _longest(time: Reals, each: int) -> Reals:
    """The max of each `each` neighbours of a row, NaN if none is known."""
    padded = np.pad(time, ((0, 0), (0, -time.shape[1] % each)), constant_values=np.nan)
    groups = padded.reshape(len(time), -1, each)
    longest: Reals = np.where(np.isnan(groups), -np.inf, groups).max(axis=2)
    return np.where(np.isneginf(longest), np.nan, longest)
