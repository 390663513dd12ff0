"""The tiles of a simulated machine, counted tick by tick: slow, and by the words of the rules."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from tests.async_runs import Invocation, Launch, Machine, Piece

__all__ = ["Counted", "blocked", "carried_over", "counted", "tile_device", "unrecorded"]

LONG = 10  # ticks: 1 ms


@dataclass
class Counted:
    """A call's tile and what it holds, in ticks; `lead` is None where no launch is known."""

    begin: int
    end: int
    elapsed: int
    busy: int
    idle: int
    launch_bound: int
    lead: int | None
    hidden: int
    unrecorded: int


@dataclass
class _Truth:
    machine: Machine
    until: int

    def launch(self, piece: Piece) -> Launch | None:
        return self.machine.launches[piece.launch] if piece.launch >= 0 else None

    def launched(self, piece: Piece) -> int:
        """When a piece was launched; before everything where it was carried over."""
        if self.carried(piece):
            return -1
        launch = self.launch(piece)
        return launch.start if launch else piece.start

    def carried(self, piece: Piece) -> bool:
        """Without a launch, ahead of all launched ones of its stream; if that has none, ahead of
        all launches for its device."""
        on_device = [o for o in self.machine.pieces if o.device == piece.device and o.launch >= 0]
        launched = [other.start for other in on_device if other.stream == piece.stream]
        launched = launched or [self.machine.launches[other.launch].start for other in on_device]
        return piece.launch < 0 and bool(launched) and piece.start < min(launched)

    def on(self, device: str) -> list[Piece]:
        return [piece for piece in self.machine.pieces if piece.device == device]

    def runs(self, device: str, tick: int) -> list[Piece]:
        return [piece for piece in self.on(device) if piece.start <= tick < piece.end]

    def gaps(self, device: str) -> list[tuple[int, Piece]]:
        """When the device ran dry (-1: never), and what ended that."""
        found = []
        for piece in self.on(device):
            earlier = [p for p in self.on(device) if p.start < piece.start]
            dry = max((p.end for p in earlier), default=-1)
            if dry < piece.start:
                found.append((dry, piece))
        return found

    def ender(self, device: str, tick: int) -> tuple[int, Piece] | None:
        """The gap in which a tick lies: when it began, and one of those that end it."""
        for dry, piece in self.gaps(device):
            if dry <= tick < piece.start and not self.runs(device, tick):
                return dry, piece
        return None

    def latency(self, device: str) -> float:
        waited = [
            piece.start - launch.start
            for dry, piece in self.first_enders(device)
            if (launch := self.launch(piece)) and launch.start >= dry
        ]
        return statistics.median(waited) if waited else 0

    def first_enders(self, device: str) -> list[tuple[int, Piece]]:
        """One for each gap."""
        return list(
            {piece.start: (dry, piece) for dry, piece in reversed(self.gaps(device))}.values()
        )

    def unrecorded(self, device: str) -> set[int]:
        """Ticks at which nothing runs anywhere though this device's work, or the host, waits."""
        if not any(piece.launch >= 0 for piece in self.on(device)):
            return set()
        names = {piece.device for piece in self.machine.pieces}
        empty = [t for t in range(self.until) if not any(self.runs(name, t) for name in names)]
        pending: set[int] = set()
        for dry, piece in self.first_enders(device):
            launch = self.launch(piece)
            since = max(dry, launch.end) if launch else piece.start
            if piece.start - since > LONG:
                pending |= set(range(since, piece.start))
        for start, end in self.blocked():
            if end - start > LONG:
                pending |= set(range(start, end))
        stretches = {t for t in pending & set(empty) if _stretch(t, pending & set(empty)) > LONG}
        return stretches - self.noted()

    def noted(self) -> set[int]:
        """Ticks at which devices were on calls whose work was not recorded, as they noted it."""
        ranges = [call.noted for call in self.machine.calls if call.noted is not None]
        return {tick for first, last in ranges for tick in range(first, last)}

    def blocked(self) -> list[tuple[int, int]]:
        """When the host waited: synchronizations, and launches of copies that returned behind."""
        found = [(wait.start, wait.end) for wait in self.machine.waits]
        for piece in self.machine.pieces:
            launch = self.launch(piece)
            if launch and piece.kind in ("dma", "copy") and launch.end >= piece.end:
                found.append((launch.start, launch.end))
        return found


def _stretch(tick: int, ticks: set[int]) -> int:
    """How many ticks in a row there are around one."""
    first, last = tick, tick
    while first - 1 in ticks:
        first -= 1
    while last + 1 in ticks:
        last += 1
    return last - first + 1


