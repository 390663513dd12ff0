"""Several providers in one session: devices, tracks and memory by provider.

Only ONNX Runtime's CPU provider runs here. The CUDA events are written as its sources write `Node`
events (onnxruntime/core/framework/sequential_executor.cc) and as onnxruntime 1.31 does on the CPU.
"""

from __future__ import annotations

import json

import pytest

import profiler
from profiler.capture import EventCost
from profiler.capture.onnxruntime import operators
from profiler.capture.onnxruntime.onnx_graph import LayerMap
from profiler.capture.onnxruntime.operators import (
    Attributed,
    Commands,
    Placement,
    arena_counters,
)
from profiler.ort_profiles import device_of_provider, device_of_session, read_profile
from tests.capture.onnx_pipelines import Part, Pipeline, gathering, opened, ran, ways

RUN = ways()["run"]
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"


def node(name, op_type, provider, ts, dur, arena, thread=1):
    """A `Node` event; `arena` is bytes in use after it."""
    args = {"op_name": op_type, "provider": provider, "mem_bytes_in_use": str(arena)}
    return {
        "cat": "Node",
        "pid": 1,
        "tid": thread,
        "ts": ts,
        "dur": dur,
        "ph": "X",
        "name": f"{name}_kernel_time",
        "args": args,
    }


MIXED = [
    node("Memcpy_token_1", "MemcpyFromHost", CUDA, 10, 5, 1000),
    node("attn/MatMul", "MatMul", CUDA, 20, 10, 4000),
    node("trt_block", "TRTKernel_graph", TENSORRT, 31, 4, 4000),
    node("Memcpy_token_2", "MemcpyToHost", CUDA, 40, 5, 3000),
    node("shape/Gather", "Gather", CPU, 50, 2, 256),
    node("shape/Mul", "Mul", CPU, 53, 2, 512),
    node("branch/Add", "Add", CUDA, 53, 2, 3500, thread=2),
    {"cat": "Session", "tid": 1, "ts": 5, "dur": 60, "name": "model_run", "args": {}},
]


@pytest.fixture
def nodes(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text("[\n" + ",\n".join(json.dumps(event) for event in MIXED) + "\n]\n")
    (run,) = read_profile(path)
    return run.nodes


PLACEMENT = Placement("cuda:1", {CUDA: "cuda:1", TENSORRT: "cuda:1", CPU: "cpu:0"})


def test_tracks_by_provider(nodes):
    """Each provider's nodes are on its own track of its device, copies between host and device
    on a `dma` track, further executor threads on tracks of their own."""
    commands = Commands(PLACEMENT, LayerMap({}), nodes).of(nodes, 1_000_000, Attributed())
    tracks = [commands.tracks[i] for i in commands.track.tolist()]
    starts = commands.start_ns.tolist()
    assert [(t.device, t.name, t.category, s) for t, s in zip(tracks, starts, strict=True)] == [
        ("cuda:1", "Memcpy", "dma", 1_010_000),
        ("cuda:1", CUDA, "compute", 1_020_000),
        ("cuda:1", TENSORRT, "compute", 1_031_000),
        ("cuda:1", "Memcpy", "dma", 1_040_000),
        ("cpu:0", CPU, "compute", 1_050_000),
        ("cpu:0", CPU, "compute", 1_053_000),
        ("cuda:1", f"{CUDA} thread 1", "compute", 1_053_000),
    ]


def test_memory_by_device(nodes):
    """The arena of each provider is a counter of its own device."""
    counters = arena_counters(nodes, 0, PLACEMENT, "unet")
    assert [(c.device, c.name, c.times_ns.tolist(), c.values.tolist()) for c in counters] == [
        ("cpu:0", "unet arena in use", [52_000, 55_000], [256, 512]),
        (
            "cuda:1",
            "unet arena in use",
            [15_000, 30_000, 45_000, 55_000],
            [1000, 4000, 3000, 3500],
        ),
    ]


def test_a_cpu_of_its_own_keeps_its_nodes(nodes):
    """A submodule on cpu:1 has its CPU nodes there, and not on the root device."""
    placement = Placement("cpu:1", {CPU: "cpu:0"})
    assert [placement.device_of(node) for node in nodes.each()][4:6] == ["cpu:1", "cpu:1"]


@pytest.mark.parametrize(
    ("provider", "options", "device"),
    [
        (CPU, {}, "cpu:0"),
        ("AzureExecutionProvider", {}, "cpu:0"),
        ("XnnpackExecutionProvider", {}, "cpu:0"),
        (CUDA, {"device_id": "3"}, "cuda:3"),
        (CUDA, {}, "cuda:0"),
        (TENSORRT, {"device_id": "1"}, "cuda:1"),
        ("NvTensorRTRTXExecutionProvider", {"device_id": "1"}, "cuda:1"),
        ("MIGraphXExecutionProvider", {"device_id": "2"}, "rocm:2"),
        ("DmlExecutionProvider", {"device_id": "0"}, "dml:0"),
        ("OpenVINOExecutionProvider", {}, "cpu:0"),
        ("OpenVINOExecutionProvider", {"device_type": "GPU.1"}, "gpu:1"),
        ("OpenVINOExecutionProvider", {"device_type": "NPU"}, "npu:0"),
        ("OpenVINOExecutionProvider", {"device_type": "AUTO:GPU,CPU"}, "openvino:0"),
        ("QNNExecutionProvider", {}, "qnn:0"),
    ],
)
def test_device_of_a_provider(provider, options, device):
    """By the provider's own options, as a session tells them."""
    assert device_of_provider(provider, options) == device


def test_device_of_a_session():
    """A session made here runs on the CPU."""
    assert device_of_session(opened(gathering())) == "cpu:0"


class Vae:
    """A VAE whose two halves are sessions."""

    def __init__(self):
        self.encoder, self.decoder = Part(opened(gathering())), Part(opened(gathering()))

    def encode(self, x, way):
        return self.encoder.forward(x, way)

    def decode(self, x, way):
        return self.decoder.forward(x, way)


def test_two_sessions_of_one_submodule(tmp_path, monkeypatch):
    """A VAE's encoder and decoder have profiles, graphs and memory counters of their own, though
    they are opened within the same millisecond."""
    monkeypatch.setattr(operators, "onnx_event_cost", lambda _: EventCost(5_000.0))
    pipe = Pipeline(vae=Vae())
    with profiler.profile(pipe, out=tmp_path) as run:
        for rows in (1, 2):
            pipe.vae.encode(*arguments(rows))
            pipe.vae.decode(*arguments(rows + 10))
    assert [row[2] for row in ran(run.path)] == [
        [f"add float[{rows},3]", f"gather float[{rows},3]"] for rows in (1, 11, 2, 12)
    ]
    loaded = profiler.load(run.path)
    assert sorted(set(loaded.counters["name"].cast(str))) == [
        "vae.decoder arena in use",
        "vae.encoder arena in use",
    ]
    assert loaded.info.submodules["vae"].profiled_sessions == 2


def arguments(rows):
    import numpy as np

    return np.ones((rows, 3), np.float32), RUN
