"""Tables for a terminal: columns that give way when narrow, and texts that fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from textwrap import wrap

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from profiler.plugins import plain_text

__all__ = [
    "Drawn",
    "Grid",
    "clean",
    "continued",
    "shorten",
    "sparkline",
    "table",
    "wrapped",
]

_GAP = 2  # blanks between columns
_NARROWEST = 8  # characters of a column that must shrink
_HEADER = 24  # characters of a column that is named as gone
_HEADED = 12  # characters of a header that its cells do not need
_BARS = "▁▂▃▄▅▆▇█"
_LONGEST = 4_000  # characters of a line, before it is wrapped
_NO_BREAK = "\N{NO-BREAK SPACE}"
_BEFORE_UNIT = re.compile(r"(?<=[0-9]) (?=%|(?:[nµm]?s|[KMGT]?i?B)\b)")


class Drawn(Struct, frozen=True):
    """One column. `rank` 0 always stays; of the others the highest goes first where the table is
    too wide. A column with `shrink` is cut down to that many characters before another goes, and
    further where none is left to go. Where cells list `names`, as many of these stay as fit."""

    header: str
    cells: tuple[str, ...]
    right: bool = True
    rank: int = 0
    shrink: int = 0
    names: tuple[tuple[str, ...], ...] = ()

    @property
    def width(self) -> int:
        return max(cell_len(text) for text in (self.header, *self.cells))


class Grid(Struct, frozen=True, eq=False):
    """A table that fits: its columns with the width of each, the `strong` rows, which are bold, and
    the headers of columns that had to go, named below it. Lines end where their text does. `below`
    has a text to stand below each of the first rows."""

    columns: tuple[Drawn, ...]
    widths: tuple[int, ...]
    strong: frozenset[int] = frozenset()
    gone: tuple[str, ...] = ()
    below: tuple[str, ...] = ()

    @property
    def row_count(self) -> int:
        """Rows below the header."""
        return len(self.columns[0].cells) if self.columns else 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        texts = [
            [_placed(text, width, column) for text in (column.header, *_cells(column, width))]
            for column, width in zip(self.columns, self.widths, strict=True)
        ]
        dim, bold = console.get_style("dim"), console.get_style("bold")
        for number, cells in enumerate(zip(*texts, strict=True), -1):
            style = dim if number < 0 else bold if number in self.strong else None
            yield Segment((" " * _GAP).join(cells).rstrip(), style)
            yield Segment.line()
            if 0 <= number < len(self.below) and self.below[number]:
                room = max(options.max_width - _GAP, _NARROWEST)
                yield Segment(" " * _GAP + shorten(self.below[number], room), dim)
                yield Segment.line()
        if self.gone:
            names = ", ".join(shorten(name, _HEADER) for name in self.gone if name)
            yield Text(f"not shown: {names}", style="dim")


def table(
    columns: Sequence[Drawn],
    width: int,
    *,
    strong: Iterable[int] = (),
    below: Iterable[str] = (),
) -> Grid:
    """The columns as a table of at most `width` characters; `strong` rows bold, a text `below` each
    of the first ones. Columns that had to go are named below it."""
    drawn, limits = _fit(list(columns), width)
    widths = tuple(min(limit, one.width) for limit, one in zip(limits, drawn, strict=True))
    gone = tuple(column.header for column in columns if column not in drawn)
    return Grid(tuple(drawn), widths, frozenset(strong), gone, tuple(below))


def continued(columns: Sequence[Drawn], repeated: int, width: int) -> Iterator[list[Drawn]]:
    """The columns in sets that fit the width, each behind the first `repeated` of them."""
    headed = [*map(_headed, columns)]
    first, rest = headed[:repeated], headed[repeated:]
    while rest:
        some = [rest.pop(0)]
        while rest and _smallest([*first, *some, rest[0]]) <= width:
            some.append(rest.pop(0))
        yield [*first, *some]


def _headed(column: Drawn) -> Drawn:
    """The column with a header that is hardly wider than its cells."""
    room = max(_HEADED, *map(cell_len, column.cells)) if column.cells else _HEADED
    return replace(column, header=shorten(column.header, room))


def _cells(column: Drawn, width: int) -> Iterable[str]:
    """The cells, of those that list names as many of them as fit."""
    if not column.names:
        return column.cells
    pairs = zip(column.names, column.cells, strict=True)
    return (_as_many(names, width) or text for names, text in pairs)


def _as_many(names: Sequence[str], width: int) -> str:
    """`"Mul 16 → 0, Add 12 → 4, 2 more"`; "" where there is no room for one."""
    for count in range(len(names), 0, -1):
        more = [f"{len(names) - count} more"] if count < len(names) else []
        text = ", ".join([*names[:count], *more])
        if cell_len(text) <= width:
            return text
    return ""


def _placed(text: str, width: int, column: Drawn) -> str:
    """A cell of `width` characters, shortened or filled up with blanks."""
    text = shorten(text, width)
    blanks = " " * (width - cell_len(text))
    return blanks + text if column.right else text + blanks


def _fit(columns: list[Drawn], width: int) -> tuple[list[Drawn], list[int]]:
    """Drop columns until the rest fits at its smallest; then the width of each. Where even those
    that always stay do not fit, the last go, but never the first."""
    while _smallest(columns) > width and any(column.rank for column in columns):
        columns.remove(max(columns, key=lambda column: column.rank))
    while len(columns) > 1 and _shrunk(columns) > width:
        columns.pop()
    limits = [_least(column) for column in columns]
    spare = width - _smallest(columns)
    for number, column in enumerate(columns):
        if spare >= 0:
            change = min(spare, column.width - limits[number])
        else:
            change = max(spare, min(_NARROWEST - limits[number], 0)) if column.shrink else 0
        limits[number] += change
        spare -= change
    return columns, limits


def _smallest(columns: Sequence[Drawn]) -> int:
    return sum(_least(column) for column in columns) + _GAP * (len(columns) - 1)


def _shrunk(columns: Sequence[Drawn]) -> int:
    """The width where every column that may has shrunk as far as it can."""
    least = (min(_least(one), _NARROWEST) if one.shrink else _least(one) for one in columns)
    return sum(least) + _GAP * (len(columns) - 1)


def _least(column: Drawn) -> int:
    return min(column.width, column.shrink) if column.shrink else column.width


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` characters, its middle replaced by … where it is too long."""
    if cell_len(text) <= width:
        return text
    if width < 2 or cell_len(text) != len(text):
        return set_cell_size(text, max(width - 1, 0)) + "…"
    head = (width - 1) // 3
    return f"{text[:head]}…{text[head + 1 - width :]}"


