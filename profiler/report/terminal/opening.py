"""The opening of a report in the terminal: at most 40 lines of any run.

    print_opening(Console(highlight=False), report.opening, Path("traces/tiny"))

What a run has much of gives way in steps until the lines fit: blank lines, second lines of texts,
rows of shapes, the last finding. The tables have the columns that fit, and no others are named.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.text import Text

from profiler.report.model import Advice, Fact, Opening, TableView
from profiler.report.terminal.findings import STYLES
from profiler.report.terminal.layout import (
    Grid,
    clean,
    shorten,
    sparkline,
    table,
    wrapped,
)
from profiler.report.terminal.tables import drawn

__all__ = ["LINES", "opening_texts", "print_opening"]

LINES = 40
_ALERT = "bold red"
_LABEL = 16  # characters at most
_GAP = 2
_NAME = 30  # characters that the name of a row keeps
_GAIN = 16
_NARROWEST = 20  # characters of a text beside its label
_LONGEST_NOTE = 240  # characters of what is said of how the run was chosen


class _Room(Struct, frozen=True):
    """How much of what there is room for: lines of a text, `notes`, rows of shapes, findings;
    `blank` lines between blocks."""

    blank: bool
    lines: int
    notes: int = 3
    shapes: int = 6
    findings: int = 3


_ROOMS = (
    _Room(blank=True, lines=3),
    _Room(blank=True, lines=2),
    _Room(blank=False, lines=2),
    _Room(blank=True, lines=1),
    _Room(blank=False, lines=1),
    _Room(blank=False, lines=1, shapes=3),
    _Room(blank=False, lines=1, notes=2, shapes=3, findings=2),
    _Room(blank=False, lines=1, notes=1, shapes=1, findings=1),
)


def print_opening(
    console: Console,
    opening: Opening,
    place: Path,
    *,
    notes: Sequence[str] = (),
    below: int = 0,
) -> None:
    """Print what a reader with thirty seconds needs of the run at `place`; `notes` are lines about
    how it was chosen, `below` how many lines the caller prints after it."""
    for text in opening_texts(opening, place, console.width, notes=notes, lines=LINES - below):
        console.print(text, soft_wrap=isinstance(text, Text))  # paths of notes stay whole


def opening_texts(
    opening: Opening,
    place: Path,
    width: int,
    *,
    notes: Sequence[str] = (),
    lines: int = LINES,
) -> list[RenderableType]:
    """What `print_opening` prints, in at most that many `lines`."""
    found: list[RenderableType] = []
    for room in _ROOMS:
        found = [*_texts(opening, place, width, notes, room)]
        if sum(_height(text, width) for text in found) <= lines:
            break
    return found


def _height(text: RenderableType, width: int) -> int:
    """How many lines of a terminal it takes."""
    if isinstance(text, Grid):
        return text.row_count + 1
    assert isinstance(text, Text)
    return max(-(-text.cell_len // max(width, 1)), 1)


def _texts(
    opening: Opening, place: Path, width: int, notes: Sequence[str], room: _Room
) -> Iterator[RenderableType]:
    """A line or a table after the other; blocks with a blank line between them, where there is
    room."""
    blocks = (
        _subject(opening, width, notes, room),
        _facts(opening, width, room),
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
    yield from _lines(opening.headline, width, max(room.lines, 2), "bold")
    shown = notes if len(notes) <= room.notes else notes[: room.notes - 1]
    for note in shown:
        yield Text(shorten(clean(note), _LONGEST_NOTE), style="dim")
    if len(shown) < len(notes):
        yield Text(f"{len(notes) - len(shown)} more such lines: --full", style="dim")
    yield from _lines(" · ".join(opening.subject), width, room.lines)
    yield from _lines(opening.selection, width, room.lines, "yellow")
    yield from _lines(opening.against, width, room.lines)


def _facts(opening: Opening, width: int, room: _Room) -> Iterator[RenderableType]:
    """The figures, each beside its name; bars of the steps below the last; what is wrong with the
    recording, a line each, and what is right in one."""
    wrong = [check for check in opening.checks if check.alert]
    right = [f"{_small(one.label)} {one.value}" for one in opening.checks if not one.alert]
    recording = [Fact("Recording", ", ".join(right))] if right else []
    shown = (*opening.facts, *wrong, *recording)
    label = min(max((cell_len(clean(fact.label)) for fact in shown), default=0), _LABEL) + _GAP
    for fact in opening.facts:
        yield from _labelled(fact, width, label, room)
    for bars in opening.bars:
        beside = max(width - label, 1)
        yield Text(" " * label).append(sparkline(bars.values, beside))
        if len(bars.values) > beside:
            each = -(-len(bars.values) // beside)
            note = shorten(f"each bar the highest of up to {each}", beside)
            yield Text(" " * label).append(note, style="dim")
    for fact in (*wrong, *recording):
        yield from _labelled(fact, width, label, room)


def _small(label: str) -> str:
    return label[:1].lower() + label[1:]


def _labelled(fact: Fact, width: int, label: int, room: _Room) -> Iterator[Text]:
    text = f"{fact.value}, {fact.note}" if fact.note else fact.value
    style = _ALERT if fact.alert else ""
    for number, part in enumerate(_parts(text, max(width - label, _NARROWEST), room.lines)):
        head = "" if number else shorten(clean(fact.label), label - _GAP)
        line = Text(head + " " * (label - cell_len(head)), style=style or "dim")
        yield line.append(part, style=style or "not dim")


def _table(
    view: TableView | None, width: int, name: int, rows: int | None = None
) -> Iterator[RenderableType]:
    """The rows below what they are; the first column keeps `name` characters before others go."""
    if view is None:
        return
    shown = view if rows is None else replace(view, shown=min(view.shown, rows))
    yield from _lines(view.name, width, 1, "bold")
    first, *others = drawn(shown, view.frame, significant=True)
    keeps = min(name, max(width // 2, 1))
    yield replace(table([replace(first, shrink=keeps), *others], width), gone=())


def _findings(opening: Opening, width: int, room: _Room) -> Iterator[Text]:
    """The gain of each finding, its title, and below it the change that gets it."""
    yield from _lines(opening.advice_title, width, 1, "bold")
    advised = opening.advice[: room.findings]
    gain = min(max((cell_len(clean(one.gain)) for one in advised), default=0), _GAIN) + _GAP
    for one in advised:
        yield from _advice(one, width, gain, room)


def _advice(one: Advice, width: int, gain: int, room: _Room) -> Iterator[Text]:
    beside = max(width - gain, _NARROWEST)
    for number, part in enumerate(_parts(one.title, beside, room.lines)):
        head = "" if number else shorten(_plain(clean(one.gain)), gain - _GAP)
        blanks = " " * (gain - _GAP - cell_len(head))
        line = Text(blanks + head + " " * _GAP, STYLES[one.finding.severity])
        yield line.append(part, style="not dim not bold default")
    arrow = f"→ {clean(one.change)}"
    indent = max(min(gain, width - cell_len(arrow)), 0)  # whole, where the width allows it
    for part in _parts(arrow, max(width - indent, _NARROWEST), 1):
        yield Text(" " * indent + part)


def _further(opening: Opening, place: Path, width: int) -> Iterator[Text]:
    """How to go on: the command for all of it, whole where it fits, so that it can be copied, and
    the sections that the findings lead to."""
    command = f"profile-sd3 analyze {shlex.quote(_shortest(place))} --full"
    start = "More: "
    room = width - cell_len(clean(command))
    if room < 0:
        command = "profile-sd3 analyze … --full"
    yield from _lines((start if room < 0 or room >= len(start) else "") + command, width, 1)
    sections = ",".join(opening.sections)
    further = f"--section {sections}: these alone; --list-sections: their names"
    yield from _lines(" " * len(start) + further, width, 1)


def _shortest(place: Path) -> str:
    """The path as it is, or from the folder that the user is in."""
    return min(str(place), os.path.relpath(place), key=len)


def _lines(text: str, width: int, most: int, style: str = "") -> Iterator[Text]:
    return (Text(part, style=style) for part in _parts(text, width, most))


def _parts(text: str, width: int, most: int) -> Iterable[str]:
    """The text in at most that many lines; what does not fit is cut at the end, and … says so."""
    lines = [*wrapped(text, width)]
    if len(lines) <= most:
        return lines
    last = lines[most - 1]
    if cell_len(last) >= width:
        last = last.rpartition(" ")[0] or set_cell_size(last, width - 1)
    return [*lines[: most - 1], f"{last}…"]


def _plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")
