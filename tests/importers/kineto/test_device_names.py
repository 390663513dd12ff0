"""Devices of PrivateUse1 backends have the name that the file gives their process."""

from __future__ import annotations

import polars as pl
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


def test_work_of_mtia_is_that_of_its_device(tmp_path):
    """Firmware events are kernels, copies and waits of the device that the process is called
    after; what its driver queued is none. Its copies overlap legally."""
    trace = Trace()
    trace.events.append(
        {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "args": {"name": "MTIA 9"}}
    )
    device = {"pid": 9, "tid": 4}
    for number in range(1, 40):
        at = number * 100
        trace.op("aten::mm", at, 30)
        trace.event("mtia_runtime", "runFunction", at + 5, 2, correlation=number)
        trace.event("mtia_runtime", "synchronize", at + 7, 60, pid=9, tid=3, correlation=number)
        to = {"stream": 1, "direction": "HOST_TO_DEVICE", "size": 4096}
        trace.event("mtia_ccp_events", "dma_request", at + 8, 10, **device, **to)
        trace.event("mtia_ccp_events", "dma_request", at + 10, 10, **device, **to)
        trace.event("mtia_ccp_events", "event_wait", at + 20, 5, **device, stream=1)
        trace.event(
            "mtia_ccp_events", "fc-Float", at + 25, 50, **device, stream=1, correlation=number
        )
    run = trace.imported(tmp_path)
    work = run.commands.filter(run.commands["device"] == "mtia:9")
    counts = work.group_by("category").agg(pl.len(), pl.col("duration_ns").sum()).sort("category")
    assert counts.rows() == [
        ("compute", 39, 39 * 50_000),
        ("dma", 78, 78 * 10_000),
        ("sync", 39, 39 * 5_000),
    ]
    assert set(work.filter(work["category"] == "dma")["bytes_written"]) == {4096}
    analysis = analyze(run)
    (busy,) = analysis.devices.filter(analysis.devices["device"] == "mtia:9")["busy_ns"]
    before = 12  # copies name no launch: those before the first kernel may be of earlier work
    assert busy == (39 * (12 + 50) - before) * 1_000
    assert analysis.health.is_empty()


@pytest.mark.parametrize(
    ("listed", "noted"),
    [
        (lambda device: device, 0),
        (lambda device: 0, 3),  # some of cuda:1 stay where those of cuda:0 are
        (lambda device: 3 - device, 0),  # by rank, as files put together may be
        (lambda device: f"[TP0{device}] {device}", 0),
    ],
)
def test_work_that_names_another_device_than_it_is_listed_under(listed, noted, tmp_path):
    """3 of 30 kernels; the second count is the file's."""
    trace = Trace()
    for number in range(30):
        at, device = 100.0 * number, int(number in (4, 11, 20))
        trace.kernel("gemm", at + 10, 60, launched=at, device=device)
        trace.events[-1]["pid"] = listed(device)
    kernels = [one for one in trace.events if one["cat"] == "kernel"]
    assert noted in (0, sum(one["pid"] != one["args"]["device"] for one in kernels))
    run = trace.imported(tmp_path)
    found = [(str(note.rule), note.device, note.count, note.total) for note in run.info.health]
    assert found == [("elsewhere", "cuda:0, cuda:1", noted, 30)] * bool(noted)
    devices = analyze(run).devices
    busy = devices.filter(devices["device"] != "cpu:0")["idle_share"]
    assert busy.null_count() == (2 if noted else 0)
