"""`profile-sd3 fleet query`: SQL over the runs and metrics of a data set."""

from __future__ import annotations

from pathlib import Path

from profiler.cli import options as shared
from profiler.cli.commands.query import answer, answer_files
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import progress


@cli_options
class DatasetQueryOptions:
    """Options of `profile-sd3 fleet query`."""

    dataset: str = shared.DATASET_PLACE
    sql: str = arg("SQL  The query (DuckDB's SQL) over `runs` and `metrics`.")
    where: list[str] = shared.WHERE_RUNS
    bundle: list[str] = opt(
        "RUN  Read the bundle of this run (key or name), too: its commands, calls and tables, "
        "whose column `run` is the key; may be repeated."
    )
    rows: int | None = shared.ANSWER_ROWS
    csv: Path | None = shared.ANSWER_CSV
    parquet: Path | None = shared.ANSWER_PARQUET
    json: Path | None = shared.ANSWER_JSON
    timeout: float = shared.ANSWER_TIMEOUT


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
