"""The answer of a query, read once, a batch at a time, with columns that every format takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl

from profiler.errors import InputError
from profiler.report.query.time_limit import TimeLimit

__all__ = ["Answer", "interrupted"]

_BATCH = 65_536  # rows
_FOREIGN = re.compile("BLOB|INTERVAL|BIT|UUID|MAP|UNION|TIME WITH|UHUGEINT|BIGNUM|VARIANT|GEOMETRY")
_INTERRUPTED = "Query interrupted"  # what DuckDB makes of Ctrl-C


class Answer:
    """`names` of the columns, and `batches` of their rows. Sums of integers, which DuckDB gives in
    128 bits, are int64."""

    def __init__(
        self, relation: Any, failed: Callable[[Exception], InputError], limit: TimeLimit
    ) -> None:
        self.names = _distinct(list(relation.columns))
        self._relation = _as_texts(relation)
        self._failed = failed
        self._limit = limit

    def batches(self) -> Iterator[pl.DataFrame]:
        """At least one frame, which may be empty; all have the same columns. Raises InputError
        where the query fails on the way or takes too long, KeyboardInterrupt where Ctrl-C ended
        it."""
        import duckdb
        import pyarrow as pa

        try:
            with self._limit.computing():
                reader = self._relation.to_arrow_reader(_BATCH)
            yield self._frame(reader.schema.empty_table())
            while (batch := self._next(reader)) is not None:
                if batch.num_rows:
                    yield self._frame(pa.Table.from_batches([batch]))
        except duckdb.InterruptException as error:
            raise interrupted(self._limit) from error
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failed(error) from error
        except RuntimeError as error:
            if str(error) != _INTERRUPTED:
                raise
            raise interrupted(self._limit) from error

    def _next(self, reader: Any) -> Any:
        with self._limit.computing():
            return next(reader, None)

    def _frame(self, table: Any) -> pl.DataFrame:
        frame = pl.from_arrow(table.rename_columns(self.names))
        assert isinstance(frame, pl.DataFrame)
        return _plain(frame)


def interrupted(limit: TimeLimit) -> BaseException:
    """What to raise where somebody has ended the query: its time limit, or Ctrl-C."""
    if not limit.exceeded:
        return KeyboardInterrupt()
    return InputError(
        f"the query took more than the {limit.seconds:g} s that it may take: give it more with "
        "--timeout, or ask for less"
    )


def _as_texts(relation: Any) -> Any:
    """The relation with columns that Arrow and Polars do not share, such as intervals, as text."""
    kinds = [str(kind) for kind in relation.types]
    if not any(map(_FOREIGN.search, kinds)):
        return relation
    columns = (
        f"#{number}::VARCHAR" if _FOREIGN.search(kind) else f"#{number}"
        for number, kind in enumerate(kinds, 1)
    )
    return relation.project(", ".join(columns))


def _distinct(names: list[str]) -> list[str]:
    """Names of columns of which no two are the same: a, a_2, …"""
    found: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in found:
            number += 1
            candidate = f"{name}_{number}"
        found.append(candidate)
    return found


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    whole = [
        name
        for name, dtype in frame.schema.items()
        if dtype == pl.Int128 or (isinstance(dtype, pl.Decimal) and dtype.scale == 0)
    ]
    try:
        return frame.with_columns(pl.col(whole).cast(pl.Int64)) if whole else frame
    except pl.exceptions.InvalidOperationError as error:
        raise InputError(
            f"a number of {', '.join(whole)} is beyond 64 bits: cast it in the query, "
            "sum(…)::DOUBLE"
        ) from error
