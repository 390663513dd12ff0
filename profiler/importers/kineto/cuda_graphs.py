"""CUDA and HIP graph replays: match their kernels to the operators of the capture.

A replay shows kernels and one graph launch. It takes operators, shapes and module paths from a
capture whose kernels match 98 % of its own, in order. It never takes times. The number of
comparisons is limited, and replays that were not compared are recorded as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import accumulate
from pathlib import Path

import numpy as np
from msgspec import Struct, field, structs

from profiler.errors import InputError
from profiler.importers.kineto.calls import (
    CallRange,
    Ran,
    annotated_calls,
    backward_calls,
    call_ranges,
    device_calls,
    find_calls,
    guessed_call,
    has_devices_alone,
    periodic_calls,
    stepped_calls,
)
from profiler.importers.kineto.launches import (
    OPERATORS,
    capture_windows,
    launched_work,
    lend,
    operators_around,
    real_operators,
)
from profiler.importers.kineto.modules import PYTHON, RUNTIME, Frames, ModulePaths, training_of
from profiler.importers.kineto.stages import anchored_calls, paired
from profiler.kineto.events import Event
from profiler.kineto.trace_file import KinetoTrace, read_kineto
from profiler.trace.columns import Int64s
from profiler.trace.manifest_fields import CallsFrom

# --- Which captured graph a replay is of, and which of its kernels is which: a replay fits if 98 %
# of its kernels are the capture's, in the same order.
#
# A capture of exactly the replay's kernels is looked up. Others are compared, first the one that
# has most of the kernels in any order. Comparing takes steps, of which there are so many for each
# kernel of a replay or a capture: if they are used up, replays are left uncompared, and that is
# known.


_ALIGNED = 0.98  # of a replay's kernels
_STEPS = 50  # for each kernel; comparing it with another of the same name is one, 0.1 µs
_LEAST_STEPS = 10_000_000


class Sequences(Struct, frozen=True):
    """What a graph runs, in order: `kinds` are `kernel`, `copy` and `fill`; `names` are the names
    of kernels, the kind for others. `named`: kernels have names."""

    kinds: tuple[str, ...]
    names: tuple[str, ...]
    named: bool = True


class Fit(Struct, frozen=True, eq=False):
    """How well captures fit a replay: the `share` of its kernels that a capture has in order. If it
    suffices, `captures` are the numbers of the captures with these kernels, and `places` is the
    index in them of each kernel of the replay, -1 for none. `compared` is False if some captures
    were not compared."""

    share: float
    captures: Sequence[int] = ()
    places: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    compared: bool = True

    @property
    def fits(self) -> bool:
        """Whether the share suffices."""
        return self.share >= _ALIGNED


class _Alike(Struct, frozen=True):
    """Captures with equal kernels: their numbers, what they run, and the count of each name."""

    captures: list[int]
    sequence: tuple[str, ...]
    named: bool
    counts: Counter[str]


class Alignments:
    """Fits replays, with `kernels` kernels in total, to captures."""

    def __init__(self, captures: Sequence[Sequences], kernels: int) -> None:
        self._alike: dict[tuple[bool, tuple[str, ...]], _Alike] = {}
        for number, one in enumerate(captures):
            sequence = one.names if one.named else one.kinds
            new = _Alike([], sequence, one.named, Counter())
            alike = self._alike.setdefault((one.named, sequence), new)
            alike.captures.append(number)
        for alike in self._alike.values():
            alike.counts.update(alike.sequence)
        self._known: dict[Sequences, Fit] = {}
        self._steps = _Steps(kernels + sum(len(one.kinds) for one in captures))
        self.best = 0.0  # largest share of a replay without a fit

    def fit(self, replay: Sequences) -> Fit:
        """The captures that fit a replay, or how far the best one does."""
        if replay not in self._known:
            same = self._alike.get((True, replay.names)) or self._alike.get((False, replay.kinds))
            self._known[replay] = (  # captures with exactly the replay's kernels
                Fit(1.0, same.captures, np.arange(len(replay.names)))
                if same
                else self._compared(replay)
            )
        return self._known[replay]

    def _compared(self, replay: Sequences) -> Fit:
        found = Fit(0.0)
        try:
            for most, alike in self._likely(replay):
                if most <= found.share or (most < _ALIGNED and most <= self.best):
                    break
                places = self._places(replay, alike)
                share = int(np.count_nonzero(places >= 0)) / len(places)
                if share > found.share:
                    found = Fit(share, alike.captures, places)
        except _UsedUpError:
            found = structs.replace(found, compared=False)
        if found.fits:
            return found
        self.best = max(self.best, found.share)
        return Fit(found.share, compared=found.compared)

    def _likely(self, replay: Sequences) -> list[tuple[float, _Alike]]:
        """Captures with the share of a replay's kernels that they have in any order; the largest
        share first, ties by fewest kernels."""
        counts = {True: Counter(replay.names), False: Counter(replay.kinds)}
        size = len(replay.names)
        found = []
        for alike in self._alike.values():
            fewer, more = sorted((counts[alike.named], alike.counts), key=len)
            self._steps.take(1 + len(fewer))
            common = sum(min(count, more[name]) for name, count in fewer.items())
            if common and (alike.named or len(alike.sequence) == size):
                found.append((common / size, alike))
        return sorted(found, key=lambda one: (-one[0], len(one[1].sequence)))

    def _places(self, replay: Sequences, alike: _Alike) -> Int64s:
        """The index in a capture of each of a replay's kernels, -1 for none. Most captures have the
        replay's order; those without names are compared by kinds only."""
        ours, theirs = replay.names if alike.named else replay.kinds, alike.sequence
        self._steps.take(len(ours) + len(theirs))
        pairs = zip(ours, theirs, strict=False)
        same = [place if one == other else -1 for place, (one, other) in enumerate(pairs)]
        places = np.full(len(ours), -1, dtype=np.int64)
        places[: len(same)] = same
        if alike.named and np.count_nonzero(places >= 0) < _ALIGNED * len(ours):
            return _matching(ours, theirs, self._steps)
        return places


