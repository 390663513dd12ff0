"""Graph replay: kernels of a CUDA or HIP graph, which one launch runs, with what was told of them
when the graph was captured.

A replayed graph shows kernels and one `…GraphLaunch`. The operators ran once, when the engine
captured them; a trace of that has the launches in order, without kernels. A replay takes operators,
dims and module paths, never times, from the capture whose kernels are its own (`graph_alignment`).
Of several of the same kernels (one a layer) it takes the next in turn.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from profiler.errors import InputError
from profiler.importers.kineto.anchors import anchored_calls
from profiler.importers.kineto.calls import CallRange, call_ranges, find_calls
from profiler.importers.kineto.frames import Frames
from profiler.importers.kineto.graph_alignment import Alignments, Sequences
from profiler.importers.kineto.graph_capture import capture_windows
from profiler.importers.kineto.launch import (
    OPERATORS,
    RUNTIME,
    launched_work,
    operators_around,
    real_operators,
)
from profiler.importers.kineto.layers import ModulePaths
from profiler.kineto.events import Event
from profiler.kineto.trace_file import KinetoTrace, read_kineto
from profiler.trace.columns import Int64s

__all__ = [
    "CAPTURES",
    "Capture",
    "Entry",
    "Replays",
    "captures_beside",
    "captures_in",
    "captures_of",
    "graph_launches",
    "joined",
]

CAPTURES = "capture_traces"
"""The folder beside a trace in which engines leave the traces of their captures."""

_GRAPH = re.compile(r"GraphLaunch")
_KINDS = {"gpu_memcpy": "copy", "gpu_memset": "fill"}
_FILES = 64  # of a folder


class Entry(Struct, frozen=True):
    """What a capture tells of one kernel, copy or fill; `part` is which of its operator's kernels
    it is."""

    operator: Event | None
    module: int
    paths: ModulePaths
    part: str


class Capture(Struct, frozen=True):
    """One captured graph: its launches in order, by the names of their kernels, or, where the
    recorder tells none, by their kinds; `root` is the class of the module around them, `part` what
    was guessed around them where no module is."""

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
    """`launches` are the rows of graph launches, `entries` by the place of a kernel in what
    `launched_work` finds; by the row of a graph launch `fitting` has the capture that fits, or
    `alike` a number that replays of the same kernels share, from 1 on. Numbers of replays, of their
    kernels and of captures, the best alignment of a replay that none fits, and the number of those
    that were not compared with all captures."""

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
    """The captured graphs of some traces, or of folders of them. Raises InputError where one is no
    trace, or none holds a capture."""
    files = [file for path in paths for file in (_traces_in(path) if path.is_dir() else (path,))]
    found = [capture for file in files for capture in _captures(read_kineto(file), file.name)]
    if paths and not found:
        named = ", ".join(map(str, paths[:3]))
        raise InputError(
            f"{named} holds no capture of a graph (StreamBeginCapture … StreamEndCapture): record "
            "while the engine captures its graphs"
        )
    return found


def captures_in(trace: KinetoTrace, path: Path) -> list[Capture]:
    """The graphs that a trace itself captured."""
    return _captures(trace, path.name)


def _traces_in(folder: Path) -> tuple[Path, ...]:
    if not folder.is_dir():
        return ()
    names = sorted(one for one in folder.iterdir() if one.name.endswith((".json", ".json.gz")))
    return tuple(one for one in names if one.name != "execution_details.json")[:_FILES]


def graph_launches(trace: KinetoTrace) -> Int64s:
    """The rows of the runtime calls that launched a graph."""
    return _named(trace, _GRAPH)


def _named(trace: KinetoTrace, pattern: re.Pattern[str]) -> Int64s:
    """The rows of the runtime calls whose name has a pattern, asked once for each name."""
    rows = trace.rows_of(*RUNTIME)
    has = trace.events.named(rows, lambda name: pattern.search(name) is not None)
    found: Int64s = rows[has]
    return found


def _captures(trace: KinetoTrace, name: str) -> list[Capture]:
    launches = [window.launches for window in capture_windows(trace)]
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
        part = _part(calls, around.row[call[own][call[own] >= 0]])
        kinds = tuple(_kind(trace.events.name_of(row)) for row in rows.tolist())
        found.append(
            Capture(
                name=f"{name} {number + 1}" if len(launches) > 1 else name,
                root=part.class_name if part and modules else "",
                part=None if modules else part,
                kernels=tuple(_kernel(trace.events[row]) for row in rows.tolist()),
                kinds=kinds,
                entries=tuple(_entries(trace, operator[own], place[own], paths, kinds)),
            )
        )
    return found


def _part(calls: list[CallRange], around: Int64s) -> CallRange | None:
    """The first call of the part in which most was launched; None where nothing was."""
    counts = Counter(calls[index].class_name for index in around.tolist())
    most = counts.most_common(1)[0][0] if counts else None
    return next((calls[i] for i in around.tolist() if calls[i].class_name == most), None)


def _kernel(event: Event) -> str:
    return str(event.args.kernel) if event.args and event.args.kernel else ""


def _kind(runtime: str) -> str:
    if "Memcpy" in runtime:
        return "copy"
    return "fill" if "Memset" in runtime else "kernel"


def _entries(
    trace: KinetoTrace,
    operator: Int64s,
    place: Int64s,
    paths: ModulePaths,
    kinds: Sequence[str],
) -> Iterable[Entry]:
    """What is told of each launch. An operator's work is that of its kernels: what it clears or
    copies beside them is no part of it."""
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
    """The kernels of each replayed graph, launched in these rows, with the entries of the capture
    that fits it."""
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
        fit = alignments.fit(_sequences(events))
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


def _sequences(events: Sequence[Event]) -> Sequences:
    kinds = tuple(_KINDS.get(event.cat, "kernel") for event in events)
    named = zip(events, kinds, strict=True)
    names = (event.name if event.cat == "kernel" else kind for event, kind in named)
    return Sequences(kinds, tuple(names))
