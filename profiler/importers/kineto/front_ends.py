"""Processes that ran operators without launching work, beside one that launched some.

Front ends of servers and data loaders record themselves, too. What they do is no submodule of the
model: their events are left out, and a note says so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profiler.importers.kineto.launches import DEVICE_WORK, OPERATORS
from profiler.importers.kineto.modules import RUNTIME
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s
from profiler.trace.manifest_fields import HealthAction, HealthNote, HealthRule

_LAUNCHES = (
    "Launch",
    "Memcpy",
    "Memset",
    "Enqueue",
)  # in names of calls that put work onto a device


def launches_work(trace: KinetoTrace) -> bool:
    """Whether the trace has launches and work of a device."""
    return bool(len(trace.rows_of(*DEVICE_WORK)) and len(_launches(trace)))


def operators_alone(trace: KinetoTrace) -> int:
    """How many operators a trace without a launch and without work of a device has; else 0."""
    nothing = not len(trace.rows_of(*DEVICE_WORK)) and not len(_launches(trace))
    return len(trace.rows_of(OPERATORS)) if nothing else 0


def without_front_ends(trace: KinetoTrace) -> KinetoTrace:
    """The trace without the processes that have operators and neither launches nor work, if
    another one has launches; a note for each."""
    if not launches_work(trace):
        return trace
    working = {*_pids(trace, _launches(trace)), *_pids(trace, trace.rows_of(*DEVICE_WORK))}
    operators = _pids(trace, trace.rows_of(OPERATORS))
    gone = {pid: count for pid, count in operators.items() if pid not in working}
    if not gone:
        return trace
    threads = [code for code, (pid, _) in enumerate(trace.threads) if str(pid) in gone]
    kept = ~np.isin(trace.thread, threads)
    notes = (front_end(f"process {pid}", count) for pid, count in gone.items())
    rows = {name: one[kept[one]] for name, one in trace.rows.items()}
    return replace(trace, rows=rows, health=(*trace.health, *notes))


def front_end(name: str, operators: int) -> HealthNote:
    """The note of a process, or of a file, without launches."""
    rule, action = HealthRule.FRONT_END, HealthAction.LEFT_OUT
    return HealthNote(rule=rule, count=operators, worst=name, action=action)


def _launches(trace: KinetoTrace) -> Int64s:
    rows = trace.rows_of(*RUNTIME)
    named = trace.events.named(rows, lambda name: any(word in name for word in _LAUNCHES))
    found: Int64s = rows[named.astype(np.bool_)]
    return found


def _pids(trace: KinetoTrace, rows: Int64s) -> dict[str, int]:
    """How many of some events each process has."""
    found: dict[str, int] = {}
    codes, counts = np.unique(trace.thread[rows], return_counts=True)
    for code, number in zip(codes.tolist(), counts.tolist(), strict=True):
        pid = str(trace.threads[code][0])
        found[pid] = found.get(pid, 0) + number
    return found
