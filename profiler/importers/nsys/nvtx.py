"""NVTX ranges of an export."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from profiler.importers.gpu.activity import NO_TIME, in_time
from profiler.importers.gpu.marks import Marks, MarkTexts
from profiler.importers.nsys.database import shared_texts
from profiler.importers.sqlite_file import SqliteFile
from profiler.trace.columns import Int32s, Int64s

__all__ = ["read_nvtx"]

_PUSH_POP, _START_END = 59, 60
_ASKED = {"start": NO_TIME, "end": NO_TIME, "eventType": 0, "globalTid": 0, "textId": -1}


def read_nvtx(database: SqliteFile, submodules: Collection[str] = ()) -> Marks:
    """The ranges of an export. `submodules` are the texts of those that are calls, instead of the
    names of components."""
    ranges = _Ranges(database)
    for found, texts in database.batches("NVTX_EVENTS", _ASKED, "text"):
        ranges.add(found, texts)
    return ranges.marks(submodules)


class _Ranges:
    """Ranges that are read some rows at a time; their texts stay as numbers."""

    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._texts = MarkTexts()
        self._shared: dict[int, tuple[int, int]] = {}  # by id: numbers of name and shapes
        self._parts: dict[str, list[Int64s]] = {"start": [], "end": [], "globalTid": []}
        self._numbers: list[tuple[Int32s, Int32s]] = []
        self._unclosed = 0

    def add(self, found: dict[str, Int64s], texts: Sequence[str | None]) -> None:
        """Add the ranges among some rows."""
        ranges = np.isin(found["eventType"], (_PUSH_POP, _START_END))
        ranges &= found["start"] != NO_TIME
        closed = ranges & in_time(found["start"], found["end"])
        self._unclosed += int((ranges & ~closed).sum())
        rows = np.flatnonzero(closed)
        for name, parts in self._parts.items():
            parts.append(found[name][rows])
        own = [texts[row] for row in rows.tolist()] if len(rows) < len(texts) else list(texts)
        self._numbers.append(self._numbered(own, found["textId"][rows]))

    def marks(self, submodules: Collection[str]) -> Marks:
        """All of them."""
        nothing: Int64s = np.zeros(0, dtype=np.int64)
        start, end, thread = (
            np.concatenate((nothing, *self._parts.pop(name))) for name in list(self._parts)
        )
        text, sizes = (
            np.concatenate((nothing, *(part[at] for part in self._numbers))).astype(np.int32)
            for at in (0, 1)
        )
        return Marks.known(start, end, thread, text, sizes, self._texts, submodules, self._unclosed)

    def _numbered(self, own: list[str | None], ids: Int64s) -> tuple[Int32s, Int32s]:
        """The numbers of the texts of some ranges, written in the table itself or in
        `StringIds`."""
        code, sizes = self._texts.of([text or "" for text in own])
        lacking = np.array([text is None for text in own], dtype=np.bool_)
        unique, place = np.unique(ids[lacking], return_inverse=True)
        if len(unique):
            pairs = np.array(self._of_ids(unique.tolist()), dtype=np.int32)
            code[lacking], sizes[lacking] = pairs[place.reshape(-1)].T
        return code, sizes

    def _of_ids(self, ids: list[int]) -> list[tuple[int, int]]:
        """The numbers of texts in `StringIds`, each of which is asked for once."""
        unknown = [one for one in ids if one not in self._shared]
        texts = shared_texts(self._database, unknown)
        code, sizes = self._texts.of([texts.get(one, "") for one in unknown])
        self._shared |= zip(unknown, zip(code.tolist(), sizes.tolist(), strict=True), strict=True)
        return [self._shared[one] for one in ids]
