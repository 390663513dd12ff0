"""Cells: sums over commands by call, device, role and layer, for what a reader selects in a page.

A page groups cells and adds them up, so that its sums are exact for any selection.
`packed_cells` keeps them within `LIMIT` bytes: larger runs are summed over layers, then over calls,
then over steps.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.context import Inputs
from profiler.analysis.flops import work_of_commands
from profiler.analysis.provenance import Table, pack
from profiler.analysis.roles import kind_roles
from profiler.analysis.roofline import works
from profiler.run.intervals import batches

WORK = ("host", "role", "layer", "block")
"""Keys for the kind of work: whether it is the host's, its role, layer, and the layer's block."""
PLACE = ("call", "submodule", "stage", "branch", "step", "device")
"""Keys for when and where it ran; null for no call, branch or device, -1 for no step."""
SUMS = ("commands", "total_ns", "bytes", "flops")
"""Columns that a cell sums. Bytes are read and written; commands whose bytes or FLOPs are unknown
count as 0."""

LIMIT = 150_000
"""Max size of the packed cells of a page, in bytes."""
_SUMMED_OVER = (("layer", "block"), ("call",), ("step", "branch"))  # in this order
_MOST = 1 << 60  # max of a cell: a few of them fit int64, and scripts keep 16 digits


class Strings(Protocol):
    """The texts of a page."""

    def codes(self, column: pl.Series) -> npt.NDArray[np.int64]:
        """The number of each text, -1 for null."""


def cells_of(of: Inputs) -> pl.DataFrame:
    """The cells of the selected commands: columns `WORK`, `PLACE` and `SUMS`, no two rows with the
    same keys."""
    commands, frame = of.commands, of.frame
    derived = work_of_commands(works(of).works)
    parts = []
    for rows in batches(max(len(frame), 1)):
        kind = pl.Series(of.kinds.of_command[rows].astype(np.uint32))
        part = frame[rows].with_columns(
            *(pl.col(name).fill_null(each.gather(kind)) for name, each in derived.items()),
            kind=kind.cast(pl.Int32),
            total_ns=pl.Series(commands.end[rows] - commands.start[rows]),
        )
        moved = pl.sum_horizontal(pl.col("bytes_read", "bytes_written").cast(pl.Float64))
        part = part.group_by("call", "stage", "step", "device", "kind").agg(
            pl.len().cast(pl.Int64).alias("commands"),
            pl.col("total_ns").sum(),
            moved.sum().alias("bytes"),
            pl.col("flops").cast(pl.Float64).sum(),
        )
        parts.append(part.with_columns(pl.col("stage", "device").cast(pl.String)))
    roles = kind_roles(of).select("kind", "role", "block")
    kinds = of.kinds.table.select("kind", "host", "layer").join(roles, on="kind")
    found = (
        pl.concat(parts)
        .join(kinds, on="kind", how="left")
        .join(of.calls.select("call", "submodule", "branch"), on="call", how="left")
        .with_columns(
            pl.col("role", "submodule", "branch").cast(pl.String),
            call=pl.when(pl.col("submodule").is_not_null()).then("call"),
            block=pl.when(pl.col("role").is_not_null()).then("block"),
        )
    )
    return _summed(found, WORK, PLACE).with_columns(
        pl.col("bytes", "flops").clip(upper_bound=_MOST).cast(pl.Int64)
    )


def packed_cells(cells: pl.DataFrame, strings: Strings) -> tuple[dict[str, Any], str]:
    """Return the description of the cells for a page's scripts, and their packed columns.

    The description has `tables` (of `provenance.pack`), `keys`: the keys that each column of
    numbers (`work`, `place`) stands for, and `dropped`: the keys that cells were summed over to fit
    into `LIMIT` bytes.
    """
    levels = [(), *itertools.accumulate(_SUMMED_OVER, operator.add)]
    for dropped in levels:
        keys = {
            book: [name for name in names if name not in dropped]
            for book, names in (("work", WORK), ("place", PLACE))
        }
        cells = _summed(cells, *keys.values())
        if len(cells) > LIMIT and dropped != levels[-1]:
            continue  # a cell takes more than a byte
        described, packed = pack(_numbered(cells, keys, strings))
        if len(packed) <= LIMIT:
            break
    return {"tables": described, "keys": keys, "dropped": dropped}, packed


def _summed(cells: pl.DataFrame, *keys: Sequence[str]) -> pl.DataFrame:
    """Sum the cells for each combination of the keys."""
    return cells.group_by(*itertools.chain(*keys)).agg(pl.col(SUMS).sum())


def _numbered(
    cells: pl.DataFrame, keys: Mapping[str, Sequence[str]], strings: Strings
) -> dict[str, Table]:
    """The cells with row numbers instead of keys, and the tables of keys."""
    tables: dict[str, Table] = {}
    for book, names in keys.items():
        entries = cells.select(names).unique().sort(names, nulls_last=True)
        numbered = entries.with_row_index(book)
        cells = cells.join(numbered, on=names, nulls_equal=True, maintain_order="left")
        tables[book] = {name: _numbers(entries[name], strings) for name in names}
    cells = cells.sort("place", "work")
    tables["cells"] = {name: cells[name].cast(pl.Int64).to_numpy() for name in (*keys, *SUMS)}
    return tables


def _numbers(values: pl.Series, strings: Strings) -> npt.NDArray[np.int64]:
    """Codes of texts, and other values unchanged; -1 for null."""
    if values.dtype == pl.String:
        return strings.codes(values)
    return values.cast(pl.Int64).fill_null(-1).to_numpy()
