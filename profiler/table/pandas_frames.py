"""Polars frames as pandas has them, to the last nanosecond."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["to_pandas"]


def to_pandas(frame: pl.DataFrame) -> pd.DataFrame:
    """`frame` for pandas, which is imported for it; categorical text stays categorical.

    Where there are nulls, integers are pandas' `Int64`, so that nanoseconds never pass through a
    float, and truth values `boolean`.
    """
    found = frame.to_pandas()
    for name, dtype in frame.schema.items():
        nullable = "boolean" if dtype == pl.Boolean else "Int64"
        if frame[name].null_count() and (dtype.is_integer() or dtype == pl.Boolean):
            values = frame[name].to_pandas(use_pyarrow_extension_array=True)
            found[name] = values.astype(nullable)
    return found
