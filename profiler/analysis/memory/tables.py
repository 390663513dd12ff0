"""The tables of memory: by device, by submodule, over time."""

from __future__ import annotations

from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.memory.columns import MEMORY, MEMORY_DEVICES, MEMORY_TIMELINE
from profiler.analysis.memory.usage import Memory, find_memory
from profiler.analysis.table import Table

__all__ = ["TABLES"]


@shared
def _memory(of: Inputs) -> Memory:
    return find_memory(of.run, of.device_memory)


TABLES = (
    Table(
        name="memory_devices",
        row="the memory of one device",
        section="memory",
        columns=MEMORY_DEVICES,
        make=lambda of: _memory(of).devices,
        title="Peak and head-room, whole run",
        about="It is there for devices of which counters or weights are known, and of the whole "
        "run. [memory.md](memory.md) says how the numbers come about.",
    ),
    Table(
        name="memory",
        row="the memory of one submodule on a device",
        section="memory",
        columns=MEMORY,
        make=lambda of: _memory(of).holders,
        title="What held memory at the peak",
        about="What held memory at the peak, and a row without submodule for the rest. "
        "[memory.md](memory.md) says more.",
    ),
    Table(
        name="memory_timeline",
        row="one moment on a device, and its memory from then on",
        section="memory",
        columns=MEMORY_TIMELINE,
        make=lambda of: _memory(of).timeline,
        title="Memory over time",
        about="The course of it in at most 256 intervals a device.",
    ),
)
