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
        about="Rows cover the whole run. A device has a row where its counters or weights are "
        "known. [memory.md](memory.md) says where the numbers come from.",
    ),
    Table(
        name="memory",
        row="the memory of one submodule on a device",
        section="memory",
        columns=MEMORY,
        make=lambda of: _memory(of).holders,
        title="What held memory at the peak",
        about="The table shows what held memory at the peak; a row without submodule stands for "
        "the rest. [memory.md](memory.md) has details.",
    ),
    Table(
        name="memory_timeline",
        row="one moment on a device, and its memory from then on",
        section="memory",
        columns=MEMORY_TIMELINE,
        make=lambda of: _memory(of).timeline,
        title="Memory over time",
        about="The table shows how memory develops, in at most 256 intervals per device.",
    ),
)
