"""`profile-sd3 graph export`: a diffusers pipeline as ONNX graphs, verified against torch."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli import options as shared
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import STDOUT, check_documents, progress, tell, write_result
from profiler.errors import InputError
from profiler.text import name_list

if TYPE_CHECKING:
    from profiler.graph.export import ExportedPart
    from profiler.graph.export_torch import ExportOptions


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
            _print(part, options.show_all)

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
    """The folder, or what is known by that name, written to a temporary one."""
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
    """Random weights know no words: the tiny model's tokenizers give ids that are as good."""
    from profiler.pipelines.tiny import default_model_folder

    for name in ("tokenizer", "tokenizer_2", "tokenizer_3"):
        shutil.copytree(default_model_folder() / name, folder / name)


def _print(part: ExportedPart, show_all: bool) -> None:
    tell(
        f"{part.submodule} → {part.folder}/model.onnx: {part.class_name}, {part.dtype}, opset "
        f"{part.opset}, {part.node_count} nodes, {_bytes(part.weight_bytes)} of weights, "
        f"{part.seconds:.1f} s"
    )
    free = dict.fromkeys(a for axes in part.inputs.values() for a in axes if isinstance(a, str))
    tell(f"  free sizes: {', '.join(free) or 'none'}")
    if part.layer_norms:
        tell(f"  LayerNorms given ones and zeros: {part.layer_norms}")
    for note in part.notes:
        tell(f"  note: {note}")
    sizes = "; ".join(", ".join(f"{k} {v}" for k, v in trial.items()) for trial in part.trials)
    tell(f"  compared with torch on {sizes}" if sizes else "  compared with torch")
    worst = max(part.differences, key=lambda found: found.relative)
    for found in part.differences if show_all else [worst]:
        tell(f"    {found}")
    if not show_all and len(part.differences) > 1:
        tell(f"    (the most of {len(part.differences)} outputs)")


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def _next_step(out: Path, options: ExportOptions) -> str:
    """What can be done with the folder; `profile-sd3 run` takes not all of them."""
    if options.parts:
        return "verified; profile-sd3 run needs all parts of the pipeline"
    if options.dtype == "bf16":
        return "verified; profile-sd3 run takes float32 and float16, not bfloat16"
    return f"verified; profile-sd3 run --model {out} runs it"


SUBCOMMAND = Subcommand(export, place=10, needs="graph")
