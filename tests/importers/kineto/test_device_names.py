"""Devices of PrivateUse1 backends have the name that the file gives their process."""

from __future__ import annotations

import pytest

from profiler.importers.importing import import_trace
from profiler.tools.sources import analyze, load
from tests.corpus import CORPUS, needs_corpus

from .traces import Trace

DAMAGED = CORPUS / "damaged"


@needs_corpus
@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("t2_privateuse1", "npu:0"),  # its process is called python3
        ("rb_a_kernel_no_launch", "rbln:0"),
        ("rb_b_privateuse1_driver", "rbln:0"),  # rows of work in the category of the driver
    ],
)
def test_the_device_is_what_the_file_calls_it(name, device, tmp_path):
    """The busy time is that of the healthy trace with the same kernels on a GPU."""
    devices = analyze(load(import_trace(DAMAGED / f"{name}.json", tmp_path))).devices
    twin = analyze(load(import_trace(DAMAGED / "00_base_correct.json", tmp_path))).devices
    busy = dict(devices.filter(devices["busy_ns"] > 0).select("device", "busy_ns").iter_rows())
    assert busy.keys() - {"cpu:0"} == {device}
    (of_twin,) = twin.filter(twin["device"] == "cuda:0")["busy_ns"]
    assert busy[device] == pytest.approx(of_twin, rel=0.01)


def test_calls_of_a_process_with_operators_are_no_work(tmp_path):
    """A host process may be called `worker:0`: its runtime calls stay the host's."""
    trace = Trace()
    trace.events.append(
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "worker:0"}}
    )
    trace.op("aten::mm", 0, 30)
    trace.event("privateuse1_runtime", "launch", 5, 2, correlation=1)
    trace.event("kernel", "gemm", 20, 50, pid=0, tid=7, device=0, stream=7, correlation=1)
    commands = trace.imported(tmp_path).commands
    work = commands.filter(commands["category"] == "compute")
    assert work.select("device", "duration_ns").rows() == [("npu:0", 50_000)]
