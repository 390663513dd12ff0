"""`profile-sd3 diff`: how runs differ from a baseline, and a gate for CI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profiler.cli.documents import STDOUT, check_documents, write_json, write_text
from profiler.cli.options import ImportOptions, import_options
from profiler.cli.progress import progress
from profiler.cli.trace_files import load_whole
from profiler.errors import InputError

if TYPE_CHECKING:
    from profiler.analysis.comparison.compare import Comparison
    from profiler.analysis.comparison.gate import Gate
    from profiler.analysis.comparison.measure import Measurement
    from profiler.sources.imports import Imports
    from profiler.sources.resolve import Found

__all__ = ["diff"]


def diff(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="BASE... NEW",
            help="Bundles, .pb files, Parquet runs, what `import` takes, or folders of bundles, "
            "all of which are taken. Two: the baseline and the new one; with --against all are "
            "the baseline.",
        ),
    ],
    against: Annotated[
        list[Path] | None,
        typer.Option(metavar="NEW", help="A new run, or a folder of them; may be repeated."),
    ] = None,
    fail_over: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with 1 where a metric is slower by more than this, as in 5%, beyond noise.",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What --fail-over looks at: end_to_end, stage.denoise, denoise.step, "
            "submodule.vae, submodule.transformer.role.norm, …; may be repeated.  "
            "[default: end_to_end]",
        ),
    ] = None,
    importing: ImportOptions = None,
    top: Annotated[
        int, typer.Option(metavar="N", min=0, help="Roles and modules to show; 0: none.")
    ] = 15,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write all metrics as JSON; -: to stdout."),
    ] = None,
    markdown_file: Annotated[
        Path | None,
        typer.Option(
            "--markdown", metavar="FILE", help="Write the report as Markdown; -: likewise."
        ),
    ] = None,
) -> None:
    """Compare runs, part by part.

    A difference is called one where it exceeds noise.
    """
    from profiler.analysis.comparison.compare import compare
    from profiler.analysis.comparison.gate import check_gate, parse_limit
    from profiler.sources.imports import Imports
    from profiler.sources.resolve import resolve

    base, new = _sides(runs, against or [])
    check_documents({"--json": json_file, "--markdown": markdown_file})
    if metric and fail_over is None:
        raise InputError("--metric says what --fail-over looks at: give --fail-over 5% with it")
    limit = None if fail_over is None else parse_limit(fail_over)
    with Imports() as imports, progress("reading runs") as say:
        found = resolve([[path] for path in (*base, *new)], import_options(importing))
        sides = found[: len(base)], found[len(base) :]
        measured = [_measured(side, imports, say) for side in sides]
        say("comparing")
        comparison = compare(*measured)
    gates: list[Gate] = []
    if limit is not None:
        gates = [check_gate(comparison, name, limit) for name in metric or ["end_to_end"]]
    _write(comparison, gates, json_file, markdown_file, top)
    if STDOUT not in (json_file, markdown_file):
        _print(comparison, gates, top)
    if any(gate.failed for gate in gates):
        raise typer.Exit(1)


def _sides(runs: list[Path], against: list[Path]) -> tuple[list[Path], list[Path]]:
    """The paths of the baseline and of the new runs."""
    if against:
        return runs, against
    if len(runs) != 2:
        raise InputError(
            f"diff takes two runs, or baselines and --against NEW, but was given {len(runs)}: "
            "give --against before each new one"
        )
    return runs[:1], runs[1:]


def _measured(side: list[Found], imports: Imports, say: Callable[[str], None]) -> list[Measurement]:
    """What is compared of each run, oldest first; one is in memory at a time."""
    from profiler.analysis.comparison.measure import measure

    measured = []
    for source in (source for found in side for source in reversed(found.sources)):
        say(f"reading {source.place}")
        measured.append(measure(load_whole(source, imports)))
    return measured


def _write(
    comparison: Comparison,
    gates: list[Gate],
    json_file: Path | None,
    markdown_file: Path | None,
    top: int,
) -> None:
    from profiler.report.diff_document import diff_to_json
    from profiler.report.diff_text import markdown

    if json_file is not None:
        write_json(json_file, diff_to_json(comparison, gates))
    if markdown_file is not None:
        write_text(markdown_file, markdown(comparison, gates, top=top))


def _print(comparison: Comparison, gates: list[Gate], top: int) -> None:
    from profiler.cli.terminal import terminal
    from profiler.report.diff_text import print_diff

    print_diff(terminal(), comparison, gates, top=top)
