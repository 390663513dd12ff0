"""Values that not every file holds: lists and structs in CSV, what is no number in JSON."""

from __future__ import annotations

import json
import math
from decimal import Decimal

import polars as pl

__all__ = ["flat", "plain"]


def flat(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with lists and structs, which a line of CSV does not hold, as JSON."""
    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    return frame.with_columns(
        pl.Series(name, [_json_text(value) for value in frame[name].to_list()], dtype=pl.String)
        for name in nested
    )


def _json_text(value: object) -> str | None:
    return None if value is None else json.dumps(plain(value), ensure_ascii=False, default=str)


def plain(value: object) -> object:
    """What JSON can hold: numbers that it has no word for are null; times become text."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return float(value) if isinstance(value, Decimal) else value
