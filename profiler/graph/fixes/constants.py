"""What is computed from initializers alone → initializers; weights stored twice → one."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.checks.constants import duplicates, foldable_nodes, folded_fits
from profiler.graph.fixes.removal import remove_unread
from profiler.graph.verification import run_model

__all__ = ["fold_constants", "share_duplicates"]


def share_duplicates(model: ir.Model) -> int:
    """Let the readers of each duplicate read the first of them."""
    count = 0
    for value, first, proven in list(duplicates(model)):
        if proven and not value.is_graph_output():
            value.replace_all_uses_with(first)
            remove_unread(model, [value])
            count += 1
    return count


def fold_constants(model: ir.Model) -> int:
    """Replace nodes that compute from initializers alone by what ONNX Runtime computes for them;
    what it cannot compute stays."""
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
    """What `node` writes, computed by `parts`, in order, from the initializers that they read."""
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
    """Let the readers of `output` read an initializer of the same content."""
    name = f"{output.name}_folded"
    while name in model.graph.initializers:
        name += "_"
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, const_value=tensor)
    value.shape, value.dtype = ir.Shape(array.shape), tensor.dtype
    model.graph.register_initializer(value)
    output.replace_all_uses_with(value)
