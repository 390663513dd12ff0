"""Bytes of weights: from ONNX graphs without loading any, from torch modules, by device."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import profiler
from profiler.capture import EventCost, Options
from profiler.capture.backend import backend_of
from profiler.capture.onnxruntime import operators
from profiler.capture.onnxruntime.weights import model_files_bytes, model_weights
from profiler.capture.run_info import pipeline_facts
from profiler.errors import InputError
from profiler.pipelines import default_model_folder
from profiler.trace import Submodule
from tests.capture.onnx_pipelines import Part, Pipeline, gathering, opened, ways, weighted


def graph_with(*initializers, nodes=(), sparse=()):
    graph = helper.make_graph(list(nodes), "g", [], [], list(initializers))
    graph.sparse_initializer.extend(sparse)
    return helper.make_model(graph).SerializeToString()


def tensor(dtype, dims, raw=b""):
    return TensorProto(name="w", data_type=dtype, dims=dims, raw_data=raw)


def test_of_every_model_of_the_pipeline():
    """The sizes equal those of the weights as onnx loads them."""
    for path in sorted(default_model_folder().glob("*/model.onnx")):
        graph = onnx.load(str(path)).graph
        loaded = sum(numpy_helper.to_array(weight).nbytes for weight in graph.initializer)
        assert model_weights(path).total_bytes == loaded


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (TensorProto.FLOAT, 60),
        (TensorProto.DOUBLE, 120),
        (TensorProto.FLOAT16, 30),
        (TensorProto.BFLOAT16, 30),
        (TensorProto.FLOAT8E4M3FN, 15),
        (TensorProto.INT64, 120),
        (TensorProto.BOOL, 15),
        (TensorProto.INT4, 8),
        (TensorProto.COMPLEX128, 240),
    ],
)
def test_dtypes(dtype, size):
    """Of 3 x 5 elements, from dims and dtype alone; nibbles fill whole bytes."""
    assert model_weights(graph_with(tensor(dtype, [3, 5]))).total_bytes == size


def test_scalars_and_empty_tensors():
    """No dims is one element, a dim of 0 none."""
    model = graph_with(tensor(TensorProto.FLOAT, []), tensor(TensorProto.FLOAT, [4, 0]))
    assert model_weights(model).total_bytes == 4


def test_subgraphs_constants_and_sparse_weights():
    """Weights in an `If`'s branch, in a `Constant` and in sparse form count."""
    branch = helper.make_graph([], "then", [], [], [tensor(TensorProto.FLOAT, [10])])
    branching = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    constant = helper.make_node("Constant", [], ["k"], value=tensor(TensorProto.INT64, [2]))
    values, indices = tensor(TensorProto.FLOAT, [3]), tensor(TensorProto.INT64, [3])
    sparse = onnx.SparseTensorProto(values=values, indices=indices, dims=[100])
    model = graph_with(nodes=[branching, constant], sparse=[sparse])
    assert model_weights(model).total_bytes == 2 * 40 + 16 + 12 + 24


def test_external_data_is_not_read(tmp_path):
    """Weights in another file are known by their dims, even where the file is gone."""
    path = weighted(tmp_path, external=True)
    (tmp_path / "weights.bin").unlink()
    found = model_weights(path)
    assert (found.total_bytes, found.external) == (64 * 4 * 4, {"weights.bin"})


def test_room_for_a_model_is_its_own_files(tmp_path):
    """What lies beside the model, or outside its folder, is not the model's."""
    path = weighted(tmp_path, external=True)
    (tmp_path / "other.bin").write_bytes(bytes(10_000))
    own = path.stat().st_size + (tmp_path / "weights.bin").stat().st_size
    assert model_files_bytes(path) == own
    model = onnx.load(str(path), load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "../outside.bin"
    (tmp_path / "below").mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(10_000))
    escaping = tmp_path / "below" / "model.onnx"
    escaping.write_bytes(model.SerializeToString())
    assert model_files_bytes(escaping) == escaping.stat().st_size


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"\x3a\xff\xff\xff\xff\x0f", "cut"),
        (b"\x3f", "no field begins"),
        (b"\xff" * 20, "does not end"),
        (b"\x3a\x05\x2a\x03\x08\x80\x80", ""),
        (graph_with(tensor(TensorProto.FLOAT, [1 << 62, 1 << 62])), "impossible"),
        (graph_with(tensor(TensorProto.FLOAT, [-1])), "impossible"),
        (graph_with(tensor(TensorProto.FLOAT, [2] * 100)), "impossible"),
    ],
)
def test_what_is_no_model(tmp_path, content, why):
    """A damaged or hostile file is one sentence that names it."""
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"model.onnx is not a readable ONNX model.*{why}"):
        model_weights(path)


