"""Nodes that ONNX Runtime makes and leaves without a name: their layers in a float16 model."""

from __future__ import annotations

import numpy as np
import onnx
import polars as pl
import pytest
from onnx import TensorProto, helper, numpy_helper

import profiler
from profiler.capture import EventCost
from profiler.capture.onnxruntime import operators
from profiler.capture.onnxruntime.onnx_graph import ExecutionOrder, ExportedModel, build_layer_map
from profiler.ort_profiles import NodeKind
from tests.capture.onnx_pipelines import Part, Pipeline, opened

SCOPES = "pkg.torch.onnx.name_scopes"
SOFTMAX = {"ReduceMax", "Sub", "Exp", "ReduceSum"}  # and Div, which writes its output


@pytest.fixture(autouse=True)
def quick_estimate(monkeypatch):
    """The cost of an event is measured once per run; its own test measures it for real."""
    monkeypatch.setattr(operators, "onnx_event_cost", lambda _: EventCost(5_000.0))


def attention(*, named=True):
    """Two attentions in float16, each a Softmax between projections; x is float16[n,4]."""
    nodes, names, value = [], [], "x"
    for block in range(2):
        for module, op_type in (("to_q", "MatMul"), ("softmax", "Softmax"), ("to_out", "MatMul")):
            inputs = [value, f"{module}_{block}.weight"] if op_type == "MatMul" else [value]
            names += inputs[1:]
            value = f"{module}_{block}"
            node = helper.make_node(op_type, inputs, [value], name=f"node_{value}" * named)
            scopes = ["", f"blocks.{block}", f"blocks.{block}.{module}", op_type.lower()]
            node.metadata_props.add(key=SCOPES, value=repr(scopes))
            nodes.append(node)
    weights = [
        numpy_helper.from_array(np.full((4, 4), number, np.float16), name)
        for number, name in enumerate(names, 1)
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["n", 4])
    y = helper.make_tensor_value_info(value, TensorProto.FLOAT16, ["n", 4])
    graph = helper.make_graph(nodes, "attention", [x], [y], weights)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def layers_of(made, *, named):
    """(layer, op type) in order of execution: `made` says what nodes of a block are called."""
    node = "node_" * named
    return [
        (f"blocks.{block}.{module}/{name.format(node=node, block=block)}", op_type)
        for block in (0, 1)
        for module, name, op_type in made
    ]


OF_A_BLOCK = (
    ("to_q", "{node}to_q_{block}", "MatMul"),
    ("softmax", "{node}to_q_{block}/ReduceMax", "ReduceMax"),
    ("softmax", "{node}to_q_{block}/Sub", "Sub"),
    ("softmax", "Exp", "Exp"),
    ("softmax", "ReduceSum", "ReduceSum"),
    ("softmax", "{node}softmax_{block}", "Div"),
    ("to_out", "{node}to_out_{block}", "MatMul"),
)


def run_it(session, x):
    return session.run(None, {"x": np.ones((len(x), 4), np.float16)})[0]


@pytest.mark.parametrize("named", [True, False])
def test_every_command_of_a_float16_model_has_its_module(tmp_path, named):
    """ONNX Runtime has no float16 Softmax for CPUs: it makes five nameless nodes of each, and casts
    around them. All commands have the module of what they were made of, and a layer that does not
    depend on the session's numbers, in every call; also where the model itself names no node."""
    pipe = Pipeline(transformer=Part(opened(attention(named=named))))
    with profiler.profile(pipe, out=tmp_path) as capture:
        pipe(("transformer", 2, run_it), ("transformer", 3, run_it))
    run = profiler.load(capture.path)
    assert run.info.attribution["transformer"].share == 1.0
    modules = {
        f"blocks.{block}.{name}" for block in (0, 1) for name in ("to_q", "softmax", "to_out")
    }
    for call in (0, 1):
        commands = run.commands.filter(pl.col("call") == call).sort("start_ns")
        assert set(commands["module"]) == modules
        inlined = commands.filter(pl.col("op_type").cast(pl.String).is_in([*SOFTMAX, "Div"]))
        rows = inlined.select("module", "op_type").rows()
        assert rows == [
            (f"blocks.{block}.softmax", op_type)
            for block in (0, 1)
            for op_type in ("ReduceMax", "Sub", "Exp", "ReduceSum", "Div")
        ]
        layers = commands.select(pl.col("layer", "op_type").cast(pl.String)).rows()
        assert [row for row in layers if row[1] != "Cast"] == layers_of(OF_A_BLOCK, named=named)


