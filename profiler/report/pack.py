"""Columns of numbers as compact text for a page: byte planes, deflated, base64.

A column of integers is stored as unsigned numbers above its minimum, in as many bytes as its range
needs, all lowest bytes first, then all second bytes, and so on: equal high bytes stand together and
deflate to nothing. Reals are the eight bytes of a double. A column that mostly equals another one
of its table is stored as the difference (`plus`), instants that follow on intervals as what lies
between them (`after`). `templates/data.js` reads it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Table", "deflated", "pack"]

Table = Mapping[str, npt.NDArray[np.int64] | npt.NDArray[np.float64]]
_EXACT = 1 << 53  # whole numbers below are the same as doubles
_SAMPLED = 4096  # values by which columns are compared


def pack(
    tables: Mapping[str, Table], after: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> tuple[dict[str, Any], str]:
    """Describe and encode `tables` of equally long columns of int64 or float64.

    The description maps table → {"rows": n, "columns": {name: {"at", "width", "base"}}}, `at`
    being the column's offset in the inflated bytes. A column may also have "plus" or "after", the
    name of another one: its values are differences to that; or, of the first, to 0, and of the
    others to the value before plus the value before of the other one. `after` has by table and
    column the latter. "real" marks doubles.
    """
    described: dict[str, Any] = {}
    chunks: list[bytes] = []
    at = 0
    for name, columns in tables.items():
        entries = {}
        rows = len(next(iter(columns.values())))
        for column in columns:
            how, stored = _stored(column, columns, after.get(name, {}))
            base, width, data = _planes(stored)
            entries[column] = {"at": at, "width": width, "base": base, **how}
            chunks.append(data)
            at += len(data)
        described[name] = {"rows": rows, "columns": entries}
    return described, deflated(b"".join(chunks))


def _stored(
    column: str, columns: Table, after: Mapping[str, str]
) -> tuple[dict[str, Any], npt.NDArray[Any]]:
    """How a column is stored, and its numbers then."""
    values: npt.NDArray[Any] = columns[column]
    if values.dtype == np.float64:
        if not _all_whole(values):
            return {"real": True}, values
        values = values.astype(np.int64)
    if column in after:
        before = columns[after[column]][:-1]
        return {"after": after[column]}, np.concatenate((values[:1], np.diff(values) - before))
    every = max(1, len(values) // _SAMPLED)
    for name, other in columns.items():
        if name == column:
            break
        if name in after:
            continue
        equal = np.count_nonzero(other[::every] == values[::every])
        if 2 * equal > len(values[::every]) and other.dtype == np.int64:
            return {"plus": name}, values - other
    return {}, values


def _all_whole(values: npt.NDArray[Any]) -> bool:
    """Whether reals are whole numbers that integers hold as well."""
    small = np.abs(values) < _EXACT  # False for what is no number
    return bool(small.all() and (values == np.trunc(values)).all())


def deflated(data: bytes, level: int = 6) -> str:
    """`data` as zlib stream in base64, which needs no escaping anywhere in HTML."""
    return base64.b64encode(zlib.compress(data, level)).decode("ascii")


def _planes(values: npt.NDArray[Any]) -> tuple[int, int, bytes]:
    """Minimum, bytes a value and the planes of a column."""
    if not len(values):
        return 0, 0, b""
    if values.dtype == np.float64:
        return 0, 8, values.astype("<f8").view(np.uint8).reshape(-1, 8).T.tobytes()
    base = int(values.min())
    above = values.astype("<i8") - base
    width = (int(above.max()).bit_length() + 7) // 8
    planes = above.view(np.uint8).reshape(-1, 8)[:, :width].T
    return base, width, planes.tobytes()
