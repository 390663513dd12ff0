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

# --- Tables for a terminal: columns that are dropped or shortened if it is narrow, and wrapped
# texts.


_GAP = 2  # blanks between columns
_NARROWEST = 8  # characters of a column that must shrink
_HEADER = 24  # characters of a dropped column's name
_HEADED = 12  # characters that a header may be wider than its cells
_BARS = "▁▂▃▄▅▆▇█"
_LONGEST = 4_000  # characters of a line, before it is wrapped
_NO_BREAK = "\N{NO-BREAK SPACE}"
_BEFORE_UNIT = re.compile(r"(?<=[0-9]) (?=%|(?:[nµm]?s|[KMGT]?i?B)\b)")


class Drawn(Struct, frozen=True):
    """One column. Columns with the highest `rank` are dropped first if the table is too wide;
    `rank` 0 is never dropped. A column with `shrink` is cut to that many characters before another
    is dropped, and further if none is left to drop. If cells list `names`, as many of these are
    kept as fit."""

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
    """A table that fits: its columns with their widths, the `strong` (bold) rows, and the headers
    of dropped columns (`gone`), named below it. Lines have no trailing blanks. `rests` has the
    lines in which the name of each row goes on, `below` those of the text below the first rows."""

    columns: tuple[Drawn, ...]
    widths: tuple[int, ...]
    strong: frozenset[int] = frozenset()
    gone: tuple[str, ...] = ()
    rests: tuple[tuple[str, ...], ...] = ()
    below: tuple[tuple[str, ...], ...] = ()

    @property
    def row_count(self) -> int:
        """The number of rows below the header."""
        return len(self.columns[0].cells) if self.columns else 0

    @property
    def height(self) -> int:
        """The number of lines: the header, rows, and lines below rows."""
        return 1 + self.row_count + sum(map(len, (*self.rests, *self.below[: self.row_count])))

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
            for lines, of_lines in ((self.rests, style), (self.below, dim)):
                for line in lines[number] if 0 <= number < len(lines) else ():
                    yield Segment(" " * _GAP + line, of_lines)
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
    wraps: bool = False,
) -> Grid:
    """Fit the columns into a table of at most `width` characters, with `strong` rows bold and a
    text `below` each of the first ones. If it `wraps`, that and the first column go on in further
    lines, else they are shortened. Dropped columns are named below the table."""
    drawn, limits = _fit(list(columns), width)
    widths = tuple(min(limit, one.width) for limit, one in zip(limits, drawn, strict=True))
    gone = tuple(column.header for column in columns if column not in drawn)
    room = max(width - _GAP, _NARROWEST)
    rests: tuple[tuple[str, ...], ...] = ()
    if wraps:
        parts = [_parted(text, widths[0], room) for text in drawn[0].cells]
        drawn[0] = replace(drawn[0], cells=tuple(first for first, *_ in parts))
        rests = tuple(tuple(rest) for _, *rest in parts)
    write = wrapped if wraps else _one_line
    lines = (tuple(write(text, room)) for text in below)
    return Grid(tuple(drawn), widths, frozenset(strong), gone, rests, tuple(lines))


def _one_line(text: str, width: int) -> Iterator[str]:
    if text:
        yield shorten(text, width)


def _parted(text: str, width: int, room: int) -> list[str]:
    """Split a text into a first line of at most `width` characters and others of `room`."""
    if cell_len(text) <= width:
        return [text]
    first = next(wrapped(text, width), "")
    return [first.rstrip(), *wrapped(text[len(first) :].lstrip(), room)]


def continued(columns: Sequence[Drawn], repeated: int, width: int) -> Iterator[list[Drawn]]:
    """Yield the columns in sets that fit the width, each set after the first `repeated` columns."""
    headed = [*map(_headed, columns)]
    first, rest = headed[:repeated], headed[repeated:]
    while rest:
        some = [rest.pop(0)]
        while rest and _smallest([*first, *some, rest[0]]) <= width:
            some.append(rest.pop(0))
        yield [*first, *some]


def _headed(column: Drawn) -> Drawn:
    """Shorten the header of a column to about the width of its cells."""
    room = max(_HEADED, *map(cell_len, column.cells)) if column.cells else _HEADED
    return replace(column, header=shorten(column.header, room))


def _cells(column: Drawn, width: int) -> Iterable[str]:
    """The cells; cells that list names are cut to as many as fit."""
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
    """Shorten or pad a cell to `width` characters."""
    text = shorten(text, width)
    blanks = " " * (width - cell_len(text))
    return blanks + text if column.right else text + blanks


def _fit(columns: list[Drawn], width: int) -> tuple[list[Drawn], list[int]]:
    """Drop columns until the rest fits at its smallest; return the rest and their widths. If even
    columns that are never dropped do not fit, the last are dropped, but never the first."""
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
    """The total width if every column that may shrink is as narrow as possible."""
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
    """Return `text` without characters that control a terminal, and cut to a maximum length: names
    come from a model or a trace."""
    return plain_text(shorten(text, _LONGEST))