def event(name, op_type):
    return NodeKind(name, op_type, "CPUExecutionProvider")


ORDER = ExecutionOrder(
    (("if", "If", "a"), ("", "Sub", "b"), ("mm", "MatMul", "c"), ("", "Sub", "d"), ("", "Exp", "")),
    frozenset({"then"}),
)
RUN = [("if", "If"), ("Sub_9", "Sub"), ("mm", "MatMul"), ("Sub_4", "Sub"), ("Exp_5", "Exp")]


def test_nameless_nodes_are_told_by_their_place():
    """Numbers tell no order: the first Sub of a run is the first of the graph. Nodes of subgraphs
    are passed over, and a node that writes nothing has no key."""
    events = [event("then", "Add"), *(event(*node) for node in RUN)]
    assert ORDER.keys_of(events) == {"Sub_9": "b", "Sub_4": "d"}


def test_a_run_that_failed_ends_early():
    """The nodes up to the failure are told."""
    assert ORDER.keys_of(event(*node) for node in RUN[:3]) == {"Sub_9": "b"}


@pytest.mark.parametrize(
    "wrong",
    [
        [RUN[0], RUN[2], RUN[1], *RUN[3:]],  # executed in parallel, say
        [*RUN[:4], ("Abs_5", "Abs")],
        [*RUN[:4], ("mine", "Exp")],
        [*RUN, RUN[1]],
    ],
)
def test_another_order_tells_nothing(wrong):
    """Where a run is not the graph's nodes one by one, none is guessed."""
    assert ORDER.keys_of(event(*node) for node in wrong) == {}


def test_casts_belong_to_what_wrote_their_tensor(tmp_path):
    """A tensor in another precision is that of the module which wrote it, whoever reads it; the
    nodes of an inlined operation are the operation's, not the modules' around it."""
    model = attention()
    onnx.save(model, str(tmp_path / "model.onnx"))
    cast, inlined = "InsertedPrecisionFreeCast_", "_inlfunc_Softmax_X"
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], [f"{cast}to_q_0"], name="node_to_q_0"),
        helper.make_node("Exp", [f"{cast}to_q_0"], [f"{cast}{inlined}_Exp"]),
        helper.make_node("Div", [f"{cast}{inlined}_Exp", "x"], [f"{cast}softmax_0"]),
        helper.make_node(
            "Cast", [f"{cast}softmax_0"], ["softmax_0"], name=f"{cast}softmax_0", to=10
        ),
        helper.make_node("MatMul", ["softmax_0", "weight"], ["y"], name="node_to_out_1"),
    ]
    graph = helper.make_graph(nodes, "optimized", model.graph.input, [])
    onnx.save(helper.make_model(graph), str(tmp_path / "optimized.onnx"))
    exported = ExportedModel(tmp_path / "model.onnx")
    found = build_layer_map(exported, tmp_path / "optimized.onnx")
    names = [
        ("node_to_q_0", "MatMul"),
        ("Exp_7", "Exp"),
        ("Div_8", "Div"),
        (f"{cast}softmax_0", "Cast"),
    ]
    keys = found.order.keys_of(event(*node) for node in names)
    assert keys == {"Exp_7": f"{cast}{inlined}_Exp", "Div_8": f"{cast}softmax_0"}
    known = found.knowing([event(*node) for node in names])
    assert [known.layer_of(*node) for node in names] == [
        ("blocks.0.to_q/node_to_q_0", "blocks.0.to_q"),
        ("blocks.0.softmax/node_to_q_0/Exp", "blocks.0.softmax"),
        ("blocks.0.softmax/node_softmax_0", "blocks.0.softmax"),
        ("blocks.0.softmax/node_softmax_0", "blocks.0.softmax"),
    ]
    assert found.layer_of("Exp_7", "Exp") == ("Exp_7", "")
