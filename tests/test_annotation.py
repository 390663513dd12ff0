"""Frames of a run carry what an analysis knows of commands; the run itself what was recorded."""

from __future__ import annotations

import polars as pl

import profiler
from tests.corpus import SD35, needs_corpus

_NAMES = ("flops", "bytes_read", "bytes_written")


@needs_corpus
def test_most_of_the_compute_time_of_a_gpu_trace_has_role_and_flops() -> None:
    """Stable Diffusion 3.5 on an MI300X: role for 95 % of compute time, FLOPs for 80 %, though the
    trace recorded neither; a recorded value never changes."""
    run = profiler.load(str(SD35))
    assert run.commands["role"].null_count() == len(run.commands)
    frame = pl.from_pandas(run.to_pandas()[["category", "device", "role", "duration_ns", *_NAMES]])
    compute = frame.filter(pl.col("category") == "compute", pl.col("device") != "cpu:0")
    total = compute["duration_ns"].sum()
    known = compute.filter(pl.col("role").cast(pl.String) != "other")
    assert known["duration_ns"].sum() >= 0.95 * total
    assert compute.filter(pl.col("flops").is_not_null())["duration_ns"].sum() >= 0.80 * total
    for name in _NAMES:
        recorded = run.commands[name].is_not_null()
        assert frame[name].filter(recorded).equals(run.commands[name].filter(recorded))
