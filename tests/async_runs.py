"""Runs on asynchronous devices as hypothesis makes them, whose tiles can be counted tick by tick.

A small machine is simulated in ticks of 100 µs: threads of the host call submodules one after the
other, each launches kernels on streams of devices and waits for them now and then. A launch waits
while the queue of its device is full, a blocking copy and a synchronization wait for the stream.
Devices lose time to work that nobody recorded; kernels are left over from before the recording;
launches, and the host's return from calls, are missing here and there; kernels belong to no call;
some are collectives of a library that has tracks of its own.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl
from hypothesis import strategies as st

from profiler.run import CALLS, COMMANDS, COUNTERS, FLOWS, SPANS, Run, empty, schema
from profiler.trace import NO_PIPELINE, NO_STEP, RunInfo
from tests.runs import EPOCH, make_frame

__all__ = ["TICK_NS", "Invocation", "Launch", "Machine", "Piece", "Place", "Wait", "machines"]

TICK_NS = 100_000
_LATENCY = 1
_KINDS = ("compute", "copy", "other", "collective")
_START = [each.name for each in COMMANDS if each.name != "rank"].index("start_ns")


@dataclass
class Invocation:
    """A call of thread `thread`, in ticks; `returned` is -1 where the host's return is missing.
    `noted` is when its device was on it, as it noted itself, where its work was not recorded."""

    thread: int
    device: str
    begin: int
    returned: int = -1
    noted: tuple[int, int] | None = None


@dataclass
class Wait:
    """The host waits from `start` to `end`; `copies` tells that it is a blocking copy."""

    thread: int
    call: int
    start: int
    end: int


@dataclass
class Piece:
    """A kernel or copy, in ticks. `launched` and `returned` are the launch's, -1 where none was
    recorded; `graph` is whether a graph launch made it; `carried` where it was launched before
    the recording began."""

    call: int
    device: str
    stream: int
    kind: str
    start: int
    end: int
    launch: int = -1
    carried: bool = False


@dataclass
class Launch:
    """A host command that launched something."""

    thread: int
    call: int
    layer: str
    start: int
    end: int


@dataclass(frozen=True)
class Place:
    """What a call is called in a pipeline."""

    stage: str
    submodule: str
    step: int = NO_STEP
    branch: str | None = None


_NO_PLACE = Place("run", "model")
_TRACKS = {"dma": " memcpy", "copy": " copy", "collective": " collectives"}


@dataclass
class Machine:
    """What happened: calls in the order in which they began, launches, device work, waits."""

    calls: list[Invocation] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)

    def run(self, places: Sequence[Place] = (), until: int = -1) -> Run:
        """The run that a recorder would have made of it. With `places`, one a call, all of it is a
        pipeline call whose span lasts from tick 0 to `until`."""
        number = 0 if places else NO_PIPELINE
        named = places or [_NO_PLACE] * len(self.calls)
        rows: list[tuple[int, tuple[object, ...], tuple[str, int]]] = []
        for at, launch in enumerate(self.launches):
            track = f"CPU thread {launch.thread} launches"
            place = (launch.call, "cpu:0", track, "host", launch.layer)
            rows.append((*_row(place, launch.start, launch.end, named, number), ("launch", at)))
        for at, wait in enumerate(self.waits):
            track = f"CPU thread {wait.thread} sync"
            place = (wait.call, "cpu:0", track, "sync", "cudaStreamSynchronize")
            rows.append((*_row(place, wait.start, wait.end, named, number), ("wait", at)))
        for at, piece in enumerate(self.pieces):
            track = f"stream {piece.stream}{_TRACKS.get(piece.kind, '')}"
            place = (piece.call, piece.device, track, piece.kind, "kernel")
            rows.append((*_row(place, piece.start, piece.end, named, number), ("piece", at)))
        last = len(self.calls)
        rows.sort(key=lambda row: (row[0] if row[0] >= 0 else last, row[1][_START]))
        row = {key: place for place, (_, _, key) in enumerate(rows)}
        flows = [
            (row["launch", piece.launch], row["piece", at])
            for at, piece in enumerate(self.pieces)
            if piece.launch >= 0
        ]
        calls = [
            (at, number, p.stage, p.submodule, p.branch, p.step, -1, *_of_call(call))
            for at, (call, p) in enumerate(zip(self.calls, named, strict=True))
        ]
        return Run(
            run_id="machine",
            calls=make_frame(calls, CALLS),
            commands=make_frame([r for _, r, _ in rows], COMMANDS),
            counters=empty(COUNTERS),
            flows=pl.DataFrame(flows, schema=schema(FLOWS), orient="row"),
            spans=make_frame(self._spans(places, until), SPANS),
            info=RunInfo(producer="test"),
        )

    def _spans(self, places: Sequence[Place], until: int) -> list[tuple[object, ...]]:
        """The pipeline call, and its stages: each from its first call to the next one's."""
        begun = {p.stage: c.begin for c, p in reversed(list(zip(self.calls, places, strict=False)))}
        rows: list[tuple[object, ...]] = []
        end = until
        for stage, begin in sorted(begun.items(), key=lambda item: item[1], reverse=True):
            rows.append(("stage", 0, stage, stage, NO_STEP, _ns(begin), (end - begin) * TICK_NS))
            end = begin
        whole = ("pipeline", 0, "P", None, NO_STEP, EPOCH, until * TICK_NS)
        return [whole, *reversed(rows)] if places else []


