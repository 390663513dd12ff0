"""Which guessed calls of a denoiser share a step: that with the condition, then that without it.

Between the two of a pair the host asks for less than behind it, where the two are mixed and the
scheduler steps. With one pair alone there is nothing to compare: then the encoders must have seen
two prompts, and a call as many inputs as images were decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from msgspec import structs

from profiler.importers.kineto.calls import CallRange, Ran
from profiler.importers.kineto.host_marks import launching_operators
from profiler.importers.kineto.names import is_decoder, is_encoder
from profiler.importers.kineto.passes import parted
from profiler.kineto.ranges import Ranges
from profiler.kineto.trace_file import KinetoTrace

__all__ = ["paired"]


def paired(trace: KinetoTrace, calls: Sequence[CallRange]) -> list[CallRange]:
    """The calls, in order of time, with `same_step` of the second of each pair."""
    seconds: set[int] = set()
    launching = cache(lambda: launching_operators(trace))
    for part in parted(calls):
        ran = [call for call in part if call.guessed and call.ran is Ran.EXECUTED]
        denoisers = [call for call in ran if not is_encoder(call) and not is_decoder(call)]
        if _may_be_pairs(ran, denoisers) and _are_pairs(launching, ran, denoisers):
            seconds |= {call.start_ns for call in denoisers[1::2]}
    return [structs.replace(call, same_step=call.start_ns in seconds) for call in calls]


def _may_be_pairs(part: Sequence[CallRange], denoisers: Sequence[CallRange]) -> bool:
    """Whether nothing says that a call computes both branches, or that there is but one."""
    if not denoisers or len(denoisers) % 2 or len({call.instance for call in denoisers}) > 1:
        return False
    if _prompts(part) == 1:
        return False
    images = max((call.inputs for call in part if is_decoder(call)), default=0)
    return not images or all(call.inputs < 2 * images for call in denoisers)


def _prompts(part: Sequence[CallRange]) -> int:
    """How many prompts the encoders saw, 0 where there are none."""
    return max(Counter(call.instance for call in part if is_encoder(call)).values(), default=0)


def _are_pairs(
    launching: Callable[[], Ranges], part: Sequence[CallRange], denoisers: Sequence[CallRange]
) -> bool:
    if len(denoisers) == 2:
        return _prompts(part) > 1 and all(call.inputs for call in denoisers)
    operators, thread = launching(), denoisers[0].thread
    first, last = np.searchsorted(operators.thread, (thread, thread + 1))
    begins = operators.start_ns[first:last]
    between = [
        int(np.searchsorted(begins, later.start_ns) - np.searchsorted(begins, call.end_ns))
        for call, later in pairwise(denoisers)
    ]
    return max(between[::2]) < min(between[1::2])
