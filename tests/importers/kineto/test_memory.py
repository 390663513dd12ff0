"""What allocators held, from the `[memory]` instants of a trace."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.tools.sources import load
from tests.corpus import CORPUS, needs_corpus
from tests.importers.kineto.traces import BASE_NS, Trace

_PAIRS = CORPUS / "torch_pairs"


def _run(tmp_path, *samples):
    """A module's call from 100 to 200 µs with a kernel of device 2, and samples of memory: time in
    µs and what the instant says."""
    trace = Trace()
    trace.module("Net_0", 100, 100)
    trace.kernel("k", 120, 10, launched=110, device=2)
    for time, args in samples:
        instant = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t"}
        trace.events.append({**instant, "pid": 1, "tid": 1, "ts": time, "args": args})
    return trace.imported(tmp_path)


def _gpu(size, **more):
    return {"Bytes": size, "Device Type": 1, "Device Id": 0, **more}


def _samples(run):
    columns = ("call", "device", "name", "time_ns", "value")
    rows = run.counters.with_columns(pl.col("device", "name").cast(pl.String)).select(columns)
    return [(*row[:3], (row[3] - BASE_NS) // 1000, int(row[4])) for row in rows.rows()]


def test_levels_of_a_device(tmp_path):
    """Levels are what the instants tell, at the call's begin what was held then; samples outside of
    the call are of none. The one device that allocated is the one that worked."""
    run = _run(
        tmp_path,
        (50, _gpu(40, **{"Total Allocated": 40, "Total Reserved": 64})),
        (150, _gpu(60, **{"Total Allocated": 100, "Total Reserved": 128})),
        (250, _gpu(-100, **{"Total Allocated": 0, "Total Reserved": 128})),
    )
    allocated = [row for row in _samples(run) if row[2] == "torch allocated"]
    assert sorted(allocated, key=lambda row: row[3]) == [
        (-1, "cuda:2", "torch allocated", 50, 40),
        (0, "cuda:2", "torch allocated", 100, 40),
        (0, "cuda:2", "torch allocated", 150, 100),
        (-1, "cuda:2", "torch allocated", 250, 0),
    ]
    assert {row[2] for row in _samples(run)} == {"torch allocated", "torch reserved"}
    analysis = analyze(run)
    assert analysis.memory_devices["peak_bytes"].to_list() == [100]
    held = analysis.memory.filter(pl.col("submodule") == "Net").row(0, named=True)
    assert (held["peak_bytes"], held["activation_bytes"]) == (100, 60)


def test_changes_alone_are_relative(tmp_path):
    """Old traces tell changes alone, and of the host nothing else is known: they are summed, and
    the counter's name says since when."""
    host = {"Bytes": 8, "Device Type": 0, "Device Id": -1, "Total Allocated": 8}
    run = _run(tmp_path, (110, _gpu(40)), (120, _gpu(-10)), (130, host))
    name = "torch allocated since the pipeline began"
    assert sorted(_samples(run), key=lambda row: row[3]) == [
        (0, "cuda:2", name, 110, 40),
        (0, "cuda:2", name, 120, 30),
        (0, "cpu:0", name, 130, 8),
    ]


@pytest.mark.parametrize("args", [None, {}, {"Bytes": "x", "Device Type": 1, "Device Id": 0}])
def test_instants_that_tell_nothing_are_left_out(tmp_path, args):
    """An instant without a size or a device is no sample."""
    assert _samples(_run(tmp_path, (110, args))) == []


@needs_corpus
@pytest.mark.parametrize(
    ("name", "device", "peak"), [("h100", "cuda:0", 2088.5), ("mi300", None, 2219.0)]
)
def test_peaks_of_the_shared_pair(name, device, peak):
    """What the allocators of an H100 and an MI300 held at most, in MB, in the model's call."""
    run = load(_PAIRS / f"Qwen_Qwen1.5-0.5B-Chat__{name}.json.gz")
    analysis = analyze(run)
    run.close()
    worked = run.tiles.devices["device"].item()
    row = analysis.memory_devices.filter(pl.col("device") == worked).row(0, named=True)
    assert device is None or worked == device
    assert round(row["peak_bytes"] / 1e6, 1) == peak
    assert row["submodule"] == "Qwen2Model"
    held = analysis.memory.filter(pl.col("submodule") == "Qwen2Model", pl.col("device") == worked)
    assert held["peak_bytes"].item() == row["peak_bytes"]
