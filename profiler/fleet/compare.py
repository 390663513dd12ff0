"""Runs side by side by one field of their identity: hardware, software, resolution, …

    compared = compare(Dataset("fleet/"), "hardware")
    compared.rows         # one row a workload, value of the field and metric
    compared.apart        # what was not compared, and why

Two values are compared where all other fields of the identity agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import polars as pl
from msgspec import Struct

from profiler.fleet.apart import Apart, comparable_with_none
from profiler.fleet.dataset import Dataset
from profiler.fleet.identity import FIELDS, IDENTIFYING, groups
from profiler.fleet.noise import ratio_interval, runs_needed
from profiler.metrics import median_interval

__all__ = ["DEFAULT_METRICS", "Compared", "Verdict", "compare"]

DEFAULT_METRICS = ("elapsed", "denoise.step")

_SCHEMA = {
    "workload": pl.String(),
    "value": pl.String(),
    "metric": pl.String(),
    "runs": pl.Int64(),
    "median": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "unit": pl.String(),
    "ratio": pl.Float64(),
    "ratio_low": pl.Float64(),
    "ratio_high": pl.Float64(),
    "verdict": pl.String(),
    "needs": pl.Int64(),
}


class Verdict(StrEnum):
    """What the runs of a value say beside those of the base, which has the most runs."""

    BASE = "base"
    SLOWER = "slower"
    FASTER = "faster"
    NO_DIFFERENCE = "no_difference"  # that so many runs tell
    NEEDS_MORE = "needs_more"
    ALONE = "alone"  # nothing to compare with


class Compared(Struct, frozen=True):
    """The comparison: `rows` with the columns of the page `docs/fleets.md`, medians and intervals
    in the metric's unit, ratios to the base's median; and what stands `apart`."""

    rows: pl.DataFrame
    apart: tuple[Apart, ...]


def compare(  # what a user says of a comparison
    data: Dataset,
    by: str,
    metrics: Sequence[str] = DEFAULT_METRICS,
    where: Sequence[str] = (),
    *,
    assume_same: Sequence[str] = (),
    ignored: Sequence[str] = (),
    quality: bool = False,
) -> Compared:
    """Compare the runs by a field of their identity, of which others are `ignored` or assumed to
    agree where they are unknown. Runs of bad quality are left out unless `quality` is set. Raises
    InputError for a metric or condition that is none."""
    runs = data.runs(where, IDENTIFYING)
    good = runs if quality else runs.filter(pl.col("quality") == "")
    left_out = (by, *ignored)
    grouped = groups(good, assume_same, left_out).with_columns(value=pl.col(by).cast(pl.String))
    known = grouped.filter(pl.col("group").is_not_null() & pl.col("value").is_not_null())
    values = (
        data.metrics(metrics, where, quality=quality)
        .join(known.select("run", "group", "value", *FIELDS), on="run", suffix="_of_run")
        .rename({"value": "number", "value_of_run": "value"})
    )
    rows: list[dict[str, Any]] = []
    for (_, name), part in values.group_by("group", "name", maintain_order=True):
        rows += _rows(str(name), part, left_out)
    bad = len(runs) - len(good)
    example = runs.filter(pl.col("quality") != "")["run_id"].first() if bad else ""
    lacking = grouped.filter(pl.col("group").is_null() | pl.col("value").is_null())
    apart = comparable_with_none(lacking, assume_same, ignored, by)
    apart += [Apart(bad, str(example), (), bad_quality=True)] if bad else []
    found = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    return Compared(found.sort("workload", "metric", maintain_order=True), tuple(apart))


def _rows(metric: str, part: pl.DataFrame, left_out: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of one workload and metric: the base, which has the most runs, first."""
    grouped = part.group_by("value", maintain_order=True).agg("number")
    by_value: dict[str, list[float]] = dict(grouped.select("value", "number").iter_rows())
    ordered = sorted(by_value.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    base = ordered[0][1]
    workload = _workload(part.row(0, named=True), left_out)
    found = []
    for number, (value, numbers) in enumerate(ordered):
        median, low, high = median_interval(numbers)
        ratio, ratio_low, ratio_high = ratio_interval(numbers, base) if number else (1.0, 1.0, 1.0)
        needs = max(runs_needed(numbers), runs_needed(base) if number else 0)
        verdict = _verdict(ratio_low, ratio_high, needs) if number else Verdict.BASE
        found.append(
            {
                "workload": workload,
                "value": value,
                "metric": metric,
                "runs": len(numbers),
                "median": median,
                "low": low,
                "high": high,
                "unit": part["unit"][0],
                "ratio": ratio,
                "ratio_low": ratio_low,
                "ratio_high": ratio_high,
                "verdict": (Verdict.ALONE if len(ordered) == 1 else verdict).value,
                "needs": runs_needed(numbers),
            }
        )
    return found


def _verdict(low: float | None, high: float | None, needs: int) -> Verdict:
    """A difference that is told stands; where none is, it may be that there are too few runs."""
    if low is None or high is None:
        return Verdict.NEEDS_MORE
    if low > 1:
        return Verdict.SLOWER
    if high < 1:
        return Verdict.FASTER
    return Verdict.NEEDS_MORE if needs else Verdict.NO_DIFFERENCE


def _workload(row: Mapping[str, Any], left_out: Sequence[str]) -> str:
    """What a group is of, in a few words."""
    parts = {
        "model": "{}",
        "pipeline": "{}",
        "steps": "{} steps",
        "resolution": "{}",
        "batch_size": "batch {}",
        "hardware": "{}",
        "software": "{}",
    }
    shown = [name for name in parts if name not in left_out and row[name] not in (None, "")]
    if "model" in shown and "pipeline" in shown:
        shown.remove("pipeline")
    return ", ".join(parts[name].format(row[name]) for name in shown)
