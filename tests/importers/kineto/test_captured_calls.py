"""Calls of a diffusion pipeline whose parts are graphs: what their capture shows of them, and what
of the capture's own trace ran."""

from __future__ import annotations

import polars as pl

from profiler.trace.manifest_fields import CallsFrom

from .test_guessed_calls import OUT, PACKED
from .test_regions import facts, work
from .traces import Trace, calls


def part(trace, start, length, kernels, dims):
    """Two warm-up runs of a part, its capture, and a replay; returns when it is done."""
    for number in range(3):
        begin = start + number * (length + 100)
        if number == 2:
            trace.event("cuda_runtime", "cudaStreamBeginCapture", begin - 20, 1)
        for place, (name, shape) in enumerate(dims):
            if number < 2:
                work(trace, name, begin + 12 * place, shape)
            else:
                trace.op(name, begin + 12 * place, 10, **{"Input Dims": [list(s) for s in shape]})
                trace.event("cuda_runtime", "cudaLaunchKernel", begin + 12 * place + 2, 1)
        if number == 2:
            trace.event("cuda_runtime", "cudaStreamEndCapture", begin + length, 1)
    done = start + 3 * (length + 100)
    replay(trace, done, kernels)
    return done + 100


def replay(trace, start, kernels):
    """A launch of a graph of these kernels."""
    trace.event("cuda_runtime", "cudaGraphLaunch", start, 10, correlation=9_000_000 + start)
    for place, name in enumerate(kernels):
        trace.kernel(name, start + 5 + 8 * place, 8, correlation=9_000_000 + start)


ENCODER = [
    ("aten::embedding", [(49408, 768), (1, 77)]),
    ("aten::linear", [(1, 77, 768), (768, 768)]),
    ("aten::linear", [(1, 77, 768), (768, 768)]),
]
DENOISER = [
    ("aten::div", [(1,)]),
    ("aten::linear", PACKED),
    *[("aten::linear", [(1, 256, 3072), (3072, 3072)])] * 12,
    ("aten::linear", OUT),
]
DECODER = [
    ("aten::convolution", [(1, 16, 8, 8), (512, 16, 3, 3)]),
    ("aten::convolution", [(1, 128, 64, 64), (3, 128, 3, 3)]),
]
PARTS = (ENCODER, DENOISER, DECODER)
KERNELS = [[f"{name}_{n}" for n in range(len(one))] for name, one in zip("edv", PARTS, strict=True)]


def captured():
    """Each part of a pipeline captured at its first call, with two more steps replayed."""
    trace = Trace()
    at = part(trace, 100, 60, KERNELS[0], ENCODER)
    at = part(trace, at + 100, 200, KERNELS[1], DENOISER)
    for _ in range(2):
        at += 200
        replay(trace, at, KERNELS[1])
    part(trace, at + 300, 60, KERNELS[2], DECODER)
    return trace


def replayed():
    """The same pipeline when all its parts are graphs."""
    trace = Trace()
    for number, kernels in enumerate((KERNELS[0], *[KERNELS[1]] * 3, KERNELS[2])):
        replay(trace, 300 * number, kernels)
    return trace


SERVED = [
    ("text_encoder", "encode", "prompt", -1),
    *(("transformer", "denoise", "cond", step) for step in range(3)),
    ("vae", "decode", None, -1),
]


def test_replays_are_named_by_what_their_capture_shows(tmp_path):
    """Submodule, stage, branch and step of calls that are launches of graphs."""
    (tmp_path / "capture_traces").mkdir()
    captured().write(tmp_path / "capture_traces")
    run = replayed().imported(tmp_path)
    assert calls(run) == SERVED
    assert run.info.recording.calls_from is CallsFrom.CAPTURED_OPERATORS
    assert facts(run)[0] == "guessed"
    assert run.commands.filter(pl.col("op_type").cast(pl.String) == "aten::embedding").height == 1


def test_the_trace_of_a_capture_keeps_warm_ups_apart_from_what_serves(tmp_path):
    """The pipeline's calls are the replays; warm-ups have names of their own and no branch, and
    what was captured is no call."""
    found = calls(captured().imported(tmp_path))
    assert [row for row in found if "warm-up" not in row[0]] == SERVED
    assert [row for row in found if "warm-up" in row[0]] == [
        *[("text_encoder warm-up", "encode", None, -1)] * 2,
        *[("transformer warm-up", "denoise", None, 0)] * 2,
        *[("vae warm-up", "decode", None, -1)] * 2,
    ]


def test_a_capture_without_warm_ups_and_replays_has_no_calls_of_its_parts(tmp_path):
    """Nothing of it ran but one copy: that is the one call."""
    trace = Trace()
    trace.event("cuda_runtime", "cudaStreamBeginCapture", 0, 1)
    for place, (name, shape) in enumerate(DENOISER + DECODER):
        trace.op(name, 10 + 12 * place, 10, **{"Input Dims": [list(one) for one in shape]})
        trace.event("cuda_runtime", "cudaLaunchKernel", 12 + 12 * place, 1)
    trace.event("cuda_runtime", "cudaStreamEndCapture", 400, 1)
    work(trace, "aten::copy_", 500)
    run = trace.imported(tmp_path)
    assert calls(run) == [("trace", "run", None, -1)]


def test_graphs_of_which_no_capture_tells_are_told_apart_by_their_kernels(tmp_path):
    """Three graphs, numbered as they first come."""
    run = replayed().imported(tmp_path)
    names = run.calls["submodule"].to_list()
    assert names == ["graph 1", "graph 2", "graph 2", "graph 2", "graph 3"]
    assert run.info.recording.calls_from is CallsFrom.GRAPH_LAUNCHES
