"""What less work, fewer launches or fewer calls gain in a run whose launches are replayed.

Each gain is given twice: with the host as it was recorded, and if it is never late (it takes no
time in calls but for waits). Recording slows the host, so that what a run without it gains lies
between the two.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.context import Inputs, shared
from profiler.analysis.replay import (
    NEVER,
    Script,
    Waits,
    WholeRun,
    replay,
    whole_run,
    why_not_replayed,
    why_not_without_others,
)
from profiler.analysis.timeline import begun
from profiler.run.intervals import Stretches, Times, ends
from profiler.run.launches import Flags
from profiler.run.run import Run

LONGEST_LAUNCH = 1_000_000  # ns of the host: in more it did something else, too


class Gain(Struct, frozen=True):
    """By how much the device span becomes shorter, in ns: with the `recorded` host, and with one
    that is `never_late`."""

    recorded: int
    never_late: int

    @property
    def low(self) -> int:
        """The smaller gain."""
        return min(self.recorded, self.never_late)

    @property
    def high(self) -> int:
        """The larger gain."""
        return max(self.recorded, self.never_late)


class Gains(Struct, frozen=True, eq=False):
    """A run to be replayed; of its n calls the numbers, the host's `begin` and `end` and when it
    turned to them (`begun`), int64 [n] on the clock of the recording, their submodules and
    branches, and which of them launched work, bool [n]. `op_types` are those of the run's commands,
    by row."""

    whole: WholeRun
    numbers: Times
    begin: Times
    end: Times
    begun: Times
    names: npt.NDArray[np.str_]
    branches: npt.NDArray[np.str_]
    queued: Flags
    op_types: pl.Series

    def calls(self, submodule: str) -> Flags:
        """Which calls are those of a submodule, bool [n]."""
        found: Flags = self.names == submodule
        return found

    def covers(self, submodule: str | None) -> bool:
        """Whether all calls of a submodule launched work that was recorded."""
        own = self.names == submodule
        return bool(own.any() and self.queued[own].all())

    def of_work(self, calls: Flags, less_ns: float, launches: float) -> Gain:
        """Return the gain of `less_ns` less work in some calls, spread over all of their work, and
        of so many launches less, each with its share of the host's time in them."""
        own = self._own(calls)
        works = self.whole.recording.works
        busy = int(works.length[own].sum())
        count = int(np.count_nonzero(own))
        shorter = 1.0 - less_ns / busy if busy else 1.0
        fewer = 1.0 - launches / count if count else 1.0
        return self._both(calls, (max(shorter, 0.0), max(fewer, 0.0)), 1.0)

    def host_ns(self, calls: Flags, launches: float) -> float:
        """The host's time for so many launches in some calls, in ns: each has its share of the
        host's time in them without waits."""
        waited = self.whole.recording.waited
        worked = self.end - self.begin - waited(self.end) + waited(self.begin)
        count = int(np.count_nonzero(self._own(calls)))
        return float(worked[calls].sum()) * min(launches / count, 1.0) if count else 0.0

    def in_mean_launches(self, calls: Flags, launches: Mapping[str, float]) -> float:
        """Convert numbers of launches by op type, in some calls, to launches that take the host's
        mean time there. The host takes less for an addition than for an operator that needs more
        Python. A launch takes from the one before it, or from the start of its call, without the
        host's waits; what takes longer than `LONGEST_LAUNCH` has a pause in it, which stays."""
        recording = self.whole.recording
        works = recording.works
        own = np.flatnonzero(self._own(calls) & (works.launch > NEVER) & (works.row >= 0))
        own = own[np.lexsort((works.launch[own], works.call[own]))]
        call, launch = works.call[own], works.launch[own]
        before = np.append(0, launch[:-1])
        first = np.append(True, call[1:] != call[:-1])[: len(own)]
        before = np.where(first, self.begin[call], before[: len(own)])
        waited = recording.waited(launch) - recording.waited(before)
        took = np.maximum(launch - before - waited, 0)
        each_ns = self.host_ns(calls, 1)
        if not took.any() or each_ns <= 0:
            return sum(launches.values())
        types = self.op_types.gather(works.row[own]).alias("op_type")
        quick = took <= LONGEST_LAUNCH
        each = types.to_frame().with_columns(took=took).filter(quick)
        each = each.group_by("op_type").agg(pl.mean("took"))
        names = each["op_type"].cast(pl.String)
        mean: dict[str, float] = dict(zip(names, each["took"], strict=True))
        usual = float(took[quick].mean()) if quick.any() else LONGEST_LAUNCH
        total = sum(count * mean.get(name, usual) for name, count in launches.items())
        return total / each_ns

    def of_share(self, calls: Flags, share: float, pace: float = 1.0) -> Gain:
        """Return the gain if the work of some calls takes `share` of its time, launched as
        before."""
        return self._both(calls, (share, pace), pace)

    def without(self, calls: Flags, others: Flags, grown: float = 1.0) -> Gain:
        """Return the gain if `calls` are not made, and the host's work for them neither, while
        `others` have `grown` times the work."""
        works = self.whole.recording.works
        lengths = np.where(self._own(others), np.rint(works.length * grown), works.length)
        spans = [
            replay(
                self.whole.recording,
                self._script(calls | others, pace, left_out=calls),
                lengths.astype(np.int64),
            ).device_span_ns
            for pace in (1.0, 0.0)
        ]
        recorded = self.whole.unchanged.device_span_ns - spans[0]
        return Gain(recorded, self._span(calls | others, 1.0, 0.0) - spans[1])

    def waits_for(self, rows: Times) -> Flags:
        """Return which waits are for the copies in these rows of commands, bool [v]: waits of the
        calls that copied, and of later synchronizations with no launch in between."""
        waits, works = self.whole.recording.waits, self.whole.recording.works
        own = np.flatnonzero((waits.own >= 0) & (waits.back <= 1))
        gone = np.zeros(len(waits.begin), dtype=np.bool_)
        gone[own] = np.isin(works.row[waits.own[own]], rows)
        moments = np.sort(works.moment)
        before = np.searchsorted(moments, waits.begin[1:], side="left")
        launched = before > np.searchsorted(moments, waits.begin[:-1], side="right")
        heads = np.append(True, launched | (waits.own[1:] >= 0))[: len(gone)]
        found: Flags = gone | gone[heads][np.cumsum(heads) - 1]
        return found

    def without_waits(self, gone: Flags, copies: Flags) -> int:
        """Return by how much the device span becomes shorter, in ns, without the waits `gone`, bool
        [v], and if `copies` among the works, bool [w], take no time; with the host as recorded."""
        waits, works = self.whole.recording.waits, self.whole.recording.works
        spared = Stretches.union(waits.begin[gone], waits.end[gone])
        left = Waits(*(getattr(waits, name)[~gone] for name in Waits.__struct_fields__))
        return self._sparing(spared, left, np.where(copies, 0, works.length))

    def without_host(self, spared: Stretches) -> int:
        """Return by how much the device span becomes shorter, in ns, if the host's work at these
        times takes no time; its waits still do."""
        recording = self.whole.recording
        return self._sparing(
            recording.clock.during(spared), recording.waits, recording.works.length
        )

    def _sparing(self, spared: Stretches, waits: Waits, lengths: Times) -> int:
        recording, script = self.whole.recording, self.whole.script
        first, last = int(script.first[0]), int(script.last[0])
        inner = np.column_stack((spared.start, spared.end)).ravel()
        edges = np.clip(np.concatenate(([first], inner, [last])), first, last)
        pace = np.where(np.arange(len(edges) - 1) % 2 == 1, 0.0, 1.0)
        spared_host = replace(Script.of(edges[:-1], edges[1:]), pace=pace)
        changed = replay(replace(recording, waits=waits), spared_host, lengths)
        return self.whole.unchanged.device_span_ns - changed.device_span_ns

    def _both(self, calls: Flags, after: tuple[float, float], pace: float) -> Gain:
        return Gain(
            self._span(calls, 1.0, pace) - self._span(calls, *after),
            self._span(calls, 1.0, 0.0) - self._span(calls, after[0], 0.0),
        )

    def _span(self, calls: Flags, work: float, pace: float) -> int:
        """The device span, in ns, with lengths and host time of some calls multiplied."""
        works = self.whole.recording.works
        lengths = np.where(self._own(calls), np.rint(works.length * work), works.length)
        script = self._script(calls, pace)
        return replay(self.whole.recording, script, lengths.astype(np.int64)).device_span_ns

    def _own(self, calls: Flags) -> Flags:
        """Return which works are of some calls, bool [w]."""
        return np.append(calls, False)[self.whole.recording.works.call]

    def _script(self, calls: Flags, pace: float, left_out: Flags | None = None) -> Script:
        """The whole run with the host's time in some calls multiplied by `pace`; those of
        `left_out` among them do not run."""
        first, last = int(self.whole.script.first[0]), int(self.whole.script.last[0])
        rows = np.flatnonzero(calls)
        rows = rows[np.argsort(self.begin[rows], kind="stable")]
        begin = self.begin if left_out is None else np.where(left_out, self.begun, self.begin)
        begin = np.clip(begin[rows], first, last)
        end = np.maximum.accumulate(np.clip(self.end[rows], begin, last))
        begin = np.maximum(begin, np.append(first, end)[: len(end)])
        edges = np.column_stack((begin, end)).ravel()
        firsts, lasts = np.append(first, edges), np.append(edges, last)
        inside = np.arange(len(firsts)) % 2 == 1
        kept = np.ones(len(firsts), dtype=np.bool_)
        if left_out is not None:
            kept[1::2] = ~left_out[rows]
        paces = np.where(inside, pace, 1.0)
        return replace(Script.of(firsts[kept], lasts[kept]), pace=paces[kept])


