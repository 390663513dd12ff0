"""Tables for a terminal: column widths, units, and texts that fit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from profiler.analysis.document import TableView
from profiler.analysis.table_text import worded_column
from profiler.plugins import plain_text
from profiler.run.columns import Column
from profiler.text import RATES, RateUnits, count, number, rate_unit, size

# --- Tables for a terminal: columns that give way when narrow, and texts that fit.


_GAP = 2  # blanks between columns
_NARROWEST = 8  # characters of a column that must shrink
_HEADER = 24  # characters of a column that is named as gone
_HEADED = 12  # characters of a header that its cells do not need
_BARS = "▁▂▃▄▅▆▇█"
_LONGEST = 4_000  # characters of a line, before it is wrapped
_NO_BREAK = "\N{NO-BREAK SPACE}"
_BEFORE_UNIT = re.compile(r"(?<=[0-9]) (?=%|(?:[nµm]?s|[KMGT]?i?B)\b)")


class Drawn(Struct, frozen=True):
    """One column. `rank` 0 always stays; of the others the highest goes first if the table is
    too wide. A column with `shrink` is cut down to that many characters before another goes, and
    further if none is left to go. If cells list `names`, as many of these stay as fit."""

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
    the headers of columns that had to go, named below it. Lines end if their text does. `below`
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

    @property
    def height(self) -> int:
        """Lines: the header, rows, and texts below rows."""
        return 1 + self.row_count + sum(map(bool, self.below[: self.row_count]))

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
    columns: Sequence[Drawn], width: int, *, strong: Iterable[int] = (), below: Iterable[str] = ()
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
    """`"Mul 16 → 0, Add 12 → 4, 2 more"`; "" if there is no room for one."""
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
    """Drop columns until the rest fits at its smallest; then the width of each. If even those
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
    """The width if every column that may has shrunk as far as it can."""
    least = (min(_least(one), _NARROWEST) if one.shrink else _least(one) for one in columns)
    return sum(least) + _GAP * (len(columns) - 1)


