"""Arguments and options that several subcommands of `fleet` have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from profiler.fleet.workers import Workers

__all__ = [
    "AssumeSame",
    "BadQuality",
    "DatasetPlace",
    "LocalWorkers",
    "Scheduler",
    "WhereRuns",
    "workers_of",
]

DatasetPlace = Annotated[
    str,
    typer.Argument(
        metavar="DATASET", help="Folder of the data set, or a URL that fsspec knows (s3://…)."
    ),
]
WhereRuns = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="KEY=VALUE",
        help="Only runs whose column, `time` or `label.NAME` is so: =, !=, <, <=, >, >=, ~ "
        "(contains), and the value `unknown`; may be repeated.",
    ),
]
AssumeSame = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD",
        help="Take this field of the identity to agree where nobody recorded it; may be repeated.",
    ),
]
BadQuality = Annotated[
    bool,
    typer.Option("--bad-quality", help="Take runs with drops, residual or costly tracing, too."),
]
LocalWorkers = Annotated[
    int,
    typer.Option(
        "--workers", metavar="N", min=0, help="Work in N processes of this machine; 0: in this one."
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Work on the Dask cluster of this scheduler, such as tcp://head:8786: one you trust, "
        "whose workers see the same paths.",
    ),
]


def workers_of(local: int, scheduler: str | None) -> Workers:
    """Who works. Raises InputError where both options are given."""
    from profiler.fleet.workers import Workers

    return Workers(local, scheduler or "")
