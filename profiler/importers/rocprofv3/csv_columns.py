"""Columns of a CSV as numbers and texts, by their names in the header.

Fields may be quoted or not, and hold commas, quotes and newlines where they are. Rows never become
objects: separators outside quotes are found in blocks of bytes, numbers are read digit by digit for
all rows at once, and of a column of texts each text is made once.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from profiler.trace.columns import Int64s

__all__ = ["CsvColumns", "header_of", "read_csv"]

_Bytes = npt.NDArray[np.uint8]
_Words = npt.NDArray[np.uint64]
_QUOTE, _COMMA, _NEWLINE, _RETURN, _MINUS, _ZERO = (ord(one) for one in '",\n\r-0')
_BLOCK = 8 << 20  # bytes
_DIGITS = 18  # of a number: all of them fit 63 bits
_PADDING = b"\n" * 24  # before a block: words of eight bytes are read up to the end of a number
_NOT_A_NUMBER = -(1 << 63)
_U = np.uint64
_ZEROS = _U(0x3030303030303030)


@dataclass(slots=True)
class CsvColumns:
    """n whole rows; `damaged` others have too few or too many fields, or do not end."""

    header: tuple[str, ...]
    count: int = 0
    damaged: int = 0
    _numbers: dict[str, list[Int64s]] = field(default_factory=dict)
    _codes: dict[str, dict[bytes, int]] = field(default_factory=dict)
    _places: dict[str, list[Int64s]] = field(default_factory=dict)

    def numbers(self, name: str, missing: int) -> Int64s:
        """A column of whole numbers, int64 [n]; `missing` where there is none."""
        parts = self._numbers.get(name)
        if parts is None:
            return np.full(self.count, missing, dtype=np.int64)
        found = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        return np.where(found == _NOT_A_NUMBER, missing, found)

    def texts(self, name: str) -> tuple[list[str], Int64s]:
        """A column of texts: those that differ, and which of them each row has; "" for a column
        that is not there."""
        if name not in self._codes:
            return [""], np.zeros(self.count, dtype=np.int64)
        parts = self._places[name]
        place = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        return [_text(one) for one in self._codes[name]], place

    def add(self, block: bytes, buffer: _Bytes, starts: Int64s, ends: Int64s) -> None:
        """Rows of a block, by begin and end of each field, int64 [rows, fields]."""
        self.count += len(ends)
        for at, name in enumerate(self.header):
            if self.header.index(name) < at:  # the first of those that share a name
                continue
            if name in self._numbers:
                found = _whole_numbers(block, buffer, starts[:, at], ends[:, at])
                self._numbers[name].append(found)
            elif name in self._codes:
                place = _codes(self._codes[name], block, starts[:, at], ends[:, at])
                self._places[name].append(place)


def header_of(head: bytes) -> tuple[str, ...]:
    """The names in the first line, () where it is no line of names."""
    end = head.find(b"\n", 0, _BLOCK)
    line = head[: end if end >= 0 else _BLOCK].decode("utf-8-sig", "replace").strip()
    try:
        return tuple(next(csv.reader([line]), ()))
    except csv.Error:
        return ()


def read_csv(data: bytes, numbers: Sequence[str], texts: Sequence[str]) -> CsvColumns:
    """Some columns of a CSV; those that the header lacks are left out."""
    header = header_of(data)
    found = CsvColumns(header)
    found._numbers.update({name: [] for name in numbers if name in header})  # noqa: SLF001
    for name in texts:
        if name in header:
            found._codes[name], found._places[name] = {}, []  # noqa: SLF001
    for block in _blocks(data, data.find(b"\n") + 1, found):
        _add_block(block, found)
    return found


def _blocks(data: bytes, begin: int, found: CsvColumns) -> Iterator[bytes]:
    """Pieces that end where a row does; what remains behind the last row is damaged."""
    if begin == 0:
        return
    size = _BLOCK
    while begin < len(data):
        block = data[begin : begin + size]
        last = begin + size >= len(data)
        if last and not block.endswith(b"\n"):
            block += b"\n"
        end = _last_row(block)
        if end:
            yield block[:end]
        if last:
            found.damaged += 1 + block[end:-1].count(b"\n") if end < len(block) else 0
            return
        begin += end
        size = _BLOCK if end else size * 2


def _last_row(block: bytes) -> int:
    """Where the last row of a block ends that begins with a row; 0 for none."""
    end = len(block)
    while (end := block.rfind(b"\n", 0, end)) >= 0:
        if block.count(b'"', 0, end) % 2 == 0:
            return end + 1
    return 0


def _add_block(block: bytes, found: CsvColumns) -> None:
    """Find the fields of a block of whole rows; the block is padded for `_whole_numbers`."""
    block = _PADDING + block
    buffer = np.frombuffer(block, dtype=np.uint8)
    starts, ends = _all_quoted(buffer, len(found.header)) or _fields(buffer, found)
    found.add(block, buffer, starts, ends)


def _all_quoted(buffer: _Bytes, width: int) -> tuple[Int64s, Int64s] | None:
    """Begin and end of each field where all of them are quoted and none holds a quote, as recent
    versions write them; None for other blocks."""
    quotes = np.flatnonzero(buffer == _QUOTE)
    if len(quotes) % (2 * width):
        return None
    opening, closing = quotes[::2].reshape(-1, width), quotes[1::2].reshape(-1, width)
    begins = len(quotes) > 0 and quotes[0] == len(_PADDING)
    if not begins or not (quotes[2::2] == quotes[1:-1:2] + 2).all():
        return None
    commas, newlines = buffer[closing[:, :-1] + 1], buffer[closing[:, -1] + 1]
    if not (commas == _COMMA).all() or not (newlines == _NEWLINE).all():
        return None
    return opening + 1, closing


def _fields(buffer: _Bytes, found: CsvColumns) -> tuple[Int64s, Int64s]:
    """Begin and end of each field of the rows that have as many as the header."""
    at = np.flatnonzero((buffer == _QUOTE) | (buffer == _COMMA) | (buffer == _NEWLINE))
    what = buffer[at]
    quoted = np.cumsum(what == _QUOTE) & 1
    separators = at[(what != _QUOTE) & (quoted == 0)]
    starts = np.concatenate((np.array([len(_PADDING)]), separators[:-1] + 1))
    last = np.flatnonzero(buffer[separators] == _NEWLINE)
    fields = np.diff(last, prepend=-1)
    width = len(found.header)
    if not (fields == width).all():
        blank = (fields == 1) & (separators[last] - starts[last] <= 1)
        found.damaged += int(((fields != width) & ~blank).sum())
        kept = np.repeat(fields == width, fields)
        separators, starts = separators[: len(kept)][kept], starts[: len(kept)][kept]
    ends = separators - ((buffer[separators - 1] == _RETURN) & (separators > starts))
    within = (ends - starts >= 2) & (buffer[starts] == _QUOTE)
    starts, ends = starts + within, ends - within
    return starts.reshape(-1, width), ends.reshape(-1, width)


def _whole_numbers(block: bytes, buffer: _Bytes, starts: Int64s, ends: Int64s) -> Int64s:
    """The numbers in some fields; `_NOT_A_NUMBER` for what is none. Digits are read eight at once,
    from words that begin at every byte."""
    if len(starts) > 1 and _all_equal(block, starts, ends):
        return np.repeat(_whole_numbers(block, buffer, starts[:1], ends[:1]), len(starts))
    words = _words(block)
    negative = (ends > starts) & (buffer[starts] == _MINUS)
    width = ends - starts - negative
    wrong = (width <= 0) | (width > _DIGITS)
    found = np.zeros(len(starts), dtype=np.uint64)
    for place in range(-(-min(int(width.max(initial=0)), _DIGITS) // 8)):
        value, bad = _eight(words[ends - 8 * (place + 1)], np.clip(width - 8 * place, 0, 8))
        wrong |= bad
        found += value * np.uint64(10 ** (8 * place))
    value = found.astype(np.int64)
    return np.where(wrong, _NOT_A_NUMBER, np.where(negative, -value, value))


def _eight(word: _Words, digits: Int64s) -> tuple[_Words, npt.NDArray[np.bool_]]:
    """The numbers that the last `digits` characters of words make, and which of them make none."""
    shift = (8 * (8 - digits)).astype(np.uint64)
    none = digits == 0
    zeros = np.where(none, _U(0), (_ZEROS >> shift) << shift)
    word = np.where(none, _U(0), (word >> shift) << shift) - zeros
    bad = ((word + _U(0x7676767676767676)) | word) & _U(0x8080808080808080) != 0
    word = (word * _U(10) + (word >> _U(8))) & _U(0x00FF00FF00FF00FF)
    word = (word * _U(100) + (word >> _U(16))) & _U(0x0000FFFF0000FFFF)
    word = (word * _U(10_000) + (word >> _U(32))) & _U(0xFFFFFFFF)
    return word, bad


def _codes(codes: dict[bytes, int], block: bytes, starts: Int64s, ends: Int64s) -> Int64s:
    """The code of the text in each field; new texts get codes. A column often has one text."""
    if len(starts) and _all_equal(block, starts, ends):
        one = codes.setdefault(block[starts[0] : ends[0]], len(codes))
        return np.full(len(starts), one, dtype=np.int64)
    texts = [block[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    for text in dict.fromkeys(texts):
        codes.setdefault(text, len(codes))
    return np.fromiter(map(codes.__getitem__, texts), dtype=np.int64, count=len(texts))


def _all_equal(block: bytes, starts: Int64s, ends: Int64s) -> bool:
    """Whether all fields have the same bytes: compared by words of eight, the last of which ends
    with the field."""
    width = int(ends[0] - starts[0])
    if not (ends - starts == width).all():
        return False
    words = _words(block)
    last = words[ends - 8] >> _U(8 * (8 - min(width, 8))) if width else ends
    return bool(width == 0 or (last == last[0]).all()) and all(
        (words[starts + at] == words[starts[0] + at]).all() for at in range(0, width - 8, 8)
    )


def _words(block: bytes) -> _Words:
    """Words of eight bytes that begin at every byte."""
    return np.ndarray((len(block) - 7,), dtype="<u8", buffer=block, strides=(1,))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace('""', '"')
