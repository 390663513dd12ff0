"""ONNX Runtime's profile files: the runs of a session and the nodes of each.

ONNX Runtime writes one JSON array per session, one event per line: `Node` events as nodes finish,
then `SequentialExecutor::Execute` and `model_run` when the run does. Times are integer µs since
the session's profiling start, which is CLOCK_REALTIME. A file at the cap of 1,000,000 events ends
with a `profile_truncated` event (onnxruntime 1.31; older versions only log it).

`tid` is the operating system's number of the thread. A run's nodes have that of its `model_run`,
unless the session executes in parallel (`ORT_PARALLEL`), which hands nodes to further threads. A
run that ONNX Runtime refuses (an input's dims are wrong) leaves no event; one that ends early (a
node fails, `RunOptions.terminate`) leaves its `model_run` and the nodes that had finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from profiler.errors import InputError
from profiler.events import UNKNOWN
from profiler.ort_profiles.event import Args, Event, KernelEvent, Unread
from profiler.ort_profiles.lines import Others, read_events
from profiler.ort_profiles.nodes import NodeColumns, NodeRows, node_name

__all__ = ["EVENT_CAP", "ProfiledRun", "read_profile"]

EVENT_CAP = 1_000_000  # onnxruntime/core/common/profiler.h: max_num_events_
_RUN, _TRUNCATED = "model_run", "profile_truncated"
_DIGITS = 18  # of a number of events
_SLACK = 2_000  # ns: begins and durations are cut to whole µs


@dataclass(frozen=True, slots=True, eq=False)
class ProfiledRun:
    """One `session.run` on `thread`: its window, relative to the profiling start, and its nodes in
    order of completion. `mixed`: nodes of runs that overlapped cannot be told apart, so it has
    none. `dropped` counts events that ONNX Runtime did not record in or after this run."""

    start_ns: int
    duration_ns: int
    thread: int = 0
    nodes: NodeColumns = field(default_factory=NodeColumns)
    mixed: bool = False
    dropped: int = 0

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


@dataclass(frozen=True, slots=True)
class _Ended:
    """A `model_run`, in µs, and how many nodes the file has ahead of it."""

    start: int
    duration: int
    thread: int
    nodes: int


class _Found:
    """What a file holds beside its nodes."""

    def __init__(self, nodes: NodeRows) -> None:
        self.runs: list[_Ended] = []
        self.kernels: list[KernelEvent] = []
        self.dropped = 0
        self._nodes = nodes

    def add(self, others: Others) -> None:
        for ahead, event in others:
            if event.cat == "Kernel":
                self.kernels.append(_kernel(event, self._nodes.last(ahead)))
            elif event.name == _RUN:
                self.runs.append(_Ended(event.ts, event.dur, event.tid, ahead))
            elif event.name == _TRUNCATED and event.args is not None:
                self.dropped = _count(bytes(event.args.dropped_event_count))


def _kernel(event: Event, last: tuple[str, int] | None) -> KernelEvent:
    """A kernel; its node is the last one ahead of it in the file, if that has its parent's name."""
    args = event.args or Args()
    launched = last is not None and last[0] == args.parent_name
    return KernelEvent(
        name=event.name,
        op_type=args.op_name,
        stream=bytes(args.stream).strip(b'"').decode("utf-8", "replace"),
        start_ns=event.ts * 1000,
        duration_ns=event.dur * 1000,
        parent=(last[1] * 1000, node_name(last[0])) if last is not None and launched else None,
    )


def read_profile(path: Path, unread: Unread | None = None) -> Iterator[ProfiledRun]:
    """Read the runs of one session, in order of their ends. Raises InputError where a line is no
    event, after the runs ahead of it, unless `unread` is there to count it; that gets what GPUs
    executed as well.

    Nodes that belong to no run are left out, but for those after the last run: they, and a
    truncation marker, come as a last run whose `duration_ns` is -1.
    """
    rows = NodeRows()
    found = _Found(rows)
    failure: InputError | None = None
    try:
        found.add(read_events(path, rows, unread))
    except InputError as error:
        failure = error
    if unread is not None:
        unread.kernels += found.kernels
        unread.events += rows.events - len(found.kernels)  # added when recording has ended
    nodes = rows.columns()
    begin, waiting = 0, np.zeros(0, dtype=np.intp)
    for run, threads in zip(found.runs, _threads_of_overlapping(found.runs), strict=True):
        waiting = np.concatenate((waiting, np.arange(begin, run.nodes)))
        begin = run.nodes
        cut, waiting = _cut(run, nodes, waiting, threads)
        yield cut
    if failure is not None:
        raise failure
    waiting = np.concatenate((waiting, np.arange(begin, len(nodes))))
    if len(waiting) or found.dropped:
        rest = nodes.rows(waiting)
        start = int(rest.start_ns[0]) if len(rest) else 0
        yield ProfiledRun(start, UNKNOWN, nodes=rest, dropped=max(found.dropped, 0))


def _threads_of_overlapping(runs: Sequence[_Ended]) -> list[frozenset[int] | None]:
    """For each run in order of the file: the threads of the runs that it overlaps, directly or
    through others, its own among them; None where it overlaps none."""
    by_start = sorted(range(len(runs)), key=lambda i: runs[i].start)
    found: list[frozenset[int] | None] = [None] * len(runs)
    together: list[int] = []
    end = -1
    for position in [*by_start, -1]:
        if position < 0 or runs[position].start * 1000 >= end * 1000 + _SLACK:
            threads = frozenset(runs[i].thread for i in together)
            if len(threads) > 1:
                for i in together:
                    found[i] = threads
            together = []
        if position >= 0:
            together.append(position)
            end = max(end, runs[position].start + runs[position].duration)
    return found


def _cut(
    run: _Ended,
    nodes: NodeColumns,
    waiting: npt.NDArray[np.intp],
    threads: frozenset[int] | None,
) -> tuple[ProfiledRun, npt.NDArray[np.intp]]:
    """The run that has ended, and which of the `waiting` nodes may belong to others."""
    start, end = run.start * 1000, (run.start + run.duration) * 1000
    begins = nodes.start_ns[waiting]
    ends = begins + nodes.duration_ns[waiting]
    inside = waiting[(begins >= start - _SLACK) & (ends <= end + _SLACK)]
    if threads is None:
        return ProfiledRun(start, end - start, run.thread, nodes.rows(inside)), waiting[:0]
    mixed = not np.isin(nodes.thread[inside], list(threads)).all()
    own = inside[:0] if mixed else inside[nodes.thread[inside] == run.thread]
    others = waiting[nodes.thread[waiting] != run.thread]
    return ProfiledRun(start, end - start, run.thread, nodes.rows(own), mixed), others


def _count(raw: bytes) -> int:
    text = raw.strip(b'"')
    return int(text) if text.isdigit() and len(text) <= _DIGITS else 0
