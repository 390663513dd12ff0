"""`graph check --fix`: repair an ONNX model, and write it if its outputs are unchanged.

ONNX Runtime does not run a LayerNormalization without a scale. Its repair is compared with the
norm's definition written out in nodes.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.check import (
    CheckedModel,
    CheckResult,
    check_model,
    invalid_node,
    opset,
    place,
    unsorted_node,
)
from profiler.graph.model import (
    add_initializer,
    all_values,
    external_files,
    infer_types,
    nodes,
    output_folder,
    read_model,
    refuse_over_input,
    save_model,
    write_model,
)
from profiler.graph.rewrite_rules import (
    OPTIONAL_INPUTS,
    does_nothing,
    duplicates,
    foldable_nodes,
    folded_fits,
    meaningful_inputs,
    neutral_value,
    permutation,
    redundant_first,
)
from profiler.graph.shapes import random_inputs
from profiler.graph.verify import OutputDifference, run_model, verify

# --- Write normalizations without a scale as nodes, by ONNX's definition.
#
# ONNX Runtime does not run a LayerNormalization whose scale has the empty name, so that its repair
# cannot be compared with the model itself. It is compared with the definition: mean, difference,
# variance, quotient, and no scale.


_NORMS = ("LayerNormalization", "RMSNormalization", "InstanceNormalization")
_AXES_AS_INPUT = 18  # opset since which ReduceMean has its axes as an input


def write_out_norms(model: ir.Model) -> int:
    """Replace each normalization whose scale has the empty name by its definition, except those of
    unknown rank. Returns how many were replaced."""
    count = 0
    for node in list(model.graph.all_nodes()):
        lacks = len(node.inputs) > 1 and node.inputs[1] is None
        if node.op_type in _NORMS and not node.domain and lacks:
            count += _write_out(model, node)
    return count


def _write_out(model: ir.Model, node: ir.Node) -> bool:
    value = node.inputs[0]
    if value is not None and value.shape is None:
        infer_types(model)
    if value is None or value.shape is None or value.dtype is None or node.graph is None:
        return False
    definition = _Definition(model, node)
    rank = len(value.shape)
    axis = 2
    if node.op_type != "InstanceNormalization":
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
    axes = list(range(axis % rank, rank))
    wide = definition.add("Cast", value, to=ir.DataType.FLOAT)
    if node.op_type != "RMSNormalization":
        wide = definition.add("Sub", wide, definition.mean(wide, axes))
    variance = definition.mean(definition.add("Mul", wide, wide), axes)
    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
    shifted = definition.add("Add", variance, definition.constant(np.float32(epsilon)))
    quotient = definition.add("Div", wide, definition.add("Sqrt", shifted))
    result = definition.add("Cast", quotient, to=value.dtype)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None:
        if node.op_type == "InstanceNormalization":
            sizes = definition.constant(np.array([-1, *[1] * (rank - 2)]))
            bias = definition.add("Reshape", bias, sizes)
        result = definition.add("Add", result, bias)
    result.shape, result.dtype = value.shape, value.dtype
    definition.finish(result)
    return True


class _Definition:
    """Nodes that replace one node."""

    def __init__(self, model: ir.Model, node: ir.Node) -> None:
        self._version = opset(model)
        self._node = node
        assert node.graph is not None
        self._graph = node.graph

    def add(self, op_type: str, *inputs: ir.Value, **attributes: object) -> ir.Value:
        """Insert a node before the replaced one; return its output."""
        new = ir.node(op_type, list(inputs), attributes)
        self._graph.insert_before(self._node, new)
        return new.outputs[0]

    def constant(self, array: object) -> ir.Value:
        """Insert a constant and return it."""
        return self.add("Constant", value=ir.tensor(np.asarray(array)))

    def mean(self, value: ir.Value, axes: list[int]) -> ir.Value:
        """The mean over `axes`, which are kept with size 1."""
        if self._version >= _AXES_AS_INPUT:
            return self.add("ReduceMean", value, self.constant(np.array(axes)), keepdims=1)
        return self.add("ReduceMean", value, axes=axes, keepdims=1)

    def finish(self, result: ir.Value) -> None:
        """Replace the node's first output by `result` and remove the node."""
        old = self._node.outputs[0]
        if old.is_graph_output():
            named = self.add("Identity", result)
            named.shape, named.type = old.shape, old.type
            outputs = self._graph.outputs
            outputs[outputs.index(old)] = named
            name, old.name = old.name, f"{old.name}_without_scale"
            named.name = name
            result = named
        old.replace_all_uses_with(result)
        self._graph.remove(self._node, safe=True)


