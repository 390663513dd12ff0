"""Commands of a run as arrays and groups: the shared input of every table.

A run of 10 M commands has a few thousand distinct groups. Roles, FLOPs and bytes follow from
submodule, layer, op type, category and shapes, so they are computed once per group in plain
Python and spread to the commands by `of_command`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, structs

from profiler.run.columns import CATEGORY, STRING, col
from profiler.run.intervals import (
    Codes,
    CommandTimes,
    Stretches,
    Times,
    batches,
    counts,
    is_sorted,
    physical_codes,
    positions,
    reaches,
    text_codes,
)
from profiler.run.run import Run
from profiler.trace.events import CATEGORIES, HOST_TRACK, Drop, DropReason, device_kind
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import HealthRule

# --- Commands as NumPy arrays: what the interval arithmetic of this package works on.


HOST = CATEGORIES.index("host")
SYNC = CATEGORIES.index("sync")
COMPUTES = np.array([name in ("compute", "other") for name in CATEGORIES])  # by category
MOVES = np.array([name in ("dma", "copy") for name in CATEGORIES])
_OF_STREAM = r" (memcpy|copy|collectives)$"


class CommandArrays(CommandTimes, frozen=True, eq=False):
    """The times of n commands, and the `step` of each, int32 [n]."""

    step: Codes

    @classmethod
    def of(cls, commands: pl.DataFrame, calls: pl.DataFrame) -> CommandArrays:
        """The arrays of a frame of commands; `calls` holds their calls."""
        times = CommandTimes.of(commands, calls)
        return cls(**structs.asdict(times), step=commands["step"].to_numpy())


def queue_codes(track: pl.Series) -> tuple[Codes, int]:
    """A queue number for each track, and how many numbers there are. Kernels and copies of a stream
    are on tracks of their own, but in one queue."""
    codes, names = text_codes(track)
    queues = [re.sub(_OF_STREAM, "", name) for name in names]
    number = {name: place for place, name in enumerate(dict.fromkeys(queues))}
    table = np.array([*(number[name] for name in queues), len(number)], dtype=np.int32)
    return table[codes], len(number) + 1


# --- Columns that tables of commands have in common: what their rows are about.


SUBMODULE = col(
    "submodule", STRING, "submodule of its calls; null for work in no call", True, key=True
)
LAYER = col(
    "layer", STRING, "tensor-level operation: module path or node name", kind="layer", key=True
)
OP_TYPES = col("op_types", STRING, "op types, longest time first, joined with commas", kind="list")


# --- polars expressions that the tables of several analyses share.


def ratio(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """`part / whole`, null if the whole is 0."""
    return pl.when(whole > 0).then(part / whole)


# --- Which calls are not steady: the first of their submodule, which load weights, compile and warm
# caches, and later ones for which something was compiled. Tables keep them apart from the others.


def first_calls(calls: pl.DataFrame) -> pl.Series:
    """Return the numbers of the first calls of each submodule and rank.

    That is the one that started first, and those that started before it ended (on other threads),
    during its initialization. If some calls are traced and others not, the first of either kind
    counts, since it may run on another session.
    """
    end = pl.col("start_ns") + pl.col("duration_ns").clip(0)
    first_end = end.sort_by("start_ns", "call").first().over("rank", "submodule")
    began_first = (pl.col("start_ns").rank("ordinal").over("rank", "submodule", "ops_traced")) == 1
    return calls.sort("call").filter(began_first | (pl.col("start_ns") < first_end))["call"]


def unsteady_calls(run: Run) -> pl.Series:
    """Numbers of the first calls, of the calls in which something was compiled, and of those whose
    work is not recorded."""
    first = first_calls(run.calls)
    others = [*(one.call for one in run.info.compilations), *run.info.workless]
    compiled = pl.Series(others, dtype=first.dtype)
    here = compiled.filter(compiled.is_in(run.calls["call"].implode()))
    return pl.concat([first, here]).unique().sort()


# --- Whether a command belongs to a device or to the host that drives devices.
#
# Commands of category `host` are the host's: work of the pipeline itself, and what launches work on
# devices. In a run with accelerators its CPU is only their host, and what waits there (`sync`:
# `cudaDeviceSynchronize`) is the host's as well. If the CPU is the device itself (ONNX Runtime), a
# wait is one of its own.


_OF_THREAD = re.compile(r" (sync|launches)$")  # tracks of one thread beside each other


def is_accelerator(device: str | None) -> bool:
    """Whether a device is driven by a host: any device but a CPU, which is a host itself."""
    return bool(device) and device_kind(str(device)) != "cpu"


def has_accelerators(devices: Iterable[str | None]) -> bool:
    """Whether one of the devices of a run is an accelerator."""
    return any(map(is_accelerator, devices))


def host_categories(device: str | None, *, accelerated: bool) -> tuple[str, ...]:
    """The categories of commands on a device that belong to the host; `accelerated` says whether
    the run has accelerators."""
    drives = accelerated and bool(device) and not is_accelerator(device)
    return ("host", "sync") if drives else ("host",)


def host_waits(commands: pl.DataFrame, *, accelerated: bool) -> npt.NDArray[np.bool_] | None:
    """Return which `commands` are waits of the host, of category `sync`, bool [n]; None if none
    is."""
    if not accelerated:
        return None
    waits = (commands["category"] == "sync").to_numpy()
    if not waits.any():
        return None
    device, names = text_codes(commands["device"])
    driving = ["sync" in host_categories(name, accelerated=True) for name in names]
    found: npt.NDArray[np.bool_] = waits & np.array([*driving, False])[device]
    return found if found.any() else None


def untraced_calls(run: Run, calls: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which of `calls` were not traced, bool [calls]. An imported call without device work
    had none: importers read all of it."""
    recording, submodules = run.info.recording, run.info.submodules
    imported = recording is not None and bool(recording.source)
    whole = [name for name, one in submodules.items() if imported and one.activate_profiler]
    return ~(calls["ops_traced"] | calls["submodule"].cast(pl.String).is_in(whole)).to_numpy()


