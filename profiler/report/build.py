"""Build the report of a run: all sections that have content, in order.

    report = build_report(ReportInput(analysis, begin_ns, end_ns))

A section is a module that declares a `SECTION`. `LiveRun` is the report of a run in progress,
for `analyze --watch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from profiler.analysis.document import (
    Bars,
    Figure,
    Part,
    Report,
    Section,
    SectionGroup,
    SectionKind,
    Summary,
    TableView,
)
from profiler.analysis.dropped_data import missing_parts
from profiler.analysis.finding_text import noun_of, with_nouns
from profiler.analysis.overview import opening_of, summary_of
from profiler.analysis.question import Table, question_modules, tables
from profiler.analysis.result import Analysis, ReportInput
from profiler.analysis.submodules import SUBMODULES
from profiler.analysis.table_text import (
    columns_of,
    declared_drawing,
    registered_view,
    renamed,
    table,
)
from profiler.prediction import ladder_section
from profiler.prediction.ladder_section import with_ladder
from profiler.run.columns import NS, col, schema
from profiler.text import count, counted, duration, said, sentence
from profiler.trace.events import NO_STEP, Call

if TYPE_CHECKING:
    from profiler.compare.compare import Comparison

# --- The report of an analysis: every section that has something to show, in order.
#
# Modules of `profiler.analysis` declare a section as `SECTION`; they are found here.


_MAKES = "_figure"


@cache
def section_kinds() -> tuple[SectionKind, ...]:
    """Return all declared sections, by group and place."""
    declared = [module.SECTION for module in question_modules() if hasattr(module, "SECTION")]
    kinds = [SECTION, ladder_section.SECTION, *declared]
    groups = [*SectionGroup]
    return tuple(sorted(kinds, key=lambda kind: (groups.index(kind.group), kind.place)))


@cache
def section_figures() -> dict[str, Callable[..., Figure]]:
    """Return the functions that make a section's figure from an analysis, by name: the function
    `steps_figure` of a section's module makes `steps`."""
    return {
        name.removesuffix(_MAKES): make
        for module in question_modules()
        for name, make in vars(module).items()
        if name.endswith(_MAKES) and make.__module__ == module.__name__ and name[0] != "_"
    }


def figure_of(table: Table, analysis: Analysis) -> Figure:
    """The figure that `table` declares. Raises ValueError if it declares none."""
    figure = declared_drawing(table, analysis.tables()[table.name])
    if figure is None:
        raise ValueError(f"table {table.name!r} declares no figure")
    return figure


def build_report(of: ReportInput) -> Report:
    """Build the report of `of.analysis`, without parts and sections that show nothing."""
    return with_sections(first_screen(of), of)


def first_screen(of: ReportInput) -> Report:
    """Build the report without its sections, which take much longer: all that a terminal prints
    unless it is asked for more."""
    summary = replace(summary_of(of), against=_against(of.against))
    return Report(summary, opening=with_ladder(opening_of(of, summary), of))


def with_sections(report: Report, of: ReportInput) -> Report:
    """Add the sections that have something to show to the first screen of `of.analysis`."""
    known = {name for kind in section_kinds() for name in kind.tables}
    rest = [_placed(table) for table in tables() if table.name not in known]
    sections = (_section(kind, of, rest) for kind in section_kinds())
    return replace(report, sections=tuple(section for section in sections if section.parts))


def _placed(table: Table) -> Table:
    """Return the table if its section and kind of figure exist; else raise ValueError, because it
    would silently be missing from every report."""
    from profiler.report.charts.style import drawings

    sections = [kind.key for kind in section_kinds()]
    if table.section not in sections:
        raise ValueError(
            f"table {table.name!r} belongs to section {table.section!r}, which is none: "
            f"there is {', '.join(sections)}"
        )
    if table.figure is not None and table.figure.kind not in drawings():
        raise ValueError(
            f"table {table.name!r} has a figure of kind {table.figure.kind!r}, which no module of "
            "profiler.report.charts draws"
        )
    return table


def _section(kind: SectionKind, of: ReportInput, rest: Iterable[Table]) -> Section:
    """Build a section: its own parts, and below them the tables of `rest` that belong to it."""
    added = (_added(table, of) for table in rest if table.section == kind.key)
    noun = noun_of(of.analysis)
    parts = tuple(
        _limited(with_nouns(part, noun), of.top)
        for part in (*kind.parts(of), *added)
        if part.shows_something
    )
    parts += tuple(missing_parts(kind.key, of.analysis))
    return Section(kind.key, kind.title, parts, kind.group)


def _limited(part: Part, top: int | None) -> Part:
    """Limit the part's table to `top` rows, if given; a table with a row of sums keeps all rows
    that add up to it."""
    view = part.table
    if view is None or view.totals is not None or not top:
        return part
    held = max(view.held, top) if view.held else 0
    return replace(part, table=replace(view, shown=top, held=held))


def _added(table: Table, of: ReportInput) -> Part:
    """Return a table that no section shows itself, as it declares itself, with its figure."""
    frame = of.analysis.tables()[table.name]
    view = registered_view(table, frame)
    return Part(view.name, table=view, figure=declared_drawing(table, frame)) if view else Part()


