"""Divisions of sizes round down as Python's do, where ONNX's would cut towards zero."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from profiler.graph import run_model
from profiler.graph.export_torch import round_divisions_down


def half(sign):
    """sign * size // 2 + 8, of the size of an input's first axis."""
    nodes = [
        helper.make_node("Shape", ["x"], ["size"], "shape", end=1),
        helper.make_node("Mul", ["size", "sign"], ["signed"], "mul"),
        helper.make_node("Div", ["signed", "two"], ["halved"], "div"),
        helper.make_node("Add", ["halved", "eight"], ["y"], "add"),
    ]
    numbers = {"sign": sign, "two": 2, "eight": 8}
    graph = helper.make_graph(
        nodes,
        "half",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1])],
        [helper.make_tensor(k, TensorProto.INT64, [1], [v]) for k, v in numbers.items()],
        value_info=[helper.make_tensor_value_info("halved", TensorProto.INT64, [1])],
    )
    opsets = [helper.make_opsetid("", 18)]
    return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def computed(model, size):
    data = ir.to_proto(model).SerializeToString()
    return int(run_model(data, {"x": np.zeros(size, np.float32)})["y"][0])


@pytest.mark.parametrize("size", [0, 1, 2, 3, 10, 11])
def test_negative_sizes_round_down(size):
    """Half of a negated size is Python's, odd sizes included, by two more nodes."""
    model = half(-1)
    assert round_divisions_down(model) == 1
    assert computed(model, size) == -size // 2 + 8
    assert len(model.graph) == 6


def test_the_plain_division_is_wrong():
    """Without the repair an odd size is one off: what is repaired is there."""
    assert computed(half(-1), 3) == -3 // 2 + 8 + 1


def test_sizes_that_cannot_be_negative_stay():
    """A division of a size itself needs nothing."""
    model = half(1)
    assert round_divisions_down(model) == 0
    assert len(model.graph) == 4
    assert computed(model, 7) == 7 // 2 + 8
