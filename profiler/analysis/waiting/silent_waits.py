"""Waits of the host that nobody recorded: told by its silence while a device worked.

Where a trace holds no wait, a launch that comes just after the device ran dry has two explanations:
the host worked for as long, or it waited for the device. Nothing of the host was recorded
meanwhile. Work that takes as long as what the device does, time and again, is not to be expected;
so the host is taken to have waited where the device was busy for nearly all of its silence: in the
commands of a call on a queue, launches that came too late left the device idle for at most a tenth
of the times in which the host was silent. A host that launches too late leaves it idle for longer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from profiler.analysis.arrays import HOST, CommandArrays
from profiler.run.intervals import Codes, Times
from profiler.trace.events import CATEGORIES

__all__ = ["Silences", "silent_waits"]

_SYNC = CATEGORIES.index("sync")
_IDLE_PART = 10  # one in so many of the host's silence, at most


class Silences(Struct, frozen=True, eq=False):
    """What was recorded of each host, by the code of its device: begins in order, and until when
    the host was at work by then; int64 [k] each."""

    recorded: dict[int, tuple[Times, Times]]

    @classmethod
    def of(cls, commands: CommandArrays, launchers: Times) -> Silences:
        """Of the hosts of the commands `launchers`, int64 [m], which are rows."""
        kinds = np.isin(commands.category, (HOST, _SYNC))
        recorded = {}
        for host in np.unique(commands.device[launchers]).tolist():
            rows = np.flatnonzero(kinds & (commands.device == host))
            rows = rows[np.argsort(commands.start[rows], kind="stable")]
            recorded[host] = (commands.start[rows], np.maximum.accumulate(commands.end[rows]))
        return cls(recorded)

    def since(self, host: int, moments: Times) -> Times:
        """Since when nothing was recorded of a host at these moments, -1 where something was, or
        nothing had been yet."""
        begun, until = self.recorded[host]
        before = np.searchsorted(begun, moments, side="right") - 1
        since = np.where(before >= 0, until[before], -1)
        silent: Times = np.where(since <= moments, since, -1)
        return silent

    def waited(self, host: int, ended: int, last: int) -> bool:
        """Whether a host of which nothing was recorded until `last` is taken to have waited for
        what had `ended` on a device."""
        since = int(self.since(host, np.array([last]))[0])
        return 0 <= since < ended and (last - ended) * _IDLE_PART <= last - since


def silent_waits(
    commands: CommandArrays,
    silences: Silences,
    row: Times,
    source: Times,
    queue: Codes,
    dry: Times,
    late: npt.NDArray[np.bool_],
) -> Times:
    """The places in `row` of commands that the host is taken to have awaited before it launched the
    next one of the queue, int64 [w], in order.

    `row`, `source` and `queue`, int64 [m]: commands by queue and start, what launched each, the
    queue of each; `dry`, when the queue had done all up to each; `late`, bool [m]: launched after
    the one before in its queue had ended, of which there is one.
    """
    place = np.flatnonzero(late) - 1
    ended = dry[place]
    gap = np.maximum(commands.start[row[place + 1]] - ended, 0)
    since = np.full(len(place), -1)
    host = commands.device[source[place + 1]]
    for code in np.unique(host).tolist():
        own = np.flatnonzero(host == code)
        since[own] = silences.since(code, ended[own])
    silent = (since >= 0) & (since < ended)
    worked = np.where(silent, ended - since, 0)
    call = commands.call[row[place]].astype(np.int64)
    key = queue[place].astype(np.int64) * (int(call.max(initial=0)) + 2) + call + 1
    _, group = np.unique(key, return_inverse=True)
    idle, busy = np.bincount(group, gap), np.bincount(group, worked)
    waited = idle * _IDLE_PART <= idle + busy
    return place[silent & waited[group]]
