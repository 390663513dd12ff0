"""The gate for CI: has a metric become slower by more than is allowed?"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

import polars as pl

from profiler.analysis.comparison.codes import Side, Verdict
from profiler.analysis.comparison.compare import Comparison
from profiler.errors import InputError

__all__ = ["Gate", "check_gate", "find_metric", "parse_limit"]

_LIMIT = re.compile(r"\s*\+?(\d{1,6}(?:\.\d{1,6})?)\s*%\s*")
_NAMED = 4  # metrics that a sentence names


@dataclass(frozen=True, slots=True)
class Gate:
    """One metric against the `limit`, a ratio: `failed` where it is slower by more, and noise does
    not explain that it is slower."""

    metric: str
    limit: float
    change: float
    low: float
    high: float
    verdict: Verdict
    failed: bool


def parse_limit(text: str) -> float:
    """`"5%"` → 0.05. Raises InputError for anything but a number of per cent."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise InputError(f"{text!r:.40} is no limit: give per cent, as in --fail-over 5%")
    return float(match[1]) / 100


def find_metric(comparison: Comparison, name: str) -> dict[str, object]:
    """The row of a metric. Raises InputError, naming some that are alike, where there is none."""
    rows = comparison.metrics.filter(pl.col("metric") == name)
    if rows.is_empty():
        names = comparison.metrics["metric"].to_list()
        alike = difflib.get_close_matches(name, names, _NAMED, 0.5) or names[:_NAMED]
        raise InputError(
            f"there is no metric {name!r:.80} in these runs: give one such as {', '.join(alike)}"
        )
    return rows.row(0, named=True)


def check_gate(comparison: Comparison, name: str, limit: float) -> Gate:
    """Hold a metric against `limit`.

    Raises InputError where it cannot be told: the metric is unknown, only in one side, was
    measured once on each, or is slower by more than the limit without showing any noise that
    would tell what that means (`Verdict.UNCLEAR`).
    """
    row = find_metric(comparison, name)
    change, low, high = (row[key] for key in ("change", "low", "high"))
    verdict = Verdict(str(row["verdict"]))
    for side in Side:
        if verdict is side.alone:
            raise InputError(f"{name} is only in {side}: compare runs that both have it")
    if not isinstance(change, float):
        raise InputError(f"{name} took no time in base: give another metric")
    if not isinstance(low, float) or not isinstance(high, float):
        raise InputError(
            f"{name} was measured once on each side, so its noise is not known: give several runs "
            "a side, or a metric that repeats, as denoise.step does"
        )
    if verdict is Verdict.UNCLEAR and change > limit:
        raise InputError(
            f"{name} is slower by {change:.1%}, but its values are too few, or equal, so its noise "
            "is not known: give three or more runs a side"
        )
    failed = verdict is Verdict.SLOWER and change > limit
    return Gate(name, limit, change, low, high, verdict, failed)
