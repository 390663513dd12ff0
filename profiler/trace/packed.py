"""A list that only grows, of which all but the latest entries are kept packed in memory.

entries = Packed[CallEntry]()
entries.append(entry)
list(entries)            # unpacked, one piece at a time
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

_PIECE = 256  # entries; one of some numbers and repeated texts takes 30 bytes then
_LEVEL = 1  # of compression: fast

_Entry = TypeVar("_Entry")


class Packed(Generic[_Entry]):
    """The entries in their order. If packing is interrupted, some may be there twice."""

    def __init__(self, piece: int = _PIECE) -> None:
        self._piece = piece
        self._packed: list[bytes] = []
        self._latest: list[_Entry] = []

    def append(self, entry: _Entry) -> None:
        """Add an entry, which must not change any more."""
        self._latest.append(entry)
        if len(self._latest) >= self._piece:
            self._packed.append(pack(self._latest))
            self._latest = []

    def __iter__(self) -> Iterator[_Entry]:
        """All entries, those that were packed as copies."""
        for piece in self._packed:
            yield from unpack(piece)
        yield from self._latest


def pack(entries: Any) -> bytes:
    """Objects of this process, as bytes for itself; those that they share stay shared."""
    return zlib.compress(pickle.dumps(entries, pickle.HIGHEST_PROTOCOL), _LEVEL)


def unpack(packed: bytes) -> Any:
    """What `pack` was given."""
    return pickle.loads(zlib.decompress(packed))  # noqa: S301 - it has never left this process
