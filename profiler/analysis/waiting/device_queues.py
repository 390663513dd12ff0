"""What devices worked through, and when the host waited for them: the way back along a path.

Commands that were launched (a flow from a host command tells) stand in queues, one a stream. A
command had been launched when its launch returned; if it began before that, when its launch began.
It is *host-bound* where the one before it in its queue had ended by then: the device waited for the
host. Else the device was behind, and the command before it is what it waited for. The host waits
for a device in

- sync commands on a CPU, and host commands that are called Synchronize: for the last command that
  ended meanwhile;
- host commands that launched a transfer and did not return before it had ended: for that;
- host commands and waits with a flow from a command of a device: for that;
- silences in which a device worked and after which the host launched at once, or the path ends,
  though no wait was recorded: for what ended last (`silent_waits`).

The critical path, backward from its end, stays with the host until the host returned from such a
wait, or begins on a device where a command ends with it. Then it is what the device did up to
there, back to the last host-bound command, and from there on the host again, when it had launched
this one. That gives *stretches*: times at which the path is on a device. At all other times it is
on the host.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.arrays import HOST, CommandArrays, queue_codes
from profiler.analysis.waiting.run_timeline import RunTimeline
from profiler.analysis.waiting.silent_waits import Silences, silent_waits
from profiler.run.intervals import Codes, Times, batches, group_heads, is_sorted, order_by
from profiler.run.run import Run
from profiler.trace.events import CATEGORIES, device_kind

__all__ = ["Queues", "Stretch"]

_TRANSFERS = tuple(CATEGORIES.index(name) for name in ("dma", "copy"))
_SYNC = CATEGORIES.index("sync")
_WAITS = "(?i)synchronize"


class Stretch(Struct, frozen=True):
    """The path is on a device from `start` to `end`: commands `first` to `last` of `Queues.row`,
    of which none had ended by `start`. `guessed`: because of a wait that nobody recorded."""

    start: int
    end: int
    first: int
    last: int
    guessed: bool


class Queues(Struct, frozen=True, eq=False):
    """m launched commands by queue and start, int64 [m]: `row` of the command; `reach`, until when
    the queue was busy; `bound`, the place of the last host-bound one up to it; `launched`, when it
    had been launched; `host`, the code of the device that launched it. Waits of the host in order
    of their ends, int64 [w]: `returned`, `awaited`, the place of the command waited for, and
    bool [w] `guessed`, whether nobody recorded it. `silences`: when nothing was recorded of
    hosts."""

    row: Times
    reach: Times
    bound: Times
    launched: Times
    host: Codes
    returned: Times
    awaited: Times
    guessed: npt.NDArray[np.bool_]
    silences: Silences

    @classmethod
    def of(cls, timeline: RunTimeline) -> Queues:
        """The queues of a run."""
        commands, launches = timeline.commands, timeline.launches
        if not len(launches):
            nothing = np.zeros(0, dtype=np.int64)
            return cls(*(nothing,) * 7, nothing.astype(np.bool_), Silences({}))
        row, queue, launched, source = _in_queues(timeline)
        heads = group_heads(queue)
        reach = commands.end[row]
        for first, last in zip(heads, [*heads[1:], len(row)], strict=True):
            np.maximum.accumulate(reach[first:last], out=reach[first:last])
        host_bound = np.ones(len(row), dtype=np.bool_)
        host_bound[1:] = launched[1:] > reach[:-1]
        host_bound[heads] = True
        bound = np.where(host_bound, np.arange(len(row)), 0)
        np.maximum.accumulate(bound, out=bound)
        host_bound[heads] = False  # nothing ran before them in their queue
        silences = Silences.of(commands, source)
        silent = silent_waits(commands, silences, row, source, queue, reach, host_bound)
        waits = _waits(timeline, row, reach, heads, silent)
        host = commands.device[source]
        return cls(row, reach, bound, launched, host, *waits, silences)

    def stretches(self, first: int, last: int) -> list[Stretch]:
        """When the path that ends on the host at `last` is on devices, back to `first`; in order of
        time, disjoint."""
        found: list[Stretch] = []
        moment, wait = last, len(self.returned)
        if (ending := self._ending(last)) is not None:
            guessed = int(self.reach[ending]) < last
            moment = self._add(found, ending, last, first, last, guessed)
        while True:
            wait = bisect_right(self.returned, moment, 0, wait) - 1
            if wait < 0 or self.returned[wait] <= first:
                return found[::-1]
            awaited, returned = int(self.awaited[wait]), int(self.returned[wait])
            guessed = bool(self.guessed[wait])
            moment = self._add(found, awaited, returned, first, moment, guessed)

    def _ending(self, last: int) -> int | None:
        """The place of the command that ends at `last`, or that a silent host awaited until then;
        None where there is none."""
        if not len(self.reach):
            return None
        place = int(np.argmax(np.where(self.reach <= last, self.reach, -1)))
        ended = int(self.reach[place])
        if ended == last or (
            ended < last and self.silences.waited(int(self.host[place]), ended, last)
        ):
            return place
        return None

    def _add(
        self,
        found: list[Stretch],
        awaited: int,
        until: int,
        first: int,
        moment: int,
        guessed: bool,
    ) -> int:
        """Add the stretch that ends with the command `awaited` or at `until`, as far as it is
        behind `first`; where the path goes on, which is `moment` without a stretch."""
        bound = int(self.bound[awaited])
        end = min(int(self.reach[awaited]), until)
        start = max(int(self.launched[bound]), first)
        if start >= end:
            return moment
        bound += int(np.searchsorted(self.reach[bound : awaited + 1], start, side="right"))
        found.append(Stretch(start, end, bound, awaited, guessed))
        return start

    def parts(self, stretch: Stretch, commands: CommandArrays) -> tuple[Times, Times, Times]:
        """Rows of the commands in a stretch, the time that each ran in it, and the time before each
        in which its queue was empty though it had been launched; int64 [k] each, in ns. The times
        add up to the stretch."""
        places = slice(stretch.first, stretch.last + 1)
        row = self.row[places]
        until = np.clip(self.reach[places], stretch.start, stretch.end)
        taken = np.diff(until, prepend=stretch.start)
        ran = np.minimum(taken, until - np.clip(commands.start[row], stretch.start, until))
        return row, ran, taken - ran


def _in_queues(timeline: RunTimeline) -> tuple[Times, Codes, Times, Times]:
    """Rows of launched commands by queue and start, the queue of each, when it had been launched,
    and by which row."""
    commands, source, row = timeline.commands, timeline.launches.source, timeline.launches.target
    if not (row[1:] > row[:-1]).all():
        row, first = np.unique(row, return_index=True)
        source = source[first]
    start, launched = np.empty_like(row), np.empty_like(row)
    for part in batches(len(row)):
        start[part] = begun = commands.start[row[part]]
        returned = commands.end[source[part]]
        early = np.minimum(commands.start[source[part]], begun)
        launched[part] = np.where(returned <= begun, returned, early)
    if not is_sorted(start):
        order = np.argsort(start, kind="stable")
        row, launched, source = row[order], launched[order], source[order]
    queue, queues = queue_codes(timeline.run.commands["track"].gather(row))
    queue += commands.device[row] * queues
    if (queue == queue[0]).all():
        return row, queue, launched, source
    order = order_by(queue, (len(commands.devices) + 1) * queues)
    return row[order], queue[order], launched[order], source[order]


def _waits(
    timeline: RunTimeline, row: Times, reach: Times, heads: Times, silent: Times
) -> tuple[Times, Times, npt.NDArray[np.bool_]]:
    """When the host returned from waits, in order, the place in `row` of what it awaited, and
    whether nobody recorded the wait: from those, for the places `silent`, it returned when that
    had ended. Of several with one end those that were recorded come last."""
    run, commands, launches = timeline.run, timeline.commands, timeline.launches
    copied = np.flatnonzero(np.isin(commands.category[launches.target], _TRANSFERS))
    to, by = launches.target[copied], launches.source[copied]
    copied = copied[commands.end[by] >= commands.end[to]]
    source, target = (run.flows[name].to_numpy() for name in ("source", "target"))
    on_host = np.flatnonzero(np.isin(commands.category[target], (HOST, _SYNC)))
    on_host = on_host[commands.category[source[on_host]] != HOST]
    hosts = np.concatenate((launches.source[copied], target[on_host]))
    awaited = _places(row, np.concatenate((launches.target[copied], source[on_host])))
    others, behind = _of_synchronizations(run, commands, reach, heads)
    hosts, awaited = np.concatenate((hosts, others)), np.concatenate((awaited, behind))
    hosts, awaited = hosts[awaited >= 0], awaited[awaited >= 0]
    returned = np.concatenate((reach[silent], commands.end[hosts]))
    awaited = np.concatenate((silent, awaited))
    order = np.argsort(returned, kind="stable")
    return returned[order], awaited[order], order < len(silent)


def _places(row: Times, wanted: Times) -> Times:
    """Where each wanted row stands in `row`, -1 where it does not."""
    if not len(wanted):
        return wanted
    order = np.argsort(row, kind="stable")
    place = order[np.minimum(np.searchsorted(row, wanted, sorter=order), len(row) - 1)]
    found: Times = np.where(row[place] == wanted, place, -1)
    return found


def _of_synchronizations(
    run: Run, commands: CommandArrays, reach: Times, heads: Times
) -> tuple[Times, Times]:
    """Rows of waits for whatever runs, and the place of what ended last in each, -1 for nothing."""
    rows = _synchronizations(run.commands, commands)
    start, end = commands.start[rows], commands.end[rows]
    awaited = np.full(len(rows), -1)
    ended = start.copy()
    for first, last in zip(heads.tolist(), [*heads[1:].tolist(), len(reach)], strict=True):
        place = first + np.searchsorted(reach[first:last], end, side="right") - 1
        later = (place >= first) & (reach[place] > ended)
        awaited[later], ended[later] = place[later], reach[place[later]]
    return rows, awaited


def _synchronizations(frame: pl.DataFrame, commands: CommandArrays) -> Times:
    """Rows of sync commands on CPUs, and of host commands that are called so."""
    layer = frame["layer"]
    names = layer.unique()
    called = names.filter(names.cast(pl.String).str.contains(_WAITS))
    codes = layer.to_physical().to_numpy()
    found = np.zeros(len(frame), dtype=np.bool_)
    for code in called.to_physical().to_list():
        found |= codes == code
    found &= commands.category == HOST
    on_cpu = np.array([*(device_kind(name) == "cpu" for name in commands.devices), False])
    found |= (commands.category == _SYNC) & on_cpu[commands.device]
    return np.flatnonzero(found)