class _UsedUpError(Exception):
    """The limit of comparisons is reached."""


class _Steps:
    """Counts how many comparisons are left."""

    def __init__(self, kernels: int) -> None:
        self._left = max(_LEAST_STEPS, _STEPS * kernels)

    def take(self, count: int) -> None:
        """Use `count` comparisons. Raises _UsedUpError if fewer are left."""
        if count > self._left:
            raise _UsedUpError
        self._left -= count


def _matching(ours: Sequence[str], theirs: Sequence[str], steps: _Steps) -> Int64s:
    """The index in `theirs` of each item of `ours`, -1 for none: by the longest run in both, then
    recursively before and after it."""
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    often = Counter(theirs)
    cost = [0, *accumulate(1 + often[name] for name in ours)]
    places = np.full(len(ours), -1, dtype=np.int64)
    left = [(0, len(ours), 0, len(theirs))]
    while left:
        first, last, begin, end = left.pop()
        if first == last or begin == end:
            continue
        steps.take(cost[last] - cost[first])
        run = matcher.find_longest_match(first, last, begin, end)
        if run.size:
            places[run.a : run.a + run.size] = np.arange(run.b, run.b + run.size)
            left.append((first, run.a, begin, run.b))
            left.append((run.a + run.size, last, run.b + run.size, end))
    return places


# --- Graph replay: the kernels of a CUDA or HIP graph, which one launch runs, with the operators
# that were recorded when the graph was captured.
#
# A replayed graph shows kernels and one `…GraphLaunch`. The operators ran once, when the engine
# captured them; a trace of that has the launches in order, without kernels. A replay takes
# operators, dims and module paths, never times, from the capture with the same kernels
# (`Alignments`). Of several captures with the same kernels (one per layer) it takes them in turn.


CAPTURES = "capture_traces"
"""The folder beside a trace in which engines leave the traces of their captures."""

_KINDS = {"gpu_memcpy": "copy", "gpu_memset": "fill"}
_FILES = 64  # of a folder, at most


