"""One timeline for devices whose clocks nothing relates.

RBLN's traces hold no clock snapshot, and each device measures on its own clock. The first device
keeps its times; so do, among themselves, the calls of every other device, which is moved as a whole
to where the order of the calls allows it. That is a picture, not a measurement: such a device is
labelled unaligned, with the interval in which its true offset lies if calls did not overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from profiler.trace.manifest_clocks import PlacedBy

__all__ = ["Clocks", "Extent", "Placement", "place"]

Extent = tuple[int, int]  # first start and last end in ns, on the device's clock
_OPEN = 1 << 66  # a bound that is none: more than any difference of times
_MOST_DEVICES = 64  # whose order is worked out
_Apart = dict[tuple[int, int], int]  # of two devices: how far apart their offsets are
_Extents = Sequence[Mapping[str, Extent]]  # of each call in order, by device


@dataclass(frozen=True, slots=True)
class Placement:
    """How a device's clock was laid onto the run's.

    `by` says from what: `own_clock` (the reference), `shared_call` (its first command in a call
    of several devices starts that call), `call_order`, `run_start` (nothing else fits), or
    `end_to_end` (its clock starts anew in every file). `offset_ns` is added to its times;
    `uncertainty_ns` is the length of the interval that the order of calls leaves, -1 if open.
    """

    by: PlacedBy
    offset_ns: int
    uncertainty_ns: int = -1


@dataclass(frozen=True, slots=True)
class Clocks:
    """`offsets[i][device]` is what to add to the times of call i on that device."""

    reference: str
    placements: Mapping[str, Placement]
    offsets: tuple[Mapping[str, int], ...]


def place(calls: _Extents, *, in_order: bool = True) -> Clocks:
    """Lay all devices onto the clock of the first one, moved on where times would be negative.
    Where the calls are not `in_order`, all devices begin at once."""
    devices = list(dict.fromkeys(device for call in calls for device in call))
    if any(_starts_anew(calls, device) for device in devices):
        return _end_to_end(calls, devices)
    placements = _placements(calls, devices) if in_order else _run_start(calls, devices)
    first = min(
        (
            extent[0] + placements[device].offset_ns
            for call in calls
            for device, extent in call.items()
        ),
        default=0,
    )
    if first < 0:
        placements = {
            device: Placement(found.by, found.offset_ns - first, found.uncertainty_ns)
            for device, found in placements.items()
        }
    offsets = tuple({device: placements[device].offset_ns for device in call} for call in calls)
    return Clocks(devices[0] if devices else "", placements, offsets)


def _starts_anew(calls: _Extents, device: str) -> bool:
    """Whether a later call has earlier times: then the files do not share the device's clock."""
    starts = [call[device][0] for call in calls if device in call]
    return any(later <= earlier for earlier, later in pairwise(starts))


def _end_to_end(calls: _Extents, devices: Sequence[str]) -> Clocks:
    """Every call, on each of its devices, starts where the call before it ended."""
    cursor = 0
    offsets: list[dict[str, int]] = []
    for call in calls:
        offsets.append({device: cursor - extent[0] for device, extent in call.items()})
        cursor += max((extent[1] - extent[0] for extent in call.values()), default=0)
    placements = {device: Placement(PlacedBy.END_TO_END, 0) for device in devices}
    return Clocks(devices[0], placements, tuple(offsets))


def _placements(calls: _Extents, devices: Sequence[str]) -> dict[str, Placement]:
    """Offsets that keep calls in their order, in the middle of what that leaves."""
    codes = {device: code for code, device in enumerate(devices)}
    shared = _shared(calls, codes)
    bounds = _bounds(calls, codes, shared)
    if not bounds:
        return _run_start(calls, devices)
    together = {code for pair in shared for code in pair}
    reference, *others = range(len(devices))
    offsets = {reference: 0}
    placements = {devices[reference]: Placement(PlacedBy.OWN_CLOCK, 0)}
    for device in others:
        most = min(bounds[device][fixed] + offset for fixed, offset in offsets.items())
        least = max(offset - bounds[fixed][device] for fixed, offset in offsets.items())
        open_end = least if most >= _OPEN // 2 else most
        offset = (least + most) // 2 if max(most, -least) < _OPEN // 2 else open_end
        offsets[device] = offset
        room = bounds[device][reference] + bounds[reference][device]
        by = PlacedBy.SHARED_CALL if device in together else PlacedBy.CALL_ORDER
        placements[devices[device]] = Placement(by, offset, room if room < _OPEN // 2 else -1)
    return placements


def _bounds(calls: _Extents, codes: Mapping[str, int], shared: _Apart) -> list[list[int]]:
    """`bounds[a][b]`: the most by which a's offset may exceed b's; empty where there is no way.

    A call ends before the next begins: end(a) + offset(a) <= start(b) + offset(b). Devices that
    share a call start it together instead. A device that must be moved by less than itself shows
    that calls overlapped.
    """
    count = len(codes)
    if not 0 < count <= _MOST_DEVICES:
        return []
    bounds = [[0 if a == b else _OPEN for b in range(count)] for a in range(count)]
    ends: dict[int, int] = {}
    for call in calls:
        extents = {codes[device]: extent for device, extent in call.items()}
        for b, (start, _) in extents.items():
            for a, end in ends.items():
                if a != b:
                    bounds[a][b] = min(bounds[a][b], start - end)
        for code, (_, end) in extents.items():
            ends[code] = max(ends.get(code, end), end)
    for (a, b), apart in shared.items():
        bounds[a][b], bounds[b][a] = apart, -apart
    _close(bounds)
    return bounds if all(bounds[a][a] >= 0 for a in range(count)) else []


def _close(bounds: list[list[int]]) -> None:
    """Bounds of bounds are bounds (Floyd and Warshall)."""
    for via, row in enumerate(bounds):
        for own in bounds:
            for b, bound in enumerate(row):
                own[b] = min(own[b], own[via] + bound)


def _shared(calls: _Extents, codes: Mapping[str, int]) -> _Apart:
    """What makes the devices of a call start it together, from the first call that they share."""
    shared: _Apart = {}
    for call in calls:
        for first, second in pairwise(call):
            pair = (codes[first], codes[second])
            if pair not in shared and pair[::-1] not in shared:
                shared[pair] = call[second][0] - call[first][0]
    return shared


def _run_start(calls: _Extents, devices: Sequence[str]) -> dict[str, Placement]:
    """Every device's first event where the first device's is."""
    first = {device: min(call[device][0] for call in calls if device in call) for device in devices}
    return {
        device: Placement(
            PlacedBy.RUN_START if number else PlacedBy.OWN_CLOCK, first[devices[0]] - first[device]
        )
        for number, device in enumerate(devices)
    }
