"""Which runs are comparable: those whose workload, variant, recipe, hardware and software agree.

    differences(one, other)          # why two runs are not: steps 28 ≠ 20
    groups(runs)                     # a column `group`, the same for comparable runs

A field that nobody recorded is unknown, and unknown equals nothing, itself included, unless the
caller takes that field to agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import polars as pl
from msgspec import Struct

from profiler.errors import InputError
from profiler.metrics import IDENTITY

__all__ = ["FIELDS", "IDENTIFYING", "Difference", "Why", "checked_fields", "differences", "groups"]

FIELDS: tuple[str, ...] = tuple(field for fields in IDENTITY.values() for field in fields)
"""The columns of `runs` that must agree."""
IDENTIFYING = ("run", "run_id", "time_ns", "quality", *FIELDS)
"""The columns of `runs` that tell a run and what it is comparable with."""
_UNKNOWN = "\x00unknown"
_SEPARATOR = "\x1f"
_DIGITS = 16


class Why(StrEnum):
    """Why a field does not let two runs be compared."""

    DIFFERENT = "different"
    UNKNOWN = "unknown"  # of one of them, or of both


class Difference(Struct, frozen=True):
    """A field in which two runs do not agree, and its value in each; None is unknown."""

    field: str
    why: Why
    one: Any
    other: Any


def checked_fields(names: Iterable[str] | None, option: str) -> tuple[str, ...]:
    """`names`, each a field of the identity, also by group (`recipe`) or with commas. Raises
    InputError for one that is none."""
    found: list[str] = []
    for name in (part.strip() for text in names or () for part in text.split(",")):
        if name not in FIELDS and name not in IDENTITY:
            known = ", ".join((*FIELDS, *(group for group in IDENTITY if group not in FIELDS)))
            raise InputError(f"{option} {name!r:.60} is no field of the identity: use {known}")
        found += [name] if name in FIELDS else IDENTITY[name]
    return tuple(dict.fromkeys(found))


def differences(
    one: Mapping[str, Any],
    other: Mapping[str, Any],
    assume_same: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> tuple[Difference, ...]:
    """Why two rows of `runs` are not comparable; none where they are. A field of `assume_same`
    agrees where either is unknown; one that is `ignored` agrees anyway."""
    found = []
    for field in FIELDS:
        mine, theirs = one[field], other[field]
        if field in ignored:
            continue
        if mine is None or theirs is None:
            if field not in assume_same:
                found.append(Difference(field, Why.UNKNOWN, mine, theirs))
        elif mine != theirs:
            found.append(Difference(field, Why.DIFFERENT, mine, theirs))
    return tuple(found)


def groups(
    runs: pl.DataFrame, assume_same: Sequence[str] = (), ignored: Sequence[str] = ()
) -> pl.DataFrame:
    """`runs` with a column `group`, String: the same for runs that are comparable, null for a run
    that is comparable to none, itself included, because a field is unknown.

    A run whose field of `assume_same` is unknown joins those that agree otherwise, if they have one
    value of that field; where they have several, nobody can say which, and it stays apart.
    """
    fields = [field for field in FIELDS if field not in ignored]
    if not fields:
        return runs.with_columns(group=pl.lit("all"))
    texts = runs.select(pl.col(field).cast(pl.String) for field in fields)
    for field in (field for field in fields if field in assume_same):
        texts = _filled(texts, field, [other for other in fields if other != field])
    joined = pl.concat_str(
        [pl.col(field) for field in fields], separator=_SEPARATOR
    )  # null if any is
    keys = texts.select(joined.alias("group"))["group"]
    names = {key: _name(key) for key in keys.unique().drop_nulls()}
    return runs.with_columns(group=keys.replace_strict(names, default=None, return_dtype=pl.String))


def _filled(texts: pl.DataFrame, field: str, others: Sequence[str]) -> pl.DataFrame:
    """`texts` with the unknown values of `field` as the one value of those that agree otherwise."""
    if not others:
        known, number = pl.col(field).drop_nulls().first(), pl.col(field).drop_nulls().n_unique()
        filled = pl.when(number == 1).then(known).otherwise(pl.lit(_UNKNOWN))
    else:
        known = pl.col(field).drop_nulls().first().over(others)
        number = pl.col(field).drop_nulls().n_unique().over(others)
        filled = pl.when(number == 1).then(known).otherwise(pl.lit(_UNKNOWN))
    return texts.with_columns(pl.coalesce(pl.col(field), filled))


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:_DIGITS]