def wrapped(text: str, width: int) -> Iterator[str]:
    """Yield cleaned lines of at most `width` characters that separate no number from its unit and
    no name at a hyphen, because names are copied."""
    shown = _BEFORE_UNIT.sub(_NO_BREAK, clean(text))
    if cell_len(shown) != len(shown):
        yield from (part.replace(_NO_BREAK, " ") for part in _wrapped_wide(shown, width))
        return
    for part in wrap(shown, width, break_on_hyphens=False):
        yield part.replace(_NO_BREAK, " ")


def _wrapped_wide(text: str, width: int) -> Iterator[str]:
    """Wrap text with characters that take two columns, or none."""
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


# --- Columns of a table for a terminal: values as texts, numbers with one unit per column.


_NOTHING = "-"
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def texts(header: str, values: Iterable[object], *, rank: int = 0, shrink: int = 0) -> Drawn:
    """Make a column of names: left-aligned, control characters removed."""
    cells = tuple(_NOTHING if v is None or v == "" else clean(str(v)) for v in values)
    return Drawn(header, cells, right=False, rank=rank, shrink=shrink)


def lists(
    header: str, values: Iterable[Sequence[object] | None], *, rank: int = 0, shrink: int = 0
) -> Drawn:
    """Make a column with several names per cell."""
    names = tuple(tuple(clean(str(name)) for name in value or ()) for value in values)
    column = texts(header, map(", ".join, names), rank=rank, shrink=shrink)
    return replace(column, names=names)


def numbers(header: str, values: Iterable[float | None], *, rank: int = 0) -> Drawn:
    """Make a column of counts with thousands separators, with one decimal if any is fractional."""
    values = list(values)
    whole = all(v is None or float(v).is_integer() for v in values)
    cells = (_NOTHING if v is None else f"{v:z,.0f}" if whole else f"{v:z,.1f}" for v in values)
    return Drawn(header, tuple(cells), rank=rank)


def rates(header: str, values: Iterable[float | None], *, rank: int = 0) -> Drawn:
    """Make a column of numbers that differ by orders of magnitude: three significant digits."""
    return Drawn(header, tuple(_NOTHING if v is None else number(v) for v in values), rank=rank)


def scaled_rates(
    header: str, values: Iterable[float | None], units: RateUnits, like: float, *, rank: int = 0
) -> Drawn:
    """Make a column of rates in the unit that suits `like`, named in the header."""
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
    """Make a column of times in the unit that suits its largest, or `like_ns`, with the unit in the
    header. All have the same number of decimals, or each three `significant` digits."""
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
    """Choose factor and name of a time unit: seconds from 100 s on, else the unit in which the
    largest is at least 1; ms for 0."""
    if largest_ns == 0:
        return _UNITS[1]
    if largest_ns >= 100e9:
        return _UNITS[0]
    return next((pair for pair in _UNITS[1:] if largest_ns >= pair[0]), _UNITS[-1])


def _fixed(value: float, digits: int) -> str:
    """Format with a fixed number of decimals; a positive value that rounds to zero becomes `<0.01`.
    No minus zero."""
    if value == 0:
        return "0"
    text = f"{value:z,.{digits}f}"
    if value > 0 and not text.strip("0.,"):
        return f"<{10**-digits:.{digits}f}"
    return text


# --- Tables of a report for a terminal: the columns that fit, and the first rows.


_SHRUNK = {"layer": 30, "text": 12, "list": 12, "word": 24}  # characters that a column keeps


def table_texts(view: TableView, width: int) -> Iterator[RenderableType]:
    """Yield the first rows, separately for each variant, and the number of rows."""
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
    wraps = view.below is not None and view.below.kind == "word"  # prose; names are shortened
    for some in sets:
        yield table(some, width, strong=strong, below=shown, wraps=wraps)


def _strong(view: TableView, frame: pl.DataFrame) -> Iterator[int]:
    """The rows that are flagged, and the last of the totals."""
    shown = frame.head(view.shown)
    if view.strong:
        yield from shown[view.strong].arg_true()
    if view.totals is not None:
        yield len(shown) + len(view.totals) - 1


def drawn(view: TableView, frame: pl.DataFrame, *, significant: bool = False) -> list[Drawn]:
    """Make the columns of a table with its first rows and totals; `frame` is its own or a
    variant's. Rates have one unit for all rows. Times have the table's unit or, if a column has
    only much shorter ones and the table no totals, the column's own; headers name it. Times have
    the same number of decimals, or three `significant` digits."""
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
    """Format the values by their kind: times in the unit of `longest_ns`, the table's longest, or
    in the column's `own_unit` if all of them are below a tenth of that."""
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
    """Format the values by `kind`, one by one; counts as `numbers`."""
    if kind in ("count", "step"):
        known = [None if v is None or (v < 0 and kind == "step") else v for v in values]
        return numbers(header, known, rank=rank)
    cells = tuple(_NOTHING if value is None else _WRITERS[kind](value) for value in values)
    header = f"{header} %" if kind in _OF_HUNDRED else header
    return Drawn(
        clean(header) if kind == "figure" else header, cells, right=kind != "flag", rank=rank
    )


def _rates(shown: Column, values: list[Any], all_rows: pl.Series, units: RateUnits) -> Drawn:
    """Make a column of rates in the unit of the largest row, so that a run's tables agree."""
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
    # untraced over traced time; the analysis sets exactly 1 if the overhead is within noise
    "overhead_ratio": lambda ratio: "within noise" if ratio == 1 else f"{ratio:z.2f}",
}
