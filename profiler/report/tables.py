"""The tables of an analysis as files: CSV for spreadsheets, Parquet for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from profiler.analysis.registry import tables
from profiler.analysis.result import Analysis
from profiler.analysis.table import Table
from profiler.files import appearing, not_writable
from profiler.report.flat import for_spreadsheets
from profiler.report.sentences.worded import worded_cell
from profiler.report.sentences.worded_tables import worded_tables_by_name
from profiler.run.columns import Column
from profiler.run.load import write_parquet
from profiler.run.run import Run
from profiler.text import NoteCode

__all__ = ["worded_columns", "worded_tables", "write_csv_tables", "write_parquet_tables"]


def worded_columns(table: Table) -> tuple[Column, ...]:
    """The columns of a table, and behind them one of text for each that holds notes; those of its
    `WordedTable` where it has one."""
    known = worded_tables_by_name().get(table.name)
    if known is not None:
        return known.columns
    columns = table.columns
    texts = (
        Column(f"{one.name}_text", pl.String(), "", f"`{one.name}` in words", one.nullable)
        for one in columns
        if _notes_of(one)
    )
    return (*columns, *texts)


def worded_tables(analysis: Analysis) -> dict[str, pl.DataFrame]:
    """The tables of an analysis with the columns of `worded_columns`."""
    found = analysis.tables()
    for table in tables():
        found[table.name] = _worded(found[table.name], table.columns)
    known = worded_tables_by_name()
    return found | {name: table.frame(analysis) for name, table in known.items()}


def _worded(frame: pl.DataFrame, columns: Sequence[Column]) -> pl.DataFrame:
    for column in columns:
        if codes := _notes_of(column):
            cells = [str(worded_cell(text, codes)) for text in frame[column.name]]
            frame = frame.with_columns(pl.Series(f"{column.name}_text", cells, dtype=pl.String))
    return frame


def _notes_of(column: Column) -> type[NoteCode] | None:
    codes = column.codes
    return codes if codes is not None and issubclass(codes, NoteCode) else None


def write_csv_tables(analysis: Analysis, directory: Path) -> list[Path]:
    """Write `stages.csv`, `devices.csv`, … into `directory`, over files of these names.

    Returns the paths. Raises OutputError where that cannot be.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(directory, error) from error
    paths = []
    for name, frame in worded_tables(analysis).items():
        paths.append(directory / f"{name}.csv")
        with appearing(paths[-1]) as file:
            for_spreadsheets(frame).write_csv(file)
    return paths


def write_parquet_tables(run: Run, analysis: Analysis, directory: Path) -> list[Path]:
    """Write the run to a new or empty `directory`, so that `profiler.load` reads it back, and the
    tables of the analysis beside it as `analysis_stages.parquet`, ….

    Returns the paths of the latter. Raises OutputError where that cannot be.
    """
    write_parquet(run, directory)
    paths = []
    for name, frame in worded_tables(analysis).items():
        paths.append(directory / f"analysis_{name}.parquet")
        with appearing(paths[-1]) as file:
            frame.write_parquet(file)
    return paths