def _least(column: Drawn) -> int:
    return min(column.width, column.shrink) if column.shrink else column.width


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` characters, its middle replaced by … if it is too long."""
    if cell_len(text) <= width:
        return text
    if width < 2 or cell_len(text) != len(text):
        return set_cell_size(text, max(width - 1, 0)) + "…"
    head = (width - 1) // 3
    return f"{text[:head]}…{text[head + 1 - width :]}"


def sparkline(values: Sequence[float], width: int) -> str:
    """One bar a value, the longest of each group if there are more values than `width`.

    The lowest bar is the smallest value, or 90 % of the largest if they differ by less: noise
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


# --- Columns of a table for a terminal: values as texts, numbers under one unit a column.


_NOTHING = "-"
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


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


def numbers(header: str, values: Iterable[float | None], *, rank: int = 0) -> Drawn:
    """Counts with thousands separators; fractions with one digit, if there are any."""
    values = list(values)
    whole = all(v is None or float(v).is_integer() for v in values)
    cells = (_NOTHING if v is None else f"{v:z,.0f}" if whole else f"{v:z,.1f}" for v in values)
    return Drawn(header, tuple(cells), rank=rank)


def rates(header: str, values: Iterable[float | None], *, rank: int = 0) -> Drawn:
    """Numbers that differ by orders: three significant digits, as the page has them."""
    return Drawn(header, tuple(_NOTHING if v is None else number(v) for v in values), rank=rank)


def scaled_rates(
    header: str, values: Iterable[float | None], units: RateUnits, like: float, *, rank: int = 0
) -> Drawn:
    """Rates in the unit that suits one `like` that: the header has it."""
    factor, unit = rate_unit(like, units)
    found = (None if v is None else v / factor for v in values)
    return rates(f"{header} {unit}", found, rank=rank)


def times(
    header: str,
    values: Iterable[int | None],
    *,
    rank: int = 0,
    like_ns: int | None = None,
    significant: bool = False,
) -> Drawn:
    """Nanoseconds in the unit that suits the column's largest, or `like_ns`: the header has it.
    All have the same number of digits behind the point, or each three `significant` ones."""
    values = list(values)
    largest = max((abs(v) for v in values if v is not None), default=0)
    factor, unit = time_unit(largest if like_ns is None else like_ns)
    if significant:
        return rates(
            f"{header} {unit}", (None if v is None else v / factor for v in values), rank=rank
        )
    digits = max(0, min(3, 2 - math.floor(math.log10(max(largest / factor, 1)))))
    digits = 0 if factor == 1 else max(digits, 1)
    cells = (_NOTHING if v is None else _fixed(v / factor, digits) for v in values)
    return Drawn(f"{header} {unit}", tuple(cells), rank=rank)


def time_unit(largest_ns: float) -> tuple[float, str]:
    """Its factor and name: seconds from 100 s on, else the unit in which the largest is at least 1;
    ms for nothing."""
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


# --- Tables of a report for a terminal: the columns that fit, and the rows that are shown at first.


_SHRUNK = {"layer": 30, "text": 12, "list": 12, "word": 24}  # characters that a column must keep


def table_texts(view: TableView, width: int) -> Iterator[RenderableType]:
    """The first rows, those of each variant by itself, and how many there are of them."""
    for label, frame in ((view.label, view.printed), *view.variants):
        if view.variants:
            yield Text(f"One row per {label}:", style="dim")
        yield from _grids(view, frame, width)
        if len(frame) > view.shown:
            yield Text(f"{count(view.shown)} of {count(len(frame))} rows", style="dim")


def _grids(view: TableView, frame: pl.DataFrame, width: int) -> Iterator[RenderableType]:
    """One table, or as many as its columns need."""
    columns = drawn(view, frame)
    sets = continued(columns, view.repeated, width) if view.repeated else [columns]
    strong = [*_strong(view, frame)]
    below = [] if view.below is None else frame.head(view.shown)[view.below.name].to_list()
    if view.below is not None and view.totals is not None:
        below += view.totals[view.below.name].to_list()
    shown = [clean(text or "") for text in below]
    for some in sets:
        yield table(some, width, strong=strong, below=shown)


def _strong(view: TableView, frame: pl.DataFrame) -> Iterator[int]:
    """The rows that are flagged, and the last of the totals."""
    shown = frame.head(view.shown)
    if view.strong:
        yield from shown[view.strong].arg_true()
    if view.totals is not None:
        yield len(shown) + len(view.totals) - 1


def drawn(view: TableView, frame: pl.DataFrame, *, significant: bool = False) -> list[Drawn]:
    """The columns of a table with the cells of its first rows and its totals, `frame` its own or
    that of a variant; rates are in one unit for all rows, times in that of the table or, if a
    column has only much shorter ones and the table no totals, in its own: headers name it. Times
    have the same number of digits behind the point, or three `significant` ones."""
    rows = frame.head(view.shown)
    values = {
        column.name: [*worded_column(column, rows[column.name]), *_of_totals(view, column)]
        for column in view.columns
    }
    longest = max((_most(values[c.name]) for c in view.columns if c.kind == "ns"), default=0)
    return [
        _rates(column, values[column.name], frame[column.name], RATES[column.kind])
        if column.kind in RATES
        else _column(
            column,
            values[column.name],
            longest,
            own_unit=view.totals is None,
            significant=significant,
        )
        for column in view.columns
    ]


def _of_totals(view: TableView, column: Column) -> list[Any]:
    return [] if view.totals is None else view.totals[column.name].to_list()


def _most(values: Sequence[int | None]) -> int:
    return max((abs(value) for value in values if value is not None), default=0)


def _column(
    shown: Column, values: list[Any], longest_ns: int, *, own_unit: bool, significant: bool = False
) -> Drawn:
    """The values as their kind is written: times in the unit of `longest_ns`, the table's longest,
    or in the column's `own_unit` if all of them are below a tenth of that."""
    label, rank = shown.label, shown.importance
    if shown.kind in ("ns", "instant"):
        shorter = own_unit and _most(values) < time_unit(longest_ns)[0] / 10
        like_ns = (_most(values) or longest_ns) if shorter else longest_ns
        return times(label, values, rank=rank, like_ns=like_ns, significant=significant)
    if shown.kind in _SHRUNK:
        write = lists if any(isinstance(value, list) for value in values) else texts
        return write(label, values, rank=rank, shrink=_SHRUNK[shown.kind])
    return written(shown.kind, label, values, rank=rank)


def written(kind: str, header: str, values: Sequence[Any], *, rank: int = 0) -> Drawn:
    """The values as those of their `kind` are written one by one; counts as `numbers`."""
    if kind in ("count", "step"):
        known = [None if v is None or (v < 0 and kind == "step") else v for v in values]
        return numbers(header, known, rank=rank)
    cells = tuple(_NOTHING if value is None else _WRITERS[kind](value) for value in values)
    header = f"{header} %" if kind in _OF_HUNDRED else header
    return Drawn(
        clean(header) if kind == "figure" else header, cells, right=kind != "flag", rank=rank
    )


def _rates(shown: Column, values: list[Any], all_rows: pl.Series, units: RateUnits) -> Drawn:
    """Rates in the unit that suits the largest of all rows, so that tables of a run agree."""
    largest = all_rows.max()
    like = largest if isinstance(largest, float) else 0.0
    return scaled_rates(shown.label, values, units, like, rank=shown.importance)


def _percent(ratio: float) -> str:
    return _fixed(ratio * 100, 1)


_OF_HUNDRED = ("ratio", "share", "change")  # the header has their unit
_WRITERS: dict[str, Callable[[Any], str]] = {
    "bytes": lambda value: size(value).replace(_NO_BREAK, " "),
    "ratio": _percent,
    "share": _percent,
    "change": lambda ratio: "+" * (ratio > 0) + _percent(ratio),
    "number": number,  # three significant digits
    "factor": "{:z.2f}".format,
    "figure": lambda text: clean(text).replace(_NO_BREAK, " "),
    "flag": lambda value: "yes" if value else "no",
    # untraced over traced time; exactly 1 is what the analysis makes of a cost within noise
    "overhead_ratio": lambda ratio: "within noise" if ratio == 1 else f"{ratio:z.2f}",
}
