"""A trace that the installed torch records now."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.importers import import_trace
from profiler.tools.sources import load

from .traces import calls

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
