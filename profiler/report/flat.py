"""Frames as CSV: what a line does not hold, and what a spreadsheet would take for a formula."""

from __future__ import annotations

import polars as pl

from profiler.files import json_text
from profiler.plugins import plain_text

__all__ = ["flat", "for_spreadsheets", "for_terminals"]

# What makes spreadsheets calculate; some do so at = + - @ in full width as well.
_FORMULA = r"^[=+\-@\t\r\n\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}]"
_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"


def flat(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with lists and structs as JSON."""
    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    return frame.with_columns(
        pl.Series(name, [_json(value) for value in frame[name].to_list()], dtype=pl.String)
        for name in nested
    )


def for_spreadsheets(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame`, flat, with an apostrophe before each text that a spreadsheet would take for a
    formula, in names of columns as well; texts that are numbers stay."""
    frame = flat(frame)
    texts = [
        name
        for name, dtype in frame.schema.items()
        if dtype.base_type() in (pl.String, pl.Categorical, pl.Enum)
    ]
    found = frame.with_columns(
        _without_formulas(pl.col(name).cast(pl.String)).alias(name) for name in texts
    )
    named = pl.Series(frame.columns, dtype=pl.String).to_frame("name")
    found.columns = named.select(_without_formulas(pl.col("name")).alias("name"))["name"].to_list()
    return found


def for_terminals(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with texts that a terminal does nothing with but show them."""
    found = frame.with_columns(pl.col(pl.String).map_elements(plain_text, return_dtype=pl.String))
    found.columns = [plain_text(name) for name in frame.columns]
    return found


def _without_formulas(text: pl.Expr) -> pl.Expr:
    formula = text.str.contains(_FORMULA) & ~text.str.contains(_NUMBER)
    return pl.when(formula).then("'" + text).otherwise(text)


def _json(value: object) -> str | None:
    return None if value is None else json_text(value, indent=None)
