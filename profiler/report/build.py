"""The report of an analysis: every section that has something to show, in its order.

    report = build_report(ReportInput(analysis, begin_ns, end_ns))

A section is a module of `profiler.report.sections` that declares a `SECTION`: it is found here.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import profiler.report.sections
from profiler.report.model import Report, ReportInput, Section, SectionKind
from profiler.report.sections.summary import summary_of

__all__ = ["build_report", "section_kinds"]


@cache
def section_kinds() -> tuple[SectionKind, ...]:
    """All sections that are declared, in the order in which they stand."""
    package = profiler.report.sections
    names = [found.name for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    modules = map(importlib.import_module, names)
    kinds = [module.SECTION for module in modules if hasattr(module, "SECTION")]
    return tuple(sorted(kinds, key=lambda kind: kind.place))


def build_report(of: ReportInput) -> Report:
    """The report of `of.analysis`; parts and sections without anything to show are left out."""
    sections = (_section(kind, of) for kind in section_kinds())
    return Report(summary_of(of), tuple(section for section in sections if section.parts))


def _section(kind: SectionKind, of: ReportInput) -> Section:
    parts = tuple(part for part in kind.parts(of) if part.shows_something)
    return Section(kind.key, kind.title, kind.contents or kind.title, parts)