def host_unseen(run: Run) -> bool:
    """Whether a foreign trace has nothing of the host: no launches and no other host commands, or
    no launch of any work. What a device waited for in a call is then unknown."""
    if any(note.rule is HealthRule.DEVICE_ONLY for note in run.info.health):
        return True
    capabilities = run.info.capabilities
    if not capabilities or "launches" in capabilities:
        return False
    return not (run.commands["category"] == "host").any()


def thread_of(track: str) -> str:
    """The thread that a track of the host belongs to."""
    return _OF_THREAD.sub("", track)


# --- Where in a model a command lies: its place, whatever its producer calls a layer.


def place_of(layer: pl.Expr, module: pl.Expr) -> pl.Expr:
    """The module of a layer that is a path in it, as those of ONNX nodes are, else the layer.

    The name of a node may be such a path by itself: `/conv_in/Conv` of the module `conv_in`.
    """
    within = layer.str.starts_with(module + "/") | layer.str.starts_with("/")
    return pl.when(within & module.is_not_null()).then(module).otherwise(layer)


def places_by_layer(commands: pl.DataFrame) -> dict[str, str]:
    """The place of each layer among `commands`, by the first module that one of them tells."""
    layers = commands.group_by("layer").agg(pl.col("module").drop_nulls().first())
    layer, module = pl.col("layer").cast(pl.String), pl.col("module").cast(pl.String)
    return dict(layers.select(layer, place_of(layer, module).alias("place")).rows())


# --- Kinds of commands: the distinct tuples of what decides what a command is for and computes.


KIND: Mapping[str, pl.DataType] = {
    "kind": pl.Int32(),
    "submodule": pl.String(),
    "layer": pl.String(),
    "module": pl.String(),
    "place": pl.String(),
    "op_type": pl.String(),
    "category": CATEGORY,
    "shapes": pl.String(),
    "kernel": pl.String(),
    "host": pl.Boolean(),
    "commands": pl.Int64(),
    "total_ns": pl.Int64(),
}
"""The columns of `Kinds.table`. Null: `submodule` for work of no call, `module`, `op_type`,
`shapes` and `kernel` if the trace has none; `kernel` is that of its first command. `place` says
where in the model the layer lies (`place_of`). `host` says whether its commands are the host's, not
a device's (`host_waits`). `total_ns` sums durations; a command that never closed counts as 0."""

