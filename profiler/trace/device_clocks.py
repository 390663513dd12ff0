"""Whether the clock of a device gains or loses against that of the host.

    latency_slope(launched, latency)  == 0.001   # 1,000 µs a second

Work that waits for nothing starts some µs after its launch. If that least latency grows or shrinks
steadily over the recording, one of the clocks runs at another rate.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from profiler.trace.columns import Int64s

_MS = 1_000_000
_WINDOWS, _LEAST_ROWS = 64, 64
_LEAST_SPAN_NS = 300 * _MS  # shorter ones of healthy recordings have 3,000 ppm by chance
_LEAST_DRIFT, _MOST_DRIFT = 1e-4, 5e-3  # healthy ones have 2.9e-5; more is a queue that fills
_NEAR_NS = 15_000
_LEAST_WINDOWS, _NEAR_SPAN_NS = 5, 100 * _MS
_HALF, _EVEN = 0.5, 0.8  # of the windows: a queue does not fill so evenly
_NEVER = 1 << 62
_Numbers = npt.NDArray[np.float64]


def latency_slope(launched: Int64s, latency: Int64s, *, early: bool) -> float | None:
    """By how much the least latency changes over time, a ratio; None if the clocks agree or
    nothing tells. `early` is whether work begins before its launch, which no queue explains."""
    if len(launched) < _LEAST_ROWS:
        return None
    first, span = int(launched.min()), int(np.ptp(launched))
    if span < _LEAST_SPAN_NS:
        return None
    window = np.minimum((launched - first) * _WINDOWS // span, _WINDOWS - 1)
    least = np.full(_WINDOWS, _NEVER, dtype=np.int64)
    np.minimum.at(least, window, latency)
    used = np.flatnonzero(least < _NEVER)
    place, lowest = used.astype(np.float64) * (span / _WINDOWS), least[used].astype(np.float64)
    near = np.flatnonzero(lowest <= lowest.min() + _NEAR_NS)  # whatever the queue did elsewhere
    if len(near) < _LEAST_WINDOWS or np.ptp(place[near]) < _NEAR_SPAN_NS:
        near = _near_line(place, lowest, early=early)
    if not len(near):
        return None
    along = place[near] - place[near].mean()
    slope = float((along * lowest[near]).sum() / (along * along).sum())
    return slope if _LEAST_DRIFT < abs(slope) <= _MOST_DRIFT else None


def _near_line(place: _Numbers, lowest: _Numbers, *, early: bool) -> Int64s:
    """The windows whose least latency lies on the line below all of them; none if that does not
    explain most of them."""
    low, high = _longest_edge(place, lowest)
    slope = (lowest[high] - lowest[low]) / (place[high] - place[low]) if high > low else 0.0
    line = lowest[low] + slope * (place - place[low])
    near = np.flatnonzero(lowest - line <= _NEAR_NS)
    enough = (_HALF if early else _EVEN) * len(place)
    if len(near) < max(enough, _LEAST_WINDOWS) or 2 * np.ptp(near) < len(place):
        return near[:0]
    return near


def _longest_edge(x: _Numbers, y: _Numbers) -> tuple[int, int]:
    """The ends of the longest edge of the lower hull of points in order of `x`."""
    hull: list[int] = []
    for place in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2:]
            if (y[b] - y[a]) * (x[place] - x[a]) < (y[place] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(place)
    edges = [(x[b] - x[a], a, b) for a, b in pairwise(hull)]
    _, low, high = max(edges, default=(0.0, 0, 0))
    return low, high
