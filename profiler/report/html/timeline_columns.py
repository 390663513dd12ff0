"""Events of a run as integer columns for the page: texts become codes, calls become rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.report.pack import Table
from profiler.run.intervals import text_codes
from profiler.run.run import Run
from profiler.trace.events import CATEGORIES

__all__ = ["Strings", "call_columns", "command_columns", "flow_columns", "rows_of"]


class Strings:
    """Strings of all text columns, each once."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._index: dict[str, int] = {}

    def codes(self, column: pl.Series) -> npt.NDArray[np.int64]:
        """Index of each value, -1 for null."""
        if column.dtype == pl.String:
            column = column.cast(pl.Categorical())
        codes, names = text_codes(column)
        return np.array([*map(self._intern, names), -1], dtype=np.int64)[codes]

    def _intern(self, text: str) -> int:
        index = self._index.setdefault(text, len(self.values))
        if index == len(self.values):
            self.values.append(text)
        return index


def rows_of(calls: pl.DataFrame) -> pl.DataFrame:
    """The number of each call and the row in which it stands, as `_row`."""
    return calls.select("call", _row=pl.int_range(len(calls), dtype=pl.Int64))


def call_columns(calls: pl.DataFrame, begin: int, strings: Strings) -> Table:
    """The calls in the order of `calls`, which have `host_ns` beside the columns of a run's."""
    text = ("stage", "submodule", "branch", "input_shapes")
    return {
        "call": calls["call"].to_numpy().astype(np.int64),
        "start": calls["start_ns"].to_numpy() - begin,
        "duration": calls["duration_ns"].to_numpy(),
        "host": calls["host_ns"].to_numpy(),
        "step": calls["step"].to_numpy().astype(np.int64),
        "traced": calls["ops_traced"].to_numpy().astype(np.int64),
        **{name: strings.codes(calls[name]) for name in text},
    }


def command_columns(
    commands: pl.DataFrame, calls: pl.DataFrame, begin: int, strings: Strings
) -> Table:
    """`call` becomes the row of the call in the table of calls, -1 for none; `category` its place
    in `CATEGORIES`."""
    rows = commands.select("call").join(
        rows_of(calls), on="call", how="left", maintain_order="left"
    )
    numbers = ("bytes_read", "bytes_written", "flops")
    text = ("layer", "op_type", "kernel", "role", "shapes", "stage")
    return {
        "start": commands["start_ns"].to_numpy() - begin,
        "duration": commands["duration_ns"].to_numpy(),
        "call": rows["_row"].fill_null(-1).to_numpy(),
        "index": commands["command_index"].to_numpy().astype(np.int64),
        "step": commands["step"].to_numpy().astype(np.int64),
        "category": _category_codes(commands["category"]),
        **{name: commands[name].fill_null(-1).to_numpy() for name in numbers},
        **{name: strings.codes(commands[name]) for name in text},
    }


def _category_codes(column: pl.Series) -> npt.NDArray[np.int64]:
    """The place of each category in `CATEGORIES`."""
    codes, names = text_codes(column)
    return np.array([*map(CATEGORIES.index, names), -1], dtype=np.int64)[codes]


def flow_columns(run: Run, commands: pl.DataFrame) -> Table:
    """Dependencies between rows of the table of commands; those of a row left out are gone."""
    rows = len(run.commands) if len(run.flows) else 0
    position = np.full(rows, -1, dtype=np.int32)
    if rows:
        position[commands["_row_of_run"].to_numpy()] = np.arange(len(commands))
    ends = (position[run.flows[name].to_numpy()] for name in ("source", "target"))
    source, target = ends
    kept = (source >= 0) & (target >= 0)
    return {"source": source[kept].astype(np.int64), "target": target[kept].astype(np.int64)}
