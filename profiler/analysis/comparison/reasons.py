"""Why one end-to-end time is not the other: the largest differences, each with what it consists of.

+1.19 ms  attention B16 H16 S559 D64 bf16: 1.44 times as long at 559 tokens, another kernel
+754 µs   Qwen2Model: nothing executes for 3.99 ms, 3.24 ms in the baseline
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from profiler.analysis.comparison.codes import DifferenceReason, Step
from profiler.analysis.comparison.measure import Measurement
from profiler.text import Note, Value

__all__ = ["Repeats", "reasons", "repeats_of"]

_MOST = 6
_LEAST = 0.02  # of the larger end-to-end time: smaller differences are no reason
_SAME = 0.01  # of how often something ran
_TOKENS = re.compile(r"^attention\b.* S([0-9,]+)")
_Found = tuple[int, Note]  # the difference, ns


Repeats = Mapping[str, tuple[float, float]]
"""By submodule how many samples (steps, or single calls) a pipeline call of each side has."""


def repeats_of(base: Sequence[Measurement], new: Sequence[Measurement]) -> Repeats:
    """How many samples of each submodule a pipeline call has on both sides, one where calls lie in
    none: times by shape and kernel are of a sample each."""
    found = [_samples_a_pipeline(side) for side in (base, new)]
    names = dict.fromkeys((*found[0], *found[1]))
    return {name: (found[0].get(name, 1.0), found[1].get(name, 1.0)) for name in names}


def _samples_a_pipeline(side: Sequence[Measurement]) -> dict[str, float]:
    samples: dict[str, int] = {}
    pipelines = 0
    for run in side:
        calls = run.calls.filter(pl.col("pipeline") >= 0)
        pipelines += calls["pipeline"].n_unique()
        counted = calls.group_by("submodule").agg(n=pl.struct("pipeline", "step").n_unique())
        for name, number in counted.iter_rows():
            samples[name] = samples.get(name, 0) + number
    return {name: number / pipelines for name, number in samples.items()}


def reasons(
    waterfall: pl.DataFrame, shapes: pl.DataFrame, kernels: pl.DataFrame, repeats: Repeats
) -> list[Note]:
    """The differences of at least 2 % of the end-to-end time, largest first: of shapes (of kernels
    where the sides share no shapes), of the time in which nothing executes, and between calls; all
    of a pipeline call."""
    whole = waterfall.filter(pl.col("level") == Step.END_TO_END.value)
    if whole.is_empty():
        return []
    longest = max(whole["base_ns"][0], whole["new_ns"][0])
    shapes, kernels = (_of_pipeline_calls(frame, repeats) for frame in (shapes, kernels))
    found = [*_waiting(waterfall), *(_of_shapes(shapes) if len(shapes) else _of_kernels(kernels))]
    large = [one for one in found if abs(one[0]) >= max(_LEAST * longest, 1)]
    large.sort(key=lambda one: -abs(one[0]))
    return [note for _, note in large[:_MOST]]


def _of_pipeline_calls(frame: pl.DataFrame, repeats: Repeats) -> pl.DataFrame:
    """The rows with the difference of a pipeline call, whose steps may be more on one side."""
    factors = [repeats.get(name, (1.0, 1.0)) for name in frame["submodule"]]
    base, new = (pl.Series([each[at] for each in factors], dtype=pl.Float64) for at in (0, 1))
    difference = (frame["new_ns"] * new - frame["base_ns"] * base).round().cast(pl.Int64)
    return frame.with_columns(difference.alias("difference_ns"))


def _waiting(waterfall: pl.DataFrame) -> Iterator[_Found]:
    """Time in which devices execute nothing, in calls and between them."""
    codes = {
        Step.IDLE.value: (DifferenceReason.FEWER_GAPS, DifferenceReason.MORE_GAPS),
        Step.BETWEEN.value: (DifferenceReason.LESS_BETWEEN, DifferenceReason.MORE_BETWEEN),
    }
    for row in waterfall.filter(pl.col("level").is_in([*codes])).iter_rows(named=True):
        if min(row["base_ns"], row["new_ns"]) < 0:
            continue  # work overlaps: the remainder is no time of its own
        difference = row["difference_ns"]
        code = codes[row["level"]][difference > 0]
        values = {name: row[name] for name in ("difference_ns", "base_ns", "new_ns")}
        if row["submodule"]:
            values["submodule"] = row["submodule"]
        yield difference, Note.of(code, **values)


def _of_shapes(shapes: pl.DataFrame) -> Iterator[_Found]:
    for row in shapes.drop_nulls("difference_ns").iter_rows(named=True):
        code = _code(row)
        values = _times(row) | {"rates": _rates(row), "at": _tokens(row["what"])}
        if code in (DifferenceReason.OTHER_KERNEL, DifferenceReason.SAME_KERNEL):
            values |= {name: row[name] for name in ("base_kernel", "new_kernel")}
        if code in (DifferenceReason.MORE_EXECUTIONS, DifferenceReason.FEWER_EXECUTIONS):
            values |= {name: float(row[name]) for name in ("base_executions", "new_executions")}
        yield row["difference_ns"], Note.of(code, **values)


def _of_kernels(kernels: pl.DataFrame) -> Iterator[_Found]:
    for row in kernels.drop_nulls("difference_ns").iter_rows(named=True):
        yield row["difference_ns"], Note.of(DifferenceReason.KERNEL, **_times(row))


def _code(row: Mapping[str, Any]) -> DifferenceReason:
    base, new = row["base_executions"], row["new_executions"]
    if base and new and abs(new - base) > _SAME * base:
        return DifferenceReason.MORE_EXECUTIONS if new > base else DifferenceReason.FEWER_EXECUTIONS
    if row["base_kernel"] is None or row["new_kernel"] is None:
        return DifferenceReason.UNNAMED_KERNEL
    same = row["base_kernel"] == row["new_kernel"]
    return DifferenceReason.SAME_KERNEL if same else DifferenceReason.OTHER_KERNEL


def _times(row: Mapping[str, Any]) -> dict[str, Value]:
    base = row["base_ns"]
    return {
        "what": row["what"],
        "difference_ns": row["difference_ns"],
        "time_ratio": row["new_ns"] / base if base else 0.0,
    }


def _rates(row: Mapping[str, Any]) -> Value:
    base, new = (row[f"{side}_teraflops_per_s"] for side in ("base", "new"))
    if base is None or new is None or max(base, new) < 1:
        return ""
    return Note.of(DifferenceReason.RATES, base=float(f"{base:.3g}"), new=float(f"{new:.3g}"))


def _tokens(what: str) -> Value:
    """How many tokens attention was over, those of the queries."""
    found = _TOKENS.match(what)
    return Note.of(DifferenceReason.TOKENS, tokens=int(found[1].replace(",", ""))) if found else ""
