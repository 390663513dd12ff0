"""The check of a run that was not checked when it was written, and the lengths that checks changed.

    run = checked(load_bundle(path))
    analyze(as_recorded(run))

Importers check a recording before they make calls of it. Captured runs are not checked in the
user's process, and bundles of older versions were not at all: those are checked when they are
loaded, with the same rules as far as a bundle has what they need. A pass over the columns looks for
anything that `profiler/trace/health.py` could object to; only then are its rules applied.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import structs

from profiler.run.intervals import Codes, Times, is_sorted, order_by
from profiler.run.run import Run
from profiler.trace.columns import distinct
from profiler.trace.events import CATEGORIES, ROOT_DEVICE, DropKind, DropReason
from profiler.trace.manifest_fields import (
    EMPTY_NS,
    HealthAction,
    HealthNote,
    HealthRule,
    Shortened,
)
from profiler.trace.runtime_calls import (
    AFTER_SYNC_NS,
    FLOOR_NS,
    DeviceRows,
    DeviceSyncs,
    HostLaunches,
    host_calls,
    repeats,
    timeless,
)

if TYPE_CHECKING:
    from profiler.trace.health import Checked

_Flags = npt.NDArray[np.bool_]

_SERIAL = re.compile(r"((?:stream|queue) \S+)(?: (?:memcpy|copy|collectives))?")
_PROCESS = re.compile(r"process \d+ (?=thread )")  # of several, whose streams are named alike
_APART = re.compile(rf"(?:rank\d+/)?(?:{ROOT_DEVICE}|mtia:\d+)")  # work there may overlap
_OF_DRIVER = "(unified memory)"
_HOST, _SYNC = CATEGORIES.index("host"), CATEGORIES.index("sync")
_KERNELS = CATEGORIES.index("compute"), CATEGORIES.index("collective")
_LATEST_NS = 1 << 61  # sums of later times may not fit an int64
_TIMES = ("start_ns", "duration_ns")
_SHORTEST_NS, _FEW = 500, 0.01  # as in `trace/health.py`
_EARLY_NS = 20_000  # an importer decides about less: it knows which call of the host launched
_RULES = (
    HealthRule.OVERRUN,
    HealthRule.OUTLIVED,
    HealthRule.CLOCK,
    HealthRule.DRIFT,
    HealthRule.NO_TIME,
    HealthRule.TWICE,
    HealthRule.NO_LENGTH,
    HealthRule.TOO_SHORT,
)
"""Rules that need no more than a bundle has. Others need launches without work, launch numbers or
grids of kernels, which only the imported file has."""


def checked(run: Run) -> Run:
    """`run` with corrected times, without impossible commands and with notes, unless its manifest
    has notes of a check. A recording in which a check found nothing has nothing to find again."""
    if any(not _is_of_job(note) for note in run.info.health):
        return run
    work = _streams_of(run)
    if work is not None and work.is_doubtful():
        run = work.checked()
    return _without_lost_calls(run)


def _is_of_job(note: HealthNote) -> bool:
    """Whether a note is of the clocks of ranks, which are looked at when these are put together."""
    return note.rule is HealthRule.DRIFT and ":" not in note.device


def as_recorded(run: Run) -> Run:
    """`run` with the recorded lengths of commands that a check shortened. Commands that a check set
    aside or shifted stay so."""
    notes = tuple(
        structs.replace(note, action=HealthAction.NOTED)
        if note.action is HealthAction.SHORTENED
        else note
        for note in run.info.health
    )
    length = pl.coalesce("recorded_ns", "duration_ns").alias("duration_ns")
    info = structs.replace(run.info, health=notes)
    return replace(run, commands=run.commands.with_columns(length), info=info)


def _without_lost_calls(run: Run) -> Run:
    """The run with a note of captured calls that launched and have no work, though other calls of
    their submodule have: the recorder lost it, and they are in no median."""
    lost = Counter[str]()
    for drop in run.drops:
        if drop.kind == DropKind.DROPPED_EVENTS and drop.detail.code == DropReason.BUFFERS_FULL:
            lost[drop.where] += drop.count
    if not lost:
        return run
    named = pl.col("submodule").cast(pl.String)
    device, category = (pl.col(name).cast(pl.String) for name in ("device", "category"))
    of_devices = ~device.str.contains(rf"^{_APART.pattern}$") & ~category.is_in(["host", "sync"])
    worked = run.commands.filter(of_devices)["call"].unique()
    traced = run.calls.filter("ops_traced", named.is_in(list(lost)))
    did = pl.col("call").is_in(worked.implode())
    cached = [one.call for one in run.info.cached_calls]
    known = traced.filter(did)["submodule"].cast(pl.String).unique()
    empty = traced.filter(~did, named.is_in(known.implode()), ~pl.col("call").is_in(cached))
    if empty.is_empty():
        return run
    count = sum(lost[name] for name in empty["submodule"].cast(pl.String).unique())
    total = count + run.flows["source"].n_unique()
    note = HealthNote(
        rule=HealthRule.LOST,
        device=", ".join(sorted(empty["device"].cast(pl.String).unique())),
        count=count,
        total=total,
        share=count / total,
        calls=len(empty),
    )
    workless = tuple(sorted({*run.info.workless, *empty["call"].to_list()}))
    info = structs.replace(run.info, health=(*run.info.health, note), workless=workless)
    return replace(run, info=info)


def _streams_of(run: Run) -> _Streams | None:
    """The commands of streams; None if no track is one."""
    commands, names, pids = run.commands, dict[str, int](), dict[str, int]()
    tracks = _texts(commands["track"])
    processes = {
        code: pids.setdefault(found[0], len(pids))
        for code, name in tracks.items()
        if (found := _PROCESS.match(name))
    }
    streams = {
        code: names.setdefault(found[1], len(names))
        for code, name in tracks.items()
        if (found := _SERIAL.fullmatch(name))
    }
    if not streams:
        return None
    stream = _coded(commands["track"], streams)
    rows = np.flatnonzero((stream >= 0) & (commands["duration_ns"].to_numpy() >= 0))
    on = commands["device"][rows]
    devices = {
        code: name for code, name in sorted(_texts(on).items()) if not _APART.fullmatch(name)
    }
    device = _coded(on, {code: number for number, code in enumerate(devices)})
    rows, device = rows[device >= 0], device[device >= 0]
    start = commands["start_ns"].to_numpy()[rows]
    if not len(rows) or int(start.min()) < -_LATEST_NS or int(start.max()) > _LATEST_NS:
        return None
    named = tuple(devices.values()), tuple(names)
    return _Streams(run, rows, device, stream[rows], *named, processes)


def _texts(column: pl.Series) -> dict[int, str]:
    """The texts of a categorical column by their code."""
    texts = column.unique().drop_nulls()
    return dict(zip(texts.to_physical().to_list(), texts.cast(pl.String).to_list(), strict=True))


def _coded(column: pl.Series, numbers: dict[int, int]) -> Times:
    """The number of each text of a categorical column by its code, -1 for others."""
    physical = column.to_physical()
    highest: Any = physical.max()
    highest = max(highest or 0, *numbers, 0)
    table = np.full(highest + 2, -1, dtype=np.int64)
    table[list(numbers)] = list(numbers.values())
    found: Times = table[physical.fill_null(highest + 1).to_numpy()]
    return found


@dataclass(frozen=True, eq=False)
class _Streams:
    """The `rows` of a run's commands that ran on streams of devices, whose commands run one after
    another; `device` and `stream` index the names. `processes` are those of the host's tracks, by
    the tracks' codes, if several processes launched."""

    run: Run
    rows: Times
    device: Times
    stream: Times
    devices: tuple[str, ...]
    names: tuple[str, ...]
    processes: dict[int, int]

    @cached_property
    def start(self) -> Times:
        start: Times = self.run.commands["start_ns"].to_numpy()[self.rows]
        return start

    @cached_property
    def end(self) -> Times:
        end: Times = self.start + self.run.commands["duration_ns"].to_numpy()[self.rows]
        return end

    @cached_property
    def category(self) -> Codes:
        """The code of each of the run's commands."""
        return self.run.commands["category"].to_physical().to_numpy()

    @cached_property
    def launch(self) -> Codes:
        """The host's command that launched each row, -1 if that is not known."""
        source, target = (self.run.flows[name].to_numpy() for name in ("source", "target"))
        kept = self.category[source] == _HOST
        found = np.full(len(self.run.commands), -1, dtype=np.int32)
        found[target[kept][::-1]] = source[kept][::-1]  # the first of several
        return found[self.rows]

    @cached_property
    def launched(self) -> _Flags:
        return self.launch >= 0

    @cached_property
    def queue(self) -> tuple[Times, Times]:
        """The stream of each queue, and the queue of each row: a stream has one per device, and per
        process, which a device serves side by side."""
        key = self.device
        if self.processes:
            process = np.zeros(len(self.rows), dtype=np.int64)
            process[self.launched] = self._process(self.launch[self.launched]) + 1
            key = key * (len(self.processes) + 1) + process
        key = key * len(self.names) + self.stream
        there = np.bincount(key) > 0
        number: Times = np.cumsum(there) - 1
        return np.flatnonzero(there) % len(self.names), number[key]

    def _process(self, rows: Codes) -> Times:
        """The process, or the rank, of commands of the host."""
        if self.processes:
            return _coded(self.run.commands["track"][rows], self.processes)
        rank: Times = self.run.commands["rank"].to_numpy()[rows].astype(np.int64)
        return rank

    @cached_property
    def waits(self) -> Times:
        """The commands in which the host waited."""
        return np.flatnonzero(self.category == _SYNC)

    def _of_host(self, rows: Codes) -> tuple[Times, Times]:
        """When commands of the host started and ended."""
        commands = self.run.commands
        start = commands["start_ns"].to_numpy()[rows]
        return start, start + np.maximum(commands["duration_ns"].to_numpy()[rows], 0)

    # --- Whether any rule could find something: each looks at what a healthy run never has.

    def is_doubtful(self) -> bool:
        """Whether the run has to be checked. Launches that take less time than any host needs are
        of a made-up run, whose other times may be as short."""
        looked_for = (
            self._has_odd_times,
            self._has_odd_lengths,
            self._overlaps,
            self._outlives_a_wait,
        )
        return any(found() for found in looked_for) and not self._is_made_up()

    def _is_made_up(self) -> bool:
        began, returned = self._of_host(self.launch[self.launched])
        return len(began) > 0 and float((returned - began).mean()) < _SHORTEST_NS

    def _has_odd_times(self) -> bool:
        start = self.start
        if int(start.min()) <= 0 and timeless(start, self.end).any():
            return True
        if not self.launched.any():
            return False
        began, returned = self._of_host(self.launch[self.launched])
        return (
            int((start[self.launched] - began).min()) < -_EARLY_NS
            or int(start.min()) < int(began.min()) - EMPTY_NS
            or int(start.max()) > int(returned.max()) + EMPTY_NS
        )

    def _has_odd_lengths(self) -> bool:
        short = self.end - self.start < _SHORTEST_NS
        return int(short.sum()) > _FEW * len(short)

    def _overlaps(self) -> bool:
        """Whether work still runs when that of another launch starts on its stream, or is there
        twice."""
        queues, queue = self.queue
        start, end, launch = self.start, self.end, self.launch
        if not self.launched.all() or len(queues) > 1:
            rows = np.flatnonzero(self.launched)
            rows = rows[order_by(queue[rows], len(queues))]
            start, end, launch, queue = start[rows], end[rows], launch[rows], queue[rows]
        heads = np.flatnonzero(queue[1:] != queue[:-1]) + 1
        for first, last in pairwise((0, *heads.tolist(), len(queue))):
            here = slice(first, last)
            if self._overlaps_on_one(start[here], end[here], launch[here]):
                return True
        return False

    def _overlaps_on_one(self, start: Times, end: Times, launch: Codes) -> bool:
        if not is_sorted(start):
            order = np.argsort(start, kind="stable")
            start, end, launch = start[order], end[order], launch[order]
        if not (end[:-1] - start[1:] > FLOOR_NS).any():
            return False
        over = np.maximum.accumulate(end)[:-1] - start[1:] > FLOOR_NS
        return bool((over & (repeats(start, end) | (launch[1:] != launch[:-1]))).any())

    def _outlives_a_wait(self) -> bool:
        if not len(self.waits):
            return False
        waits = self._calls(self.waits, np.full(len(self.waits), -1))[1]
        launched = np.flatnonzero(self.launched)
        processes = self._process(self.launch[launched])
        for process in np.unique(waits.process).tolist():
            here = launched[processes == process]
            if not len(here) or np.ptp(self.device[here]):
                continue
            returned = self._of_host(self.launch[here])[1]
            order = here[np.argsort(returned, kind="stable")]
            latest = np.append(-EMPTY_NS, np.maximum.accumulate(self.end[order]))
            of = waits.process == process
            ahead = np.searchsorted(np.sort(returned), waits.start[of], side="right")
            if bool((latest[ahead] - waits.end[of] > AFTER_SYNC_NS).any()):
                return True
        return False

    # --- The check itself.

    def _calls(self, rows: Codes, number: Times) -> tuple[HostLaunches, DeviceSyncs]:
        """The launches and synchronizations among commands of the host, with the launches'
        `number`."""
        commands = self.run.commands
        names = _texts(commands["layer"][rows])
        places = {code: place for place, code in enumerate(names)}
        start, end = self._of_host(rows)
        return host_calls(
            [*names.values(), ""],
            _coded(commands["layer"][rows], places),
            start,
            end,
            self._process(rows),
            np.zeros(len(rows), dtype=np.int64),
            number,
        )

    def checked(self) -> Run:
        """The run with corrected times and notes."""
        from profiler.trace.health import check

        run, base = self.run, int(self.start[0]) % 1_000
        launches = np.unique(self.launch[self.launched])
        launches = launches[np.argsort(self._of_host(launches)[0], kind="stable")]
        number = np.full(len(run.commands), -1, dtype=np.int64)
        number[launches] = np.arange(1, len(launches) + 1)
        calls = np.append(launches, self.waits)
        found = check(self._device_rows(number, base), *self._calls(calls, number[calls]))
        notes = tuple(note for note in found.notes if note.rule in _RULES)
        return self._with(found, base, notes) if notes else run

    def _device_rows(self, number: Times, base: int) -> DeviceRows:
        """The rows for the check. Work without a known launch may be of a graph, whose branches
        overlap; a driver's copies run beside those of a stream."""
        commands = self.run.commands.select("kernel", "layer", "shapes", "op_type")[self.rows]
        kinds, kernel = distinct(
            *(
                commands[name].to_physical().fill_null(0).to_numpy()
                for name in ("kernel", "layer", "shapes")
            )
        )
        first = np.zeros(len(kinds), dtype=np.int64)
        first[kernel] = np.arange(len(kernel))
        names = commands[first].select(pl.coalesce("kernel", "layer").cast(pl.String))
        queues, queue = self.queue
        operators = _texts(commands["op_type"])
        of_driver = {code: 0 for code, name in operators.items() if _OF_DRIVER in name}
        return DeviceRows(
            start=self.start - base,
            end=self.end - base,
            device=self.device,
            stream=queue,
            process=np.full(len(self.rows), -1, dtype=np.int64),
            correlation=np.where(self.launched, number[self.launch], -1),
            kernel=np.where(np.isin(self.category[self.rows], _KERNELS), kernel, -1),
            exempt=~self.launched | (_coded(commands["op_type"], of_driver) == 0),
            devices=self.devices,
            streams=tuple(self.names[one] for one in queues.tolist()),
            kernels=tuple(names.to_series().fill_null("").to_list()),
        )

    def _with(self, found: Checked, base: int, notes: tuple[HealthNote, ...]) -> Run:
        """The run with what the check found."""
        run, rows, shorter = self.run, self.rows, found.recorded >= 0
        start, duration = (run.commands[name].to_numpy().copy() for name in _TIMES)
        start[rows], duration[rows] = found.start + base, found.end - found.start
        recorded = np.full(len(start), -1, dtype=np.int64)
        recorded[rows] = found.recorded
        known = pl.Series(recorded)
        commands = run.commands.with_columns(
            start_ns=start, duration_ns=duration, recorded_ns=known.set(known < 0, None)
        )
        there = commands[rows[shorter]].select(Shortened.__struct_fields__).rows(named=True)
        info = structs.replace(
            run.info,
            health=(*run.info.health, *notes),
            shortened=(*run.info.shortened, *(Shortened(**one) for one in there)),
            workless=tuple(sorted({*run.info.workless, *self._workless(found.kept)})),
        )
        kept = np.ones(len(start), dtype=np.bool_)
        kept[rows] = found.kept
        return _in_order(replace(run, commands=commands, info=info), kept)

    def _workless(self, kept: _Flags) -> Iterator[int]:
        """The calls all of whose work is set aside."""
        call = self.run.commands["call"].to_numpy()[self.rows]
        yield from (one for one in np.setdiff1d(call, call[kept]).tolist() if one >= 0)


def _in_order(run: Run, kept: _Flags) -> Run:
    """The run with the commands that are `kept`, in order of call and start."""
    commands = run.commands
    call, start = commands["call"].to_numpy().view(np.uint32), commands["start_ns"].to_numpy()
    rows = np.lexsort((start, call))
    rows = rows[kept[rows]]
    position = np.full(len(commands), -1, dtype=np.int64)
    position[rows] = np.arange(len(rows))
    flows = pl.DataFrame({name: position[run.flows[name].to_numpy()] for name in run.flows.columns})
    moved = pl.lit(pl.Series(position)).gather("command")
    return replace(
        run,
        commands=commands[rows],
        flows=flows.filter((pl.col("source") >= 0) & (pl.col("target") >= 0)),
        args=run.args.with_columns(command=moved).filter(pl.col("command") >= 0),
    )
