"""Rules about how times change in the course of a run: first calls, drift, outliers."""

from __future__ import annotations

from typing import Any

import polars as pl

from profiler.analysis.denoise.codes import OutlierCause
from profiler.analysis.findings.codes import OutlierPattern
from profiler.analysis.findings.compilation import compiled_in
from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.measures import (
    UNLABELLED,
    calls_of,
    end_to_end_ns,
    share,
)
from profiler.analysis.findings.stalls import stalls_of
from profiler.analysis.result import Analysis
from profiler.text import Value

__all__ = ["cold_calls", "first_call", "outlier_steps", "slow_start", "step_drift"]

_FIRST_RATIO = 2.0  # first call / median of the others: less is within what caches explain
_FIRST_SHARE = 0.05  # of end to end
_SLOW_START_STEPS = 2  # one slow step is the first call
_SLOW_START_SHARE = 0.02
_DRIFT = 0.05  # from first to last step, of the median: boost clocks vary by less
_DRIFT_LOW = 0.02  # by the lower end of its interval: one that nearly holds 0 proves little
_OUTLIER_SHARE = 0.02
_PROMPTS = ("prompt", "negative_prompt")
_NAMED_STEPS = 8


def first_call(analysis: Analysis) -> tuple[Finding, ...]:
    """The first call of a submodule took several times as long as the later ones."""
    total = end_to_end_ns(analysis)
    slow = _warmup_steps(analysis) >= _SLOW_START_STEPS
    found = []
    for row in _with_later_calls(analysis).to_dicts():
        excess = row["first_ns"] - row["median_ns"]
        if row["first_ns"] < _FIRST_RATIO * row["median_ns"]:
            continue
        if share(excess, total) < _FIRST_SHARE or (slow and row["denoises"]):
            continue
        if compiled_in(analysis, row["first"]) > excess / 2:
            continue  # `compilation` says so
        found.append(
            Finding(
                rule="first_call",
                evidence={
                    "first_ns": row["first_ns"],
                    "later_median_ns": row["median_ns"],
                    "excess_ns": excess,
                    "excess_share": share(excess, total),
                    "later_calls": row["calls"] - 1,
                    **_stalled(analysis, row["first"], excess),
                },
                where=calls_of(analysis, row["submodule"]),
                cost_ns=excess,
            )
        )
    return tuple(found)


def _stalled(analysis: Analysis, call: int, excess_ns: int) -> dict[str, Value]:
    """How long the host stood still in a call, and in what; nothing where that is not most of its
    excess."""
    stalls = stalls_of(analysis, call=call)
    if stalls is None or 2 * stalls.length_ns < excess_ns:
        return {}
    doing: dict[str, Value] = {"host_in": stalls.host_in} if stalls.host_in else {}
    return {"stalls_ns": stalls.length_ns, **doing}


def cold_calls(analysis: Analysis) -> pl.Series:
    """Numbers of the first calls that took several times as long as the later ones."""
    cold = pl.col("first_ns") >= _FIRST_RATIO * pl.col("median_ns")
    return _with_later_calls(analysis).filter(cold)["first"]


def slow_start(analysis: Analysis) -> Finding | None:
    """Several steps at the beginning took longer than the later ones."""
    row = _step_row(analysis)
    total = end_to_end_ns(analysis)
    if row is None or row["warmup_steps"] < _SLOW_START_STEPS:
        return None
    if share(row["warmup_ns"], total) < _SLOW_START_SHARE:
        return None
    return Finding(
        rule="slow_start",
        evidence={
            "warmup_steps": row["warmup_steps"],
            "warmup_ns": row["warmup_ns"],
            "warmup_share": share(row["warmup_ns"], total),
            "later_median_ns": row["median_ns"],
        },
        where=calls_of(analysis, step=0),
        cost_ns=row["warmup_ns"],
    )


def step_drift(analysis: Analysis) -> Finding | None:
    """Steps become slower and slower."""
    row = _step_row(analysis)
    if row is None or row["drift_low_ns"] is None:
        return None
    later = row["steps"] - 1
    over_run, least = row["drift_ns"] * later, row["drift_low_ns"] * later
    median = row["median_ns"]
    if share(over_run, median) < _DRIFT or share(least, median) < _DRIFT_LOW:
        return None
    return Finding(
        rule="step_drift",
        evidence={
            "drift_per_step_ns": row["drift_ns"],
            "drift_low_ns": row["drift_low_ns"],
            "drift_high_ns": row["drift_high_ns"],
            "steps": row["steps"],
            "median_ns": median,
            "drift_share": share(over_run, median),
        },
        where=calls_of(analysis, step=int(analysis.steps["step"].max() or 0)),  # type: ignore[arg-type]
        cost_ns=round(over_run * row["steps"] / 2),
    )


