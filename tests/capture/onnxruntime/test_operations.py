"""What executed nodes are called: after operations of the given model, in every session alike."""

from __future__ import annotations

import pytest

from profiler.capture.onnxruntime.onnx_graph import (
    LayerMap,
    Node,
    operations_of,
    path_of,
)


def node(name, op_type, inputs, *outputs):
    return Node(name, op_type, inputs.split(), [*outputs])


GIVEN = (
    node("conv", "Conv", "x w", "c"),
    node("act", "Relu", "c", "a"),
    node("fc", "MatMul", "a v", "m"),
    node("bias", "Add", "m b", "s"),
    node("erf", "Erf", "s", "e"),
    node("gelu", "Mul", "s e", "g"),
    node("", "Softmax", "g", "y"),
)


def executed(number):
    """What ONNX Runtime makes of it; `number` is of the session."""
    return [
        node(f"ReorderInput_token_{number}", "ReorderInput", "x", f"reordered_{number}"),
        node("c_nchwc", "Conv", f"reordered_{number} w", "c_nchwc"),
        node(f"ReorderOutput_token_{number + 1}", "ReorderOutput", "c_nchwc", "c"),
        node("act", "Relu", "c", "a"),
        node("fc/MatMulAddFusion/", "Gemm", "a v b", "s"),
        node("GPT2Gelu", "FastGelu", "s", "g"),
        node("", "Exp", "g", "_inlfunc_Softmax_Exp"),
        node("", "ReduceSum", "_inlfunc_Softmax_Exp", "_inlfunc_Softmax_Sum"),
        node("", "Div", "_inlfunc_Softmax_Exp _inlfunc_Softmax_Sum", "y"),
    ]


def test_nodes_are_called_after_operations_of_the_model():
    """By the name that they keep, by the tensor that they write, else beside an operation."""
    found = operations_of(GIVEN, executed(7))
    assert found == {
        "ReorderInput_token_7": "ReorderInput",
        "c_nchwc": "conv",
        "ReorderOutput_token_8": "conv/ReorderOutput",
        "fc/MatMulAddFusion/": "fc",
        "GPT2Gelu": "gelu",
        "_inlfunc_Softmax_Exp": "gelu/Exp",
        "_inlfunc_Softmax_Sum": "ReduceSum",
    }  # act and y have their own


def test_numbers_of_a_session_are_in_no_name():
    """Two sessions that number alike work otherwise give it the same names, in the same order."""
    names = [[*operations_of(GIVEN, executed(number)).values()] for number in (7, 120)]
    assert names[0] == names[1]


def test_an_operation_is_one_node():
    """Of two nodes that could stand for an operation the first does, the other is beside it; none
    does where the operation is executed itself."""
    twice = [node("fused fc", "Gemm", "a", "t"), node("fc/Cast/", "Cast", "t", "m")]
    assert operations_of(GIVEN, twice) == {"fused fc": "fc", "fc/Cast/": "fc/Cast"}
    beside = [node("fc/Cast/", "Cast", "t", "u"), node("fc", "MatMul", "u v", "m")]
    assert operations_of(GIVEN, beside) == {"fc/Cast/": "Cast"}


@pytest.mark.parametrize(
    ("operation", "module", "path"),
    [
        ("node_MatMul_3", "blocks.0.attn", "blocks.0.attn/node_MatMul_3"),
        ("/blocks.0/attn/MatMul", "blocks.0.attn", "/blocks.0/attn/MatMul"),
        ("conv/ReorderOutput", "conv_in", "conv_in/conv/ReorderOutput"),
    ],
)
def test_path_of_an_operation(operation, module, path):
    """A name that is a path stays; any other stands behind its module's."""
    assert path_of(operation, module) == path


def test_layers_of_nodes_without_a_module():
    """They are called after their operation, by itself; a node that nobody knows keeps its name."""
    layers = LayerMap({}, operations=operations_of(GIVEN, executed(7)))
    assert layers.layer_of("fc/MatMulAddFusion/", "Gemm") == ("fc", "")
    assert layers.layer_of("Sub_5", "Sub") == ("Sub_5", "")
    assert layers.layer_of("", "Sub") == ("Sub", "")