def sparkline(values: Sequence[float], width: int) -> str:
    """One bar a value, the longest of each group where there are more values than `width`.

    The lowest bar is the smallest value, or 90 % of the largest where they differ by less: noise
    shall not look like a mountain.
    """
    if not values or width < 1:
        return ""
    count = min(len(values), width)
    cuts = [round(i * len(values) / count) for i in range(count + 1)]
    groups = [max(values[a:b]) for a, b in pairwise(cuts)]
    high = max(groups)
    low = min(*groups, 0.9 * high)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in groups)


def clean(text: str) -> str:
    """`text` without characters that would steer a terminal, and no longer than anybody reads:
    names are a model's or a trace's."""
    return plain_text(shorten(text, _LONGEST))


def wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` characters that part no number from its unit and no name, which one
    may want to copy, at a hyphen; cleaned."""
    shown = _BEFORE_UNIT.sub(_NO_BREAK, clean(text))
    if cell_len(shown) != len(shown):
        yield from (part.replace(_NO_BREAK, " ") for part in _wrapped_wide(shown, width))
        return
    for part in wrap(shown, width, break_on_hyphens=False):
        yield part.replace(_NO_BREAK, " ")


def _wrapped_wide(text: str, width: int) -> Iterator[str]:
    """The same of a text with characters that take two columns, or none."""
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if cell_len(longer) <= width:
            line = longer
            continue
        if line:
            yield line
        *whole, line = chop_cells(word, max(width, 2)) or [""]
        yield from whole
    if line:
        yield line
