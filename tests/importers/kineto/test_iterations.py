"""Passes of loops that are not denoising, in imported traces."""

from __future__ import annotations

import polars as pl

from profiler.analysis.analyze import analyze
from profiler.analysis.end_to_end import iteration_notes
from profiler.analysis.overview import extent, opening_of, summary_of
from profiler.analysis.result import ReportInput
from profiler.importers import import_trace
from profiler.tools.sources import load
from profiler.trace import MANIFEST_NAME, read_manifest
from tests.importers.kineto.traces import PIPELINE, STEP, Trace
from tests.report.reader import plain
from tests.report.rendered import printed


def iterations(run):
    return run.calls["iteration"].to_list()


def language_model(tokens, *, steps=()):
    """A tokenizer's module, then a model and a sampler for each token, 100 µs apart."""
    trace = Trace()
    for number, begin, length in steps:
        trace.event("user_annotation", f"ProfilerStep#{number}", begin, length)
    trace.module("Embedding_0", 0, 10)
    for token in range(tokens):
        trace.module("LlamaForCausalLM_0", 100 + 100 * token, 50)
        trace.module("Sampler_0", 160 + 100 * token, 20)
    return trace


def test_each_token_is_an_iteration(tmp_path):
    """The module called most often counts; what follows its call belongs to it, what precedes the
    first one to none."""
    run = language_model(3).imported(tmp_path)
    assert iterations(run) == [-1, 0, 0, 1, 1, 2, 2]
    assert analyze(run).calls["iteration"].to_list() == iterations(run)
    assert run.to_pandas()["step"].eq(-1).all()


def test_what_follows_the_last_iteration_is_in_none(tmp_path):
    """Where a loop ends is not recorded: a module that only the last pass would have comes behind
    it, and so does what follows that module."""
    trace = language_model(3)
    trace.module("Detokenizer_0", 400, 10)
    trace.module("Embedding_0", 420, 20)
    assert iterations(trace.imported(tmp_path)) == [-1, 0, 0, 1, 1, 2, 2, -1, -1]


def test_what_holds_little_time_makes_no_iterations(tmp_path):
    """A module of 1 µs that moves tensors is called twice for each token of 70 µs: there are as
    many iterations as tokens."""
    trace = language_model(3)
    for token in range(3):
        for at in (152, 155):
            trace.module("ToDevice_0", at + 100 * token, 1)
    run = trace.imported(tmp_path)
    assert iterations(run) == [-1, *(token for token in range(3) for _ in range(4))]
    assert analyze(run).accounting.iterations == 3


def test_two_calls_are_no_loop(tmp_path):
    """A prompt and its negative: a module that is called twice makes none."""
    assert iterations(language_model(2).imported(tmp_path)) == [-1] * 5


def test_steps_of_the_profiler_have_their_own_numbers(tmp_path):
    """`ProfilerStep#n` says which iteration it is; outside of all is none."""
    trace = language_model(4, steps=[(7, 90, 200), (8, 290, 100)])
    assert iterations(trace.imported(tmp_path)) == [-1, 7, 7, 7, 7, 8, 8, -1, -1]


def test_an_iteration_that_lost_its_work_is_in_no_mean(tmp_path):
    """Of six passes of 100 ms, in each of which nothing runs for 40 ms, the fourth lost its
    kernels. Of the others four take 100 ms, and the last ends with its work, after 90."""
    trace = Trace()
    for number in range(6):
        for name, begin, length in (("LlamaForCausalLM_0", 0, 40), ("Sampler_0", 70, 20)):
            at = 1000 * (100 * number + begin)
            trace.module(name, at, 1000 * length)
            trace.kernel("gemm", at + 10, 1000 * length - 10, launched=at)
            if number == 3:
                del trace.events[-1]
    made = analyze(trace.imported(tmp_path))
    notes = [plain(note) for note in iteration_notes(made)]
    assert notes[0] == "1 without the work of some calls, mean of the others 98.0 ms"
    assert (
        made.submodules.filter(pl.col("submodule") == "Sampler")["median_ns"].item() == 20_000_000
    )


