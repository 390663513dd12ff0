"""How long kinds of commands ran on each device, and how long the device stood idle before them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.distinct_commands import Kinds
from profiler.run.intervals import Codes, Times, batches, is_sorted, reaches

__all__ = ["KindTimes", "kind_times"]

_BEFORE_ALL = np.iinfo(np.int64).min


class KindTimes(Struct, frozen=True, eq=False):
    """Cells of kinds and devices that have commands, all [c]. `device` indexes
    `CommandArrays.devices`, its length for none. `wait_ns` is the idle time of the device directly
    before the cell's commands, within their calls: when it ran nothing, no transfer or wait either;
    host work, which a CPU device runs too, is none of its own."""

    kind: Codes
    device: Codes
    commands: Times
    total_ns: Times
    wait_ns: Times


class _Device(Struct):
    """Where a device stands: until when it is busy, and in which call."""

    until: int = _BEFORE_ALL
    call: int = -1


def kind_times(kinds: Kinds, commands: CommandArrays, kept: npt.NDArray[np.bool_]) -> KindTimes:
    """Times of the kinds that are `kept`, bool [k]."""
    places = len(commands.devices) + 1
    limit = len(kinds) * places
    sums = np.zeros((3, limit), dtype=np.int64)
    states = [_Device() for _ in commands.devices]
    occupies = ~kinds.table["host"].to_numpy()
    everything = bool(occupies.all())
    # By start: calls that ran at once, and work of no call, stand one behind the other.
    order = None if is_sorted(commands.start) else np.argsort(commands.start, kind="stable")
    for batch in batches(len(commands.device)):
        rows = batch if order is None else order[batch]
        kind, device = kinds.of_command[rows], commands.device[rows]
        code: Codes = kind * np.int64(places) + device
        start, end = commands.start[rows], commands.end[rows]
        sums[0] += np.bincount(code, minlength=limit)
        sums[1] += np.bincount(code, end - start, limit).astype(np.int64)  # exact to 2^53
        call = commands.call[rows]
        for place, chosen in _on_devices(
            device, None if everything else occupies[kind], places - 1
        ):
            here = slice(None) if chosen is None else chosen
            gaps, at = _gaps(states[place], start[here], end[here], call[here])
            sums[2] += np.bincount(code[here][at], gaps, limit).astype(np.int64)
    cells = np.flatnonzero(sums[0] * np.repeat(kept, places))
    count, busy, wait = sums[:, cells]
    return KindTimes(cells // places, cells % places, count, busy, wait)


def _on_devices(
    device: Codes, chosen: npt.NDArray[np.bool_] | None, devices: int
) -> Iterator[tuple[int, Times | None]]:
    """Each device of a batch with the rows of its chosen commands, None for all rows."""
    present = np.flatnonzero(np.bincount(device, minlength=devices + 1)[:devices])
    alone = len(present) == 1 and int(device.max()) < devices
    for place in present.tolist():
        if alone and (chosen is None or chosen.all()):
            yield place, None
            continue
        on = device == place
        rows = np.flatnonzero(on if chosen is None else on & chosen)
        if len(rows):
            yield place, rows


def _gaps(state: _Device, start: Times, end: Times, call: Codes) -> tuple[Times, Times]:
    """Idle times before commands of one device, and which commands these are."""
    before, until = reaches(end, state.until)
    former = np.empty_like(call)
    former[0], former[1:] = state.call, call[:-1]
    state.until, state.call = int(until[-1]), int(call[-1])
    at = np.flatnonzero((start > before) & (call == former) & (call >= 0))
    return start[at] - before[at], at
