"""What follows an operation element by element is done in its parts, so that fusions stay."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from profiler.capture.onnxruntime.onnx_graph import ExportedModel, build_layer_map
from profiler.graph import Target, split_model
from tests.graph.split_models import check_same, commands, make_model, numbers

X = numbers(5, 6)
IMAGE = numbers(1, 16, 8, 8)
CONV = {"w": numbers(16, 16, 3, 3)}


def test_bias_and_activation_are_done_in_parts():
    """A constant is cut with the columns; one Concat stands at the end, and belongs there."""
    nodes = [
        ("MatMul", ["x", "w"], "m", {}),
        ("Add", ["b", "m"], "a", {}),
        ("Relu", ["a"], "y", {}),
    ]
    model = make_model(nodes, {"x": X}, {"w": numbers(6, 5), "b": numbers(5)})
    check_same(model, {"x": X}, Target(parts=2))
    assert commands(model) == [
        ("MatMul_0/part_0", "MatMul_0", 0, ""),
        ("MatMul_0/part_1", "MatMul_0", 1, ""),
        ("Add_1/part_0", "Add_1", 0, ""),
        ("Add_1/part_1", "Add_1", 1, ""),
        ("Relu_2/part_0", "Relu_2", 0, ""),
        ("Relu_2/part_1", "Relu_2", 1, ""),
        ("Relu_2/concat", "Relu_2", 2, "copy"),
    ]


@pytest.mark.parametrize("shape", [(), (1,), (5,), (1, 5), (6, 1), (1, 1)])
@pytest.mark.parametrize("op_type", ["Add", "Mul", "Div"])
def test_constants_of_all_shapes(shape, op_type):
    """What broadcasts goes to each part whole, the columns' own values with their columns."""
    x = numbers(6, 6)
    constant = np.asarray(numbers(*shape) + 3, dtype=np.float32)
    nodes = [("MatMul", ["x", "w"], "m", {}), (op_type, ["m", "c"], "y", {})]
    model = make_model(nodes, {"x": x}, {"w": numbers(6, 5), "c": constant})
    check_same(model, {"x": x}, Target(parts=3))
    assert [node.op_type for node in model.graph].count(op_type) == 3


@pytest.mark.parametrize(
    "case", ["another reader", "an output", "an activation", "a matrix", "more dimensions"]
)
def test_where_parts_are_put_together_at_once(case):
    """Others read the result, or what follows is no constant of one axis: it stays whole."""
    weights = {"w": numbers(6, 5), "c": numbers(5)}
    nodes = [("MatMul", ["x", "w"], "m", {}), ("Add", ["m", "c"], "y", {})]
    outputs = ["y"]
    feeds = {"x": X}
    if case == "another reader":
        nodes.append(("Relu", ["m"], "z", {}))
        outputs.append("z")
    elif case == "an output":
        outputs.append("m")
    elif case == "an activation":
        feeds["c"] = weights.pop("c")
    elif case == "a matrix":
        weights["c"] = numbers(5, 5)
    else:
        weights["c"] = numbers(2, 1, 5)
    model = make_model(nodes, feeds, weights, outputs)
    check_same(model, feeds, Target(parts=2))
    assert [node.op_type for node in model.graph][:4] == ["MatMul", "MatMul", "Concat", "Add"]


def test_channels_of_groups():
    """Biases of grouped convolutions go with the channels of their groups."""
    nodes = [("Conv", ["x", "w"], "c", {"group": 4}), ("Add", ["c", "b"], "y", {})]
    weights = {"w": numbers(16, 4, 3, 3), "b": numbers(1, 16, 1, 1)}
    model = make_model(nodes, {"x": IMAGE}, weights)
    check_same(model, {"x": IMAGE}, Target(parts=3))
    assert [node.op_type for node in model.graph].count("Add") == 3


def layers(model, folder):
    """Layers of what ONNX Runtime makes of the model, all its optimizations on."""
    folder.mkdir()
    path, optimized = folder / "model.onnx", folder / "optimized.onnx"
    ir.save(model, path)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(optimized)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found = build_layer_map(ExportedModel(path), optimized)
    nodes = onnx.load(optimized, load_external_data=False).graph.node
    return {found.place_of(node.name, node.op_type)[0] for node in nodes}


def test_a_fused_bias_without_modules(tmp_path):
    """Where nodes tell no module, all commands have the name of the operation that was split."""
    nodes = [("MatMul", ["x", "w"], "m", {}), ("Add", ["m", "b"], "y", {})]
    model = make_model(nodes, {"x": X}, {"w": numbers(6, 8), "b": numbers(8)})
    split_model(model, Target(parts=2))
    assert layers(model, tmp_path / "parts") == {"MatMul_0"}


@pytest.mark.parametrize("form", ["gemm", "matmul", "matmul and activation", "conv", "two convs"])
def test_fusions_leave_the_same_layers(tmp_path, form):
    """An operation that is fused away in the whole model is fused away in the parts."""
    conv = {"pads": [1, 1, 1, 1]}
    nodes, feeds, weights = {
        "gemm": (
            [("Gemm", ["x", "w"], "g", {}), ("Relu", ["g"], "y", {})],
            {"x": X},
            {"w": numbers(6, 8)},
        ),
        "matmul": (
            [("MatMul", ["x", "w"], "m", {}), ("Add", ["m", "b"], "y", {})],
            {"x": X},
            {"w": numbers(6, 8), "b": numbers(8)},
        ),
        "matmul and activation": (
            [
                ("MatMul", ["x", "w"], "m", {}),
                ("Add", ["m", "b"], "a", {}),
                ("Relu", ["a"], "y", {}),
            ],
            {"x": X},
            {"w": numbers(6, 8), "b": numbers(8)},
        ),
        "conv": (
            [("Conv", ["x", "w"], "c", conv), ("Relu", ["c"], "y", {})],
            {"x": IMAGE},
            CONV,
        ),
        "two convs": (
            [
                ("Conv", ["x", "w"], "c", conv),
                ("Relu", ["c"], "r", {}),
                ("Conv", ["r", "w"], "d", conv),
                ("Sigmoid", ["d"], "y", {}),
            ],
            {"x": IMAGE},
            CONV,
        ),
    }[form]

    def made():
        model = make_model(nodes, feeds, weights)
        for number, node in enumerate(model.graph):
            node.name = f"/block.{number // 2}/{number}/{node.op_type}"
        return model

    model = made()
    split_model(model, Target(parts=2))
    assert layers(model, tmp_path / "parts") == layers(made(), tmp_path / "whole")
