"""`profile-sd3 graph`: the subcommands that work on ONNX graphs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from profiler.cli import options as shared
from profiler.cli.graph_text import (
    measured_findings,
    tell_annotated,
    tell_checked,
    tell_exported,
    tell_fixed,
    tell_graphs,
    tell_optimized,
    tell_split,
)
from profiler.cli.subcommands import Subcommand, arg, cli_options, command_group, opt
from profiler.cli.terminal import STDOUT, bar, check_documents, progress, tell, write_result
from profiler.errors import InputError, require
from profiler.pipelines.model_folder import TARGETS
from profiler.text import name_list, parse_size

if TYPE_CHECKING:
    from profiler.compare.compare import Gate
    from profiler.graph.check import CheckResult
    from profiler.graph.compare import GraphComparison, TimeComparison
    from profiler.graph.export import ExportedPart
    from profiler.graph.export_torch import ExportOptions
    from profiler.graph.fix import FixResult
    from profiler.graph.split_parts import Target
    from profiler.run.run import Run


# --- Numbers in options of `profile-sd3 graph`: bytes, and sizes of symbolic dimensions.


def parse_bytes(text: str, option: str) -> int:
    """`8MiB`, `1.5 GB` or `4096` in bytes. Raises InputError for anything else, and for less than
    1."""
    number = parse_size(text)
    if number is None:
        raise InputError(f"{option} {text} is no number of bytes: give for instance {option} 8MiB")
    return number


def parse_sizes(given: Iterable[str]) -> dict[str, int]:
    """`NAME=N` as numbers by name. Raises InputError for anything else."""
    sizes = {}
    for text in given:
        name, _, number = text.partition("=")
        if not name or not (number.isascii() and number.isdecimal()) or not 0 < len(number) < 10:
            raise InputError(f"--size {text} is no NAME=N: give for instance --size height=64")
        sizes[name] = int(number)
    if 0 in sizes.values():
        raise InputError("--size takes sizes of 1 or more: give for instance --size height=64")
    return sizes


# --- `profile-sd3 graph export`: a diffusers pipeline as ONNX graphs, verified against torch.


_TINY = "tiny"
_KNOWN = "tiny, sd3-medium"


@cli_options
class GraphExportOptions:
    """Options of `profile-sd3 graph export`."""

    source: str = arg(
        f"SOURCE  Folder of a diffusers pipeline, with model_index.json; or a known name: {_KNOWN}."
    )
    out: Path = arg("OUT  Folder to write; a new one.")
    dtype: str = opt("TYPE  Type of weights and floats: fp32, fp16, bf16.", default="fp32")
    opset: int | None = opt("N  Opset of the graphs.  [default: 18; 22 for bf16]")
    static: str = opt(
        "SIZES  Sizes to make the graphs for alone, such as height=1024,width=1024,batch=1, "
        "sequence=256: pixels, images, tokens of T5 or Qwen.  [default: all are free]",
        default="",
    )
    parts: str = opt("NAMES  Export these parts alone, with commas.", default="")
    random_weights: bool = opt("Take configurations alone, and random weights.")
    seed: int = opt("N  Seed of random weights, and of the inputs compared on.", default=0)
    layernorm_fix: bool = opt(
        "/--no-layernorm-fix  Leave LayerNorms without scale and bias as they are; else they get "
        "ones and zeros, which changes no output.",
        default=True,
    )
    show_all: bool = opt("--all  Show each output, not the one that differs most.")
    json_file: Path | None = shared.RESULT_FILE


def export(options: GraphExportOptions) -> None:
    """Export a diffusers pipeline to ONNX, offline.

    SD3, SD3.5, FLUX or Qwen-Image, through torch's dynamo exporter, with module paths on the nodes.
    Each part is compared with torch on random inputs; OUT is there once all are within the
    tolerance of their type. `profile-sd3 run --model OUT` runs it.
    """
    from profiler.graph.export import export_pipeline
    from profiler.graph.export_torch import ExportOptions, parse_static

    fixed, parts = parse_static(options.static), name_list(options.parts)
    chosen = ExportOptions(
        options.dtype,
        options.opset,
        fixed,
        options.random_weights,
        options.seed,
        options.layernorm_fix,
        parts,
    )
    check_documents({"--json": options.json_file}, outputs={"OUT": options.out})
    quiet = options.json_file == STDOUT

    def done(part: ExportedPart) -> None:
        if not quiet:
            tell_exported(part, options.show_all)

    with (
        _source_folder(options.source, options.random_weights, quiet=quiet) as folder,
        progress(f"exporting {options.source}"),
    ):
        exported = export_pipeline(folder, options.out, chosen, done=done)
    document = {"out": str(options.out), "parts": [part.to_json() for part in exported]}
    if write_result(options.json_file, "graph_export", lambda: document):
        tell(f"{options.out}: {_next_step(options.out, chosen)}")


@contextmanager
def _source_folder(source: str, random_weights: bool, *, quiet: bool) -> Iterator[Path]:
    """The source folder, or a temporary one to which the known model of that name is written."""
    from profiler.graph.export_models import CONFIGURATIONS, write_configuration

    if Path(source).exists() or source not in (_TINY, *CONFIGURATIONS):
        if not Path(source).exists() and "/" not in source:
            raise InputError(
                f"{source} is neither a folder nor a known name ({_KNOWN}): give a folder, which "
                "`hf download REPOSITORY --local-dir FOLDER` fetches"
            )
        yield Path(source)
        return
    if source != _TINY and not random_weights:
        raise InputError(
            f"{source} is a configuration without weights: give --random-weights, or the folder of "
            "a model"
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / source
        if source == _TINY:
            _write_tiny(folder)
        else:
            write_configuration(source, folder)
            _lend_tokenizers(folder)
            if not quiet:
                tell("tokenizers: those of the tiny model, for random weights know no words")
        yield folder


def _write_tiny(folder: Path) -> None:
    from profiler.graph.export import import_libraries
    from profiler.graph.export_torch import quiet_libraries

    import_libraries()
    with quiet_libraries():
        from profiler.graph.tiny_model import write_source

        write_source(folder)


def _lend_tokenizers(folder: Path) -> None:
    """Add the tiny model's tokenizers to `folder`: with random weights any ids will do."""
    from profiler.pipelines.tiny import default_model_folder

    for name in ("tokenizer", "tokenizer_2", "tokenizer_3"):
        shutil.copytree(default_model_folder() / name, folder / name)


