"""Real runs: every sample against every other, and against itself."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from profiler.compare.compare import compare
from profiler.compare.measure import measure
from profiler.tools.sources import load

SAMPLES = Path(__file__).resolve().parents[3] / "sample_traces"
BUNDLES = sorted(path.parent.name for path in SAMPLES.glob("*/manifest.json"))


@cache
def measured(name):
    return measure(load(SAMPLES / name))


@pytest.mark.parametrize(("base", "new"), list(itertools.product(BUNDLES, BUNDLES)))
def test_samples(base, new):
    """All metrics of a run against itself are equal; two runs have stages, steps, submodules and
    roles in common, and the times of a submodule's roles add up to its busy time."""
    found = compare([measured(base)], [measured(new)]).metrics
    both = found.filter(~found["verdict"].str.starts_with("only_in"))
    assert {"end_to_end", "stage", "step", "submodule", "role"} <= set(both["level"])
    if base == new:
        assert set(found["difference_ns"]) == {0}
        assert not found["verdict"].str.contains("slower|faster|only").any()
    for name in both.filter(both["level"] == "busy")["submodule"]:
        own = found.filter(found["submodule"] == name)
        busy = own.filter(own["level"] == "busy")["base_ns"].item()
        roles = own.filter(own["level"] == "role")["base_ns"].sum()
        assert roles == pytest.approx(busy, rel=0.05)  # medians add up nearly


@pytest.mark.parametrize("name", BUNDLES)
def test_modules_of_a_role_add_up(name):
    """In a run against itself the modules of a role have all of its time."""
    found = compare([measured(name)], [measured(name)]).metrics
    keys = ["submodule", "role"]
    modules = (
        found.filter(found["level"] == "module")
        .group_by(keys)
        .agg(modules_ns=pl.col("base_ns").sum())
    )
    joined = modules.join(found.filter(found["level"] == "role"), on=keys)
    assert len(joined)
    for part, whole in joined.select("modules_ns", "base_ns").iter_rows():
        assert part == pytest.approx(whole, rel=0.1, abs=2000)
