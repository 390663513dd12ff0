"""Module paths find their way from a model's nodes to those that an optimizer made of them."""

from __future__ import annotations

from profiler.graph import COMMAND_INDEX, LAYER
from profiler.graph.model import OPERATION, module_scopes, path_of
from profiler.graph.optimize.files import keep_paths
from tests.graph.optimized_models import model_of, node, value


def test_a_survivor_keeps_all_metadata():
    """A node of the same type that writes the same value keeps what stood on it, whatever its name
    is now."""
    x = value("x", 2)
    before = node("Relu", [x], "y", "net.act")
    before.metadata_props["own"] = "kept"
    y = value("x", 2)
    after = node("Relu", [y], "y")
    after.name = "renamed"
    found = keep_paths(model_of([x], [before]), model_of([y], [after]))
    assert after.metadata_props["own"] == "kept"
    assert path_of(after) == "net.act"
    assert (found.survived, found.fused, found.without) == (1, 0, 0)


def test_a_fused_node_gets_the_longest_common_path():
    """Three nodes of two modules become one: it lies where both lie, and knows the classes."""
    x = value("x", 2)
    first = node("Abs", [x], "a", "block.0.norm")
    second = node("Exp", first.outputs, "b", "block.0.norm")
    third = node("Relu", second.outputs, "y", "block.0.mlp")
    z = value("x", 2)
    fused = node("Everything", [z], "y", domain="com.microsoft")
    found = keep_paths(model_of([x], [first, second, third]), model_of([z], [fused]))
    assert path_of(fused) == "block.0"
    assert module_scopes(fused) == [("", "pkg.Net"), ("block", "pkg.block"), ("block.0", "pkg.0")]
    assert (found.survived, found.fused) == (0, 1)


def test_what_is_still_there_was_not_replaced():
    """A fused node stands for nothing before a value that the new graph has too."""
    x = value("x", 2)
    kept = node("Abs", [x], "a", "embed")
    gone = node("Exp", kept.outputs, "b", "block.0.mlp.fc1")
    last = node("Relu", gone.outputs, "y", "block.0.mlp.act")
    z = value("x", 2)
    still = node("Abs", [z], "a")
    fused = node("ExpRelu", still.outputs, "y", domain="com.microsoft")
    keep_paths(model_of([x], [kept, gone, last]), model_of([z], [still, fused]))
    assert [path_of(still), path_of(fused)] == ["embed", "block.0.mlp"]


def test_new_nodes_get_the_path_of_what_they_go_into():
    """A product that became Reshape, Gemm, Reshape is all of its layer, by position alone."""
    x, w = value("x", 2, 3, 4), value("w", 4, 5)
    product = node("MatMul", [x, w], "h", "attn.to_q")
    relu = node("Relu", product.outputs, "y", "act")
    z, v = value("x", 2, 3, 4), value("w", 4, 5)
    flat = node("Flatten", [z], "new_1")
    gemm = node("Gemm", [flat.outputs[0], v], "new_2")
    back = node("Reshape", gemm.outputs, "h")
    after = model_of([z, v], [flat, gemm, back, node("Relu", back.outputs, "y")])
    found = keep_paths(model_of([x, w], [product, relu]), after)
    assert [path_of(one) for one in after.graph] == ["attn.to_q"] * 3 + ["act"]
    assert found.without == 0


def test_a_name_alone_says_who_a_node_is():
    """Where an optimizer renames the values but no node, nodes are known by name and type; a name
    that another type of node has now says nothing: it is known by its place."""
    for op_type, path in (("Abs", "one"), ("Neg", "two")):
        x = value("x", 2)
        first = node("Abs", [x], "a", "one")
        last = node("Relu", first.outputs, "y", "two")
        z = value("x", 2)
        named = node(op_type, [z], "renamed")
        named.name = "n_a"
        after = model_of([z], [named, node("Relu", named.outputs, "y")])
        keep_paths(model_of([x], [first, last]), after)
        assert path_of(named) == path


def test_sizes_do_not_shorten_a_path():
    """A computed size that goes into a fused node lies in another module, and does not count."""
    x = value("x", 2, 3)
    size = node("Shape", [x], "s", "elsewhere")
    turned = node("Abs", [x], "a", "attn.core")
    last = node("Reshape", [turned.outputs[0], size.outputs[0]], "y", "attn.core")
    z = value("x", 2, 3)
    fused = node("Attention", [z], "y", domain="com.microsoft")
    keep_paths(model_of([x], [size, turned, last]), model_of([z], [fused]))
    assert path_of(fused) == "attn.core"


def test_paths_in_names_are_written_as_layers():
    """Names of the exporter by TorchScript hold the path; a fused node has a name of its own, so
    its layer is written on it."""
    x = value("x", 2)
    first = node("Abs", [x], "a")
    first.name = "/encoder/layers.0/mlp/Abs"
    last = node("Relu", first.outputs, "y")
    last.name = "/encoder/layers.0/act/Relu"
    z = value("x", 2)
    fused = node("AbsRelu", [z], "y", domain="com.microsoft")
    keep_paths(model_of([x], [first, last]), model_of([z], [fused]))
    assert fused.metadata_props == {LAYER: "encoder.layers.0"}


def test_parts_of_a_split_operation_stay_parts():
    """A fused part keeps layer and operation, and the number of the first of its commands; a part
    that became two nodes has its number once."""
    x = value("x", 2)
    product = node("MatMul", [x, x], "a")
    bias = node("Add", product.outputs * 2, "y")
    for one, index in ((product, "1"), (bias, "3")):
        one.metadata_props.update({LAYER: "fc", OPERATION: one.name, COMMAND_INDEX: index})
    z = value("x", 2)
    flat = node("Flatten", [z], "new")
    gemm = node("Gemm", [flat.outputs[0], z], "y")
    keep_paths(model_of([x], [product, bias]), model_of([z], [flat, gemm]))
    assert gemm.metadata_props == {LAYER: "fc", OPERATION: "n_a", COMMAND_INDEX: "1"}
    assert flat.metadata_props == {LAYER: "fc", OPERATION: "n_a"}


def test_a_fused_node_over_two_layers_is_no_part():
    """A node that does parts of two layers is a command of neither."""
    x = value("x", 2)
    first = node("Abs", [x], "a")
    last = node("Relu", first.outputs, "y")
    for one, layer in ((first, "block.fc1"), (last, "block.fc2")):
        one.metadata_props.update({LAYER: layer, OPERATION: one.name, COMMAND_INDEX: "0"})
    z = value("x", 2)
    fused = node("AbsRelu", [z], "y", domain="com.microsoft")
    keep_paths(model_of([x], [first, last]), model_of([z], [fused]))
    assert fused.metadata_props == {LAYER: "block"}
