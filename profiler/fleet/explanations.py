"""Why a metric changed: our own comparison of the last good and the first bad run's bundles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profiler.compare.compare import Comparison, compare
from profiler.compare.measure import measure
from profiler.errors import ProfilerError
from profiler.fleet.storage import is_url
from profiler.sources import load

__all__ = ["explanation"]


def explanation(good: Mapping[str, Any], bad: Mapping[str, Any]) -> Comparison | str:
    """The comparison of two runs, rows of a history; or, in a sentence, why there is none."""
    measured = []
    for row in (good, bad):
        place = str(row["place"])
        if is_url(place) or not Path(place).exists():
            return f"not compared: the bundle of {row['run_id']} is not at {place} any more"
        try:
            run = load(place)
            measured.append(measure(run))
            run.close()
        except ProfilerError as error:
            return f"not compared: {error}"
    try:
        return compare(measured[:1], measured[1:])
    except ProfilerError as error:
        return f"not compared: {error}"