def test_one_step_of_the_profiler_is_no_loop(tmp_path):
    """Then the module that is called most often decides, as without it."""
    trace = language_model(3, steps=[(7, 0, 1000)])
    assert iterations(trace.imported(tmp_path)) == [-1, 0, 0, 1, 1, 2, 2]


def test_denoising_steps_are_no_iterations(tmp_path):
    """They have `step`."""
    trace = Trace()
    trace.frame(PIPELINE, 0, 1000)
    for step in range(3):
        trace.module("FluxTransformer2DModel_0", 100 + 100 * step, 50)
        trace.frame(STEP, 160 + 100 * step, 10)
    run = trace.imported(tmp_path)
    assert run.calls["step"].to_list() == [0, 1, 2]
    assert iterations(run) == [-1] * 3


def test_an_iteration_survives_the_bundle(tmp_path):
    """In the call's own file, in the manifest, and in the merged one."""
    bundle = import_trace(language_model(3).write(tmp_path), tmp_path / "traces")
    entries = read_manifest(bundle / MANIFEST_NAME).calls
    assert [entry.call.iteration for entry in entries] == [-1, 0, 0, 1, 1, 2, 2]
    assert [iterations(load(bundle / entry.file)) for entry in entries] == [
        [entry.call.iteration] for entry in entries
    ]
    assert iterations(load(bundle / "merged.pb")) == [-1, 0, 0, 1, 1, 2, 2]


def test_a_report_tells_iterations_where_there_are_any(tmp_path):
    """The table of calls has the column for tokens, and none for two calls of a module."""
    for tokens, told in ((3, True), (2, False)):
        folder = tmp_path / str(tokens)
        folder.mkdir()
        text = printed(analyze(language_model(tokens).imported(folder)), 200)
        (heading,) = (line for line in text.splitlines() if line.startswith("call  submodule"))
        assert ("iteration" in heading.split()) == told


def test_what_was_not_recorded_is_part_of_an_iteration(tmp_path):
    """An iteration lasts from its begin to the next one's, as its `ProfilerStep` does, whatever the
    device did meanwhile; what lies outside of all is said beside it, so that all adds up."""
    trace, step_ns = Trace(), 20_000_000
    trace.module("Setup_0", 0, 7000)
    trace.kernel("fill", 1, 6999, launched=0)
    for number in range(3):
        begin = 7000 + 20000 * number
        trace.event("user_annotation", f"ProfilerStep#{number}", begin, 20000)
        trace.module("Net_0", begin, 20000)
        trace.kernel("gemm", begin + 1, 4999, launched=begin)
        trace.event("cuda_runtime", "cudaDeviceSynchronize", begin + 2, 14998)
        trace.kernel("gemm", begin + 15001, 4999, launched=begin + 15000)
    trace.module("Save_0", 67000, 3000)
    trace.kernel("copy", 67001, 2999, launched=67000)
    found = analyze(trace.imported(tmp_path))
    given = ReportInput(found, *extent(found.inputs.run))
    facts = opening_of(given, summary_of(given)).facts
    (fact,) = (each for each in facts if each.label == "Iterations")
    assert plain(fact.value) == "3"
    assert plain(fact.note).split("; ") == [
        "mean 20.0 ms, 10.0 ms of it not recorded",
        "7.00 ms before the first",
        "3.00 ms after the last",
    ]
    account = found.accounting
    assert account.unrecorded_ns == 3 * 10_000_000
    assert account.end_to_end_ns + account.unrecorded_ns == 7_000_000 + 3 * step_ns + 3_000_000


def test_a_last_step_that_is_too_long_is_possible(tmp_path):
    """The last of six steps of 1 ms is 1.6 s too long: its host may have saved something, which is
    not recorded. The time is idle, and the median is that of the others: docs/cannot-answer.md."""
    trace = Trace()
    for number in range(6):
        begin, length = 1_000 * number, 1_601_000 if number == 5 else 1_000
        trace.event("user_annotation", f"ProfilerStep#{number}", begin, length)
        trace.op("aten::mm", begin + 20, 60)
        trace.kernel("gemm", begin + 40, 900, launched=begin + 25)
    run = trace.imported(tmp_path)
    assert run.info.health == ()
    found = analyze(run)
    assert found.accounting.end_to_end_ns == 1_606_000_000
    assert found.submodules["median_ns"].to_list() == [1_000_000]
