"""`--where KEY=VALUE`: which runs of a data set are meant.

conditions(["hardware~MI300X", "steps>=20", "label.branch=main"])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from profiler.errors import InputError
from profiler.metrics import RUNS

__all__ = ["Condition", "condition", "conditions", "label_of", "period"]

_FORM = re.compile(r"(?P<key>[\w.-]+?)\s*(?P<sign>!=|<=|>=|=|<|>|~)(?P<value>.*)", re.DOTALL)
_SIGNS: dict[str, Callable[[pl.Expr, Any], pl.Expr]] = {
    "=": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}
_UNKNOWN = "unknown"
_HIDDEN = ("batch", "schema_version")
_COLUMNS = {column.name: column for column in RUNS if column.name not in _HIDDEN}
_PERIOD = re.compile(r"(?P<number>\d{1,6})(?P<unit>[hdwy])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class Condition:
    """One condition. `key`, `sign`, `value` are its parts, `matches` is true of the runs meant."""

    def __init__(self, key: str, sign: str, value: str, matches: pl.Expr) -> None:
        self.key, self.sign, self.value, self.matches = key, sign, value, matches


def conditions(texts: Sequence[str] | str) -> list[Condition]:
    """What each of `texts` says; a single text is one. Raises InputError for one that says nothing
    of runs."""
    return [condition(text) for text in ([texts] if isinstance(texts, str) else texts)]


def condition(text: str) -> Condition:
    """What `text` says. Raises InputError where it is no condition."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise InputError(
            f"--where {text!r:.120} is no condition: write KEY=VALUE, such as hardware~MI300X "
            "(=, !=, <, <=, >, >=, ~ for contains)"
        )
    key, sign, value = found["key"], found["sign"], found["value"].strip()
    column, typed = _typed(text, key, value)
    if value == _UNKNOWN and sign in ("=", "!="):
        matches = column.is_null() if sign == "=" else column.is_not_null()
    elif sign == "~":
        matches = column.cast(pl.String).str.contains(value, literal=True)
    else:
        matches = _SIGNS[sign](column, typed)
    return Condition(key, sign, value, matches.fill_null(value=False))


def label_of(name: str) -> pl.Expr:
    """The label of that name, null where a run has none."""
    path = '$["' + name.replace('"', "") + '"]'
    return pl.col("labels").str.json_path_match(path)


def period(text: str) -> timedelta:
    """How long `90d`, `12h`, `6w` or `1y` is. Raises InputError for other texts."""
    found = _PERIOD.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r:.40} is no age: write 12h, 90d, 6w or 1y")
    unit = _UNITS.get(found["unit"], timedelta(days=365))
    try:
        return int(found["number"]) * unit
    except OverflowError:
        raise InputError(f"{text!r:.40} is longer than any run is old: give less") from None


def _typed(text: str, key: str, value: str) -> tuple[pl.Expr, Any]:
    """The column of a key, and the value as it has it."""
    if key.startswith("label."):
        return label_of(key.removeprefix("label.")), value
    if key == "time":
        return pl.col("time_ns"), _moment(text, value)
    if key not in _COLUMNS:
        names = ", ".join(_COLUMNS)
        raise InputError(
            f"--where {text!r:.120}: runs have no {key!r:.40}: there is {names}, "
            "time and label.NAME"
        )
    dtype = _COLUMNS[key].dtype
    if value == _UNKNOWN or dtype == pl.String:
        return pl.col(key), value
    try:
        return pl.col(key), float(value) if dtype == pl.Float64 else int(value)
    except ValueError:
        raise InputError(
            f"--where {text!r:.120}: {key} is a number, {value!r:.40} is none"
        ) from None


def _moment(text: str, value: str) -> int:
    """ns since 1970 of an ISO 8601 date or time, in UTC where no zone is named."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise InputError(
            f"--where {text!r:.120}: write a time as 2026-11-24 or 2026-11-24T09:30"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1e9)