_OWN = ("layer", "op_type", "category", "shapes")  # columns of commands
_NAMED = ("submodule", *_OWN, "host")
_KEYS = 1 << 63  # keys are below
_MULTIPLIER = np.int64(-7046029254386353131)  # of Fibonacci hashing: 2^64 / golden ratio


class Kinds(Struct, frozen=True, eq=False):
    """The k kinds of n commands.

    `table` has the columns of `KIND`, one row per kind, in order of submodule, layer, op type,
    category, shapes and host; `kind` is the row's number. `of_command` is the row of each command,
    int32 [n].
    """

    table: pl.DataFrame
    of_command: Codes

    def __len__(self) -> int:
        return len(self.table)

    def spread(self, values: pl.Series) -> pl.Series:
        """Expand `values` from one per kind to one per command."""
        return values.gather(pl.Series(self.of_command.view(np.uint32)))


def kinds_of(
    calls: pl.DataFrame,
    commands: pl.DataFrame,
    rows: Codes | None = None,
    *,
    accelerated: bool | None = None,
) -> Kinds:
    """The kinds of `commands`, whose calls are in `calls`, sorted by `call`.

    `rows` is the row in `calls` of each command, -1 for none, if the caller has it
    (`CommandArrays.call`). `accelerated` says whether the run has accelerators; without it
    `commands` are all of the run's.
    """
    if rows is None:
        rows = positions(commands["call"].to_numpy(), calls["call"].to_numpy())
    if accelerated is None:
        accelerated = has_accelerators(commands["device"].unique())
    waits = host_waits(commands, accelerated=accelerated)
    numbers = _Numbers()
    codes: Codes = np.empty(len(commands), dtype=np.int32)
    duration = commands["duration_ns"].to_numpy()
    for batch, keys in _keys(calls, commands, rows, waits):
        codes[batch] = numbers.of(keys, batch.start)
    first = np.array(numbers.first, dtype=np.int64)
    submodule = calls["submodule"].cast(pl.String)
    row = pl.Series(rows[first])
    first_waits = np.zeros(len(first), np.bool_) if waits is None else waits[first]
    found = (
        commands.select(*_OWN, "module", "kernel")[first]
        .with_columns(pl.col("layer", "module", "op_type", "shapes", "kernel").cast(pl.String))
        .with_columns(
            place=place_of(pl.col("layer"), pl.col("module")),
            submodule=submodule.gather(row.set(row < 0, None)),
            host=(pl.col("category") == "host") | pl.Series(first_waits),
            kind=pl.int_range(pl.len(), dtype=pl.Int32),
            commands=counts(codes, len(first)),
            total_ns=_busy(codes, duration, len(first)),
        )
        .sort(_NAMED, nulls_last=True)
    )
    renumbered = np.empty(len(first), dtype=np.int32)
    renumbered[found["kind"].to_numpy()] = np.arange(len(first))
    for batch in batches(len(codes)):
        codes[batch] = renumbered[codes[batch]]
    table = found.with_columns(kind=pl.int_range(pl.len(), dtype=pl.Int32))
    return Kinds(table.select(pl.col(name).cast(dtype) for name, dtype in KIND.items()), codes)


