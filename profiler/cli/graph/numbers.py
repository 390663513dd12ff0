"""Numbers in options of `profile-sd3 graph`: bytes, and sizes of symbolic dimensions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from profiler.errors import InputError

__all__ = ["parse_bytes", "parse_sizes"]

_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30} | {
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
}


def parse_bytes(text: str, option: str) -> int:
    """`8MiB`, `1.5 GB` or `4096` in bytes. Raises InputError for anything else, and for less than
    1."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([a-z]*)", text.strip().lower(), re.ASCII)
    unit = _UNITS.get(found[2]) if found else None
    number = int(float(found[1]) * unit) if found and unit else 0
    if number < 1:
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