def _ns(tick: int) -> int:
    return EPOCH + tick * TICK_NS


def _length(call: Invocation) -> int:
    return -1 if call.returned < 0 else (call.returned - call.begin) * TICK_NS


def _of_call(call: Invocation) -> tuple[object, ...]:
    lag, length = None, None
    if call.noted is not None:
        lag = (call.noted[0] - call.begin) * TICK_NS
        length = (call.noted[1] - call.noted[0]) * TICK_NS
    traced = call.noted is None
    return (call.device, _ns(call.begin), _length(call), lag, length, traced, "")


def _row(  # what a number may be of
    place: tuple[object, ...], start: int, end: int, named: Sequence[Place], pipeline: int
) -> tuple[int, tuple[object, ...]]:
    call, device, track, category, layer = place
    assert isinstance(call, int)
    own = named[call] if call >= 0 else _NO_PLACE
    where = (call, pipeline, own.stage, own.step)
    labels = (*where, device, track, category, layer, None, 0, None, None, None)
    return call, (*labels, _ns(start), (end - start) * TICK_NS, None, None, None, None)


@dataclass
class _Simulation:
    """The machine at work: `free` is when each stream has done what it was given."""

    chance: random.Random
    devices: tuple[str, ...]
    streams: int
    depth: int
    made: Machine = field(default_factory=Machine)
    free: dict[tuple[str, int], int] = field(default_factory=dict)

    def launch(self, thread: int, call: int, at: int, *, blocking: bool, graph: bool) -> int:
        """Launch a kernel, a blocking copy or a graph of kernels; when the host goes on."""
        chance = self.chance
        device, stream = chance.choice(self.devices), chance.randrange(self.streams)
        queued = sorted(p.end for p in self.made.pieces if p.device == device and p.end > at)
        started = at
        if len(queued) >= self.depth:  # the queue is full: the launch waits
            at = queued[-self.depth]
        returned = at + chance.randint(1, 2)
        number = len(self.made.launches)
        lost = chance.random() < 0.04
        kind = "dma" if blocking else chance.choices(_KINDS, (8, 1, 1, 1))[0]
        own = call if chance.random() > 0.05 else -1  # what another library launched
        for _ in range(chance.randint(2, 4) if graph else 1):
            begin = max(self.free.get((device, stream), 0), at + _LATENCY)
            if chance.random() < 0.04:  # a long time in which nothing was recorded
                begin += chance.randint(5, 25)
            end = begin + chance.choice((1, 1, 2, 3, 9))
            self.free[device, stream] = end
            piece = Piece(own, device, stream, kind, begin, end, -1 if lost else number)
            self.made.pieces.append(piece)
        if blocking:
            returned = max(returned, end)
        layer = "cudaGraphLaunch" if graph else "cudaMemcpy" if blocking else "cudaLaunchKernel"
        if not lost:
            self.made.launches.append(Launch(thread, own, layer, started, returned))
        return returned

    def wait(self, thread: int, call: int, at: int) -> int:
        """Wait for all devices; when the host goes on."""
        end = max([at + 1, *self.free.values()])
        self.made.waits.append(Wait(thread, call, at, end))
        return end

    def note_some(self) -> None:
        """Trace about half of the calls alone."""
        for call in range(len(self.made.calls)):
            if self.chance.random() < 0.5:
                self.note(call)

    def note(self, call: int) -> None:
        """Record no work of a call, but when the device that had most of it was on it."""
        made, invocation = self.made, self.made.calls[call]
        own = [piece for piece in made.pieces if piece.call == call]
        made.pieces = [piece for piece in made.pieces if piece.call != call]
        devices = [piece.device for piece in own]
        if devices:
            invocation.device = max(sorted(set(devices)), key=devices.count)
        own = [piece for piece in own if piece.device == invocation.device]
        first = min((piece.start for piece in own), default=invocation.begin)
        last = max([first, invocation.returned, *(piece.end for piece in own)])
        invocation.noted = (self.chance.randint(min(invocation.begin, first), first), last)

    def leave_over(self) -> None:
        """Work that was launched before the recording began."""
        for device in self.devices:
            for stream in range(self.streams):
                at = 0
                for _ in range(self.chance.choice((0, 0, 1, 3))):
                    start = at + self.chance.randint(0, 2)
                    at = start + self.chance.randint(1, 6)
                    self.made.pieces.append(
                        Piece(-1, device, stream, "compute", start, at, carried=True)
                    )
                self.free[device, stream] = at


