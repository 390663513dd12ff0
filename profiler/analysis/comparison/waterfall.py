"""From one end-to-end time to the other: lines whose differences add up to that of the whole.

    end_to_end                  35.1 → 33.7 ms   -1.4 ms
      Qwen2Model                35.1 → 33.7      -1.4
        rope                     6.97 →  4.58    -2.4
        mlp                      7.98 →  9.37    +1.4
        idle                     3.24 →  3.98    +0.7     elapsed time less that of its commands
      between                    0    →  0        0       in no call

Submodules and what is between them make the end-to-end time, roles and idle time a submodule. Times
are means over the runs and pipeline calls of a side, which add up where medians do not. Where both
sides have steady ones, first ones are left out, as in the metric `end_to_end`.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.comparison.codes import Step
from profiler.analysis.comparison.columns import WATERFALL
from profiler.run.columns import schema

__all__ = ["waterfall"]

_Line = tuple[str, str | None, str | None, str | None]  # level, stage, submodule, role
_UNIT = ["run", "pipeline"]


def waterfall(base: pl.DataFrame, new: pl.DataFrame, calls: str | None) -> pl.DataFrame:
    """The lines (`columns.WATERFALL`), by difference within what they are parts of, from the
    samples of both sides (`samples.SAMPLE`, and `run`). `calls` says by which calls end-to-end
    times are compared; without one there is nothing."""
    found: list[tuple[object, ...]] = []
    if calls is not None:
        sides = [dict(_lines(samples, calls)) for samples in (base, new)]
        bare = _submodules(sides[0]) ^ _submodules(sides[1])
        for line in dict.fromkeys([*sides[0], *sides[1]]):
            if line[2] in bare and line[0] in (Step.ROLE.value, Step.IDLE.value):
                continue
            times = [side.get(line, 0) for side in sides]
            found.append((*line, *times, times[1] - times[0]))
    frame = pl.DataFrame(found, schema=schema(WATERFALL), orient="row")
    return _in_order(frame)


def _submodules(lines: dict[_Line, int]) -> set[str | None]:
    """Those whose parts are known."""
    return {line[2] for line in lines if line[0] == Step.IDLE.value}


def _in_order(lines: pl.DataFrame) -> pl.DataFrame:
    """The whole, submodules by their difference, each with its parts by theirs, what is between."""
    level, size = pl.col("level"), pl.col("difference_ns").abs()
    own = pl.when(level == Step.SUBMODULE.value).then(size).max().over("submodule", "stage")
    rank = {Step.END_TO_END.value: 0, Step.BETWEEN.value: 2}
    part = level.is_in([Step.ROLE.value, Step.IDLE.value])
    return lines.sort(
        level.replace_strict(rank, default=1, return_dtype=pl.Int64),
        own.fill_null(0),
        "submodule",
        part,
        size,
        descending=[False, True, False, False, True],
        maintain_order=True,
    )


def _lines(samples: pl.DataFrame, calls: str) -> Iterator[tuple[_Line, int]]:
    """The lines of a side, in whole nanoseconds that add up."""
    whole = samples.filter(pl.col("level") == "end_to_end")
    if calls != "all":
        whole = whole.filter(pl.col("first") == (calls == "first"))
    units = whole.select(_UNIT).unique()
    left = total = round(float(whole["value_ns"].sum()) / max(len(units), 1))
    yield (Step.END_TO_END.value, None, None, None), total
    submodules = samples.filter(pl.col("level") == "submodule")
    for (name,), own in submodules.group_by("submodule", maintain_order=True):
        inside = _of_units(own, units)
        place = (str(own["stage"][0]), str(name))
        elapsed = round(float(inside["value_ns"].sum()) / max(len(units), 1))
        yield (Step.SUBMODULE.value, *place, None), elapsed
        left -= elapsed
        idle = elapsed
        roles = samples.filter((pl.col("level") == "role") & (pl.col("submodule") == name))
        for role, mean in _means(roles, units):
            part = round(mean * len(inside) / max(len(units), 1))
            idle -= part
            yield (Step.ROLE.value, *place, role), part
        if len(roles):
            yield (Step.IDLE.value, *place, None), idle
    yield (Step.BETWEEN.value, None, None, None), left


def _of_units(samples: pl.DataFrame, units: pl.DataFrame) -> pl.DataFrame:
    """The samples in the executions that count. Calls that lie in no pipeline call are parts of
    their run's only one."""
    inside = samples.join(units, on=_UNIT, how="semi")
    if len(inside) or units["run"].n_unique() < len(units):
        return inside
    return samples.join(units, on="run", how="semi")


def _means(roles: pl.DataFrame, units: pl.DataFrame) -> list[tuple[str, float]]:
    """The mean of each role over the traced samples of its submodule, those in the executions
    that count where there are any."""
    inside = _of_units(roles, units)
    known = inside if len(inside) else roles
    means = known.group_by("role", maintain_order=True).agg(pl.col("value_ns").mean())
    return [(role, float(mean)) for role, mean in means.iter_rows()]
