"""What a manifest says of the files of several recorders that are one run: their clocks, and what
they recorded twice."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from profiler.trace.manifest_fields import LARGEST, Fields

__all__ = ["Apart", "LeftOut", "PartOfRun", "Parts", "RelatedBy", "WhyApart"]

_Count = Annotated[int, Meta(ge=0, le=LARGEST)]
_Time = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class RelatedBy(StrEnum):
    """What relates the clock of some files to that of the run."""

    REFERENCE = "reference"  # it is the run's
    EPOCH = "epoch"  # both count from 1970
    LOCAL_TIME = "local_time"  # that of the begin, which a file's name tells
    EVENTS = "events"  # that both recorded


class WhyApart(StrEnum):
    """Why files that lay beside a run are not of it."""

    ANOTHER_TIME = "another_time"  # both clocks count from 1970
    UNRELATED = "unrelated"  # neither a clock nor three events in common


class PartOfRun(Fields, frozen=True, kw_only=True):
    """The `files` of one recorder, read by the importer `producer`. `offset_ns` was added to their
    times; where events tell it, `pairs` of them do, which then differ by `residual_ns` in the
    median and `worst_ns` at most; where a name does, it is known to `within_ns`. Of its `commands`
    on devices `twice` are in another part as well, and left out here; `calls` are those kept."""

    files: tuple[str, ...]
    producer: str
    related_by: RelatedBy
    offset_ns: _Time = 0
    pairs: _Count = 0
    residual_ns: _Count | None = None
    worst_ns: _Count | None = None
    within_ns: _Count | None = None
    commands: _Count = 0
    twice: _Count = 0
    calls: _Count = 0


class Apart(Fields, frozen=True, kw_only=True):
    """Files that are another run, or whose clock nothing relates to this run's."""

    files: tuple[str, ...]
    producer: str
    why: WhyApart


class LeftOut(Fields, frozen=True, kw_only=True):
    """A file that was not read, and what it is or looks like."""

    file: str
    what: str


class Parts(Fields, frozen=True, kw_only=True):
    """The parts of a run, that whose clock it has first; what lay beside them."""

    parts: tuple[PartOfRun, ...] = ()
    apart: tuple[Apart, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
