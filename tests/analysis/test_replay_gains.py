"""Gains that guidance and findings state on a device with a queue, against the same pipeline
simulated with less work."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import polars as pl
import pytest
from msgspec.structs import astuple

import profiler
from profiler.analysis import Finding, words
from profiler.analysis.analyze import analyze
from profiler.analysis.finding_text import evidence_pairs, saving
from profiler.analysis.findings import replayed
from profiler.analysis.gains import gains_of
from profiler.analysis.overview import _gain
from profiler.analysis.result import Effect, Where
from profiler.prediction.ladder import ladder_of_analysis
from profiler.report.html.page import finding_html
from profiler.report.terminal import evidence_text
from tests.corpus import SD35, needs_corpus
from tests.importers.kineto.traces import Trace
from tests.queued_runs import QueuedCall, QueuedPipeline

_ENCODE = (QueuedCall("text_encoder", "prompt"), QueuedCall("text_encoder", "negative_prompt"))
_DECODE = (QueuedCall("vae", length=50_000, host=5_000),)
_LAUNCH_BOUND = QueuedCall("transformer", "batched", kernels=50)
_DEVICE_BOUND = QueuedCall("transformer", "batched", kernels=50, host=5_000, length=40_000)
_BOTH = pytest.mark.parametrize("call", [_LAUNCH_BOUND, _DEVICE_BOUND], ids=["launches", "device"])


def pipeline(call: QueuedCall) -> QueuedPipeline:
    """A pipeline of three steps of one call each."""
    return QueuedPipeline(_ENCODE, [[call]] * 3, _DECODE)


@_BOTH
@pytest.mark.parametrize("factor", [0.25, 0.5])
def test_a_gain_is_what_the_machine_would_gain(call, factor):
    """Of shorter kernels: with the host as it was, and with a launch a call, within 1 % of the
    run."""
    made = pipeline(call)
    gains = gains_of(made.simulated().run)
    found = gains.of_share(gains.calls("transformer"), factor)
    less = made.with_lengths("transformer", factor)
    truth = made.simulated().device_span_ns - less.simulated().device_span_ns
    assert found.recorded == pytest.approx(truth, abs=0.01 * made.simulated().device_span_ns)
    assert found.low <= found.recorded <= found.high


@_BOTH
def test_calls_that_are_left_out(call):
    """Those for the negative prompt, as simulated within 1 % of the run."""
    made = pipeline(call)
    gains = gains_of(made.simulated().run)
    found = gains.without(gains.branches == "negative_prompt", gains.calls("text_encoder"))
    without = made.without("negative_prompt").simulated()
    truth = made.simulated().device_span_ns - without.device_span_ns
    assert found.recorded == pytest.approx(truth, abs=0.01 * made.simulated().device_span_ns)


@_BOTH
def test_what_guidance_costs_is_replayed(call):
    """Half of the batch's work goes: the device works less by `busy_ns`, of which a launch-bound
    denoiser gains nothing, and one that the device bounds nearly all."""
    row = (
        analyze(pipeline(call).simulated().run).guidance.filter(branch="batched").row(0, named=True)
    )
    (note,) = json.loads(row["evidence"])
    assert note["code"] == "replayed_launches"
    assert row["busy_ns"] > 0
    gained = row["elapsed_ns"] / row["busy_ns"]
    assert gained == pytest.approx(1.0 if call is _DEVICE_BOUND else 0.0, abs=0.05)
    assert note["gain_low_ns"] <= row["elapsed_ns"] <= note["gain_high_ns"]


def test_a_finding_states_what_a_replay_gains():
    """Ten of a launch-bound denoiser's kernels less time gain nothing; ten launches less do."""
    made = pipeline(_LAUNCH_BOUND).simulated()
    gains = gains_of(made.run)
    effects = (Effect(("transformer",), 100_000), Effect(("transformer",), 100_000, 15))
    costs = []
    for effect in effects:
        found = Finding("slow_products", {"saved_ns": 100_000}, cost_ns=100_000, effect=effect)
        now = replayed(found, gains, made.ns)
        costs.append(now.cost_ns)
        assert now.evidence["saved_ns"] == now.evidence["gain_ns"] == now.cost_ns
        assert now.evidence["gain_low_ns"] <= now.cost_ns <= now.evidence["gain_high_ns"]
    assert costs[0] < 20_000
    assert costs[1] == pytest.approx(15 / 150 * 3 * 50 * 41_000, rel=0.1)


