"""Several pipelines in one process: each object has rows of its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.run.load import load_bundle
from tests.capture.switched_on import drops, labels

pytest.importorskip("diffusers", reason="needs the torch extra")
pytestmark = pytest.mark.torch

HERE = Path(__file__).parent


def test_two_pipelines_with_a_submodule_of_one_name(scripts):
    """The refiner's model is `unet@refiner` in every table, a model that two pipelines share is
    one, and one that each request loads anew is one, too."""
    program = (HERE / "two_pipelines.py").read_text(encoding="utf-8")
    plain = scripts.run(program, RBLN_PROFILER=None)
    ours = scripts.run(program, RBLN_PROFILER_CONFIG='{"ops": "unet@refiner=none all"}')
    assert (ours.code, ours.out) == (0, plain.out), ours.err
    assert drops(ours.bundle) == []
    expected = {"unet": 3 + 1 + 3, "unet@refiner": 2 + 2, "unet@pipe": 1 + 1}
    assert Counter(name for name, *_ in labels(ours.bundle)) == expected
    run = load_bundle(ours.bundle)
    assert {*run.info.submodules} == {*expected}
    steps = run.calls.filter(pl.col("submodule") == "unet@refiner")["step"].to_list()
    assert steps == [0, 1, 0, 1]
    traced = dict(run.calls.group_by("submodule").agg(pl.col("ops_traced").all()).iter_rows())
    assert traced == {"unet": True, "unet@refiner": False, "unet@pipe": True}


def test_rows_of_all_tables(scripts):
    """Every table that tells submodules apart has both models, and their rows sum up each one's
    calls alone."""
    program = (HERE / "two_pipelines.py").read_text(encoding="utf-8")
    ended = scripts.run(program.partition("def request")[0])
    run = load_bundle(ended.bundle)
    tables = analyze(run).tables()
    told = {
        name: {*frame["submodule"].drop_nulls().cast(pl.String)}
        for name, frame in tables.items()
        if "submodule" in frame.columns and len(frame)
    }
    assert {"submodules", "operators", "module_tree"} <= {*told}
    for few in ("step_outliers", "findings"):  # the refiner has too few steps to have any
        told.pop(few, None)
    found = {name: names for name, names in told.items() if names}  # others are of all together
    assert {*map(frozenset, found.values())} == {frozenset({"unet", "unet@refiner"})}, found
    rows = tables["submodules"].select(pl.col("submodule").cast(pl.String), "calls").rows()
    assert sorted(rows) == [("unet", 7), ("unet@refiner", 4)]
