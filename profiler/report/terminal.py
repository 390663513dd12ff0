"""Print reports in the terminal: the 40-line overview, sections, or everything.

    print_opening(Console(highlight=False), report.opening, Path("traces/tiny"))
    print_report(Console(highlight=False), build_report(given))  # everything
    print_sections(Console(highlight=False), build_report(given), ["idle"])

Tables drop their least important columns to fit the console's width, and shorten layer names in
the middle. Control characters in names are removed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.styled import Styled
from rich.text import Text

from profiler.analysis.document import (
    Advice,
    Bars,
    Fact,
    Group,
    Opening,
    Part,
    Report,
    Section,
    Summary,
    TableView,
)
from profiler.analysis.finding_text import evidence_pairs, gained, words
from profiler.analysis.result import Finding, Severity
from profiler.report.terminal_layout import (
    Grid,
    clean,
    drawn,
    shorten,
    sparkline,
    table,
    table_texts,
    wrapped,
)
from profiler.text import Noun

if TYPE_CHECKING:
    from profiler.compare.side_by_side import Room

# --- Findings in the terminal: title, evidence, recommendation.


_WHOLE = 5  # findings with evidence and recommendation; others with their title only
_NUMBERS = 5  # of the evidence
_TEXT = 48  # characters of a text in the evidence
_INDENT = 8
STYLES: dict[Severity, str] = {"high": "bold red", "medium": "yellow", "low": "dim"}
"""The style of the severity before a finding's title."""


def finding_texts(
    findings: Sequence[Finding], width: int, noun: Noun = Noun.COMMANDS
) -> Iterator[Text]:
    """Yield the findings, after the first few only titles. `noun` is the word for commands."""
    text_width = max(width - _INDENT, 20)
    for number, finding in enumerate(findings):
        lines = [*_title(finding, text_width)]
        if number < _WHOLE:
            lines += _reasons(finding, text_width, noun)
        yield Text("\n").join(lines)


def evidence_text(finding: Finding, numbers: int | None = None, noun: Noun = Noun.COMMANDS) -> str:
    """Format the evidence, or its first `numbers`: `"host wait 424 ms, host wait share 36 %"`."""
    pairs = [*evidence_pairs(finding, noun)][:numbers]
    return ", ".join(f"{name} {shorten(text, _TEXT)}" for name, text in pairs)


def _title(finding: Finding, width: int) -> Iterator[Text]:
    """Severity and title."""
    for number, part in enumerate(wrapped(words(finding).title, width)):
        label = Text(f"{'' if number else finding.severity:<{_INDENT}}", STYLES[finding.severity])
        yield label.append(part, style="not dim not bold default")


def _reasons(finding: Finding, width: int, noun: Noun) -> Iterator[Text]:
    """Yield evidence, the gain according to a replay, and recommendation."""
    for part in wrapped(evidence_text(finding, _NUMBERS, noun), width):
        yield Text(" " * _INDENT + part, style="dim")
    gain = gained(finding)
    for part in wrapped(gain, width) if gain is not None else ():
        yield Text(" " * _INDENT + part)
    for part in wrapped(f"→ {words(finding).recommendation}", width):
        yield Text(" " * _INDENT + part)


# --- The opening of a report in the terminal: at most 40 lines for any run.
#
# What a run has much of gives way in steps until the lines fit: blank lines, second lines of texts,
# rows of shapes, the last finding. The tables have the columns that fit, and no others are named.


LINES = 40
_ALERT = "bold red"
_OPENING_LABEL = 18  # characters at most
_GAP = 2
_NAME = 30  # characters that a row's name keeps
_GAIN = 16
_NARROWEST = 20  # characters of a text beside its label
_TITLE = 0.44  # of a line: what long titles get beside their outcome
_LONGEST_NOTE = 240  # characters of a note on how the run was chosen


