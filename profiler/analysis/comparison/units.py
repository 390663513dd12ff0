"""What repeats, by metric: the runs, pipeline calls or steps that intervals are drawn from."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from profiler.analysis.comparison.samples import KEYS, PARTS
from profiler.bootstrap import Resampled
from profiler.trace.events import NO_STEP

__all__ = ["units_of"]

_APART = ("end_to_end", "stage", "step", "submodule", "branch")  # have metrics of first calls
_FEW = 3  # pipeline calls of one run; the steps of fewer tell more than they do
_UNIT = ("run", "pipeline", "step")


def units_of(base: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """One row a metric of the samples (`samples.SAMPLE`, and `run`) of two sides: its keys, by
    which `calls` it is compared, what is `resampled`, and the values of these on either side as
    lists `base` and `new`, null where a side has none."""
    chosen = _chosen(base, new)
    return _units([_of_chosen(side, chosen) for side in (base, new)])


def _chosen(base: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """For each metric the `calls` that it is compared by, and the name `as` which.

    Steady samples where both sides have them, and then first ones apart; else first ones; else
    all.
    """
    first = pl.col("first")
    has = {"steady": (~first).any(), "first": first.any()}
    both = [
        side.group_by("metric", "level").agg(**{f"{name}_{at}": e for name, e in has.items()})
        for at, side in enumerate((base, new))
    ]
    joined = both[0].join(both[1], on=["metric", "level"], how="full", coalesce=True)
    steady, firsts = (
        pl.all_horizontal(pl.col(f"{name}_{at}").fill_null(value=True) for at in (0, 1))
        for name in has
    )
    calls = pl.when(steady).then(pl.lit("steady")).when(firsts).then(pl.lit("first"))
    main = joined.select("metric", calls=calls.otherwise(pl.lit("all")), **{"as": "metric"})
    known = pl.all_horizontal(pl.col("steady_0", "steady_1").is_not_null())
    part = pl.col("metric").is_in(PARTS)
    of_level = pl.col("level").is_in(_APART) & ~part
    apart = joined.filter(known & steady & firsts & of_level).select(
        "metric", calls=pl.lit("first"), **{"as": pl.col("metric") + ".first"}
    )
    return pl.concat([main, apart])


def _of_chosen(samples: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
    """The samples by which each metric is compared, under its name."""
    joined = samples.join(chosen, on="metric")
    wanted = (pl.col("calls") == "all") | (pl.col("first") == (pl.col("calls") == "first"))
    return joined.filter(wanted).drop("metric").rename({"as": "metric"})


def _units(sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """One row a metric: its keys, what is `resampled`, and the values of these on either side as
    lists `base` and `new`, null where a side has none."""
    counted = []
    for at, side in enumerate(sides):
        pipelines = side.select("metric", "run", "pipeline").unique().group_by("metric")
        counted.append(
            side.group_by("metric")
            .agg(
                pl.col("run").n_unique().alias(f"runs_{at}"),
                pl.len().alias(f"samples_{at}"),
                (pl.col("pipeline") < 0).any().alias(f"alone_{at}"),
                (pl.col("step") > NO_STEP).any().alias(f"stepping_{at}"),
            )
            .join(pipelines.agg(pl.len().alias(f"pipelines_{at}")), on="metric")
        )
    joined = counted[0].join(counted[1], on="metric", how="full", coalesce=True)

    level = joined.select("metric", resampled=_resampled())
    values = [_values(side.join(level, on="metric")) for side in sides]
    keys = pl.concat([side.select(*KEYS, "calls") for side in sides]).unique(
        "metric", keep="first", maintain_order=True
    )
    return (
        keys.join(level, on="metric", how="left", maintain_order="left")
        .join(values[0].rename({"values": "base"}), on="metric", how="left", maintain_order="left")
        .join(values[1].rename({"values": "new"}), on="metric", how="left", maintain_order="left")
    )


def _resampled() -> pl.Expr:
    """What is drawn for a metric, from the counts of `_units`."""

    def at_least(number: int, name: str) -> pl.Expr:
        return pl.max_horizontal(f"{name}_0", f"{name}_1") >= number

    call = pl.when(pl.any_horizontal("alone_0", "alone_1")).then(pl.lit(Resampled.CALLS.value))
    of_call = call.otherwise(pl.lit(Resampled.PIPELINE_CALLS.value))
    stepping = pl.any_horizontal("stepping_0", "stepping_1")
    return (
        pl.when(at_least(2, "runs"))
        .then(pl.lit(Resampled.RUNS.value))
        .when(at_least(_FEW, "pipelines"))
        .then(of_call)
        .when(at_least(2, "samples"))
        .then(pl.when(stepping).then(pl.lit(Resampled.STEPS.value)).otherwise(of_call))
    )


def _values(samples: pl.DataFrame) -> pl.DataFrame:
    """The median of the samples in each run, pipeline call or step, as a list a metric."""
    of_run = (pl.col("resampled") == Resampled.RUNS.value).fill_null(value=False)
    calls = (Resampled.CALLS.value, Resampled.PIPELINE_CALLS.value)
    of_call = of_run | pl.col("resampled").is_in(calls).fill_null(value=False)
    return (
        samples.with_columns(
            pipeline=pl.when(of_run).then(0).otherwise("pipeline"),
            step=pl.when(of_call).then(0).otherwise("step"),
        )
        .group_by("metric", *_UNIT)
        .agg(pl.col("value_ns").median())
        .sort("metric", *_UNIT)
        .group_by("metric", maintain_order=True)
        .agg(values=pl.col("value_ns"))
    )
