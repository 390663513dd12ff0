"""Which ranges are submodule calls, and which call each piece of work and host call belongs to.

Where ranges name submodules, each outermost of them is a call. Where none does, each process
is one: from its first launch to the return of the last call that launched or waited.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from profiler.events import NO_CALL, NO_ITERATION, NO_STEP, RUN_STAGE
from profiler.importers.components import stages
from profiler.importers.gpu.activity import Api, Bools, Work
from profiler.importers.gpu.marks import Marks, threads_of
from profiler.kineto.ranges import Ranges
from profiler.trace.columns import Int64s

__all__ = ["PlacedCall", "Placing", "place"]


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """A call, in the words of `profiler.events.Call`; `pid` is its process."""

    submodule: str
    stage: str
    step: int
    iteration: int
    pid: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Placing:
    """The calls in order of their begin, and for each host call and piece of work the position of
    its call in them, `NO_CALL` for none. `named` says whether ranges named the calls."""

    calls: tuple[PlacedCall, ...]
    api: Int64s
    work: Int64s
    named: bool


def place(work: Work, api: Api, launch: Int64s, marks: Marks) -> Placing:
    """The calls of a recording; `launch` is the row in `api` that launched each piece of work."""
    marked = np.array([bool(name) for name in marks.submodules], dtype=np.bool_)
    threads = threads_of(marks, api)
    ranges = marks.ranges(marked, threads).outermost()
    if not len(ranges):
        return _by_process(work, api, launch)
    return _by_range(api, launch, marks, ranges)


def _by_process(work: Work, api: Api, launch: Int64s) -> Placing:
    """A call for each process that had work; of all, where the file does not tell whose work was
    whose."""
    pids = np.unique(work.pid)
    told = len(pids) > 1 or bool((pids >= 0).all())
    launching = np.zeros(len(api), dtype=np.bool_)
    launching[launch[launch >= 0]] = True
    of_api = np.full(len(api), NO_CALL, dtype=np.int64)
    calls = []
    for number, pid in enumerate(pids.tolist()):
        own = (api.pid == pid) if told else np.ones(len(api), dtype=np.bool_)
        begin, end = _asked(work.select(work.pid == pid), api, own, launching)
        calls.append(PlacedCall("run", RUN_STAGE, NO_STEP, NO_ITERATION, pid, begin, end))
        of_api[own & (api.start >= begin) & (api.start < end)] = number
    of_work = np.where(launch >= 0, np.append(of_api, NO_CALL)[launch], NO_CALL)
    of_work = np.where(of_work >= 0, of_work, np.searchsorted(pids, work.pid))
    placed = _ordered(calls, of_api, of_work, named=False)
    if len(pids) == 1:
        return placed
    told_apart = enumerate(placed.calls)
    renamed = tuple(replace(call, submodule=f"process_{number}") for number, call in told_apart)
    return replace(placed, calls=renamed)


def _asked(work: Work, api: Api, own: Bools, launching: Bools) -> tuple[int, int]:
    """From a process's first launch to the return of its last call that launched or waited; from
    the first to the last of its work, where no launch is known."""
    begins = api.start[own & launching]
    if not len(begins):
        return int(work.start.min()), int(work.end.max())
    return int(begins.min()), int(api.end[own & (launching | api.waits)].max())


def _by_range(api: Api, launch: Int64s, marks: Marks, ranges: Ranges) -> Placing:
    threads = threads_of(marks, api)
    code = np.searchsorted(threads, api.thread).astype(np.int32)
    of_api = ranges.innermost(code, api.start)
    _lend(api, ranges, threads, of_api)
    of_work = np.where(launch >= 0, of_api[launch] if len(api) else NO_CALL, NO_CALL)
    numbers = _passes(marks, threads, ranges)
    pids = ((threads >> 24) & 0xFFFFFF).tolist()
    calls = [
        PlacedCall(
            marks.submodules[int(marks.text[row])], "", NO_STEP, number, pids[thread], start, end
        )
        for row, thread, start, end, number in zip(
            ranges.row.tolist(),
            ranges.thread.tolist(),
            ranges.start_ns.tolist(),
            ranges.end_ns.tolist(),
            numbers.tolist(),
            strict=True,
        )
    ]
    placed = _ordered(calls, of_api, of_work, named=True)
    return replace(placed, calls=_staged(placed.calls))


def _lend(api: Api, ranges: Ranges, threads: Int64s, of_api: Int64s) -> None:
    """Give what threads without calls of their own asked to the one call that is open in their
    process at that time."""
    calling = threads[np.unique(ranges.thread)]
    rows = np.flatnonzero(~np.isin(api.thread, calling))
    of_range = (threads[ranges.thread] >> 24) & 0xFFFFFF
    for pid in np.unique(api.pid[rows]).tolist():
        own = np.flatnonzero(of_range == pid)
        here = rows[api.pid[rows] == pid]
        order = own[np.argsort(ranges.start_ns[own], kind="stable")]
        begun = np.searchsorted(ranges.start_ns[order], api.start[here], side="right")
        ended = np.searchsorted(np.sort(ranges.end_ns[own]), api.start[here], side="right")
        single = begun - ended == 1
        latest = order[np.maximum(begun[single] - 1, 0)] if len(order) else order
        inside = ranges.end_ns[latest] > api.start[here[single]]
        of_api[here[single][inside]] = latest[inside]


def _passes(marks: Marks, threads: Int64s, ranges: Ranges) -> Int64s:
    """The pass of the program's loop in which each call is, `NO_ITERATION` for none; a single one
    is no loop."""
    found = marks.ranges(marks.passes >= 0, threads)
    if len(found) < 2:
        return np.full(len(ranges), NO_ITERATION, dtype=np.int64)
    inside = found.innermost(ranges.thread, ranges.start_ns)
    number = marks.passes[marks.text[found.row]]
    return np.where(inside >= 0, number[inside], NO_ITERATION)


def _ordered(calls: list[PlacedCall], of_api: Int64s, of_work: Int64s, *, named: bool) -> Placing:
    order = sorted(range(len(calls)), key=lambda number: (calls[number].start_ns, number))
    position = np.empty(len(calls) + 1, dtype=np.int64)
    position[order] = np.arange(len(calls))
    position[-1] = NO_CALL
    ordered = tuple(calls[number] for number in order)
    return Placing(ordered, position[of_api], position[of_work], named)


def _staged(calls: tuple[PlacedCall, ...]) -> tuple[PlacedCall, ...]:
    """The calls with stage, step and iteration."""
    names, numbers = [call.submodule for call in calls], [call.iteration for call in calls]
    return tuple(
        replace(call, stage=stage, step=step, iteration=iteration)
        for call, (stage, step, iteration) in zip(calls, stages(names, numbers), strict=True)
    )
