"""What a manifest says of a job of several processes: ranks, their clocks, collectives."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from profiler.trace.manifest_fields import LARGEST, Fields

__all__ = ["Collective", "Job", "MatchedBy", "Rank"]

_Count = Annotated[int, Meta(ge=0, le=LARGEST)]
_Rank = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
_Time = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Real = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]


class MatchedBy(StrEnum):
    """What tells that collectives of several ranks are one and the same."""

    SEQUENCE = "sequence"  # process group and number
    GROUP_ORDER = "group_order"  # process group, and order within it
    STREAM_ORDER = "stream_order"  # order on a stream, where the ends agree


class Rank(Fields, frozen=True, kw_only=True):
    """One process of a job. `source` is its file. `offset_ns`, and `drift_ppm` µs a second from
    the job's begin on, were added to its times; `pairs` collectives tell them, `left_out` were more
    than 1 ms off. The ends of the collectives then differ by `residual_ns` in the median and by
    `worst_ns` at most. `aligned` is False where too few collectives relate its clock to others."""

    rank: _Rank
    source: str = ""
    offset_ns: _Time = 0
    drift_ppm: _Real = 0.0
    pairs: _Count = 0
    left_out: _Count = 0
    residual_ns: _Count | None = None
    worst_ns: _Count | None = None
    aligned: bool | None = None


class Collective(Fields, frozen=True, kw_only=True):
    """One collective: its kind, process group and the number of that group's ranks, the bytes
    that a rank gave and got, and for each rank that was recorded the begin of its command."""

    kind: str
    group: str = ""
    size: _Count | None = None
    sent_bytes: _Count | None = None
    received_bytes: _Count | None = None
    members: tuple[tuple[_Rank, _Time], ...] = ()


class Job(Fields, frozen=True, kw_only=True):
    """A job of `world_size` processes, as far as their files were given; `reference` is the rank on
    whose clock all times are."""

    world_size: _Count
    backend: str = ""
    reference: _Rank = 0
    matched_by: MatchedBy | None = None
    ranks: tuple[Rank, ...] = ()
    collectives: tuple[Collective, ...] = ()
