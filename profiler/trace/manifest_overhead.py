"""What a manifest says of the cost of tracing: how it is known, what it was, why it is not known.

`docs/file-format.md` describes the keys.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, field

from profiler.trace.manifest_fields import LARGEST, Fields

__all__ = [
    "CallCounts",
    "CostMethod",
    "MeasuredCost",
    "Overhead",
    "ShareOf",
    "UnknownCost",
    "WhyUnknown",
]

_Count = Annotated[int, Meta(ge=0, le=LARGEST)]  # also nanoseconds
_Whole = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
_Real = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]


class MeasuredCost(Fields, frozen=True, kw_only=True):
    """What tracing cost a call of a submodule, from its traced and untraced calls."""

    traced_calls: _Count = 0
    untraced_calls: _Count = 0
    traced_median_ns: _Real | None = None
    untraced_median_ns: _Real | None = None
    call_ns: _Real | None = None
    call_low_ns: _Real | None = None
    call_high_ns: _Real | None = None
    event_ns: _Real | None = None


class CallCounts(Fields, frozen=True, kw_only=True):
    """Calls of a submodule that could be compared, too few of either kind."""

    traced_calls: _Count = 0
    untraced_calls: _Count = 0


class ShareOf(StrEnum):
    """What `Overhead.share` is of."""

    END_TO_END = "end_to_end"
    CALLS = "calls"  # all of it lies outside of pipeline calls
    BOTH = "end_to_end_and_calls"


class WhyUnknown(StrEnum):
    """Why the cost of tracing is not known."""

    NOT_TOLD = "not_told"  # an import: the trace does not say
    NOT_MEASURED = "not_measured"  # nothing measures this backend's cost per event
    TOO_BUSY = "too_busy"  # the machine was, so the measurement failed
    IMPLAUSIBLE = "implausible"  # the estimate exceeds all that ran


class UnknownCost(Fields, frozen=True, kw_only=True):
    """A cost that is not known; `event_ns` is the estimate that was implausible."""

    why: WhyUnknown
    backend: str = ""
    event_ns: _Real | None = None


class CostMethod(StrEnum):
    """How it is known what a run would have taken without tracing."""

    MEASURED = "measured"  # by the clock, and by untraced calls of the run itself
    ESTIMATED = "estimated"  # what recorded events cost: how many times what one does
    BOTH = "both"  # of some submodules so, of others so


class Overhead(Fields, frozen=True, kw_only=True):
    """What tracing cost, as far as it is known; `docs/file-format.md` describes each field."""

    traced_ns: _Count | None = None
    untraced_ns: _Whole | None = None
    untraced_low_ns: _Whole | None = None
    untraced_high_ns: _Whole | None = None
    method: CostMethod | None = None
    hooks_ns: _Count | None = None
    operator_events: _Count | None = None
    measured: dict[str, MeasuredCost] = field(default_factory=dict)
    too_few: dict[str, CallCounts] = field(default_factory=dict)
    estimated_by: tuple[str, ...] = ()
    unknown: tuple[UnknownCost, ...] = ()
    estimated_events: _Count | None = None
    operator_event_ns: _Real | None = None
    operator_event_low_ns: _Real | None = None
    operator_event_high_ns: _Real | None = None
    noisy: bool = False
    operators_ns: _Whole | None = None
    operators_low_ns: _Whole | None = None
    operators_high_ns: _Whole | None = None
    new_sessions_ns: _Whole | None = None
    share: _Real | None = None
    share_of: ShareOf | None = None
    writing_ns: _Count | None = None
    backpressure_ns: _Count | None = None
    conversion_ns: _Count | None = None
