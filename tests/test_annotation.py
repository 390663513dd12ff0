"""Frames of commands carry what an analysis knows of them; the run itself what was recorded."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import profiler
from profiler.analysis import Selection
from profiler.analysis.analyze import analyze
from tests.analysis.shaped_runs import Shaped
from tests.corpus import SD35, needs_corpus

_NAMES = ("flops", "bytes_read", "bytes_written")


@needs_corpus
def test_most_of_the_compute_time_of_a_gpu_trace_has_role_and_flops() -> None:
    """Stable Diffusion 3.5 on an MI300X: role for 95 % of compute time, FLOPs for 80 %, though the
    trace recorded neither; a recorded value never changes. `analysis.commands` and the frame for
    pandas say the same."""
    run = profiler.load(str(SD35))
    assert run.commands["role"].null_count() == len(run.commands)
    commands = profiler.analyze(run).commands
    assert commands.schema == run.commands.schema
    frame = pl.from_pandas(run.to_pandas()[["category", "device", "role", "duration_ns", *_NAMES]])
    for found in (commands, frame):
        compute = found.filter(pl.col("category") == "compute", pl.col("device") != "cpu:0")
        total = compute["duration_ns"].sum()
        known = compute.filter(pl.col("role").cast(pl.String) != "other")
        assert known["duration_ns"].sum() >= 0.95 * total
        assert compute.filter(pl.col("flops").is_not_null())["duration_ns"].sum() >= 0.80 * total
        for name in _NAMES:
            recorded = run.commands[name].is_not_null()
            assert found[name].filter(recorded).equals(run.commands[name].filter(recorded))
    assert_frame_equal(commands.select(_NAMES), frame.select(_NAMES))


def test_commands_of_an_analysis_are_made_when_asked_for_and_kept() -> None:
    """Two products of 2·8·4·2 FLOPs, one of which has another number recorded; a selection has
    its own; the run stays what was recorded."""
    product = ("layer", "aten::mm", "in: bfloat16[8,4] bfloat16[4,2]", 0, 10)
    run = Shaped([product], calls=2).recorded(flops=[7, None]).run
    analysis = analyze(run)
    assert analysis.commands is analysis.commands
    assert analysis.commands.select(_NAMES).rows() == [(7, 80, 32), (128, 80, 32)]
    assert analysis.commands["role"].null_count() == 0
    (row,) = analyze(run, Selection(step=("1",))).commands.rows(named=True)
    assert (row["step"], row["flops"]) == (1, 128)
    assert run.commands["bytes_read"].null_count() == 2


def test_commands_of_an_analysis_for_pandas() -> None:
    """They are described and given as a table is, and are none of the tables."""
    pytest.importorskip("pandas", reason="needs the pandas extra")
    analysis = analyze(Shaped([("layer", "aten::mm", "in: float32[8,4] float32[4,2]", 0, 10)]).run)
    assert analysis.to_pandas("commands")["flops"].tolist() == [128]
    assert analysis.describe("commands")["column"].to_list() == analysis.commands.columns
    assert "commands" not in analysis.tables()
