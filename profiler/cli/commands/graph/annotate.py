"""`profile-sd3 graph annotate`: what a run measured, on the nodes of its model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli import options as shared
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import check_documents, progress, tell, write_result

if TYPE_CHECKING:
    from profiler.graph.annotate import AnnotatedModel


_HOT = 5  # nodes that are printed
_UNPLACED = 3  # commands that are printed


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
    from profiler.errors import require
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
            _print(written, annotated.run_id)
        for path in annotated.copied:
            tell(f"{path}: copied, for the run has no submodule of its name")


def _print(written: AnnotatedModel, run_id: str) -> None:
    found = written.file.annotation
    calls = max(written.calls, 1)
    total = f"{found.total_ns / calls / 1e6:.2f} ms of operators a call"
    tell(
        f"{written.file.out}: {written.submodule}, {total}, {calls} call{'s' * (calls > 1)} of run "
        f"{run_id}"
    )
    fused = f", {found.fused} are fused into one of them" if found.fused else ""
    tell(f"  placed: {found.placed}; {len(found.nodes)} nodes have time{fused}")
    for layer, op_type, duration in found.unplaced[:_UNPLACED]:
        share = 100 * duration / max(found.total_ns, 1)
        tell(f"  not in the model: {layer} ({op_type or 'no op type'}), {share:.1f} %")
    more = len(found.unplaced) - _UNPLACED
    if more > 0:
        tell(f"  … and {more} more")
    hot = found.nodes[:_HOT]
    times = [f"{node.duration_ns / calls / 1000:,.1f}" for node in hot]
    width = max(map(len, times), default=0)
    for node, time in zip(hot, times, strict=True):
        role = f", {node.role}" if node.role else ""
        kind = f"{node.op_type}{role}"
        tell(f"  {100 * node.share:4.1f} % {time:>{width}} µs  {node.node or '(unnamed)'} ({kind})")


SUBCOMMAND = Subcommand(annotate, place=60, needs="graph-base")
