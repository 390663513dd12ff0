"""Processes that launch nothing beside one that does: front ends and loaders are no submodules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler.analysis.analyze import analyze
from profiler.importers import import_trace
from profiler.importers.kineto.health import without_front_ends
from profiler.kineto.trace_file import read_kineto
from profiler.tools.sources import load
from profiler.trace.manifest_fields import HealthRule

from .traces import Trace

_RANK = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1}}


def rank(**header):
    """Three calls of a model on a GPU, and what the profiler itself records as process 0."""
    trace = Trace(**header)
    for number in range(3):
        begin = 1000.0 * number
        trace.module("Transformer_0", begin, 900)
        external = trace.op("aten::mm", begin + 10, 50)
        trace.kernel("gemm", begin + 100, 700, launched=begin + 20, external=external)
    trace.event("python_function", "profiler.py(9): stop", 2950, 5, pid=0, tid=0)
    return trace


def front_end(trace, operators=40, pid=77):
    """A process that prepares inputs, in modules of its own."""
    trace.event("python_function", "nn.Module: Tokenizer_0", 0, 2900, pid=pid, tid=pid)
    for number in range(operators):
        trace.event("cpu_op", "aten::empty", 20.0 * number + 5, 10, pid=pid, tid=pid)
    return trace


def figures(run):
    """What must not depend on what ran beside it."""
    analysis = analyze(run)
    rows = analysis.submodules.select("submodule", "calls", "elapsed_ns", "busy_ns").rows()
    return rows, analysis.devices.select("device", "busy_ns", "idle_ns").rows()


def _notes(run):
    return [n for n in run.info.health if n.rule is HealthRule.FRONT_END]


@pytest.mark.parametrize("operators", [1, 40])
def test_a_front_end_in_the_same_file_is_no_submodule(tmp_path, operators):
    """The run is that of the other process alone, and a note counts the operators."""
    alone = load(import_trace(rank().write(tmp_path, "alone.json"), tmp_path / "traces"))
    both = front_end(rank(), operators).write(tmp_path, "both.json")
    run = load(import_trace(both, tmp_path / "traces"))
    assert figures(run) == figures(alone)
    (note,) = _notes(run)
    assert (note.count, note.worst) == (operators, "process 77")
    assert not _notes(alone)


def test_a_process_without_operators_is_not_listed(tmp_path):
    """The profiler's own few ranges are in many sound traces."""
    trace = read_kineto(rank().write(tmp_path))
    assert without_front_ends(trace) is trace


def test_operators_alone_are_the_run(tmp_path):
    """Where nothing launches anything, the host is what was profiled."""
    run = load(import_trace(front_end(Trace()).write(tmp_path), tmp_path / "traces"))
    assert run.calls["submodule"].to_list() == ["Tokenizer"]
    assert not _notes(run)


def test_a_folder_as_vllm_writes_it_reads_like_the_rank_alone(tmp_path):
    """Beside the worker's trace lies that of the process that answers requests."""
    folder = tmp_path / "vllm"
    folder.mkdir()
    rank(**_RANK).write(folder, "rank0.1773.pt.trace.json.gz")
    front_end(Trace()).write(folder, "host_7.async_llm.pt.trace.json")
    alone = load(folder / "rank0.1773.pt.trace.json.gz")
    run = load(folder)
    assert figures(run) == figures(alone)
    (note,) = _notes(run)
    assert (note.count, note.worst) == (40, "host_7.async_llm.pt.trace.json")


def test_the_operators_counted_are_those_of_the_file(tmp_path):
    """Counted a second way: over the JSON itself."""
    path: Path = front_end(rank(), 23).write(tmp_path)
    events = json.loads(path.read_text())["traceEvents"]
    launching = {e["pid"] for e in events if e["cat"] == "cuda_runtime"}
    counted = sum(e["cat"] == "cpu_op" and e["pid"] not in launching for e in events)
    (note,) = without_front_ends(read_kineto(path)).health
    assert note.count == counted
