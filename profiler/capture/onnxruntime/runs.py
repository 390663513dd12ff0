"""Whose run it was: the runs in a session's profile, matched to the calls that the session ran.

A call is known by what was noted around it: when it began and ended, on the clock of the profile,
and on which thread. A run belongs to the call within which it lies, whatever ran before it: failed
runs leave nothing in the profile, and a call may run its session several times or not at all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from profiler.capture.invocations import Invocation
from profiler.ort_profiles.nodes import NodeColumns
from profiler.ort_profiles.profile import ProfiledRun

__all__ = ["NotedCall", "place_runs"]

_NEVER = 1 << 62
_SLACK = 2_000  # ns: ONNX Runtime cuts times to whole µs


@dataclass(slots=True, eq=False)
class NotedCall:
    """A call that may run the session. `begin_ns` and `end_ns` are on the profile's clock, relative
    to its start, `begin_run_ns` is its begin on the run's clock; `thread` is the operating system's
    number of the thread that ran it. `traced` is False for a call that ran elsewhere.

    `runs` are those that were found in the profile; `mixed` tells that one of them cannot be told
    from those of other calls.
    """

    invocation: Invocation
    traced: bool
    thread: int
    begin_ns: int
    begin_run_ns: int
    end_ns: int = -1
    runs: list[ProfiledRun] = field(default_factory=list)
    mixed: bool = False

    @property
    def nodes(self) -> NodeColumns:
        """What its runs executed."""
        return NodeColumns.joined([run.nodes for run in self.runs])


def place_runs(runs: Iterable[ProfiledRun], noted: Sequence[NotedCall]) -> Iterator[NotedCall]:
    """Give each call its runs; yields every call, in order of begin, once it has all of them.

    Of calls that lie around the same run it is that of the run's thread, and of several on that
    thread (`run_async`) the one that ended first after it. Where the thread tells nothing either,
    the run marks all of them `mixed`.
    """
    calls = sorted(noted, key=lambda call: call.begin_ns)
    ends = _ends(calls)
    begins = [call.begin_ns for call in calls]
    latest = list(accumulate(ends, max))
    done = 0
    for run in runs:
        if run.duration_ns < 0:
            continue
        candidates = []
        for i in range(bisect_right(begins, run.start_ns + _SLACK) - 1, -1, -1):
            if latest[i] < run.end_ns - _SLACK:
                break
            if ends[i] >= run.end_ns - _SLACK:
                candidates.append(i)
        _place(run, candidates, calls, ends)
        # Runs come in order of their ends: what ended before this one's has all of its runs.
        while done < len(calls) and ends[done] < run.end_ns - _SLACK:
            yield calls[done]
            done += 1
    yield from calls[done:]


def _place(
    run: ProfiledRun, candidates: list[int], calls: list[NotedCall], ends: list[int]
) -> None:
    here = [i for i in candidates if calls[i].thread == run.thread]
    if not here and len(candidates) > 1:
        for i in candidates:
            calls[i].mixed = True
        return
    if candidates:
        call = calls[min(here or candidates, key=lambda i: ends[i])]
        call.runs.append(run)
        call.mixed = call.mixed or run.mixed


def _ends(calls: Sequence[NotedCall]) -> list[int]:
    """When each call ended: as noted, else as its invocation tells, at the latest when the next
    call began on its thread."""
    ends = []
    following: dict[int, int] = {}
    for call in reversed(calls):
        end = call.end_ns
        if end < 0:
            invocation = call.invocation
            ended = invocation.end_ns >= 0
            length = invocation.end_ns - call.begin_run_ns if ended else _NEVER
            end = min(call.begin_ns + length, following.get(call.thread, _NEVER))
        following[call.thread] = call.begin_ns
        ends.append(end)
    return ends[::-1]
