"""A plan of the host's time replayed: what each of its pieces adds to the pipeline call.

As in a recorded call (`pieces`), a call takes from its begin, or the end of the one before it,
until its last work has ended; the host's time is what is left. The pipeline call ends with its last
work, too, where that is later than the host's return (`axis`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from profiler.analysis.prediction.pieces import Piece, PipelinePieces
from profiler.analysis.replay.engine import Replayed, replay
from profiler.analysis.replay.recording import Recording, Script
from profiler.run.device_timeline import Times

__all__ = ["Paces", "ReplayedCall", "replayed_call"]

_Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Paces:
    """How the calls of a run are changed, by their rows: `work`, float64 [n], is the length of
    their device work over what it was, `host` that of the host's time in them. `graphs` are the
    host's times, begin and end in ns, of those whose launches in that time become one."""

    work: _Reals
    host: _Reals
    graphs: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedCall:
    """A pipeline call that was replayed: its pieces with their times, the device's span in ns, and
    by submodule how long its calls' tiles were busy, and idle, in ns."""

    pieces: PipelinePieces
    device_span_ns: int
    busy_ns: Mapping[str, float]
    idle_ns: Mapping[str, float]
    replayed: Replayed


def replayed_call(recording: Recording, plan: PipelinePieces, paces: Paces) -> ReplayedCall:
    """Run `plan`, whose pieces begin where the host's did."""
    phases = [plan.encode, *plan.steps, plan.decode]
    flat = [piece for phase in phases for piece in phase]
    script, owner = _script(flat, paces)
    found = replay(recording, script, _lengths(recording, paces))
    timed, ran = _timed(recording, flat, owner, found)
    borders = np.cumsum([0, *map(len, phases)]).tolist()
    parts = [tuple(timed[a:b]) for a, b in pairwise(borders)]
    encode, *steps, decode = parts
    total = sum(piece.duration_ns for piece in timed)
    pieces = replace(plan, duration_ns=total, encode=encode, steps=tuple(steps), decode=decode)
    busy, idle = _of_tiles(timed, ran, found)
    return ReplayedCall(pieces, found.device_span_ns, busy, idle, found)


def _script(pieces: Sequence[Piece], paces: Paces) -> tuple[Script, Times]:
    """The slices of all pieces, one each but for calls of which a part is one launch; and where
    each piece's slices begin, int64 [pieces + 1]."""
    slices: list[tuple[int, int, float, bool]] = []
    owner = [0]
    for piece in pieces:
        first, last = piece.start_ns, piece.start_ns + piece.duration_ns
        of_call = piece.submodule is not None
        pace = float(paces.host[piece.call]) if of_call else 1.0
        begin, end = paces.graphs.get(piece.call, (last, last)) if of_call else (last, last)
        parts = [(first, begin, pace, False), (begin, end, pace, True), (end, last, pace, False)]
        slices += [part for part in parts if part[1] > part[0]] or [(first, last, pace, False)]
        owner.append(len(slices))
    first_ns, last_ns = (np.array([part[i] for part in slices], dtype=np.int64) for i in (0, 1))
    pace_of = np.array([part[2] for part in slices])
    graph = np.array([part[3] for part in slices], dtype=np.bool_)
    return Script(first_ns, last_ns, pace_of, graph), np.array(owner, dtype=np.int64)


def _lengths(recording: Recording, paces: Paces) -> Times:
    works = recording.works
    factor = np.append(paces.work, 1.0)[works.call]  # the last is of no call
    found: Times = np.rint(works.length * factor).astype(np.int64)
    return found


def _timed(
    recording: Recording, pieces: Sequence[Piece], owner: Times, found: Replayed
) -> tuple[list[Piece], list[Times]]:
    """The pieces, whose slices begin at `owner`, with their new times, and of each that is a call
    the places in `found` of its work."""
    cursor = int(found.begin[0]) if len(pieces) else 0
    borders = np.searchsorted(found.slice, owner)
    begin, end = found.begin[owner[:-1]].tolist(), found.end[owner[1:] - 1].tolist()
    of_call = recording.works.call[found.work]
    timed, ran = [], []
    for place, piece in enumerate(pieces):
        start, until = max(begin[place], cursor), max(end[place], cursor)
        own = np.arange(borders[place], borders[place + 1])
        if piece.submodule is not None:
            own = own[of_call[own] == piece.call]
        elif place < len(pieces) - 1:  # of the host's work only the last is waited for
            own = own[:0]
        until = int(found.done[own].max(initial=until))
        timed.append(replace(piece, start_ns=start, duration_ns=until - start))
        ran.append(own)
        cursor = until
    return timed, ran


def _of_tiles(
    pieces: Sequence[Piece], ran: Sequence[Times], found: Replayed
) -> tuple[dict[str, float], dict[str, float]]:
    """By submodule how long something of theirs ran in the tiles of its calls, and how long not."""
    busy: dict[str, float] = {}
    idle: dict[str, float] = {}
    for piece, own in zip(pieces, ran, strict=True):
        if piece.submodule is None or not len(own):
            continue
        some = own[np.argsort(found.start[own], kind="stable")]
        start = np.maximum(found.start[some], piece.start_ns)
        done = np.maximum(np.maximum.accumulate(found.done[some]), piece.start_ns)
        before = np.append(piece.start_ns, done[:-1])
        worked = int(np.maximum(done - np.maximum(start, before), 0).sum())
        busy[piece.submodule] = busy.get(piece.submodule, 0.0) + worked
        rest = piece.duration_ns - worked
        idle[piece.submodule] = idle.get(piece.submodule, 0.0) + rest
    return busy, idle
