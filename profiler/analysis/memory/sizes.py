"""Sizes of memory as people give them: `16GiB`, `80GB`, bytes; and whether a run has the device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from numbers import Integral

from profiler.errors import InputError

__all__ = ["check_devices", "sizes_by_device", "text_size"]

_SIZE = re.compile(r"(?P<number>\d{1,9}(?:\.\d{1,9})?)\s*(?P<unit>[A-Za-z]+)", re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_UNITS = {
    **{f"{prefix}IB": 1024**power for prefix, power in _POWERS.items() if prefix},
    **{f"{prefix}B": 1000**power for prefix, power in _POWERS.items()},
}
_LARGEST = 1 << 62


def text_size(text: str) -> int | None:
    """Bytes of `"16GiB"` or `"80GB"`; None for what is no size above 0."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match["unit"].upper()) if match else None
    size = int(float(match["number"]) * unit) if match and unit else 0
    return size if 0 < size < _LARGEST else None


def sizes_by_device(given: object) -> dict[str, int]:
    """Bytes by device, "" for all others, of a size or a mapping of devices to sizes. A size is a
    number of bytes or a text. Raises InputError for what is none."""
    pairs: Iterable[tuple[object, object]]
    pairs = given.items() if isinstance(given, Mapping) else [("", given)]
    return {_device(device): _bytes(size) for device, size in pairs}


def _device(name: object) -> str:
    if not isinstance(name, str):
        raise InputError(f"device_memory names a device {name!r}: give its name, as in 'cuda:0'")
    return name


def _bytes(given: object) -> int:
    size = text_size(given) if isinstance(given, str) else given
    whole = isinstance(size, Integral) and not isinstance(size, bool)
    number = int(size) if whole else 0  # type: ignore[call-overload]
    if not 0 < number < _LARGEST:
        raise InputError(
            f"device_memory {given!r} is no size: give bytes above 0, or a text such as '16GiB' or "
            "'80GB', for all devices or by device"
        )
    return number


def check_devices(sizes: Mapping[str, int], known: Iterable[str]) -> None:
    """Raises InputError where `sizes` names a device that is none of `known`."""
    names = sorted(set(known))
    for device in sizes:
        if device and device not in names:
            raise InputError(
                f"memory is given for {device}, but the run's devices are "
                f"{', '.join(names) or 'not known'}: name one of them"
            )
