"""Layers of ONNX nodes: module paths from the exporter's metadata, or from the nodes' names."""

from __future__ import annotations

import json
import os

import onnx
import pytest
from onnx import TensorProto, helper

from profiler.capture.onnxruntime.onnx_graph import ExportedModel, build_layer_map
from profiler.errors import InputError

SCOPES = "pkg.torch.onnx.name_scopes"
CLASSES = "pkg.torch.onnx.class_hierarchy"


def model(path, *nodes, name="main_graph"):
    """Write a graph of (op type, node's name, inputs, output, metadata) nodes, read from `x`."""
    made = []
    for op_type, node_name, inputs, output, metadata in nodes:
        node = helper.make_node(op_type, inputs, [output], name=node_name)
        for key, value in metadata.items():
            node.metadata_props.add(key=key, value=repr(value))
        made.append(node)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info(nodes[-1][3], TensorProto.FLOAT, [2])
    onnx.save(helper.make_model(helper.make_graph(made, name, [x], [y])), str(path))
    return path


def layers(exported, optimized, *names):
    found = build_layer_map(ExportedModel(exported), optimized)
    return [found.place_of(name, "Op") for name in names]


# What optimum-onnx 0.1.0 exports: no metadata, nodes named after their modules.
TRACED = (
    ("Relu", "/Relu", ["x"], "/Relu_output_0", {}),
    ("MatMul", "/blocks.0/attn/to_q/MatMul", ["/Relu_output_0", "x"], "q", {}),
    ("Add", "/blocks.0/attn/to_q/Add_1", ["q", "x"], "added", {}),
    ("Identity", "Identity_7", ["added"], "copied", {}),
    ("Conv", "/pos_embed/proj/Conv", ["copied", "x"], "/pos_embed/proj/Conv_output_0", {}),
)


@pytest.mark.parametrize(
    ("config", "root"),
    [
        ({"_class_name": "Transformer"}, "Transformer"),
        ({"_class_name": "ORTTextEncoder", "architectures": ["CLIPTextModel"]}, "CLIPTextModel"),
        (None, "main_graph"),
    ],
)
def test_names_of_the_exporter_by_torchscript(tmp_path, config, root):
    """A node's name is its module's path and its operation; the model itself is called after its
    class where a config.json tells, else after the graph; other nodes have their neighbours'."""
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    exported = model(tmp_path / "model.onnx", *TRACED)
    assert layers(exported, None, *(node[1] for node in TRACED)) == [
        (root, True),
        ("blocks.0.attn.to_q", True),
        ("blocks.0.attn.to_q", True),
        (root, True),  # between blocks.0.attn.to_q and pos_embed.proj
        ("pos_embed.proj", True),
    ]


def test_what_optimizations_make_of_such_names(tmp_path):
    """Fused nodes are found by the name that they keep as a prefix, convolutions of another
    layout by their output's name, new ones by what they write or by their neighbours."""
    exported = model(tmp_path / "model.onnx", *TRACED)
    fused = "/blocks.0/attn/to_q/MatMul/MatMulAddFusion/"
    conv = "/pos_embed/proj/Conv_output_0_nchwc"
    optimized = model(
        tmp_path / "optimized.onnx",
        ("Relu", "Relu_token_3", ["x"], "/Relu_output_0", {}),
        ("Gemm", fused, ["/Relu_output_0", "x"], "added", {}),
        ("Conv", conv, ["added", "x"], "reorder_token_5", {}),
        ("Reorder", "ReorderOutput", ["reorder_token_5"], "/pos_embed/proj/Conv_output_0", {}),
        ("Abs", "Abs_token_9", ["/pos_embed/proj/Conv_output_0"], "new", {}),
    )
    assert layers(
        exported, optimized, "Relu_token_3", fused, conv, "ReorderOutput", "Abs_token_9"
    ) == [
        ("main_graph", True),
        ("blocks.0.attn.to_q", True),
        ("pos_embed.proj", True),
        ("pos_embed.proj", True),
        ("pos_embed.proj", True),
    ]


def test_metadata_wins_over_names(tmp_path):
    """Where the exporter has left module paths, names that only look like paths are not read."""
    metadata = {SCOPES: ["", "fc1", "linear"], CLASSES: ["m.Net", "torch.nn.Linear", "linear"]}
    exported = model(
        tmp_path / "model.onnx",
        ("Relu", "/other/Relu", ["x"], "a", metadata),
        ("Relu", "node_Relu_1/Fusion", ["a"], "b", {SCOPES: ["", "relu"], CLASSES: ["m.Net", "x"]}),
    )
    assert layers(exported, None, "/other/Relu", "node_Relu_1/Fusion") == [
        ("fc1", True),
        ("Net", True),
    ]


def test_layers_that_graph_optimize_wrote(tmp_path):
    """A fused node without the exporter's metadata has the module path that is written on it; the
    name of an operation there is no path."""
    path = model(
        tmp_path / "m.onnx",
        ("FastGelu", "FastGelu_0", ["x"], "a", {}),
        ("Relu", "fc/extra", ["a"], "y", {}),
    )
    loaded = onnx.load(path)
    for node, layer in zip(loaded.graph.node, ("blocks.0.mlp", "fc"), strict=True):
        node.metadata_props.add(key="profile_sd3.layer", value=layer)
    loaded.graph.node[1].metadata_props.add(key="profile_sd3.operation", value="fc")
    onnx.save(loaded, path)
    found = build_layer_map(ExportedModel(path), None)
    assert found.place_of("FastGelu_0", "FastGelu") == ("blocks.0.mlp", True)
    assert "fc" not in found.modules.values()


@pytest.mark.parametrize("name", ["/Relu_first", "model/dense/Relu", "/dense/Sigmoid", "", "/"])
def test_names_of_other_exporters(tmp_path, name):
    """A name that does not end with its own operation is no module path."""
    exported = model(tmp_path / "model.onnx", ("Relu", name, ["x"], "y", {}))
    assert layers(exported, None, name) == [(name or "Op", False)]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere an open file cannot be deleted")
def test_a_model_that_is_deleted_meanwhile(tmp_path):
    """A model that goes before the run's end, and its config.json, have told their layers."""
    (tmp_path / "config.json").write_text('{"_class_name": "Transformer"}', "utf-8")
    exported = ExportedModel(model(tmp_path / "model.onnx", *TRACED))
    for path in list(tmp_path.iterdir()):
        path.unlink()
    for _ in range(2):
        found = build_layer_map(exported, None)
        assert found.place_of("/Relu", "Relu") == ("Transformer", True)


def test_a_model_that_is_not_there(tmp_path):
    """One that cannot be read is a sentence when its layers are wanted."""
    with pytest.raises(InputError, match=r"model\.onnx is not a readable ONNX model"):
        build_layer_map(ExportedModel(tmp_path / "model.onnx"), None)


@pytest.mark.parametrize("text", ["[]", "{", '{"architectures": 3}', '{"_class_name": null}'])
def test_a_config_that_tells_nothing(tmp_path, text):
    """A config.json of another shape is passed over."""
    (tmp_path / "config.json").write_text(text, "utf-8")
    exported = model(tmp_path / "model.onnx", *TRACED)
    assert layers(exported, None, "/Relu") == [("main_graph", True)]