def _against(comparison: Comparison | None) -> str:
    """Say how the run compares with its baseline; "" without one."""
    if comparison is None:
        return ""
    from profiler.compare.text import headline

    base = comparison.runs.filter(comparison.runs["side"] == "base")["run_id"]
    named = base[0] if len(base) == 1 else counted(len(base), "run")
    return said("Against {base}: {headline}.", base=named, headline=headline(comparison))


# --- The report of a run in progress, from calls that have returned: what `analyze --watch` shows.
#
# live = LiveRun("20261121-093000-sd3")
# live.add(calls)
# report = live.report(now_ns)


_ROWS = 12  # submodules that fit on a screen
_COLUMNS = columns_of(
    (
        "submodule",
        "calls",
        renamed(SUBMODULES, "duration_ns", label="duration", importance=0),
        "median_ns",
        col("last_ns", NS, "duration of its last call", importance=2),
        "share",
    ),
    SUBMODULES,
)


class LiveRun(Struct, eq=False):
    """A run in progress: its calls in the order in which they returned; `last_end_ns` is the end of
    the latest."""

    name: str
    _calls: int = 0
    _indices: set[int] = field(default_factory=set)
    _first_ns: int = 0
    last_end_ns: int = 0
    _pipeline: int = -1
    _stage: str = ""
    _newest: int = -1
    # submodule → call → duration
    _durations: dict[str, dict[int, int]] = field(default_factory=dict)
    # pipeline → step → first start
    _begins: dict[int, dict[int, int]] = field(default_factory=dict)

    def add(self, calls: Iterable[Call]) -> None:
        """Add calls that have returned, or whose labels have changed."""
        for call in calls:
            if call.index in self._indices:  # labels or device time have changed
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
        """Store how long a call took: the device's duration if it is longer than the host's."""
        lasted = max(call.duration_ns, call.device_duration_ns, 0)
        self._durations.setdefault(call.submodule, {})[call.index] = lasted

    def _add_step(self, call: Call) -> None:
        if call.step != NO_STEP:
            begins = self._begins.setdefault(call.pipeline, {})
            begins[call.step] = min(begins.get(call.step, call.start_ns), call.start_ns)

    def report(self, now_ns: int) -> Report:
        """Report calls, steps, and time by submodule at `now_ns`, on the clock of the calls."""
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
        """The current stage and step; the number of steps, if an earlier pipeline call shows it."""
        begins = self._begins.get(self._pipeline, {})
        if self._stage != "denoise" or not begins:
            return self._stage
        earlier = [steps for number, steps in self._begins.items() if number != self._pipeline]
        of = f" of {max(map(len, earlier))} as before" if earlier else ""
        done = len(begins)
        return f"denoise, {done} step{'s' * (done > 1)} done{of}"

    def _steps(self) -> list[int]:
        """Durations of this pipeline call's steps, start to start, in ns; the last to its end."""
        begins = sorted(self._begins.get(self._pipeline, {}).items())
        starts = [start for _, start in begins]
        ends = [*starts[1:], self.last_end_ns] if starts else []
        return [max(end - start, 0) for start, end in zip(starts, ends, strict=True)]

    def _steps_part(self) -> Iterator[Part]:
        """Yield one bar per step, with the last and the median duration."""
        steps = self._steps()
        if steps:
            lead = f"steps: last {duration(steps[-1])}, median {duration(_median(steps))}"
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
                    "median_ns": _median(durations),
                    "last_ns": durations[-1],
                    "share": sum(durations) / total if total else None,
                }
                for name, durations in rows
            ],
            schema=schema(_COLUMNS),
        )
        return table("live", "submodules", _COLUMNS, SUBMODULES, frame, shown=_ROWS)


def _median(durations: Sequence[int]) -> int:
    from statistics import median

    return int(median(durations))


# --- The changes against a baseline: a sentence, a figure, tables from the whole to modules.


def _parts(of: ReportInput) -> tuple[Part, ...]:
    """Return the parts that compare the run (the new side) with its baseline; empty without one."""
    if of.against is None:
        return ()
    # These load some thirty modules, most of which only comparisons need.
    from profiler.analysis.table_text import worded_note as worded
    from profiler.compare.report import (
        metric_parts,
        operation_parts,
        rule,
        runs_part,
        times_table,
        tree_part,
    )
    from profiler.compare.text import headline

    comparison = of.against
    notes = [sentence(worded(note)) for note in comparison.notes]
    if of.analysis.run.selection:
        notes.insert(0, said("Whole runs are compared, whatever is selected."))
    return (
        Part(
            lead=said("{headline}.", headline=headline(comparison)),
            figure=Figure("comparison", "comparison", (comparison,)),
            table=times_table(comparison),
            notes=(rule(), *notes),
            always=True,
        ),
        tree_part(comparison, of.rows(15)),
        *metric_parts(comparison, of.rows(10)),
        *operation_parts(comparison, of.rows(10)),
        runs_part(comparison),
    )


SECTION = SectionKind("comparison", 25, said("Against the baseline"), _parts)
