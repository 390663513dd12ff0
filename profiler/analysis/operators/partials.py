"""Partial results of operators in single calls, beside those of their commands (`roles.partials`).

The wall time of an operator in a call does not follow from its commands' durations. A fold tells
how far it, and what the ratios are made of, lie from `total_ns`. Where all of these are 0 (one
track, one command at a time) that holds for any part of its commands too, and the fold is left out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.operators.folds import Folds
from profiler.analysis.partials import SEVERAL, Partials, partials
from profiler.analysis.roles.partials import Cells
from profiler.run.columns import TEXT
from profiler.run.intervals import Times, group_heads, text_codes

__all__ = ["OFFSETS", "fold_parts"]

OFFSETS = (
    *("wall_offset_ns", "working_offset_ns", "possible_offset_ns"),
    *("busiest_offset_ns", "even_offset_ns"),
)
"""What a fold adds to `total_ns` for its wall time, the time on its working tracks, its wall time
times these tracks, the time on the busiest of them and their mean."""

_OPERATOR = ("submodule", "layer", "host")
_IN_CALL = ("group", "call", "branch", "step")  # one value in a fold
_MIXED = {"role": "works", "stage": "keys", "device": "keys"}
_BITS = 62


def fold_parts(folds: Folds, cells: Cells) -> Partials:
    """The folds whose offsets are not all 0 as partials `folds`; `cells` are of the same commands.

    The dictionary `operator` has submodule, layer, host and the roles of the fold's commands; `key`
    has group, call, branch, step and their stages and devices. A text of several values holds all
    of them (`SEVERAL`). Partial columns are `OFFSETS`: Int64, `even_offset_ns` Float64.
    """
    offsets, some = _offsets(folds)
    groups = int(folds.group.max(initial=0)) + 1
    wanted = folds.key[some].astype(np.int64) * groups + folds.group[some]
    first, bits, names = _attributes(folds, cells, groups, wanted)
    coded = pl.DataFrame({"fold": folds.key[some], "group": folds.group[some], **bits})
    rows, books = {}, {}
    for column, keys in {"operator": ["fold", "role"], "key": ["group", "stage", "device"]}.items():
        book = coded.select(keys).with_columns(first=first).unique(keys, maintain_order=True)
        numbered = book.select(keys).with_row_index(column)
        rows[column] = coded.select(keys).join(numbered, on=keys, maintain_order="left")[column]
        books[column] = book
    named = [
        _texts(books["operator" if name == "role" else "key"][name], names[name]) for name in _MIXED
    ]
    operator = _operators(folds)[books["operator"]["fold"]].select(_OPERATOR)
    key = cells.keys[books["key"]["first"]].select(_IN_CALL)
    dictionaries = {
        "operator": operator.with_columns(named[0]),
        "key": key.with_columns(named[1:]),
    }
    return partials("folds", pl.DataFrame(rows).hstack(offsets), dictionaries)


def _operators(folds: Folds) -> pl.DataFrame:
    """What each key of the folds stands for."""
    return pl.DataFrame(
        {"submodule": folds.submodules, "layer": folds.layers, "host": folds.host},
        schema={"submodule": pl.String, "layer": pl.String, "host": pl.Boolean},
    )


def _offsets(folds: Folds) -> tuple[pl.DataFrame, npt.NDArray[np.bool_]]:
    """The `OFFSETS` of the folds that have any, and which these are."""
    total = folds.busy
    offsets = {
        "wall_offset_ns": folds.wall - total,
        "working_offset_ns": folds.working_busy - total,
        "possible_offset_ns": folds.wall * folds.working_tracks - total,
        "busiest_offset_ns": folds.busiest - total,
        "even_offset_ns": folds.working_busy / folds.working_tracks - total,
    }
    some = np.any([values != 0 for values in offsets.values()], axis=0)
    return pl.DataFrame({name: values[some] for name, values in offsets.items()}), some


def _attributes(
    folds: Folds, cells: Cells, groups: int, wanted: Times
) -> tuple[Times, dict[str, Times], dict[str, list[str]]]:
    """Of the folds `wanted` (key * `groups` + group) the entry in `cells.keys` of a cell, the bits
    of their roles, stages and devices, and the texts that bits stand for."""
    operators = _operators(folds).with_row_index("fold")
    fold_of_work = cells.works.join(
        operators, on=_OPERATOR, how="left", nulls_equal=True, maintain_order="left"
    )["fold"].to_numpy()
    entry = {"works": cells.rows["work"].to_numpy(), "keys": cells.rows["key"].to_numpy()}
    group = cells.keys["group"].to_numpy()[entry["keys"]]
    code = fold_of_work[entry["works"]].astype(np.int64) * groups + group
    order = np.argsort(code, kind="stable")
    heads = group_heads(code[order]) if len(code) else np.zeros(0, dtype=np.int64)
    places = np.searchsorted(code[order][heads], wanted)
    bits, names = {}, {}
    for name, book in _MIXED.items():
        of_entry, names[name] = _bits(getattr(cells, book)[name])
        of_cell = of_entry[entry[book]][order]
        bits[name] = np.bitwise_or.reduceat(of_cell, heads)[places] if len(heads) else of_cell
    return entry["keys"][order][heads][places], bits, names


def _bits(column: pl.Series) -> tuple[Times, list[str]]:
    """A bit for each text of a column, and the texts, "" for null; those behind the last bit share
    it, as if each were all of them."""
    codes, names = text_codes(column.fill_null("").cast(TEXT))
    return np.int64(1) << np.minimum(codes, _BITS).astype(np.int64), names


def _texts(sets: pl.Series, names: list[str]) -> pl.Series:
    """The texts that each number's bits stand for."""
    known = sets.unique().sort()
    texts = [
        SEVERAL.join(name for i, name in enumerate(names) if bits & 1 << min(i, _BITS))
        for bits in known
    ]
    return pl.Series(sets.name, texts, dtype=pl.String).gather(known.search_sorted(sets))
