"""A run that goes on, as far as its calls have returned: what `analyze --watch` shows.

live = LiveRun("20261121-093000-sd3")
live.add(calls)
console.print(live.view(now_ns, console.width))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from rich.console import Group
from rich.text import Text

from profiler.events import NO_STEP, Call
from profiler.report.terminal.layout import clean, numbers, percents, sparkline, table, texts, times
from profiler.report.units import count, duration

__all__ = ["LiveRun"]

_LABEL = 7  # characters before the bars
_ROWS = 12  # submodules; a screen has no more room


@dataclass(slots=True)
class LiveRun:
    """The calls of a run that have returned, in the order in which they did; `last_end_ns` is the
    end of the latest."""

    name: str
    _calls: int = 0
    _first_ns: int = 0
    last_end_ns: int = 0
    _pipeline: int = -1
    _stage: str = ""
    _durations: dict[str, list[int]] = field(default_factory=dict)  # of each submodule's calls
    _begins: dict[int, dict[int, int]] = field(
        default_factory=dict
    )  # pipeline → step → first begin

    def add(self, calls: Iterable[Call]) -> None:
        """Take further calls."""
        for call in calls:
            if not self._calls:
                self._first_ns = call.start_ns
            self._calls += 1
            self._first_ns = min(self._first_ns, call.start_ns)
            self.last_end_ns = max(self.last_end_ns, call.start_ns + max(call.duration_ns, 0))
            self._pipeline, self._stage = max(self._pipeline, call.pipeline), call.stage
            self._durations.setdefault(call.submodule, []).append(max(call.duration_ns, 0))
            if call.step != NO_STEP:
                begins = self._begins.setdefault(call.pipeline, {})
                begins[call.step] = min(begins.get(call.step, call.start_ns), call.start_ns)

    def view(self, now_ns: int, width: int) -> Group:
        """What is known at `now_ns`, on the clock of the calls, in `width` characters: calls,
        steps, and time by submodule."""
        head = Text(self._headline(now_ns), style="bold", no_wrap=True, overflow="ellipsis")
        if not self._calls:
            return Group(head)
        parts: list[Text] = []
        steps = self._steps()
        if steps:
            last = f"  last {_plain(steps[-1])}, median {_plain(int(median(steps)))}"
            bars = sparkline(steps[-max(width - _LABEL - len(last), 1) :], width)
            parts.append(Text(f"{'steps':<{_LABEL}}{bars}{last}", no_wrap=True))
        return Group(head, *parts, Text(), self._table(width))

    def _headline(self, now_ns: int) -> str:
        name = f"run {clean(self.name)}"
        if not self._calls:
            return f"{name}: no call has returned yet"
        elapsed = _plain(max(now_ns - self._first_ns, 0))
        calls = f"{count(self._calls)} call{'s' * (self._calls > 1)} in {elapsed}"
        number = f"pipeline call {self._pipeline}" if self._pipeline > 0 else ""
        return ", ".join(filter(None, (f"{name}: {calls}", number, self._place())))

    def _place(self) -> str:
        """The stage, and the step of how many, where an earlier pipeline call tells."""
        begins = self._begins.get(self._pipeline, {})
        if self._stage != "denoise" or not begins:
            return clean(self._stage)
        earlier = [steps for number, steps in self._begins.items() if number != self._pipeline]
        of = f" of {max(map(len, earlier))} as before" if earlier else ""
        done = len(begins)
        return f"denoise, {done} step{'s' * (done > 1)} done{of}"

    def _steps(self) -> list[int]:
        """From begin to begin of the steps of this pipeline call, the last to its last end, ns."""
        begins = sorted(self._begins.get(self._pipeline, {}).items())
        starts = [start for _, start in begins]
        ends = [*starts[1:], self.last_end_ns] if starts else []
        return [max(end - start, 0) for start, end in zip(starts, ends, strict=True)]

    def _table(self, width: int) -> Group:
        rows = sorted(self._durations.items(), key=lambda item: -sum(item[1]))
        shown = rows[:_ROWS]
        total = sum(sum(durations) for _, durations in rows)
        sums = [sum(durations) for _, durations in shown]
        columns = [
            texts("submodule", [name for name, _ in shown], shrink=12),
            numbers("calls", [len(durations) for _, durations in shown]),
            times("total", sums),
            times("median", [int(median(durations)) for _, durations in shown], rank=1),
            times("last", [durations[-1] for _, durations in shown], rank=2),
            percents("share", [part / total if total else None for part in sums]),
        ]
        left = len(rows) - len(shown)
        more = [Text(f"and {left} more submodules", style="dim")] if left else []
        return Group(table(columns, width), *more)


def _plain(time_ns: int) -> str:
    return duration(time_ns).replace("\N{NO-BREAK SPACE}", " ")
