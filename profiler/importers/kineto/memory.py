"""Memory that torch's allocators held, from the `[memory]` instants of `profile_memory=True`.

Each tells the bytes that were taken or given back (`Bytes`), and from torch 1.12 on what the
allocator of the device held after it (`Total Allocated`) and had reserved (`Total Reserved`). Where
it does not, and on the host, whose allocator counts while it is recorded alone, the sum of the
changes is all that is known: what was held before is not in it, and the counter's name says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from msgspec import Struct

from profiler.events import ROOT_DEVICE
from profiler.kineto.events import Args, Scalar
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Counter, Int64s

__all__ = ["MemoryLevels", "memory_levels"]

_HOST = 0  # c10::DeviceType::CPU
_ALLOCATED, _RESERVED = "torch allocated", "torch reserved"
_RELATIVE = "torch allocated since the pipeline began"
_LARGEST = 1 << 42  # bytes; a million of them still add up in an int64


class MemoryLevels(Struct, frozen=True, eq=False):
    """What an allocator held: `values[i]` bytes from `times_ns[i]` on, both int64 [n], n > 0."""

    device: str
    name: str
    times_ns: Int64s
    values: Int64s

    def between(self, start_ns: int, end_ns: int) -> Counter | None:
        """The counter of one call: the level at its begin, then every change in it; None where
        nothing is known by then."""
        first, last = np.searchsorted(self.times_ns, (start_ns, end_ns)).tolist()
        times, values = self.times_ns[first:last], self.values[first:last]
        if first:
            times = np.append(start_ns, times)
            values = np.append(self.values[first - 1], values)
        return Counter(self.device, self.name, "bytes", times, values) if len(times) else None

    def outside(self, ranges: Iterable[tuple[int, int]]) -> Counter | None:
        """The changes in none of some ranges; None where there are none."""
        kept = np.ones(len(self.times_ns), dtype=np.bool_)
        for start_ns, end_ns in ranges:
            first, last = np.searchsorted(self.times_ns, (start_ns, end_ns)).tolist()
            kept[first:last] = False
        if not kept.any():
            return None
        return Counter(self.device, self.name, "bytes", self.times_ns[kept], self.values[kept])


def memory_levels(
    trace: KinetoTrace, kind: str, worked: Collection[str], prefix: str = ""
) -> tuple[MemoryLevels, ...]:
    """What the allocators of a trace held, by device and name; `kind` is that of its devices,
    `worked` those that did any work, `prefix` begins the names of all.
    Instants without a size or a device are left out.

    Allocators count the devices that the process sees, kernels on ROCm all of the machine: where
    one device worked and one allocated, they are the same.
    """
    by_device: dict[str, list[tuple[int, Args]]] = {}
    for event, time_ns in zip(trace.memory, trace.memory_ns.tolist(), strict=True):
        args = event.args
        device = _device(args, kind, prefix) if args is not None else None
        if args is not None and device is not None and _bytes(args.changed) is not None:
            by_device.setdefault(device, []).append((time_ns, args))
    root = f"{prefix}{ROOT_DEVICE}"
    held = by_device.keys() - {root}
    working = {*worked} - {root}
    if len(held) == len(working) == 1:
        by_device[working.pop()] = by_device.pop(held.pop())
    found: list[MemoryLevels] = []
    for device, samples in sorted(by_device.items()):
        times = np.array([time for time, _ in samples], dtype=np.int64)
        order = np.argsort(times, kind="stable")
        told = [samples[i][1] for i in order.tolist()]
        found += _levels(device, device == root, times[order], told)
    return tuple(found)


def _levels(device: str, on_host: bool, times: Int64s, args: Sequence[Args]) -> list[MemoryLevels]:
    allocated = [_bytes(one.allocated) for one in args]
    if on_host or not any(allocated) or None in allocated:
        changes = np.array([_bytes(one.changed) for one in args], dtype=np.int64)
        return [MemoryLevels(device, _RELATIVE, times, np.cumsum(changes))]
    found = [MemoryLevels(device, _ALLOCATED, times, np.array(allocated, dtype=np.int64))]
    reserved = [_bytes(one.reserved) for one in args]
    if any(reserved) and None not in reserved:
        found.append(MemoryLevels(device, _RESERVED, times, np.array(reserved, dtype=np.int64)))
    return found


def _device(args: Args, kind: str, prefix: str) -> str | None:
    """The device whose memory it is; None where the instant does not tell."""
    of_type, number = _bytes(args.device_type), _bytes(args.device_id)
    if of_type == _HOST:
        return f"{prefix}{ROOT_DEVICE}"
    told = of_type is not None and number is not None and number >= 0
    return f"{prefix}{kind}:{number}" if told else None


def _bytes(given: Scalar) -> int | None:
    """A whole number of a size that memory can have; None for what is none."""
    try:
        size = int(given) if given is not None else None
    except (ValueError, OverflowError):
        return None
    return size if size is not None and abs(size) < _LARGEST else None
