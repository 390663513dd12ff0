"""polars expressions that the tables of several analyses share."""

from __future__ import annotations

import polars as pl

__all__ = ["ratio"]


def ratio(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """`part / whole`, null where the whole is 0."""
    return pl.when(whole > 0).then(part / whole)
