"""What a manifest says of clocks: whose time the timestamps are, and how others were laid onto it.

`docs/file-format.md` describes the keys.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, field

from profiler.trace.manifest_fields import LARGEST, Fields

__all__ = ["ClockName", "Clocks", "DeviceClock", "PlacedBy"]

_Count = Annotated[int, Meta(ge=0, le=LARGEST)]  # nanoseconds
_Time = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class ClockName(StrEnum):
    """Whose time the timestamps are."""

    REALTIME = "CLOCK_REALTIME"
    BOOTTIME = "CLOCK_BOOTTIME"  # since the machine's start
    LOCAL_TIME = "local_time"  # CLOCK_REALTIME, but for a zone that nobody told
    DEVICE = "device"  # that of `Clocks.reference`


class PlacedBy(StrEnum):
    """How the clock of a device was laid onto the run's."""

    OWN_CLOCK = "own_clock"
    SHARED_CALL = "shared_call"
    CALL_ORDER = "call_order"
    RUN_START = "run_start"
    END_TO_END = "end_to_end"


class DeviceClock(Fields, frozen=True, kw_only=True):
    """`offset_ns` was added to the device's times, known to within `uncertainty_ns`."""

    placed_by: PlacedBy
    offset_ns: _Time = 0
    uncertainty_ns: _Count | None = None


class Clocks(Fields, frozen=True, kw_only=True):
    """`monotonic_offset_ns` is to be added to CLOCK_MONOTONIC, `base_ns` to the imported file's
    times, to get the run's clock, which is off by `within_ns` at most where that is told."""

    clock: ClockName | None = None
    reference: str = ""
    monotonic_offset_ns: _Time | None = None
    base_ns: _Time | None = None
    within_ns: _Count | None = None
    aligned: bool | None = None
    devices: dict[str, DeviceClock] = field(default_factory=dict)
