"""`profile-sd3 graph compare`: what a change of the graph changes in it, and in its time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from profiler.cli.graph.numbers import parse_sizes
from profiler.cli.graph.output import STDOUT, write_json
from profiler.cli.progress import progress
from profiler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profiler.analysis.comparison.compare import Comparison
    from profiler.analysis.comparison.gate import Gate
    from profiler.analysis.comparison.graph_nodes import GraphPair, GraphSide

__all__ = ["compare"]


def compare(
    base: Annotated[
        Path, typer.Argument(metavar="MODEL_A", help="ONNX file, or a folder of them: the base.")
    ],
    new: Annotated[
        Path, typer.Argument(metavar="MODEL_B", help="The new one; models of folders by name.")
    ],
    run: Annotated[
        bool,
        typer.Option(
            "--run", help="Profile both on the same random inputs, in turn, and compare times."
        ),
    ] = False,
    repeats: Annotated[
        int,
        typer.Option(
            metavar="N", min=3, help="With --run: traced calls of each model, and untraced ones."
        ),
    ] = 10,
    size: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            help="A symbolic dimension of the inputs; may be repeated.  [default: 2 for a batch, "
            "8 for others]",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="With --run: folder of bundles; each side gets its own.")
    ] = Path("traces"),
    fail_over: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="With --run: exit with 1 where a metric is slower by more than this, beyond "
            "noise.",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What --fail-over looks at, as of diff; may be repeated.  [default: the time of "
            "each model]",
        ),
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", min=0, help="Rows of each table.")] = 15,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write all of it as JSON; -: to stdout."),
    ] = None,
) -> None:
    """Compare two graphs: nodes by type, role and layer, sizes, FLOPs; with --run also times.

    With --run both are profiled on the same random inputs, A B A B, into two bundles, which are
    compared by role and layer as `profile-sd3 diff` does, with confidence intervals.
    """
    from profiler.graph.output_file import refuse_over_input
    from profiler.graph.random_inputs import refuse_unknown_sizes

    if not run and (fail_over is not None or metric):
        raise InputError("--fail-over and --metric are about times: give --run with them")
    if metric and fail_over is None:
        raise InputError("--metric says what --fail-over looks at: give --fail-over 5% with it")
    limit = _limit(fail_over)
    sizes = parse_sizes(size or [])
    pairs, alone = _pairs(base, new)
    if json_file is not None and json_file != STDOUT:
        refuse_over_input([json_file], [path for _, *both in pairs for path in both])
    refuse_unknown_sizes([path for _, *both in pairs for path in both], sizes)
    with progress("reading graphs") as say:
        graphs = [_graphs(name, a, b, sizes, say) for name, a, b in pairs]
    bundles: tuple[Path, Path] | None = None
    comparison: Comparison | None = None
    gates: list[Gate] = []
    if run:
        bundles, comparison = _measured(pairs, sizes, repeats, out)
        gates = _gates(comparison, limit, metric or [f"submodule.{name}" for name, *_ in pairs])
    if json_file is not None:
        write_json(json_file, _document(graphs, alone, bundles, comparison, gates))
    if json_file != STDOUT:
        _print(graphs, alone, bundles, comparison, gates, top)
    if any(gate.failed for gate in gates):
        raise typer.Exit(1)


def _limit(fail_over: str | None) -> float | None:
    from profiler.analysis.comparison.gate import parse_limit

    return None if fail_over is None else parse_limit(fail_over)


def _pairs(base: Path, new: Path) -> tuple[list[tuple[str, Path, Path]], dict[str, list[str]]]:
    """Name and models of each pair, and the names that only one side has."""
    from profiler.capture.paired_models import submodule_name
    from profiler.graph.model_file import model_files

    files = model_files(base), model_files(new)
    if base.is_dir() != new.is_dir():
        raise InputError(f"{base} and {new} are a file and a folder: give two of a kind")
    if base.is_file():
        name = base.parent.name if base.stem == "model" and base.parent.name else base.stem
        return [(submodule_name(name), base, new)], {"base": [], "new": []}
    named = [
        {path.relative_to(side): path for path in found}
        for side, found in zip((base, new), files, strict=True)
    ]
    both = [key for key in named[0] if key in named[1]]
    if not both:
        raise InputError(f"{base} and {new} have no model of the same name: give two models")
    pairs = [(submodule_name(_part(key)), named[0][key], named[1][key]) for key in both]
    alone = [[str(key) for key in side if key not in both] for side in named]
    return pairs, {"base": alone[0], "new": alone[1]}


def _part(relative: Path) -> str:
    """`vae_decoder` of `vae_decoder/model.onnx`, `unet.lora` of `unet/lora.onnx`."""
    folder = ".".join(relative.parent.parts)
    return (
        folder if relative.stem == "model" and folder else ".".join(relative.with_suffix("").parts)
    )


def _graphs(
    name: str, base: Path, new: Path, sizes: Mapping[str, int], say: Callable[[str], None]
) -> GraphPair:
    from profiler.analysis.comparison.graph_nodes import GraphPair

    say(f"reading graphs of {name}")
    return GraphPair(name, _side(name, base, sizes), _side(name, new, sizes))


def _side(name: str, path: Path, sizes: Mapping[str, int]) -> GraphSide:
    from profiler.analysis.comparison.graph_nodes import GraphSide, PlainNode, node_table
    from profiler.graph.inventory import inventory

    try:
        found = inventory(path, sizes)
    except InputError as error:
        raise InputError(str(error) if str(path) in str(error) else f"{path}: {error}") from error
    nodes = [PlainNode(n.layer, n.op_type, n.type, n.category, n.shapes) for n in found.nodes]
    return GraphSide(
        path=str(path),
        file_bytes=found.file_bytes,
        weight_bytes=found.weight_bytes,
        inputs=found.inputs,
        nodes=node_table(name, nodes, found.classes),
    )


def _measured(
    pairs: list[tuple[str, Path, Path]], sizes: Mapping[str, int], repeats: int, out: Path
) -> tuple[tuple[Path, Path], Comparison]:
    """The bundles of both sides, and what differs between them."""
    from profiler.analysis.comparison.compare import compare as compare_measurements
    from profiler.analysis.comparison.measure import measure
    from profiler.capture.paired_models import ModelPair, calls_of, profile_in_turn
    from profiler.cli.trace_files import load_whole

    asked = [ModelPair(name, a, b, _inputs(a, sizes)) for name, a, b in pairs]
    titles = ("graph-base", "graph-new")
    with _run_progress(2 * calls_of(repeats) * len(asked)) as advance:
        bundles = profile_in_turn(asked, out, titles, repeats=repeats, on_run=advance)
    sides = [[measure(load_whole(path))] for path in bundles]
    return bundles, compare_measurements(*sides)


def _inputs(path: Path, sizes: Mapping[str, int]) -> Callable[[], dict[str, Any]]:
    """Makes the inputs that both models of a pair run on."""

    def made() -> dict[str, Any]:
        from profiler.graph.model_file import read_model
        from profiler.graph.random_inputs import random_inputs

        try:
            return random_inputs(read_model(path), sizes)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    return made


def _run_progress(total: int) -> AbstractContextManager[Callable[[], None]]:
    """A bar on stderr; none where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from profiler.cli.terminal import is_drawn_on

    @contextmanager
    def shown() -> Iterator[Callable[[], None]]:
        columns = (TextColumn("running both in turn"), BarColumn(), MofNCompleteColumn())
        # Drawn between runs: a refresh thread would compete with them.
        with Progress(
            *columns,
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
            disable=not is_drawn_on(sys.stderr),
        ) as bar:
            task = bar.add_task("", total=total)

            def advance() -> None:
                bar.advance(task)
                bar.refresh()

            yield advance

    return shown()