class _Room(Struct, frozen=True):
    """The line budget: lines of a text and of a rung, `notes`, rows of shapes, findings; `blank` is
    whether blocks are separated by a blank line. `more` has further lines of each text: of notes
    on what to do, then the subject, then facts."""

    blank: bool
    lines: int
    notes: int = 3
    shapes: int = 6
    findings: int = 3
    rung_lines: int = 3
    more: tuple[int, ...] = ()

    def lines_at(self, place: int) -> int:
        """The lines of the text at this place in the order of `more`."""
        return self.lines + sum(self.more[place : place + 1])


_ROOMS = (
    _Room(blank=True, lines=3),
    _Room(blank=True, lines=2),
    _Room(blank=False, lines=2),
    _Room(blank=False, lines=1),
    _Room(blank=False, lines=1, rung_lines=2),
    _Room(blank=False, lines=1, shapes=3, rung_lines=2),
    _Room(blank=False, lines=1, shapes=3, rung_lines=1),
    _Room(blank=False, lines=1, notes=2, shapes=3, findings=2, rung_lines=1),
    _Room(blank=False, lines=1, notes=1, shapes=1, findings=1, rung_lines=1),
)


def print_opening(
    console: Console, opening: Opening, place: Path, *, notes: Sequence[str] = (), below: int = 0
) -> None:
    """Print the overview of the run at `place` for a reader with thirty seconds; `notes` are lines
    about how it was chosen, `below` is the number of lines that the caller prints after it."""
    for text in opening_texts(opening, place, console.width, notes=notes, lines=LINES - below):
        console.print(text, soft_wrap=isinstance(text, Text))  # paths of notes stay whole


def opening_texts(
    opening: Opening, place: Path, width: int, *, notes: Sequence[str] = (), lines: int = LINES
) -> list[RenderableType]:
    """Return what `print_opening` prints, in at most `lines` lines."""
    found: list[RenderableType] = []
    for room in _ROOMS:
        found = [*_texts(opening, place, width, notes, room)]
        if sum(_height(text, width) for text in found) <= lines:
            break
    subject = len(opening.advice_notes)
    more = [0] * (subject + 1 + len(opening.facts) + len(opening.checks))
    for at in (*range(len(more)), *range(len(more))):  # whole texts are better than lines left
        if at != subject and not any(map(_is_cut, found)):
            continue
        more[at] += 1
        wider = [*_texts(opening, place, width, notes, replace(room, more=tuple(more)))]
        if sum(_height(text, width) for text in wider) <= lines:
            found = wider
        else:
            more[at] -= 1
    return found


def _is_cut(text: RenderableType) -> bool:
    return isinstance(text, Text) and text.plain.endswith("…")


