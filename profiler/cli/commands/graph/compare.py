"""`profile-sd3 graph compare`: what a change of the graph changes in it, and in its time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from profiler.cli.commands.graph import parse_sizes, write_json
from profiler.cli.options import ResultFile, gate_limit
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import STDOUT, bar, check_documents, progress
from profiler.errors import InputError

if TYPE_CHECKING:
    from profiler.compare.compare import Gate
    from profiler.graph.compare import GraphComparison, TimeComparison


_Base = Annotated[
    Path, typer.Argument(metavar="MODEL_A", help="ONNX file, or a folder of them: the base.")
]
_New = Annotated[
    Path, typer.Argument(metavar="MODEL_B", help="The new one; models of folders by name.")
]
_Run = Annotated[
    bool,
    typer.Option(
        "--run", help="Profile both on the same random inputs, in turn, and compare times."
    ),
]
_Repeats = Annotated[
    int,
    typer.Option(
        metavar="N", min=3, help="With --run: traced calls of each model, and untraced ones."
    ),
]
_Size = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=N",
        help="A symbolic dimension of the inputs; may be repeated.  [default: 2 for a batch, "
        "8 for others]",
    ),
]
_Out = Annotated[
    Path,
    typer.Option(metavar="DIR", help="With --run: folder of bundles; each side gets its own."),
]
_FailOver = Annotated[
    str | None,
    typer.Option(
        metavar="PERCENT",
        help="With --run: exit with 1 where a metric is slower by more than this, beyond noise.",
    ),
]
_Metric = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="What --fail-over looks at, as of diff; may be repeated.  [default: the time of "
        "each model]",
    ),
]
_Top = Annotated[int, typer.Option(metavar="N", min=0, help="Rows of each table.")]


def compare(
    base: _Base,
    new: _New,
    run: _Run = False,
    repeats: _Repeats = 10,
    size: _Size = None,
    out: _Out = Path("traces"),
    fail_over: _FailOver = None,
    metric: _Metric = None,
    top: _Top = 15,
    json_file: ResultFile = None,
) -> None:
    """Compare two graphs; with --run also their times.

    By nodes of each type, role and layer, sizes and FLOPs. With --run both are profiled on the same
    random inputs, A B A B, into two bundles, which are compared by role and layer as `profile-sd3
    diff` does, with confidence intervals.
    """
    from profiler.graph.compare import compare_graphs
    from profiler.graph.model import model_files

    if not run and (fail_over is not None or metric):
        raise InputError("--fail-over and --metric are about times: give --run with them")
    limit = gate_limit(fail_over, metric)
    sizes = parse_sizes(size or [])
    check_documents({"--json": json_file}, inputs=[*model_files(base), *model_files(new)])
    with progress("reading graphs") as say:
        graphs = compare_graphs(base, new, sizes=sizes, say=say)
    times = _timed(graphs, repeats, out) if run else None
    gates = _gates(graphs, times, limit, metric)
    if json_file is not None:
        write_json(json_file, _document(graphs, times, gates))
    if json_file != STDOUT:
        _print(graphs, times, gates, top)
    if any(gate.failed for gate in gates):
        raise typer.Exit(1)


def _timed(graphs: GraphComparison, repeats: int, out: Path) -> TimeComparison:
    from profiler.capture.onnxruntime.sessions import calls_of
    from profiler.errors import require
    from profiler.graph.compare import compare_times

    require("graph", "graph compare --run", "onnxruntime")
    with bar("running both in turn", 2 * calls_of(repeats) * len(graphs.pairs)) as advance:
        return compare_times(graphs, repeats=repeats, out=out, on_run=advance)


def _gates(
    graphs: GraphComparison,
    times: TimeComparison | None,
    limit: float | None,
    metrics: list[str] | None,
) -> list[Gate]:
    from profiler.compare.compare import check_gate

    if times is None or limit is None:
        return []
    names = metrics or [f"submodule.{pair.submodule}" for pair in graphs.pairs]
    return [check_gate(times.comparison, name, limit) for name in names]


def _document(
    graphs: GraphComparison, times: TimeComparison | None, gates: list[Gate]
) -> dict[str, Any]:
    from profiler.compare.text import diff_document

    document = graphs.to_json()
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
