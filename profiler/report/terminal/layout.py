"""Tables for a terminal: numbers under one unit a column, and columns that give way when narrow."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from textwrap import wrap

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from profiler.plain_text import plain_text
from profiler.report.units import RateUnits, rate_unit, size

__all__ = [
    "Drawn",
    "Grid",
    "clean",
    "continued",
    "figures",
    "lists",
    "numbers",
    "percents",
    "rates",
    "ratios",
    "scaled_rates",
    "shorten",
    "sizes",
    "sparkline",
    "table",
    "texts",
    "times",
    "wrapped",
]

_GAP = 2  # blanks between columns
_NARROWEST = 8  # characters of a column that must shrink
_HEADER = 24  # characters of a column that is named as gone
_HEADED = 12  # characters of a header that its cells do not need
_NOTHING = "-"
_BARS = "▁▂▃▄▅▆▇█"
_LONGEST = 4_000  # characters of a line, before it is wrapped
_NO_BREAK = "\N{NO-BREAK SPACE}"
_BEFORE_UNIT = re.compile(r"(?<=[0-9]) (?=%|(?:[nµm]?s|[KMGT]?i?B)\b)")
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


@dataclass(frozen=True, slots=True)
class Drawn:
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


def texts(header: str, values: Iterable[object], *, rank: int = 0, shrink: int = 0) -> Drawn:
    """Names, left-aligned, control characters removed."""
    cells = tuple(_NOTHING if v is None or v == "" else clean(str(v)) for v in values)
    return Drawn(header, cells, right=False, rank=rank, shrink=shrink)


def lists(
    header: str, values: Iterable[Sequence[object] | None], *, rank: int = 0, shrink: int = 0
) -> Drawn:
    """Several names a cell."""
    names = tuple(tuple(clean(str(name)) for name in value or ()) for value in values)
    column = texts(header, map(", ".join, names), rank=rank, shrink=shrink)
    return replace(column, names=names)


def figures(header: str, values: Iterable[str | None], *, rank: int = 0) -> Drawn:
    """Values that are written already, each with its own unit."""
    cells = (_NOTHING if v is None else clean(v).replace(_NO_BREAK, " ") for v in values)
    return Drawn(clean(header), tuple(cells), rank=rank)


def numbers(header: str, values: Iterable[float | None], *, rank: int = 0) -> Drawn:
    """Counts with thousands separators; fractions with one digit, where there are any."""
    values = list(values)
    whole = all(v is None or float(v).is_integer() for v in values)
    cells = (_NOTHING if v is None else f"{v:z,.0f}" if whole else f"{v:z,.1f}" for v in values)
    return Drawn(header, tuple(cells), rank=rank)


def ratios(header: str, values: Iterable[float | None], *, rank: int = 0) -> Drawn:
    """Ratios with two digits."""
    return Drawn(header, tuple(_NOTHING if v is None else f"{v:z.2f}" for v in values), rank=rank)


def rates(header: str, values: Iterable[float | None], *, rank: int = 0) -> Drawn:
    """Numbers that differ by orders: three significant digits, as the page has them."""
    return Drawn(header, tuple(_NOTHING if v is None else _rate(v) for v in values), rank=rank)


def _rate(value: float) -> str:
    size = abs(value)
    digits = 0 if size >= 99.95 or size == 0 else 1 if size >= 9.995 else 2 if size >= 0.0995 else 3
    return f"{value:z,.{digits}f}"


def scaled_rates(
    header: str, values: Iterable[float | None], units: RateUnits, like: float, *, rank: int = 0
) -> Drawn:
    """Rates in the unit that suits one `like` that: the header has it."""
    factor, unit = rate_unit(like, units)
    found = (None if v is None else v / factor for v in values)
    return rates(f"{header} {unit}", found, rank=rank)


def percents(
    header: str, values: Iterable[float | None], *, rank: int = 0, signed: bool = False
) -> Drawn:
    """Ratios as per cent with one digit, the unit in the header; `signed` with a plus, too."""
    cells = (
        _NOTHING if v is None else "+" * (signed and v > 0) + _fixed(v * 100, 1) for v in values
    )
    return Drawn(f"{header} %", tuple(cells), rank=rank)


def sizes(header: str, values: Iterable[int | None], *, rank: int = 0) -> Drawn:
    """Bytes, each with its unit."""
    cells = (_NOTHING if v is None else size(v).replace("\N{NO-BREAK SPACE}", " ") for v in values)
    return Drawn(header, tuple(cells), rank=rank)


def times(
    header: str, values: Iterable[int | None], *, rank: int = 0, like_ns: int | None = None
) -> Drawn:
    """Nanoseconds in the unit that suits the column's largest, or `like_ns`: the header has it."""
    values = list(values)
    largest = max((abs(v) for v in values if v is not None), default=0)
    factor, unit = _unit(largest if like_ns is None else like_ns)
    digits = max(0, min(3, 2 - math.floor(math.log10(max(largest / factor, 1)))))
    digits = 0 if factor == 1 else max(digits, 1)
    cells = (_NOTHING if v is None else _fixed(v / factor, digits) for v in values)
    return Drawn(f"{header} {unit}", tuple(cells), rank=rank)


def _unit(largest_ns: float) -> tuple[float, str]:
    """Seconds from 100 s on, else the unit in which the largest is at least 1; ms for nothing."""
    if largest_ns == 0:
        return _UNITS[1]
    if largest_ns >= 100e9:
        return _UNITS[0]
    return next((pair for pair in _UNITS[1:] if largest_ns >= pair[0]), _UNITS[-1])


def _fixed(value: float, digits: int) -> str:
    """A fixed number of digits; what would round to zero but is more says so. No minus zero."""
    if value == 0:
        return "0"
    text = f"{value:z,.{digits}f}"
    if value > 0 and not text.strip("0.,"):
        return f"<{10**-digits:.{digits}f}"
    return text


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A table that fits: its columns with the width of each, the `strong` rows, which are bold, and
    the headers of columns that had to go, named below it. Lines end where their text does."""

    columns: tuple[Drawn, ...]
    widths: tuple[int, ...]
    strong: frozenset[int] = frozenset()
    gone: tuple[str, ...] = ()

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
        if self.gone:
            names = ", ".join(shorten(name, _HEADER) for name in self.gone if name)
            yield Text(f"not shown: {names}", style="dim")


def table(columns: Sequence[Drawn], width: int, *, strong: Iterable[int] = ()) -> Grid:
    """The columns as a table of at most `width` characters; `strong` rows bold. Columns that had to
    go are named below it."""
    drawn, limits = _fit(list(columns), width)
    widths = tuple(min(limit, one.width) for limit, one in zip(limits, drawn, strict=True))
    gone = tuple(column.header for column in columns if column not in drawn)
    return Grid(tuple(drawn), widths, frozenset(strong), gone)


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
    for part in wrap(_BEFORE_UNIT.sub(_NO_BREAK, clean(text)), width, break_on_hyphens=False):
        yield part.replace(_NO_BREAK, " ")
