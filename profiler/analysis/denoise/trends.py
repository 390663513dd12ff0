"""Robust statistics over rows of repeated measurements; NaN stands for what was not measured.

All of them hold against outliers: medians, median absolute deviations (MAD), and the slope of Theil
(1950) and Sen (1968, J. Am. Stat. Assoc. 63, 1379-1389), the median of the slopes between all
pairs, with Sen's interval.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

__all__ = ["Reals", "Slopes", "medians", "outlying", "slopes", "spreads", "warm_up"]

Reals = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.bool_]

_SCALE = 1.4826  # the MAD times this estimates the standard deviation of normal data
_DEVIATIONS = 3.0
_RATIO = 1.05
_ENOUGH = 5  # values
_POINTS = 64  # of a row whose pairs are looked at; longer rows are halved by means first
_QUANTILE = 1.9599639845400536  # of a normal distribution: 2.5 % lie above it


class Slopes(Struct, frozen=True, eq=False):
    """Change from one column to the next, and its 95 % interval; float64 [rows], NaN where a row
    has fewer than five values."""

    slope: Reals
    low: Reals
    high: Reals


def medians(values: Reals) -> Reals:
    """The median of each row, NaN for rows of nothing."""
    if not values.shape[1]:
        return _nothing(values)
    ordered = np.sort(values, axis=1)  # NaN last
    known = (~np.isnan(values)).sum(axis=1)
    row = np.arange(len(values))
    found: Reals = (ordered[row, (known - 1) // 2] + ordered[row, known // 2]) / 2
    return found


def spreads(values: Reals) -> Reals:
    """The scaled MAD of each row: its standard deviation, were it normal; NaN as `medians`."""
    return _SCALE * medians(np.abs(values - medians(values)[:, None]))


def outlying(values: Reals, usual: Reals) -> _Flags:
    """Which `values` stand out by `steps.OUTLIER_RULE` from the `usual` ones of their row."""
    median, spread = medians(usual)[:, None], spreads(usual)[:, None]
    enough = (~np.isnan(usual)).sum(axis=1)[:, None] >= _ENOUGH
    with np.errstate(invalid="ignore"):
        found: _Flags = (
            (values > median + _DEVIATIONS * spread) & (values > _RATIO * median) & enough
        )
    return found


def warm_up(values: Reals) -> npt.NDArray[np.int64]:
    """How many leading values of each row stand out from the later half of its values.

    One that is missing ends the warm-up; one longer than half of the row is none.
    """
    rows, columns = values.shape
    if not columns:
        return np.zeros(rows, dtype=np.int64)
    late = values.copy()
    late[:, : columns // 2] = np.nan
    high = outlying(values, late)
    found: npt.NDArray[np.int64] = np.cumprod(high, axis=1).sum(axis=1)
    return np.where(found > columns // 2, 0, found)


def slopes(values: Reals) -> Slopes:
    """The slope of each row over the numbers of its columns."""
    width = 1
    while values.shape[1] > _POINTS:
        values, width = _halved(values), width * 2
    first, second = np.triu_indices(values.shape[1], 1)
    pairs = np.sort((values[:, second] - values[:, first]) / (second - first), axis=1)
    known = (~np.isnan(values)).sum(axis=1)
    count = known * (known - 1) // 2
    error = _QUANTILE * np.sqrt(known * (known - 1) * (2 * known + 5) / 18)
    low = np.floor((count - error) / 2).astype(np.int64)
    high = np.ceil((count + error) / 2).astype(np.int64)
    few = (known < _ENOUGH) | (count == 0)
    row = np.arange(len(values))

    def at(index: npt.NDArray[np.int64]) -> Reals:
        if not pairs.shape[1]:
            return _nothing(values)
        inside = np.clip(index, 0, np.maximum(count - 1, 0))
        return np.where(few, np.nan, pairs[row, inside]) / width

    return Slopes(medians(np.where(few[:, None], np.nan, pairs)) / width, at(low - 1), at(high))


def _halved(values: Reals) -> Reals:
    """Means of neighbours, two by two; of one that is alone itself, and a last one goes."""
    even = values.shape[1] // 2 * 2
    pairs = values[:, :even].reshape(len(values), -1, 2)
    known = (~np.isnan(pairs)).sum(axis=2)
    halved: Reals = np.where(known > 0, np.nansum(pairs, axis=2) / np.maximum(known, 1), np.nan)
    return halved


def _nothing(values: Reals) -> Reals:
    return np.full(len(values), np.nan)
