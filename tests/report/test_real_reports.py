"""What the terminal says of real traces of asynchronous devices: the acceptance of gpu.md §8."""

from __future__ import annotations

import re

import pytest

from profiler.analysis import extent, headline
from profiler.analysis.analyze import analyze
from profiler.analysis.dropped_data import unchecked_text
from profiler.analysis.finding_text import words
from profiler.tools.sources import load
from tests.corpus import CORPUS, SD35, needs_corpus
from tests.importers.kineto.traces import Trace
from tests.report.rendered import printed

pytestmark = needs_corpus

_PREFILL = CORPUS / "torch_graph/sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode.json.gz"


def _report(path):
    """The analysis of a trace, and what a terminal of 80 columns prints, in one line."""
    run = load(path)
    analysis = analyze(run)
    begin = extent(run)[0]
    text = printed(analysis, 80, begin_ns=begin).replace("\N{NO-BREAK SPACE}", " ")
    run.close()
    return analysis, " ".join(text.split())


@pytest.fixture(scope="module")
def sd35():
    return _report(SD35)


@pytest.fixture(scope="module")
def prefill():
    return _report(_PREFILL)


def _milliseconds(series):
    return (series / 1e6).round(1).to_list()


def test_sd35_begins_with_the_shares_of_the_device(sd35):
    """Four transformer calls of 248.1 to 250.1 ms, 83 % of 1.19 s; the VAE 49.9, not 8.2; the six
    encoder calls 117.8 together, busy 35.0."""
    analysis, text = sd35
    assert text.startswith("1.19 s for 4 steps: the GPU computes 60 % and waits for the host 38 %")
    calls = analysis.calls
    steps = calls.filter(calls["step"] >= 0)
    assert _milliseconds(steps["elapsed_ns"]) == [250.1, 248.1, 248.3, 248.7]
    assert _milliseconds(steps["busy_ns"]) == [157.6, 157.3, 157.0, 155.8]
    assert _milliseconds(calls.filter(calls["submodule"] == "vae")["elapsed_ns"]) == [49.9]
    encoders = calls.filter(calls["stage"] == "encode")
    assert (len(encoders), round(encoders["elapsed_ns"].sum() / 1e6, 1)) == (6, 117.8)
    assert round(encoders["busy_ns"].sum() / 1e6, 1) == 35.0
    for shown in ("vae rocm:2 1 49.9", "encode 135.9 11.4 6 117.8"):
        assert shown in text


def test_sd35_says_what_of_each_step_is_launch_bound(sd35):
    """91 to 93 ms of each step, of which 14 to 17 before the first kernel: with the steps, and as
    the only finding of that cause."""
    analysis, text = sd35
    sentence = re.search(
        r"(\S+) ms to (\S+) ms of each step are launch-bound: .*?"
        r"(\S+) ms to (\S+) ms of that lie before the first kernel",
        text,
    )
    assert sentence is not None
    low, high, least, most = map(float, sentence.groups())
    assert 90.5 <= low <= high < 93
    assert 14 <= least <= most <= 17
    about = [
        finding for finding in analysis.findings if finding.rule in ("host_bound", "idle_gaps")
    ]
    assert [finding.rule for finding in about] == ["host_bound"]
    assert "rocm:2 waits for the host to launch work for 38 % of the time: 90.8 ms to" in text


def test_sd35_lists_what_the_host_did_in_the_gaps_at_the_steps(sd35):
    """The four longest rows, with the generated code that the host was in."""
    _, text = sd35
    table = text[text.index("Longest gaps, whole run") :]
    rows = re.findall(r"(\d+\.\d) (\d+\.\d) launch-bound (\d) tmp/torchi\S+: call", table)
    assert [float(length) for _, length, _ in rows] == [16.8, 14.5, 14.5, 14.4]
    assert sorted(step for *_, step in rows) == ["0", "1", "2", "3"]


def test_prefill_tells_unrecorded_work_from_idle_time(prefill):
    """SGLang: 492 ms of device time in the model, 493 ms that nobody recorded, 0.3 % idle."""
    analysis, text = prefill
    model = analysis.submodules.row(0, named=True)
    assert model["submodule"] == "Qwen3Model"
    assert 491.5e6 < model["elapsed_ns"] < 493e6
    assert 491.5e6 < model["busy_ns"] < 493e6
    assert text.startswith("494 ms recorded of 987 ms for 3 submodules: the GPU computes 99.7 %")
    assert "Not recorded 493 ms" in text
    (idle,) = analysis.idle.to_dicts()
    assert (round(idle["idle_ns"] / 1e6, 2), round(idle["unrecorded_ns"] / 1e6)) == (1.24, 493)
    longest = analysis.gaps.row(0, named=True)
    assert (longest["cause"], longest["host_activity_kind"]) == ("unrecorded", "wait")


def test_copies_that_nothing_hides_are_no_waiting(tmp_path):
    """80 µs of kernels, then 20 µs of a copy alone: the GPU is busy all the time, and the headline
    does not add waiting to that."""
    trace = Trace()
    with_call = trace.op("aten::mm", 0, 10)
    trace.kernel("gemm", 20, 80, launched=2, external=with_call)
    trace.kernel("Memcpy HtoD (Pinned -> Device)", 100, 20, launched=6, cat="gpu_memcpy")
    run = trace.imported(tmp_path)
    text = headline(analyze(run), 0).replace("\N{NO-BREAK SPACE}", " ")
    assert "the GPU is busy 83 % (17 % in transfers alone) and waits for the host 17 %" in text


def test_memory_that_was_profiled_and_is_not_in_the_file_is_no_option_to_set(tmp_path):
    """`profile_memory` was on: to record with it again is no advice."""
    trace = Trace(profile_memory=1)
    trace.kernel("gemm", 20, 80, launched=2, external=trace.op("aten::mm", 0, 10))
    text = str(unchecked_text(analyze(trace.imported(tmp_path))))
    assert "profile_memory was on, but the file holds no memory events" in text


def test_collectives_of_a_run_that_is_bound_by_its_host_gain_nothing(tmp_path):
    """Each kernel of 40 µs is launched each 100 µs, with an all-reduce of 30 µs behind it: half of
    the exposed time is nobody's gain, because the next launch comes no sooner."""
    trace = Trace()
    for at in range(0, 5_000, 100):
        external = trace.op("aten::mm", at, 8)
        trace.kernel("gemm", at + 10, 40, launched=at + 1, external=external)
        trace.kernel("ncclDevKernel_AllReduce_Sum", at + 50, 30, launched=at + 3)
    analysis = analyze(trace.imported(tmp_path))
    (found,) = [one for one in analysis.findings if one.rule == "exposed_collectives"]
    assert found.evidence["exposed_ns"] == 50 * 30_000
    assert found.cost_ns == found.evidence["without_them_ns"] == 30_000  # the last one's
    caveat = words(found).caveat
    assert "gains at most 30.0 µs if they take no time" in caveat
    assert "{" not in caveat
