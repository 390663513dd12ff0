"""Profiled sessions of one part, and how many events each may have.

ONNX Runtime keeps every event of a profiled session in memory until its profile ends: a long run
grows by that. So a session is renewed after 20,000 events, or, where its model is so large that
opening it again costs more than their memory, after as many as take an eighth of what the model
weighs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiler.capture.interrupts import interrupts_wait
from profiler.capture.onnxruntime.runs import NotedCall
from profiler.ort_profiles.profile import EVENT_CAP

__all__ = ["EVENTS_BESIDE_NODES", "Segment", "clock_of", "event_budget"]

EVENTS_BESIDE_NODES = 2  # model_run and SequentialExecutor::Execute
_EVENT_BYTES = 2_600  # measured: `benchmarks/long_runs.py`, the tiny SD3
_FEWEST_EVENTS = 20_000  # 50 MiB, of each part
_SHARE = 8  # of the weights: one part of so many


@dataclass(slots=True, eq=False)
class Segment:
    """One profiled session: when its profile began, on the clock `now_ns`, whose runs it may hold,
    how many were traced, how many of those are under way, and how many have returned (`ran`).
    `file` is set once profiling has ended, `converted` once somebody has begun to read it."""

    session: Any
    start_ns: int
    now_ns: Callable[[], int]
    noted: list[NotedCall] = field(default_factory=list)
    traced: int = 0
    open: int = 0
    ran: int = 0
    file: Path | None = None
    converted: bool = False

    @interrupts_wait()
    def end(self) -> bool:
        """Have ONNX Runtime write the profile, and let go of the session; whether that was still
        to be done."""
        if self.file is not None:
            return False
        self.file = Path(self.session.end_profiling())
        self.session = None
        return True


def event_budget(weight_bytes: int) -> int:
    """The events after which a session of a model with so many bytes of weights is renewed."""
    return min(max(_FEWEST_EVENTS, weight_bytes // _SHARE // _EVENT_BYTES), EVENT_CAP)


def clock_of(start_ns: int) -> Callable[[], int]:
    """The clock that profiles use here: CLOCK_REALTIME, on some systems a monotonic one."""
    clocks = (time.time_ns, time.monotonic_ns, time.perf_counter_ns)
    return min(clocks, key=lambda clock: abs(clock() - start_ns))
