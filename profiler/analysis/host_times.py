"""What of the host's commands is their own time, and what of that is waiting for a device.

Commands of one thread nest: a copy lies within the Python function that made it. What the host did
of no call (track `Host`) also holds what any thread did meanwhile. A wait is a command in all of
which the host is known to have waited for a device, and that is called so: a synchronization, or a
copy that returned when the device was done.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.host_side import thread_of
from profiler.run.intervals import Codes, Stretches, Times, batches, is_sorted, text_codes
from profiler.trace.events import HOST_TRACK

__all__ = ["HostTimes", "host_times", "own_times"]

_WAITS = r"(?i)synchronize|memcpy"


class HostTimes(Struct, frozen=True, eq=False):
    """Of commands of the host, int64 [h]: `row`, ascending; `within_ns`, how long other commands of
    the host ran within it; `waited_ns`, its own time where it is a wait, else 0. Rows of which both
    are 0 are left out."""

    row: Times
    within_ns: Times
    waited_ns: Times


def host_times(
    frame: pl.DataFrame, commands: CommandArrays, kinds: Kinds, waits: Stretches
) -> HostTimes:
    """The times of the host's commands in `frame`, whose arrays are `commands` and kinds `kinds`;
    `waits` is when the host waited for a device."""
    rows = _rows_of(kinds, kinds.table["host"])
    start, end = commands.start[rows], commands.end[rows]
    own = own_times(start, end, _threads(frame["track"].gather(rows)), commands.call[rows] < 0)
    called = kinds.table["host"] & (
        (kinds.table["category"] == "sync") | kinds.table["layer"].str.contains(_WAITS)
    )
    waited = np.zeros(len(rows), dtype=np.int64)
    if len(waits) and called.any():
        some = np.flatnonzero(called.to_numpy()[kinds.of_command[rows]])
        whole = waits.within(start[some], end[some]) == end[some] - start[some]
        waited[some] = np.where(whole, own[some], 0)
    within = end - start - own
    kept = np.flatnonzero((within > 0) | (waited > 0))
    return HostTimes(rows[kept], within[kept], waited[kept])


def own_times(start: Times, end: Times, thread: Codes, free: npt.NDArray[np.bool_]) -> Times:
    """How long each command ran without others in it, int64 [n]; those of thread -1 hold what lies
    in them of any thread and is of no call (`free`)."""
    own: Times = end - start
    for number in range(int(thread.max(initial=-1)) + 1):
        rows = np.flatnonzero(thread == number)
        if not is_sorted(start[rows]):
            rows = rows[np.argsort(start[rows], kind="stable")]
        _take_nested(own, _overlapping(rows, start, end), start, end)
    holding = np.flatnonzero(thread < 0)
    if len(holding):
        within = np.flatnonzero(free & (thread >= 0))
        inside = Stretches.union(start[within], end[within])
        own[holding] -= inside.within(start[holding], end[holding])
    return own


def _overlapping(rows: Times, start: Times, end: Times) -> Times:
    """Those of the rows, which are in order of begin, that overlap others, the longer first."""
    if len(rows) < 2:
        return rows[:0]
    reach = np.maximum.accumulate(end[rows])
    apart = np.append(True, start[rows[1:]] >= reach[:-1])
    if apart.all():
        return rows[:0]
    kept = rows[~(apart & np.append(apart[1:], True))]
    found: Times = kept[np.lexsort((-end[kept], start[kept]))]
    return found


def _take_nested(own: Times, rows: Times, start: Times, end: Times) -> None:
    """Take from each of these commands what the ones directly within it took."""
    above: list[tuple[int, int]] = []  # row and end of those that are open
    for row, begun, ended in zip(
        rows.tolist(), start[rows].tolist(), end[rows].tolist(), strict=True
    ):
        while above and above[-1][1] <= begun:
            above.pop()
        if above:
            own[above[-1][0]] -= min(ended, above[-1][1]) - begun
        above.append((row, ended))


def _rows_of(kinds: Kinds, wanted: pl.Series) -> Times:
    """The rows of the commands of these kinds."""
    of_kind = wanted.to_numpy()
    found = [
        rows.start + np.flatnonzero(of_kind[kinds.of_command[rows]])
        for rows in batches(len(kinds.of_command))
    ]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _threads(tracks: pl.Series) -> Codes:
    """A number for the thread of each track, -1 for the host's work of no call."""
    codes, names = text_codes(tracks)
    threads = [thread_of(name) for name in names]
    number = {name: place for place, name in enumerate(dict.fromkeys(threads))}
    number[HOST_TRACK] = -1
    found: Codes = np.array([*(number[name] for name in threads), len(number)])[codes]
    return found
