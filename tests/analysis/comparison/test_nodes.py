"""Layers of TensorRT and nodes of ONNX Runtime, brought together by name."""

import pytest

from profiler.compare.operations import TimedLayer, node_groups
from profiler.grammars.names import EngineLayer, engine_layer


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Conv_0 + Relu_1", EngineLayer(("Conv_0", "Relu_1"))),
        ("PWN(PWN(/act/Sigmoid), /act/Mul)", EngineLayer(("/act/Sigmoid", "/act/Mul"))),
        ("PWN(Sigmoid_8 + Mul_9)", EngineLayer(("Sigmoid_8", "Mul_9"))),
        ("{ForeignNode[/l.0/Constant.../l.3/Add]}", EngineLayer(("/l.0/Constant",), "/l.3/Add")),
        ("MatMul_1 || MatMul_2 || MatMul_3", EngineLayer(("MatMul_1", "MatMul_2", "MatMul_3"))),
        (
            "Reformatting CopyNode for Input Tensor 0 to Conv_5 + Add_6",
            EngineLayer(("Conv_5", "Add_6")),
        ),
        (
            "Reformatting CopyNode for Output Tensor 0 to {ForeignNode[a...b]}",
            EngineLayer(("a",), "b"),
        ),
        ("reshape_after_Gemm_48", EngineLayer(("Gemm_48",))),
        ("__myl_MulMeaAddSqrtDiv_myl0_12", EngineLayer(())),
        ("a/b/MaxPool", EngineLayer(("a/b/MaxPool",))),
    ],
)
def test_the_nodes_of_a_layer(name, expected):
    """Fused, pointwise, side by side, compiled, copied: the names that TensorRT writes."""
    assert engine_layer(name) == expected


def _groups(engine, nodes):
    found = node_groups(
        [TimedLayer(*one) for one in engine],
        [TimedLayer(*one) for one in nodes],
        ("tensorrt", "onnxruntime"),
    )
    return [([one.name for one in g.base], [one.name for one in g.new]) for g in found]


def test_a_fused_layer_is_the_set_of_nodes_that_it_replaced():
    """A layer and the copies for it on one side are the nodes in it on the other; what only one
    side has stays alone."""
    copy = "Reformatting CopyNode for Input Tensor 0 to Conv_0 + Relu_1"
    engine = [(copy, 1), ("Conv_0 + Relu_1", 5), ("MaxPool_2", 2), ("__myl_Add_myl0_1", 1)]
    nodes = [("ReorderInput", 1), ("Conv_0", 9), ("Relu_1", 3), ("MaxPool_2", 4)]
    assert _groups(engine, nodes) == [
        ([copy, "Conv_0 + Relu_1"], ["Conv_0", "Relu_1"]),
        (["MaxPool_2"], ["MaxPool_2"]),
        (["__myl_Add_myl0_1"], []),
        ([], ["ReorderInput"]),
    ]


def test_what_fusions_of_onnx_runtime_call_a_node():
    """By its name with the fusion's behind it, by the tensor that it writes, behind its module."""
    engine = [("/c/Conv + /r/Relu", 1), ("MatMul_1 + Add_2", 1), ("Gemm_3", 1), ("Conv__4", 1)]
    nodes = [
        ("/r/Relu_output_0_nchwc", 1),
        ("MatMul_1/MatMulAddFusion", 1),
        ("blocks.0.ff/Gemm_3", 1),
        ("Conv__4:0_nchwc", 1),
    ]
    assert _groups(engine, nodes) == [
        ([left[0]], [right[0]]) for left, right in zip(engine, nodes, strict=True)
    ]


def test_a_foreign_node_is_all_between_its_ends():
    """Also where the other side does not run its first node, a constant; not what another layer
    names."""
    engine = [("a", 1), ("{ForeignNode[constant...e]}", 9), ("c", 1), ("f", 1)]
    nodes = [(name, 1) for name in "abcdef"]
    assert _groups(engine, nodes) == [
        (["a"], ["a"]),
        (["{ForeignNode[constant...e]}"], ["b", "d", "e"]),
        (["c"], ["c"]),
        (["f"], ["f"]),
    ]


def test_layers_that_share_nodes_are_one_group():
    """One side fused a with b, the other b with c: the three are what can be compared."""
    base = [TimedLayer("a + b", 1), TimedLayer("c", 1)]
    new = [TimedLayer("a", 1), TimedLayer("b + c", 1)]
    found = node_groups(base, new, ("tensorrt", "tensorrt"))
    assert [(len(group.base), len(group.new)) for group in found] == [(2, 2)]
