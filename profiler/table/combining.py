"""How the values of a column combine over parts of its table.

A table that can be selected gives partial results (`analysis.partials`): rows of sums, keyed by
what they are of. A column says by one of these rules how its value follows from those of the parts
that a reader selects. A rule names partial columns and attributes of the keys; it says nothing of
how an analysis counts. A column without a rule (a median, a percentile, a union over tracks) has a
value for the whole only.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Distinct", "Key", "Names", "Ratio", "Rule", "Scaled", "Share", "Sum"]


@dataclass(frozen=True, slots=True)
class Key:
    """The attribute of the column's name, which tells rows apart."""


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of partial columns; with `where` (an attribute and its value) over parts that have
    it."""

    of: tuple[str, ...]
    where: tuple[str, str | bool] | None = None


@dataclass(frozen=True, slots=True)
class Distinct:
    """How many values of an attribute there are."""

    of: str


@dataclass(frozen=True, slots=True)
class Names:
    """The values of an attribute, joined with commas: in order of the sum of the partial column
    `by`, the highest first, equal ones by name; without it by name."""

    of: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Ratio:
    """One sum over another, null where that is 0."""

    of: Sum
    to: Sum


@dataclass(frozen=True, slots=True)
class Share:
    """The part that another column of the row has in the sum of all selected rows with the same
    values in the columns `within`; null where that is 0."""

    of: str
    within: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scaled:
    """Another column times an attribute, rounded; null where that is null."""

    of: str
    by: str


Rule = Key | Sum | Distinct | Names | Ratio | Share | Scaled