def _keys(
    calls: pl.DataFrame, commands: pl.DataFrame, rows: Codes, waits: npt.NDArray[np.bool_] | None
) -> Iterator[tuple[slice, Times]]:
    """Yield batches of commands with a key each, int64, equal for commands of one kind. `waits`
    marks waits of the host, which their category does not distinguish."""
    submodule, submodules = text_codes(calls["submodule"])
    of_call = np.append(submodule, len(submodules)).astype(np.int64)  # a row of -1 takes the last
    columns: list[tuple[Callable[[slice], Codes], int]] = []
    radix = (len(submodules) + 1) * (1 if waits is None else 2)
    for name in _OWN:
        highest = commands[name].to_physical().max()
        null = highest + 1 if isinstance(highest, int) else 0
        columns.append((partial(physical_codes, commands[name], null=null), null + 1))
        radix *= null + 1
    if radix >= _KEYS:  # codes of a process that has seen many texts: number those of this run
        numbered = (text_codes(commands[name]) for name in _OWN)
        columns = [(codes.__getitem__, len(names) + 1) for codes, names in numbered]
    if waits is not None:
        columns.append((waits.view(np.int8).__getitem__, 2))
    for batch in batches(len(commands)):
        keys: Times = of_call[rows[batch]]
        for codes_of, limit in columns:
            keys *= limit
            keys += codes_of(batch)
        yield batch, keys


class _Numbers:
    """Numbers keys (int64, at least 0) from 0 in order of appearance.

    A hash table has most of them: one gather per row. A key whose slot is taken is looked up in a
    dictionary.
    """

    def __init__(self) -> None:
        self.first: list[int] = []  # the row of each number's first key
        self._known: dict[int, int] = {}
        self._resize(16)

    def of(self, keys: Times, offset: int) -> npt.NDArray[np.int32]:
        """The number of each key; `offset` is the row of the first."""
        slots = self._slots(keys)
        found = self._values[slots]
        other = np.flatnonzero(self._keys[slots] != keys)
        if len(other):
            distinct, index, inverse = np.unique(
                keys[other], return_index=True, return_inverse=True
            )
            numbers: Times = np.empty(len(distinct), dtype=np.int64)
            for at, (key, row) in enumerate(zip(distinct.tolist(), index.tolist(), strict=True)):
                numbers[at] = self._known.setdefault(key, len(self._known))
                if len(self.first) < len(self._known):
                    self.first.append(offset + int(other[row]))
            found[other] = numbers[inverse]
            self._enter(distinct, numbers)
            if len(self._known) > len(self._keys) // 8:
                self._resize(self._bits + 4)
        return found

    def _slots(self, keys: Times) -> Times:
        hashed = keys * _MULTIPLIER
        hashed >>= 64 - self._bits
        hashed &= (1 << self._bits) - 1
        return hashed

    def _enter(self, keys: Times, numbers: Times) -> None:
        slots = self._slots(keys)
        free = self._keys[slots] < 0
        self._keys[slots[free]], self._values[slots[free]] = keys[free], numbers[free]

    def _resize(self, bits: int) -> None:
        self._bits = bits
        self._keys = np.full(1 << bits, -1, dtype=np.int64)
        self._values = np.zeros(1 << bits, dtype=np.int32)
        known = np.array([*self._known], dtype=np.int64)
        self._enter(known, np.arange(len(known)))


def _busy(codes: Codes, duration: Times, groups: int) -> Times:
    """The sum of the durations of each group, int64 [groups]."""
    sums = np.zeros(groups, dtype=np.int64)
    for rows in batches(len(codes)):
        part = np.bincount(codes[rows], np.maximum(duration[rows], 0), groups)  # exact to 2^53
        sums += part.astype(np.int64)
    return sums


# --- How long each kind of command ran in each call: few numbers that stand for many commands.
#
# Step times, what is computed twice, and what stays the same from step to step all follow from
# them.


