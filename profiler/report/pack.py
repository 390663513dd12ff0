"""Integer columns as compact text for a page: byte planes, deflated, base64.

A column is stored as unsigned numbers above its minimum, in as many bytes as its range needs, all
lowest bytes first, then all second bytes, and so on: equal high bytes stand together and deflate
to nothing. `templates/data.js` reads it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Table", "deflated", "pack"]

Table = Mapping[str, npt.NDArray[np.int64]]


def pack(tables: Mapping[str, Table]) -> tuple[dict[str, Any], str]:
    """Describe and encode `tables` of equally long columns.

    The description maps table → {"rows": n, "columns": {name: {"at", "width", "base"}}}, `at`
    being the column's offset in the inflated bytes.
    """
    described: dict[str, Any] = {}
    chunks: list[bytes] = []
    at = 0
    for name, columns in tables.items():
        entries = {}
        rows = len(next(iter(columns.values())))
        for column, values in columns.items():
            base, width, data = _planes(values)
            entries[column] = {"at": at, "width": width, "base": base}
            chunks.append(data)
            at += len(data)
        described[name] = {"rows": rows, "columns": entries}
    return described, deflated(b"".join(chunks))


def deflated(data: bytes, level: int = 6) -> str:
    """`data` as zlib stream in base64, which needs no escaping anywhere in HTML."""
    return base64.b64encode(zlib.compress(data, level)).decode("ascii")


def _planes(values: npt.NDArray[np.int64]) -> tuple[int, int, bytes]:
    """Minimum, bytes a value and the planes of a column."""
    if not len(values):
        return 0, 0, b""
    base = int(values.min())
    above = values.astype("<i8") - base
    width = (int(above.max()).bit_length() + 7) // 8
    planes = above.view(np.uint8).reshape(-1, 8)[:, :width].T
    return base, width, planes.tobytes()
