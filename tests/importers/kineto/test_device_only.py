"""Traces of torch.profiler with rows of devices and nothing of the host."""

import json

import pytest

from profiler.analysis.analyze import analyze
from profiler.importers.importing import import_trace
from profiler.tools.sources import load


def kernel(start, length, stream, name="gemm", device=0):
    """A kernel, in µs."""
    args = {"device": device, "stream": stream, "correlation": start}
    return {"cat": "kernel", "name": name, "ts": start, "dur": length, "tid": stream, "args": args}


def marked(name, start, length, stream):
    """A range that the script named, as devices had it."""
    return {**kernel(start, length, stream, name), "cat": "gpu_user_annotation"}


def written(path, events):
    """A trace with these events of device 0."""
    rows = [{"ph": "X", "pid": 0, **event} for event in events]
    path.write_text(json.dumps({"traceEvents": rows, "deviceProperties": [{"id": 0}]}))
    return path


@pytest.fixture
def analysis_of(tmp_path):
    def of(*events):
        path = written(tmp_path / "alone.json", events)
        return analyze(load(import_trace(path, tmp_path / "traces")))

    return of


def test_ranges_of_devices_are_calls(analysis_of):
    """One on two streams at the same time is one call; kernels of both are in it."""
    analysis = analysis_of(
        *(marked("encode", 1000, 100, 7), marked("denoise", 1200, 300, 7)),
        *(marked("denoise", 1210, 330, 8), marked("denoise", 1700, 300, 7)),
        *(kernel(1010, 80, 7), kernel(1200, 200, 7), kernel(1250, 290, 8), kernel(1700, 250, 7)),
    )
    calls = analysis.calls.select("submodule", "device", "busy_ns").rows()
    assert calls == [
        ("encode", "cuda:0", 80_000),
        ("denoise", "cuda:0", 340_000),
        ("denoise", "cuda:0", 250_000),
    ]
    (row,) = analysis.health.to_dicts()
    assert (row["rule"], row["count"]) == ("device_only", 4)
    (idle,) = analysis.idle.to_dicts()
    assert idle["launch_ns"] == 0
    assert not [f for f in analysis.findings if f.rule in ("launch_bound", "sync_bound")]


def test_kernels_alone_are_one_call_of_their_device(analysis_of):
    """Busy time is their union over both streams."""
    analysis = analysis_of(kernel(1000, 300, 7), kernel(1200, 300, 8), kernel(1800, 200, 7))
    (call,) = analysis.calls.to_dicts()
    assert (call["submodule"], call["device"]) == ("trace", "cuda:0")
    (device,) = analysis.devices.filter(device="cuda:0").to_dicts()
    assert (device["busy_ns"], device["idle_share"]) == (700_000, pytest.approx(0.3))


def test_a_device_is_busy_though_no_call_has_its_work(analysis_of):
    """Host ranges are there and launches are not: kernels belong to no call, but ran all the
    same, 700 of 1,000 µs."""
    host = {"ph": "X", "cat": "user_annotation", "pid": 9, "tid": 9}
    analysis = analysis_of(
        {**host, "name": "transformer", "ts": 1000, "dur": 1000},
        *(kernel(1000, 300, 7), kernel(1200, 300, 8), kernel(1800, 200, 7)),
    )
    (device,) = analysis.devices.filter(device="cuda:0").to_dicts()
    assert (device["busy_ns"], device["utilization"]) == (700_000, pytest.approx(0.7))