def outlier_steps(analysis: Analysis) -> Finding | None:
    """Single steps took much longer than the median, beside warm-up."""
    rows = analysis.step_outliers.filter(
        pl.col("level") == "step",
        ~pl.col("cause").is_in([OutlierCause.WARM_UP.value]).fill_null(value=False),
    ).sort("excess_ns", descending=True)
    total = end_to_end_ns(analysis)
    excess = int(rows["excess_ns"].sum())
    if rows.is_empty() or share(excess, total) < _OUTLIER_SHARE:
        return None
    worst = rows.row(0, named=True)
    several = analysis.steps["pipeline"].n_unique() > 1
    named = [_step_name(row, several) for row in rows.head(_NAMED_STEPS).iter_rows(named=True)]
    steps = ", ".join(named)
    excess_share = share(excess, total)
    evidence: dict[str, Value] = {
        "outliers": len(rows),
        "steps": steps,
        "excess_ns": excess,
        "excess_share": excess_share,
        "longest_ns": worst["total_ns"],
        "median_ns": worst["total_ns"] - worst["excess_ns"],
        "pipeline_calls": analysis.steps["pipeline"].n_unique(),
        "pattern": _pattern(analysis),
        **_cause(worst),
    }
    return Finding(
        rule="outlier_steps",
        evidence=evidence,
        where=calls_of(analysis, pipeline=worst["pipeline"], step=worst["step"]),
        cost_ns=excess,
    )


def _step_name(row: dict[str, Any], several: bool) -> str:
    """`"7"`, or `"1:7"` for step 7 of pipeline call 1 where there are several."""
    return f"{row['pipeline']}:{row['step']}" if several else str(row["step"])


def _pattern(analysis: Analysis) -> OutlierPattern:
    """Whether the first step of every pipeline call stands out, and no other does."""
    first = analysis.steps.group_by("pipeline").agg(pl.col("step").first())
    found = analysis.step_outliers.filter(pl.col("level") == "step")
    same = set(first.iter_rows()) == set(found.select("pipeline", "step").iter_rows())
    return OutlierPattern.EACH_FIRST_STEP if same else OutlierPattern.SINGLE_STEPS


def _cause(row: dict[str, Any]) -> dict[str, Value]:
    """What explains the worst outlier; nothing where no track does."""
    if row["cause"] is None:
        return {}
    evidence: dict[str, Value | None] = {
        "cause": OutlierCause(row["cause"]),
        "cause_device": row["cause_device"],
        "cause_track": row["cause_track"],
        "cause_layer": row["cause_layer"],
    }
    return {name: value for name, value in evidence.items() if value}


def _step_row(analysis: Analysis) -> dict[str, Any] | None:
    rows = analysis.step_operators.filter(pl.col("level") == "step")
    return rows.row(0, named=True) if len(rows) else None


def _warmup_steps(analysis: Analysis) -> int:
    row = _step_row(analysis)
    if row is None or share(row["warmup_ns"], end_to_end_ns(analysis)) < _SLOW_START_SHARE:
        return 0
    return int(row["warmup_steps"])


def _with_later_calls(analysis: Analysis) -> pl.DataFrame:
    """First and median later calls of what does the same each time: an encoder for both prompts,
    a denoiser for one branch. Of a branch whose first call is not the submodule's, none, and none
    of calls that nobody labelled: they may be of any submodule."""
    of_prompts = pl.col("branch").is_in(_PROMPTS).fill_null(value=False)
    groups = (
        analysis.calls.filter(pl.col("submodule") != UNLABELLED)
        .sort("start_ns", "call")
        .with_columns(group=pl.when(of_prompts).then(pl.lit("prompts")).otherwise("branch"))
        .group_by("submodule", "group", maintain_order=True)
        .agg(
            first_ns=pl.when(pl.col("first").first()).then(pl.col("elapsed_ns").first()),
            first=pl.col("call").first(),
            median_ns=pl.col("elapsed_ns").filter(~pl.col("first")).median().cast(pl.Int64),
            calls=pl.len(),
            denoises=(pl.col("step") >= 0).any(),
        )
    )
    return groups.drop_nulls(["first_ns", "median_ns"]).filter(pl.col("median_ns") > 0)
