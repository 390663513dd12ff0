"""Traces without module ranges: calls from annotations, operators, periods, or all as one."""

from __future__ import annotations

import gzip

import msgspec
import numpy as np
import polars as pl
import pytest

from profiler.analysis import headline, key_facts
from profiler.analysis.analyze import analyze
from profiler.importers import import_trace
from profiler.importers.kineto.calls import period_of
from profiler.tools.sources import load
from profiler.trace.manifest_fields import CallsFrom
from tests.corpus import SD35, needs_corpus

from .traces import Trace, calls


def work(trace, name, start, dims=(), tid=1, length=8):
    """An operator of 10 µs that launches one kernel."""
    external = trace.op(name, start, 10, tid, **{"Input Dims": [list(one) for one in dims]})
    args = {"external": external, "tid": tid}
    trace.kernel(f"k_{name}", start + 5, length, launched=start + 2, **args)


def encoder(trace, start, rows, columns):
    """A text encoder: the embedding of its tokens, one of positions, and a projection."""
    work(trace, "aten::embedding", start, [(rows, columns), (1, 77)])
    work(trace, "aten::embedding", start + 20, [(77, columns), (1, 77)])
    work(trace, "aten::addmm", start + 40, [(columns,), (77, columns), (columns, columns)])


def decoder(trace, start):
    """A VAE decoder: from 16 channels to an image."""
    work(trace, "aten::convolution", start, [(1, 16, 8, 8), (512, 16, 3, 3)])
    work(trace, "aten::convolution", start + 20, [(1, 128, 64, 64), (3, 128, 3, 3)])


def diffusion(compiled=True):
    """Two encoders, three steps and a decoder, of which no module and no frame tells."""
    trace = Trace()
    encoder(trace, 0, 49408, 768)
    encoder(trace, 100, 32128, 4096)
    for step in range(3):
        begin = 300 + 200 * step
        if compiled:
            trace.op("Torch-Compiled Region: 0/0", begin - 10, 150)
        work(trace, "aten::convolution", begin, [(2, 16, 8, 8), (64, 16, 2, 2)])
        work(trace, "aten::mm", begin + 50, [(8, 8), (8, 8)])
        work(trace, "aten::add", begin + 160, [(1, 16, 8, 8)])
    decoder(trace, 1000)
    return trace


def facts(run):
    """Value and note of the key figure that says what tells the calls."""
    rows = {str(fact.label): fact for fact in key_facts(analyze(run), 1)}
    return rows["Calls"].value, rows["Calls"].note


@pytest.mark.parametrize("compiled", [True, False])
def test_operators_tell_a_diffusion_pipeline(tmp_path, compiled):
    """Embeddings begin encoders, compiled regions or convolutions of latents steps, a convolution
    to three channels ends the decoder; the manifest and the header say that this is a guess."""
    run = diffusion(compiled).imported(tmp_path)
    found = run.calls.select("submodule", "stage", "step").rows()
    assert found == [
        ("text_encoder", "encode", -1),
        ("text_encoder_2", "encode", -1),
        *(("transformer", "denoise", step) for step in range(3)),
        ("vae", "decode", -1),
    ]
    assert run.info.recording.calls_from is CallsFrom.OPERATORS
    assert not any(part.model for part in run.info.submodules.values())
    value, note = facts(run)
    assert value == "guessed"
    assert "with_stack=True" in note


def test_operators_without_a_decoder_tell_of_no_diffusion(tmp_path):
    """An embedding and compiled regions are a language model's as well."""
    trace = Trace()
    encoder(trace, 0, 49408, 768)
    for step in range(3):
        trace.op("Torch-Compiled Region: 0/0", 100 + 50 * step, 30)
        work(trace, "aten::mm", 105 + 50 * step, [(8, 8), (8, 8)])
    run = trace.imported(tmp_path)
    assert run.calls["stage"].cast(pl.String).unique().to_list() == ["run"]
    assert (run.calls["step"] == -1).all()


@pytest.mark.parametrize(
    "text",
    [
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "Optimizer.step#AdamW.step",
        "DataParallel.forward",
        "{'mod': 'torch', 'op': 'conv2d', 'args': []}",
        "aten::conv2d, seq = 3, op_id = 77, sizes = [[64, 3, 8, 8]]",
    ],
)
def test_ranges_that_no_script_named_are_no_calls(tmp_path, text):
    """Beside a range that the script named, what torch and profilers of operators write is no call,
    and makes no iterations; four passes of the script's own do."""
    trace = Trace()
    for number in range(4):
        begin = 1000 * number
        trace.event("user_annotation", text, begin, 300)
        work(trace, "aten::mm", begin + 10)
        trace.event("user_annotation", "train", begin + 400, 500)
        work(trace, "aten::mm", begin + 410)
    run = trace.imported(tmp_path)
    assert run.calls.select("submodule", "iteration").rows() == [("train", n) for n in range(4)]


