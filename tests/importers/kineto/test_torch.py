"""A trace that the installed torch records now."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.importers import import_trace
from profiler.tools.sources import load

from .traces import Trace, calls

torch = pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch


def test_modules_called_in_a_loop_are_imported(tmp_path):
    """Ranges, operators, shapes and nesting are as the importer expects them."""
    encoder = torch.nn.Embedding(10, 8)
    denoiser = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    recording = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True, record_shapes=True
    )
    with torch.no_grad(), recording:
        hidden = encoder(torch.ones(1, 4, dtype=torch.long))
        for _ in range(3):
            hidden = denoiser(hidden)
    path = tmp_path / "trace.json"
    recording.export_chrome_trace(str(path))
    run = load(import_trace(path, tmp_path / "traces"))
    assert [row[0] for row in calls(run)] == ["Embedding", *["Sequential"] * 3]
    assert {row[1:] for row in calls(run)} == {("run", None, -1)}
    linear = run.commands.filter(pl.col("op_type") == "aten::linear")
    assert linear.select("call", "layer", "shapes").rows() == [
        (call, f"Linear_{number}", "in: float32[1,4,8] float32[8,8] float32[8]")
        for call in (1, 2, 3)
        for number in (0, 1)
    ]


@pytest.mark.parametrize(("norms_last", "moved"), [(True, 2), (False, 1)])
def test_blocks_that_end_with_a_norm_keep_no_sum(tmp_path, norms_last, moved):
    """A sum and the norm that reads it move five tensors as two kernels. Fused they move three if
    the next block adds to what the norm gives, and four if it adds to the sum."""
    trace, at, shape = Trace(), 100.0, [2, 128, 768]
    half = [("aten::mm", [[256, 768], [768, 768]]), ("aten::add", [shape, shape])]
    norm = [("aten::native_layer_norm", [shape, [768], [768]])]
    block = (half + norm if norms_last else norm + half) * 2
    for number in range(4):
        trace.module(f"Block_{number}", at, 10 * len(block))
        for name, dims in block:
            args = {"Input Dims": dims, "Input type": ["float"] * len(dims)}
            operator = trace.op(name, at + 1, 5, **args)
            trace.kernel(f"{name[6:]}_kernel", at + 3, 6, launched=at + 2, external=operator)
            at += 10
    trace.module("Bert_0", 99, at)
    fusions = analyze(trace.imported(tmp_path)).fusions
    chains = fusions.filter(pl.col("op_types") == "aten::add → aten::native_layer_norm")
    assert chains["chains"].sum() == (8 if norms_last else 7)
    size = 4 * 2 * 128 * 768
    assert chains["saved_bytes"].sum() == chains["chains"].sum() * moved * size
