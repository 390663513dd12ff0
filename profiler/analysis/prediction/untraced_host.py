"""How fast the host is without the profiler: from how long the run takes without it.

What is recorded slows the host (1.7 to 2.3 us each of its events on an H200's host, measured by
CUDA events with and without torch.profiler), and hardly the device. So there is one pace of the
host in its calls at which a replay of the recorded launches takes what the run takes untraced.
"""

from __future__ import annotations

from dataclasses import replace

from profiler.analysis.prediction.replay_basis import ReplayBasis
from profiler.errors import InputError

__all__ = ["at_untraced_pace"]

_ROUNDS = 24  # of bisection: to 1e-7 of the host's time
_NEAR = 0.005  # of the time given: so near is reached


def at_untraced_pace(basis: ReplayBasis, untraced_ns: int) -> ReplayBasis:
    """`basis` with the host's pace at which its pipeline calls take `untraced_ns` in the mean.

    Raises InputError where no pace does: the device's own work takes longer, or the run took less.
    """
    recorded, least = _replayed_ns(basis, 1.0), _replayed_ns(basis, 0.0)
    if untraced_ns > recorded * (1 + _NEAR):
        raise InputError(
            f"--untraced {untraced_ns / 1e6:.4g} ms is longer than the {recorded / 1e6:.4g} ms "
            "that the run took while it was recorded: give what the same request takes without the "
            "profiler, from its first call to the end of its last"
        )
    if untraced_ns < least * (1 - _NEAR):
        raise InputError(
            f"--untraced {untraced_ns / 1e6:.4g} ms is not reached: what the device did takes "
            f"{least / 1e6:.4g} ms as recorded, however fast the host is, so the device ran slower "
            "while it was recorded (clocks, power); leave --untraced out"
        )
    low, high = 0.0, 1.0
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if _replayed_ns(basis, middle) > untraced_ns:
            high = middle
        else:
            low = middle
    return replace(basis, host=basis.host * high, pace=high)


def _replayed_ns(basis: ReplayBasis, pace: float) -> float:
    """What the recorded pipeline calls take in the mean with the host at that pace."""
    calls = basis.replayed(basis.plans, replace(basis.as_recorded, host=basis.host * pace))
    return sum(call.pieces.duration_ns for call in calls) / len(calls)
