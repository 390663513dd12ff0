"""Memory of devices as people give it: `16GiB`, bytes, by device; and whether a run has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral

from profiler.errors import InputError
from profiler.options import parse_size

__all__ = ["check_devices", "sizes_by_device"]

_LARGEST = 1 << 62


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
    size = parse_size(given) if isinstance(given, str) else given
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