class Entry(Struct, frozen=True):
    """What a capture says of one kernel, copy or fill; `part` says which of its operator's kernels
    it is."""

    operator: Event | None
    module: int
    paths: ModulePaths
    part: str


class Capture(Struct, frozen=True):
    """One captured graph: its launches in order, by the names of their kernels, or by their kinds
    if names are not recorded. `root` is the class of the module around them; without modules,
    `part` is the call inferred around them."""

    name: str
    root: str
    part: CallRange | None
    kernels: tuple[str, ...]
    kinds: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def sequences(self) -> Sequences:
        """What the graph runs, in order."""
        names = (name or kind for name, kind in zip(self.kernels, self.kinds, strict=True))
        return Sequences(self.kinds, tuple(names), named=any(self.kernels))


class Replays(Struct, frozen=True):
    """Graph launches and the captures that fit them. `launches` are the rows of graph launches;
    `entries` has the entry of each kernel by its index in `launched_work`. By row of a launch,
    `fitting` has its capture, or `alike` a number, from 1, that replays of the same kernels share.
    Counts: replays, their kernels, captures, and replays that were not compared with all captures;
    `best` is the largest share of a replay that no capture fits."""

    launches: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    entries: dict[int, Entry] = field(default_factory=dict)
    fitting: dict[int, Capture] = field(default_factory=dict)
    alike: dict[int, int] = field(default_factory=dict)
    replays: int = 0
    kernels: int = 0
    captures: int = 0
    best: float = 0.0
    uncompared: int = 0


def captures_beside(path: Path) -> tuple[Path, ...]:
    """The traces in the folder `capture_traces` beside a trace."""
    return _traces_in(path.parent / CAPTURES)


def captures_of(paths: Sequence[Path]) -> list[Capture]:
    """The captured graphs in some traces, or folders of traces. Raises InputError if one is not a
    trace, or none contains a capture."""
    files = [file for path in paths for file in (_traces_in(path) if path.is_dir() else (path,))]
    found = [capture for file in files for capture in captures_in(read_kineto(file), file)]
    if paths and not found:
        named = ", ".join(map(str, paths[:3]))
        raise InputError(
            f"{named} holds no capture of a graph (StreamBeginCapture … StreamEndCapture): record "
            "while the engine captures its graphs"
        )
    return found


def _traces_in(folder: Path) -> tuple[Path, ...]:
    if not folder.is_dir():
        return ()
    names = sorted(one for one in folder.iterdir() if one.name.endswith((".json", ".json.gz")))
    return tuple(one for one in names if one.name != "execution_details.json")[:_FILES]


def graph_launches(trace: KinetoTrace) -> Int64s:
    """The rows of the runtime calls that launched a graph."""
    return trace.rows_named(lambda name: "GraphLaunch" in name, *RUNTIME)


def captures_in(trace: KinetoTrace, path: Path) -> list[Capture]:
    """The graphs that were captured in this trace."""
    launches, name = [window.launches for window in capture_windows(trace)], path.name
    if not launches:
        return []
    frames = Frames.of(trace)
    modules = find_calls(frames)
    calls = modules or anchored_calls(trace)
    around = call_ranges(calls)
    paths = ModulePaths(frames, (index for call in calls for index in call.modules))
    operators = real_operators(trace, trace.rows_of(OPERATORS))
    every = np.concatenate(launches)
    place = frames.modules.innermost(trace.thread[every], trace.start_ns[every])
    operator = operators_around(trace, operators, every)
    call = around.innermost(trace.thread[every], trace.start_ns[every])
    found = []
    last = 0
    for number, rows in enumerate(launches):
        own = slice(last, last := last + len(rows))
        # the first call of the part in which most was launched
        inside = [calls[index] for index in around.row[call[own][call[own] >= 0]].tolist()]
        most = Counter(one.class_name for one in inside).most_common(1)
        part = next((one for one in inside if one.class_name == most[0][0]), None)
        events = [trace.events[row] for row in rows.tolist()]
        kinds = tuple(
            "copy" if "Memcpy" in one.name else "fill" if "Memset" in one.name else "kernel"
            for one in events
        )
        kernels = (one.args.kernel if one.args else None for one in events)
        found.append(
            Capture(
                name=f"{name} {number + 1}" if len(launches) > 1 else name,
                root=part.class_name if part and modules else "",
                part=None if modules else part,
                kernels=tuple(str(kernel or "") for kernel in kernels),
                kinds=kinds,
                entries=tuple(_entries(trace, operator[own], place[own], paths, kinds)),
            )
        )
    return found


