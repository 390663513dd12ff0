"""Normalizations without a scale, written out as ONNX defines them.

ONNX Runtime does not run a LayerNormalization whose scale has the empty name, so that its repair
cannot be compared with the model itself. It is compared with this: mean, difference, variance,
quotient, and no scale.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from profiler.graph.checks.finding import opset
from profiler.graph.infer import infer_types

__all__ = ["write_out_norms"]

_NORMS = ("LayerNormalization", "RMSNormalization", "InstanceNormalization")
_AXES_AS_INPUT = 18  # opset since which ReduceMean takes its axes so


def write_out_norms(model: ir.Model) -> int:
    """Replace each normalization whose scale has the empty name by its definition; one of unknown
    rank stays. Returns how many were replaced."""
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
    """Nodes that are put in the place of one node."""

    def __init__(self, model: ir.Model, node: ir.Node) -> None:
        self._version = opset(model)
        self._node = node
        assert node.graph is not None
        self._graph = node.graph

    def add(self, op_type: str, *inputs: ir.Value, **attributes: object) -> ir.Value:
        """A node before the replaced one; returns what it writes."""
        new = ir.node(op_type, list(inputs), attributes)
        self._graph.insert_before(self._node, new)
        return new.outputs[0]

    def constant(self, array: object) -> ir.Value:
        """A constant."""
        return self.add("Constant", value=ir.tensor(np.asarray(array)))

    def mean(self, value: ir.Value, axes: list[int]) -> ir.Value:
        """The mean over `axes`, which are kept with size 1."""
        if self._version >= _AXES_AS_INPUT:
            return self.add("ReduceMean", value, self.constant(np.array(axes)), keepdims=1)
        return self.add("ReduceMean", value, axes=axes, keepdims=1)

    def finish(self, result: ir.Value) -> None:
        """Let `result` stand where the replaced node's first output stood; remove the node."""
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
