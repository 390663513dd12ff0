"""Sizes of memory as they are given on the command line: `16GiB`, `17179869184`, `cuda:0=80GB`."""

from __future__ import annotations

from collections.abc import Iterable

from profiler.errors import InputError
from profiler.options import parse_size

__all__ = ["device_sizes"]


def device_sizes(texts: Iterable[str]) -> dict[str, int]:
    """Bytes by device, "" for devices that are not named; raises InputError for what is no size,
    or names a device twice."""
    found: dict[str, int] = {}
    for text in texts:
        device, named, number = text.rpartition("=")
        device = device.strip()
        size = parse_size(number)
        if size is None or (named and not device):
            raise InputError(
                f"--device-memory {text!r} is no size: "
                "write 16GiB, 80GB, a number of bytes, or cuda:0=80GB for one device"
            )
        if device in found:
            whose = f"of {device} " if device else ""
            raise InputError(f"--device-memory {whose}is given twice: give it once")
        found[device] = size
    return found
