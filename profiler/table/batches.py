"""Work on many rows in batches: what a batch works with fits in the processor's caches, and the
memory it takes does not grow with the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

__all__ = [
    "Codes",
    "Times",
    "batches",
    "choose",
    "chosen",
    "counts",
    "is_sorted",
    "order_by",
    "stretches",
]

Times = npt.NDArray[np.int64]
Codes = npt.NDArray[np.integer[Any]]
_Values = TypeVar("_Values", bound=npt.NDArray[np.integer[Any]])

_BATCH = 1 << 18  # rows


def batches(rows: int, overlap: int = 0) -> Iterator[slice]:
    """Slices that divide `rows` rows; each reaches `overlap` rows into the next."""
    yield from (slice(first, first + _BATCH + overlap) for first in range(0, rows, _BATCH))


def stretches(heads: Times, rows: int) -> Iterator[tuple[int, int]]:
    """`[first, last)` of `heads`, the first rows of groups, such that the groups between hold
    about a batch of the `rows` rows: none is divided."""
    first = 0
    while first < len(heads):
        last = max(int(np.searchsorted(heads, heads[first] + _BATCH, side="right")) - 1, first + 1)
        if rows <= heads[first] + _BATCH:
            last = len(heads)
        yield first, last
        first = last


def order_by(codes: Codes, groups: int) -> Times:
    """The order that sorts codes from 0 to `groups - 1`, stable, in linear time: NumPy sorts by
    radix what has 16 bits."""
    if groups <= 1 << 16:
        return np.argsort(codes.astype(np.uint16, copy=False), kind="stable")
    if groups <= 1 << 32:
        return np.lexsort((codes.astype(np.uint16), (codes >> 16).astype(np.uint16)))
    return np.argsort(codes, kind="stable")


def is_sorted(values: Codes) -> bool:
    """Whether no value is less than the one before it."""
    parts = (values[rows] for rows in batches(len(values), overlap=1))
    return all(bool((part[:-1] <= part[1:]).all()) for part in parts)


def choose(values: Codes, which: npt.NDArray[np.bool_], out: Codes) -> None:
    """Write the values that `which` chooses into `out`, which has room for them and no more.

    Polars filters a batch several times as fast as NumPy does, where few or many are chosen.
    """
    first = 0
    for rows in batches(len(values)):
        some = pl.Series(values[rows]).filter(pl.Series(which[rows])).to_numpy()
        out[first : first + len(some)] = some
        first += len(some)


def chosen(values: _Values, which: npt.NDArray[np.bool_], count: int) -> _Values:
    """The values that `which` chooses, of which there are `count`."""
    found: Any = np.empty(count, dtype=values.dtype)
    choose(values, which, found)
    some: _Values = found
    return some


def counts(codes: Codes, groups: int) -> Times:
    """How many rows each group has, int64 [groups]; codes below 0 are of none."""
    found = np.zeros(groups + 1, dtype=np.int64)
    for rows in batches(len(codes)):
        found += np.bincount(codes[rows] + 1, minlength=groups + 1)
    return found[1:]
