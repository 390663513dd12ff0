"""`graph optimize`: a model's file, or all of a folder → optimized ones, outputs verified."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.fixes.names import name_nodes, number_names
from profiler.graph.model_file import (
    all_tensors,
    external_files,
    model_files,
    read_model,
)
from profiler.graph.optimize.layers import KeptPaths, keep_paths
from profiler.graph.optimize.optimizers import Optimizer, run_optimizer
from profiler.graph.output_file import output_folder, refuse_over_input, write_model
from profiler.graph.random_inputs import random_inputs, refuse_unknown_sizes
from profiler.graph.verification import OutputDifference, verify

__all__ = ["OptimizedFile", "optimize_files"]

_INLINE_BYTES = 1 << 30  # of weights: more is written as external data


@dataclass(frozen=True, slots=True)
class OptimizedFile:
    """What an optimizer made of the model in `source`: nodes by type (`domain.type` outside of
    ONNX's own) and bytes on disk before and after, data files included; how many nodes kept a
    module path; `done` counts what was done around the optimizer; how far each output differs."""

    source: Path
    out: Path
    optimizer: Optimizer
    nodes_before: Mapping[str, int]
    nodes_after: Mapping[str, int]
    bytes_before: int
    bytes_after: int
    paths: KeptPaths
    done: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[OutputDifference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The optimization as a JSON object."""
        return {
            "model": str(self.source),
            "out": str(self.out),
            "with": self.optimizer.name,
            "level": self.optimizer.level if self.optimizer.name == "ort" else None,
            "model_type": self.optimizer.model_type or None,
            "nodes": {
                "before": sum(self.nodes_before.values()),
                "after": sum(self.nodes_after.values()),
                "by_type": {
                    name: {
                        "before": self.nodes_before.get(name, 0),
                        "after": self.nodes_after.get(name, 0),
                    }
                    for name in sorted({*self.nodes_before, *self.nodes_after})
                },
            },
            "bytes": {"before": self.bytes_before, "after": self.bytes_after},
            "module_paths": asdict(self.paths),
            "done": dict(self.done),
            "differences": [asdict(difference) for difference in self.differences],
        }


def optimize_files(
    source: Path,
    out: Path,
    optimizer: Optimizer | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
) -> list[OptimizedFile]:
    """Optimize the model in the file `source` into the file `out`, or the models of a folder into
    a copy of it, `out`: written once the outputs are those of the model for random inputs.

    `optimizer` is ONNX Runtime at its basic level where none is given; `sizes` are those of
    symbolic dimensions of the inputs. Raises InputError where a model cannot be read, run or
    optimized, or the optimizer is not installed, or no model has a dimension of such a name, and
    OutputError where `out` cannot be written, is an input, or would compute something else.
    """
    optimizer = optimizer or Optimizer()
    optimizer.check()
    models = model_files(source)
    refuse_unknown_sizes(models, sizes or {})
    if not source.is_dir():
        return [_optimize(models[0], out, optimizer, sizes)]
    without = {file for path in models for file in (path, *external_files(read_model(path)))}
    results = []
    with output_folder(source, out, without) as copy:
        for path in models:
            relative = path.relative_to(source)
            result = _optimize(path, copy / relative, optimizer, sizes)
            results.append(replace(result, out=out / relative))
    return results


def _optimize(
    path: Path, out: Path, optimizer: Optimizer, sizes: Mapping[str, int] | None
) -> OptimizedFile:
    model = read_model(path)
    data = external_files(model)
    refuse_over_input([out], [path, *data])
    try:
        inputs = random_inputs(model, sizes)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    beside = next(folder for folder in out.absolute().parents if folder.is_dir())
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=beside) as folder:
        run = run_optimizer(optimizer, path, model, Path(folder))
        optimized = run.model
        _keep_interface(path, optimizer, model, optimized)
        _tidy(model, optimized)
        paths = keep_paths(model, optimized)
        if not data:
            _take_in(optimized)

        def check(written: Path) -> tuple[OutputDifference, ...]:
            try:
                return tuple(verify(path, written, inputs, what=f"{out}: the optimized model"))
            except InputError as error:
                if str(written) not in str(error):
                    raise
                text = str(error).replace(str(written), f"what {optimizer.name} wrote")
                raise InputError(f"{path}: {text}; choose another optimizer by --with") from error

        differences = write_model(
            optimized, out, sources=[path, *data], check=check, external=bool(data)
        )
    return OptimizedFile(
        source=path,
        out=out,
        optimizer=run.optimizer,
        nodes_before=_by_type(model),
        nodes_after=_by_type(optimized),
        bytes_before=_bytes([path, *data]),
        bytes_after=_bytes([out, out.with_name(out.name + ".data")]),
        paths=paths,
        done=run.done,
        differences=differences,
    )


def _keep_interface(path: Path, optimizer: Optimizer, before: ir.Model, after: ir.Model) -> None:
    """Give inputs and outputs the types and symbolic dimensions that they had, and inputs that
    nothing reads back. Raises InputError where the optimizer has changed which others there are."""
    given = {value.name: value for value in after.graph.inputs}
    inputs = [given.pop(old.name, ir.Value(name=old.name)) for old in before.graph.inputs]
    outputs = [value.name for value in before.graph.outputs]
    if given or outputs != [value.name for value in after.graph.outputs]:
        raise InputError(
            f"{path}: {optimizer.name} has changed inputs or outputs: choose another optimizer by "
            "--with"
        )
    after.graph.inputs[:] = inputs
    for old, new in (
        *zip(before.graph.inputs, inputs, strict=True),
        *zip(before.graph.outputs, after.graph.outputs, strict=True),
    ):
        new.type, new.shape = old.type, old.shape


def _tidy(before: ir.Model, after: ir.Model) -> None:
    """Remove what optimizers leave: opsets that nothing uses, nodes without a name or with
    another's; keep what the model says of itself."""
    from onnx_ir.passes.common import RemoveUnusedOpsetsPass

    for domain in {node.domain for node in after.graph.all_nodes()} - {*after.opset_imports}:
        after.opset_imports[domain] = before.opset_imports.get(domain, 1)
    RemoveUnusedOpsetsPass()(after)
    number_names(after)
    name_nodes(after)
    after.graph.name = before.graph.name
    after.metadata_props.update(before.metadata_props)
    after.graph.metadata_props.update(before.graph.metadata_props)


def _take_in(model: ir.Model) -> None:
    """Have the weights in the model itself, as its source had them, where that is small enough."""
    if sum(tensor.nbytes for tensor in all_tensors(model)) <= _INLINE_BYTES:
        ir.external_data.load_to_model(model)


def _by_type(model: ir.Model) -> dict[str, int]:
    """The nodes by type, most first."""
    counted = Counter(
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        for node in model.graph.all_nodes()
    )
    return dict(counted.most_common())


def _bytes(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())
