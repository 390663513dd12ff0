"""A run that goes on, as far as its calls have returned: what `analyze --watch` shows.

live = LiveRun("20261121-093000-sd3")
live.add(calls)
report = live.report(now_ns)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median

import polars as pl

from profiler.analysis.submodules.columns import SUBMODULES
from profiler.report.model import Bars, Figure, Part, Report, Section, Summary, TableView
from profiler.report.views import columns_of, renamed, table
from profiler.run.columns import Column, schema
from profiler.text import count, duration
from profiler.trace.events import NO_STEP, Call

__all__ = ["LiveRun"]

_ROWS = 12  # submodules; a screen has no more room
_COLUMNS = columns_of(
    (
        "submodule",
        "calls",
        renamed(SUBMODULES, "duration_ns", label="duration", importance=0),
        "median_ns",
        Column("last_ns", pl.Int64(), "ns", "duration of its last call", importance=2),
        "share",
    ),
    SUBMODULES,
)


@dataclass(slots=True)
class LiveRun:
    """The calls of a run that have returned, in the order in which they did; `last_end_ns` is the
    end of the latest."""

    name: str
    _calls: int = 0
    _indices: set[int] = field(default_factory=set)
    _first_ns: int = 0
    last_end_ns: int = 0
    _pipeline: int = -1
    _stage: str = ""
    _newest: int = -1
    _durations: dict[str, dict[int, int]] = field(
        default_factory=dict
    )  # submodule → call → duration
    _begins: dict[int, dict[int, int]] = field(
        default_factory=dict
    )  # pipeline → step → first begin

    def add(self, calls: Iterable[Call]) -> None:
        """Take further calls."""
        for call in calls:
            if call.index in self._indices:  # its labels have changed, or its device has noted it
                self._stage = call.stage if call.index == self._newest else self._stage
                self._add_step(call)
                self._took(call)
                continue
            self._indices.add(call.index)
            self._newest = call.index
            if not self._calls:
                self._first_ns = call.start_ns
            self._calls += 1
            self._first_ns = min(self._first_ns, call.start_ns)
            self.last_end_ns = max(self.last_end_ns, call.start_ns + max(call.duration_ns, 0))
            self._pipeline, self._stage = max(self._pipeline, call.pipeline), call.stage
            self._took(call)
            self._add_step(call)

    def _took(self, call: Call) -> None:
        """How long it took: its device, where that noted it to be longer than the host."""
        lasted = max(call.duration_ns, call.device_duration_ns, 0)
        self._durations.setdefault(call.submodule, {})[call.index] = lasted

    def _add_step(self, call: Call) -> None:
        if call.step != NO_STEP:
            begins = self._begins.setdefault(call.pipeline, {})
            begins[call.step] = min(begins.get(call.step, call.start_ns), call.start_ns)

    def report(self, now_ns: int) -> Report:
        """What is known at `now_ns`, on the clock of the calls: calls, steps, and time by
        submodule."""
        summary = Summary(self._headline(now_ns))
        if not self._calls:
            return Report(summary)
        parts = (*self._steps_part(), Part(table=self._table()))
        return Report(summary, (Section("live", parts=parts),))

    def _headline(self, now_ns: int) -> str:
        name = f"run {self.name}"
        if not self._calls:
            return f"{name}: no call has returned yet"
        elapsed = duration(max(now_ns - self._first_ns, 0))
        calls = f"{count(self._calls)} call{'s' * (self._calls > 1)} in {elapsed}"
        number = f"pipeline call {self._pipeline}" if self._pipeline > 0 else ""
        return ", ".join(filter(None, (f"{name}: {calls}", number, self._place())))

    def _place(self) -> str:
        """The stage, and the step of how many, where an earlier pipeline call tells."""
        begins = self._begins.get(self._pipeline, {})
        if self._stage != "denoise" or not begins:
            return self._stage
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

    def _steps_part(self) -> Iterator[Part]:
        """A bar for each step, with the last and the median one."""
        steps = self._steps()
        if steps:
            lead = f"steps: last {duration(steps[-1])}, median {duration(int(median(steps)))}"
            yield Part(lead=lead, figure=Figure("steps", "", bars=(Bars("steps", steps),)))

    def _table(self) -> TableView | None:
        lasted = [(name, [*of_calls.values()]) for name, of_calls in self._durations.items()]
        rows = sorted(lasted, key=lambda item: -sum(item[1]))
        total = sum(sum(durations) for _, durations in rows)
        frame = pl.DataFrame(
            [
                {
                    "submodule": name,
                    "calls": len(durations),
                    "duration_ns": sum(durations),
                    "median_ns": int(median(durations)),
                    "last_ns": durations[-1],
                    "share": sum(durations) / total if total else None,
                }
                for name, durations in rows
            ],
            schema=schema(_COLUMNS),
        )
        return table("live", "submodules", _COLUMNS, SUBMODULES, frame, shown=_ROWS)
