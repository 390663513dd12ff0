"""Waiting by call: small runs with expected rows, and a sample against its idle table."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from profiler.analysis.activity import waits_of
from profiler.tools.sources import load
from tests.analysis.asked import asked
from tests.importers.kineto.traces import Trace
from tests.runs import Command, make_call, make_run, make_span

_SAMPLES = Path(__file__).parents[2] / "sample_traces"


def kernel(call: int, start: int, end: int, device: str = "cuda:0") -> Command:
    return Command(call, device, "s", "compute", "k", start, end - start)


def test_each_call_waits_for_what_it_waited_for():
    """A call's gaps are its own, those between calls their stage's, to the nanosecond."""
    run = make_run(
        [
            make_call(0, "unet", 100, 400, device="cuda:0"),
            make_call(1, "vae", 500, 900, device="cuda:0"),
        ],
        [kernel(0, 150, 250), kernel(0, 300, 400), kernel(1, 500, 800)],
        [make_span("pipeline", "p", 0, 1000)],
    )
    assert waits_of(asked(run).inputs).rows() == [
        ("cuda:0", "denoise", "unet", "launch", 100),
        ("cuda:0", "denoise", "vae", "launch", 100),
        (None, "denoise", None, "host", 300),
    ]


def test_untraced_calls_wait_for_nothing_known():
    """What a device did in a call whose operators were not recorded is not known."""
    calls = [
        make_call(0, "unet", 0, 100, device="cuda:0"),
        make_call(1, "vae", 100, 200, device="cuda:0", traced=False),
    ]
    run = make_run(calls, [kernel(0, 20, 100)], [make_span("pipeline", "p", 0, 200)])
    assert "vae" not in waits_of(asked(run).inputs)["submodule"]


@pytest.mark.parametrize("sample", ["tiny_two_devices", "sd35_mi300x"])
def test_waiting_is_the_idle_time_of_the_table(sample):
    """In calls, causes of a device add up to those of the idle table, and to what its tiles have
    beside the union of the device's commands, worked out from the commands alone."""
    analysis = asked(load(_SAMPLES / sample))
    waits = waits_of(analysis.inputs).drop_nulls("submodule")
    run = analysis.inputs.run
    for row in analysis.idle.rows(named=True):
        own = waits.filter(pl.col("device") == row["device"])
        by_cause = dict(own.group_by("cause").agg(pl.col("wait_ns").sum()).iter_rows())
        late = "between_operators" if row["device"].startswith("cpu") else "launch"
        assert by_cause.get(late, 0) == row["launch_ns"]
        for cause in ("queue", "unknown_cause", "copy_wait"):
            assert by_cause.get(cause, 0) == row[f"{cause}_ns"]
        assert sum(by_cause.values()) == row["idle_inside_ns"]
        tiles = run.tiles.calls.filter(pl.col("tile_device") == row["device"])
        work = run.commands.filter(
            (pl.col("device") == row["device"])
            & ~pl.col("category").cast(pl.String).is_in(["host", "sync"])
        ).select("start_ns", end=pl.col("start_ns") + pl.col("duration_ns"))
        ranges = work.sort("start_ns").rows()
        spent = [spent_in(ranges, tile) for tile in tiles.select("begin_ns", "end_ns").iter_rows()]
        assert sum(spent) == row["idle_inside_ns"]


def spent_in(work: list[tuple[int, int]], tile: tuple[int, int]) -> int:
    """How long none of the ranges, sorted by their start, covers a tile."""
    at, end = tile
    idle = 0
    for start, until in work:
        if until <= at or start >= end:
            continue
        idle += max(start - at, 0)
        at = max(at, until)
    return idle + max(end - at, 0)


@pytest.mark.parametrize(
    ("fill", "launch_ns", "lost_ns"),
    [("cudaMemset", 5_195_000, 0), ("hipMemset", 150_000, 5_000_000)],
)
def test_a_slow_fill_of_cuda_is_no_wait_for_the_device(fill, launch_ns, lost_ns, tmp_path):
    """It returns at once by its documentation, so the host loaded or set up something; hipMemset
    waits, and what it waited for is not in the trace."""
    trace = Trace()
    trace.module("Transformer_0", 0, 5_400)
    trace.kernel("first", 10, 100, launched=5)
    trace.event("cuda_runtime", fill, 150, 5_010, correlation=77)
    place = {"pid": 0, "tid": 7, "device": 0, "stream": 7}
    trace.event("gpu_memset", "Memset (Device)", 5_150, 5, correlation=77, **place)
    trace.kernel("last", 5_200, 100, launched=5_165)
    (row,) = asked(trace.imported(tmp_path)).idle.rows(named=True)
    assert (row["launch_ns"], row["unrecorded_ns"]) == (launch_ns, lost_ns)
