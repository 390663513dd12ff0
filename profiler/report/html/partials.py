"""Partial results of tables as the page's scripts take them (`templates/partials.js`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import to_builtins

from profiler.analysis.partials import Partials
from profiler.report.html.timeline_columns import Strings
from profiler.report.pack import Table
from profiler.run.columns import Rule

__all__ = ["packed_partials", "rule_json"]

_NULL = -1  # of attributes that are numbers: they are none below 0


def packed_partials(
    parts: Mapping[str, Iterable[Partials]], strings: Strings
) -> tuple[dict[str, Any], dict[str, Table]]:
    """The partials of tables, by name: their description, and columns to pack.

    The description has the names of each table's partials, and of each of these the attributes of
    its dictionaries with their kind: `text` (codes of `strings`), `any` (such a text, of whose
    several values one is enough), `flag`, `number`, `real`. Columns of partials stand in the table
    of their name, those of a dictionary in `PARTIALS.DICTIONARY`.
    """
    known = {one.name: one for some in parts.values() for one in some}
    packed: dict[str, Table] = {}
    for name, one in known.items():
        packed[name] = {column: _numbers(one.rows[column], strings) for column in one.rows.columns}
        for book, entries in one.dictionaries.items():
            packed[f"{name}.{book}"] = {
                column: _numbers(entries[column], strings) for column in entries.columns
            }
    described = {
        name: {
            book: {
                column: "any" if column in one.any_of else _kind(dtype)
                for column, dtype in entries.schema.items()
            }
            for book, entries in one.dictionaries.items()
        }
        for name, one in known.items()
    }
    tables = {table: [one.name for one in some] for table, some in parts.items()}
    return {"tables": tables, "known": described}, packed


def rule_json(rule: Rule | None) -> dict[str, Any] | None:
    """A rule as the scripts take it."""
    return None if rule is None else {"rule": type(rule).__name__.lower(), **to_builtins(rule)}


def _kind(dtype: pl.DataType) -> str:
    if dtype == pl.String:
        return "text"
    if dtype == pl.Boolean:
        return "flag"
    return "real" if dtype.is_float() else "number"


def _numbers(
    values: pl.Series, strings: Strings
) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
    """The values as numbers."""
    if values.dtype == pl.String:
        return strings.codes(values)
    if values.dtype.is_float():
        return (values.fill_null(float("nan")) if values.null_count() else values).to_numpy()
    numbers = values.cast(pl.Int64)
    return (numbers.fill_null(_NULL) if numbers.null_count() else numbers).to_numpy()
