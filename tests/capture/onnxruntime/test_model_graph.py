"""Nodes of ONNX files, read without `onnx`: as that package reads them, and of damaged files."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from profiler.capture.onnxruntime.onnx_graph import read_graph
from profiler.capture.onnxruntime.weights import CONSTANT, SmallNode, chain, small_model
from profiler.errors import InputError
from profiler.pipelines import default_model_folder
from profiler.trace.schema import serialized
from tests.capture.onnx_pipelines import gathering, opened, weighted

EMBEDDED = sorted(default_model_folder().glob("*/model.onnx"))


def by_onnx(graph):
    """What `read_graph` is to give, from what onnx reads."""
    nodes = []
    for node in graph.node:
        metadata = {entry.key: entry.value for entry in node.metadata_props}
        graphs = [by_onnx(each.g) for each in node.attribute if each.HasField("g")]
        graphs += [by_onnx(one) for each in node.attribute for one in each.graphs]
        named = (node.name, node.op_type, [*node.input], [*node.output])
        nodes.append((*named, metadata, graphs))
    return graph.name, nodes


def as_tuples(graph):
    return graph.name, [
        (n.name, n.op_type, n.inputs, n.outputs, n.metadata, [as_tuples(g) for g in n.graphs])
        for n in graph.nodes
    ]


def branching():
    """An `If` whose branches are graphs with an `If` each, and texts beyond ASCII."""
    inner = helper.make_graph(
        [helper.make_node("Add", ["é", "b"], ["층"], name="안")], "내부", [], []
    )
    branch = helper.make_node("If", ["c"], ["z"], name="if_in", then_branch=inner, other=[inner])
    middle = helper.make_graph([branch, helper.make_node("Relu", ["z"], [""])], "middle", [], [])
    outer = helper.make_node("If", ["c"], ["y"], then_branch=middle, else_branch=inner, n=7, f=1.5)
    outer.metadata_props.add(key="k", value="v")
    value = helper.make_tensor("t", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    constant = helper.make_node("Constant", [], ["k"], value=value)
    return helper.make_model(helper.make_graph([outer, constant], "outer", [], []))


@pytest.mark.parametrize("path", EMBEDDED, ids=lambda path: path.parent.name)
def test_embedded_models_as_onnx_reads_them(path):
    """Names, types, tensors and metadata of every node, in the order of the file."""
    assert as_tuples(read_graph(path)) == by_onnx(onnx.load(path, load_external_data=False).graph)


@pytest.mark.parametrize("make", [branching, gathering])
def test_made_models_as_onnx_reads_them(make):
    """Graphs in graphs, attributes of each kind, empty names, any script; from bytes and a file."""
    model = make()
    data = model.SerializeToString()
    assert as_tuples(read_graph(data)) == by_onnx(model.graph)
    assert as_tuples(read_graph(io.BytesIO(data))) == by_onnx(model.graph)


def test_optimized_graphs_as_onnx_reads_them(tmp_path):
    """What ONNX Runtime writes."""
    path = tmp_path / "optimized.onnx"
    opened(str(weighted(tmp_path)), optimized_model_filepath=str(path))
    assert as_tuples(read_graph(path)) == by_onnx(onnx.load(path).graph)


def test_every_node_is_counted_once():
    """Those of subgraphs come after the node that has them."""
    types = [node.op_type for node in read_graph(branching().SerializeToString()).all_nodes()]
    assert types == ["If", "Add", "If", "Add", "Add", "Relu", "Constant"]


def test_external_data_is_not_opened(tmp_path):
    """The nodes are known where the weights are gone."""
    path = weighted(tmp_path, external=True)
    (tmp_path / "weights.bin").unlink()
    assert [node.name for node in read_graph(path).nodes] == ["matmul"]


def test_every_prefix_is_read_or_refused():
    """A model that is cut anywhere, or damaged at any byte, is one sentence or a graph."""
    data = branching().SerializeToString()
    broken = [data[:end] for end in range(len(data))]
    broken += [data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :] for at in range(len(data))]
    said = []
    for each in broken:
        try:
            read_graph(each)
        except InputError as error:
            said.append(str(error))
    assert len(said) > len(data)  # each that is cut, and some of the others
    assert all("the session's model is not a readable ONNX model" in text for text in said)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"ORTM" * 20, "no known kind"),
        (b"\x08\x08", "no graph"),
        (b"\x3a\xff\xff\xff\xff\x0f", "cut"),
        (b"\xff" * 20, "does not end"),
    ],
)
def test_what_is_no_model(tmp_path, content, why):
    """A file of something else is one sentence that names it."""
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"model\.onnx is not a readable ONNX model.*{why}"):
        read_graph(path)


def test_graphs_in_graphs_are_bounded():
    """A model of graphs nested in each other without end is refused."""
    data = b""
    for _ in range(70):  # graph.node.attribute.g
        for number in (6, 5, 1):
            data = serialized((number, data))
    with pytest.raises(InputError, match="nested more than 64 deep"):
        read_graph(serialized((7, data)))


def test_small_models_are_valid_and_compute():
    """What the machine is measured with passes onnx's checker, and gives what it says."""
    ones = np.ones((2, 2), np.float32)
    product = small_model([SmallNode("MatMul", ("x", CONSTANT), "y")], [2, 2], 3 * ones)
    sums = small_model(chain(5), [2, 2], ones)
    for model, expected in ((product, 6 * ones), (sums, 6 * ones)):
        onnx.checker.check_model(onnx.load_from_string(model), full_check=True)
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, {"x": ones})[0], expected)
    assert len(read_graph(sums).nodes) == 5


def test_capture_needs_no_onnx():
    """Where `onnx` cannot be imported, everything of ONNX Runtime's backend can."""
    code = """
import importlib, pkgutil, sys
sys.modules["onnx"] = sys.modules["onnx_ir"] = None
import profiler.capture.onnxruntime as backend
for module in pkgutil.iter_modules(backend.__path__):
    importlib.import_module(f"{backend.__name__}.{module.name}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
