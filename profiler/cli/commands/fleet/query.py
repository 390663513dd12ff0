"""`profile-sd3 fleet query`: SQL over the runs and metrics of a data set."""

from __future__ import annotations

from pathlib import Path

from profiler.cli.commands.fleet import DATASET_PLACE, WHERE_RUNS
from profiler.cli.commands.query import answer, answer_files
from profiler.cli.options import (
    ANSWER_CSV,
    ANSWER_JSON,
    ANSWER_PARQUET,
    ANSWER_ROWS,
    ANSWER_TIMEOUT,
)
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import progress


@cli_options
class DatasetQueryOptions:
    """Options of `profile-sd3 fleet query`."""

    dataset: str = DATASET_PLACE
    sql: str = arg("SQL  The query (DuckDB's SQL) over `runs` and `metrics`.")
    where: list[str] = WHERE_RUNS
    bundle: list[str] = opt(
        "--bundle RUN  Read the bundle of this run (key or name), too: its commands, calls and "
        "tables, whose column `run` is the key; may be repeated."
    )
    rows: int | None = ANSWER_ROWS
    csv: Path | None = ANSWER_CSV
    parquet: Path | None = ANSWER_PARQUET
    json: Path | None = ANSWER_JSON
    timeout: float = ANSWER_TIMEOUT


def query(options: DatasetQueryOptions) -> None:
    """Ask a data set in SQL (DuckDB's).

    Tables: `runs`, a row a run; `metrics`, a row a number. A query only reads, reaches no file, and
    has the limits of `profile-sd3 query`.
    """
    from profiler.fleet.dataset import Dataset, bundles_of, open_database

    wanted = answer_files(options)
    data = Dataset(options.dataset)
    with progress(f"reading {options.dataset}"):
        runs = bundles_of(data, options.bundle)
        database = open_database(data, options.sql, options.where, runs, options.timeout or None)
    with database:
        answer(database, options.sql, wanted, options.rows)


SUBCOMMAND = Subcommand(query, place=50, about_runs=True)
