"""`graph check --fix`: a model's file → a repaired one, written once it computes the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.check import CheckResult, check_model
from profiler.graph.checks.finding import CheckedModel, opset, place
from profiler.graph.checks.inputs import OPTIONAL_INPUTS, meaningful_inputs
from profiler.graph.checks.nodes import invalid_node
from profiler.graph.fixes.constants import fold_constants, share_duplicates
from profiler.graph.fixes.definition import write_out_norms
from profiler.graph.fixes.inputs import fill_empty_inputs
from profiler.graph.fixes.names import name_nodes, number_names
from profiler.graph.fixes.order import sort_nodes
from profiler.graph.fixes.pairs import merge_pairs
from profiler.graph.infer import infer_types
from profiler.graph.model_file import external_files, read_model
from profiler.graph.output_file import (
    output_folder,
    refuse_over_input,
    save_model,
    write_model,
)
from profiler.graph.random_inputs import random_inputs
from profiler.graph.values import nodes
from profiler.graph.verification import OutputDifference, verify

__all__ = ["FIXES", "FixResult", "fix_folder", "fix_model"]

# Rule → its repair; order first, for others follow it; names last, for what was removed before
# needs none.
FIXES: Mapping[str, Callable[[ir.Model], int]] = {
    "unsorted_node": sort_nodes,
    "empty_input": fill_empty_inputs,
    "redundant_pair": merge_pairs,
    "constant_subgraph": fold_constants,
    "duplicate_initializer": share_duplicates,
    "duplicate_node_name": number_names,
    "unnamed_node": name_nodes,
}


@dataclass(frozen=True, slots=True)
class FixResult:
    """What was repaired: places by rule, how far each output differs, what is left to find."""

    out: Path
    repaired: Mapping[str, int]
    differences: tuple[OutputDifference, ...]
    left: CheckResult

    def to_json(self) -> dict[str, Any]:
        """The repair as a JSON object."""
        return {
            "repaired": dict(self.repaired),
            "differences": [asdict(difference) for difference in self.differences],
        }


def fix_model(
    path: Path,
    out: Path,
    *,
    target: str = "",
    static: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> FixResult:
    """Repair what is safe in the model of the file, and write it to `out`, with `out`.data where
    it has external data, once its outputs are those of the model for random inputs.

    `sizes` are those of symbolic dimensions in these inputs. Raises InputError where the model
    cannot be read or run, OutputError where `out` cannot be written, is the input, or would compute
    something else.
    """
    model = read_model(path)
    sources = [path, *external_files(model)]
    refuse_over_input([out], sources)
    for found in invalid_node(CheckedModel(model)):
        raise InputError(f"{path}: {found.node}: {found.evidence}: {found.recommendation}")
    infer_types(model)
    try:
        inputs = random_inputs(model, sizes)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    repaired = {rule: fix(model) for rule, fix in FIXES.items()}
    _refuse_what_cannot_run(path, model)

    def check(written: Path) -> tuple[OutputDifference, ...]:
        with tempfile.TemporaryDirectory(prefix=".reference.", dir=written.parent) as folder:
            reference = _reference(path, Path(folder))
            try:
                return tuple(verify(reference, written, inputs, what=f"{out}: the repaired model"))
            except InputError as error:
                raise InputError(str(error).replace(str(reference), str(path))) from error

    differences = write_model(model, out, sources=sources, check=check)
    counts = {rule: count for rule, count in repaired.items() if count}
    return FixResult(out, counts, differences, check_model(out, target=target, static=static))


def _refuse_what_cannot_run(path: Path, model: ir.Model) -> None:
    """Raise InputError where a required input is still without a name."""
    for node in nodes(model):
        for index, meaning in meaningful_inputs(node, opset(model)):
            if (node.op_type, index) in OPTIONAL_INPUTS:
                continue
            raise InputError(
                f"{path}: {node.op_type} {place(node)!r} has no {meaning}, and of which size it "
                "would be is not known: export it with one, or with static shapes"
            )


def _reference(path: Path, folder: Path) -> Path:
    """A file that computes what the model in `path` means: itself, or, where ONNX Runtime refuses
    it for normalizations without scale or names that nodes share, the model with those written out
    or numbered."""
    model = read_model(path)
    infer_types(model)
    if not write_out_norms(model) + number_names(model):
        return path
    reference = folder / "model.onnx"
    save_model(model, reference)
    return reference


def fix_folder(source: Path, out: Path, models: list[Path], **asked: Any) -> list[FixResult]:
    """Repair `models` of the folder `source` into a copy of it, `out`, which appears when all of
    them are verified. `asked` and errors as in `fix_model`."""
    without = {file for path in models for file in (path, *external_files(read_model(path)))}
    results = []
    with output_folder(source, out, without) as copy:
        for path in models:
            relative = path.relative_to(source)
            result = fix_model(path, copy / relative, **asked)
            left = replace(result.left, path=out / relative)
            results.append(replace(result, out=out / relative, left=left))
    return results