class CallKinds(Struct, frozen=True, eq=False):
    """One row per call and kind that ran in it, by call, then kind; int64 [n] each.

    `call` is a row of the frame of calls; work of no call is left out. `busy` sums the durations of
    the `commands`.
    """

    call: Times
    kind: Times
    commands: Times
    busy: Times

    @classmethod
    def of(cls, kinds: Kinds, commands: CommandArrays, calls: int) -> CallKinds:
        """Sum `commands`, whose kinds are `kinds`, by call and kind; `calls` is the number of
        calls."""
        none = np.zeros(0, dtype=np.int64)
        parts: list[tuple[Times, ...]] = [(none,) * 4]
        for call, rows in rows_by_call(commands.call, calls):
            code = kinds.of_command[rows]
            number = np.bincount(code, minlength=len(kinds))
            duration = commands.end[rows] - commands.start[rows]
            busy = np.bincount(code, duration, len(kinds)).astype(np.int64)  # exact to 2^53
            kind = np.flatnonzero(number)
            parts.append((np.full(len(kind), call), kind, number[kind], busy[kind]))
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def rows_by_call(call: Codes, calls: int) -> Iterator[tuple[int, slice | Times]]:
    """Yield each call that has rows, with its rows; `call` is the call of each row, below 0 for
    none."""
    order = None if is_sorted(call) else np.argsort(call, kind="stable")
    number = counts(call, calls)
    last = len(call) - int(number.sum()) + np.cumsum(number)
    for found in np.flatnonzero(number).tolist():
        rows = slice(int(last[found] - number[found]), int(last[found]))
        yield found, rows if order is None else order[rows]


# --- Self time of the host's commands, and how much of it is waiting for a device.
#
# Commands of one thread nest: a copy lies within the Python function that made it. Host work of no
# call (track `Host`) also contains what any thread did meanwhile. A wait is a command, by name a
# synchronization or copy, during all of which the host waited for a device. A launch that returns
# when its work has ended is a wait while that work runs.


_WAITS = r"(?i)synchronize|memcpy"


class HostTimes(Struct, frozen=True, eq=False):
    """Times of commands of the host, int64 [h]: `row`, ascending; `within_ns`, how long other host
    commands ran within the command; `waited_ns`, its own time if it is a wait, else 0. Rows with
    both 0 are left out."""

    row: Times
    within_ns: Times
    waited_ns: Times


def host_times(
    frame: pl.DataFrame,
    commands: CommandArrays,
    kinds: Kinds,
    waits: Stretches,
    synchronous: Sequence[str] = (),
) -> HostTimes:
    """The times of the host's commands in `frame`, whose arrays are `commands` and kinds `kinds`;
    `waits` is when the host waited for a device, `synchronous` are the names of launches that
    return when their work has ended."""
    rows = rows_of(kinds, kinds.table["host"])
    start, end = commands.start[rows], commands.end[rows]
    own = own_times(start, end, _threads(frame["track"].gather(rows)), commands.call[rows] < 0)
    host, layer = kinds.table["host"], kinds.table["layer"]
    launching = host & layer.is_in(synchronous)
    called = host & ((kinds.table["category"] == "sync") | layer.str.contains(_WAITS)) | launching
    waited = np.zeros(len(rows), dtype=np.int64)
    if len(waits) and called.any():
        some = np.flatnonzero(called.to_numpy()[kinds.of_command[rows]])
        within = waits.within(start[some], end[some])
        counts_as = within == end[some] - start[some]
        counts_as |= launching.to_numpy()[kinds.of_command[rows[some]]]
        waited[some] = np.where(counts_as, np.minimum(within, own[some]), 0)
    within = end - start - own
    kept = np.flatnonzero((within > 0) | (waited > 0))
    return HostTimes(rows[kept], within[kept], waited[kept])


def own_times(start: Times, end: Times, thread: Codes, free: npt.NDArray[np.bool_]) -> Times:
    """Return the self time of each command, without commands nested in it, int64 [n]. A command of
    thread -1 contains commands of any thread that are of no call (`free`)."""
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
    """Return the rows that overlap others, by start, longer ones first; `rows` are sorted by
    start."""
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
    """Subtract from the `own` time of each command that of the commands directly within it."""
    above: list[tuple[int, int]] = []  # row and end of those that are open
    for row, begun, ended in zip(
        rows.tolist(), start[rows].tolist(), end[rows].tolist(), strict=True
    ):
        while above and above[-1][1] <= begun:
            above.pop()
        if above:
            own[above[-1][0]] -= min(ended, above[-1][1]) - begun
        above.append((row, ended))


def rows_of(kinds: Kinds, wanted: pl.Series) -> Times:
    """The rows of commands whose kind is `wanted`, bool [k]."""
    of_kind = wanted.to_numpy()
    if not of_kind.any():
        return np.zeros(0, dtype=np.int64)
    found = [
        rows.start + np.flatnonzero(of_kind[kinds.of_command[rows]])
        for rows in batches(len(kinds.of_command))
    ]
    return np.concatenate(found)


