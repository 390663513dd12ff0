"""Partial results: what the rows of tables are made of, so that any selection of them can be
combined again.

A part is what commands have in common that no selection tells apart, with sums over them. Its keys
stand in dictionaries: one for what it is of (layer, role, …), one for where and when it ran (call,
step, device, …). A further key is one more column of a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

__all__ = ["MOST_PARTS", "SEVERAL", "Partials", "partials"]

MOST_PARTS = 1_000_000
"""Rows that partials may have: of more, keys are left out until they fit."""

SEVERAL = "\n"
"""Between the values of an attribute of which a part has several: no name has it."""

_LEFT_OUT = (("call", "group"), ("step",), ("branch",), ("stage",))  # in this order


class Partials(Struct, frozen=True, eq=False):
    """Parts under a `name`, which tables share.

    `dictionaries` are tuples of attributes by the name of the column of `rows` that numbers them;
    their columns are named like those of the run: `layer`, `step`. A text may hold several values
    with `SEVERAL` between: a selection takes the part whole where it has all of them, of attributes
    in `any_of` where it has one. `rows` has these numbers (UInt32) and the partial columns (Int64,
    or Float64 where they are no whole numbers or null), one row a part, no two with the same keys.
    """

    name: str
    dictionaries: Mapping[str, pl.DataFrame]
    rows: pl.DataFrame
    any_of: frozenset[str] = frozenset()


def partials(name: str, rows: pl.DataFrame, dictionaries: Mapping[str, pl.DataFrame]) -> Partials:
    """Partials of `rows`, which number entries of `dictionaries` and hold sums, at most one row for
    the same numbers.

    Of more than `MOST_PARTS` the call, the step, the branch, the stage are left out, in this order,
    as far as it takes, and what they told apart is summed.
    """
    books, left = dict(dictionaries), [*_LEFT_OUT]
    while len(rows) > MOST_PARTS and left:
        gone = left.pop(0)
        for column, book in books.items():
            if not {*gone} & {*book.columns}:
                continue
            numbered = book.drop(gone, strict=False).with_row_index(column)
            by = [*book.drop(gone, strict=False).columns]
            books[column] = numbered.select(by).unique(maintain_order=True)
            new = numbered.join(books[column].with_row_index("_new"), on=by, nulls_equal=True)
            rows = rows.with_columns(
                pl.col(column).replace_strict(new[column], new["_new"], return_dtype=pl.UInt32)
            )
        rows = rows.group_by(*books).agg(pl.exclude(*books).sum())
    ordered = rows.select(pl.col(*books).cast(pl.UInt32), pl.exclude(*books)).sort(*books)
    return Partials(name, books, ordered)
