"""What `templates/partials.js` makes of partial results, in Python: parts that match are combined
by the rules of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from profiler.analysis.question import SEVERAL, Partials
from profiler.run.columns import (
    Column,
    Distinct,
    First,
    Kept,
    Key,
    Max,
    Median,
    Min,
    Names,
    Ratio,
    Rule,
    Scaled,
    Share,
    Sum,
    Union,
)

__all__ = ["combine"]

_Test = Callable[[Any], bool]


def combine(
    parts: Sequence[Partials],
    columns: Sequence[Column],
    matches: Mapping[str, _Test],
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows of a table by their key, made of the parts whose attributes pass `matches`."""
    columns = [column for column in columns if not isinstance(column.combine, Kept)]
    keys = [column.name for column in columns if isinstance(column.combine, Key)]
    required = {c.name for c in columns if isinstance(c.combine, Key) and not c.nullable}
    whole, cut = _whole_and_cut([_flat(part) for part in parts], matches)
    rows = {}
    found = pl.concat(frame.select(keys) for frame in whole).unique(maintain_order=True)
    for key in found.rows():
        if any(key[keys.index(name)] is None for name in required):
            continue
        of_row = [_of(frame, keys, key) for frame in whole]
        broken = [len(_of(frame, keys, key)) > 0 for frame in cut]
        rows[key] = _row(columns, of_row, broken, dict(zip(keys, key, strict=True)))
    for column in columns:
        rule = column.combine
        if isinstance(rule, Share):
            sums: dict[tuple[Any, ...], Any] = {}
            for row in rows.values():
                place = tuple(row[name] for name in rule.within)
                sums[place] = sums.get(place, 0) + row[rule.of]
            for row in rows.values():
                whole_sum = sums[tuple(row[name] for name in rule.within)]
                row[column.name] = row[rule.of] / whole_sum if whole_sum else None
    return rows


def _flat(part: Partials) -> pl.DataFrame:
    """The rows of partials with the attributes in place of the numbers of their dictionaries."""
    rows = part.rows
    for column, book in part.dictionaries.items():
        rows = rows.join(book.with_row_index(column), on=column, how="left").drop(column)
    return rows


def _whole_and_cut(
    frames: Sequence[pl.DataFrame], matches: Mapping[str, _Test]
) -> tuple[list[pl.DataFrame], list[pl.DataFrame]]:
    whole, cut = [], []
    for frame in frames:
        states = [
            min(
                (_state(row[name], test) for name, test in matches.items() if name in row),
                default=2,
            )
            for row in frame.iter_rows(named=True)
        ]
        column = pl.Series(states, dtype=pl.Int8)
        whole.append(frame.filter(column == 2))
        cut.append(frame.filter(column == 1))
    return whole, cut


def _state(value: Any, test: _Test) -> int:
    """0 for none of an attribute's values, 1 for some, 2 for all."""
    if value is None:
        return 0
    passed = [test(one) for one in (value.split(SEVERAL) if isinstance(value, str) else [value])]
    return 2 if all(passed) else int(any(passed))


def _of(frame: pl.DataFrame, keys: Sequence[str], key: Sequence[Any]) -> pl.DataFrame:
    return frame.filter(
        pl.col(name).eq_missing(pl.lit(value)) for name, value in zip(keys, key, strict=True)
    )


def _row(  # what a number may be of
    columns: Sequence[Column],
    parts: Sequence[pl.DataFrame],
    broken: Sequence[bool],
    key: Mapping[str, Any],
) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column in columns:
        rule = column.combine
        if isinstance(rule, Key):
            row[column.name] = key[column.name]
        elif isinstance(rule, Sum):
            row[column.name] = _sum(rule, parts, broken)
        elif isinstance(rule, Ratio):
            of, to = _sum(rule.of, parts, broken), _sum(rule.to, parts, broken)
            row[column.name] = of / to if of is not None and to else None
        elif isinstance(rule, Distinct):
            row[column.name] = _among(parts, rule.among).select(rule.of).drop_nulls().n_unique()
        elif isinstance(rule, Names):
            row[column.name] = _names(rule, _among(parts, rule.by))
        elif isinstance(rule, Scaled):
            factor = parts[0][rule.by][0]
            row[column.name] = None if factor is None else round(row[rule.of] * factor)
        elif rule is not None and not isinstance(rule, Share):
            row[column.name] = _of_calls(rule, parts)
    return row


def _sum(rule: Sum, parts: Sequence[pl.DataFrame], broken: Sequence[bool]) -> Any:
    total = 0
    for name in rule.of:
        ((frame, cut),) = (
            (frame, cut) for frame, cut in zip(parts, broken, strict=True) if name in frame.columns
        )
        if cut:
            return None
        kept = frame if rule.where is None else frame.filter(pl.col(rule.where[0]) == rule.where[1])
        total += kept[name].sum()
    return total


def _among(parts: Sequence[pl.DataFrame], column: str) -> pl.DataFrame:
    """The parts with a partial column, else the first."""
    return next((part for part in parts if column in part.columns), parts[0])


def _of_calls(rule: Rule, parts: Sequence[pl.DataFrame]) -> Any:
    """What is not summed of every part."""
    assert isinstance(rule, Min | Max | Median | First | Union)
    part = _among(parts, rule.of)
    if isinstance(rule, First):
        return part.sort(rule.by, maintain_order=True)[rule.of].first()
    if isinstance(rule, Union):
        lasting = part.filter(pl.col(rule.end) > pl.col(rule.begin)).sort(rule.begin)
        overlap = lasting[rule.begin] < lasting[rule.end].shift()
        return None if overlap.any() else lasting[rule.of].sum()
    special = part.filter(pl.col(rule.where[0]) == rule.where[1]) if rule.where else part
    values = (special if len(special) else part)[rule.of].drop_nulls()
    if isinstance(rule, Median):
        middle = values.median()
        return None if middle is None else int(middle)
    return values.min() if isinstance(rule, Min) else values.max()


def _names(rule: Names, frame: pl.DataFrame) -> str:
    if rule.as_they_come:
        return ", ".join(frame[rule.of].drop_nulls().unique(maintain_order=True))
    weight = pl.col(rule.by).sum() if rule.by else pl.lit(0).first()
    found = frame.drop_nulls(rule.of).group_by(rule.of).agg(weight.alias("_by"))
    return ", ".join(found.sort("_by", rule.of, descending=[True, False])[rule.of])
