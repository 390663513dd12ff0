"""Where RBLN's commands run: from the rows of a trace to device, track and category.

A trace has thread tracks named after the kind of command. What stands above them depends on the
version and is only partly documented: a process row a device, chiplet groups within a device, or
nothing at all. So every row above a track is read for what its name says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from profiler.events import Category, Track

__all__ = ["CATEGORIES_OF_TRACKS", "DEVICE_KIND", "Row", "track_category", "tracks_of"]

DEVICE_KIND = "rbln"

CATEGORIES_OF_TRACKS: Mapping[str, Category] = {
    "Host": "host",
    "Neural Engine Clusters": "compute",
    "General Compute Engine": "compute",
    "External HDMA": "dma",
    "Neural DMA": "copy",
    "Task DMA": "copy",
    "Device HDMA": "copy",
    "Device Sync": "sync",
}
_CATEGORIES = {name.casefold(): category for name, category in CATEGORIES_OF_TRACKS.items()}
_DEVICE = re.compile(r"\b(?:device|npu|rbln)[\s:#_-]*([0-9]{1,5})\b", re.IGNORECASE)
_NO_DEVICE = re.compile(r"\b(?:chiplet|ccl|host)\b", re.IGNORECASE)

_Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Row:
    """A track and what it hangs below: names from the outermost row to its own.

    `key` tells outermost rows of one name apart: the pid of a process, else which of the file's
    rows of that name it is.
    """

    key: int
    path: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path[-1]


def track_category(name: str) -> Category:
    """What a track of that name does; `other` for one that is not known."""
    return _CATEGORIES.get(name.strip().casefold(), "other")


def tracks_of(
    files: Sequence[Sequence[Row]], defaults: Sequence[str] = ()
) -> list[tuple[Track, ...]]:
    """The tracks of each file's rows.

    A device has the number that a row above its tracks names. Devices whose rows name none are
    numbered over all files, in order of their keys. A track below no device (a common host) is
    the file's first device's; in a file without any it is that in `defaults`, by file, or
    `rbln:0`. Groups within a device (`Chiplet 2`) become part of the name.
    """
    unnumbered = {key for rows in files for key in map(_unnumbered_device, rows) if key is not None}
    known = {n for rows in files for n in map(_device_number, rows) if n is not None}
    free = (number for number in range(len(unnumbered) + len(known)) if number not in known)
    numbers = dict(zip(sorted(unnumbered), free, strict=False))
    return [
        _tracks(rows, numbers, default)
        for rows, default in zip(files, defaults or [""] * len(files), strict=True)
    ]


def _tracks(rows: Sequence[Row], numbers: Mapping[_Key, int], default: str) -> tuple[Track, ...]:
    devices = [_number(row, numbers) for row in rows]
    first = min((number for number in devices if number is not None), default=None)
    common = default or f"{DEVICE_KIND}:0" if first is None else f"{DEVICE_KIND}:{first}"
    return tuple(
        Track(
            common if number is None else f"{DEVICE_KIND}:{number}",
            " / ".join((*_groups(row), row.name)),
            track_category(row.name),
        )
        for row, number in zip(rows, devices, strict=True)
    )


def _number(row: Row, numbers: Mapping[_Key, int]) -> int | None:
    key = _unnumbered_device(row)
    return _device_number(row) if key is None else numbers[key]


def _device_number(row: Row) -> int | None:
    for name in row.path[:-1]:
        match = _DEVICE.search(name)
        if match:
            return int(match[1])
    return None


def _unnumbered_device(row: Row) -> _Key | None:
    """What tells a device apart that no row numbers; None where no row stands for one."""
    if len(row.path) < 2 or _device_number(row) is not None or _NO_DEVICE.search(row.path[0]):
        return None
    return row.key, row.path[0]


def _groups(row: Row) -> list[str]:
    """The rows between the device and the track; of a row that names both, the group it names."""
    above = row.path[:-1]
    if _unnumbered_device(row) is not None:
        above = above[1:]
    groups = []
    for name in above:
        left = _DEVICE.sub("", name).strip(" \t-_/:,.()[]")
        if left != row.name and (left == name or _NO_DEVICE.search(left)):
            groups.append(left)
    return groups
