"""A table of an analysis: what it is, how it is made, and what reports show of it.

TABLES = (Table("roles", "one role in a submodule", "time", ROLES, _roles, rank=("-total_ns",)),)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
from msgspec import Struct

from profiler.analysis.partials import Partials
from profiler.run.columns import Column, Scaled, Share, checked

if TYPE_CHECKING:
    from profiler.analysis.inputs import Inputs

__all__ = ["FigureSpec", "Table"]


class FigureSpec(Struct, frozen=True):
    """A figure as data: its `kind`, which a module of `report/charts/` draws, and the columns of
    the table that it is drawn from, by what that kind calls them."""

    kind: str
    columns: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table under its `name`: attribute of `Analysis`, key of JSON, name of CSV, Parquet and SQL.

    `row` is what a row is: "one operator of a submodule".
    `section` is the key of the section of the report that it belongs to. `make` makes it, perhaps
    from other tables, whose names `reads` has. `rank` are the columns by which rows are ordered
    ("-total_ns": the highest first; nulls last); where it is empty, they stay as they were made.
    `partials` makes what the table of a selection is combined from, by the rules of its columns:
    the parts that hold its keys first. None where a selection keeps whole rows.
    `shown` rows are seen at first. `title` is its heading where its section says no other. `about`
    is what a reader of the data must know beside the meanings of the columns.
    """

    name: str
    row: str
    section: str
    columns: tuple[Column, ...]
    make: Callable[[Inputs], pl.DataFrame]
    title: str = ""
    about: str = ""
    reads: tuple[str, ...] = ()
    rank: tuple[str, ...] = ()
    shown: int = 10
    figure: FigureSpec | None = None
    partials: Callable[[Inputs], tuple[Partials, ...]] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError where it names what cannot be: a programming error."""
        if not self.name.isidentifier():
            raise ValueError(f"{self.name!r} cannot be the name of a table")
        missing = set(self._named()) - {column.name for column in self.columns}
        if missing:
            raise ValueError(f"table {self.name} has no column {', '.join(sorted(missing))}")

    def _named(self) -> Iterator[str]:
        yield from (name.removeprefix("-") for name in self.rank)
        if self.figure is not None:
            for names in self.figure.columns.values():
                yield from names
        for column in self.columns:
            if isinstance(column.combine, Share):
                yield from (column.combine.of, *column.combine.within)
            elif isinstance(column.combine, Scaled):
                yield column.combine.of

    def frame(self, of: Inputs) -> pl.DataFrame:
        """The table of these inputs, in the order of `rank`; rows that are equal there stay as they
        were made. Raises ValueError where it differs from its declaration."""
        frame = checked(self.make(of), self.columns)
        if not self.rank:
            return frame
        names = [name.removeprefix("-") for name in self.rank]
        down = [name.startswith("-") for name in self.rank]
        return frame.sort(names, descending=down, nulls_last=True, maintain_order=True)