def _gates(comparison: Comparison, limit: float | None, metrics: list[str]) -> list[Gate]:
    from profiler.analysis.comparison.gate import check_gate

    return [] if limit is None else [check_gate(comparison, name, limit) for name in metrics]


def _document(
    graphs: list[GraphPair],
    alone: Mapping[str, list[str]],
    bundles: tuple[Path, Path] | None,
    comparison: Comparison | None,
    gates: list[Gate],
) -> dict[str, Any]:
    from profiler.report.diff_document import diff_document

    document: dict[str, Any] = {
        "graphs": [pair.to_json() for pair in graphs],
        "only_in": dict(alone),
    }
    if bundles is not None and comparison is not None:
        document["bundles"] = {"base": str(bundles[0]), "new": str(bundles[1])}
        document["diff"] = diff_document(comparison, gates)
    return document


def _print(
    graphs: list[GraphPair],
    alone: Mapping[str, list[str]],
    bundles: tuple[Path, Path] | None,
    comparison: Comparison | None,
    gates: list[Gate],
    top: int,
) -> None:
    from profiler.cli.terminal import terminal
    from profiler.report.diff_text import print_diff
    from profiler.report.graph_text import print_graphs
    from profiler.report.layout import clean

    console = terminal()
    for pair in graphs:
        print_graphs(console, pair, top=top)
        console.print()
    for side, names in alone.items():
        if names:
            console.print(clean(f"only in {side}: {', '.join(names)}"), soft_wrap=True)
            console.print()
    if bundles is not None and comparison is not None:
        print_diff(console, comparison, gates, top=top)
        console.print()
        for side, path in zip(("base", "new"), bundles, strict=True):
            console.print(clean(f"{side} run: {path}"), soft_wrap=True)
