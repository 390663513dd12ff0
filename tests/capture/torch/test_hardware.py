"""What the manifest says of the GPUs that torch uses."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import profiler
from profiler.capture import FakeClock
from profiler.capture.torch.model_settings import gpu
from tests.capture.toy import ToyPipeline

torch = pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch

H200 = SimpleNamespace(name="NVIDIA H200", total_memory=150 << 30, multi_processor_count=132)


@pytest.fixture
def cuda(monkeypatch):
    """Two GPUs, CUDA started."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: H200)


@pytest.mark.usefixtures("cuda")
def test_a_gpu_has_name_memory_and_multiprocessors(tmp_path):
    """As in an imported trace: the name is what published peaks are found by. One processor's name
    stays that of the CPU."""
    pipeline = ToyPipeline(FakeClock())
    pipeline.transformer.device = "cuda:1"
    with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
        pipeline()
    devices = profiler.load(run.path).info.devices
    known = devices["cuda:1"]
    assert (known.hardware, known.memory_bytes, known.compute_units) == (
        "NVIDIA H200",
        150 << 30,
        132,
    )
    assert devices["cpu:0"].hardware not in ("", "NVIDIA H200")
    assert devices["cpu:0"].memory_bytes is None


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("device", ["cuda:2", "cpu:0", "mps:0", "cuda", "cuda:x"])
def test_of_other_devices_torch_tells_nothing(device):
    """Those that are not there, and those that are no GPU of CUDA's."""
    assert gpu(device) is None


def test_cuda_is_not_started(monkeypatch):
    """A process that has not used it, or was forked from one that had, is not asked."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: 1 / 0)
    assert gpu("cuda:0") is None
