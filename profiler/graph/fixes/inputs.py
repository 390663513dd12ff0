"""Empty names of inputs → the scale of ones or bias of zeros that changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

from profiler.graph.checks.finding import opset
from profiler.graph.checks.inputs import (
    OPTIONAL_INPUTS,
    meaningful_inputs,
    neutral_value,
)
from profiler.graph.infer import infer_types

__all__ = ["fill_empty_inputs"]

_MOST_ROUNDS = 1000  # shapes after a filled node are known one node later


def fill_empty_inputs(model: ir.Model) -> int:
    """Give normalizations the scale or bias that they lack; leave an optional last one out where
    that is not of known size, or of another operation. Returns how many inputs were repaired; a
    scale of unknown size stays."""
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
    """Fill one input; `shared` holds the initializers made so far."""
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
    """A new initializer of the main graph, under a name that is free."""
    taken = {value.name for graph in model.graphs() for value in _values(graph)}
    sizes = "x".join(map(str, array.shape))
    base = f"neutral_{meaning}_{sizes}"
    name, number = base, 1
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
    value.shape, value.dtype = ir.Shape(array.shape), ir.tensor(array).dtype
    model.graph.register_initializer(value)
    return value


def _values(graph: ir.Graph | ir.GraphView) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
