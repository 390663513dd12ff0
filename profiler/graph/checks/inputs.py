"""Inputs of nodes: names that are empty where they carry meaning, or that nothing writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from profiler.graph.checks.finding import CheckedModel, GraphFinding, opset, place, rule
from profiler.graph.values import is_settled, nodes

__all__ = ["OPTIONAL_INPUTS", "dangling_input", "empty_input", "meaningful_inputs", "neutral_value"]

# Optional inputs whose empty name converters take for a tensor's: (operation, index) → its meaning.
OPTIONAL_INPUTS = {
    ("LayerNormalization", 2): "bias",
    ("Conv", 2): "bias",
    ("ConvTranspose", 2): "bias",
    ("Gemm", 2): "C",
}


@rule
def empty_input(checked: CheckedModel) -> Iterator[GraphFinding]:
    """An input that carries meaning has the empty name."""
    version = opset(checked.model)
    for node in nodes(checked.model):
        for index, meaning in meaningful_inputs(node, version):
            yield GraphFinding(
                "empty_input",
                "error",
                place(node),
                f"{node.op_type}: input {index} ({meaning}) has the empty name",
                _recommendation(node, meaning),
                fix=_can_fill(node, index),
            )


def meaningful_inputs(node: ir.Node, version: int) -> list[tuple[int, str]]:
    """The inputs of `node` that are named "" though they carry meaning: index, meaning."""
    if node.domain:
        return []
    empty = [index for index, value in enumerate(node.inputs) if value is None]
    if not empty:
        return []
    required = _required(node.op_type, version)
    named = {
        index: required.get(index) or OPTIONAL_INPUTS.get((node.op_type, index)) for index in empty
    }
    return [(index, meaning) for index, meaning in named.items() if meaning]


def _required(op_type: str, version: int) -> dict[int, str]:
    """Names of the required inputs of an operation, by index; empty for one without a schema."""
    if not onnx.defs.has(op_type, max_inclusive_version=max(version, 1)):
        return {}
    schema = onnx.defs.get_schema(op_type, max_inclusive_version=max(version, 1))
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    return {i: entry.name for i, entry in enumerate(schema.inputs) if entry.option == single}


def _can_fill(node: ir.Node, index: int) -> bool:
    last = index == len(node.inputs) - 1
    return (last and (node.op_type, index) in OPTIONAL_INPUTS) or neutral_value(
        node, index
    ) is not None


def neutral_value(node: ir.Node, index: int) -> Any:
    """The scale of ones or bias of zeros that changes nothing as input `index` of a normalization;
    None where its shape or type is not known, or the input means something else."""
    value = node.inputs[0]
    if index not in (1, 2) or value is None or value.shape is None or value.dtype is None:
        return None
    if not is_settled(node):
        return None
    if node.op_type in ("LayerNormalization", "RMSNormalization"):
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
        sizes = list(value.shape)[axis:]
    elif node.op_type == "InstanceNormalization":
        sizes = list(value.shape)[1:2]
    else:
        return None
    if not sizes or not all(isinstance(size, int) for size in sizes):
        return None
    fill = np.ones if index == 1 else np.zeros
    return fill(sizes, dtype=value.dtype.numpy())


def _recommendation(node: ir.Node, meaning: str) -> str:
    if "Normalization" in node.op_type:
        neutral = "bias of zeros" if meaning.lower() in ("b", "bias") else f"{meaning} of ones"
        return (
            f"give it a {neutral.lower()}, which changes nothing, or give the norms of the "
            "module weights and biases before export"
        )
    return f"give it a {meaning}, or leave the input out; export with a newer exporter"


@rule
def dangling_input(checked: CheckedModel) -> Iterator[GraphFinding]:
    """An input of a node, or output of the model, is named, but nothing writes it."""
    known = set(checked.model.graph.inputs)
    for graph in checked.model.graphs():
        known |= {*graph.inputs, *graph.initializers.values()}
    for function in checked.model.functions.values():
        known |= set(function.inputs)
    for node in nodes(checked.model):
        for value in node.inputs:
            if value is not None and value not in known and value.producer() is None:
                yield GraphFinding(
                    "dangling_input",
                    "error",
                    place(node),
                    f"{node.op_type} reads {value.name!r}, which no node writes",
                    "export the model again, or add the tensor as an input or initializer",
                )
    for value in checked.model.graph.outputs:
        if value.producer() is None and value not in known:
            yield GraphFinding(
                "dangling_input",
                "error",
                value.name or "",
                f"the model gives {value.name!r}, which no node writes",
                "export the model again",
            )
