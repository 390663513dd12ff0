"""Packed traces: `.gz` files, and packets inside packets.

A packed file of a few bytes can claim to hold any amount. All that a file unpacks to, in all its
layers together, is bounded before it is there: to 256 times the file's size and 4 MiB, far beyond
what traces compress to. Of what is damaged, everything ahead of the damage is kept.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

from profiler.errors import InputError, MissingPackageError

__all__ = ["Unpacker", "is_gzip", "may_unpack_to", "not_a_trace", "too_small", "zstandard"]

_FACTOR = 256
_LEAST = 1 << 22  # bytes that may always be unpacked
_PIECE = 1 << 20  # bytes unpacked at a time
_BEGUN = b"\x0a"  # a packet that begins and never ends: the core counts it as damaged


def is_gzip(data: memoryview) -> bool:
    """Whether `data` begins as a `.gz` file does."""
    return bytes(data[:2]) == b"\x1f\x8b"


def may_unpack_to(size: int) -> int:
    """How many bytes a file of `size` bytes may hold when it is unpacked."""
    return size * _FACTOR + _LEAST


def too_small(where: str) -> InputError:
    """The error for a file that holds more than that."""
    return InputError(
        f"{where} unpacks to more than {_FACTOR} times its size: it is no trace of a profiler"
    )


def not_a_trace(where: str) -> InputError:
    """The error for a file, `where`, in which there is no packet."""
    return InputError(
        f"{where} is not a Perfetto trace: give a .pb written by a tracer, or convert another "
        "profiler's trace (.json, .json.gz) with `profile-sd3 import`"
    )


def zstandard() -> Any | None:
    """Python's own module for Zstandard (3.14), else the package `zstandard`, else None."""
    for name in ("compression.zstd", "zstandard"):
        with suppress(ImportError):
            return import_module(name)
    return None


class Unpacker:
    """Unpacks one file of `size` bytes and the compressed packets in it, all within one bound.

    Raises InputError where the bound is passed, MissingPackageError where nothing here unpacks
    Zstandard.
    """

    def __init__(self, size: int, where: str) -> None:
        self._left = may_unpack_to(size)
        self._where = where

    def gunzip(self, data: memoryview) -> tuple[bytes, str]:
        """The content of a `.gz` file of one or more members, and why it ends early: "" where it
        does not. Raises InputError where not even its begin can be read."""
        failure = ""
        parts: list[bytes] = []
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            try:
                for part in self._bounded(file.read1):
                    parts.append(part)  # noqa: PERF402  # what came ahead of an error is kept
            except (OSError, EOFError, zlib.error) as error:
                failure = str(error) or type(error).__name__
        if failure and not parts:
            raise InputError(f"{self._where} is no whole .gz file ({failure}): copy it again")
        return b"".join(parts), failure

    def __call__(self, how: str, data: bytes) -> bytes | None:
        """The packets in `data`, which is packed by `how` ("deflate" or "zstd"); None where not
        even their begin can be read."""
        read, failure = self._zstd(data) if how == "zstd" else (_inflater(data), zlib.error)
        parts: list[bytes] = []
        try:
            for part in self._bounded(read):
                parts.append(part)  # noqa: PERF402  # as above
        except (failure, EOFError):
            if not parts:
                return None
            parts.append(_BEGUN)
        return b"".join(parts)

    def _bounded(self, read: Callable[[int], bytes]) -> Iterator[bytes]:
        while part := read(_PIECE):
            self._left -= len(part)
            if self._left < 0:
                raise too_small(self._where)
            yield part

    def _zstd(self, data: bytes) -> tuple[Callable[[int], bytes], type[Exception]]:
        """A reader of `data`, and the error that it raises for damage."""
        module = zstandard()
        if module is None:
            raise MissingPackageError(
                f"{self._where} is packed with Zstandard: use Python 3.14 or "
                "`pip install zstandard`"
            )
        if hasattr(module, "ZstdFile"):
            return module.ZstdFile(io.BytesIO(data)).read, module.ZstdError
        return _zstd_reader(module, data), module.ZstdError


def _inflater(data: bytes) -> Callable[[int], bytes]:
    """Reads zlib's format piece by piece; EOFError where it is cut."""
    stream = zlib.decompressobj()
    rest = data

    def read(size: int) -> bytes:
        nonlocal rest
        if stream.eof:
            return b""
        part = stream.decompress(rest, size)
        rest = stream.unconsumed_tail
        if not part and not stream.eof:
            raise EOFError
        return part

    return read


def _zstd_reader(module: Any, data: bytes) -> Callable[[int], bytes]:
    """The same for Zstandard's: a frame says how much it holds, or its last packet is cut."""
    stream = module.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    read_so_far = 0

    def read(size: int) -> bytes:
        nonlocal read_so_far
        part = bytes(stream.read(size))
        read_so_far += len(part)
        if not part and read_so_far < module.frame_content_size(data):
            raise EOFError
        return part

    return read