def _threads(tracks: pl.Series) -> Codes:
    """A number for the thread of each track, -1 for the host's work of no call."""
    codes, names = text_codes(tracks)
    threads = [thread_of(name) for name in names]
    number = {name: place for place, name in enumerate(dict.fromkeys(threads))}
    number[HOST_TRACK] = -1
    return np.array([*(number[name] for name in threads), len(number)])[codes]


# --- How long kinds of commands ran on each device, and how long the device stood idle before them.


_BEFORE_ALL = np.iinfo(np.int64).min


class KindTimes(Struct, frozen=True, eq=False):
    """Times of each kind on each device, if it has commands there, all [c]. `device` indexes
    `CommandArrays.devices`, its length means none. `wait_ns` is the device's idle time directly
    before these commands, within their calls: it ran nothing, neither transfer nor wait. Host work,
    which a CPU device runs too, does not count as its work."""

    kind: Codes
    device: Codes
    commands: Times
    total_ns: Times
    wait_ns: Times


def kind_times(kinds: Kinds, commands: CommandArrays, kept: npt.NDArray[np.bool_]) -> KindTimes:
    """Times of the kinds that are `kept`, bool [k]."""
    places = len(commands.devices) + 1
    limit = len(kinds) * places
    sums = np.zeros((3, limit), dtype=np.int64)
    stands = [(_BEFORE_ALL, -1)] * len(commands.devices)  # until when it is busy, in which call
    occupies = ~kinds.table["host"].to_numpy()
    everything = bool(occupies.all())
    # Sort by start: the frame has concurrent calls, and work of no call, one after the other.
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
            begun, own_call = start[here], call[here]
            until, last = stands[place]
            before, reach = reaches(end[here], until)
            former = np.append(last, own_call[:-1])
            at = np.flatnonzero((begun > before) & (own_call == former) & (own_call >= 0))
            sums[2] += np.bincount(code[here][at], begun[at] - before[at], limit).astype(np.int64)
            stands[place] = int(reach[-1]), int(own_call[-1])
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


# --- Whether a run's commands have times of their own, and not averages laid end to end.


_TIMELINE = "timeline"  # capability: when each command ran


def times_recorded(info: RunInfo) -> bool:
    """Whether the times of commands were recorded. If not, idle times and waits are unknown.
    Producers that state no capabilities record them."""
    return not info.capabilities or _TIMELINE in info.capabilities


# --- Parts of a run that were recorded one by one, each with a clock of its own: which time a share
# refers to.
#
# An engine's inferences and the averages of its layers are such parts: the layers are what
# inferences consist of. Their sum is not the duration of anything, so a share refers to its own
# part.


def are_apart(drops: Iterable[Drop]) -> bool:
    """Whether `drops` say that the run's pipeline calls are parts recorded one by one."""
    return any(drop.detail.code == DropReason.TIMELINES_APART for drop in drops)


def are_single(drops: Iterable[Drop]) -> bool:
    """Whether `drops` say that each part was measured once, and how often a pipeline runs it is
    unknown. A part is then not a share of another's time."""
    return any(drop.detail.code == DropReason.STEPS_UNKNOWN for drop in drops)


def timelines_of(calls: pl.DataFrame, drops: Iterable[Drop]) -> pl.DataFrame:
    """Return the timeline of each submodule: columns `submodule` and `timeline`, Int32. It is the
    first pipeline call if parts were recorded one by one, a number per submodule if each was
    measured once, else 0. `calls` has the columns `submodule` and `pipeline`."""
    drops = tuple(drops)
    number = pl.col("pipeline").min() if are_apart(drops) else pl.lit(0)
    by_name = calls.group_by(pl.col("submodule").cast(pl.String)).agg(timeline=number)
    if are_single(drops):
        by_name = by_name.sort("submodule").with_columns(timeline=pl.int_range(pl.len()))
    return by_name.with_columns(pl.col("timeline").cast(pl.Int32))
