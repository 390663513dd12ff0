"""What the values of a graph hold: constants, sizes, or data; and the nodes of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

import numpy as np
import onnx_ir as ir

__all__ = [
    "DATA_ERRORS",
    "Kind",
    "constant",
    "constant_tensor",
    "is_constant",
    "is_settled",
    "kinds",
    "nodes",
    "only_node",
    "producer",
    "scalar",
]

_SIZES = {"Shape", "Size"}
_RANDOM = {
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    *("Bernoulli", "Multinomial", "Dropout"),
}
# What onnx_ir raises where data of a tensor is missing, or not what its dims and type say.
DATA_ERRORS = (OSError, ValueError, TypeError, AssertionError)
_SMALL_BYTES = 1 << 16  # constants that are read to understand a graph


class Kind(Enum):
    """Where a value comes from: the model alone, sizes of tensors alone, or inputs."""

    CONSTANT = 0
    SIZE = 1
    DATA = 2


def nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node: those of subgraphs and functions included."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def producer(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that writes `value`, if one of `op_types` of ONNX (any where none is named)."""
    node = None if value is None else value.producer()
    if node is None or (op_types and (node.op_type not in op_types or node.domain)):
        return None
    return node


def is_settled(node: ir.Node) -> bool:
    """Whether the attributes of `node` are its own: in a function they may be those of the call."""
    return not any(attribute.is_ref() for attribute in node.attributes.values())


def only_node(uses: Iterable[Any], *op_types: str) -> ir.Node | None:
    """The first node among uses of a value that is one of `op_types` of ONNX."""
    return next((use.node for use in uses if use.node.op_type in op_types), None)


def constant_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor that `value` always holds, unread; None where it is computed or given."""
    if value is None or value.is_graph_input():
        return None
    return ir.convenience.get_const_tensor(value)


def constant(value: ir.Value | None, most_bytes: int = _SMALL_BYTES) -> Any:
    """The array that `value` always holds, None where it is computed, given, or larger."""
    tensor = constant_tensor(value)
    try:
        small = tensor is not None and tensor.nbytes <= most_bytes
        return tensor.numpy() if tensor is not None and small else None
    except DATA_ERRORS:
        return None


def is_constant(value: ir.Value | None) -> bool:
    """Whether `value` is an initializer, or what a Constant writes, and no input overrides it."""
    return constant_tensor(value) is not None


def scalar(value: ir.Value | None) -> float | None:
    """The number that `value` always holds, None where it holds something else."""
    array = constant(value)
    if array is None or array.size != 1 or array.dtype.kind not in "fiu":
        return None
    return float(np.asarray(array).reshape(-1)[0])


def kinds(model: ir.Model) -> dict[ir.Value, Kind]:
    """Where each value of the main graph comes from; values of subgraphs and functions are not
    looked at. Nodes that hold subgraphs, or draw random numbers, give data."""
    graph = model.graph
    found: dict[ir.Value, Kind] = dict.fromkeys(graph.initializers.values(), Kind.CONSTANT)
    found |= dict.fromkeys(graph.inputs, Kind.DATA)
    for node in graph:
        sources = [found.get(value, Kind.DATA) for value in node.inputs if value is not None]
        if node.op_type in _RANDOM or any(
            attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
            for attribute in node.attributes.values()
        ):
            kind = Kind.DATA
        elif node.op_type in _SIZES and not node.domain:
            kind = Kind.SIZE
        else:
            kind = max(sources, key=lambda source: source.value, default=Kind.CONSTANT)
        found |= dict.fromkeys(node.outputs, kind)
    return found
