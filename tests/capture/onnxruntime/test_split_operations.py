"""Commands of split operations: layer, number and category from the nodes' metadata."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from profiler.capture.onnxruntime.onnx_graph import ExportedModel, build_layer_map
from profiler.capture.onnxruntime.operators import Attributed, Commands, Placement
from profiler.graph import model
from profiler.ort_profiles import NodeColumns, NodeKind

CPU = "CPUExecutionProvider"


def node(op_type, name, inputs, outputs, **entries):
    """A node; `entries` are its metadata of ours."""
    made = helper.make_node(op_type, inputs, outputs, name)
    for key, value in entries.items():
        made.metadata_props.add(key=f"profile_sd3.{key}", value=str(value))
    return made


def part(op_type, name, inputs, outputs, index, *, layer="fc", **entries):
    return node(
        op_type, name, inputs, outputs, layer=layer, operation="fc", command_index=index, **entries
    )


def write(path, *nodes):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    save(helper.make_model(helper.make_graph(nodes, "main_graph", [x], [y])), str(path))
    return path


def event(name, op_type, start_ns):
    return NodeKind(name, op_type, CPU), start_ns


def rows(layers, *events):
    """(layer, command index, category) of each command."""
    count = len(events)
    nodes = NodeColumns(
        kinds=[kind for kind, _ in events],
        kind=np.arange(count, dtype=np.int32),
        thread=np.ones(count, dtype=np.int64),
        start_ns=np.array([start_ns for _, start_ns in events]),
        duration_ns=np.full(count, 10),
        arena_bytes=np.full(count, -1),
    )
    placement = Placement("cpu:0", {CPU: "cpu:0"})
    columns = Commands(placement, layers, nodes).of(nodes, 0, Attributed())
    return [
        (columns.strings[layer], int(index), columns.tracks[track].category)
        for layer, index, track in zip(
            columns.layer, columns.command_index, columns.track, strict=True
        )
    ]


SPLIT = (
    part("MatMul", "fc/part_0", ["x"], ["a"], 0),
    part("MatMul", "fc/part_1", ["x"], ["b"], 1),
    part("Concat", "fc/concat", ["a", "b"], ["y"], 2, category="copy"),
)


def test_the_names_of_the_metadata_are_the_graph_packages():
    """Capture, which knows nothing of graphs, reads what they write."""
    from profiler.capture.onnxruntime import onnx_graph as split_operations

    for name in ("LAYER", "COMMAND_INDEX", "OPERATION", "CATEGORY"):
        assert getattr(split_operations, f"_{name}") == getattr(model, name)


def test_numbers_are_those_of_the_metadata(tmp_path):
    """Whatever the order of execution; a copy has a track and category of its own."""
    layers = build_layer_map(ExportedModel(write(tmp_path / "m.onnx", *SPLIT)), None)
    events = [
        event("fc/part_1", "MatMul", 10),
        event("fc/part_0", "MatMul", 20),
        event("fc/concat", "Concat", 30),
    ]
    assert rows(layers, *events) == [
        ("fc", 1, "compute"),
        ("fc", 0, "compute"),
        ("fc", 2, "copy"),
    ]


@pytest.mark.parametrize("name", ["fc/part_1/MatMulAddFusion/", "fused fc/part_1", "b_nchwc"])
def test_what_optimizations_make_of_a_part(tmp_path, name):
    """A fused part keeps its number, and so does one of another layout."""
    layers = build_layer_map(ExportedModel(write(tmp_path / "m.onnx", *SPLIT)), None)
    assert rows(layers, event(name, "FusedMatMul", 0)) == [("fc", 1, "compute")]


def test_other_commands_of_the_operation_follow(tmp_path):
    """A part that runs once more comes after the largest; other nodes of the module are operators
    of their own."""
    nodes = [
        part("MatMul", "fc/part_0", ["x"], ["a"], 3, layer="block"),
        part("MatMul", "fc/part_1", ["x"], ["b"], 4, layer="block"),
        part("Concat", "fc/concat", ["a", "b"], ["c"], 5, layer="block", category="copy"),
        node("Relu", "relu", ["c"], ["y"]),
    ]
    layers = build_layer_map(ExportedModel(write(tmp_path / "m.onnx", *nodes)), None)
    events = [
        event("relu", "Relu", 5),
        event("fc/part_1", "MatMul", 10),
        event("fc/part_1", "MatMul", 20),
        event("fc/part_0", "MatMul", 30),
    ]
    assert [(layer, index) for layer, index, _ in rows(layers, *events)] == [
        ("block/relu", 0),  # whose only neighbour has the module path `block`
        ("block/fc", 4),
        ("block/fc", 5),
        ("block/fc", 3),
    ]


def test_a_layer_called_after_its_node_is_no_module_path(tmp_path):
    """Neighbours do not take it over: they keep their own names, as without the split."""
    nodes = (*SPLIT[:2], node("Relu", "relu", ["a"], ["y"]))
    layers = build_layer_map(ExportedModel(write(tmp_path / "m.onnx", *nodes)), None)
    assert layers.place_of("fc/part_0", "MatMul") == ("fc", False)
    assert layers.place_of("relu", "Relu") == ("relu", False)


def test_an_operation_takes_the_path_of_its_neighbours_as_one(tmp_path):
    """Parts of an operation without a path of its own have what the operation would have."""
    scopes = {"pkg.torch.onnx.name_scopes": "['', 'block', 'block.norm', 'norm']"}
    relu = node("Relu", "relu", ["y1"], ["y"])
    for key, value in scopes.items():
        relu.metadata_props.add(key=key, value=value)
    concat = part("Concat", "fc/concat", ["a", "b"], ["y1"], 2, category="copy")
    layers = build_layer_map(
        ExportedModel(write(tmp_path / "m.onnx", *SPLIT[:2], concat, relu)), None
    )
    for name in ("fc/part_0", "fc/part_1", "fc/concat"):
        assert layers.place_of(name, "") == ("block.norm", True)


@pytest.mark.parametrize("index", ["", "one", "-1", "1" * 30])
def test_numbers_that_are_none(tmp_path, index):
    """A node whose number is no number is a node like others."""
    made = part("MatMul", "fc/part_0", ["x"], ["y"], index)
    layers = build_layer_map(ExportedModel(write(tmp_path / "m.onnx", made)), None)
    assert layers.part_of("fc/part_0") is None