def _next_step(out: Path, options: ExportOptions) -> str:
    """Say what can be done with the exported folder; `profile-sd3 run` rejects some."""
    if options.parts:
        return "verified; profile-sd3 run needs all parts of the pipeline"
    if options.dtype == "bf16":
        return "verified; profile-sd3 run takes float32 and float16, not bfloat16"
    return f"verified; profile-sd3 run --model {out} runs it"


# --- `profile-sd3 graph check`: what stops a graph compiler or costs time, and its repair.


@cli_options
class CheckOptions:
    """Options of `profile-sd3 graph check`."""

    models: list[Path] = arg("MODEL...  ONNX files, or folders of them.")
    target: str = opt(f"NAME  What is to compile or run it: {', '.join(TARGETS)}.", default="")
    static: bool = opt("Ask for static shapes of inputs and nodes.")
    fix: Path | None = opt(
        "--fix -o OUT  Write the model, or the folder, repaired if that is safe and outputs "
        "stay the same."
    )
    size: list[str] = opt(
        "NAME=N  With --fix: a symbolic dimension of the inputs that outputs are compared on; may "
        "be repeated.  [default: 2 for a batch, 8 for others]"
    )
    measured: Path | None = opt(
        "PATH  A run of the model, of any format that `import` reads: findings get the time of "
        "their nodes."
    )
    show_all: bool = opt("--all  Show each finding and output, not three nodes a rule.")
    json_file: Path | None = opt("--json FILE  Write all findings as JSON; -: to stdout.")


def check(options: CheckOptions) -> None:
    """Find what stops a graph compiler or costs time.

    Exits with 1 if there is an error. Looks for empty names of inputs that carry meaning, names
    of nodes, dynamic shapes, int64 and float64, opsets that a target lacks, constants that are not
    folded, operations in small pieces, needless pairs of nodes, weights stored twice, data that is
    missing. What needs no data reads none.
    """
    from profiler.graph.check import check_model
    from profiler.graph.model import model_files
    from profiler.graph.shapes import refuse_unknown_sizes

    sizes = parse_sizes(options.size)
    files = (path for model in options.models for path in model_files(model))
    sources = list(dict.fromkeys(files))
    check_documents({"--json": options.json_file}, inputs=sources, outputs={"--fix": options.fix})
    if sizes and options.fix is None:
        raise InputError("--size is for the inputs that --fix compares on: give --fix OUT, too")
    refuse_unknown_sizes(sources, sizes)
    results: list[CheckResult] = []
    fixed: list[FixResult] = []
    with progress(f"repairing {options.models[0]}" if options.fix else "checking") as say:
        if options.fix is not None:
            fixed = _fixed(options, sources, options.fix, sizes)
            results = [result.left for result in fixed]
        else:
            for path in sources:
                say(f"checking {path}")
                results.append(check_model(path, target=options.target, static=options.static))
    run = _measured_run(options.measured)
    if write_result(options.json_file, "graph_check", lambda: _check_document(results, fixed, run)):
        for result in fixed:
            tell_fixed(result, options.show_all)
        for checked in results:
            tell_checked(checked, run, options.show_all)
    if any(result.count("error") for result in results):
        raise typer.Exit(1)


