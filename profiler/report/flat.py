"""Values that a line of CSV does not hold: lists and structs."""

from __future__ import annotations

import polars as pl

from profiler.json_text import json_text

__all__ = ["flat"]


def flat(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with lists and structs as JSON."""
    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    return frame.with_columns(
        pl.Series(name, [_json(value) for value in frame[name].to_list()], dtype=pl.String)
        for name in nested
    )


def _json(value: object) -> str | None:
    return None if value is None else json_text(value, indent=None)
