"""The report of an analysis: every section that has something to show, in its order.

    report = build_report(ReportInput(analysis, begin_ns, end_ns))

A section is a module of `profiler.report.sections` that declares a `SECTION`: it is found here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from msgspec.structs import replace

from profiler.analysis.comparison.compare import Comparison
from profiler.analysis.registry import question_modules, tables
from profiler.analysis.result import Analysis
from profiler.analysis.table import Table
from profiler.report.charts.style import drawings
from profiler.report.model import Figure, Part, Report, ReportInput, Section, SectionKind
from profiler.report.nouns import noun_of, with_nouns
from profiler.report.sections.opening import opening_of
from profiler.report.sections.summary import summary_of
from profiler.report.untold import untold_parts
from profiler.report.views import declared_figure, registered_view
from profiler.text import counted, said

__all__ = ["build_report", "figure_of", "section_figures", "section_kinds"]

_MAKES = "_figure"


@cache
def section_kinds() -> tuple[SectionKind, ...]:
    """All sections that are declared, in the order in which they stand."""
    kinds = [module.SECTION for module in question_modules() if hasattr(module, "SECTION")]
    return tuple(sorted(kinds, key=lambda kind: kind.place))


@cache
def section_figures() -> dict[str, Callable[..., Figure]]:
    """The figures that sections make of an analysis, by name: a function `steps_figure` of a module
    there makes `steps`."""
    return {
        name.removesuffix(_MAKES): make
        for module in question_modules()
        for name, make in vars(module).items()
        if name.endswith(_MAKES) and make.__module__ == module.__name__ and name[0] != "_"
    }


def figure_of(table: Table, analysis: Analysis) -> Figure:
    """The figure that `table` declares. Raises ValueError where it declares none."""
    figure = declared_figure(table, analysis.tables()[table.name])
    if figure is None:
        raise ValueError(f"table {table.name!r} declares no figure")
    return figure


def build_report(of: ReportInput) -> Report:
    """The report of `of.analysis`; parts and sections without anything to show are left out."""
    known = {name for kind in section_kinds() for name in kind.tables}
    rest = [_placed(table) for table in tables() if table.name not in known]
    sections = (_section(kind, of, rest) for kind in section_kinds())
    shown = tuple(section for section in sections if section.parts)
    summary = replace(summary_of(of), against=_against(of.against))
    return Report(summary, shown, opening=opening_of(of, summary))


def _placed(table: Table) -> Table:
    """The table, whose section and kind of figure are there. Raises ValueError where one is not:
    it would be missing from every report without a word."""
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
    """The parts of the section, and below them the tables of `rest` that belong to it."""
    added = (_added(table, of) for table in rest if table.section == kind.key)
    noun = noun_of(of.analysis)
    parts = tuple(
        _limited(with_nouns(part, noun), of.top)
        for part in (*kind.parts(of), *added)
        if part.shows_something
    )
    parts += tuple(untold_parts(kind.key, of.analysis))
    return Section(kind.key, kind.title, parts)


def _limited(part: Part, top: int | None) -> Part:
    """The part whose table shows `top` rows, where so many were asked for; one with a row for the
    sum shows all that adds up to it."""
    view = part.table
    if view is None or view.totals is not None or not top:
        return part
    held = max(view.held, top) if view.held else 0
    return replace(part, table=replace(view, shown=top, held=held))


def _added(table: Table, of: ReportInput) -> Part:
    """A table as it declares itself, with its figure."""
    frame = of.analysis.tables()[table.name]
    view = registered_view(table, frame)
    return Part(view.name, table=view, figure=declared_figure(table, frame)) if view else Part()


def _against(comparison: Comparison | None) -> str:
    """How the run compares with its baseline, "" without one."""
    if comparison is None:
        return ""
    from profiler.report.sentences.changes import headline

    base = comparison.runs.filter(comparison.runs["side"] == "base")["run_id"]
    named = base[0] if len(base) == 1 else counted(len(base), "run")
    return said("Against {base}: {headline}.", base=named, headline=headline(comparison))