def _height(text: RenderableType, width: int) -> int:
    """Count the terminal lines of a text."""
    if isinstance(text, Grid):
        return text.height
    assert isinstance(text, Text)
    return max(-(-text.cell_len // max(width, 1)), 1)


def _texts(
    opening: Opening, place: Path, width: int, notes: Sequence[str], room: _Room
) -> Iterator[RenderableType]:
    """Yield lines and tables in order; blocks are separated by a blank line, if there is room."""
    blocks = (
        _subject(opening, width, notes, room),
        _opening_facts(opening, width, room),
        _table(opening.submodules, width, _NAME),
        _findings(opening, width, room),
        _table(opening.shapes, width, width, room.shapes),
        _further(opening, place, width),
    )
    for number, block in enumerate(blocks):
        content = [*block]
        if number and content and room.blank:
            yield Text()
        yield from content


def _subject(
    opening: Opening, width: int, notes: Sequence[str], room: _Room
) -> Iterator[RenderableType]:
    yield from _text_lines(opening.headline, width, 3, "bold")
    shown = notes if len(notes) <= room.notes else notes[: room.notes - 1]
    for note in shown:
        for line in _note_lines(shorten(clean(note), _LONGEST_NOTE), width):
            yield Text(line, style="dim")
    if len(shown) < len(notes):
        yield Text(f"{len(notes) - len(shown)} more such lines: --full", style="dim")
    lines = room.lines_at(len(opening.advice_notes))
    subject = [*opening.subject]
    while len(subject) > 1 and len([*wrapped(" · ".join(subject), width)]) > lines:
        subject.pop()  # whole names, none that is cut
    yield from _text_lines(" · ".join(subject), width, lines)
    yield from _text_lines(opening.selection, width, room.lines, "yellow")
    yield from _text_lines(opening.against, width, room.lines)


def _opening_facts(opening: Opening, width: int, room: _Room) -> Iterator[RenderableType]:
    """Yield the facts, each beside its name; bars of the steps beside the last, or below it if
    there is no room; then one line per problem of the recording, and one for all that is right."""
    checks = [check for check in opening.checks if check.alert or check.remark]
    right = [f"{_small(one.label)} {one.value}" for one in opening.checks if one not in checks]
    recording = [Fact("Recording", ", ".join(right))] if right else []
    shown = (*opening.facts, *checks, *recording)
    label = (
        min(max((cell_len(clean(fact.label)) for fact in shown), default=0), _OPENING_LABEL) + _GAP
    )
    first = len(opening.advice_notes) + 1
    facts: list[Text] = []
    for place, fact in enumerate(opening.facts, first):
        facts += _labelled_fact(fact, width, label, room.lines_at(place))
    for bars in opening.bars:
        beside = max(width - label, 1)
        line = Text(" " * label).append(sparkline(bars.values, beside))
        if facts and facts[-1].cell_len + _GAP + len(bars.values) <= width:
            line = facts.pop().append(" " * _GAP).append(sparkline(bars.values, beside))
        facts.append(line)
        if len(bars.values) > beside:
            each = -(-len(bars.values) // beside)
            note = shorten(f"each bar the highest of up to {each}", beside)
            facts.append(Text(" " * label).append(note, style="dim"))
    yield from facts
    for place, fact in enumerate((*checks, *recording), first + len(opening.facts)):
        yield from _labelled_fact(fact, width, label, room.lines_at(place))


def _note_lines(note: str, width: int) -> Iterable[str]:
    """The lines of a note, broken between words; one with a path stays whole, to be copied."""
    return [note] if os.sep in note else wrapped(note, width)


def _small(label: str) -> str:
    return label[:1].lower() + label[1:]


def _labelled_fact(fact: Fact, width: int, label: int, lines: int) -> Iterator[Text]:
    text = _value(fact)
    style = _ALERT if fact.alert else ""
    for number, part in enumerate(_parts(text, max(width - label, _NARROWEST), lines)):
        head = "" if number else shorten(clean(fact.label), label - _GAP)
        line = Text(head + " " * (label - cell_len(head)), style=style or "dim")
        yield line.append(part, style=style or "not dim")


def _table(
    view: TableView | None, width: int, name: int, rows: int | None = None
) -> Iterator[RenderableType]:
    """Yield a table below its name; its first column keeps `name` characters at least."""
    if view is None:
        return
    shown = view if rows is None else replace(view, shown=min(view.shown, rows))
    yield from _text_lines(view.name, width, 1, "bold")
    first, *others = drawn(shown, view.frame, significant=True)
    keeps = min(name, max(width // 2, 1))
    yield replace(table([replace(first, shrink=keeps), *others], width), gone=())


def _findings(opening: Opening, width: int, room: _Room) -> Iterator[Text]:
    """Yield each finding's gain and title, with the recommended change below."""
    yield from _text_lines(opening.advice_title, width, min(room.rung_lines, 2), "bold")
    if any(one.outcome for one in opening.advice):
        yield from _outcomes(opening, width, room)
        return
    advised = opening.advice[: room.findings]
    gain = min(max((cell_len(clean(one.gain)) for one in advised), default=0), _GAIN) + _GAP
    for one in advised:
        yield from _advice(one, width, gain, room)
    for note in opening.advice_notes:
        yield from _text_lines(f"  {_plain(clean(note))}", width, room.lines, hang=2)


def _advice(one: Advice, width: int, gain: int, room: _Room) -> Iterator[Text]:
    beside = max(width - gain, _NARROWEST)
    for number, part in enumerate(_parts(one.title, beside, min(room.rung_lines, 2))):
        head = "" if number else shorten(_plain(clean(one.gain)), gain - _GAP)
        blanks = " " * (gain - _GAP - cell_len(head))
        severity = one.finding.severity if one.finding is not None else "low"
        line = Text(blanks + head + " " * _GAP, STYLES[severity])
        yield line.append(part, style="not dim not bold default")
    arrow = f"→ {clean(one.change)}"
    indent = max(min(gain, width - cell_len(arrow)), 0)  # unshortened, if the width allows it
    for part in _parts(arrow, max(width - indent, _NARROWEST), 1):
        yield Text(" " * indent + part)


def _outcomes(opening: Opening, width: int, room: _Room) -> Iterator[Text]:
    """Yield the rungs, then all together, each title beside its outcome: outcomes are one column.
    The last rungs are left out if there is little room."""
    rungs = opening.advice[: 2 * room.findings - 1]
    total = () if opening.advice_total is None else (opening.advice_total,)
    number = len(str(len(rungs)))
    beside = max(width - number - _GAP, _NARROWEST)
    titles = [_cells(one.title) for one in (*rungs, *total) if one.gain]
    gains = [_cells(one.gain) for one in rungs]
    outcomes = [*gains, *(_cells(one.change) for one in rungs)]
    title = min(max(titles), max(beside - _GAP - max(outcomes), round(_TITLE * beside)))
    if beside - title - _GAP < max(gains):
        title = 0  # outcomes are below
    for place, one in enumerate((*rungs, *total), 1):
        style = "" if place <= len(rungs) else "bold"
        for row, line in enumerate(_rung(one, title, beside, room, style)):
            head = "" if row or style else str(place)
            yield Text(f"{head:>{number}}{' ' * _GAP}").append_text(line)
    blanks = " " * (number + _GAP)
    for place, note in enumerate(opening.advice_notes):
        yield from _text_lines(blanks + _plain(clean(note)), width, room.lines_at(place), "dim")


def _rung(one: Advice, title: int, width: int, room: _Room, style: str) -> Iterator[Text]:
    """Yield what to do in `title` characters, with its outcome and the remarks beside, or, if there
    are no `title` characters, below."""
    gain, remarks = _plain(clean(one.gain)), _plain(clean(one.change))
    beside = width - title - _GAP if title else width
    whole = f"{gain} · {remarks}" if remarks else gain
    outcome = [*_parts(whole, beside, 1)]
    if remarks and outcome != [whole] and room.rung_lines > 1:
        outcome = [gain, *_parts(remarks, beside, room.rung_lines - 1)]
        flowing = [*_parts(whole, beside, room.rung_lines)]
        if len(flowing) < len(outcome) and flowing[0].startswith(gain):
            outcome = flowing
    heads = [*_parts(_plain(clean(one.title)), title if title and gain else width, room.rung_lines)]
    if not title:
        yield from (Text(head, style) for head in heads)
        heads = []
    for row, (head, text) in enumerate(zip_longest(heads, outcome, fillvalue="")):
        line = Text(head, style)
        if text:
            line.append(" " * (width - beside - cell_len(head)))
            told = gain if not row and text.startswith(gain) else ""
            line.append(told, style or "green").append(text.removeprefix(told), "dim not bold")
        yield line


def _cells(text: str) -> int:
    return cell_len(_plain(clean(text)))


def _further(opening: Opening, place: Path, width: int) -> Iterator[Text]:
    """Yield how to continue: the command for the full report, unshortened if it fits, so that it
    can be copied, and the sections that the findings refer to."""
    command = f"profile-sd3 analyze {shlex.quote(_shortest(place))} --full"
    start = "More: "
    room = width - cell_len(clean(command))
    if room < 0:
        command = "profile-sd3 analyze … --full"
    yield from _text_lines((start if room < 0 or room >= len(start) else "") + command, width, 1)
    sections = ",".join(opening.sections)
    further = f"--section {sections}: these alone; --list-sections: their names"
    yield from _text_lines(" " * len(start) + further, width, 1)


def _shortest(place: Path) -> str:
    """Return the path as it is or relative to the current folder, whichever is shorter."""
    return min(str(place), os.path.relpath(place), key=len)


def _text_lines(
    text: str, width: int, most: int, style: str = "", *, hang: int = 0
) -> Iterator[Text]:
    """The text in at most `most` lines with its own indent, and `hang` more from the second on."""
    blanks = len(text) - len(text.lstrip(" "))
    parts = _parts(text.lstrip(" "), max(width - blanks - hang, _NARROWEST), most)
    for number, part in enumerate(parts):
        yield Text(" " * (blanks + hang * (number > 0)) + part, style=style)


def _parts(text: str, width: int, most: int) -> Iterable[str]:
    """Wrap the text into at most `most` lines; the rest is cut off and replaced by …."""
    lines = [*wrapped(text, width)]
    if len(lines) <= most:
        return lines
    last = lines[most - 1]
    if cell_len(last) >= width:
        last = last.rpartition(" ")[0] or set_cell_size(last, width - 1)
    return [*lines[: most - 1], f"{last}…"]


def _plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


# --- The report in the terminal: all of it, or some sections.


_MAX_LABEL = 22  # characters at most
_BARS = 16  # characters of the label of a line of bars


def print_report(console: Console, report: Report, *, notes: Sequence[str] = ()) -> None:
    """Print the summary and all sections; `notes` are lines about how the run was chosen."""
    headline, *texts = report_texts(report, console.width)
    console.print(headline)
    for note in notes:
        for line in _note_lines(clean(note), console.width):
            console.print(Text(line, style="dim"), soft_wrap=True)
    for text in texts:
        console.print(text)


def print_sections(console: Console, report: Report, keys: Sequence[str]) -> None:
    """Print only the sections with these keys, in the report's order; `summary` is the part above
    them. A section in which the run has nothing to show says so."""
    width = console.width
    texts: list[RenderableType] = []
    if "summary" in keys:
        above = replace(report, sections=())
        texts += [_paragraph(report.summary.headline, width, "bold")]
        texts += _below_headline(above, width)
    found = {section.key: section for section in report.sections}
    texts += _sections([found[key] for key in found if key in keys], width)
    for key in keys:
        if key not in found and key != "summary":
            texts.append(_paragraph(f"{key}: this run has nothing to show there", width))
    texts += _verdicts(report.verdicts, width)
    for number, text in enumerate(texts):
        if number or not isinstance(text, Text) or text.plain:  # no blank line at the top
            console.print(text)


def report_texts(report: Report, width: int) -> Iterator[RenderableType]:
    """Yield what `print_report` prints, line by line or table by table."""
    yield _paragraph(report.summary.headline, width, "bold")
    yield from _below_headline(report, width)
    yield from _verdicts(report.verdicts, width)


def _below_headline(report: Report, width: int) -> Iterator[RenderableType]:
    summary = [*_summary(report.summary, width)]
    if summary:
        yield Text()
    yield from summary
    yield from _sections(report.sections, width)


def _sections(sections: Sequence[Section], width: int) -> Iterator[RenderableType]:
    """Yield each section that prints something, after a blank line."""
    for section in sections:
        parts = [(part, [*_content(part, width)]) for part in section.parts]
        shown = [(part, content) for part, content in parts if content]
        if shown:
            yield Text()
            yield from _section(section, shown, width)


def _verdicts(verdicts: Sequence[Fact], width: int) -> Iterator[Text]:
    """Yield the results of gates, at the end of the report."""
    if verdicts:
        yield Text()
    for verdict in verdicts:
        style = _ALERT if verdict.alert else ""
        yield _paragraph(f"{verdict.label}: {verdict.value}", width, style)


def _section(
    section: Section, parts: Sequence[tuple[Part, list[RenderableType]]], width: int
) -> Iterator[RenderableType]:
    """Yield a heading with a rule, and the parts, separated by blank lines."""
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
    for line in summary.missing:
        yield _paragraph(line, width, _ALERT if summary.lost else "")
    if summary.against:
        yield _paragraph(summary.against, width)
    if summary.facts:
        rows = [(fact.label, _value(fact), fact.alert) for fact in summary.facts]
        yield _labelled_rows(rows, width)
    if summary.accounting:
        yield _paragraph(summary.accounting, width)


def _value(fact: Fact) -> str:
    return f"{fact.value}, {fact.note}" if fact.note else fact.value


def _groups(groups: Sequence[Group], width: int) -> Text:
    """Return groups in lines: a title, then its names and values."""
    return _labelled_rows([(group.title, _pairs(group), False) for group in groups], width)


def _pairs(group: Group) -> str:
    separator = "; " if any(", " in value for _, value in group.rows) else ", "
    return separator.join(" ".join(filter(None, pair)) for pair in group.rows)


def _labelled_rows(rows: Sequence[tuple[str, str, bool]], width: int) -> Text:
    """Return labels in a column and wrapped texts beside, never broken before a unit."""
    label = min(max((len(clean(name)) for name, _, _ in rows), default=0), _MAX_LABEL) + _GAP
    laid = []
    for name, text, alert in rows:
        style = _ALERT if alert else ""
        for number, part in enumerate(wrapped(text, max(width - label, _NARROWEST))):
            head = "" if number else shorten(clean(name), _MAX_LABEL)
            line = Text(f"{head:<{label}}", style=style or "dim")
            laid.append(line.append(part, style=style or "not dim"))
    return Text("\n").join(laid)


def _content(part: Part, width: int) -> Iterator[RenderableType]:
    """Yield what is printed of a part below its title; nothing if it is only a figure."""
    if part.lead and (part.always or part.table or part.findings or part.groups or _bars(part)):
        yield _paragraph(part.lead, width)
    yield from finding_texts(part.findings, width, part.noun)
    if part.groups:
        yield _groups(part.groups, width)
    if part.table is not None:
        rows = table_texts(part.table, width)
        yield from (Styled(row, "dim") for row in rows) if part.quiet else rows
    yield from _lines_of_bars(_bars(part), width)
    if part.table is not None or part.always or _bars(part):
        for note in part.notes:
            yield _paragraph(note, width, "dim")


def _bars(part: Part) -> tuple[Bars, ...]:
    return part.figure.bars if part.figure is not None else ()


def _lines_of_bars(lines: Sequence[Bars], width: int) -> Iterator[Text]:
    """Yield lines of bars, and a note if a bar stands for several values."""
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


# --- A report of which a terminal shows at most 40 lines.


def print_brief(console: Console, made: Callable[[Room], Report]) -> None:
    """Print the report that `made` returns for the largest budget (`ROOMS`) that fits 40 lines,
    else for the smallest."""
    from profiler.compare.side_by_side import ROOMS

    for report in map(made, ROOMS):
        if _count_lines(report, console.width) <= LINES:
            break
    print_report(console, report)


def _count_lines(report: Report, width: int) -> int:
    text = StringIO()
    print_report(Console(file=text, width=width, highlight=False), report)
    return text.getvalue().count("\n")