def _device(truth: _Truth, call: int) -> str:
    """Where most of a call's work ran; where it is placed without any, or as many."""
    placed = truth.machine.calls[call].device
    counts = dict.fromkeys(sorted({p.device for p in truth.machine.pieces} | {placed}), 0)
    for piece in truth.machine.pieces:
        counts[piece.device] += piece.call == call
    working = [name for name in counts if truth.on(name)]
    noted = truth.machine.calls[call].noted is not None
    if not any(counts.values()) and len(working) == 1 and not noted:
        return working[0]
    return max(sorted(counts), key=lambda name: (counts[name], name == placed))


def tile_device(machine: Machine, call: int) -> str:
    """The device that a call's tile is of."""
    return _device(_Truth(machine, 0), call)


def blocked(machine: Machine) -> set[int]:
    """Ticks in which some thread of the host waited for a device."""
    return {tick for start, end in _Truth(machine, 0).blocked() for tick in range(start, end)}


def carried_over(machine: Machine) -> list[Piece]:
    """What counts as launched before the recording began."""
    truth = _Truth(machine, 0)
    return [piece for piece in machine.pieces if truth.carried(piece)]


def unrecorded(machine: Machine, device: str) -> set[int]:
    """Ticks at which nothing was recorded of a device though work waited."""
    return _Truth(machine, max((piece.end for piece in machine.pieces), default=0)).unrecorded(
        device
    )


def counted(machine: Machine) -> list[Counted]:
    """The tile of each call."""
    ends = [p.end for p in machine.pieces] + [c.returned for c in machine.calls]
    ends += [c.noted[1] for c in machine.calls if c.noted is not None]
    ends += [w.end for w in machine.waits] + [c.begin + 1 for c in machine.calls]
    truth = _Truth(machine, max(ends, default=0) + 2)
    order = sorted(range(len(machine.calls)), key=lambda n: machine.calls[n].begin)
    taken: dict[str, int] = {}
    lost = {c: truth.unrecorded(c) for c in {p.device for p in machine.pieces}}
    found: dict[int, Counted] = {}
    for number in order:
        device = _device(truth, number)
        begin, end = _tile(truth, number, device, taken.get(device, 0))
        taken[device] = max(taken.get(device, 0), end)
        found[number] = _inside(truth, number, device, begin, end, lost.get(device, set()))
    return [found[number] for number in range(len(machine.calls))]


def _tile(truth: _Truth, number: int, device: str, taken: int) -> tuple[int, int]:
    call: Invocation = truth.machine.calls[number]
    own = [piece for piece in truth.on(device) if piece.call == number]
    before = [p.end for p in truth.on(device) if truth.launched(p) < call.begin]
    free = max([call.begin, *before])
    last = max((piece.end for piece in own), default=free)
    if call.noted is not None:
        free = max(free, call.noted[0])
        last = max(free, call.noted[1])
    begin = max(free, taken)
    end = max(last, call.returned)
    for piece in truth.on(device):
        if piece.start >= last and piece.call != number:
            end = min(end, piece.start)
    return begin, max(begin, end)


def _inside(
    truth: _Truth, number: int, device: str, begin: int, end: int, lost: set[int]
) -> Counted:
    pieces = truth.machine.pieces
    own = [piece for piece in pieces if piece.call == number]
    here = [piece for piece in own if piece.device == device]
    tile = set(range(begin, end))
    busy = {t for piece in own for t in range(piece.start, piece.end)}
    idle = {t for t in tile if not truth.runs(device, t)} - lost if here else set()
    launched = sorted((p for p in here if p.launch >= 0), key=lambda p: p.start)
    latency, last = int(truth.latency(device) * 2), max((p.end for p in here), default=begin)
    bound = set()
    for tick in idle if launched else ():
        gap = truth.ender(device, tick)
        launch = truth.launch(gap[1]) if gap else None
        if tick >= last:
            bound.add(tick)
        elif gap and launch:
            late = 2 * launch.start + latency > 2 * gap[0]
            waits = "Graph" in launch.layer or 2 * (gap[1].start - gap[0]) > latency
            if late or (waits and launch.end > gap[0]):
                bound.add(tick)
    leads = [p.start - truth.machine.launches[p.launch].start for p in launched]
    return Counted(
        begin,
        end,
        len(tile - lost),
        len(busy),
        len(idle),
        len(bound),
        leads[0] if leads else None,
        len(busy - tile),
        len(tile & lost),
    )
