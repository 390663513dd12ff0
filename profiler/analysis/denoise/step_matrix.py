"""How the time of each part of a step changes from step to step.

Parts are the operators of submodules that denoise, by device time; where there are too many for a
table, blocks and roles. Rows are parts, columns steps in order of time. A step in which a submodule
was not traced, or not wholly, is no step of its parts. Medians and slopes compare like with like:
steps in which a part had as many commands as usual.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.call_kinds import CallKinds
from profiler.analysis.denoise.codes import PartLevel
from profiler.analysis.denoise.columns import STEP_OPERATORS, STEP_TIMES
from profiler.analysis.denoise.trends import (
    Reals,
    medians,
    outlying,
    slopes,
    spreads,
    warm_up,
)
from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.pipelines import PipelineCalls, step_keys
from profiler.run.columns import schema
from profiler.run.intervals import Codes, Times, positions

__all__ = ["StepMatrix", "step_matrix"]

_ROWS = 500  # parts
_CELLS = 20_000
_PARTS = ("level", "submodule", "layer", "role")
_Flags = npt.NDArray[np.bool_]


class StepMatrix(Struct, frozen=True, eq=False):
    """The times of p parts in s steps.

    `parts` has the columns level, submodule, layer, role: first whole steps, then submodules, then
    their operators (or what stands for them). `steps` are rows of the table of steps, in order of
    time. `time` in ns and `commands` are float64 [p, s], NaN where the part was not traced or did
    not run; `usual` is `time` where the part had as many commands as usual. `outlier` marks cells
    that stand out, bool [p, s]; `warm` is the number of warm-up steps of each part, int64 [p].
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
    part_of_kind: Codes
    step_of_call: Codes

    def table(self, hoistable: _Flags) -> pl.DataFrame:
        """One row a part (`columns.STEP_OPERATORS`); `hoistable` says of each kind whether its
        inputs do not change from step to step."""
        median = medians(self.usual)
        beyond = np.nan_to_num(self.time - median[:, None])
        first = np.arange(self.time.shape[1]) < self.warm[:, None]
        trend = slopes(np.where(first | self.outlier, np.nan, self.usual))
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = spreads(self.usual) / median
        found = self.parts.with_columns(
            steps=(~np.isnan(self.time)).sum(axis=1),
            total_ns=_whole(np.nansum(self.time, axis=1)),
            median_ns=_whole(median),
            spread=_real(spread),
            warmup_steps=self.warm,
            warmup_ns=_whole(np.where(first, beyond, 0).sum(axis=1)),
            drift_ns=_real(np.rint(trend.slope)),
            drift_low_ns=_real(np.rint(trend.low)),
            drift_high_ns=_real(np.rint(trend.high)),
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
        return ordered.select(pl.col(n).cast(t) for n, t in schema(STEP_OPERATORS).items())

    def cells(self) -> pl.DataFrame:
        """One row a part and step in which it ran (`columns.STEP_TIMES`)."""
        row, column = np.nonzero(~np.isnan(self.time))
        found = pl.concat(
            [self.parts[row], self.steps.select("pipeline", "step")[column]], how="horizontal"
        ).with_columns(
            commands=_whole(self.commands[row, column]), total_ns=_whole(self.time[row, column])
        )
        return found.select(pl.col(n).cast(t) for n, t in schema(STEP_TIMES).items())

    def _all_kinds(self, marked: _Flags) -> _Flags:
        """Which parts have kinds, all of them `marked`."""
        inside = self.part_of_kind >= 0
        code, parts = self.part_of_kind[inside], len(self.parts)
        kinds = np.bincount(code, minlength=parts)
        found: _Flags = (np.bincount(code, marked[inside], parts) == kinds) & (kinds > 0)
        return found


def step_matrix(
    calls: pl.DataFrame,
    kinds: Kinds,
    roles: pl.DataFrame,
    ran: CallKinds,
    steps: pl.DataFrame,
    pipelines: PipelineCalls,
) -> StepMatrix:
    """The matrix of `calls`, whose kinds of commands `ran`, over `steps` (`columns.STEPS`).

    `roles` has a row a kind (`KIND_ROLE`).
    """
    steps = steps.sort("start_ns", "pipeline", "step")
    step_of_call = _steps_of(calls, steps, pipelines)
    place = step_of_call[ran.call]
    used = np.zeros(len(kinds), dtype=np.bool_)
    used[ran.kind[place >= 0]] = True
    names, part_of_kind = _parts(kinds, roles, used, len(steps))
    traced = _traced(calls, step_of_call, len(steps))
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
    return _judged(parts, steps, time, commands, part_of_kind, step_of_call)


def _judged(
    parts: pl.DataFrame,
    steps: pl.DataFrame,
    time: Reals,
    commands: Reals,
    part_of_kind: Codes,
    step_of_call: Codes,
) -> StepMatrix:
    """The matrix with what stands out in it."""
    usual = np.where(commands == _usual_number(commands), time, np.nan)
    first = steps["pipeline"] == steps["pipeline"][0] if len(steps) else steps["outlier"]
    warm = warm_up(usual[:, np.flatnonzero(first.to_numpy())])
    return StepMatrix(
        parts=parts,
        steps=steps,
        time=time,
        commands=commands,
        usual=usual,
        outlier=outlying(time, usual),
        warm=warm,
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
        if len(names) <= _ROWS and len(names) * steps <= _CELLS:
            break
    part = named.join(names.with_row_index("part"), on=_PARTS, nulls_equal=True)
    of_kind = np.full(len(kinds), -1, dtype=np.int64)
    of_kind[part["kind"].to_numpy()] = part["part"].to_numpy()
    return names, of_kind


def _levels() -> Iterator[tuple[str, pl.Expr, pl.Expr, pl.Expr]]:
    """Level, submodule, layer and role of parts, from fine to coarse."""
    submodule, role = pl.col("submodule"), pl.col("role")
    none = pl.lit(None, dtype=pl.String)
    yield PartLevel.OPERATOR.value, submodule, pl.col("layer"), none.alias("role")
    yield (
        PartLevel.BLOCK_AND_ROLE.value,
        submodule,
        pl.col("block").cast(pl.String).alias("layer"),
        role,
    )
    yield PartLevel.ROLE.value, submodule, none.alias("layer"), role


def _named(level: str, submodules: Sequence[str | None]) -> pl.DataFrame:
    columns = {"level": [level] * len(submodules), "submodule": list(submodules)}
    none = pl.lit(None, dtype=pl.String)
    return pl.DataFrame(columns, schema={"level": pl.String, "submodule": pl.String}).with_columns(
        layer=none, role=none
    )


def _traced(calls: pl.DataFrame, step: Codes, steps: int) -> dict[str, _Flags]:
    """For each submodule in which steps all of its calls were traced, and there are some."""
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
