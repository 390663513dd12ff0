"""Packets inside packets: deflate or Zstandard over many packets at a time.

Deflate is what every Perfetto reads. Perfetto reads Zstandard from v58 on; older ones skip such
packets without a word.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, cast, get_args

from profiler.errors import InputError
from profiler.trace import schema
from profiler.trace.unpack import zstandard

__all__ = ["COMPRESSIONS", "Compression", "check_compression", "compressed"]

Compression = Literal["none", "deflate", "zstd"]
COMPRESSIONS: Final[tuple[str, ...]] = get_args(Compression)

# Higher levels of either take several times as long for a few per cent: `benchmarks/trace.py`.
_DEFLATE_LEVEL = 4
_ZSTD_LEVEL = 3
_PACKED_AT_A_TIME = 1 << 20  # bytes, at least; Zstandard finds the last steps of a run in so many
_FIELDS = {"deflate": "compressed_packets", "zstd": "zstd_compressed_packets"}


def compressed(chunks: Iterable[bytes], how: Compression) -> Iterator[bytes]:
    """`chunks` of whole packets, as they are or packed. Raises InputError for what cannot be."""
    check_compression(how)
    if how == "none":
        return iter(chunks)
    return _packed(chunks, _FIELDS[how], _deflate if how == "deflate" else _zstd())


def check_compression(how: str) -> Compression:
    """`how`, if packets can be packed so here; raises InputError where they cannot."""
    if how not in COMPRESSIONS:
        raise InputError(f"no compression is called {how!r}: use {', '.join(COMPRESSIONS)}")
    if how == "zstd":
        _zstd()
    return cast("Compression", how)


def _packed(
    chunks: Iterable[bytes], field: str, compress: Callable[[bytes], bytes]
) -> Iterator[bytes]:
    for chunk in _gathered(chunks):
        trace = schema.Trace()
        trace.packet.add(**{field: compress(chunk)})
        yield trace.SerializeToString()


def _gathered(chunks: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size >= _PACKED_AT_A_TIME:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _deflate(data: bytes) -> bytes:
    return zlib.compress(data, _DEFLATE_LEVEL)


def _zstd() -> Callable[[bytes], bytes]:
    module = zstandard()
    if module is None:
        raise InputError(
            "Zstandard needs Python 3.14 or `pip install zstandard`: install it, or use deflate"
        )
    return lambda data: bytes(module.compress(data, level=_ZSTD_LEVEL))
