"""Statistics over the denoising steps of a run, and which of them stand out."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.steps.codes import OutlierRule, StepSource
from profiler.notes import Note
from profiler.table.batches import Times

__all__ = ["OUTLIER_RULE", "StepSummary", "outliers", "step_summary"]

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
    compiles; of all where none is steady. `diff` compares these, too.
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
        median_ns=int(np.median(durations[steady] if steady.any() else durations)),
        max_ns=int(durations.max()),
        mean_ns=round(float(durations.mean())),
        outliers=tuple(f"{pipeline}:{step}" if several else str(step) for pipeline, step in found),
        rule=OUTLIER_RULE,
        measured_by=measured_by,
    )


def outliers(durations: Times) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which durations stand out by `OUTLIER_RULE`, bool [n]."""
    if len(durations) < _ENOUGH:
        return np.zeros(len(durations), dtype=np.bool_)
    median = np.median(durations)
    spread = _SCALE * np.median(np.abs(durations - median))
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        durations > median + _DEVIATIONS * spread
    ) & (durations > _RATIO * median)
    return found
