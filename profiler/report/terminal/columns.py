"""Columns of a table for a terminal: values as texts, numbers under one unit a column."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from profiler.report.terminal.layout import Drawn, clean
from profiler.text import RateUnits, number, rate_unit, size

__all__ = [
    "figures",
    "lists",
    "numbers",
    "percents",
    "rates",
    "ratios",
    "scaled_rates",
    "sizes",
    "texts",
    "time_unit",
    "times",
]

_NOTHING = "-"
_NO_BREAK = "\N{NO-BREAK SPACE}"
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
    return Drawn(header, tuple(_NOTHING if v is None else number(v) for v in values), rank=rank)


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
