"""Samples: what was measured, once for each time that it was measured.

A sample is a denoising step, or a pipeline call for what lies outside of steps, or a call that
lies in no pipeline call. Time of a submodule, branch, role or module is what its calls in the
sample took together, so that one batched call compares with two single ones.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from profiler.analysis.comparison.measure import Measurement

__all__ = ["KEYS", "PARTS", "SAMPLE", "samples_of"]

KEYS = ("metric", "level", "stage", "submodule", "branch", "of_step", "role", "module")
"""What is compared; `of_step` is the step of a single step's metric."""
SAMPLE = pl.Schema(
    {
        **dict.fromkeys(KEYS, pl.String()),
        "of_step": pl.Int32(),
        "pipeline": pl.Int64(),
        "step": pl.Int32(),
        "first": pl.Boolean(),
        "value_ns": pl.Float64(),
    }
)

PARTS = tuple(f"denoise.step.{part}" for part in ("host", "idle", "between"))  # of steps

_AT = ("pipeline", "step")
_OF = ("submodule", *_AT)
_STAGE = pl.col("stage").first()


def samples_of(
    measured: Measurement, corrected: Collection[str], modules: pl.DataFrame
) -> pl.DataFrame:
    """The samples of one run (`SAMPLE`).

    Times of traced calls of the `corrected` submodules are scaled to untraced ones. `modules` says
    under which name a module of this run is compared: columns `submodule`, `role`, `module`, `as`
    and `level`, any number of rows a module.
    """
    calls = _with_excess(measured, corrected)
    frames = [
        *_span_samples(measured.spans, calls),
        *_call_samples(calls),
        *_work_samples(measured, calls, corrected, modules),
    ]
    return pl.concat([_complete(frame) for frame in frames])


def _complete(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with all columns of `SAMPLE`, null where it lacks one."""
    missing = {name: None for name in SAMPLE if name not in frame.columns}
    frame = frame.with_columns(**{name: pl.lit(value) for name, value in missing.items()})
    return frame.select(pl.col(name).cast(dtype) for name, dtype in SAMPLE.items())


def _with_excess(measured: Measurement, corrected: Collection[str]) -> pl.DataFrame:
    """The calls with `factor`, and `excess_ns` that tracing them cost by it."""
    factors = {name: measured.overhead_ratio.get(name, 1.0) for name in corrected}
    known = pl.col("submodule").replace_strict(factors, default=1.0, return_dtype=pl.Float64)
    return measured.calls.with_columns(
        factor=pl.when("traced").then(known).otherwise(1.0)
    ).with_columns(excess_ns=pl.col("value_ns") * (1 - pl.col("factor")))


def _span_samples(spans: pl.DataFrame, calls: pl.DataFrame) -> list[pl.DataFrame]:
    """Pipeline calls, stages and steps, less what tracing the calls in them cost."""
    found = []
    for level, keys in (
        ("end_to_end", ["pipeline"]),
        ("stage", ["pipeline", "stage"]),
        ("step", ["pipeline", "step"]),
    ):
        inside = calls.group_by(keys).agg(pl.col("first").any(), pl.col("excess_ns").sum())
        own = spans.filter(pl.col("level") == level).join(inside, on=keys, how="left")
        whole = pl.when(pl.col("part") == "").then(pl.col("excess_ns").fill_null(0)).otherwise(0.0)
        found.append(
            own.with_columns(
                metric=_span_metric(level),
                first=pl.col("first").fill_null(value=False),
                value_ns=(pl.col("value_ns") - whole).clip(0),
            )
        )
    single = found[-1].filter(pl.col("part") == "")
    found.append(
        single.with_columns(metric=pl.format("denoise.step.{}", "step"), of_step=pl.col("step"))
    )
    return found


def _span_metric(level: str) -> pl.Expr:
    if level == "stage":
        return pl.format("stage.{}", "stage")
    if level == "end_to_end":
        return pl.lit("end_to_end")
    part = pl.col("part")
    return pl.when(part == "").then(pl.lit("denoise.step")).otherwise("denoise.step." + part)


def _call_samples(calls: pl.DataFrame) -> list[pl.DataFrame]:
    """Submodules, and their branches."""
    calls = calls.drop_nulls("value_ns")  # averages of layers are no call's time
    value = (pl.col("value_ns") - pl.col("excess_ns")).sum()
    together = {"first": pl.col("first").any(), "stage": _STAGE, "value_ns": value}
    submodules = calls.group_by(*_OF).agg(**together)
    branches = calls.drop_nulls("branch").group_by("branch", *_OF).agg(**together)
    return [
        submodules.with_columns(
            level=pl.lit("submodule"), metric=pl.format("submodule.{}", "submodule")
        ),
        branches.with_columns(
            level=pl.lit("branch"),
            metric=pl.format("submodule.{}.branch.{}", "submodule", "branch"),
        ),
    ]


def _work_samples(
    measured: Measurement, calls: pl.DataFrame, corrected: Collection[str], modules: pl.DataFrame
) -> list[pl.DataFrame]:
    """Busy time, roles and modules of the samples with traced calls.

    Where some calls of a sample were not traced they are taken to be like those that were.
    """
    factors = {name: measured.overhead_ratio.get(name, 1.0) for name in corrected}
    known = pl.col("submodule").replace_strict(factors, default=1.0, return_dtype=pl.Float64)
    traced = (
        calls.group_by(*_OF)
        .agg(
            pl.col("first").any(),
            _STAGE,
            total_ns=pl.col("total_ns").sum(),
            scale=pl.len() / pl.col("traced").sum(),
            traced=pl.col("traced").sum(),
        )
        .filter(pl.col("traced") > 0)
        .with_columns(scale=pl.col("scale") * known)
    )
    busy = traced.filter(pl.col("total_ns").sum().over("submodule") > 0).with_columns(
        level=pl.lit("busy"),
        metric=pl.format("submodule.{}.busy", "submodule"),
        value_ns=pl.col("total_ns") * pl.col("scale"),
    )
    roles = measured.work.group_by("role", *_OF).agg(pl.col("total_ns").sum())
    by_module = (
        measured.work.join(modules, on=["submodule", "role", "module"])
        .group_by("role", "as", "level", *_OF)
        .agg(pl.col("total_ns").sum())
        .rename({"as": "module"})
    )
    return [
        busy,
        _filled(roles, ["role"], traced).with_columns(
            level=pl.lit("role"), metric=pl.format("submodule.{}.role.{}", "submodule", "role")
        ),
        _filled(by_module, ["role", "module", "level"], traced).with_columns(
            metric=pl.format("submodule.{}.role.{}.module.{}", "submodule", "role", "module")
        ),
    ]


def _filled(work: pl.DataFrame, of: list[str], traced: pl.DataFrame) -> pl.DataFrame:
    """One row a key and traced sample of its submodule, 0 where it has no work there."""
    samples = traced.select(*_OF, "first", "stage", "scale")
    every = work.select("submodule", *of).unique().join(samples, on="submodule")
    joined = every.join(work, on=[*_OF, *of], how="left", nulls_equal=True)
    return joined.with_columns(value_ns=pl.col("total_ns").fill_null(0) * pl.col("scale"))
