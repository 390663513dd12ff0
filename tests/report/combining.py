"""What `templates/partials.js` makes of partial results, in Python: parts that match are combined
by the rules of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from profiler.analysis.partials import SEVERAL, Partials
from profiler.table.columns import Column
from profiler.table.combining import Distinct, Key, Names, Ratio, Scaled, Share, Sum

__all__ = ["combine"]

_Test = Callable[[Any], bool]


def combine(
    parts: Sequence[Partials],
    columns: Sequence[Column],
    matches: Mapping[str, _Test],
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows of a table by their key, made of the parts whose attributes pass `matches`."""
    keys = [column.name for column in columns if isinstance(column.combine, Key)]
    required = {c.name for c in columns if isinstance(c.combine, Key) and not c.nullable}
    whole, cut = _whole_and_cut([_flat(part) for part in parts], matches)
    rows = {}
    for key, of_row in whole[0].group_by(keys, maintain_order=True):
        if any(key[keys.index(name)] is None for name in required):
            continue
        others = [_of(frame, keys, key) for frame in whole[1:]]
        broken = [len(_of(frame, keys, key)) > 0 for frame in cut]
        rows[key] = _row(columns, [of_row, *others], broken, dict(zip(keys, key, strict=True)))
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


def _row(
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
            row[column.name] = parts[0][rule.of].drop_nulls().n_unique()
        elif isinstance(rule, Names):
            row[column.name] = _names(rule, parts[0])
        elif isinstance(rule, Scaled):
            factor = parts[0][rule.by][0]
            row[column.name] = None if factor is None else round(row[rule.of] * factor)
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


def _names(rule: Names, frame: pl.DataFrame) -> str:
    weight = pl.col(rule.by).sum() if rule.by else pl.lit(0).first()
    found = frame.drop_nulls(rule.of).group_by(rule.of).agg(weight.alias("_by"))
    return ", ".join(found.sort("_by", rule.of, descending=[True, False])[rule.of])