def _entries(
    trace: KinetoTrace, operator: Int64s, place: Int64s, paths: ModulePaths, kinds: Sequence[str]
) -> Iterable[Entry]:
    """Yield the entry of each launch. Only kernels count as an operator's parts, not its copies and
    fills."""
    of_kernels = zip(operator.tolist(), kinds, strict=True)
    several = Counter(row for row, kind in of_kernels if kind == "kernel")
    seen: Counter[int] = Counter()
    for row, module, kind in zip(operator.tolist(), place.tolist(), kinds, strict=True):
        part = ""
        if row >= 0 and kind == "kernel" and several[row] > 1:
            seen[row] += 1
            part = f" part {seen[row]}/{several[row]}"
        yield Entry(trace.events[row] if row >= 0 else None, module, paths, part)


def joined(trace: KinetoTrace, launches: Int64s, captures: Sequence[Capture]) -> Replays:
    """Match the graphs launched in the rows `launches` with captures, and return their kernels'
    entries."""
    work, launch = launched_work(trace)
    order = np.lexsort((trace.start_ns[work], launch))
    firsts, ends = np.searchsorted(launch, (launches, launches + 1), sorter=order)
    replays, kernels = int((ends > firsts).sum()), int((ends - firsts).sum())
    alignments = Alignments([capture.sequences for capture in captures], kernels)
    entries: dict[int, Entry] = {}
    fitting: dict[int, Capture] = {}
    alike: dict[int, int] = {}
    sequences: dict[tuple[str, ...], int] = {}
    turns: Counter[int] = Counter()
    uncompared = 0
    for row, first, last in zip(launches.tolist(), firsts.tolist(), ends.tolist(), strict=True):
        if first == last:
            continue
        members = order[first:last]
        events = [trace.events[one] for one in work[members].tolist()]
        kinds = tuple(_KINDS.get(event.cat, "kernel") for event in events)
        named = zip(events, kinds, strict=True)
        names = (event.name if event.cat == "kernel" else kind for event, kind in named)
        fit = alignments.fit(Sequences(kinds, tuple(names)))
        if not fit.fits:
            sequence = tuple(sorted(event.name for event in events))
            alike[row] = sequences.setdefault(sequence, len(sequences) + 1)
            uncompared += not fit.compared
            continue
        turn = turns[fit.captures[0]]
        turns[fit.captures[0]] += 1
        capture = fitting[row] = captures[fit.captures[turn % len(fit.captures)]]
        for member, place in zip(members.tolist(), fit.places.tolist(), strict=True):
            if place >= 0:
                entries[member] = capture.entries[place]
    return Replays(
        launches,
        entries,
        fitting,
        alike,
        replays=replays,
        kernels=kernels,
        captures=len(captures),
        best=alignments.best,
        uncompared=uncompared,
    )


# --- The calls of a trace, from the best source that it has: modules, else ranges that its script
# named, else its operators, else repeating kernels; else all of it is one call.
#
# Calls inferred from operators come before named ranges if they are a whole diffusion pipeline:
# scripts name the run, and rarely its parts.


GRAPH = "graph"
"""The name of a call of a graph without a capture, followed by a number if there are several
graphs."""

WHOLE = "trace"
"""The name of the single call if calls cannot be distinguished."""


