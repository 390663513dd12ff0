"""`profile-sd3 graph optimize`: an optimizer's graph, verified, with the module paths kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from profiler.cli.commands.graph import echo, parse_sizes, write_json
from profiler.cli.options import ModelPath, OutPath, ResultFile, Sizes
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import STDOUT, check_documents, progress
from profiler.errors import InputError
from profiler.text import counted

if TYPE_CHECKING:
    from profiler.graph.optimize.files import OptimizedFile


_Optimizer = Annotated[
    str,
    typer.Option(
        "--with",
        metavar="NAME",
        help="ort: ONNX Runtime's own optimizations; ort-transformers: its fusions for models "
        "of a type, MMDiT attention among them; onnxslim; onnxsim.",
    ),
]
_Level = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="Of ort: basic keeps to ONNX's own operators; extended fuses to ONNX Runtime's; "
        "all adds layouts of this machine's CPU.  [default: basic]",
    ),
]
_ModelType = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="Of ort-transformers: mmdit, unet, vae, clip, t5 or bert.  [default: by the class "
        "in config.json or on the nodes]",
    ),
]
_ShowAll = Annotated[
    bool, typer.Option("--all", help="Show types whose number is the same, and every output.")
]


def optimize(
    model: ModelPath,
    out: OutPath,
    optimizer: _Optimizer = "ort",
    level: _Level = None,
    model_type: _ModelType = None,
    size: Sizes = None,
    show_all: _ShowAll = False,
    json_file: ResultFile = None,
) -> None:
    """Run an optimizer; show nodes before and after.

    By type. Module paths and other metadata stay on nodes that survive; a fused node gets the
    longest module path of what it stands for. OUT is written once its outputs are those of MODEL on
    random inputs.
    """
    from profiler.graph.optimize.files import Optimizer, optimize_files

    if level is not None and optimizer != "ort":
        raise InputError(f"--level belongs to --with ort: leave it out with {optimizer}")
    if model_type is not None and optimizer != "ort-transformers":
        raise InputError(f"--model-type belongs to --with ort-transformers, not to {optimizer}")
    sizes = parse_sizes(size or [])
    check_documents({"--json": json_file}, inputs=[model], outputs={"OUT": out})
    chosen = Optimizer(optimizer, level or "basic", model_type or "")
    with progress(f"optimizing {model}"):
        files = optimize_files(model, out, chosen, sizes=sizes)
    if json_file is not None:
        write_json(json_file, {"models": [file.to_json() for file in files]})
    if json_file != STDOUT:
        for file in files:
            _print(file, show_all)


def _print(file: OptimizedFile, show_all: bool) -> None:
    before, after = file.nodes_before, file.nodes_after
    optimizer = file.optimizer
    how = optimizer.level if optimizer.name == "ort" else optimizer.model_type
    echo(
        f"{file.out}: {f'{optimizer.name} {how}'.rstrip()}: {sum(before.values()):,} → "
        f"{sum(after.values()):,} nodes, {file.bytes_before:,} → {file.bytes_after:,} bytes"
    )
    types = sorted(
        {*before, *after}, key=lambda name: (-before.get(name, 0), -after.get(name, 0), name)
    )
    changed = [name for name in types if before.get(name, 0) != after.get(name, 0)]
    shown = types if show_all else changed
    width = max(map(len, shown), default=0)
    digits = len(f"{max([*before.values(), *after.values(), 0]):,}")
    for name in shown:
        counts = before.get(name, 0), after.get(name, 0)
        echo(f"  {name:{width}}  {counts[0]:{digits},} → {counts[1]:{digits},}")
    same = len(types) - len(changed)
    if not show_all and same:
        echo(f"  {'all' if not changed else 'other'} {counted(same, 'type')}: as many as before")
    _print_notes(file)
    differences = file.differences
    if not show_all and differences:
        worst = max(differences, key=lambda difference: difference.relative)
        more = f" (the most of {len(differences)} outputs)" if len(differences) > 1 else ""
        echo(f"  compared: {worst}{more}")
        return
    for difference in differences:
        echo(f"  compared: {difference}")


def _print_notes(file: OptimizedFile) -> None:
    paths = file.paths
    kept = paths.survived + paths.fused
    fused = f" ({paths.survived} survived, {paths.fused} fused or new)" if paths.fused else ""
    total = kept + paths.without
    echo(
        f"  module paths: on {kept} of {total} nodes{fused}; "
        f"before on {paths.had} of {paths.before}"
    )
    casts = file.done.get("casts_removed")
    if casts:
        what = f"{casts} cast{'s' * (casts > 1)}"
        echo(f"  removed: {what} to float32 that ONNX Runtime inserts for its CPU")
        echo("  where that has no kernel of a type it writes out operations; onnxslim does not")
    prepared, left = (file.done.get(f"attention_{name}", 0) for name in ("prepared", "left"))
    if prepared:
        name = "com.microsoft.MultiHeadAttention"
        fused_now = file.nodes_after.get(name, 0) - file.nodes_before.get(name, 0)
        echo(f"  attention: {prepared} written as the MMDiT fusion looks for it, {fused_now} fused")
    if left:
        echo(f"  attention: {left} left as they are: masked, of another scale or form")
    if file.optimizer.name == "ort" and file.optimizer.level == "all":
        echo("  level all: its layouts are for CPUs as this machine's; elsewhere it may be slower")


SUBCOMMAND = Subcommand(optimize, place=40, needs="graph")
