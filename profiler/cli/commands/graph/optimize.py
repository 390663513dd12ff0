"""`profile-sd3 graph optimize`: an optimizer's graph, verified, with the module paths kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli import options as shared
from profiler.cli.commands.graph import parse_sizes, tell_compared
from profiler.cli.subcommands import Subcommand, cli_options, opt
from profiler.cli.terminal import check_documents, progress, tell, write_result
from profiler.errors import InputError
from profiler.text import counted

if TYPE_CHECKING:
    from profiler.graph.optimize.files import OptimizedFile


@cli_options
class OptimizeOptions:
    """Options of `profile-sd3 graph optimize`."""

    model: Path = shared.MODEL_PATH
    out: Path = shared.OUT_PATH
    optimizer: str = opt(
        "--with NAME  ort: ONNX Runtime's own optimizations; ort-transformers: its fusions for "
        "models of a type, MMDiT attention among them; onnxslim; onnxsim.",
        default="ort",
    )
    level: str | None = opt(
        "LEVEL  Of ort: basic keeps to ONNX's own operators; extended fuses to ONNX Runtime's; all "
        "adds layouts of this machine's CPU.  [default: basic]"
    )
    model_type: str | None = opt(
        "TYPE  Of ort-transformers: mmdit, unet, vae, clip, t5 or bert.  [default: by the class in "
        "config.json or on the nodes]"
    )
    size: list[str] = shared.SIZES
    show_all: bool = opt("--all  Show types whose number is the same, and every output.")
    json_file: Path | None = shared.RESULT_FILE


def optimize(options: OptimizeOptions) -> None:
    """Run an optimizer; show nodes before and after.

    By type. Module paths and other metadata stay on nodes that survive; a fused node gets the
    longest module path of what it stands for. OUT is written once its outputs are those of MODEL on
    random inputs.
    """
    from profiler.graph.optimize.files import Optimizer, optimize_files

    if options.level is not None and options.optimizer != "ort":
        raise InputError(f"--level belongs to --with ort: leave it out with {options.optimizer}")
    if options.model_type is not None and options.optimizer != "ort-transformers":
        raise InputError(
            f"--model-type belongs to --with ort-transformers, not to {options.optimizer}"
        )
    sizes = parse_sizes(options.size)
    check_documents(
        {"--json": options.json_file}, inputs=[options.model], outputs={"OUT": options.out}
    )
    chosen = Optimizer(options.optimizer, options.level or "basic", options.model_type or "")
    with progress(f"optimizing {options.model}"):
        files = optimize_files(options.model, options.out, chosen, sizes=sizes)
    if write_result(
        options.json_file, "graph_optimize", lambda: {"models": [file.to_json() for file in files]}
    ):
        for file in files:
            _print(file, options.show_all)


def _print(file: OptimizedFile, show_all: bool) -> None:
    before, after = file.nodes_before, file.nodes_after
    optimizer = file.optimizer
    how = optimizer.level if optimizer.name == "ort" else optimizer.model_type
    tell(
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
        tell(f"  {name:{width}}  {counts[0]:{digits},} → {counts[1]:{digits},}")
    same = len(types) - len(changed)
    if not show_all and same:
        tell(f"  {'all' if not changed else 'other'} {counted(same, 'type')}: as many as before")
    _print_notes(file)
    tell_compared(file.differences, each=show_all)


def _print_notes(file: OptimizedFile) -> None:
    paths = file.paths
    kept = paths.survived + paths.fused
    fused = f" ({paths.survived} survived, {paths.fused} fused or new)" if paths.fused else ""
    total = kept + paths.without
    tell(
        f"  module paths: on {kept} of {total} nodes{fused}; "
        f"before on {paths.had} of {paths.before}"
    )
    casts = file.done.get("casts_removed")
    if casts:
        what = f"{casts} cast{'s' * (casts > 1)}"
        tell(f"  removed: {what} to float32 that ONNX Runtime inserts for its CPU")
        tell("  where that has no kernel of a type it writes out operations; onnxslim does not")
    prepared, left = (file.done.get(f"attention_{name}", 0) for name in ("prepared", "left"))
    if prepared:
        name = "com.microsoft.MultiHeadAttention"
        fused_now = file.nodes_after.get(name, 0) - file.nodes_before.get(name, 0)
        tell(f"  attention: {prepared} written as the MMDiT fusion looks for it, {fused_now} fused")
    if left:
        tell(f"  attention: {left} left as they are: masked, of another scale or form")
    if file.optimizer.name == "ort" and file.optimizer.level == "all":
        tell("  level all: its layouts are for CPUs as this machine's; elsewhere it may be slower")


SUBCOMMAND = Subcommand(optimize, place=40, needs="graph")
