"""An event of ONNX Runtime's profiles, as JSON has it, and what GPUs executed.

`trace/core/profile_nodes.cpp` reads most nodes without making such an event of them, by the same
rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import msgspec

__all__ = ["Args", "Event", "KernelEvent", "Unread"]

_Microseconds = Annotated[int, msgspec.Meta(gt=-(1 << 50), lt=1 << 50)]  # 35 years: ns fit int64
_Number = Annotated[int, msgspec.Meta(ge=-(1 << 62), lt=1 << 62)]


class Args(msgspec.Struct, gc=False):
    """What is read of an event's arguments."""

    op_name: str = ""
    provider: str = ""
    input_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    output_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    parameter_size: str = ""
    activation_size: str = ""
    output_size: str = ""
    mem_bytes_in_use: str = ""
    dropped_event_count: msgspec.Raw = msgspec.Raw(b"")
    stream: msgspec.Raw = msgspec.Raw(b"")
    parent_name: str = ""


class Event(msgspec.Struct, gc=False):
    """An event; times are µs since the profile's begin."""

    name: str
    cat: str = ""
    ts: _Microseconds = 0
    dur: _Microseconds = 0
    tid: _Number = 0
    args: Args | None = None


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """What a GPU executed, in ns since the profile's begin. `parent` is the node that launched it,
    by begin and name, None where the file does not tell. ONNX Runtime up to 1.9 gave its end as
    its begin."""

    name: str
    op_type: str
    stream: str
    start_ns: int
    duration_ns: int
    parent: tuple[int, str] | None


@dataclass(slots=True)
class Unread:
    """What of a profile is in no run: `lines` that are no events, and what GPUs executed; and how
    many `events` ONNX Runtime recorded itself, of which it records `EVENT_CAP` at most."""

    lines: int = 0
    events: int = 0
    kernels: list[KernelEvent] = field(default_factory=list)
