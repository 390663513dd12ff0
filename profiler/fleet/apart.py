"""Runs that are compared with none, and why: their quality is bad, or a field of their identity is
unknown."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec import Struct

from profiler.fleet.identity import FIELDS, Difference, differences

__all__ = ["Apart", "comparable_with_none"]


class Apart(Struct, frozen=True):
    """Runs that are comparable to no others: how many, one of them, and the fields in which they
    differ from the largest group, or that are unknown; none where their quality is bad. `without`
    is the field that is compared by, where nobody recorded it of them."""

    runs: int
    example: str
    why: tuple[Difference, ...]
    bad_quality: bool = False
    without: str = ""


def comparable_with_none(
    lacking: pl.DataFrame,
    assume_same: Sequence[str] = (),
    ignored: Sequence[str] = (),
    by: str = "",
) -> list[Apart]:
    """The runs `lacking` a group, or a value of the field `by`, by the fields that are unknown."""
    fields = [field for field in FIELDS if field not in ignored and field not in assume_same]
    if lacking.is_empty():
        return []
    lacks = pl.concat_list(
        pl.when(pl.col(field).is_null()).then(pl.lit(field)) for field in fields
    ).list.drop_nulls()
    found = lacking.group_by(lacks.alias("lacks"), maintain_order=True).agg(
        pl.len(), pl.all().first()
    )
    return [
        Apart(
            row["len"],
            row["run_id"],
            tuple(
                one
                for one in differences(row, row, assume_same, ignored)
                if one.field == by or one.field in row["lacks"]
            ),
            without=by if by and row["value"] is None else "",
        )
        for row in found.iter_rows(named=True)
    ]
