"""Statistics over the denoising steps of a run, and which of them stand out."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.steps.codes import OutlierRule, StepSource
from profiler.run.intervals import Times
from profiler.text import Note

__all__ = ["OUTLIER_RULE", "StepSummary", "outliers", "skipping", "step_summary"]

_Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]

_SCALE = 1.4826  # the MAD times this estimates the standard deviation of normal data
_DEVIATIONS = 3.0
_RATIO = 1.05
_ENOUGH = 5  # steps; the median deviation of fewer says nothing
OUTLIER_RULE = Note.of(
    OutlierRule.MEDIAN_DEVIATION,
    deviations=_DEVIATIONS,
    scale=_SCALE,
    excess_share=round(_RATIO - 1, 6),
    fewest=_ENOUGH,
)
"""When a step stands out (Leys et al. 2013, J. Exp. Soc. Psychol. 49(4), 764-766)."""


class StepSummary(Struct, frozen=True):
    """Statistics over the rows of `steps`; times are 0 where there are none.

    `median_ns` is that of the steady steps, in which no submodule is called for the first time or
    compiles; of all where none is steady. `diff` compares these, too. Where a step cache was on,
    `full_steps` are those in which it skipped nothing, `skipping_steps` the others, with their own
    medians; None where no cache was on, and where there is no such step.
    `outliers` are the steps (`"7"`, or `"1:7"` for step 7 of pipeline call 1 where there are
    several) that `rule` singles out. `measured_by` says what
    told which steps there are: `step_spans`, or `calls` where the run has no such spans.
    """

    count: int
    min_ns: int
    median_ns: int
    max_ns: int
    mean_ns: int
    outliers: tuple[str, ...]
    rule: Note
    measured_by: StepSource
    full_steps: int | None = None
    full_median_ns: int | None = None
    skipping_steps: int | None = None
    skipping_median_ns: int | None = None


def step_summary(
    steps: pl.DataFrame, first: frozenset[tuple[int, int]], *, from_spans: bool
) -> StepSummary:
    """Statistics of the rows of `steps`, of which `first` (pipeline call, step) hold the first call
    of a submodule, or one that compiled; outliers as they are marked there."""
    durations = steps["elapsed_ns"].to_numpy()
    measured_by = StepSource.STEP_SPANS if from_spans else StepSource.CALLS
    if not len(durations):
        return StepSummary(0, 0, 0, 0, 0, (), OUTLIER_RULE, measured_by)
    keys = steps.select("pipeline", "step").rows()
    steady = np.array([key not in first for key in keys])
    several = steps["pipeline"].n_unique() > 1
    found = steps.filter("outlier").select("pipeline", "step").iter_rows()
    return StepSummary(
        count=len(durations),
        min_ns=int(durations.min()),
        median_ns=_median(durations, steady),
        max_ns=int(durations.max()),
        mean_ns=round(float(durations.mean())),
        outliers=tuple(f"{pipeline}:{step}" if several else str(step) for pipeline, step in found),
        rule=OUTLIER_RULE,
        measured_by=measured_by,
        **_by_cache(steps["skipped_share"], durations, steady),
    )


def _median(durations: Times, steady: _Flags) -> int:
    """Of the steady ones, of all where there are none."""
    return int(np.median(durations[steady] if steady.any() else durations))


def _by_cache(shares: pl.Series, durations: Times, steady: _Flags) -> dict[str, int]:
    """How many steps a step cache left full and in how many it skipped something, with their
    medians; nothing where none was on."""
    found = {}
    skips = skipping(shares)
    for kind, rows in (("full", ~skips), ("skipping", skips)):
        if shares.is_null().all():
            continue
        found[f"{kind}_steps"] = int(rows.sum())
        if rows.any():
            found[f"{kind}_median_ns"] = _median(durations[rows], steady[rows])
    return found


def skipping(shares: pl.Series) -> _Flags:
    """In which steps a cache skipped anything, bool [n], by the share of blocks that it skipped."""
    found: _Flags = (shares.fill_null(0.0) > 0).to_numpy()
    return found


def outliers(durations: Times, skips: _Flags | None = None) -> _Flags:
    """Which durations stand out by `OUTLIER_RULE` among those of their kind, bool [n]: full steps
    among full ones, those in which a cache skipped something (`skips`) among such."""
    found = np.zeros(len(durations), dtype=np.bool_)
    skips = np.zeros(len(durations), dtype=np.bool_) if skips is None else skips
    for rows in (skips, ~skips):
        found[rows] = _outliers(durations[rows])
    return found


def _outliers(durations: Times) -> _Flags:
    if len(durations) < _ENOUGH:
        return np.zeros(len(durations), dtype=np.bool_)
    median = np.median(durations)
    spread = _SCALE * np.median(np.abs(durations - median))
    found: _Flags = (durations > median + _DEVIATIONS * spread) & (durations > _RATIO * median)
    return found
