"""A profiled run of an optimized pipeline shows the modules of the pipeline as it was."""

from __future__ import annotations

import polars as pl
import pytest

import profiler
from tests.command_line import run_command
from tests.graph.optimized_models import TINY


def test_layers_of_an_optimized_run(tmp_path):
    """All operator time finds a module path, each of them one of the original run or around such;
    the fused attention is where its pieces were."""
    pytest.importorskip("sympy")
    optimized = tmp_path / "optimized"
    arguments = (TINY, optimized, "--with", "ort-transformers")
    assert run_command("graph", "optimize", *arguments) == 0
    runs = []
    for name, model in (("before", TINY), ("after", optimized)):
        options = ("--name", name, "--out", tmp_path / "traces", "--steps", 1, "--warmup", 0)
        assert run_command("run", "--model", model, *options) == 0
        runs.append(profiler.load(tmp_path / "traces" / name))
    before, after = (set(run.commands["module"].drop_nulls().cast(pl.String)) for run in runs)
    around = {path.rsplit(".", n)[0] for path in before for n in range(path.count(".") + 1)}
    assert after <= before | around
    assert len(after) > 200
    assert {known.share for known in runs[1].info.attribution.values()} == {1.0}
    fused = runs[1].commands.filter(pl.col("op_type").cast(pl.String) == "MultiHeadAttention")
    modules = fused["module"].cast(pl.String).unique().sort().to_list()
    assert modules == [f"transformer_blocks.{n}.attn" for n in range(4)]
