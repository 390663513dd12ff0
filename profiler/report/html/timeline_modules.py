"""The lanes of modules in the page's timeline: when the model's blocks ran."""

from __future__ import annotations

import numpy as np
import polars as pl

from profiler.run.columns import TEXT
from profiler.run.intervals import Codes, Times, group_heads, order_by, rows_of_calls, text_codes
from profiler.run.load import places_by_layer
from profiler.trace.events import CATEGORIES

__all__ = ["module_stretches"]

# "transformer_blocks.7" of "transformer_blocks.7.ff.net.0"
_MODULE = r"^(.*?[./_\[][0-9]+)(?:[./\]]|$)"
_WORTH = 4  # commands that a module must hold on average for its lane to say anything
_COMPUTE = CATEGORIES.index("compute")
_STRETCHES = pl.Schema(
    {
        "device": TEXT,
        "module": pl.String(),
        "row": pl.Int64(),
        "start": pl.Int64(),
        "end": pl.Int64(),
    }
)


def module_stretches(commands: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Stretches of compute commands of one call whose places begin alike: the model's blocks.

    Columns `device, module, start, end` and `row`, that of the call in `calls`, by device and
    start. Empty where places hold no numbered modules, or a module hardly more than one
    command.
    """
    module, modules = _modules(commands)
    row = rows_of_calls(commands["call"], calls["call"])
    compute = commands["category"].to_physical().to_numpy() == _COMPUTE
    rows = np.flatnonzero(compute & (row >= 0))
    if not modules or not len(rows):
        return pl.DataFrame(schema=_STRETCHES)
    rows = rows[_by_call(row[rows], commands["start_ns"].to_numpy()[rows], len(calls))]
    start, length = (commands[name].to_numpy()[rows] for name in ("start_ns", "duration_ns"))
    heads = group_heads(row[rows], module[rows])
    ends = np.maximum.reduceat(start + np.maximum(length, 0), heads)
    kept = np.flatnonzero(module[rows][heads] >= 0)
    counts = np.diff(heads, append=len(rows))[kept]
    if counts.sum() < _WORTH * len(kept):
        return pl.DataFrame(schema=_STRETCHES)
    first = rows[heads[kept]]
    return pl.DataFrame(
        {
            "device": commands["device"].gather(first),
            "module": pl.Series(modules, dtype=pl.String).gather(module[first]),
            "row": row[first],
            "start": start[heads[kept]],
            "end": ends[kept],
        },
        schema=_STRETCHES,
    ).sort(pl.col("device").cast(pl.String), "start", maintain_order=True)


def _modules(commands: pl.DataFrame) -> tuple[Codes, list[str]]:
    """A number for the module of each command, -1 for none, and what they are called."""
    codes, layers = text_codes(commands["layer"])
    places = places_by_layer(commands)
    found = pl.Series([places[layer] for layer in layers], dtype=pl.String)
    named = found.str.extract(_MODULE).to_list()
    modules = [*dict.fromkeys(name for name in named if name is not None)]
    number = {name: place for place, name in enumerate(modules)}
    table = np.array([*(number.get(name, -1) for name in named), -1], dtype=np.int64)
    return table[codes], modules


def _by_call(row: Codes, start: Times, calls: int) -> Times:
    """The order of commands by the row of their call, then start."""
    order = order_by(row, calls)
    ordered, begins = row[order], start[order]
    if bool(((begins[1:] >= begins[:-1]) | (ordered[1:] != ordered[:-1])).all()):
        return order
    return np.lexsort((start, row))
