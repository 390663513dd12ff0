"""Packed traces: `.gz` files, and packets inside packets.

A packed file of a few bytes can claim to hold any amount. What is unpacked is bounded before it
is: to `_FACTOR` times what was packed, far beyond what traces compress to.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from typing import Any

from profiler.errors import InputError

__all__ = ["Unpacker", "gunzip", "is_gzip"]

_FACTOR = 256
_LEAST = 1 << 24  # bytes that may always be unpacked
_GZIP = 31  # zlib's window size, with a gzip header


def is_gzip(data: memoryview) -> bool:
    """Whether `data` begins as a `.gz` file does."""
    return bytes(data[:2]) == b"\x1f\x8b"


def gunzip(data: memoryview, where: str) -> bytes:
    """The content of a `.gz` file; where it is cut, what comes before the cut."""
    left = len(data) * _FACTOR + _LEAST
    parts: list[bytes] = []
    while data:
        stream = zlib.decompressobj(_GZIP)
        try:
            parts.append(stream.decompress(data, left + 1))
        except zlib.error as error:
            if parts:
                break
            raise InputError(f"{where} is no whole .gz file ({error}): copy it again") from error
        left -= len(parts[-1])
        _check(left, where)
        data = memoryview(stream.unused_data)
    return b"".join(parts)


class Unpacker:
    """Unpacks the compressed packets of one trace, all of them within one bound."""

    def __init__(self, size: int, where: str) -> None:
        self._left = size * _FACTOR + _LEAST
        self._where = where

    def __call__(self, how: str, data: bytes) -> bytes | None:
        """The packets in `data`; None where it is damaged."""
        unpack = self._zstd if how == "zstd" else self._deflate
        result = unpack(data)
        if result is not None:
            self._left -= len(result)
            _check(self._left, self._where)
        return result

    def _deflate(self, data: bytes) -> bytes | None:
        try:
            return zlib.decompressobj().decompress(data, self._left + 1)
        except zlib.error:
            return None

    def _zstd(self, data: bytes) -> bytes | None:
        module = self._zstd_module()
        try:
            if hasattr(module, "ZstdFile"):  # Python's own
                return bytes(module.ZstdDecompressor().decompress(data, self._left + 1))
            reader = module.ZstdDecompressor().stream_reader(data)
            return bytes(reader.read(self._left + 1))
        except (module.ZstdError, EOFError):
            return None

    def _zstd_module(self) -> Any:
        """Python's own Zstandard (3.14), else that of the package `zstandard`."""
        for name in ("compression.zstd", "zstandard"):
            try:
                return import_module(name)
            except ImportError:
                continue
        raise InputError(
            f"{self._where} is packed with Zstandard: use Python 3.14 or `pip install zstandard`"
        )


def _check(left: int, where: str) -> None:
    if left < 0:
        raise InputError(
            f"{where} unpacks to more than {_FACTOR} times its size: it is no trace of a tracer"
        )
