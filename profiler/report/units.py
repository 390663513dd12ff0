"""Numbers as people read them: three significant digits and a unit. Only reports use these.

`templates/format.js` does the same in the page; `tests/browser/test_report.py` holds the two
together.
"""

from __future__ import annotations

from collections.abc import Sequence

from profiler.messages import Said, said

__all__ = [
    "FLOP_RATES",
    "RATES",
    "RateUnits",
    "count",
    "counted",
    "duration",
    "number",
    "of_all",
    "percent",
    "rate_unit",
    "size",
]

RateUnits = Sequence[tuple[float, str]]
"""Units, the largest first, and what one of each is in the unit of the values."""
FLOP_RATES: RateUnits = ((1.0, "TFLOP/s"), (1e-3, "GFLOP/s"), (1e-6, "MFLOP/s"))
RATES: dict[str, RateUnits] = {
    "flop_rate": FLOP_RATES,
    "byte_rate": ((1.0, "GB/s"), (1e-3, "MB/s")),
}
"""By the kind of a column."""

_SPACE = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"


def duration(ns: float) -> str:
    """`"2.31 s"`, `"68.4 ms"`, `"740 ns"`."""
    return _scaled(ns, 1000, ("ns", "µs", "ms", "s"))


def size(number: float) -> str:
    """Bytes, in powers of 1024: `"1.50 MiB"`."""
    return _scaled(number, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def number(value: float) -> str:
    """`"7.41"`, `"12.3"`, `"8,158"`: what differs by orders."""
    magnitude = abs(value)
    whole = magnitude >= 99.95 or magnitude == 0
    digits = 0 if whole else 1 if magnitude >= 9.995 else 2 if magnitude >= 0.0995 else 3
    return f"{value:z,.{digits}f}"


def percent(ratio: float) -> str:
    """`"92 %"`, `"4.0 %"`, `"0.31 %"`: two digits, and never 100 % for less than all."""
    value = abs(ratio) * 100
    sign = _MINUS if ratio < 0 else ""
    if value == 0:
        return f"0{_SPACE}%"
    if value < 0.01:
        return f"{sign}<0.01{_SPACE}%"
    digits = 0 if value >= 9.95 else 1 if value >= 0.995 else 2
    if 99.5 <= value < 100:
        digits, value = (1, min(value, 99.9))
    return f"{sign}{value:.{digits}f}{_SPACE}%"


def rate_unit(largest: float, units: RateUnits) -> tuple[float, str]:
    """The unit in which the largest of several rates is at least 1, else the smallest."""
    return next((pair for pair in units if largest >= pair[0]), units[-1])


def count(number: int) -> str:
    """`"47,504"`."""
    return f"{number:,}"


def counted(number: int, noun: str) -> Said:
    """`"1 call"`, `"35 calls"`."""
    return said(f"{{number}} {noun}" + ("" if number == 1 else "s"), number=count(number))


def of_all(shown: int, total: int) -> Said:
    """`"3 of 12"` or `"all 12"`."""
    if shown == total:
        return said("all {total}", total=count(total))
    return said("{shown} of {total}", shown=count(shown), total=count(total))


def _scaled(value: float, step: int, units: tuple[str, ...]) -> str:
    sign, value = (_MINUS, -value) if value < 0 else ("", value)
    unit = 0
    while value >= step - 0.5 * (step == 1000) and unit < len(units) - 1:
        value /= step
        unit += 1
    whole = float(value).is_integer() and unit == 0
    digits = 0 if whole or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{sign}{value:.{digits}f}{_SPACE}{units[unit]}"
