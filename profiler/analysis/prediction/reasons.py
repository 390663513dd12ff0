"""Why a replayed request takes what it takes: what waits for launches, and what ends that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from profiler.analysis.prediction.codes import Reason
from profiler.analysis.prediction.host_replay import ReplayedCall
from profiler.text import Note

__all__ = ["reasons_of"]

_OF_CALLS = 0.1  # of a submodule's time: a wait that is said
_OF_REQUEST = 0.01


def reasons_of(
    before: Sequence[ReplayedCall],
    now: Sequence[ReplayedCall],
    one_launch: Sequence[ReplayedCall],
) -> Iterator[Note]:
    """Of the request `now`: what less work gains from `before`, which has as many steps and is
    else as it was recorded; what waits for launches; the time were each call `one_launch`, where
    that was replayed.
    """
    total = _mean([call.pieces.duration_ns for call in now])
    yield from _less_work(before, now, _OF_REQUEST * total)
    worked, waited = _sums(now)
    bound = False
    for name, idle in sorted(waited.items(), key=lambda item: -item[1]):
        elapsed = idle + worked[name]
        if idle > _OF_CALLS * elapsed and idle > _OF_REQUEST * total:
            values = {"idle_ns": round(idle), "elapsed_ns": round(elapsed)}
            yield Note.of(Reason.LAUNCH_BOUND, submodule=name, **values)
            bound = True
    if bound and one_launch:
        without = _mean([call.pieces.duration_ns for call in one_launch])
        span = _mean([call.device_span_ns for call in one_launch])
        values = {"predicted_ns": round(without), "device_span_ns": round(span)}
        yield Note.of(Reason.WITH_GRAPHS, **values)


def _less_work(
    before: Sequence[ReplayedCall], now: Sequence[ReplayedCall], least: float
) -> Iterator[Note]:
    """What submodules that are called as often as before gain from less work on the device."""
    worked_before, waited_before = _sums(before)
    worked, waited = _sums(now)
    for name, was in worked_before.items():
        if name not in worked or _calls_of(name, before) != _calls_of(name, now):
            continue
        less = was - worked[name]
        gained = less + waited_before[name] - waited[name]
        if less > least:
            values = {"less_ns": round(less), "gained_ns": round(gained)}
            yield Note.of(Reason.LESS_WORK, submodule=name, **values)


def _calls_of(name: str, calls: Sequence[ReplayedCall]) -> int:
    phases = ((c.pieces.encode, *c.pieces.steps, c.pieces.decode) for c in calls)
    return sum(piece.submodule == name for some in phases for phase in some for piece in phase)


def _sums(calls: Sequence[ReplayedCall]) -> tuple[dict[str, float], dict[str, float]]:
    """By submodule how long the tiles of its calls were busy and idle, the mean of pipeline
    calls."""
    names = dict.fromkeys(name for call in calls for name in call.busy_ns)
    busy = {name: _mean([call.busy_ns.get(name, 0.0) for call in calls]) for name in names}
    idle = {name: _mean([call.idle_ns.get(name, 0.0) for call in calls]) for name in names}
    return busy, idle


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
