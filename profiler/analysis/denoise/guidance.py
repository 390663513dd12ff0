"""What guidance costs: calls that are there only because of it.

Classifier-free guidance runs the denoiser a second time a step, for the negative prompt: as a call
of its own (`uncond`), or as half of a batch (`batched`). What half of a batch costs no trace tells
by itself. Where the same submodule also ran without (guidance in some of the steps only), the
difference between the medians counts; else half of the batched calls, and `estimated` says so: a
device that a batch of one does not fill loses less.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.denoise.columns import GUIDANCE
from profiler.table.columns import schema

__all__ = ["guidance_table"]

_FREE, _NEGATIVE, _SKIP = "classifier-free guidance", "negative prompt", "skip-layer guidance"
_WHOLE = {"uncond": _FREE, "negative_prompt": _NEGATIVE, "skip_layers": _SKIP}
_HALF = "half of batched calls: time taken to grow with the batch"
_TIMES = ("wall_ns", "busy_ns", "calibrated_ns")


def guidance_table(
    calls: pl.DataFrame, calibration: pl.DataFrame, end_to_end_ns: int
) -> pl.DataFrame:
    """One row a submodule and branch that guidance adds (`columns.GUIDANCE`), longest first of
    each.

    `calls` is the call table, `calibration` has the columns `submodule` and `calibration`.
    """
    factor = pl.when(pl.col("ops_traced")).then(pl.col("calibration")).otherwise(1.0)
    known = calls.join(calibration, on="submodule", how="left").with_columns(
        wall_ns=pl.col("duration_ns").cast(pl.Float64),
        busy_ns=pl.col("busy_ns").cast(pl.Float64),
        calibrated_ns=pl.col("duration_ns") * factor,
    )
    rows = [
        row
        for (submodule,), some in known.group_by("submodule", maintain_order=True)
        for row in _rows(str(submodule), some)
    ]
    table = pl.DataFrame(rows, schema=_ROW, orient="row").with_columns(
        share=pl.col("wall_ns") / end_to_end_ns if end_to_end_ns else pl.lit(None),
        order=pl.col("what").replace_strict({_FREE: 0, _NEGATIVE: 1, _SKIP: 2}),
    )
    table = table.sort("order", "wall_ns", descending=[False, True], maintain_order=True)
    rounded = table.with_columns(pl.col(*_TIMES).round()).with_columns(
        pl.col("calibrated_ns").cast(pl.Int64, strict=False)  # a foreign factor may be anything
    )
    return rounded.select(pl.col(n).cast(t) for n, t in schema(GUIDANCE).items())


_ROW = pl.Schema(
    {
        "what": pl.String(),
        "submodule": pl.String(),
        "branch": pl.String(),
        "calls": pl.Int64(),
        "wall_ns": pl.Float64(),
        "busy_ns": pl.Float64(),
        "calibrated_ns": pl.Float64(),
        "estimated": pl.Boolean(),
        "evidence": pl.String(),
    }
)


def _rows(submodule: str, calls: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    """What each branch of a submodule's calls costs."""
    for branch, what in _WHOLE.items():
        some = calls.filter(pl.col("branch") == branch)
        if len(some):
            sums = (_sum(some[name]) for name in _TIMES)
            yield what, submodule, branch, len(some), *sums, False, f"calls of branch {branch}"
    batched = calls.filter(pl.col("branch") == "batched")
    if not len(batched):
        return
    single = calls.filter(pl.col("branch") == "cond")
    of_submodule = (_FREE, submodule, "batched", len(batched))
    if len(single):
        cost = (_difference(batched, single, name) for name in _TIMES)
        evidence = f"batched against {len(single)} cond calls"
        yield *of_submodule, *cost, False, evidence
    else:
        halves = (_sum(batched[name], 0.5) for name in _TIMES)
        yield *of_submodule, *halves, True, _HALF


def _sum(values: pl.Series, factor: float = 1.0) -> float | None:
    """`factor` of the sum, None where a value is not known."""
    return None if values.null_count() else float(values.sum()) * factor


def _difference(batched: pl.DataFrame, single: pl.DataFrame, name: str) -> float | None:
    """What batched calls took beyond as many single ones, by the medians of steady calls."""
    medians = []
    for calls in (batched, single):
        if calls[name].null_count():
            return None
        steady = calls.filter(~pl.col("first"))
        medians.append((steady if len(steady) else calls)[name].median())
    one, other = medians
    if not isinstance(one, (int, float)) or not isinstance(other, (int, float)):
        return None
    return max(one - other, 0.0) * len(batched)
