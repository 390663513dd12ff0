"""What a process keeps and leaves behind: memory of a call that has ended, weights on the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from profiler.run.load import load_bundle
from profiler.trace.bundle import WORK_NAME, merge_bundle
from tests.capture.switched_on import drops, labels

HERE = Path(__file__).parent
KEPT = 1024  # bytes for a pipeline call of five calls of submodules


def test_no_weights_are_written(scripts):
    """A killed process leaves the graph that ONNX Runtime runs, and none of its weights."""
    ended = scripts.run((HERE / "killed_while_it_runs.py").read_text(encoding="utf-8"))
    assert ended.code == -9
    files = [path for path in ended.bundle.rglob("*") if path.is_file()]
    graphs = [path for path in files if path.name == "optimized.onnx"]
    assert len(graphs) == 1
    assert b"/proj/MatMul" in graphs[0].read_bytes()
    assert sum(path.stat().st_size for path in files) < 100_000  # the weights take 4,194,304
    assert not any(path.is_symlink() for path in ended.bundle.rglob("*"))
    merge_bundle(ended.bundle)
    shutil.rmtree(ended.bundle / WORK_NAME, ignore_errors=True)
    assert len(labels(ended.bundle)) == 3


@pytest.mark.torch
@pytest.mark.parametrize(
    "calls", [600, pytest.param(3_000, marks=pytest.mark.nightly, id="as long as a service")]
)
def test_memory_of_calls_that_have_ended(scripts, calls):
    """With all operators recorded, a process keeps next to nothing of a pipeline call with five
    calls of submodules, and at its end all of them are in the bundle."""
    pytest.importorskip("diffusers", reason="needs the torch extra")
    program = (HERE / "many_calls.py").read_text(encoding="utf-8")
    before = 600  # with the first ones the allocators' pools grow
    ended = scripts.run(program, str(calls), str(before))
    assert ended.code == 0, ended.err
    grown, objects = ended.out.split()
    assert float(objects) < 2  # it was 25
    if calls > before:
        assert int(grown) <= KEPT
    names = [name for name, *_ in labels(ended.bundle)]
    assert names == ["text_encoder", *["transformer"] * 3, "vae"] * (calls + before)
    run = load_bundle(ended.bundle)
    assert run.calls["pipeline"].unique().sort().to_list() == list(range(calls + before))
    assert run.calls["ops_traced"].all()
    assert set(run.spans.filter(pl.col("kind") == "pipeline")["pipeline"]) == set(
        range(calls + before)
    )
    assert drops(ended.bundle) == []
