"""NVTX ranges of an export, and the domains that they are of.

A domain of a process has a number (`domainId`, 0 for the default one), which a row of its own names
(`eventType` 75). Those that no row names are called by the number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from profiler.importers.gpu.activity import NO_TIME, in_time
from profiler.importers.gpu.distinct import distinct
from profiler.importers.gpu.marks import Marks, MarkTexts
from profiler.importers.nsys.database import shared_texts
from profiler.importers.sqlite_file import SqliteFile
from profiler.trace.columns import Int32s, Int64s

__all__ = ["read_nvtx"]

_PUSH_POP, _START_END, _DOMAIN = 59, 60, 75
_LONGEST = 64  # characters of a domain's name
_ASKED = {
    "start": NO_TIME,
    "end": NO_TIME,
    "eventType": 0,
    "globalTid": 0,
    "textId": -1,
    "domainId": 0,
}


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
        self._parts: dict[str, list[Int64s]] = {
            name: [] for name in ("start", "end", "globalTid", "domainId")
        }
        self._domains: dict[tuple[int, int], str] = {}  # by process and number
        self._numbers: list[tuple[Int32s, Int32s]] = []
        self._unclosed = 0

    def add(self, found: dict[str, Int64s], texts: Sequence[str | None]) -> None:
        """Add the ranges among some rows."""
        for row in np.flatnonzero(found["eventType"] == _DOMAIN).tolist():
            self._name_domain(found, texts, row)
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
        start, end, thread, domain = (
            np.concatenate((nothing, *self._parts.pop(name))) for name in list(self._parts)
        )
        text, sizes = (
            np.concatenate((nothing, *(part[at] for part in self._numbers))).astype(np.int32)
            for at in (0, 1)
        )
        text, named = self._with_domains(text, thread >> 24, domain)
        return Marks.known(
            *(start, end, thread, text, sizes, self._texts, submodules, self._unclosed),
            named=named,
        )

    def _with_domains(
        self, text: Int32s, process: Int64s, domain: Int64s
    ) -> tuple[Int32s, list[tuple[int, str]]]:
        """The numbers of texts, those of ranges in named domains behind all others: what each of
        these is of."""
        rows = np.flatnonzero(domain)
        if not len(rows):
            return text, []
        pairs, place = distinct(text[rows].astype(np.int64), process[rows], domain[rows])
        named = [(code, self._domain_of(pid, number)) for code, pid, number in pairs]
        numbers = {one: at for at, one in enumerate(dict.fromkeys(named))}
        first = len(self._texts.names)
        code = np.array([first + numbers[one] for one in named], dtype=np.int32)
        text[rows] = code[place]
        return text, [*numbers]

    def _name_domain(self, found: dict[str, Int64s], texts: Sequence[str | None], row: int) -> None:
        number, text = int(found["domainId"][row]), texts[row]
        if text is None:
            shared = int(found["textId"][row])
            text = shared_texts(self._database, [shared]).get(shared)
        if text:
            key = int(found["globalTid"][row]) >> 24, number
            self._domains.setdefault(key, text[:_LONGEST])

    def _domain_of(self, process: int, number: int) -> str:
        return self._domains.get((process, number), f"domain {number}")

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
