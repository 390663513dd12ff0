"""Where each slice of a file stands and in which order its events are written.

Slices of one Perfetto track must nest. Where a producer's commands overlap without nesting, the
later one goes to a further lane: a Perfetto track of its own under the same name and parent, which
the UI and trace_processor fold back into one. Lanes belong to one file: files that shared a track
would close each other's slices where their calls overlap, or touch and stand in another order.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from profiler.events import CALLS_TRACK, HOST_TRACK, PIPELINE_TRACK, UNKNOWN, Track
from profiler.trace import schema

__all__ = ["COUNTER_RANK", "Event", "Lane", "Slice", "connect", "place", "rank", "slice_events"]

COUNTER_RANK: Final = 1_000_000  # below every queue
_FIRST_TRACKS = (PIPELINE_TRACK, CALLS_TRACK, HOST_TRACK)
_CATEGORY_ORDER = ("compute", "dma", "copy", "sync", "host", "other")
_NUMBER = re.compile(r"\d+")

Event = tuple[int, int, int, Any]  # time, track uuid, TrackEvent.Type, payload


@dataclass(slots=True, eq=False)
class Slice:
    """One slice to write; `end_ns` is `UNKNOWN` for one that never closed.

    `extension` is the extension field and its values. `flow_ids` and `terminating_flow_ids` go to
    the begin event, `closing_flow_ids` end at the end event.
    """

    track: Track
    name: str
    start_ns: int
    end_ns: int
    extension: tuple[Any, dict[str, Any]]
    flow_ids: list[int] = field(default_factory=list)
    terminating_flow_ids: list[int] = field(default_factory=list)
    closing_flow_ids: list[int] = field(default_factory=list)

    @property
    def order(self) -> tuple[int, bool, int]:
        """Parents before children; what takes no time before what begins at the same moment."""
        return (self.start_ns, self.end_ns > self.start_ns, -self.end_ns)


@dataclass(frozen=True, slots=True)
class Lane:
    """One Perfetto track of a file: the slices of `track` that nest on it."""

    track: Track
    uuid: int


def connect(source: Slice, target: Slice, flow_id: int) -> None:
    """Draw a flow. Perfetto directs flows by time, so a target that was already open when its
    source began (a wait) takes the flow at its end."""
    source.flow_ids.append(flow_id)
    waited = target.order <= source.order and target.end_ns > source.start_ns
    (target.closing_flow_ids if waited else target.terminating_flow_ids).append(flow_id)


def place(slices: Sequence[Slice], sequence: int) -> list[tuple[Slice, Lane]]:
    """Slices in order of their begin, each with the first lane of its track on which it nests.

    A slice that never closed gets a lane of its own, so that nothing seems to lie in it.
    """
    lanes: dict[Track, list[tuple[Lane, list[int]]]] = {}  # with the ends of its open slices
    bits = max(24, sequence.bit_length())
    placed: list[tuple[Slice, Lane]] = []
    count = 0
    for piece in sorted(slices, key=lambda piece: piece.order):
        known = lanes.setdefault(piece.track, [])
        lane = None if piece.end_ns == UNKNOWN else _free_lane(known, piece)
        if lane is None:
            count += 1
            lane = Lane(piece.track, (count << bits) | sequence)
            if piece.end_ns != UNKNOWN:
                known.append((lane, [piece.end_ns]))
        placed.append((piece, lane))
    return placed


def _free_lane(lanes: Sequence[tuple[Lane, list[int]]], piece: Slice) -> Lane | None:
    """The first lane on which `piece` nests, with `piece` opened on it."""
    for lane, ends in lanes:
        while ends and ends[-1] <= piece.start_ns:
            ends.pop()
        if not ends or piece.end_ns <= ends[-1]:
            ends.append(piece.end_ns)
            return lane
    return None


def rank(track: Track) -> int:
    """The place of a track on its device: pipeline, calls, host work, then queues by category
    and by the number in their name. The UI orders equal ranks by name."""
    if track.name in _FIRST_TRACKS:
        return _FIRST_TRACKS.index(track.name)
    known = track.category in _CATEGORY_ORDER
    group = _CATEGORY_ORDER.index(track.category) if known else len(_CATEGORY_ORDER)
    number = _NUMBER.search(track.name)
    return (group + 1) * 100_000 + min(int(number.group()) if number else 0, 99_999)


def slice_events(placed: Sequence[tuple[Slice, Lane]]) -> Iterator[Event]:
    """Begins and ends in order of time; on one lane an end comes before the next begin.

    `placed` is what `place` returns: it nests on every lane.
    """
    ends: list[tuple[int, int, int, Slice]] = []  # end, -opening order, uuid: innermost first
    for opened, (piece, lane) in enumerate(placed):
        while ends and ends[0][0] <= piece.start_ns:
            end_ns, _, ended, closed = heapq.heappop(ends)
            yield end_ns, ended, schema.SLICE_END, closed
        yield piece.start_ns, lane.uuid, schema.SLICE_BEGIN, piece
        if piece.end_ns != UNKNOWN:
            heapq.heappush(ends, (piece.end_ns, -opened, lane.uuid, piece))
    while ends:
        end_ns, _, ended, closed = heapq.heappop(ends)
        yield end_ns, ended, schema.SLICE_END, closed
