"""Traces of a graph's capture, which hold no replay."""

from __future__ import annotations

import json

import pytest

from profiler.importers.kineto.launches import only_captures_graphs
from profiler.kineto.trace_file import read_kineto


def _trace(folder, *names):
    runtime = [
        {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 1}
        for ts, name in enumerate(names)
    ]
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": runtime}))
    return read_kineto(path)


@pytest.mark.parametrize("vendor", ["cuda", "hip"])
def test_a_capture_without_a_replay_is_one(tmp_path, vendor):
    """A begun and ended capture; one that the same trace replays is serving, as is neither."""
    captured = [f"{vendor}StreamBeginCapture", f"{vendor}StreamEndCapture"]
    assert only_captures_graphs(_trace(tmp_path, *captured))
    assert not only_captures_graphs(_trace(tmp_path, *captured, f"{vendor}GraphLaunch"))
    assert not only_captures_graphs(_trace(tmp_path, f"{vendor}LaunchKernel"))