def test_launches_less_gain_the_host_time_of_theirs():
    """Half of a denoiser's launches take the host 20 us, half 60: ten of either kind less gain 0.2
    and 0.6 ms, no mean."""
    steps = [[replace(_LAUNCH_BOUND, host=host)] for host in (20_000, 60_000)]
    run = QueuedPipeline(_ENCODE, steps, _DECODE).simulated().run
    step = run.calls.filter(submodule="transformer")["call"].to_list()
    kind = pl.col("call").replace_strict(dict(zip(step, ("add", "mm"), strict=True)), default="")
    run = replace(run, commands=run.commands.with_columns(op_type=kind.cast(pl.Categorical)))
    gains = gains_of(run)
    for name, host in (("add", 20_000), ("mm", 60_000)):
        effect = Effect(("transformer",), launches_of={name: 10})
        found = Finding("norm_chains", {"saved_ns": 1}, cost_ns=1, effect=effect)
        assert replayed(found, gains, 1).cost_ns == pytest.approx(10 * host, rel=0.1)


def test_a_pause_of_the_host_is_no_launch():
    """Of ten copies that take the host 20 us each one is launched after a pause of 30 ms: without
    them the run gains 0.2 ms, no 30."""
    stops = replace(_LAUNCH_BOUND, host=20_000, stalls=30_000_000)
    run = QueuedPipeline(_ENCODE, [[stops]], _DECODE).simulated().run
    behind = pl.col("call").is_in(run.calls.filter(submodule="transformer")["call"].implode())
    behind &= pl.col("kernel").is_not_null() & (pl.col("start_ns") > 30_000_000)
    copies = behind & (behind.cum_sum() <= 10)
    kind = pl.when(copies).then(pl.lit("copy")).otherwise(pl.lit("mm")).cast(pl.Categorical)
    gains = gains_of(replace(run, commands=run.commands.with_columns(op_type=kind)))
    effect = Effect(("transformer",), launches_of={"copy": 10})
    found = replayed(Finding("data_movement", {}, cost_ns=1, effect=effect), gains, 1)
    assert found.cost_ns == pytest.approx(10 * 20_000, rel=0.1)
    assert found.evidence["launching_ns"] == pytest.approx(10 * 20_000, rel=0.1)


def test_work_on_two_devices_at_once_is_gained_once():
    """Of 500 us less on two devices that do the same at once half passes."""
    gains = gains_of(pipeline(_DEVICE_BOUND).simulated().run)
    found = Finding("slow_products", {}, cost_ns=1, effect=Effect(("transformer",), 500_000))
    assert replayed(found, gains, 1).cost_ns == pytest.approx(500_000, rel=0.01)
    once = replayed(found, gains, 1, at_once=0.5)
    assert (once.cost_ns, once.evidence["gain_high_ns"]) == (250_000, 250_000)


def test_a_gain_above_the_work_says_what_launching_it_took():
    """Of a launch-bound denoiser 15 launches with 100 us of work gain 615 us, which the host took
    to launch them; 15 of a device-bound one no more than the work takes, and nothing is said."""
    for call, less_ns, above in ((_LAUNCH_BOUND, 100_000, True), (_DEVICE_BOUND, 500_000, False)):
        gains = gains_of(pipeline(call).simulated().run)
        effect = Effect(("transformer",), less_ns, launches=15)
        found = replayed(Finding("data_movement", {}, cost_ns=1, effect=effect), gains, 1)
        assert ("launching_ns" in found.evidence) is ("to launch it" in words(found).caveat)
        assert ("launching_ns" in found.evidence) is (found.cost_ns > 1.01 * less_ns) is above
        if above:
            assert found.evidence["launching_ns"] == pytest.approx(15 * 41_000, rel=0.02)
            assert found.cost_ns <= found.evidence["launching_ns"] + less_ns


def test_a_run_whose_replay_is_off_gains_nothing_that_is_known():
    """A stream that waits for another: no gains."""
    apart = QueuedCall("vae", kernels=1, apart=900_000)
    assert gains_of(QueuedPipeline(_ENCODE, [[_LAUNCH_BOUND]] * 2, [apart]).simulated().run) is None


