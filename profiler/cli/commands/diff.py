"""`profile-sd3 diff`: how runs differ from a baseline, and a gate for CI."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from profiler.cli import options as shared
from profiler.cli import terminal
from profiler.cli.main import complete_comparison_sections, complete_runs
from profiler.cli.runs import (
    damage_line,
    left_out,
    load_as_recorded,
    opened,
    refuse_contradictory,
    refuse_damaged,
)
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from profiler.analysis.document import Report
    from profiler.compare.compare import Compared, Comparison
    from profiler.compare.measure import Measurement
    from profiler.tools.metrics import Summary


_ROWS = 15  # of tables that are ranked


class By(StrEnum):
    """The field by which sides are compared: one section each."""

    SHAPE = "shape"
    KERNEL = "kernel"
    NODE = "node"
    MODULE = "module"
    ROLE = "role"
    STEP = "step"

    @property
    def section(self) -> str:
        """Return the key of the field's section of a comparison."""
        return f"{self.value}s"


@cli_options
class DiffOptions:
    """Options of `profile-sd3 diff`."""

    runs: list[Path] = arg(
        "BASE NEW...  Bundles, .pb files, Parquet runs, what `import` takes, or folders of "
        "bundles, all of which are taken. The first is the baseline; each further one is a column. "
        "With --against all are new runs. Either side may be a summary.json that was kept: counts "
        "and memory.",
        autocompletion=complete_runs,
    )
    against: list[Path] = opt(
        "BASE  A baseline, or a folder of them; may be repeated.", autocompletion=complete_runs
    )
    fail_over: str | None = opt(
        "PERCENT  Exit with 1 if a metric is slower by more than this, as in 5%, beyond noise."
    )
    metric: list[str] = opt(
        "NAME  What --fail-over looks at: end_to_end, stage.denoise, denoise.step, submodule.vae, "
        "submodule.transformer.role.norm, …; may be repeated.  [default: end_to_end]"
    )
    importing: list[str] = shared.IMPORT_OPTIONS
    out: Path | None = shared.KEPT_IMPORT
    top: int | None = opt(
        "N  Rows of roles, modules and shapes; implies --full; 0: none.  [default: 15]", min=0
    )
    full: bool = opt("Print everything, not 40 lines.")
    sections: list[str] = opt(
        "--section NAME  Print these sections alone, with commas: shapes,modules; may be repeated.",
        autocompletion=complete_comparison_sections,
    )
    by: By | None = opt(
        "Print what differs by this alone, a column for each side: attention backends or cards "
        "side by side."
    )
    list_sections: bool = shared.list_option(terminal.comparison_sections)
    json_file: Path | None = opt("--json FILE  Write all metrics as JSON; -: to stdout.")
    markdown_file: Path | None = opt("--markdown FILE  Write the report as Markdown; -: likewise.")
    html_file: Path | None = opt(
        "--html FILE  Write a page of two sides: both timelines, a waterfall, the largest "
        "differences."
    )


def diff(options: DiffOptions) -> None:
    """Compare runs, part by part.

    A change is called slower or faster only if it exceeds noise.
    """
    from profiler.compare.compare import Compared, check_gate
    from profiler.tools.metrics import is_summary

    sides = _sides(options.runs, options.against)
    _check_files(options, len(sides))
    if any(is_summary(path) for side in sides.values() for path in side):
        _diff_summaries(options, [*sides.values()])
        return
    damaged: list[str] = []
    named = [*options.sections, *([options.by.section] if options.by else [])]
    sections = terminal.chosen_sections(named, terminal.comparison_sections, full=options.full)
    limit = shared.gate_limit(options.fail_over, options.metric)
    gated = limit is not None
    compared, lines = _compared(options, [*sides.values()], damaged, gated=gated)
    from profiler.compare.report import comparison_report
    from profiler.compare.side_by_side import brief_report, columns_report
    from profiler.report.terminal import print_brief

    base, *names = sides
    metrics = [] if limit is None else options.metric or ["end_to_end"]
    gates = [[check_gate(one, name, limit or 0.0) for name in metrics] for one in compared]
    columns = [Compared(*each) for each in zip(names, compared, gates, strict=True)]
    top = _ROWS if options.top is None else options.top
    whole: Callable[[], Report] = partial(columns_report, base, columns, top=top)
    brief: Callable[[Console], None] | None = None
    if len(columns) == 1:  # more sides have no brief form
        first = (columns[0].comparison, columns[0].gates)
        whole = partial(comparison_report, *first, top=top)
        brief = partial(print_brief, made=partial(brief_report, *first))
    _write(options, base, columns, whole)
    if terminal.STDOUT not in (options.json_file, options.markdown_file):
        for line in damaged:
            terminal.tell(line)
        written = [] if options.html_file is None else [options.html_file]
        full = options.full or options.top is not None
        terminal.print_chosen(whole, brief, sections, full=full, written=written, above=True)
    for line in lines:
        terminal.tell(line, err=True)
    if any(gate.failed for column in columns for gate in column.gates):
        raise typer.Exit(1)


def _sides(runs: list[Path], against: list[Path]) -> dict[str, list[Path]]:
    """Return the paths of each side by its name, the baseline first."""
    if against:
        return {"base": against, "new": runs}
    if len(runs) < 2:
        raise InputError(
            f"diff compares runs, but was given {runs[0]} alone: give the baseline before it, or "
            "behind --against"
        )
    if len(runs) == 2:
        return {"base": runs[:1], "new": runs[1:]}
    names = [path.resolve().name for path in runs]
    if len({*names}) < len(names):
        names = [str(path) for path in runs]
    if len({*names}) < len(names):
        twice = next(path for path in runs if runs.count(path) > 1)
        raise InputError(f"{twice} is given twice: name every run once")
    return {name: [path] for name, path in zip(names, runs, strict=True)}


