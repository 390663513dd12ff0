"""A part runs its graph, on its cores, under whatever names the exporter chose."""

import os
import sys
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from profiler.errors import InputError
from profiler.pipelines import Placement
from profiler.pipelines.model_folder import usable_cores
from profiler.pipelines.pipeline import OnnxPart, OnnxVae

linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux lets a process choose its cores"
)


def write_graph(path, inputs, output="out"):
    """Write a graph that adds up its inputs as float32; inputs are (name, type, shape)."""
    nodes, names = [], []
    for name, _type, _shape in inputs:
        names.append(f"{name}_f")
        nodes.append(helper.make_node("Cast", [name], [names[-1]], to=TensorProto.FLOAT))
    nodes.append(helper.make_node("Sum", names, [output]))
    graph = helper.make_graph(
        nodes,
        "sum",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
    )
    opset = helper.make_opsetid("", 18)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=9), path)
    return path


class FakeSession:
    """Stands in for a session; `run` calls `action`."""

    def __init__(self, action):
        self.action = action

    def get_inputs(self):
        return [SimpleNamespace(name="input_ids", type="tensor(int64)", shape=["b", "n"])]

    def get_outputs(self):
        return [SimpleNamespace(name="out")]

    def run(self, _names, feeds):
        return [self.action(feeds)]


IDS = np.array([[1, 2]])


def test_inputs_are_cast_to_what_the_graph_declares(tmp_path):
    """float32 timesteps reach a graph that wants a float16 array and an int64 scalar."""
    path = write_graph(
        tmp_path / "model.onnx",
        [("hidden_states", TensorProto.FLOAT16, ["n"]), ("timestep", TensorProto.INT64, [])],
    )
    part = OnnxPart("transformer", path)
    ones = np.ones(3, dtype=np.float32)
    assert part(hidden_states=ones, timestep=ones * 7)["out"].tolist() == [8, 8, 8]


@pytest.mark.parametrize(
    ("declared", "given"), [("sample", "latent_sample"), ("t", "timestep"), ("z", "latent_sample")]
)
def test_other_exporters_names_are_understood(tmp_path, declared, given):
    """Optimum's input names find the inputs of a graph that calls them otherwise."""
    path = write_graph(tmp_path / "model.onnx", [(declared, TensorProto.FLOAT, ["n"])])
    assert OnnxPart("part", path)(**{given: np.ones(2)})["out"].tolist() == [1, 1]


def test_a_missing_attention_mask_is_all_ones(tmp_path):
    """A text encoder exported with attention_mask runs without masking, as SD3 does."""
    path = write_graph(
        tmp_path / "model.onnx",
        [("input_ids", TensorProto.INT64, ["n"]), ("attention_mask", TensorProto.INT64, ["n"])],
    )
    assert OnnxPart("text_encoder", path)(input_ids=np.array([4, 5]))["out"].tolist() == [5, 6]


def test_inputs_that_do_not_fit_are_named(tmp_path):
    """A graph with another input, or without ours, gives a sentence with both names."""
    path = write_graph(tmp_path / "model.onnx", [("guidance", TensorProto.FLOAT, ["n"])])
    part = OnnxPart("transformer", path)
    with pytest.raises(InputError, match="no input 'timestep', only guidance"):
        part(timestep=np.ones(1))
    with pytest.raises(InputError, match="wants the input guidance"):
        part()
    path = write_graph(tmp_path / "odd.onnx", [("timestep", TensorProto.BFLOAT16, ["n"])])
    with pytest.raises(InputError, match=r"bfloat16.*float32 or float16"):
        OnnxPart("transformer", path)(timestep=np.ones(1))


def test_a_graph_that_cannot_be_loaded_is_named(tmp_path):
    """A broken file and a missing one both give the part, the path and a recommendation."""
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    for name in ("model.onnx", "none.onnx"):
        with pytest.raises(InputError, match=rf"cannot load vae from .*{name}.*check that"):
            _ = OnnxPart("vae", tmp_path / name).session


def test_the_session_opens_once_and_can_be_replaced(pipeline):
    """The session is lazy, stays, gives way to another one, and is lazy again after `del`."""
    part = pipeline.text_encoder
    opened = []
    original = part.open_session
    part.open_session = lambda options: opened.append(options) or original(options)
    first = part.session
    assert part.session is first
    assert len(opened) == 1
    part.session = FakeSession(lambda feeds: feeds["input_ids"] * 2)
    assert part(input_ids=IDS)["out"].tolist() == [[2, 4]]
    del part.session
    assert isinstance(part.session, onnxruntime.InferenceSession)
    assert len(opened) == 2


def test_a_profiled_session_runs_in_the_parts_place(pipeline, tmp_path):
    """Fresh options take enable_profiling, and the session made with them serves the part."""
    part = pipeline.text_encoder
    ids = pipeline.tokenizer("a cat")
    plain = part(input_ids=ids)["text_embeds"]
    options = part.session_options()
    assert options is not part.session_options()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    part.session = part.open_session(options)
    np.testing.assert_array_equal(part(input_ids=ids)["text_embeds"], plain)
    assert part.session.end_profiling().startswith(str(tmp_path))


def test_forward_is_looked_up_on_the_instance(pipeline):
    """Calling a part goes through an instance's own `forward`, which a profiler puts there."""
    part = pipeline.vae.decoder
    part.forward = lambda **inputs: {"sample": inputs["latent_sample"] + 1}
    assert pipeline.vae.decode(np.zeros(2)).tolist() == [1, 1]
    assert isinstance(pipeline.vae, OnnxVae)


@linux
@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
def test_a_pinned_part_runs_on_its_own_cores(model_folder):
    """While a part of one of two devices runs, its thread is on that device's first core."""
    before = os.sched_getaffinity(0)
    placement = Placement.plan(["cpu:0", "cpu:1"])
    path = model_folder / "text_encoder" / "model.onnx"
    seen = []
    for device in ("cpu:0", "cpu:1"):
        part = OnnxPart("text_encoder", path, device, placement=placement)
        part.session = FakeSession(lambda _feeds: seen.append(os.sched_getaffinity(0)))
        part(input_ids=IDS)
    assert seen == [{share.cores[0]} for share in placement.shares]
    assert os.sched_getaffinity(0) == before


@linux
@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
def test_the_threads_cores_come_back_after_a_failed_run(model_folder):
    """A session that raises leaves the calling thread on its former cores."""
    before = os.sched_getaffinity(0)
    placement = Placement.plan(["cpu:0", "cpu:1"])
    path = model_folder / "text_encoder" / "model.onnx"
    part = OnnxPart("text_encoder", path, "cpu:1", placement=placement)

    def fail(_feeds):
        raise RuntimeError("in the graph")

    part.session = FakeSession(fail)
    with pytest.raises(RuntimeError, match="in the graph"):
        part(input_ids=IDS)
    assert os.sched_getaffinity(0) == before


def test_threads_follow_the_placement(model_folder):
    """A device of n cores has n threads: n - 1 on its cores but the first, counted from 1."""
    path = model_folder / "text_encoder" / "model.onnx"
    placement = Placement.plan(["cpu:0", "cpu:1"], cores=[0, 1, 2, 4, 6, 8])
    options = OnnxPart("t", path, "cpu:1", placement=placement).session_options()
    assert options.intra_op_num_threads == 3
    assert options.get_session_config_entry("session.intra_op_thread_affinities") == "7;9"
    alone = OnnxPart("t", path).session_options()
    assert alone.intra_op_num_threads == len(usable_cores())
    with pytest.raises(RuntimeError):
        alone.get_session_config_entry("session.intra_op_thread_affinities")
