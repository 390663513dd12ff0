"""`profile-sd3 graph annotate`: what a run measured, on the nodes of its model."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profiler.cli.graph.output import STDOUT, echo, write_json
from profiler.cli.progress import progress
from profiler.cli.terminal import printable
from profiler.errors import InputError

if TYPE_CHECKING:
    from profiler.graph.annotate import MeasuredCommand
    from profiler.graph.annotate_files import AnnotatedFile, Measurement
    from profiler.table.run import Run

__all__ = ["annotate"]

_HOT = 5  # nodes that are printed
_UNPLACED = 3  # commands that are printed
_FOLDERS = {"vae_decoder": "vae", "vae_encoder": "vae"}  # parts of a submodule with two graphs


def annotate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX file, or a folder of them.")],
    traces: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="A bundle, or a folder of them: the newest is taken."),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="OUT", help="File, or folder, to write.")
    ],
    submodule: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Which submodule of the run MODEL is.  [default: as the run or its folder says]",
        ),
    ] = "",
    no_runtime: Annotated[
        bool,
        typer.Option(
            "--no-runtime",
            help="Don't open MODEL in ONNX Runtime to see what it executes: time of fused nodes "
            "then stays at their layers.",
        ),
    ] = False,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the result as JSON; -: to stdout."),
    ] = None,
) -> None:
    """Write measured time, share, calls, bytes and role on the nodes of MODEL, for Netron to show.

    MODEL is what was run, or what it was exported from. Look at OUT with `graph view`.
    """
    from profiler.graph.annotate_files import annotate_file, annotate_folder
    from profiler.graph.model_file import model_files
    from profiler.graph.output_file import refuse_over_input

    sources = model_files(model)
    if json_file is not None and json_file != STDOUT:
        refuse_over_input([json_file], [*sources, out])
    with progress(f"reading {traces}") as say, ExitStack() as stack:
        run = _load(traces)
        named = _submodules(model, sources, run, submodule)
        say(f"annotating {model}")
        measured = {
            path: _measurement(stack, path, run, name, runtime=not no_runtime)
            for path, name in named.items()
        }
        if model.is_dir():
            files = annotate_folder(model, out, measured)
        else:
            files = [annotate_file(model, out, measured[sources[0]])]
    if json_file is not None:
        documents = [{"submodule": named[f.source], **f.to_json()} for f in files]
        write_json(json_file, {"run": run.run_id, "models": documents})
    if json_file != STDOUT:
        for file in files:
            _print(file, named[file.source], run)
        for path in (path for path in sources if path not in named):
            echo(f"{path}: copied, for the run has no submodule of its name")


def _load(traces: Path) -> Run:
    from profiler.analysis.roles.tables import with_roles
    from profiler.table.load import load_bundle, load_trace
    from profiler.trace.bundle import find_bundles

    bundle = traces.is_dir()
    return with_roles(load_bundle(find_bundles(traces)[0]) if bundle else load_trace(traces))


def _submodules(model: Path, sources: list[Path], run: Run, asked: str) -> dict[Path, str]:
    """The submodule of the run that each model is; models that are none are left out."""
    known = [str(name) for name in run.calls["submodule"].unique(maintain_order=True)]
    names = ", ".join(known)
    if asked:
        if asked not in known:
            raise InputError(f"the run has no submodule {asked}: give one of {names}")
        if model.is_dir():
            raise InputError("--submodule names one model: give its file instead of the folder")
        return {sources[0]: asked}
    found = _told_by_run(sources, run, known)
    for path in sources:
        called = (_FOLDERS.get(name, name) for name in (path.parent.resolve().name, path.stem))
        name = next((name for name in called if name in known), "")
        if path not in found and name and name not in found.values():
            found[path] = name
    if not found and not model.is_dir() and len(known) == 1:
        return {sources[0]: known[0]}
    if not found:
        raise InputError(f"which submodule {model} is cannot be told: give --submodule {names}")
    return found


def _told_by_run(sources: list[Path], run: Run, known: list[str]) -> dict[Path, str]:
    """The submodules whose models lie, as the run tells, where the paths end."""
    found = {}
    for name in known:
        told = Path(str(run.info.submodules.get(name, {}).get("model") or "")).parts
        for path in sources:
            if len(told) > 1 and path.resolve().parts[-len(told) :] == told:
                found[path] = name
    return found


def _measurement(
    stack: ExitStack, path: Path, run: Run, submodule: str, *, runtime: bool
) -> Measurement:
    from profiler.analysis.operators.positions import command_positions
    from profiler.capture.onnx_layers import ExportedModel, build_layer_map
    from profiler.graph.annotate import MeasuredCommand
    from profiler.graph.annotate_files import Measurement
    from profiler.graph.executed import optimized_graph

    rows = command_positions(run, submodule)
    commands = [
        MeasuredCommand(**{**row, "role": row["role"] or ""}) for row in rows.iter_rows(named=True)
    ]
    optimized = None
    if runtime:
        try:
            optimized = stack.enter_context(optimized_graph(path))
        except InputError as error:
            sentence = f"{error}: time of fused nodes stays at their layers"
            typer.echo(printable(f"profile-sd3: {sentence}"), err=True)
    layers = build_layer_map(ExportedModel(path), optimized)
    return Measurement(
        commands,
        lambda name, op_type: layers.layer_of(name, op_type)[0],
        optimized,
        _about(run, submodule, commands),
    )


def _about(run: Run, submodule: str, commands: list[MeasuredCommand]) -> dict[str, str]:
    """What the model's own metadata gets."""
    calls = _calls(run, submodule)
    total_ns = sum(command.duration_ns for command in commands)
    device = str(run.info.submodules.get(submodule, {}).get("device") or "")
    about = {
        "run": run.run_id,
        "submodule": submodule,
        "device": device,
        "calls": str(calls),
        "time": f"{total_ns / max(calls, 1) / 1000:.1f} µs of operators a call",
    }
    return {name: text for name, text in about.items() if text}


def _calls(run: Run, submodule: str) -> int:
    """The calls whose operators were traced."""
    calls = run.calls["ops_traced"] & (run.calls["submodule"].cast(str) == submodule)
    return int(calls.sum())


def _print(file: AnnotatedFile, submodule: str, run: Run) -> None:
    found = file.annotation
    calls = max(_calls(run, submodule), 1)
    total = f"{found.total_ns / calls / 1e6:.2f} ms of operators a call"
    echo(f"{file.out}: {submodule}, {total}, {calls} call{'s' * (calls > 1)} of run {run.run_id}")
    fused = f", {found.fused} are fused into one of them" if found.fused else ""
    echo(f"  placed: {found.placed}; {len(found.nodes)} nodes have time{fused}")
    for layer, op_type, duration in found.unplaced[:_UNPLACED]:
        share = 100 * duration / max(found.total_ns, 1)
        echo(f"  not in the model: {layer} ({op_type or 'no op type'}), {share:.1f} %")
    more = len(found.unplaced) - _UNPLACED
    if more > 0:
        echo(f"  … and {more} more")
    hot = found.nodes[:_HOT]
    times = [f"{node.duration_ns / calls / 1000:,.1f}" for node in hot]
    width = max(map(len, times), default=0)
    for node, time in zip(hot, times, strict=True):
        role = f", {node.role}" if node.role else ""
        kind = f"{node.op_type}{role}"
        echo(f"  {100 * node.share:4.1f} % {time:>{width}} µs  {node.node or '(unnamed)'} ({kind})")
