"""ONNX models of a few nodes with one constant, written without the package `onnx`: what this
machine is measured with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from profiler.capture.onnxruntime.wire_format import length_field, number_field

__all__ = ["CONSTANT", "SmallNode", "chain", "small_model"]

CONSTANT = "c"
"""The name of the model's constant."""

_IR_VERSION, _OPSET = 8, 17
_FLOAT = 1  # onnx.TensorProto.FLOAT


class SmallNode(NamedTuple):
    """A node without attributes and with one output."""

    op_type: str
    inputs: Sequence[str]
    output: str


def chain(count: int) -> list[SmallNode]:
    """As many sums with the constant, one after the other, from x to y."""
    names = ["x", *(f"t{i}" for i in range(1, count)), "y"]
    return [SmallNode("Add", (read, CONSTANT), written) for read, written in pairwise(names)]


def small_model(nodes: Iterable[SmallNode], dims: Sequence[int], constant: Any) -> bytes:
    """A model from x to y, both float32 of these dims; `constant` is an array of float32."""
    graph = b"".join(length_field(1, _node(place, node)) for place, node in enumerate(nodes))
    graph += length_field(2, "small") + length_field(5, _tensor(constant))
    graph += length_field(11, _end("x", dims)) + length_field(12, _end("y", dims))
    opset = length_field(1, "") + number_field(2, _OPSET)
    return number_field(1, _IR_VERSION) + length_field(7, graph) + length_field(8, opset)


def _node(place: int, node: SmallNode) -> bytes:
    inputs = b"".join(length_field(1, name) for name in node.inputs)
    name = f"{node.op_type.lower()}_{place}"
    named = length_field(2, node.output) + length_field(3, name)
    return inputs + named + length_field(4, node.op_type)


def _tensor(array: Any) -> bytes:
    dims = b"".join(number_field(1, size) for size in array.shape)
    data = np.ascontiguousarray(array, dtype="<f4").tobytes()
    return dims + number_field(2, _FLOAT) + length_field(8, CONSTANT) + length_field(9, data)


def _end(name: str, dims: Sequence[int]) -> bytes:
    """The input or output of that name."""
    shape = b"".join(length_field(1, number_field(1, size)) for size in dims)
    tensor = number_field(1, _FLOAT) + length_field(2, shape)
    return length_field(1, name) + length_field(2, length_field(1, tensor))