def gains_of(run: Run, whole: WholeRun | None = None) -> Gains | None:
    """The gains of `run`, whose calls are in order of their numbers; None if it recorded no
    launches, or if it cannot be replayed (`why_not_replayed`, `Fidelity`). `whole` is its replay,
    if that is made."""
    whole = whole or whole_run(run)
    if whole is None or not whole.fidelity.believed:
        return None
    if why_not_replayed(run, whole.recording) is not None:
        return None
    calls, clock = run.calls, whole.recording.clock.at
    names, branches = calls.select(pl.col("submodule", "branch").cast(pl.String).fill_null(""))
    queued = np.zeros(len(calls), dtype=np.bool_)
    queued[whole.recording.works.call[whole.recording.works.call >= 0]] = True
    return Gains(
        whole=whole,
        numbers=calls["call"].to_numpy().astype(np.int64),
        begin=clock(calls["start_ns"].to_numpy()),
        end=clock(ends(calls)),
        begun=clock(begun(run, calls["start_ns"].to_numpy(), ends(calls))),
        names=np.array(names.to_list(), dtype=np.str_),
        branches=np.array(branches.to_list(), dtype=np.str_),
        queued=queued & calls["ops_traced"].to_numpy(),
        op_types=run.commands["op_type"],
    )


# --- The gains of an analysis' run, made once and only when asked for.


@shared
def whole_replay(of: Inputs) -> WholeRun | None:
    """Return the whole run to be replayed; None if it recorded no launches."""
    return whole_run(of.run)


@shared
def replay_gains(of: Inputs) -> Gains | None:
    """Return the gains by replays of the whole run; None if it cannot be replayed."""
    return gains_of(of.run, whole_replay(of))


def gain_without_collectives(of: Inputs) -> int | None:
    """Return how much shorter a replay of the run is if collectives take no time, in ns; None if it
    cannot be replayed. Nothing then waits for other ranks, so it need not be known when they come.
    """
    whole = whole_replay(of)
    if whole is None or not whole.fidelity.believed:
        return None
    if why_not_without_others(of.run, whole.recording, None) is not None:
        return None
    works = whole.recording.works
    collective = (of.run.commands["category"] == "collective").to_numpy()
    zero = collective[works.row] & (works.row >= 0)
    changed = replay(whole.recording, whole.script, np.where(zero, 0, works.length))
    return max(whole.unchanged.device_span_ns - changed.device_span_ns, 0)