def _compared(
    options: DiffOptions, sides: list[list[Path]], damaged: list[str], *, gated: bool
) -> tuple[tuple[Comparison, ...], list[str]]:
    """Compare each further side with the first; also returns lines about missing data and omitted
    runs. `damaged` gets a line for each damaged recording. A gate takes only complete and sound
    runs, because a killed run looks fast."""
    from profiler.compare.compare import compare_each
    from profiler.compare.measure import measure

    drawn = options.html_file is not None
    paths = [path for side in sides for path in side]
    with (
        terminal.progress("reading runs") as say,
        opened(paths, options.importing, options.out) as (found, imports),
    ):
        rest = iter(found)
        notes: list[str] = []
        measured: list[list[Measurement]] = []
        for side in sides:  # oldest first, with one run in memory at a time
            measured.append([])
            given = islice(rest, len(side))
            for source in (source for each in given for source in reversed(each.sources)):
                say(f"reading {source.place}")
                loaded = load_as_recorded(source, imports, notes, whole=gated)
                if gated:
                    refuse_damaged(source.place, loaded.info, "which a gate takes as missing")
                    refuse_contradictory(source.place, loaded)
                damaged += damage_line(source.place, loaded.info)
                measured[-1].append(measure(loaded, timeline=drawn))
                del loaded
        say("comparing")
        return compare_each(measured), notes + [line for each in found for line in left_out(each)]


def _diff_summaries(options: DiffOptions, sides: list[list[Path]]) -> None:
    """Compare sides if one of them is a summary file; runs are then reduced to their summaries."""
    from profiler.fleet.summaries import (
        check_growth,
        compare_summaries,
        gated_metrics,
        summary_document,
        summary_report,
    )
    from profiler.report.files import markdown
    from profiler.trace.documents import document_text

    if len(sides) != 2:
        raise InputError("a summary is compared with one other side: give BASE and NEW")
    asked = {"--html": options.html_file, "--by": options.by, "--section": options.sections}
    for option, given in asked.items():
        if given:
            raise InputError(f"a summary has no samples, which {option} needs: give bundles")
    limit = shared.gate_limit(options.fail_over, options.metric)
    with terminal.progress("reading runs"):
        found = compare_summaries(*(_summaries(options, side) for side in sides))
    metrics = [] if limit is None else options.metric or gated_metrics(found)
    gates = [check_growth(found, name, limit or 0.0) for name in metrics]
    top = _ROWS if options.top is None else options.top
    report = summary_report(found, gates, top=len(found.rows) if options.full else top)
    if options.json_file is not None:
        terminal.write_json(options.json_file, document_text(summary_document(found, gates)))
    if options.markdown_file is not None:
        terminal.write_text(options.markdown_file, markdown(report))
    if terminal.STDOUT not in (options.json_file, options.markdown_file):
        terminal.print_chosen(lambda: report, None, (), full=True)
    if any(gate.failed for gate in gates):
        raise typer.Exit(1)


def _summaries(options: DiffOptions, side: list[Path]) -> list[Summary]:
    """Return the summaries of a side: its summary files, and those of the runs at its paths."""
    from profiler.tools.metrics import is_summary, read_summary, read_summary_file, summarized
    from profiler.tools.sources import Kind

    found = [read_summary_file(path) for path in side if is_summary(path)]
    runs = [path for path in side if not is_summary(path)]
    if not runs:
        return found
    with opened(runs, options.importing, options.out) as (given, imports):
        for source in (source for each in given for source in each.sources):
            ready = imports.ready(source)
            kept = read_summary(ready.path) if ready.kind is Kind.BUNDLE else None
            found.append(kept or summarized(ready))
    return found


def _check_files(options: DiffOptions, sides: int) -> None:
    """Raise OutputError if a document cannot be written, InputError if a page was asked for that
    cannot show this number of sides."""
    documents = {"--json": options.json_file, "--markdown": options.markdown_file}
    if options.html_file is not None and sides > 2:
        raise InputError(
            f"--html shows two sides, and there are {sides}: give BASE and NEW, or --markdown "
            "for a column each"
        )
    if options.html_file == terminal.STDOUT:
        raise InputError("--html writes a file: give its name")
    terminal.check_documents({**documents, "--html": options.html_file})


def _write(
    options: DiffOptions, base: str, columns: list[Compared], whole: Callable[[], Report]
) -> None:
    """Write the documents that were asked for, of the comparisons with `base`."""
    from profiler.compare.text import columns_to_json
    from profiler.report.files import markdown

    first = columns[0]
    if options.json_file is not None:
        terminal.write_json(options.json_file, columns_to_json(base, columns))
    if options.markdown_file is not None:
        terminal.write_text(options.markdown_file, markdown(whole()))
    if options.html_file is not None:
        from profiler.report.html.two_runs import write_two_runs

        write_two_runs(first.comparison, options.html_file, first.gates)


SUBCOMMAND = Subcommand(
    diff,
    place=50,
    about_runs=True,
    examples=(
        ("profile-sd3 diff old new", "two runs"),
        ("profile-sd3 diff before/ after/ --fail-over 5%", "a gate, on folders of runs"),
        ("profile-sd3 diff old new --by kernel", "kernels side by side"),
    ),
    panels={
        "What to show": "top full sections by list_sections",
        "Compare": "against fail_over metric",
        "Files": "html_file json_file markdown_file out",
    },
)
