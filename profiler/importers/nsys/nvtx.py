"""NVTX ranges of an export."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from profiler.importers.gpu.activity import NO_TIME, in_time
from profiler.importers.gpu.marks import Marks
from profiler.importers.nsys.database import shared_texts
from profiler.importers.sqlite_file import SqliteFile
from profiler.trace.columns import Int64s

__all__ = ["read_nvtx"]

_PUSH_POP, _START_END = 59, 60


def read_nvtx(database: SqliteFile, submodules: Collection[str] = ()) -> Marks:
    """The ranges of an export. `submodules` are the texts of those that are calls, instead of the
    names of components."""
    asked = {"start": NO_TIME, "end": NO_TIME, "eventType": 0, "globalTid": 0, "textId": -1}
    found = database.numbers("NVTX_EVENTS", asked)
    ranges = np.isin(found["eventType"], (_PUSH_POP, _START_END)) & (found["start"] != NO_TIME)
    closed = ranges & in_time(found["start"], found["end"])
    rows = np.flatnonzero(closed)
    return Marks.of(
        start=found["start"][rows],
        end=found["end"][rows],
        thread=found["globalTid"][rows],
        texts=_texts(database, found["textId"], rows),
        submodules=submodules,
        unclosed=int((ranges & ~closed).sum()),
    )


def _texts(database: SqliteFile, ids: Int64s, rows: Int64s) -> list[str]:
    """The texts of some ranges, written in the table itself or in `StringIds`."""
    kept = set(rows.tolist())
    own = (
        text if isinstance(text, str) else None
        for row, (text,) in enumerate(database.rows("NVTX_EVENTS", ("text",)))
        if row in kept
    )
    shared = shared_texts(database, ids[rows].tolist())
    return [
        text if text is not None else shared.get(one, "")
        for text, one in zip(own, ids[rows].tolist(), strict=True)
    ]