def _fixed(
    options: CheckOptions, sources: list[Path], out: Path, sizes: dict[str, int]
) -> list[FixResult]:
    """Write the repaired model, or folder of models, to `out`."""
    from profiler.graph.fix import fix_folder, fix_model

    require("graph", "graph check --fix", "onnxruntime")
    if len(options.models) > 1:
        raise InputError("--fix takes one model or one folder: repair them one by one")
    target, static = options.target, options.static
    if options.models[0].is_dir():
        return fix_folder(
            options.models[0], out, sources, target=target, static=static, sizes=sizes
        )
    return [fix_model(sources[0], out, target=target, static=static, sizes=sizes)]


def _measured_run(path: Path | None) -> Run | None:
    """Load the run whose times findings get; None without a path."""
    if path is None:
        return None
    from profiler.tools.sources import load

    with progress(f"reading {path}"):
        return load(path)


def _check_document(
    results: Sequence[CheckResult], fixed: Sequence[FixResult], run: Run | None
) -> dict[str, Any]:
    entries = [{**result.to_json(), "run": None, "fixed": None} for result in results]
    if run is not None:
        for entry, checked in zip(entries, results, strict=True):
            entry["run"] = run.run_id
            entry["findings"] = [one.to_json() for one in measured_findings(checked, run)]
    for entry, result in zip(entries, fixed, strict=False):
        entry["fixed"] = result.to_json()
    return {"models": entries}


# --- `profile-sd3 graph split`: large operations in parts, as compilers of accelerators cut them.


@cli_options
class SplitOptions:
    """Options of `profile-sd3 graph split`."""

    model: Path = shared.MODEL_PATH
    out: Path = shared.OUT_PATH
    max_bytes: str | None = opt(
        "BYTES  Split what has more, such as 8MiB: of the weights of an operation, or of its "
        "largest operand if it has none."
    )
    parts: int | None = opt("N  Split every operation into so many parts.")
    op_types: str | None = opt(
        "TYPES  What to split, with commas.  [default: MatMul,Gemm,Conv,Attention]"
    )
    node: list[str] = opt("NAME  Split this node alone; may be repeated.")
    size: list[str] = opt(
        "NAME=N  A symbolic dimension, to tell bytes by, and of the inputs that outputs are "
        "compared on; may be repeated.  [default, of inputs: 2 for a batch, 8 for others]"
    )
    show_all: bool = opt("--all  Show every operation, not three of a kind.")
    json_file: Path | None = shared.RESULT_FILE


def split(options: SplitOptions) -> None:
    """Split large operations as compilers of NPUs do.

    MatMul, Gemm, Conv and attention become commands. Parts have columns, rows, channels or heads of
    the output, or terms of its sums. They keep the operation's layer and have a command_index: a
    profiled run of OUT shows split operators, which analyze folds back. OUT is written once its
    outputs are those of MODEL on random inputs.
    """
    from profiler.graph.split import OPERATION_TYPES, split_files

    target = _target(options.max_bytes, options.parts)
    types = name_list(options.op_types) if options.op_types else OPERATION_TYPES
    sizes = parse_sizes(options.size)
    check_documents(
        {"--json": options.json_file}, inputs=[options.model], outputs={"OUT": options.out}
    )
    with progress(f"splitting {options.model}"):
        files = split_files(
            options.model, options.out, target, op_types=types, nodes=options.node, sizes=sizes
        )
    if write_result(
        options.json_file, "graph_split", lambda: {"models": [file.to_json() for file in files]}
    ):
        for file in files:
            tell_split(file, options.show_all)


def _target(max_bytes: str | None, parts: int | None) -> Target:
    from profiler.graph.split_parts import Target

    if (max_bytes is None) == (parts is None):
        raise InputError("give either --max-bytes, such as 8MiB, or --parts, such as 4")
    if max_bytes is not None:
        return Target(max_bytes=parse_bytes(max_bytes, "--max-bytes"))
    if parts is not None and parts < 2:
        raise InputError(f"--parts {parts} splits nothing: give 2 or more")
    return Target(parts=parts)


# --- `profile-sd3 graph optimize`: an optimizer's graph, verified, with the module paths kept.


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
            tell_optimized(file, options.show_all)


