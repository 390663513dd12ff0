"""`profile-sd3 fleet query`: SQL over the runs and metrics of a data set."""

from __future__ import annotations

from typing import Annotated

import typer

from profiler.cli.commands.fleet import DatasetPlace, WhereRuns
from profiler.cli.commands.query import answer, check_files
from profiler.cli.options import AnswerCsv, AnswerJson, AnswerParquet, AnswerRows, AnswerTimeout
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import progress

_Sql = Annotated[
    str, typer.Argument(metavar="SQL", help="The query (DuckDB's SQL) over `runs` and `metrics`.")
]
_Bundles = Annotated[
    list[str] | None,
    typer.Option(
        "--bundle",
        metavar="RUN",
        help="Read the bundle of this run (key or name), too: its commands, calls and tables, "
        "whose column `run` is the key; may be repeated.",
    ),
]


def query(
    dataset: DatasetPlace,
    sql: _Sql,
    where: WhereRuns = None,
    bundle: _Bundles = None,
    rows: AnswerRows = None,
    csv: AnswerCsv = None,
    parquet: AnswerParquet = None,
    json: AnswerJson = None,
    timeout: AnswerTimeout = 60,
) -> None:
    """Ask a data set in SQL (DuckDB's).

    Tables: `runs`, a row a run; `metrics`, a row a number. A query only reads, reaches no file, and
    has the limits of `profile-sd3 query`.
    """
    from profiler.fleet.dataset import Dataset, bundles_of, open_database

    files = {"csv": csv, "parquet": parquet, "json": json}
    wanted = {form: path for form, path in files.items() if path is not None}
    check_files(wanted)
    data = Dataset(dataset)
    with progress(f"reading {dataset}"):
        runs = bundles_of(data, bundle or ())
        database = open_database(data, sql, where or (), runs, timeout or None)
    with database:
        answer(database, sql, wanted, rows)


SUBCOMMAND = Subcommand(query, place=50, about_runs=True)