@pytest.mark.parametrize("kernel", ["ncclDevKernel_AllReduce_Sum", "gemm"])
def test_a_finding_without_a_replay_does_not_name_one(kernel, tmp_path):
    """Of each 100 us 40 are a copy. Beside collectives the run is not replayed: the finding has
    the time of the copies and its ladder no number; beside other work both are by replay."""
    trace = Trace()
    for at in range(0, 5_000, 100):
        trace.kernel(
            "copy_kernel", at + 10, 40, launched=at + 1, external=trace.op("aten::copy_", at, 2)
        )
        trace.kernel(kernel, at + 50, 50, launched=at + 3, external=trace.op("aten::mm", at + 2, 2))
    analysis = analyze(trace.imported(tmp_path))
    (found,) = [one for one in analysis.findings if one.rule == "data_movement"]
    replayed = kernel == "gemm"
    assert ("gain_ns" in found.evidence) is replayed
    assert ("replay" in words(found).caveat) is replayed
    assert (ladder_of_analysis(analysis).refused is None) is replayed
    assert replayed or found.cost_ns == 50 * 40_000


def _of_two_hosts(recorded, late):
    """A finding of a run of 1 s whose replays gain so many ns with either host."""
    ends = {"gain_low_ns": min(recorded, late), "gain_high_ns": max(recorded, late)}
    evidence = {"saved_ns": recorded, "saved_share": recorded / 1e9, "gain_ns": recorded, **ends}
    where = Where(submodule="transformer")
    return Finding("recomputed", evidence, where, recorded, recorded / 1e9, "low")


@pytest.mark.parametrize(
    ("recorded", "late", "saves", "gain"),
    [
        (0, 0, None, ""),
        (0, 160_000_000, "at most 160 ms", "0 to 160 ms"),
        (20_000_000, 400_000, "at most 20.0 ms", "20.0 ms"),
        (20_000_000, 20_000_000, "20.0 ms", "20.0 ms"),
        (30_000_000, 20_000_000, "20.0 ms to 30.0 ms", "30.0 ms"),
    ],
)
def test_a_gain_that_is_nothing_has_no_number(recorded, late, saves, gain):
    """Of a run of 1 s what is below half a millisecond: nowhere a gain of 0 ns or of 0 %."""
    found = _of_two_hosts(recorded, late)
    said = saving(found)
    assert (said and said.replace("\N{NO-BREAK SPACE}", " ")) == saves
    assert _gain(found).replace("\N{NO-BREAK SPACE}", " ") == gain
    page = finding_html(found)
    for text in (page, *astuple(words(found)), evidence_text(found)):
        assert not re.search(r"(?<![\d,.])0 (ns|%)|400 µs", text.replace("\N{NO-BREAK SPACE}", " "))
    assert ("saves" in page) is (saves is not None)


@pytest.mark.parametrize(
    ("late", "gains"),
    [
        (19_990_000, "gains 20.0 ms, whether the host stays as slow as recorded or always keeps"),
        (30_000_000, "gains 20.0 ms if the host stays as slow as recorded, and 30.0 ms if it"),
    ],
)
def test_a_gain_stands_once_in_its_caveat_and_not_in_the_evidence(late, gains):
    """Replays that agree to the digits shown are one figure; the page says it at the title."""
    found = _of_two_hosts(20_000_000, late)
    assert gains in words(found).caveat.replace("\N{NO-BREAK SPACE}", " ")
    assert [str(name) for name, _ in evidence_pairs(found)] == ["saved share"]


@needs_corpus
def test_sd35s_findings_promise_nothing_that_a_replay_contradicts():
    """Attention's 160 ms above its roofline are hidden behind launches; the negative prompt's
    encoders take 57 ms, and the host 2 ms between them."""
    analysis = analyze(profiler.load(SD35))
    found = {finding.rule: finding for finding in analysis.findings}
    slow = found["slow_products"]
    assert (slow.cost_ns, slow.severity) == (0, "low")
    assert slow.evidence["gain_high_ns"] == pytest.approx(160e6, rel=0.02)
    assert "gains nothing if the host stays as slow as recorded, and 160 ms" in words(slow).caveat
    assert found["negative_prompt"].cost_ns == pytest.approx(59.4e6, rel=0.001)
    (batched,) = analysis.guidance.filter(branch="batched")["elapsed_ns"]
    assert batched < 1e6