# --- `profile-sd3 graph compare`: how two versions of a graph differ, in nodes and in time.


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
    if write_result(
        options.json_file, "graph_compare", lambda: _comparison_document(graphs, times, gates)
    ):
        tell_graphs(graphs, times, gates, options.top)
    if any(gate.failed for gate in gates):
        raise typer.Exit(1)


def _timed(graphs: GraphComparison, repeats: int, out: Path) -> TimeComparison:
    from profiler.capture.onnxruntime.sessions import calls_of
    from profiler.graph.compare import compare_times

    require("graph", "graph compare --run", "onnxruntime")
    with bar("running both in turn", 2 * calls_of(repeats) * len(graphs.pairs)) as advance:
        return compare_times(graphs, repeats=repeats, out=out, on_run=advance)


def _comparison_document(
    graphs: GraphComparison, times: TimeComparison | None, gates: list[Gate]
) -> dict[str, Any]:
    from profiler.compare.text import diff_document

    document = {**graphs.to_json(), "bundles": None, "diff": None}
    if times is not None:
        document["bundles"] = {"base": str(times.base), "new": str(times.new)}
        document["diff"] = diff_document(times.comparison, gates)
    return document


# --- `profile-sd3 graph annotate`: what a run measured, on the nodes of its model.


@cli_options
class AnnotateOptions:
    """Options of `profile-sd3 graph annotate`."""

    model: Path = shared.MODEL_PATH
    traces: Path = arg("PATH  A bundle, or a folder of them: the newest is taken.")
    out: Path = opt("--out -o OUT  File, or folder, to write.", default=...)
    submodule: str = opt(
        "NAME  Which submodule of the run MODEL is.  [default: as the run or its folder says]",
        default="",
    )
    no_runtime: bool = opt(
        "Don't open MODEL in ONNX Runtime to see what it executes: time of fused nodes then stays "
        "at their layers."
    )
    json_file: Path | None = shared.RESULT_FILE


def annotate(options: AnnotateOptions) -> None:
    """Write measured times on the nodes of MODEL.

    Time, share, calls, bytes and role become metadata, which Netron shows. MODEL is what was run,
    or what it was exported from. Look at OUT with `graph view`.
    """
    from profiler.graph.annotate import annotate as write_annotated
    from profiler.graph.model import model_files

    if not options.no_runtime:
        require("graph", "graph annotate without --no-runtime", "onnxruntime")
    check_documents(
        {"--json": options.json_file},
        inputs=model_files(options.model),
        outputs={"--out": options.out},
    )
    with progress(f"reading {options.traces}") as say:
        annotated = write_annotated(
            options.model,
            options.traces,
            options.out,
            submodule=options.submodule,
            runtime=not options.no_runtime,
            say=say,
        )
    for note in annotated.notes:
        tell(f"profile-sd3: {note}", err=True)
    if write_result(options.json_file, "graph_annotate", annotated.to_json):
        for written in annotated.models:
            tell_annotated(written, annotated.run_id)
        for path in annotated.copied:
            tell(f"{path}: copied, for the run has no submodule of its name")


# --- `profile-sd3 graph view`: a model in Netron, on this machine.


@cli_options
class ViewOptions:
    """Options of `profile-sd3 graph view`."""

    model: Path = arg("MODEL  ONNX file, annotated or not.")
    port: int = opt("N  Port on 127.0.0.1; 0: a free one.", default=0, min=0, max=65535)
    no_browser: bool = opt("Print the address, and open no browser.")


def view(options: ViewOptions) -> None:
    """Show a model in Netron, served on 127.0.0.1.

    Until Ctrl-C, or an hour without requests; the page asks no other host. Click a node: what
    `graph annotate` wrote stands under Metadata. Needs the extra `netron`.
    """
    import webbrowser

    from profiler.graph.netron import NetronServer

    with NetronServer(options.model, options.port) as server:
        tell(f"{options.model} at {server.url}, until Ctrl-C")
        if not options.no_browser:
            webbrowser.open(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
        if server.idle:
            tell("no longer served: nobody has asked for an hour")


# --- The group itself.


_GROUP = command_group(
    "graph",
    "Prepare ONNX graphs, and see times on their nodes.",
    export=Subcommand(export, needs="graph"),
    check=Subcommand(check, needs="graph-base"),
    split=Subcommand(split, needs="graph"),
    optimize=Subcommand(optimize, needs="graph"),
    compare=Subcommand(compare, needs="graph-base"),
    annotate=Subcommand(annotate, needs="graph-base"),
    view=Subcommand(view, needs="graph-base"),
)

SUBCOMMAND = Subcommand(_GROUP, place=120, advanced=True)