def _simulated(
    chance: random.Random, threads: int, devices: tuple[str, ...], streams: int, depth: int
) -> _Simulation:
    """Threads take turns, the one whose time is earliest first."""
    sim = _Simulation(chance, devices, streams, depth)
    if chance.random() < 0.4:
        sim.leave_over()
    turns = [(chance.randint(0, 4), thread, -1, chance.randint(1, 4)) for thread in range(threads)]
    heapq.heapify(turns)
    while turns:
        at, thread, call, left = heapq.heappop(turns)
        if call < 0:
            if not left:
                continue
            at += chance.choice((0, 1, 3))
            if chance.random() < 0.2:  # work of no call
                at = sim.launch(thread, -1, at, blocking=chance.random() < 0.3, graph=False)
            call = len(sim.made.calls)
            sim.made.calls.append(Invocation(thread, chance.choice(devices), at))
            heapq.heappush(turns, (at, thread, call, left - 1))
        elif chance.random() < 0.2:
            if chance.random() < 0.9:
                sim.made.calls[call].returned = at
            heapq.heappush(turns, (at, thread, -1, left))
        else:
            kind = chance.random()
            if kind < 0.1:
                at = sim.wait(thread, call, at)
            elif kind < 0.3:
                at += chance.randint(1, 8)
            else:
                graph = kind > 0.9
                at = sim.launch(thread, call, at, blocking=kind < 0.4, graph=graph)
            heapq.heappush(turns, (at, thread, call, left))
    return sim


@st.composite
def machines(
    draw: st.DrawFn, threads: int = 3, devices: int = 2, *, noted: bool = False
) -> Machine:
    """A machine with at most so many threads and devices; `noted` are perhaps some of its calls, in
    place of their work."""
    sim = _simulated(
        random.Random(draw(st.integers(0, 1 << 40))),
        draw(st.integers(1, threads)),
        ("cuda:0", "cuda:1")[: draw(st.integers(1, devices))],
        draw(st.integers(1, 2)),
        draw(st.sampled_from((1, 3, 100))),
    )
    if noted and draw(st.booleans()):
        sim.note_some()
    return sim.made
