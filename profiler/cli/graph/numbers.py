"""Numbers in options of `profile-sd3 graph`: bytes, and sizes of symbolic dimensions."""

from __future__ import annotations

from collections.abc import Iterable

from profiler.errors import InputError
from profiler.options import parse_size

__all__ = ["parse_bytes", "parse_sizes"]


def parse_bytes(text: str, option: str) -> int:
    """`8MiB`, `1.5 GB` or `4096` in bytes. Raises InputError for anything else, and for less than
    1."""
    number = parse_size(text)
    if number is None:
        raise InputError(f"{option} {text} is no number of bytes: give for instance {option} 8MiB")
    return number


def parse_sizes(given: Iterable[str]) -> dict[str, int]:
    """`NAME=N` as numbers by name. Raises InputError for anything else."""
    sizes = {}
    for text in given:
        name, _, number = text.partition("=")
        if not name or not (number.isascii() and number.isdecimal()) or not 0 < len(number) < 10:
            raise InputError(f"--size {text} is no NAME=N: give for instance --size height=64")
        sizes[name] = int(number)
    if 0 in sizes.values():
        raise InputError("--size takes sizes of 1 or more: give for instance --size height=64")
    return sizes
