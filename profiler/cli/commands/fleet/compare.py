"""`profile-sd3 fleet compare`: runs side by side by hardware, software or another field."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli import options as shared
from profiler.cli.commands.query import print_rows
from profiler.cli.subcommands import Subcommand, cli_options, opt
from profiler.cli.terminal import check_documents, progress, tell, write_result
from profiler.errors import InputError

if TYPE_CHECKING:
    import polars as pl


@cli_options
class CompareOptions:
    """Options of `profile-sd3 fleet compare`."""

    dataset: str = shared.DATASET_PLACE
    by: str = opt(
        "FIELD  The field to compare by: hardware, software, resolution, cache, …",
        default="hardware",
    )
    metric: list[str] = opt(
        "NAME  Metric, such as transformer.call; may be repeated.  [default: elapsed, denoise.step]"
    )
    where: list[str] = shared.WHERE_RUNS
    assume_same: list[str] = shared.ASSUME_SAME
    ignore: list[str] = opt("FIELD  Let this field differ, too; may be repeated.")
    bad_quality: bool = shared.BAD_QUALITY
    json_file: Path | None = shared.RESULT_FILE


def compare(options: CompareOptions) -> None:
    """Compare runs by hardware, software, resolution or another field.

    Two values are compared if all other fields agree: workload, variant, recipe, hardware and
    software. A field that nobody recorded is unknown, and agrees with nothing.
    """
    from profiler.fleet.compare import DEFAULT_METRICS
    from profiler.fleet.compare import compare as compare_runs
    from profiler.fleet.dataset import Dataset, checked_fields
    from profiler.fleet.text import apart_line

    fields = checked_fields([options.by], "--by")
    if len(fields) != 1:
        raise InputError(f"--by {options.by} is several fields: give one of {', '.join(fields)}")
    same = checked_fields(options.assume_same, "--assume-same")
    ignored = checked_fields(options.ignore, "--ignore")
    check_documents({"--json": options.json_file})
    with progress(f"comparing runs of {options.dataset}"):
        compared = compare_runs(
            Dataset(options.dataset),
            fields[0],
            tuple(options.metric or DEFAULT_METRICS),
            options.where,
            assume_same=same,
            ignored=ignored,
            quality=options.bad_quality,
        )
    if write_result(options.json_file, "fleet_compare", lambda: {"rows": compared.rows.to_dicts()}):
        for (workload,), rows in compared.rows.group_by("workload", maintain_order=True):
            tell(workload)
            print_rows([_shown(rows, fields[0])], 0)
    for apart in compared.apart:
        tell(apart_line(apart), err=True)
    if compared.rows.is_empty():
        raise InputError("no two runs are comparable, or none has the metric: see `fleet query`")


def _shown(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """The rows as they are printed."""
    import polars as pl

    from profiler.fleet.text import value_text, verdict_text

    shown = [
        (
            row["value"],
            row["metric"],
            row["runs"],
            value_text(row["median"], row["unit"]),
            _interval(value_text(row["low"], row["unit"]), value_text(row["high"], row["unit"])),
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


SUBCOMMAND = Subcommand(compare, place=40)
