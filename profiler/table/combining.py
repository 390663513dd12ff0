"""How the values of a column combine over parts of its table.

A table that can be selected gives partial results (`analysis.partials`): rows of sums, keyed by
what they are of. A column says by one of these rules how its value follows from those of the parts
that a reader selects. A rule names partial columns and attributes of the keys; it says nothing of
how an analysis counts. A row of which a selection takes every part has the values of the whole run;
of other rows a column without a rule (a percentile, a union over tracks) has none.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = [
    "Distinct",
    "First",
    "Kept",
    "Key",
    "Max",
    "Median",
    "Min",
    "Names",
    "Ratio",
    "Rule",
    "Scaled",
    "Share",
    "Sum",
    "Union",
]


class Key(Struct, frozen=True):
    """The attribute of the column's name, which tells rows apart."""


class Kept(Struct, frozen=True):
    """What the row has in the whole run: no selection changes it."""


class Sum(Struct, frozen=True):
    """The sum of partial columns; with `where` (an attribute and its value) over parts that have
    it."""

    of: tuple[str, ...]
    where: tuple[str, str | bool] | None = None


class Min(Struct, frozen=True):
    """The least value of a partial column; with `where` over parts that have that value of an
    attribute, over all where none has it."""

    of: str
    where: tuple[str, str | bool] | None = None


class Max(Struct, frozen=True):
    """The highest value of a partial column, of the parts that `Min` takes."""

    of: str
    where: tuple[str, str | bool] | None = None


class Median(Struct, frozen=True):
    """The median of a partial column without its fraction, of the parts that `Min` takes."""

    of: str
    where: tuple[str, str | bool] | None = None


class First(Struct, frozen=True):
    """The value of the part with the least `by`, the first of equal ones."""

    of: str
    by: str


class Union(Struct, frozen=True):
    """The sum of a partial column over parts that last from `begin` to `end`, one behind the other;
    null where two of them overlap. What lasts for no time counts nothing."""

    of: str
    begin: str
    end: str


class Distinct(Struct, frozen=True):
    """How many different tuples of these attributes there are, in the parts with the partial column
    `among`; without it in those that hold the keys. With `where` (an attribute and its value) of
    parts that have that value."""

    of: tuple[str, ...]
    among: str = ""
    where: tuple[str, str | bool] | None = None


class Names(Struct, frozen=True):
    """The values of an attribute, joined with commas: in order of the sum of the partial column
    `by`, the highest first, equal ones by name; without it by name, or in the order of the parts
    where they are `as_they_come`."""

    of: str
    by: str = ""
    as_they_come: bool = False


class Ratio(Struct, frozen=True):
    """One sum over another, null where that is 0."""

    of: Sum
    to: Sum


class Share(Struct, frozen=True):
    """The part that another column of the row has in the sum of all selected rows with the same
    values in the columns `within`; null where that is 0."""

    of: str
    within: tuple[str, ...] = ()


class Scaled(Struct, frozen=True):
    """Another column times an attribute, rounded; null where that is null."""

    of: str
    by: str


Rule = (
    Key
    | Kept
    | Sum
    | Min
    | Max
    | Median
    | First
    | Union
    | Distinct
    | Names
    | Ratio
    | Share
    | Scaled
)