# --- Repair empty names of inputs: a scale of ones or bias of zeros, which changes nothing.


_MOST_ROUNDS = 1000  # each round makes shapes known one node further


def fill_empty_inputs(model: ir.Model) -> int:
    """Give normalizations the scale or bias that they lack; drop an optional last input if its size
    is not known, or for another operation. Returns how many inputs were repaired; a scale of
    unknown size is unchanged."""
    count = 0
    shared: dict[tuple[Any, ...], ir.Value] = {}
    for _ in range(_MOST_ROUNDS):
        filled = sum(_fill(model, node, index, shared) for node, index in list(_empty(model)))
        count += filled
        if not filled:
            break
        infer_types(model)
    return count


def _empty(model: ir.Model) -> Iterator[tuple[ir.Node, int]]:
    version = opset(model)
    for node in model.graph.all_nodes():  # functions cannot read initializers
        for index, _ in meaningful_inputs(node, version):
            yield node, index


def _fill(
    model: ir.Model, node: ir.Node, index: int, shared: dict[tuple[Any, ...], ir.Value]
) -> bool:
    """Fill one input; `shared` contains the initializers made so far."""
    array = neutral_value(node, index)
    if array is not None:
        key = (index, str(array.dtype), array.shape)
        if key not in shared:
            shared[key] = _initializer(model, array, "scale" if index == 1 else "bias")
        node.replace_input_with(index, shared[key])
        return True
    if index == len(node.inputs) - 1 and (node.op_type, index) in OPTIONAL_INPUTS:
        node.resize_inputs(index)
        return True
    return False


def _initializer(model: ir.Model, array: Any, meaning: str) -> ir.Value:
    """Make an initializer of the main graph with an unused name."""
    taken = {value.name for value in all_values(model)}
    base = f"neutral_{meaning}_{'x'.join(map(str, array.shape))}"
    name, number = base, 1
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return add_initializer(model.graph, ir.tensor(array, name=name))


# --- Names for nodes that have none, or share one.


def number_names(model: ir.Model) -> int:
    """Rename each node that shares its name with an earlier one; return how many."""
    names = _Names(model)
    seen: set[str] = set()
    count = 0
    for node in nodes(model):
        if node.name and node.name in seen:
            node.name = names.free(node.name)
            count += 1
        if node.name:
            seen.add(node.name)
    return count


def name_nodes(model: ir.Model) -> int:
    """Name each node without a name after its operation and what it writes; return how many."""
    names = _Names(model)
    count = 0
    for node in nodes(model):
        if not node.name:
            written = next((output.name for output in node.outputs if output.name), "")
            node.name = names.free(f"{node.op_type}_{written}".rstrip("_"))
            count += 1
    return count


class _Names:
    """The names of a model's nodes."""

    def __init__(self, model: ir.Model) -> None:
        self._taken = {node.name for node in nodes(model) if node.name}
        self._numbers: Counter[str] = Counter()  # the last number for each name

    def free(self, name: str) -> str:
        """Return `name`, or the first unused of name_1, name_2, …, and mark it as used."""
        found = name
        while found in self._taken:
            self._numbers[name] += 1
            found = f"{name}_{self._numbers[name]}"
        self._taken.add(found)
        return found


# --- Sort nodes into the order that ONNX requires.


def sort_nodes(model: ir.Model) -> int:
    """Move each node behind those whose values it reads, except in cycles. Returns how many
    moved."""
    found = list(unsorted_node(CheckedModel(model)))
    if not found or not all(finding.fix for finding in found):
        return 0
    graphs: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for graph in graphs:
        graph.sort()
    return len(found)


# --- Remove unused nodes and initializers.


def remove_unread(model: ir.Model, values: Iterable[ir.Value | None]) -> None:
    """Remove unused ones of `values`, with the nodes that write them, and then whatever becomes
    unused. Inputs and outputs of graphs are kept."""
    pending = list(values)
    while pending:
        value = pending.pop()
        if value is None or value.uses() or value.is_graph_output() or value.is_graph_input():
            continue
        node = value.producer()
        if node is None:
            if value.is_initializer() and value.graph is model.graph:
                model.graph.initializers.pop(value.name or "", None)
        elif node.graph is not None and not any(
            output.uses() or output.is_graph_output() for output in node.outputs
        ):
            pending += node.inputs
            node.graph.remove(node, safe=True)


# --- Fold constant computations into initializers; merge duplicate weights.