def test_graphs_in_graphs_are_bounded():
    """A model of graphs nested in each other without end is refused."""
    data = b""
    for _ in range(70):  # graph.node.attribute.g, by field numbers 1, 5, 6
        for number in (6, 5, 1):
            data = bytes([number << 3 | 2]) + varint(len(data)) + data
    with pytest.raises(InputError, match="nested"):
        model_weights(b"\x3a" + varint(len(data)) + data)


def varint(value):
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def test_torch_modules():
    """Parameters and buffers, each once where modules share them; tensors without data, too."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    module.append(module[0])
    assert backend_of(module).weight_bytes(module) == (16 + 4 + 4 * 4) * 4 + 8
    on_meta = torch.nn.Linear(4, 4, device="meta", dtype=torch.float16)
    assert backend_of(on_meta).weight_bytes(on_meta) == 40


def test_what_does_not_tell():
    """Where no model is known there is no size, and the manifest says nothing."""
    unknown = SimpleNamespace()
    assert backend_of(unknown).weight_bytes(unknown) is None
    pipe = Pipeline(text_encoder=SimpleNamespace(forward=lambda x: x))
    assert pipeline_facts(pipe, Options()).submodules == {
        "text_encoder": Submodule(device="cpu:0", activate_profiler=True, model="")
    }


def test_facts_of_a_pipeline(tmp_path):
    """A submodule of two parts has the weights of both; of those of a session that another has,
    too, it says how many they are."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    (tmp_path / "small").mkdir()
    (tmp_path / "large").mkdir()
    small = opened(str(weighted(tmp_path / "small", rows=8)))
    large = opened(str(weighted(tmp_path / "large", rows=64)))
    vae = SimpleNamespace(
        encoder=Part(small), decoder=Part(large), encode=lambda x: x, decode=lambda x: x
    )
    pipe = Pipeline(
        text_encoder=Part(large),
        transformer=Part(large),
        transformer_2=torch.nn.Linear(4, 4),
        vae=vae,
    )
    facts = pipeline_facts(pipe, Options()).submodules
    known = {n: (f.weight_bytes, f.shared_weight_bytes) for n, f in facts.items()}
    assert known == {
        "text_encoder": (1024, None),
        "transformer": (1024, 1024),
        "transformer_2": (80, None),
        "vae": (1024 + 128, 1024),
    }


def test_reports_say_what_a_device_must_hold(tmp_path, monkeypatch):
    """Manifest, analysis and the report in the terminal: bytes by submodule and by device."""
    from io import StringIO

    from rich.console import Console

    from profiler.analysis.analyze import analyze
    from profiler.report import print_report
    from tests.report.rendered import report_of

    monkeypatch.setattr(operators, "onnx_event_cost", lambda _: EventCost(5_000.0))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    paths = [weighted(tmp_path / name, rows=512) for name in ("one", "two")]
    pipe = Pipeline(
        text_encoder=Part(opened(str(paths[0]))), transformer=Part(opened(str(paths[1])))
    )

    def way(session, _x):
        return session.run(None, {"x": np.ones((1, 512), np.float32)})[0]

    with profiler.profile(pipe, out=tmp_path / "traces") as run:
        pipe(("text_encoder", 1, way), ("transformer", 1, way))
    loaded = profiler.load(run.path)
    assert [f.weight_bytes for f in loaded.info.submodules.values()] == [8192, 8192]
    analysis = analyze(loaded)
    assert analysis.devices.select("device", "weight_bytes").rows() == [("cpu:0", 16384)]
    text = StringIO()
    print_report(Console(file=text, width=200), report_of(analysis))
    header, row = text.getvalue().partition("\nTime by category of work\n")[2].splitlines()[:2]
    place = slice(header.index("weights") - len("16.0 K"), header.index("weights") + len("weights"))
    assert "16.0 KiB" in row[place]


def test_a_pipeline_without_weights_has_no_column(tmp_path, monkeypatch):
    """Where no submodule has weights the report does not speak of them."""
    from profiler.analysis.analyze import analyze

    monkeypatch.setattr(operators, "onnx_event_cost", lambda _: EventCost(5_000.0))
    pipe = Pipeline(text_encoder=Part(opened(gathering())))
    with profiler.profile(pipe, out=tmp_path) as run:
        pipe(("text_encoder", 1, ways()["run"]))
    assert analyze(profiler.load(run.path)).devices["weight_bytes"].to_list() == [0]
