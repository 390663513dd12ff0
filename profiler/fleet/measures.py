"""The numbers of one run that a data set keeps, as rows of `metrics`: made of its analysis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import polars as pl
from msgspec import Struct

from profiler.analysis.result import Analysis
from profiler.fleet.columns import VALUE_COLUMNS

__all__ = ["READS", "Measure", "measures_of", "median_interval"]

READS = (
    "pipelines",
    "stages",
    "submodules",
    "steps",
    "calls",
    "roles",
    "shapes",
    "devices",
    "memory_devices",
)
"""The tables of an analysis that the rows are made of."""
_SHAPES = 60  # of a submodule's operators by shape, those that take most
_LONGEST = 200  # characters of a name from a trace
_FEWEST = 6  # samples; the extremes of fewer are no 95 % interval of the median


class Measure(Struct, frozen=True, array_like=True):
    """One number, as `metrics` has it beside whose it is."""

    stage: str | None
    submodule: str | None
    step: int | None
    role: str | None
    shape: str | None
    device: str | None
    metric: str
    value: float
    low: float | None
    high: float | None
    unit: str


assert Measure.__struct_fields__ == VALUE_COLUMNS


def measures_of(analysis: Analysis) -> list[Measure]:
    """All rows of a run, without those whose value is not known."""
    calls = max(len(analysis.pipelines), 1)
    made = (
        *_of_run(analysis.pipelines),
        *_of_stages(analysis, calls),
        *_of_steps(analysis.steps),
        *_of_submodules(analysis, calls),
        *_of_operators(analysis, calls),
        *_of_devices(analysis, calls),
    )
    found: dict[tuple[object, ...], Measure] = {}
    for one in made:
        found.setdefault(tuple(getattr(one, name) for name in VALUE_COLUMNS[:7]), one)
    return list(found.values())


def median_interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Median and its 95 % interval by order statistics (Conover, Practical Nonparametric
    Statistics, 3rd ed., 3.2), None for fewer than six values."""
    ordered = sorted(values)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    if count < _FEWEST:
        return middle, None, None
    rank, below = 0, 0.5**count  # P(fewer than rank + 1 values lie below the median)
    while rank + 1 <= count // 2 and below + _binomial(count, rank + 1) <= 0.025:
        rank += 1
        below += _binomial(count, rank)
    return middle, ordered[rank], ordered[count - 1 - rank]


def _binomial(count: int, number: int) -> float:
    return math.exp(
        math.lgamma(count + 1)
        - math.lgamma(number + 1)
        - math.lgamma(count - number + 1)
        + count * math.log(0.5)
    )


def _row(  # what a number may be of
    metric: str,
    value: float | None,
    unit: str = "ns",
    *,
    stage: str | None = None,
    submodule: str | None = None,
    step: int | None = None,
    role: str | None = None,
    shape: str | None = None,
    device: str | None = None,
    interval: tuple[float | None, float | None] = (None, None),
) -> Iterator[Measure]:
    if value is None or not math.isfinite(value):
        return
    yield Measure(
        _bounded(stage),
        _bounded(submodule),
        step,
        _bounded(role),
        _bounded(shape),
        _bounded(device),
        metric,
        float(value),
        *interval,
        unit,
    )


def _bounded(name: str | None) -> str | None:
    return name[:_LONGEST] if name else None


def _median_row(metric: str, values: Sequence[float], **of: object) -> Iterator[Measure]:
    if values:
        value, low, high = median_interval(values)
        yield from _row(metric, value, interval=(low, high), **of)  # type: ignore[arg-type]


def _of_run(pipelines: pl.DataFrame) -> Iterator[Measure]:
    times = pipelines.sort("start_ns")["elapsed_ns"].to_list()
    if len(times) > 1:
        yield from _row("first_elapsed", times[0])
    yield from _median_row("elapsed", times[1:] or times)


def _of_stages(analysis: Analysis, calls: int) -> Iterator[Measure]:
    if analysis.pipelines.is_empty() and analysis.accounting.end_to_end_ns:
        yield from _row("elapsed", analysis.accounting.end_to_end_ns)
    for row in analysis.stages.iter_rows(named=True):
        for metric in ("elapsed", "host", "idle"):
            yield from _row(metric, _each(row[f"{metric}_ns"], calls), stage=row["stage"])


def _of_steps(steps: pl.DataFrame) -> Iterator[Measure]:
    if steps.is_empty():
        return
    firsts, steady = _first_and_steady(steps.sort("start_ns"), "pipeline")
    yield from _median_row("first_step", firsts, stage="denoise")
    yield from _median_row("step", steady or firsts, stage="denoise")
    by_step = steps.group_by("step").agg("elapsed_ns").sort("step").rows()
    for step, times in by_step:
        yield from _median_row("step", times, stage="denoise", step=step)


def _first_and_steady(rows: pl.DataFrame, by: str) -> tuple[list[int], list[int]]:
    first = rows[by].is_first_distinct()
    return (rows["elapsed_ns"].filter(first).to_list(), rows["elapsed_ns"].filter(~first).to_list())


def _of_submodules(analysis: Analysis, calls: int) -> Iterator[Measure]:
    for row in analysis.submodules.iter_rows(named=True):
        of = {"stage": row["stage"], "submodule": row["submodule"]}
        yield from _row("elapsed", _each(row["elapsed_ns"], calls), **of)
        yield from _row("calls", row["calls"], "count", **of)
    by = ("stage", "submodule")
    groups = analysis.calls.sort("start_ns").group_by(*by, maintain_order=True)
    for (stage, submodule), rows in groups:
        of = {"stage": stage, "submodule": submodule}
        steady = rows.filter(~pl.col("first"))["elapsed_ns"].drop_nulls().to_list()
        first = rows.filter("first")["elapsed_ns"].drop_nulls().to_list()
        yield from _row("first_call", first[0] if first else None, **of)
        yield from _median_row("call", steady or first, **of)


def _of_operators(analysis: Analysis, calls: int) -> Iterator[Measure]:
    for row in analysis.roles.select("submodule", "role", "total_ns").iter_rows(named=True):
        time = _each(row["total_ns"], calls)
        yield from _row("time", time, submodule=row["submodule"], role=row["role"])
    shapes = (
        analysis.shapes.group_by("submodule", "label", maintain_order=True)
        .agg(pl.col("total_ns").sum())
        .sort("total_ns", "submodule", "label", descending=(True, False, False))
    )
    for submodule, label, total in shapes.head(_SHAPES).rows():
        yield from _row("time", _each(total, calls), submodule=submodule, shape=label)


def _of_devices(analysis: Analysis, calls: int) -> Iterable[Measure]:
    for row in analysis.devices.iter_rows(named=True):
        if not row["commands"]:
            continue  # nobody recorded what it did
        yield from _row("busy", _each(row["busy_ns"], calls), device=row["device"])
        yield from _row("utilization", row["utilization"], "ratio", device=row["device"])
    for row in analysis.memory_devices.iter_rows(named=True):
        yield from _row("peak_memory", row["peak_bytes"], "bytes", device=row["device"])
        yield from _row("weight_memory", row["weight_bytes"], "bytes", device=row["device"])


def _each(total: float | None, calls: int) -> float | None:
    return None if total is None else total / calls
