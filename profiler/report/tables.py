"""The tables of an analysis as files: CSV for spreadsheets, Parquet for notebooks."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from profiler.analysis.result import Analysis
from profiler.files import appearing, not_writable
from profiler.report.flat import flat
from profiler.report.sentences.findings.frame import findings_frame
from profiler.table.parquet import write_parquet
from profiler.table.run import Run

__all__ = ["worded_tables", "write_csv_tables", "write_parquet_tables"]


def worded_tables(analysis: Analysis) -> dict[str, pl.DataFrame]:
    """The tables of an analysis, that of findings with its sentences."""
    return analysis.tables() | {"findings": findings_frame(analysis.findings)}


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
            flat(frame).write_csv(file)
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