def calls_of(
    trace: KinetoTrace, frames: Frames, replays: Replays
) -> tuple[list[CallRange], CallsFrom | None]:
    """The calls in order of start, and how they were determined; None for modules. A graph launched
    outside all of them is a call, too."""
    calls, source = _recorded_calls(trace, frames)
    if source in (CallsFrom.KERNEL_PERIOD, CallsFrom.NOTHING):
        graphs = _graphs(trace, [], replays)
        if not graphs:
            return calls, source
        guessed = any(call.guessed for call in graphs)
        source = CallsFrom.CAPTURED_OPERATORS if guessed else CallsFrom.GRAPH_LAUNCHES
        return paired(trace, graphs), source
    calls = calls + _graphs(trace, calls, replays)
    return paired(trace, sorted(calls, key=lambda call: (call.start_ns, call.end_ns))), source


def _graphs(trace: KinetoTrace, calls: list[CallRange], replays: Replays) -> list[CallRange]:
    """Calls for the graph launches outside `calls`. Launches of autograd's thread belong to the
    call that waits for it."""
    rows = replays.launches
    if not len(rows):
        return []
    ran = np.isin(rows, launched_work(trace)[1])
    around = call_ranges(calls)
    call = around.innermost(trace.thread[rows], trace.start_ns[rows])
    if calls:
        lend(trace, around, training_of(trace, rows), rows, call)
    outside = call < 0
    several = max(replays.alike.values(), default=1) > 1
    return [_replay(trace, row, replays, several) for row in rows[ran & outside].tolist()]


def _replay(trace: KinetoTrace, row: int, replays: Replays, several: bool) -> CallRange:
    """The call of one graph launch. It is named after the part inferred in its capture, else the
    captured module, else by a number per set of kernels."""
    place = int(trace.thread[row]), int(trace.start_ns[row]), int(trace.end_ns[row])
    capture = replays.fitting.get(row)
    if capture is not None and capture.part is not None:
        part = capture.part
        return guessed_call(*place, part.instance, part.class_name, part.inputs)
    name = GRAPH
    if capture is not None and capture.root:
        name = f"{GRAPH} {capture.root}"
    elif several:
        name = f"{GRAPH} {replays.alike.get(row, 0)}"
    return CallRange(*place, name, name, class_known=False)


def _of_processes(trace: KinetoTrace, rows: Int64s, launched: Int64s) -> Int64s:
    """Those of `rows` whose process launched work: what it did before its first launch and after
    its last work belongs to the run."""
    pids = {trace.threads[code][0] for code in np.unique(trace.thread[launched]).tolist()}
    own = [code for code, (pid, _) in enumerate(trace.threads) if pid in pids]
    return rows[np.isin(trace.thread[rows], own)]


def _recorded_calls(trace: KinetoTrace, frames: Frames) -> tuple[list[CallRange], CallsFrom | None]:
    named = device_calls(trace) if has_devices_alone(trace) else []
    if named:
        return named, CallsFrom.ANNOTATIONS
    modules = [] if has_devices_alone(trace) else find_calls(frames)
    if modules:
        calls = [*modules, *backward_calls(trace, modules)]
        return sorted(calls, key=lambda call: (call.start_ns, call.end_ns)), None
    for found, source in (
        ()
        if has_devices_alone(trace)
        else (
            (anchored_calls, CallsFrom.OPERATORS),
            (annotated_calls, CallsFrom.ANNOTATIONS),
            (stepped_calls, CallsFrom.PROFILER_STEPS),
        )
    ):
        calls = [call for call in found(trace) if call.ran is not Ran.CAPTURED]
        if calls:
            return calls, source
    work, launch = launched_work(trace)
    calls = periodic_calls(trace, work, launch)
    if calls:
        return calls, CallsFrom.KERNEL_PERIOD
    # one call of all device work and the processes that launched it; without device work, of all
    # that the host did
    launched = launch[launch >= 0]
    host = _of_processes(trace, trace.rows_of(OPERATORS), launched)
    rows = np.concatenate((work, launched, host))
    rows = rows if len(work) else trace.rows_of(OPERATORS, PYTHON)
    thread = int(np.bincount(trace.thread[launched if len(launched) else rows]).argmax())
    start, end = int(trace.start_ns[rows].min()), int(trace.end_ns[rows].max())
    return [CallRange(thread, start, end, WHOLE, WHOLE, class_known=False)], CallsFrom.NOTHING
