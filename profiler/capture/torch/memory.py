"""Memory that torch's allocators hold, over time, from the allocations that a session recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from profiler.capture.torch.events import Activity, TorchEvents
from profiler.trace.columns import Counter, Int64s

__all__ = ["DeviceMemory", "device_memory"]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceMemory:
    """What a device's allocator holds: `values[i]` bytes from `times_ns[i]` on, `before` bytes
    until then. Both int64 [n]."""

    device: str
    before: int
    times_ns: Int64s
    values: Int64s

    @property
    def after(self) -> int:
        """Bytes after the last change."""
        return int(self.values[-1]) if len(self.values) else self.before

    def between(self, start_ns: int, end_ns: int) -> Counter:
        """The counter of one invocation: the level at its start, then every change in it.

        On the CPU torch tells changes alone: the counter starts at 0 with the pipeline call.
        """
        first, last = np.searchsorted(self.times_ns, (start_ns, end_ns)).tolist()
        level = int(self.values[first - 1]) if first else self.before
        name = "torch allocated"
        if self.device.startswith("cpu"):
            name += " since the pipeline began"
        times = np.concatenate(([start_ns], self.times_ns[first:last])).astype(np.int64)
        values = np.concatenate(([level], self.values[first:last])).astype(np.int64)
        return Counter(self.device, name, "bytes", times, values)


def device_memory(events: TorchEvents, before: Mapping[str, int]) -> list[DeviceMemory]:
    """By device, from the levels `before` the session; devices without a change are left out."""
    rows = events.rows_of(Activity.MEMORY)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    by_device: dict[str, list[int]] = {}
    for row in rows.tolist():
        by_device.setdefault(events.device[row], []).append(row)
    found = []
    for device, changes in sorted(by_device.items()):
        level = before.get(device, 0)
        sizes = np.array([events.nbytes[row] for row in changes], dtype=np.int64)
        times = events.start_ns[np.array(changes, dtype=np.int64)]
        found.append(DeviceMemory(device, level, times, level + np.cumsum(sizes)))
    return found
