"""`profile-sd3 fleet gate`: is a run outside the history of runs like it?"""

from __future__ import annotations

import os
from pathlib import Path

import typer

from profiler.cli import options as shared
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import STDOUT, check_documents, progress, tell, write_result, write_text
from profiler.errors import OutputError

_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


@cli_options
class GateOptions:
    """Options of `profile-sd3 fleet gate`."""

    dataset: str = shared.DATASET_PLACE
    run: str = arg(
        "[RUN]  Key of a run of the data set, its first 8 digits at least, or its name.  [default: "
        "newest]",
        default="newest",
        show_default=False,
    )
    metric: list[str] = opt(
        "NAME  What is gated, such as denoise.step; may be repeated, which lowers the level of "
        "each.  [default: elapsed]"
    )
    fail_over: str = opt(
        "PERCENT  Fail if a metric is outside its history, and slower by more than this.",
        default="5%",
    )
    where: list[str] = shared.WHERE_RUNS
    assume_same: list[str] = shared.ASSUME_SAME
    json_file: Path | None = shared.RESULT_FILE
    markdown_file: Path | None = opt(
        "--markdown FILE  Write it as Markdown; -: to stdout. In GitHub Actions the step summary "
        "has it."
    )


def gate(options: GateOptions) -> None:
    """Fail if a run is outside the history of comparable runs.

    Exit code 0: not slower, 1: slower, 2: it is not known, with the reason.
    """
    from profiler.compare.compare import parse_limit
    from profiler.fleet.compare import gate as hold
    from profiler.fleet.dataset import Dataset, checked_fields
    from profiler.fleet.text import gate_document, gate_line, gate_markdown

    check_documents({"--json": options.json_file, "--markdown": options.markdown_file})
    limit = parse_limit(options.fail_over)
    same = checked_fields(options.assume_same, "--assume-same")
    metrics = options.metric or ["elapsed"]
    with progress(f"reading {options.dataset}", after_s=0.5):
        data = Dataset(options.dataset)
        found = hold(data, options.run, metrics, limit, where=options.where, assume_same=same)
    free = write_result(options.json_file, "fleet_gate", lambda: gate_document(found))
    if options.markdown_file is not None:
        write_text(options.markdown_file, gate_markdown(found))
    if summary := os.environ.get(_STEP_SUMMARY):
        try:  # earlier commands of the step may have started it
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(gate_markdown(found))
        except OSError as error:
            raise OutputError(
                f"cannot write {summary}, which ${_STEP_SUMMARY} names: {error.strerror or error}"
            ) from error
    if free and options.markdown_file != STDOUT:
        for each in found.verdicts:
            tell(gate_line(each, found.limit))
    if found.failed:
        raise typer.Exit(1)


SUBCOMMAND = Subcommand(gate, place=30)
