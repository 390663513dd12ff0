"""What less work, fewer launches or fewer calls gain in a run whose launches are replayed.

Each gain is given twice: with the host as it was recorded, and where it is never late, with one
launch a call. Recording slows the host, so that what a run without it gains lies between the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.replay.engine import replay
from profiler.analysis.replay.faithful import WholeRun, whole_run
from profiler.analysis.replay.recording import Script
from profiler.analysis.replay.works import NEVER
from profiler.run.device_timeline import Flags, Times
from profiler.run.intervals import ends
from profiler.run.run import Run

__all__ = ["Gain", "Gains", "gains_of"]


class Gain(Struct, frozen=True):
    """By how much the device span becomes shorter, in ns: with the `recorded` host, and with one
    that is `never_late`."""

    recorded: int
    never_late: int

    @property
    def low(self) -> int:
        """The smaller one."""
        return min(self.recorded, self.never_late)

    @property
    def high(self) -> int:
        """The larger one."""
        return max(self.recorded, self.never_late)


class Gains(Struct, frozen=True, eq=False):
    """A run to be replayed; of its n calls the numbers, the host's `begin` and `end`, int64 [n],
    their submodules and branches, and which of them launched work, bool [n]. `op_types` are those
    of the run's commands, by row."""

    whole: WholeRun
    numbers: Times
    begin: Times
    end: Times
    names: npt.NDArray[np.str_]
    branches: npt.NDArray[np.str_]
    queued: Flags
    op_types: pl.Series

    def calls(self, submodule: str, branch: str | None = None) -> Flags:
        """Which calls are those of a submodule, of one branch where it is given; bool [n]."""
        found: Flags = self.names == submodule
        return found if branch is None else found & (self.branches == branch)

    def covers(self, submodule: str | None) -> bool:
        """Whether all calls of a submodule launched work that was recorded."""
        own = self.names == submodule
        return bool(own.any() and self.queued[own].all())

    def of_work(
        self, calls: Flags, less_ns: float, launches: float = 0.0, pace: float = 1.0
    ) -> Gain:
        """Of so much less work in some calls, spread over all of theirs, and so many launches less,
        each with its share of the host's time in them; `pace` is that of the host before."""
        own = self._own(calls)
        works = self.whole.recording.works
        busy = int(works.length[own].sum())
        count = int(np.count_nonzero(own))
        shorter = 1.0 - less_ns / busy if busy else 1.0
        fewer = 1.0 - launches / count if count else 1.0
        return self._both(calls, (max(shorter, 0.0), max(fewer, 0.0) * pace), pace)

    def in_mean_launches(self, calls: Flags, launches: Mapping[str, float]) -> float:
        """So many launches of some op types in some calls, as launches that take the host's mean
        time in these: it takes less for an addition than for an operator ahead of which Python has
        more to do. A launch takes from the one before it, or from the begin of its call."""
        works = self.whole.recording.works
        own = np.flatnonzero(self._own(calls) & (works.launch > NEVER) & (works.row >= 0))
        own = own[np.lexsort((works.launch[own], works.call[own]))]
        call, launch = works.call[own], works.launch[own]
        before = np.append(0, launch[:-1])
        first = np.append(True, call[1:] != call[:-1])[: len(own)]
        before = np.where(first, self.begin[call], before[: len(own)])
        took = np.maximum(launch - before, 0)
        if not took.any():
            return sum(launches.values())
        types = self.op_types.gather(works.row[own]).alias("op_type")
        each = types.to_frame().with_columns(took=took).group_by("op_type").agg(pl.mean("took"))
        names = each["op_type"].cast(pl.String)
        mean: dict[str, float] = dict(zip(names, each["took"], strict=True))
        usual = float(took.mean())
        return sum(count * mean.get(name, usual) for name, count in launches.items()) / usual

    def of_share(self, calls: Flags, share: float, pace: float = 1.0) -> Gain:
        """Of work of some calls that is `share` as long, launched as before."""
        return self._both(calls, (share, pace), pace)

    def without(self, calls: Flags, others: Flags, grown: float = 1.0) -> Gain:
        """Of calls that are not made, while others have `grown` times the work."""
        works = self.whole.recording.works
        lengths = np.where(self._own(others), np.rint(works.length * grown), works.length)
        spans = [
            replay(
                self.whole.recording,
                self._script(calls | others, graph=graph, left_out=calls),
                lengths.astype(np.int64),
            ).device_span_ns
            for graph in (False, True)
        ]
        recorded = self.whole.unchanged.device_span_ns - spans[0]
        return Gain(recorded, self._span(calls | others, 1.0, 1.0, graph=True) - spans[1])

    def _both(self, calls: Flags, after: tuple[float, float], pace: float) -> Gain:
        return Gain(
            self._span(calls, 1.0, pace) - self._span(calls, *after),
            self._span(calls, 1.0, pace, graph=True) - self._span(calls, *after, graph=True),
        )

    def _span(self, calls: Flags, work: float, pace: float, *, graph: bool = False) -> int:
        """The device's span with lengths and host time of some calls multiplied."""
        works = self.whole.recording.works
        lengths = np.where(self._own(calls), np.rint(works.length * work), works.length)
        script = self._script(calls, pace=pace, graph=graph)
        return replay(self.whole.recording, script, lengths.astype(np.int64)).device_span_ns

    def _own(self, calls: Flags) -> Flags:
        """Which works are of some calls."""
        found: Flags = np.append(calls, False)[self.whole.recording.works.call]
        return found

    def _script(
        self,
        calls: Flags,
        *,
        pace: float = 1.0,
        graph: bool = False,
        left_out: Flags | None = None,
    ) -> Script:
        """The whole run, but for what becomes of some calls; those of `left_out` among them do not
        run."""
        first, last = int(self.whole.script.first[0]), int(self.whole.script.last[0])
        rows = np.flatnonzero(calls)
        rows = rows[np.argsort(self.begin[rows], kind="stable")]
        begin = np.clip(self.begin[rows], first, last)
        end = np.maximum.accumulate(np.clip(self.end[rows], begin, last))
        begin = np.maximum(begin, np.append(first, end)[: len(end)])
        edges = np.column_stack((begin, end)).ravel()
        firsts, lasts = np.append(first, edges), np.append(edges, last)
        inside = np.arange(len(firsts)) % 2 == 1
        kept = np.ones(len(firsts), dtype=np.bool_)
        if left_out is not None:
            kept[1::2] = ~left_out[rows]
        return Script(
            firsts[kept],
            lasts[kept],
            np.where(inside, pace, 1.0)[kept],
            (inside & graph)[kept],
        )


def gains_of(run: Run) -> Gains | None:
    """The gains of `run`, whose calls are in order of their numbers; None where it recorded no
    launches, or its unchanged replay is not what was recorded."""
    whole = whole_run(run)
    if whole is None or not whole.fidelity.believed:
        return None
    calls = run.calls
    queued = np.zeros(len(calls), dtype=np.bool_)
    queued[whole.recording.works.call[whole.recording.works.call >= 0]] = True
    return Gains(
        whole=whole,
        numbers=calls["call"].to_numpy().astype(np.int64),
        begin=calls["start_ns"].to_numpy(),
        end=ends(calls),
        names=_texts(calls["submodule"]),
        branches=_texts(calls["branch"]),
        queued=queued & calls["ops_traced"].to_numpy(),
        op_types=run.commands["op_type"],
    )


def _texts(column: pl.Series) -> npt.NDArray[np.str_]:
    texts: Sequence[str] = column.cast(pl.String).fill_null("").to_list()
    return np.array(texts, dtype=np.str_)