def test_named_ranges_are_calls_of_their_profiler_step(tmp_path):
    """What the script named parts the run; ranges around all of it and torch's own do not."""
    trace = Trace()
    trace.event("user_annotation", "everything", 0, 1000)
    for step in range(2):
        begin = 10 + 400 * step
        trace.event("user_annotation", f"ProfilerStep#{step + 4}", begin, 380)
        trace.event("user_annotation", "## forward ##", begin + 10, 100)
        trace.event("user_annotation", "DistributedDataParallel.forward", begin + 11, 90)
        work(trace, "aten::mm", begin + 20)
        trace.event("user_annotation", "## backward ##", begin + 120, 100)
        trace.op("autograd::engine::evaluate_function: MmBackward0", begin + 130, 30, 2)
        work(trace, "aten::mm", begin + 132, tid=2)
        trace.event("user_annotation", "nccl:all_reduce", begin + 145, 5, tid=2)
    run = trace.imported(tmp_path)
    found = run.calls.select("submodule", "stage", "iteration").rows()
    assert found == [
        ("forward", "run", 4),
        ("backward", "run", 4),
        ("forward", "run", 5),
        ("backward", "run", 5),
    ]
    kernels = run.commands.filter(pl.col("device") == "cuda:0")
    assert kernels["call"].to_list() == [0, 1, 2, 3]
    assert run.info.recording.calls_from is CallsFrom.ANNOTATIONS
    assert facts(run)[0] == "named"


@pytest.mark.parametrize("collective", ["hccl:all_to_all", "nccl:all_reduce", "xccl:broadcast"])
def test_a_collective_still_open_around_a_named_range_hides_nothing(tmp_path, collective):
    """An asynchronous collective ends behind `forward`, which began in it: the calls are those of
    the script, whatever library the device of the collective has."""
    trace = Trace()
    trace.event("user_annotation", collective, 5, 200)
    trace.event("user_annotation", "## forward ##", 10, 190)
    work(trace, "aten::mm", 20)
    trace.event("user_annotation", "## backward ##", 210, 100)
    work(trace, "aten::mm", 220)
    run = trace.imported(tmp_path)
    assert run.calls["submodule"].to_list() == ["forward", "backward"]


def test_what_autograd_launched_is_the_open_call_s_though_its_thread_has_calls(tmp_path):
    """A range that a hook named on autograd's thread takes nothing from `backward`."""
    trace = Trace()
    trace.event("user_annotation", "## backward ##", 0, 100)
    trace.event("user_annotation", "## optimizer ##", 110, 10)
    trace.event("user_annotation", "## encoder ##", 60, 10, tid=2)
    args = {"Sequence number": 5, "Fwd thread id": 1}
    trace.op("autograd::engine::evaluate_function: MmBackward0", 10, 40, 2, **args)
    work(trace, "aten::mm", 20, tid=2)
    work(trace, "aten::copy_", 60, tid=2)
    run = trace.imported(tmp_path)
    named = run.calls.select("call", pl.col("submodule").cast(pl.String))
    kernels = run.commands.filter(pl.col("device") == "cuda:0").join(named, on="call")
    assert kernels.sort("start_ns")["submodule"].to_list() == ["backward", "encoder"]


@pytest.mark.parametrize(("length", "growth"), [(251, 1.51), (25, -0.75)])
def test_graphs_that_autograd_replays_are_the_waiting_call_s(tmp_path, length, growth):
    """The forward's kernel takes 60 µs, the backward's 100: as two of a graph that autograd's
    thread launches while `backward` waits it changes by what the graph's kernels take."""
    times = []
    for name, graph in (("eager", False), ("graphs", True)):
        trace = Trace()
        trace.event("user_annotation", "## forward ##", 0, 100)
        work(trace, "aten::mm", 10, length=60)
        trace.event("user_annotation", "## backward ##", 110, 500)
        if graph:
            trace.op("CompiledFunctionBackward", 112, 40, 2)
            trace.event("cuda_runtime", "cudaGraphLaunch", 120, 10, tid=2, correlation=900)
            trace.kernel("matmul_0", 140, length - 10, correlation=900)
            trace.kernel("matmul_1", 150 + length, 10, correlation=900)
        else:
            work(trace, "aten::mm", 120, tid=2, length=100)
        folder = tmp_path / name
        folder.mkdir()
        rows = analyze(trace.imported(folder)).submodules.select("submodule", "busy_ns").rows()
        times.append(dict(rows))
    assert [one["forward"] for one in times] == [60_000, 60_000]
    assert times[1]["backward"] / times[0]["backward"] - 1 == pytest.approx(growth)


def test_profiler_steps_are_calls_where_nothing_else_is_named(tmp_path):
    """Each step of the schedule is a pass of the loop, with its own number."""
    trace = Trace()
    for step in range(3):
        trace.event("user_annotation", f"ProfilerStep#{step + 7}", 100 * step, 90)
        work(trace, "aten::mm", 100 * step + 10)
    run = trace.imported(tmp_path)
    found = run.calls.select("submodule", "stage", "iteration").rows()
    assert found == [("ProfilerStep", "run", step + 7) for step in range(3)]
    assert run.info.recording.calls_from is CallsFrom.PROFILER_STEPS


