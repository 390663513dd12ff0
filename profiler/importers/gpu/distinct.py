"""Rows that differ. NumPy's own `unique` of several columns sorts records, which takes ten times as
long."""

from __future__ import annotations

import numpy as np

from profiler.trace.columns import Int64s

__all__ = ["distinct"]


def distinct(*columns: Int64s) -> tuple[list[tuple[int, ...]], Int64s]:
    """The rows of some columns that differ, and which of them each row is, int64 [n]."""
    place: Int64s = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        key = place * max(len(values), 1) + code.reshape(-1)
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        place = inverse.reshape(-1)
    return list(zip(*(column[first].tolist() for column in columns), strict=True)), place
