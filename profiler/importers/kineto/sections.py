"""Which call of a pipeline each submodule call is of.

A *section* is one call of a pipeline: the outermost `__call__` frame of a pipeline; without such
frames each `ProfilerStep#n` that holds scheduler steps; where calls were guessed, what `passes`
tells apart; else the whole trace.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate

from profiler.importers.kineto.calls import STEP_MARK, CallRange, Section, call_ranges
from profiler.importers.kineto.frames import Frames, Kind, parse_frame
from profiler.importers.kineto.passes import parted
from profiler.kineto.ranges import Ranges
from profiler.kineto.trace_file import KinetoTrace

__all__ = ["Lookup", "find_sections"]

_FOREVER_NS = 1 << 62


def find_sections(frames: Frames, calls: list[CallRange]) -> list[Section]:
    """The pipeline calls of a trace, each with its submodule calls, in order of time.

    A call outside every section (a prompt encoded ahead, an image decoded afterwards) counts to
    the next section, after the last one to that.
    """
    steps = _noise_steps(frames, calls)
    sections = _pipelines(frames, calls) or _marked(frames.trace, steps)
    sections = sections or _guessed(frames.trace, calls) or [_whole(frames.trace, calls, steps)]
    lookup = Lookup(sections)
    for call in calls:
        lookup.of(call.thread, call.start_ns).calls.append(call)
    prompts = frames.of_kind(Kind.ENCODE_PROMPT).outermost()
    for ranges, name in ((steps, "steps"), (prompts, "prompts")):
        for start, end, thread in zip(
            ranges.start_ns.tolist(), ranges.end_ns.tolist(), ranges.thread.tolist(), strict=True
        ):
            getattr(lookup.of(thread, start), name).append((start, end))
    for section in sections:
        section.steps.sort()
        section.prompts.sort()
        inside = [(call.start_ns, call.end_ns) for call in section.calls] + section.steps
        section.start_ns = min([section.start_ns, *(start for start, _ in inside)])
        section.end_ns = max([section.end_ns, *(end for _, end in inside)])
    return sections


def _noise_steps(frames: Frames, calls: list[CallRange]) -> Ranges:
    """Outermost scheduler steps; those in a call (a consistency decoder's own) are not ours."""
    steps = frames.of_kind(Kind.STEP).outermost()
    return steps.select(call_ranges(calls).innermost(steps.thread, steps.start_ns) < 0)


def _pipelines(frames: Frames, calls: list[CallRange]) -> list[Section]:
    outermost = frames.of_kind(Kind.PIPELINE).outermost()
    sections = []
    for row, thread in zip(outermost.row.tolist(), outermost.thread.tolist(), strict=True):
        frame = parse_frame(frames.name(row))
        start, end = int(frames.trace.start_ns[row]), int(frames.trace.end_ns[row])
        if frame and any(c.thread == thread and start <= c.start_ns < end for c in calls):
            sections.append(Section(frame.stem, thread, start, end))
    return sorted(sections, key=lambda section: section.start_ns)


def _marked(trace: KinetoTrace, steps: Ranges) -> list[Section]:
    """One section for each profiler step, where several of them hold scheduler steps."""
    sections = []
    for row in trace.rows_of("user_annotation").tolist():
        name = trace.events.name_of(row)
        start, end = int(trace.start_ns[row]), int(trace.end_ns[row])
        if STEP_MARK.fullmatch(name) and ((steps.start_ns >= start) & (steps.start_ns < end)).any():
            sections.append(Section(name, int(trace.thread[row]), start, end))
    return sorted(sections, key=lambda section: section.start_ns) if len(sections) > 1 else []


def _guessed(trace: KinetoTrace, calls: Sequence[CallRange]) -> list[Section]:
    """The calls of a pipeline whose parts were guessed; none where there is but one."""
    if not any(call.guessed for call in calls):
        return []
    parts = parted(calls)
    if len(parts) == 1:
        return []
    spans = [(part[0].start_ns, max(call.end_ns for call in part)) for part in parts]
    thread = calls[0].thread
    name = _around(trace, thread, spans[0][0], max(end for _, end in spans)).name
    return [Section(name, thread, start, end) for start, end in spans]


def _whole(trace: KinetoTrace, calls: list[CallRange], steps: Ranges) -> Section:
    """What all calls and steps span."""
    start = min([call.start_ns for call in calls] + steps.start_ns.tolist())
    end = max([call.end_ns for call in calls] + steps.end_ns.tolist())
    return _around(trace, calls[0].thread, start, end)


def _around(trace: KinetoTrace, thread: int, start: int, end: int) -> Section:
    """The smallest annotation around a range, a profiler's step aside; without one, that range."""
    best = Section("trace", thread, start, end)
    smallest = _FOREVER_NS
    for row in trace.rows_of("user_annotation").tolist():
        begin, length = int(trace.start_ns[row]), int(trace.duration_ns[row])
        name = trace.events.name_of(row)
        around = begin <= start and end <= begin + length and not STEP_MARK.fullmatch(name)
        if around and length < smallest:
            smallest = length
            best = Section(name, thread, begin, begin + length)
    return best


class Lookup:
    """Finds sections, which are in order of time, by a time in them."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self._all = _InOrder(sections)
        threads: defaultdict[int, list[Section]] = defaultdict(list)
        for section in sections:
            threads[section.thread].append(section)
        self._of_thread = {thread: _InOrder(some) for thread, some in threads.items()}

    def of(self, thread: int, time_ns: int) -> Section:
        """The first section around a time, where it can be on the same thread; else the next one,
        behind all the last."""
        own = self._of_thread.get(thread)
        around = own.around(time_ns) if own is not None else None
        return around or self._all.around(time_ns) or self._all.behind(time_ns)


class _InOrder:
    """Sections in order of their start; they may overlap."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self._sections = sections
        self._starts = [section.start_ns for section in sections]
        self._reached = list(accumulate((section.end_ns for section in sections), max))

    def around(self, time_ns: int) -> Section | None:
        first = bisect_right(self._reached, time_ns)
        return self._sections[first] if first < bisect_right(self._starts, time_ns) else None

    def behind(self, time_ns: int) -> Section:
        place = bisect_right(self._starts, time_ns)
        return self._sections[min(place, len(self._sections) - 1)]