def share_duplicates(model: ir.Model) -> int:
    """Replace each duplicate initializer by the first one; return how many."""
    count = 0
    for value, first, proven in list(duplicates(model)):
        if proven and not value.is_graph_output():
            value.replace_all_uses_with(first)
            remove_unread(model, [value])
            count += 1
    return count


def fold_constants(model: ir.Model) -> int:
    """Replace nodes that compute only from initializers by ONNX Runtime's result, unless it cannot
    compute it; return how many."""
    count = 0
    order = {node: number for number, node in enumerate(model.graph)}
    for node, before in foldable_nodes(model):
        if not folded_fits(node, before):
            continue
        try:
            arrays = _run(model, node, sorted(before, key=order.__getitem__))
        except InputError:
            continue
        for output, array in zip(list(node.outputs), arrays, strict=True):
            _replace(model, output, array)
        remove_unread(model, node.outputs)
        count += 1
    return count


def _run(model: ir.Model, node: ir.Node, parts: list[ir.Node]) -> list[Any]:
    """Compute the outputs of `node` from initializers, by running `parts` in order."""
    read = {value: None for part in parts for value in part.inputs if value is not None}
    tensors = []
    for value in read:
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None:
            tensors.append(onnx.numpy_helper.from_array(tensor.numpy(), value.name))
    graph = onnx.helper.make_graph(
        [ir.to_proto(part) for part in parts],
        "constants",
        inputs=[],
        outputs=[ir.to_proto(output) for output in node.outputs],
        initializer=tensors,
    )
    imports = [onnx.helper.make_opsetid(*entry) for entry in model.opset_imports.items()]
    proto = onnx.helper.make_model(graph, opset_imports=imports, ir_version=model.ir_version)
    return list(run_model(proto.SerializeToString(), {}).values())


def _replace(model: ir.Model, output: ir.Value, array: Any) -> None:
    """Replace `output` by an initializer with this content."""
    name = f"{output.name}_folded"
    while name in model.graph.initializers:
        name += "_"
    output.replace_all_uses_with(add_initializer(model.graph, ir.tensor(array, name=name)))


# --- Merge two consecutive nodes into one or none.


def merge_pairs(model: ir.Model) -> int:
    """Let the second node of each redundant pair read the input of the first, and remove nodes
    without an effect. Returns how many nodes were changed or removed."""
    count = 0
    for node in list(nodes(model)):
        while node.graph is not None and (first := redundant_first(node)) is not None:
            count += 1
            if node.op_type in ("Squeeze", "Unsqueeze"):
                _bypass(model, node, first.inputs[0])
            else:
                _read_before(model, node, first)
        if node.graph is not None and does_nothing(node) and not node.outputs[0].is_graph_output():
            count += 1
            _bypass(model, node, node.inputs[0])
    return count


def _read_before(model: ir.Model, node: ir.Node, first: ir.Node) -> None:
    """Let `node` do the work of itself and `first`."""
    if node.op_type == "Transpose":
        before, after = permutation(first), permutation(node)
        node.attributes["perm"] = ir.AttrInt64s("perm", [before[axis] for axis in after])
    between = node.inputs[0]
    node.replace_input_with(0, first.inputs[0])
    remove_unread(model, [between])


def _bypass(model: ir.Model, node: ir.Node, value: ir.Value | None) -> None:
    """Let the readers of `node` read `value`, and remove `node`."""
    assert value is not None
    node.outputs[0].replace_all_uses_with(value)
    remove_unread(model, [node.outputs[0]])


# --- `graph check --fix`: a model's file → a repaired one, written if its outputs are the same.


# The repair of each rule: order first, because others need it; names last, because removed nodes
# need none.
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
    """The result of a repair: repaired places by rule, differences of outputs, remaining
    findings."""

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
    """Make the safe repairs in the model of the file, and write it to `out`, with `out`.data if it
    has external data, if its outputs are the same for random inputs.

    `sizes` are those of symbolic dimensions in these inputs. Raises InputError if the model cannot
    be read or run, OutputError if `out` cannot be written, is the input, or would compute something
    else.
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
    """Raise InputError if a required input still has no name."""
    for node in nodes(model):
        for index, meaning in meaningful_inputs(node, opset(model)):
            if (node.op_type, index) in OPTIONAL_INPUTS:
                continue
            raise InputError(
                f"{path}: {node.op_type} {place(node)!r} has no {meaning}, and of which size it "
                "would be is not known: export it with one, or with static shapes"
            )


def _reference(path: Path, folder: Path) -> Path:
    """Return a runnable file equivalent to the model in `path`: itself or, if ONNX Runtime rejects
    it for normalizations without a scale or duplicate node names, a copy with these written out and
    renamed."""
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
