"""`profile-sd3 fleet compare`: runs side by side by hardware, software or another field."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profiler.cli.commands.fleet import AssumeSame, BadQuality, DatasetPlace, WhereRuns, print_table
from profiler.cli.options import ResultFile
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import STDOUT, check_documents, progress, tell
from profiler.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from profiler.fleet.compare import Compared


_By = Annotated[
    str,
    typer.Option(
        metavar="FIELD", help="The field to compare by: hardware, software, resolution, cache, …"
    ),
]
_Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Metric, such as transformer.call; may be repeated.  [default: elapsed, denoise.step]",
    ),
]
_Ignored = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="FIELD", help="Let this field differ, too; may be repeated."),
]


def compare(
    dataset: DatasetPlace,
    by: _By = "hardware",
    metric: _Metrics = None,
    where: WhereRuns = None,
    assume_same: AssumeSame = None,
    ignore: _Ignored = None,
    bad_quality: BadQuality = False,
    json_file: ResultFile = None,
) -> None:
    """Compare runs by hardware, software, resolution or another field.

    Two values are compared where all other fields agree: workload, variant, recipe, hardware and
    software. A field that nobody recorded is unknown, and agrees with nothing.
    """
    from profiler.fleet.compare import DEFAULT_METRICS
    from profiler.fleet.compare import compare as compare_runs
    from profiler.fleet.dataset import Dataset, checked_fields

    fields = checked_fields([by], "--by")
    if len(fields) != 1:
        raise InputError(f"--by {by} is several fields: give one of {', '.join(fields)}")
    same = checked_fields(assume_same, "--assume-same")
    ignored = checked_fields(ignore, "--ignore")
    check_documents({"--json": json_file})
    with progress(f"comparing runs of {dataset}"):
        compared = compare_runs(
            Dataset(dataset),
            fields[0],
            tuple(metric or DEFAULT_METRICS),
            where or (),
            assume_same=same,
            ignored=ignored,
            quality=bad_quality,
        )
    _show(compared, fields[0], json_file)


def _show(compared: Compared, by: str, json_file: Path | None) -> None:
    from profiler.fleet.text import apart_line

    if json_file is not None:
        _write(compared.rows, json_file)
    if json_file != STDOUT:
        for (workload,), rows in compared.rows.group_by("workload", maintain_order=True):
            tell(workload)
            print_table(_shown(rows, by), rows=0)
    for apart in compared.apart:
        tell(apart_line(apart), err=True)
    if compared.rows.is_empty():
        raise InputError("no two runs are comparable, or none has the metric: see `fleet query`")


def _shown(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """The rows as they are printed."""
    import polars as pl

    from profiler.fleet.text import figure, verdict_text

    shown = [
        (
            row["value"],
            row["metric"],
            row["runs"],
            figure(row["median"], row["unit"]),
            _interval(figure(row["low"], row["unit"]), figure(row["high"], row["unit"])),
            "" if row["ratio"] is None or row["verdict"] == "alone" else f"{row['ratio']:.3f}×",
            "" if row["ratio_low"] is None or row["verdict"] in ("base", "alone") else _interval(
                f"{row['ratio_low']:.3f}", f"{row['ratio_high']:.3f}"
            ),
            verdict_text(row["verdict"], row["needs"]),
        )
        for row in rows.iter_rows(named=True)
    ]  # fmt: skip
    names = [by, "metric", "runs", "median", "95 % interval", "ratio", "95 % of ratio", "verdict"]
    return pl.DataFrame(shown, schema=names, orient="row")


def _interval(low: str, high: str) -> str:
    return f"{low} to {high}" if low else ""


def _write(rows: pl.DataFrame, path: Path) -> None:
    from profiler.cli.terminal import write_json
    from profiler.files import json_text

    write_json(path, json_text(rows.to_dicts()) + "\n")


SUBCOMMAND = Subcommand(compare, place=40)
