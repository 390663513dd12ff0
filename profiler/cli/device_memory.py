"""Sizes of memory as they are given on the command line: `16GiB`, `cuda:0=80GB`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from profiler.errors import InputError

__all__ = ["device_sizes"]

_SIZE = re.compile(
    r"(?:(?P<device>[^=]+)=)?(?P<number>\d{1,9}(?:\.\d{1,9})?)\s*(?P<unit>[A-Za-z]+)"
)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_UNITS = {
    **{f"{prefix}IB": 1024**power for prefix, power in _POWERS.items() if prefix},
    **{f"{prefix}B": 1000**power for prefix, power in _POWERS.items()},
}
_LARGEST = 1 << 62


def device_sizes(texts: Iterable[str]) -> dict[str, int]:
    """Bytes by device, "" for devices that are not named; raises InputError for what is no size,
    or names a device twice."""
    found: dict[str, int] = {}
    for text in texts:
        match = _SIZE.fullmatch(text.strip())
        unit = _UNITS.get(match["unit"].upper()) if match else None
        size = int(float(match["number"]) * unit) if match and unit else 0
        if not match or not 0 < size < _LARGEST:
            raise InputError(
                f"--device-memory {text!r} is no size: "
                "write 16GiB, 80GB, or cuda:0=80GB for one device"
            )
        device = (match["device"] or "").strip()
        if device in found:
            whose = f"of {device} " if device else ""
            raise InputError(f"--device-memory {whose}is given twice: give it once")
        found[device] = size
    return found
