"""`profile-sd3 graph compare`: what a change of the graph changes in it, and in its time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from profiler.cli import options as shared
from profiler.cli.commands.graph import parse_sizes
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import bar, check_documents, progress, write_result
from profiler.errors import InputError

if TYPE_CHECKING:
    from profiler.compare.compare import Gate
    from profiler.graph.compare import GraphComparison, TimeComparison


@cli_options
class CompareOptions:
    """Options of `profile-sd3 graph compare`."""

    base: Path = arg("MODEL_A  ONNX file, or a folder of them: the base.")
    new: Path = arg("MODEL_B  The new one; models of folders by name.")
    run: bool = opt("Profile both on the same random inputs, in turn, and compare times.")
    repeats: int = opt(
        "N  With --run: traced calls of each model, and untraced ones.", default=10, min=3
    )
    size: list[str] = opt(
        "NAME=N  A symbolic dimension of the inputs; may be repeated.  [default: 2 for a batch, 8 "
        "for others]"
    )
    out: Path = opt(
        "DIR  With --run: folder of bundles; each side gets its own.", default=Path("traces")
    )
    fail_over: str | None = opt(
        "PERCENT  With --run: exit with 1 if a metric is slower by more than this, beyond noise."
    )
    metric: list[str] = opt(
        "NAME  What --fail-over looks at, as of diff; may be repeated.  [default: the time of each "
        "model]"
    )
    top: int = opt("N  Rows of each table.", default=15, min=0)
    json_file: Path | None = shared.RESULT_FILE


def compare(options: CompareOptions) -> None:
    """Compare two graphs; with --run also their times.

    By nodes of each type, role and layer, sizes and FLOPs. With --run both are profiled on the same
    random inputs, A B A B, into two bundles, which are compared by role and layer as `profile-sd3
    diff` does, with confidence intervals.
    """
    from profiler.compare.compare import check_gate
    from profiler.graph.compare import compare_graphs
    from profiler.graph.model import model_files

    if not options.run and (options.fail_over is not None or options.metric):
        raise InputError("--fail-over and --metric are about times: give --run with them")
    limit = shared.gate_limit(options.fail_over, options.metric)
    sizes = parse_sizes(options.size)
    check_documents(
        {"--json": options.json_file},
        inputs=[*model_files(options.base), *model_files(options.new)],
    )
    with progress("reading graphs") as say:
        graphs = compare_graphs(options.base, options.new, sizes=sizes, say=say)
    times = _timed(graphs, options.repeats, options.out) if options.run else None
    gates: list[Gate] = []
    if times is not None and limit is not None:
        names = options.metric or [f"submodule.{pair.submodule}" for pair in graphs.pairs]
        gates = [check_gate(times.comparison, name, limit) for name in names]
    if write_result(options.json_file, "graph_compare", lambda: _document(graphs, times, gates)):
        _print(graphs, times, gates, options.top)
    if any(gate.failed for gate in gates):
        raise typer.Exit(1)


def _timed(graphs: GraphComparison, repeats: int, out: Path) -> TimeComparison:
    from profiler.capture.onnxruntime.sessions import calls_of
    from profiler.errors import require
    from profiler.graph.compare import compare_times

    require("graph", "graph compare --run", "onnxruntime")
    with bar("running both in turn", 2 * calls_of(repeats) * len(graphs.pairs)) as advance:
        return compare_times(graphs, repeats=repeats, out=out, on_run=advance)


def _document(
    graphs: GraphComparison, times: TimeComparison | None, gates: list[Gate]
) -> dict[str, Any]:
    from profiler.compare.text import diff_document

    document = {**graphs.to_json(), "bundles": None, "diff": None}
    if times is not None:
        document["bundles"] = {"base": str(times.base), "new": str(times.new)}
        document["diff"] = diff_document(times.comparison, gates)
    return document


def _print(
    graphs: GraphComparison, times: TimeComparison | None, gates: list[Gate], top: int
) -> None:
    from profiler.cli.terminal import terminal
    from profiler.compare.report import comparison_report
    from profiler.report.html.two_runs import graphs_report
    from profiler.report.terminal import print_report
    from profiler.report.terminal_layout import clean

    console = terminal()
    for pair in graphs.pairs:
        print_report(console, graphs_report(pair, top=top))
        console.print()
    for side, names in graphs.only_in.items():
        if names:
            console.print(clean(f"only in {side}: {', '.join(names)}"), soft_wrap=True)
            console.print()
    if times is not None:
        print_report(console, comparison_report(times.comparison, gates, top=top))
        console.print()
        for side, path in (("base", times.base), ("new", times.new)):
            console.print(clean(f"{side} run: {path}"), soft_wrap=True)


SUBCOMMAND = Subcommand(compare, place=50, needs="graph-base")
