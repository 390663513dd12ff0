"""`graph annotate`: times of commands on the nodes that they stand for."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from profiler.analysis.operators import command_positions
from profiler.capture.onnxruntime.onnx_graph import ExportedModel, build_layer_map
from profiler.errors import InputError, OutputError
from profiler.graph import read_graph, read_model
from profiler.graph.annotate import MeasuredCommand, Measurement, annotate_file, annotate_model
from profiler.graph.verify import executed_nodes, optimized_graph, origins_of
from profiler.pipelines import default_model_folder
from profiler.run import load_bundle
from tests.command_line import run_command
from tests.graph.models import external_model, graph, save
from tests.graph.recording import recorded

_TWO_RELUS = "[m] t = MatMul(x, w)  [first] u = Relu(t)  [second] y = Relu(u)"
PARTS = ("text_encoder", "text_encoder_3", "transformer", "vae_decoder")


def by_name(node, op_type):
    return node or op_type


def in_one_layer(node, op_type):
    return "block"


def two_relus(folder):
    arrays = {"w": np.ones((4, 8), np.float32)}
    return save(graph("float[2,4] x", "float[2,8] y", _TWO_RELUS, arrays=arrays), folder)


def command(layer, op_type, duration_us, *, position=0, of=1, calls=2, **more):
    duration_ns = duration_us * 1000 * calls
    return MeasuredCommand(layer, op_type, position, of, calls, duration_ns, **more)


def props(model):
    return {node.name: dict(node.metadata_props) for node in model.graph}


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """A run of two steps of the tiny model."""
    folder = tmp_path_factory.mktemp("traces")
    recorded(default_model_folder(), folder, "a")
    return folder


def test_measured_values_stand_on_the_node(tmp_path):
    """Time, share, calls, bytes and role of a node are the means of its calls, and shares are of
    all commands."""
    model = read_model(two_relus(tmp_path))
    commands = [
        command("m", "MatMul", 30, bytes_read=320, bytes_written=64, role="mlp"),
        command("first", "Relu", 10),
    ]
    found = annotate_model(model, commands, by_name)
    expected = {
        "profile_sd3.time": "30.0 µs a call",
        "profile_sd3.share": "75.00 %",
        "profile_sd3.calls": "2",
        "profile_sd3.bytes_read": "160 bytes read a call",
        "profile_sd3.bytes_written": "32 bytes written a call",
        "profile_sd3.role": "mlp",
        "profile_sd3.layer": "m",
        "profile_sd3.layer_time": "30.0 µs a call, 75.00 %: the whole layer",
    }
    assert props(model)["m"] == expected
    assert props(model)["second"] == {}
    assert [(node.node, node.duration_ns) for node in found.nodes] == [
        ("m", 60000),
        ("first", 20000),
    ]
    assert found.placed == "100.0 % at nodes"


def test_time_that_cannot_be_told_apart_stays_at_the_layer(tmp_path):
    """Two nodes of a layer and op type get no time of their own unless the order of execution is
    known; a layer that the model lacks is named with its time."""
    model = read_model(two_relus(tmp_path))
    commands = [
        command("block", "Relu", 10, of=2),
        command("block", "Relu", 20, position=1, of=2),
        command("block", "MatMul", 60),
        command("elsewhere", "Add", 10),
    ]
    found = annotate_model(model, commands, in_one_layer)
    assert found.placed == "60.0 % at nodes, 30.0 % at layers alone, 10.0 % nowhere"
    assert found.unplaced == (("elsewhere", "Add", 20000),)
    assert "profile_sd3.time" not in props(model)["first"]
    assert props(model)["first"]["profile_sd3.layer_time"].startswith("90.0 µs a call, 90.00 %")


def test_order_of_execution_tells_nodes_of_a_layer_apart(tmp_path):
    """The n-th command of a layer and op type is the n-th such node that was executed."""
    path = two_relus(tmp_path)
    model = read_model(path)
    commands = [
        command("block", "Relu", 10, of=2),
        command("block", "Relu", 20, position=1, of=2),
    ]
    executed, values = executed_nodes(path, in_one_layer)
    found = annotate_model(model, commands, in_one_layer, executed, values)
    assert {node.node: node.duration_ns for node in found.nodes} == {
        "first": 20000,
        "second": 40000,
    }
    assert props(model)["m"]["profile_sd3.executed"] == "no: folded or removed"


def test_several_commands_of_the_only_node_are_added_up(tmp_path):
    """The parts of a split run are time of the operation in the model that is not split."""
    model = read_model(two_relus(tmp_path))
    commands = [command("m", "MatMul", 5, position=n, of=3) for n in range(3)]
    annotate_model(model, commands, by_name)
    assert props(model)["m"]["profile_sd3.time"] == "15.0 µs a call"
    assert props(model)["m"]["profile_sd3.calls"] == "2"


def test_a_fused_node_counts_at_the_node_that_names_it(tmp_path):
    """ONNX Runtime fuses a MatMul and the Add of its bias: the time stands on the MatMul, and the
    Add says where it is counted."""
    text = graph(
        "float[2,4] x",
        "float[2,8] y",
        "[m] t = MatMul(x, w)  [bias] u = Add(t, b)  [act] y = Relu(u)",
        arrays={"w": np.ones((4, 8), np.float32), "b": np.ones(8, np.float32)},
    )
    path = save(text, tmp_path)
    with optimized_graph(path) as optimized:
        executed, values = executed_nodes(optimized, in_one_layer)
    model = read_model(path)
    kinds = [node.op_type for node in executed]
    assert "MatMul" not in kinds  # it was fused
    commands = [command("block", kind, 10) for kind in kinds]
    found = annotate_model(model, commands, in_one_layer, executed, values)
    assert found.at_nodes_ns == found.total_ns
    assert props(model)["m"]["profile_sd3.executed_as"] == kinds[0]
    assert "bias" in props(model)["m"]["profile_sd3.stands_for"]
    assert props(model)["bias"]["profile_sd3.counted_at"] == "m"


def test_what_has_another_precision_counts_at_what_it_was(tmp_path):
    """ONNX Runtime computes a float16 Softmax in float32, by nameless nodes: the last one, and the
    cast of its output, count at the Softmax."""
    text = graph(
        "float16[2,4] x",
        "float16[4,2] y",
        "[soft] t = Softmax(x)  [turn] y = Transpose(t)",
    )
    path = save(text, tmp_path)
    with optimized_graph(path) as optimized:
        executed, values = executed_nodes(optimized, by_name)
    origins = origins_of(read_graph(path), executed, values)
    named = [None if o.counted_at is None else o.counted_at.name for o in origins]
    types = [node.op_type for node in executed]
    assert types == ["Cast", "ReduceMax", "Sub", "Exp", "ReduceSum", "Div", "Cast", "Transpose"]
    assert named == [None, None, None, None, None, "soft", "soft", "turn"]


@pytest.mark.parametrize("part", PARTS)
def test_every_executed_node_counts_once(part):
    """Of the tiny model's parts, each executed node that keeps its name is placed at the node of
    that name, and no node is fused into two."""
    path = default_model_folder() / part / "model.onnx"
    with optimized_graph(path) as optimized:
        layers = build_layer_map(ExportedModel(path), optimized)
        executed, values = executed_nodes(optimized, lambda *node: layers.place_of(*node)[0])
    model = read_graph(path)
    origins = origins_of(model, executed, values)
    names = {node.name for node in model.graph}
    kept = [(n, o) for n, o in zip(executed, origins, strict=True) if n.name in names]
    assert len(kept) > 0.6 * len(executed)  # convolutions in ONNX Runtime's layout lose theirs
    convolutions = [o for n, o in zip(executed, origins, strict=True) if n.op_type == "Conv"]
    assert all(origin.counted_at.op_type == "Conv" for origin in convolutions)
    assert all(origin.counted_at.name == node.name for node, origin in kept)
    fused = [other for origin in origins for other in origin.others]
    assert len(fused) == len(set(fused))
    anchors = {origin.counted_at for origin in origins}
    assert not anchors & set(fused)


def test_the_order_of_execution_is_that_of_the_trace(traces):
    """The commands of a recorded call are, one by one, the nodes of the graph that ONNX Runtime
    writes: what placing by position relies on."""
    run = load_bundle(traces / "a")
    path = default_model_folder() / "transformer" / "model.onnx"
    with optimized_graph(path) as optimized:
        layers = build_layer_map(ExportedModel(path), optimized)
        executed, _ = executed_nodes(optimized, lambda *node: layers.place_of(*node)[0])
    rows = command_positions(run, "transformer")
    told = list(zip(rows["layer"], rows["op_type"], strict=True))
    assert told == [(node.layer, node.op_type) for node in executed]
    assert set(rows["calls"]) == {2}


def test_annotated_transformer_has_the_time_of_its_run(traces, tmp_path, capsys):
    """Nearly all time is placed, times of nodes add up to what is said, and the model is the same:
    it runs, and metadata are all that was added."""
    source, out = default_model_folder() / "transformer/model.onnx", tmp_path / "hot.onnx"
    assert not run_command("graph", "annotate", source, traces, "-o", out)
    said = capsys.readouterr().out
    assert "transformer, " in said
    assert "2 calls of run a" in said
    model, before = read_graph(out), onnx.load(source)
    total_us = float(model.metadata_props["profile_sd3.time"].split()[0])
    times = [
        float(node.metadata_props["profile_sd3.time"].split()[0])
        for node in model.graph
        if "profile_sd3.time" in node.metadata_props
    ]
    assert 0.99 * total_us < sum(times) < 1.001 * total_us
    roles = {node.metadata_props.get("profile_sd3.role") for node in model.graph}
    assert {"attention", "mlp", "norm", "modulation"} <= roles
    after = onnx.load(out)
    for proto in (before, after):
        for node in proto.graph.node:
            kept = [p for p in node.metadata_props if not p.key.startswith("profile_sd3.")]
            del node.metadata_props[:]
            node.metadata_props.extend(kept)
    assert list(after.graph.node) == list(before.graph.node)
    onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])


def test_annotating_again_replaces_what_was_written(tmp_path):
    """A second run's times stand where the first run's stood, and none of these stays."""
    path = two_relus(tmp_path)
    model = read_model(path)
    annotate_model(model, [command("m", "MatMul", 30), command("first", "Relu", 3)], by_name)
    annotate_model(model, [command("m", "MatMul", 50)], by_name)
    assert props(model)["m"]["profile_sd3.time"] == "50.0 µs a call"
    assert not any(key.endswith(".time") for key in props(model)["first"])


def test_folder_becomes_an_annotated_copy(traces, tmp_path, capsys):
    """Every part of a pipeline is annotated in a copy of its folder; a model that the run does not
    know is copied."""
    source = tmp_path / "source"
    shutil.copytree(default_model_folder(), source)
    (source / "other").mkdir()
    two_relus(source / "other")
    assert not run_command("graph", "annotate", source, traces, "-o", tmp_path / "hot")
    assert "other/model.onnx: copied" in capsys.readouterr().out
    for name in ("text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae_decoder"):
        told = read_graph(tmp_path / "hot" / name / "model.onnx").metadata_props
        assert told["profile_sd3.submodule"] == name.removesuffix("_decoder")
    other = Path("other/model.onnx")
    assert (tmp_path / "hot" / other).read_bytes() == (source / other).read_bytes()
    assert (tmp_path / "hot/model_index.json").is_file()


@pytest.mark.parametrize("folder", ["", "elsewhere"])
def test_external_data_is_referenced_correctly(tmp_path, folder):
    """Beside its model the output shares its data, elsewhere it has a copy; both can be read."""
    source = external_model(tmp_path)
    out = tmp_path / folder / "hot.onnx"
    annotate_file(source, out, Measurement([command("m", "MatMul", 1)], by_name))
    weight = read_model(out).graph.initializers["w"].const_value
    assert weight.numpy()[1, 1] == 17.0
    names = {path.name for path in out.parent.iterdir() if path.is_file()}
    assert names == (
        {"hot.onnx", "hot.onnx.data"} if folder else {"model.onnx", "w.data", "hot.onnx"}
    )


def test_nothing_is_written_over_an_input(tmp_path):
    """The model itself and its data are refused as outputs, and stay."""
    source = external_model(tmp_path)
    measurement = Measurement([command("m", "MatMul", 1)], by_name)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for out in (source, tmp_path / "w.data"):
        with pytest.raises(OutputError, match="never written over"):
            annotate_file(source, out, measurement)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_model_that_was_not_run_is_refused(tmp_path):
    """Where no layer of the run is in the model, nothing is written."""
    source = two_relus(tmp_path)
    with pytest.raises(
        InputError, match=r"none of the layers that the run measured, such as 'x\.y'"
    ):
        annotate_file(
            source, tmp_path / "hot.onnx", Measurement([command("x.y", "Add", 1)], by_name)
        )
    with pytest.raises(InputError, match="no operator times"):
        annotate_file(source, tmp_path / "hot.onnx", Measurement([], by_name))
    assert not (tmp_path / "hot.onnx").exists()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--submodule", "unet"), "no submodule unet: give one of text_encoder"),
        ((), "cannot be told: give --submodule"),
    ],
)
def test_submodules_that_are_not_told_are_asked_for(traces, tmp_path, capsys, more, sentence):
    """A file whose name says nothing needs --submodule, which has to be one of the run."""
    source = two_relus(tmp_path)
    assert run_command("graph", "annotate", source, traces, "-o", tmp_path / "hot.onnx", *more) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_capture_names_layers_of_an_annotated_model_as_before(traces, tmp_path):
    """What was written on the nodes changes no layer of a run of the annotated model."""
    source, out = default_model_folder() / "transformer/model.onnx", tmp_path / "hot.onnx"
    options = ("-o", out, "--submodule", "transformer")
    assert not run_command("graph", "annotate", source, traces, *options)
    shutil.copy(source.with_name("config.json"), tmp_path)
    before, after = (build_layer_map(ExportedModel(path), None) for path in (source, out))
    assert after.modules == before.modules
    assert after.parts.by_node == before.parts.by_node == {}


def test_parts_of_a_split_model_have_their_own_times(tmp_path):
    """A run of a split model is placed on its parts; on the whole model, on the operation."""
    models = tmp_path / "split"
    whole = default_model_folder() / "text_encoder" / "model.onnx"
    assert not run_command("graph", "split", default_model_folder(), models, "--parts", 2)
    recorded(models, tmp_path / "runs", "s", steps=1)
    layer = "text_model.encoder.layers.0.mlp.fc1"
    found = {}
    for name, model in (("parts", models / "text_encoder" / "model.onnx"), ("whole", whole)):
        out = tmp_path / f"{name}.onnx"
        assert not run_command("graph", "annotate", model, tmp_path / "runs", "-o", out)
        nodes = [n for n in read_graph(out).graph if n.metadata_props.get("profile_sd3.time")]
        found[name] = [n for n in nodes if n.metadata_props["profile_sd3.layer"] == layer]
    parts = [node.name for node in found["parts"] if "/part_" in (node.name or "")]
    assert len({name.rsplit("/", 1)[1] for name in parts}) == 2
    assert "MatMul" in {node.op_type for node in found["whole"]}
