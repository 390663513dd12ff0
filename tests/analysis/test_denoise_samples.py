"""Steps, guidance, redundancy, memory and partitioning of the sample runs: sums that must hold."""

from pathlib import Path

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.tools.sources import load

SAMPLES = Path(__file__).parents[2] / "sample_traces"
BUNDLES = sorted(path.name for path in SAMPLES.iterdir() if (path / "manifest.json").is_file())


@pytest.fixture(scope="module", params=BUNDLES)
def analysis(request):
    return analyze(load(SAMPLES / request.param), device_memory={"": 16 << 30})


def test_parts_of_steps_add_up(analysis):
    """Operators (or what stands for them) to submodules, and cells to totals."""
    cells, parts = analysis.step_times, analysis.step_operators
    fine = cells.filter(~pl.col("level").is_in(["step", "submodule"]))
    whole = cells.filter(pl.col("level") == "submodule")
    keys = ["submodule", "pipeline", "step"]
    sums = fine.group_by(keys).agg(pl.col("total_ns").sum()).sort(keys)
    assert sums.rows() == whole.select(*keys, "total_ns").sort(keys).rows()
    assert cells["total_ns"].sum() == parts["total_ns"].sum()


def test_savings_are_parts_of_what_was_measured(analysis):
    """Of no submodule more than its device time, of guidance not more than the run."""
    saved = analysis.redundant_work.group_by("submodule").agg(pl.col("saved_ns").sum())
    joined = saved.join(analysis.submodules, on="submodule")
    assert len(joined) == len(saved)
    busy = analysis.roles.group_by("submodule").agg(busy=pl.col("total_ns").sum())
    joined = joined.join(busy, on="submodule")
    assert (joined["saved_ns"] <= joined["busy"]).all()
    assert analysis.guidance["elapsed_ns"].sum() <= analysis.accounting.end_to_end_ns


def test_memory_adds_up(analysis):
    """What submodules held at the peak is the peak; nobody needs more than there is."""
    held = analysis.memory.group_by("device").agg(pl.col("retained_bytes").sum())
    devices = analysis.memory_devices.drop_nulls("peak_bytes").join(held, on="device")
    assert (devices["retained_bytes"] == devices["required_bytes"]).all()
    assert (analysis.memory_devices["headroom_bytes"].drop_nulls() > 0).all()


def test_parts_of_split_operators_lie_within_the_whole(analysis):
    """No part is longer, or has more commands, than its operator."""
    keys = ["submodule", "layer"]
    whole = analysis.partitioning.filter(pl.col("part") == "whole")
    both = analysis.partitioning.join(whole, on=keys, suffix="_whole", nulls_equal=True)
    for name in ("commands", "wall_ns", "total_ns", "tracks"):
        assert (both[name] <= both[f"{name}_whole"]).all()
