"""Whose a command is: a device's, or the host's that drives devices.

Commands of category `host` are the host's: work of the pipeline itself, and what launches work on
devices. In a run with accelerators its CPU is only their host, and what waits there (`sync`:
`cudaDeviceSynchronize`) is the host's as well. Where the CPU is the device itself (ONNX Runtime), a
wait is one of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.run.intervals import text_codes
from profiler.run.run import Run
from profiler.trace.events import device_kind

__all__ = [
    "has_accelerators",
    "host_categories",
    "host_unseen",
    "host_waits",
    "is_accelerator",
    "thread_of",
]

_OF_THREAD = re.compile(r" (sync|launches)$")  # tracks of one thread beside each other


def is_accelerator(device: str | None) -> bool:
    """Whether the host only drives the device: everything but CPUs, which are hosts themselves."""
    return bool(device) and device_kind(str(device)) != "cpu"


def has_accelerators(devices: Iterable[str | None]) -> bool:
    """Whether one of the devices of a run is an accelerator."""
    return any(map(is_accelerator, devices))


def host_categories(device: str | None, *, accelerated: bool) -> tuple[str, ...]:
    """The categories of commands on that device that are the host's; `accelerated` says whether the
    run has accelerators."""
    drives = accelerated and bool(device) and not is_accelerator(device)
    return ("host", "sync") if drives else ("host",)


def host_waits(commands: pl.DataFrame, *, accelerated: bool) -> npt.NDArray[np.bool_] | None:
    """Which `commands` are the host's without being of category `host`, bool [n]; None where none
    is."""
    if not accelerated:
        return None
    waits = (commands["category"] == "sync").to_numpy()
    if not waits.any():
        return None
    device, names = text_codes(commands["device"])
    driving = ["sync" in host_categories(name, accelerated=True) for name in names]
    found: npt.NDArray[np.bool_] = waits & np.array([*driving, False])[device]
    return found if found.any() else None


def host_unseen(run: Run) -> bool:
    """Whether a foreign trace has neither launches nor anything else of the host: what a device
    waited for in a call is then not known."""
    told = run.info.capabilities
    if not told or "launches" in told:
        return False
    return not (run.commands["category"] == "host").any()


def thread_of(track: str) -> str:
    """The thread whose commands are on a track of the host."""
    return _OF_THREAD.sub("", track)
