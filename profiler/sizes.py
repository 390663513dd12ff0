"""Sizes of memory as people write them: `17179869184`, `16GiB`, `16G`, `80 GB`."""

from __future__ import annotations

import re

__all__ = ["parse_size"]

_SIZE = re.compile(
    r"(?P<number>\d{1,18}(?:\.\d{1,9})?)\s*(?:(?P<prefix>[KMGTP]?)(?P<binary>I?)(?P<byte>B?))",
    re.ASCII | re.IGNORECASE,
)
_PREFIXES = "KMGTP"
_LARGEST = 1 << 62


def parse_size(text: str) -> int | None:
    """Bytes; None for what is no size, below 1 byte or beyond all memory.

    A plain number is bytes. `KiB`, `Ki` and `K` are 1024 bytes, as memory is sold and as other
    tools read `16G`; `KB` is 1000. So for M, G, T and P, in either case.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match["binary"] and not match["prefix"]):
        return None
    power = _PREFIXES.index(match["prefix"].upper()) + 1 if match["prefix"] else 0
    decimal = bool(match["byte"]) and not match["binary"]
    unit = (1000 if decimal else 1024) ** power
    whole, _, fraction = match["number"].partition(".")
    size = int(whole) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
    return size if 0 < size < _LARGEST else None
