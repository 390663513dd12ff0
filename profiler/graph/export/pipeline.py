"""`graph export`: a diffusers folder → a folder of ONNX graphs, there once it was verified."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from profiler.errors import InputError, OutputError
from profiler.graph.export.layer_norms import with_affine_layer_norms
from profiler.graph.export.options import DTYPES, ExportOptions
from profiler.graph.export.part_graph import PartGraph, Trial
from profiler.graph.export.proof import Expected, check_outputs, expected_outputs
from profiler.graph.export.source_folder import (
    SourceFolder,
    SourcePart,
    copy_files,
    open_source,
    read_json,
)
from profiler.graph.export.torch_module import (
    check_weights,
    import_libraries,
    load_module,
)
from profiler.graph.export.torch_program import export_graph, quiet_libraries
from profiler.graph.model_file import all_tensors, read_model
from profiler.graph.output_file import save_model
from profiler.graph.values import nodes
from profiler.graph.verification import OutputDifference
from profiler.model_layouts import check_widths

__all__ = ["ExportedPart", "export_module", "export_pipeline"]


@dataclass(frozen=True, slots=True)
class ExportedPart:
    """A part that was written: its class, how large its graph is, and how far it is from torch.

    `inputs` are axes by name, free ones as names; `layer_norms` is how many got ones and zeros;
    `trials` are the sizes it was compared on.
    """

    submodule: str
    folder: str
    class_name: str
    opset: int
    dtype: str
    node_count: int
    weight_bytes: int
    inputs: dict[str, tuple[int | str, ...]]
    layer_norms: int
    trials: tuple[Trial, ...]
    differences: tuple[OutputDifference, ...]
    notes: tuple[str, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The part as a JSON object."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "inputs": {name: list(axes) for name, axes in self.inputs.items()},
            "compared_on": [dict(sizes) for sizes in self.trials],
            "differences": [
                {
                    "output": found.output,
                    "dtype": found.dtype,
                    "absolute": found.absolute,
                    "relative": found.relative,
                    "tolerance": found.tolerance,
                }
                for found in self.differences
            ],
            "notes": list(self.notes),
        }


_PLAIN = (
    *("submodule", "folder", "class_name", "opset", "dtype", "node_count", "weight_bytes"),
    *("layer_norms", "seconds"),
)


def export_pipeline(
    source: Path,
    out: Path,
    options: ExportOptions | None = None,
    *,
    done: Callable[[ExportedPart], None] = lambda _: None,
) -> list[ExportedPart]:
    """Export the pipeline in the folder `source` to the folder `out`, in the layout of optimum.

    `done` is called after each part. `out` appears when every part has been verified against
    torch; an error leaves nothing. Raises InputError where the source cannot be used, `run` would
    refuse its parts beside each other (but not for chosen ones), or a part cannot be exported,
    OutputError where `out` exists or a part computes something else.
    """
    options = options or ExportOptions()
    opened = open_source(source)
    parts = opened.chosen(options.parts)
    _check_out(source, out)
    if not options.parts:
        _check_fit(opened)
    if not options.random_weights:
        for part in parts:
            check_weights(part)
    import_libraries()
    exported = []
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
            folder = Path(scratch) / out.name
            copy_files(opened, parts, folder)
            for part in parts:
                exported.append(_export_part(opened, part, folder, options))
                done(exported[-1])
            folder.replace(out)  # takes the place of an empty folder
    except OSError as error:
        raise OutputError(f"cannot write {out} ({error.strerror or error})") from error
    return exported


def _check_out(source: Path, out: Path) -> None:
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise OutputError(f"{out} exists already: give a folder that does not, or an empty one")
    if out.resolve().is_relative_to(source.resolve()):
        raise OutputError(f"{out} lies in the input {source}: give a folder outside it")


def _check_fit(opened: SourceFolder) -> None:
    parts = {part.kind.submodule: part.folder / "config.json" for part in opened.parts}
    try:
        check_widths(opened.class_name, {name: read_json(file) for name, file in parts.items()})
    except InputError as error:
        raise InputError(
            f"{error}, which profile-sd3 run refuses; --parts with the names of parts exports them"
        ) from error


def _export_part(
    source: SourceFolder, part: SourcePart, folder: Path, options: ExportOptions
) -> ExportedPart:
    def load(scratch: Path) -> PartGraph:
        module = load_module(part, options, scratch)
        return part.kind.build(
            module, options.static, scale=source.scale, dtype=options.torch_dtype
        )

    path = folder / part.kind.out / "model.onnx"
    return export_module(load, path, options, name=part.kind.submodule)


def export_module(
    load: Callable[[Path], PartGraph], path: Path, options: ExportOptions, *, name: str
) -> ExportedPart:
    """Write the graph of a part to `path`, and prove it against torch.

    `load` makes the part; it may keep weights in the folder that it gets. Both are gone before
    the graph is run. Raises as `export_pipeline`, and leaves the file then.
    """
    started = time.perf_counter()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".weights.", dir=path.parent) as scratch:
        told, expected = _written(load(Path(scratch)), path, options, name)
        gc.collect()  # torch's modules and traces hold each other in circles
    _check_form(path, name)
    widen = options.dtype == "bf16"
    differences = check_outputs(path, expected, what=name, widen=widen)
    return ExportedPart(
        submodule=name,
        folder=path.parent.name,
        opset=options.opset_version,
        dtype=DTYPES[options.dtype],
        differences=tuple(differences),
        seconds=round(time.perf_counter() - started, 3),
        **told,
    )


def _written(
    graph: PartGraph, path: Path, options: ExportOptions, name: str
) -> tuple[dict[str, Any], list[Expected]]:
    """Write the model; returns what is told of the part, and what torch computes."""
    dtype, fix = options.torch_dtype, options.layernorm_fix
    with with_affine_layer_norms(graph.module, dtype, fix=fix) as norms:
        count, size = _write(graph, path, options, name)
    with quiet_libraries():
        expected = expected_outputs(graph, options.seed, widen=options.dtype == "bf16")
    told = {
        "class_name": type(graph.module).__name__,
        "node_count": count,
        "weight_bytes": size,
        "inputs": dict(graph.inputs),
        "layer_norms": norms,
        "trials": graph.trials,
        "notes": graph.notes,
    }
    return told, expected


def _write(graph: PartGraph, path: Path, options: ExportOptions, name: str) -> tuple[int, int]:
    """Write the model; returns its nodes, and bytes of its weights."""
    import numpy as np

    tensors = graph.draw(np.random.default_rng(options.seed), graph.trials[0])
    model = export_graph(graph, tensors, options.opset_version, name)
    save_model(model, path)
    size = sum(t.nbytes for t in all_tensors(model) if t.dtype != ir.DataType.STRING)
    return sum(1 for _ in nodes(model)), size


def _check_form(path: Path, name: str) -> None:
    """Raise InputError where the file is no valid ONNX."""
    import onnx

    read_model(path)
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        reason = str(error).strip().splitlines()[0][:300]
        raise InputError(
            f"torch gives {name} as no valid ONNX ({reason}): choose another --opset"
        ) from error
