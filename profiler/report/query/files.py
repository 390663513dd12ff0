"""Answers as files: CSV, Parquet and JSON, written batch by batch as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from profiler.files import appearing, json_text
from profiler.report.flat import for_spreadsheets, for_terminals

__all__ = ["FORMATS", "write_answer"]

_Take = Callable[[pl.DataFrame], None]


def write_answer(batches: Iterable[pl.DataFrame], files: dict[str, Path], stdout: BinaryIO) -> int:
    """Write all batches into each of `files`, given by their format, "-" being `stdout`; returns
    the number of rows. A file appears when it is whole. Raises OutputError where that cannot be."""
    rows = 0
    with ExitStack() as stack:
        takers = []
        for form, path in files.items():
            target = stdout if path == Path("-") else stack.enter_context(appearing(path))
            takers.append(stack.enter_context(FORMATS[form](target)))
        for batch in batches:
            rows += len(batch)
            for take in takers:
                take(batch)
    return rows


@contextmanager
def _csv(file: BinaryIO) -> Iterator[_Take]:
    begun = False

    def take(batch: pl.DataFrame) -> None:
        nonlocal begun
        if len(batch) or not begun:
            frame = for_spreadsheets(batch)
            if file.isatty():
                frame = for_terminals(frame)
            frame.write_csv(file, include_header=not begun)
        begun = True

    yield take


@contextmanager
def _parquet(file: BinaryIO) -> Iterator[_Take]:
    import pyarrow.parquet as pq

    writer: Any = None

    def take(batch: pl.DataFrame) -> None:
        nonlocal writer
        table = batch.to_arrow(compat_level=pl.CompatLevel.oldest())
        if writer is None:
            writer = pq.ParquetWriter(file, table.schema, compression="zstd")
        if len(batch):
            writer.write_table(table.cast(writer.schema))

    try:
        yield take
    finally:
        if writer is not None:
            writer.close()


@contextmanager
def _json(file: BinaryIO) -> Iterator[_Take]:
    begun = False

    def take(batch: pl.DataFrame) -> None:
        nonlocal begun
        for row in batch.iter_rows(named=True):
            file.write(b",\n" if begun else b"[\n")
            file.write(json_text(row, indent=None).encode())
            begun = True

    yield take
    file.write(b"\n]\n" if begun else b"[]\n")


FORMATS: dict[str, Callable[[BinaryIO], AbstractContextManager[_Take]]] = {
    "csv": _csv,
    "parquet": _parquet,
    "json": _json,
}
