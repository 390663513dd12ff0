"""Measuring devices: the real code, on this machine's CPU, with as little work as possible."""

import numpy as np
import pytest

from profiler.errors import InputError
from profiler.pipelines import Placement, benchmark
from profiler.pipelines.benchmark import DeviceRates, Effort, measure_cpu, measure_torch

LITTLE = Effort(seconds=0.0, size=64, copy_bytes=1 << 16)


def _plausible(rates: DeviceRates) -> None:
    assert 1e6 < rates.peak_flops["float32"] < 1e15
    assert 1e6 < rates.memory_bandwidth < 1e14
    assert 1 < rates.launch_ns < 1e7


@pytest.mark.parametrize("devices", [["cpu:0"], ["cpu:0", "cpu:1"]])
def test_a_cpu_device_has_rates(devices):
    """Alone on all cores, and pinned on its share of them: numbers of a machine."""
    rates = measure_cpu(Placement.plan(devices), "cpu:0", LITTLE)
    _plausible(rates)
    assert rates.hardware
    assert rates.method.startswith("onnxruntime ")


def test_threads_are_those_of_the_placement():
    """What was measured says with how many threads."""
    placement = Placement.plan(["cpu:0"], cores=[0])
    assert ", 1 thread, " in measure_cpu(placement, "cpu:0", LITTLE).method


@pytest.mark.torch
def test_torch_measures_what_it_multiplies():
    """The code for CUDA devices, on torch's CPU: only waiting for the device is left out."""
    pytest.importorskip("torch")
    rates = measure_torch("cpu", LITTLE)
    _plausible(rates)
    assert set(rates.peak_flops) <= {"float32", "bfloat16", "float16"}


@pytest.mark.torch
def test_what_torch_multiplies_and_copies_is_random(monkeypatch):
    """Equal numbers draw less power on a GPU than real data do, and rates of them are too high."""
    torch = pytest.importorskip("torch")
    seen = []
    mm, copy = torch.mm, torch.Tensor.copy_

    def product(a, b, *, out):
        seen.extend((a, b))
        return mm(a, b, out=out)

    def copied(target, source):
        seen.append(source)
        return copy(target, source)

    monkeypatch.setattr(torch, "mm", product)
    monkeypatch.setattr(torch.Tensor, "copy_", copied)
    rates = measure_torch("cpu", LITTLE)
    assert {tensor.dtype for tensor in seen} >= {torch.float32, torch.uint8}
    assert all(len(tensor.unique()) > 100 for tensor in seen)
    assert rates.method.endswith(", random data, best of 0 s each")


def test_what_onnx_runtime_computes_is_random(monkeypatch):
    """The product and the copy take no equal numbers; the chain's single number is none of both."""
    seen = []
    bound = benchmark._bound

    def taken(session, x):
        seen.append(x)
        return bound(session, x)

    monkeypatch.setattr(benchmark, "_bound", taken)
    rates = measure_cpu(Placement.plan(["cpu:0"]), "cpu:0", LITTLE)
    assert rates.method.endswith(", random data, best of 0 s each")
    assert [len(np.unique(x)) > 100 for x in seen if x.size > 1] == [True, True]


@pytest.mark.torch
def test_a_device_that_is_not_there():
    """One sentence."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(InputError, match="torch has no device cuda:0 here"):
        measure_torch("cuda:0", LITTLE)