def test_profiler_steps_end_where_the_next_begins(tmp_path):
    """The schedule ends one before it begins another: steps that are recorded half as long again
    are of 100 µs, but for the last, behind which none begins."""
    trace = Trace()
    for step in range(4):
        trace.event("user_annotation", f"ProfilerStep#{step}", 100 * step, 150)
        work(trace, "aten::mm", 100 * step + 10)
    calls = trace.imported(tmp_path).calls
    assert calls["duration_ns"].to_list() == [100_000] * 3 + [150_000]


def test_kernels_that_repeat_themselves_are_passes(tmp_path):
    """Five kernels in the same order five times, after one that comes once: five passes. What was
    recorded of a sixth is none."""
    trace = Trace()
    work(trace, "aten::arange", 0)
    for run_number in range(6):
        for number, name in enumerate("abcde" if run_number < 5 else "abc"):
            work(trace, f"aten::{name}", 100 + 100 * run_number + 15 * number)
    run = trace.imported(tmp_path)
    assert run.calls["iteration"].to_list() == [0, 1, 2, 3, 4]
    kernels = run.commands.filter(pl.col("device") == "cuda:0").sort("start_ns")
    passes = (call for call in range(5) for _ in range(5))
    assert kernels["call"].to_list() == [-1, *passes, -1, -1, -1]
    assert run.info.recording.calls_from is CallsFrom.KERNEL_PERIOD
    assert facts(run)[0] == "guessed"


def test_what_ran_before_the_first_pass_is_of_the_run(tmp_path):
    """Loading takes 2 ms from the first operator on, and five passes of 100 µs follow; guessed
    passes have no name that the headline could say."""
    trace = Trace()
    work(trace, "aten::arange", 0)
    for run_number in range(5):
        for number, name in enumerate("abcde"):
            work(trace, f"aten::{name}", 2000 + 100 * run_number + 15 * number)
    run = trace.imported(tmp_path)
    analysis = analyze(run)
    first, last = 0, 2000 + 400 + 60 + 5 + 8  # the first operator, and the end of the last kernel
    assert analysis.accounting.end_to_end_ns == (last - first) * 1000
    assert "repeated kernels" not in headline(analysis, 0)


def test_a_period_must_hold_for_nine_of_ten_kernels():
    """Random kernels have none; a loop whose every pass has one stranger in ten has."""
    names = np.random.default_rng(7).integers(0, 9, 500)
    assert period_of(names) is None
    assert period_of(np.zeros(0, dtype=np.int64)) is None
    loop = np.tile(np.arange(12), 6)
    assert period_of(loop) == (0, 12)
    loop[5::12] = np.arange(20, 26)
    assert period_of(loop) == (0, 12)


def test_a_trace_that_tells_no_calls_is_one(tmp_path):
    """Two kernels and no names: one call in the stage `run`, and the header says so."""
    trace = Trace()
    work(trace, "aten::mm", 0)
    work(trace, "aten::add", 40)
    run = trace.imported(tmp_path)
    assert calls(run) == [("trace", "run", None, -1)]
    assert run.info.recording.calls_from is CallsFrom.NOTHING
    value, note = facts(run)
    assert (value, "by kernel" in note) == ("none", True)


def test_a_trace_of_the_cpu_alone_is_one_call(tmp_path):
    """Operators without devices, and a pipeline's frame without submodules."""
    trace = Trace()
    trace.frame("diffusers/pipelines/x/pipeline_x.py(1): __call__", 0, 100)
    trace.op("aten::mm", 10, 20)
    run = trace.imported(tmp_path)
    assert calls(run) == [("trace", "run", None, -1)]
    assert run.calls["device"].to_list() == ["cpu:0"]


@needs_corpus
def test_sd35_without_frames_has_the_same_calls(tmp_path):
    """SD3.5 without its Python frames: the eleven calls, their labels and devices, over 99 % of
    device time in them, device time within 1 % and elapsed time within 3 % of those with frames."""
    with gzip.open(SD35) as file:
        document = msgspec.json.decode(file.read(), type=dict[str, msgspec.Raw])
    events = msgspec.json.decode(document["traceEvents"], type=list[msgspec.Raw])
    kept = [one for one in events if b'"python_function"' not in bytes(one)]
    path = tmp_path / "bare.json"
    path.write_bytes(msgspec.json.encode({**document, "traceEvents": kept}))
    labels = ("submodule", "stage", "branch", "step", "device")
    bare, whole = load(import_trace(path, tmp_path / "traces")), load(SD35)
    assert bare.calls.select(labels).equals(whole.calls.select(labels))
    assert bare.info.recording.calls_from is CallsFrom.OPERATORS
    assert bare.info.attribution["rocm:2"].share >= 0.99
    ours, theirs = bare.tiles.calls.sort("call"), whole.tiles.calls.sort("call")
    assert ours["busy_ns"].to_list() == pytest.approx(theirs["busy_ns"].to_list(), rel=0.01)
    assert ours["elapsed_ns"].to_list() == pytest.approx(theirs["elapsed_ns"].to_list(), rel=0.03)
    whole.close()
