"""The report in the terminal.

    print_report(Console(highlight=False), build_report(given))  # everything
    print_sections(Console(highlight=False), build_report(given), ["idle"])

Fits the console's width: tables drop what matters least and shorten layer names in the middle.
Every string that came from a trace is stripped of control characters on its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from rich.console import Console, RenderableType
from rich.text import Text

from profiler.report.model import Bars, Fact, Group, Part, Report, Section, Summary
from profiler.report.terminal.findings import finding_texts
from profiler.report.terminal.layout import clean, shorten, sparkline, wrapped
from profiler.report.terminal.tables import table_texts

__all__ = ["print_report", "print_sections", "report_texts"]

_ALERT = "bold red"
_LABEL = 22  # characters at most
_GAP = 2
_NARROWEST = 20  # characters of a text beside its label
_BARS = 16  # characters of the label of a line of bars


def print_report(console: Console, report: Report, *, notes: Sequence[str] = ()) -> None:
    """Print the summary and all sections; `notes` are lines about how the run was chosen."""
    width = console.width
    for line in _headline(report.summary, width):
        console.print(line)
    for note in notes:
        console.print(Text(clean(note), style="dim"), soft_wrap=True)  # paths stay whole
    for text in _below_headline(report, width):
        console.print(text)
    for text in _verdicts(report.verdicts, width):
        console.print(text)


def print_sections(console: Console, report: Report, keys: Sequence[str]) -> None:
    """Print the sections with these keys and nothing else, in the report's order; `summary` is what
    stands above them. A section in which the run has nothing to show says so."""
    width = console.width
    texts: list[RenderableType] = []
    if "summary" in keys:
        above = replace(report, sections=())
        texts += [*_headline(report.summary, width), *_below_headline(above, width)]
    found = {section.key: section for section in report.sections}
    texts += _sections([found[key] for key in found if key in keys], width)
    for key in keys:
        if key not in found and key != "summary":
            texts.append(_paragraph(f"{key}: this run has nothing to show there", width))
    texts += _verdicts(report.verdicts, width)
    for number, text in enumerate(texts):
        if number or not isinstance(text, Text) or text.plain:  # no blank line above all
            console.print(text)


def report_texts(report: Report, width: int) -> Iterator[RenderableType]:
    """What `print_report` prints, a line or table after the other."""
    yield from _headline(report.summary, width)
    yield from _below_headline(report, width)
    yield from _verdicts(report.verdicts, width)


def _headline(summary: Summary, width: int) -> Iterator[Text]:
    for line in wrapped(summary.headline, width):
        yield Text(line, style="bold")


def _below_headline(report: Report, width: int) -> Iterator[RenderableType]:
    summary = [*_summary(report.summary, width)]
    if summary:
        yield Text()
    yield from summary
    yield from _sections(report.sections, width)


def _sections(sections: Sequence[Section], width: int) -> Iterator[RenderableType]:
    """Each section that prints something, behind a blank line."""
    for section in sections:
        parts = [(part, [*_content(part, width)]) for part in section.parts]
        shown = [(part, content) for part, content in parts if content]
        if shown:
            yield Text()
            yield from _section(section, shown, width)


def _verdicts(verdicts: Sequence[Fact], width: int) -> Iterator[Text]:
    """What passed and what failed, at the end."""
    if verdicts:
        yield Text()
    for verdict in verdicts:
        style = _ALERT if verdict.alert else ""
        yield _paragraph(f"{verdict.label}: {verdict.value}", width, style)


def _section(
    section: Section, parts: Sequence[tuple[Part, list[RenderableType]]], width: int
) -> Iterator[RenderableType]:
    """A heading with a rule, and the parts with a blank line between each other."""
    title = clean(section.title)
    if title:
        rule = "─" * max(width - len(title) - 1, 0)
        yield Text(title, style="bold").append(f" {rule}", style="dim not bold")
    for number, (part, content) in enumerate(parts):
        if number:
            yield Text()
        for line in wrapped(part.title, width):
            yield Text(line, style="bold")
        yield from content


def _summary(summary: Summary, width: int) -> Iterator[Text]:
    if summary.subject:
        yield _paragraph(" · ".join(summary.subject), width)
    if summary.selection:
        yield _paragraph(summary.selection, width, "yellow")
    if summary.missing:
        for line in summary.missing:
            yield _paragraph(line, width, _ALERT)
    if summary.against:
        yield _paragraph(summary.against, width)
    if summary.facts:
        yield _facts(summary.facts, width)
    if summary.accounting:
        yield _paragraph(summary.accounting, width)


def _facts(facts: Sequence[Fact], width: int) -> Text:
    rows = [
        (fact.label, f"{fact.value}, {fact.note}" if fact.note else fact.value, fact.alert)
        for fact in facts
    ]
    return _labelled(rows, width)


def _groups(groups: Sequence[Group], width: int) -> Text:
    """A title, and its names and values behind each other."""
    return _labelled([(group.title, _pairs(group), False) for group in groups], width)


def _pairs(group: Group) -> str:
    separator = "; " if any(", " in value for _, value in group.rows) else ", "
    return separator.join(" ".join(filter(None, pair)) for pair in group.rows)


def _labelled(rows: Sequence[tuple[str, str, bool]], width: int) -> Text:
    """Labels in one column, their texts beside, wrapped between number and number, not unit."""
    label = min(max((len(clean(name)) for name, _, _ in rows), default=0), _LABEL) + _GAP
    laid = []
    for name, text, alert in rows:
        style = _ALERT if alert else ""
        for number, part in enumerate(wrapped(text, max(width - label, _NARROWEST))):
            head = "" if number else shorten(clean(name), _LABEL)
            line = Text(f"{head:<{label}}", style=style or "dim")
            laid.append(line.append(part, style=style or "not dim"))
    return Text("\n").join(laid)


def _content(part: Part, width: int) -> Iterator[RenderableType]:
    """What is printed of a part below its title; nothing where all of it is a figure."""
    if part.lead and (part.always or part.table or part.findings or part.groups or _bars(part)):
        yield _paragraph(part.lead, width)
    yield from finding_texts(part.findings, width, part.noun)
    if part.groups:
        yield _groups(part.groups, width)
    if part.table is not None:
        yield from table_texts(part.table, width)
    yield from _lines_of_bars(_bars(part), width)
    if part.table is not None or part.always or _bars(part):
        for note in part.notes:
            yield _paragraph(note, width, "dim")


def _bars(part: Part) -> tuple[Bars, ...]:
    return part.figure.bars if part.figure is not None else ()


def _lines_of_bars(lines: Sequence[Bars], width: int) -> Iterator[Text]:
    """Bars below each other; what is longer than a line says how many values a bar stands for."""
    names = [shorten(clean(line.label), _BARS) for line in lines]
    label = max(map(len, names), default=0) + _GAP if len(names) > 1 else 0
    room = max(width - label, 1)
    for name, line in zip(names, lines, strict=True):
        head = f"{name:<{label}}" if label else ""
        yield Text(head, style="dim").append(sparkline(line.values, room), style="not dim")
    longest = max((len(line.values) for line in lines), default=0)
    if longest > room:
        yield Text(f"each bar the highest of up to {-(-longest // room)}", style="dim")


def _paragraph(text: str, width: int, style: str = "") -> Text:
    return Text("\n".join(wrapped(text, width)), style=style)
