"""Predictions of runs with a queue against the same pipeline, changed and simulated anew."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

import profiler
from profiler.analysis.gains import gains_of
from profiler.analysis.replay import Refusal
from profiler.errors import InputError
from profiler.prediction import Assumption, PlacementNote, Scenario, Unknown, workload_of
from profiler.prediction.ladder import ladder_of, ladder_of_analysis
from profiler.prediction.placement import TargetDevice, equal_hardware
from profiler.prediction.predict import Prediction, predict
from profiler.prediction.replay import RefusedError
from profiler.prediction.scenario import Reason
from profiler.run import Run
from profiler.text import Note
from tests.analysis.asked import asked
from tests.corpus import SD35, needs_corpus
from tests.queued_runs import Machine, QueuedCall, QueuedPipeline

_NO_LAUNCHES = Unknown.NO_LAUNCHES
_ENCODE = (QueuedCall("text_encoder", "prompt"), QueuedCall("text_encoder", "negative_prompt"))
_DECODE = (QueuedCall("vae", length=50_000, host=5_000),)
_LAUNCH_BOUND = QueuedCall("transformer", "batched", kernels=50)
_DEVICE_BOUND = QueuedCall("transformer", "batched", kernels=50, host=5_000, length=40_000)


def pipeline(call: QueuedCall, steps: int = 4) -> QueuedPipeline:
    """A pipeline whose steps are one call each."""
    return QueuedPipeline(_ENCODE, [[call]] * steps, _DECODE)


def answer(run: Run, **scenario) -> Prediction:
    return predict(run, asked(run), Scenario(**scenario))


def noted(notes: tuple[Note, ...], code: object) -> dict[str, Note]:
    return {str(note.values.get("submodule", "")): note for note in notes if note.code == code}


@pytest.mark.parametrize("call", [_LAUNCH_BOUND, _DEVICE_BOUND], ids=["launches", "device"])
def test_guidance_off_is_what_the_machine_would_take(call):
    """Of the denoiser's kernels such a share stays as the report says; calls for the negative
    prompt go: as simulated, whether the host or the device is slower, within 1 %."""
    made = pipeline(call)
    found = answer(made.simulated().run, guidance=False)
    share = noted(found.assumes, Assumption.HALF_BATCH_ON_DEVICE)["transformer"].values["share"]
    truth = made.without("negative_prompt").with_lengths("transformer", share).simulated()
    assert found.request.ns == pytest.approx(truth.ns, rel=0.01)
    assert found.device.ns == pytest.approx(truth.device_span_ns, rel=0.01)


@pytest.mark.parametrize("call", [_LAUNCH_BOUND, _DEVICE_BOUND], ids=["launches", "device"])
def test_stages_and_steps_are_those_of_the_analysis(call):
    """Nothing changed: each stage takes what the table of stages says, each step what the table of
    steps says with the time before it, whichever of host and device runs ahead."""
    run = pipeline(call).simulated().run
    analysis = asked(run)
    found = predict(run, analysis, Scenario())
    stages = dict(analysis.stages.select("stage", "elapsed_ns").iter_rows())
    assert {part.name: part.before_ns for part in found.stages} == stages
    steps = analysis.steps.sort("step")
    recorded = [
        length + (before or 0)
        for length, before in steps.select("elapsed_ns", "between_ns").iter_rows()
    ]
    step = workload_of(run, analysis).step
    first = sum(task.first_ns for task in step)
    later = sum(task.steady_ns for task in step)
    assert [*first.tolist(), *later[0].tolist()] == [steps["elapsed_ns"][0], *recorded[1:]]


@needs_corpus
def test_sd35_unchanged_has_the_stages_of_the_analysis():
    """135.87, 998.66 and 59.72 ms: tiles end stages, not the host's ranges."""
    run = profiler.load(SD35)
    analysis = asked(run)
    stages = dict(analysis.stages.select("stage", "elapsed_ns").iter_rows())
    parts = predict(run, analysis, Scenario()).stages
    assert {part.name: part.before_ns for part in parts} == stages


def test_shares_of_one_submodule_multiply():
    """The kernels of half a batch and of twice that work for the product of both shares, and the
    prediction says so of calls that are replayed, too."""
    made = pipeline(_DEVICE_BOUND)
    found = answer(made.simulated().run, guidance=False, batch=2)
    (note,) = noted(found.assumes, Assumption.SHARES_MULTIPLY).values()
    (share,) = (of.values["share"] for of in note.values["submodules"])
    codes = (Assumption.HALF_BATCH_ON_DEVICE, Assumption.TIMES_BATCH)
    shares = [noted(found.assumes, code)["transformer"].values["share"] for code in codes]
    assert share == pytest.approx(shares[0] * shares[1])
    decoded = noted(found.assumes, Assumption.TIMES_BATCH)["vae"].values["share"]
    truth = made.without("negative_prompt").with_lengths("transformer", share)
    truth = truth.with_lengths("vae", decoded)
    assert found.device.ns == pytest.approx(truth.simulated().device_span_ns, rel=0.01)


def test_why_a_launch_bound_part_gains_nothing():
    """Half of its work goes and nothing is gained; one launch a call is what would help."""
    made = pipeline(_LAUNCH_BOUND).simulated()
    found = answer(made.run, guidance=False)
    less = noted(found.reasons, Reason.LESS_WORK)["transformer"].values
    assert less["less_ns"] > 0.5e6
    assert less["gained_ns"] < 0.03 * less["less_ns"]
    bound = noted(found.reasons, Reason.LAUNCH_BOUND)["transformer"].values
    assert bound["idle_ns"] > 0.7 * bound["elapsed_ns"]
    with_graphs = noted(found.reasons, Reason.WITH_GRAPHS)[""].values["predicted_ns"]
    assert with_graphs == answer(made.run, guidance=False, cuda_graph=True).request.ns


def test_graphs_are_no_way_out_of_a_bound_that_they_keep():
    """A device waits for 20 ms in which the host launches nothing: one launch a call gains less
    than 1 % of the run, and is not proposed."""
    stalled = QueuedCall("transformer", host=3_000, stalls=20_000_000)
    run = QueuedPipeline([stalled] * 3, [], _DECODE).simulated().run
    found = answer(run, drop=("vae",))
    assert noted(found.reasons, Reason.LAUNCH_BOUND)["transformer"].values["idle_ns"] > 59_000_000
    graphs = answer(run, drop=("vae",), cuda_graph=True)
    assert graphs.request.ns > 0.99 * found.request.ns
    assert not noted(found.reasons, Reason.WITH_GRAPHS)


def test_a_device_bound_part_gains_what_its_work_takes_less():
    """Half of the work goes, and all of that is gained."""
    found = answer(pipeline(_DEVICE_BOUND).simulated().run, guidance=False)
    less = noted(found.reasons, Reason.LESS_WORK)["transformer"].values
    assert less["gained_ns"] == pytest.approx(less["less_ns"], rel=0.05)
    assert "transformer" not in noted(found.reasons, Reason.LAUNCH_BOUND)


def test_less_work_is_that_of_the_steps_asked_for():
    """Half a batch in twelve steps saves the device three times what it saves in four."""
    run = pipeline(_DEVICE_BOUND).simulated().run
    saved = [
        noted(answer(run, guidance=False, steps=steps).reasons, Reason.LESS_WORK)["transformer"]
        for steps in (4, 12)
    ]
    four, twelve = (note.values["less_ns"] for note in saved)
    assert twelve == pytest.approx(3 * four, rel=0.02)


@pytest.mark.parametrize("steps", [1, 2, 4, 9])
@pytest.mark.parametrize("call", [_LAUNCH_BOUND, _DEVICE_BOUND], ids=["launches", "device"])
def test_other_numbers_of_steps(call, steps):
    """Fewer and more than the four recorded, as simulated within 1 %."""
    found = answer(pipeline(call).simulated().run, steps=steps)
    truth = pipeline(call, steps).simulated()
    assert found.request.ns == pytest.approx(truth.ns, rel=0.01)
    assert found.device.ns == pytest.approx(truth.device_span_ns, rel=0.01)
    assert sum(part.after_ns for part in found.submodules) == pytest.approx(found.request.ns)
    assert sum(part.after_ns for part in found.stages) == pytest.approx(found.request.ns)


@pytest.mark.parametrize("waits", ["waits", "waits_first", "waits_amid"])
def test_a_graph_a_call(waits):
    """One launch for each call: one that waits for its inputs' copy ahead of it or for its results
    behind it is one, too; one that waits half-way stays as it was, and is named."""
    encoder = QueuedCall("text_encoder", "prompt", **{waits: True})
    made = QueuedPipeline([encoder], [[_LAUNCH_BOUND]] * 3, _DECODE)
    found = answer(made.simulated().run, cuda_graph=True)
    truth = made.simulated(graphs=True)
    assert found.request.ns == pytest.approx(truth.ns, rel=0.01)
    assert found.device.ns == pytest.approx(truth.device_span_ns, rel=0.01)
    left = [n.values["submodules"] for n in found.assumes if n.code == Assumption.NOT_CAPTURED]
    assert left == ([("text_encoder",)] if waits == "waits_amid" else [])


def test_a_run_without_steps_is_replayed():
    """Calls are enough: one launch a call, and a branch that is not called, as simulated; there
    are no steps to ask for another number of."""
    made = QueuedPipeline([_LAUNCH_BOUND, *_ENCODE], [], _DECODE)
    run = made.simulated().run
    graphs = answer(run, cuda_graph=True)
    assert graphs.measured.ns == made.simulated().ns
    assert graphs.request.ns == pytest.approx(made.simulated(graphs=True).ns, rel=0.01)
    dropped = answer(run, drop=("text_encoder",))
    without = QueuedPipeline([_LAUNCH_BOUND], [], _DECODE)
    assert dropped.request.ns == pytest.approx(without.simulated().ns, rel=0.01)
    with pytest.raises(InputError, match="no denoising steps, so leave out --steps"):
        answer(run, steps=1)
    with pytest.raises(InputError, match="leave out --batch"):
        answer(run, batch=2)


@pytest.mark.parametrize("milliseconds", [0, 5])
def test_a_host_that_loads_data_does_so_beside_graphs(milliseconds):
    """In each of three calls without steps the host launches nothing for so long: that stays, while
    the device may work on."""
    call = replace(_LAUNCH_BOUND, stalls=milliseconds * 1_000_000)
    made = QueuedPipeline([call] * 3, [], _DECODE)
    found = answer(made.simulated().run, cuda_graph=True)
    plain = QueuedPipeline([_LAUNCH_BOUND] * 3, [], _DECODE).simulated(graphs=True)
    still = 3_000_000 * milliseconds
    assert still < found.request.ns <= 1.01 * (plain.ns + still)


@pytest.mark.parametrize(
    ("column", "values", "code"),
    [
        ("category", ["collective"], Refusal.COLLECTIVES),
        ("device", ["cuda:0", "cuda:1"], Refusal.SEVERAL_AT_ONCE),
    ],
)
@pytest.mark.parametrize("steps", [0, 2])
def test_several_hosts_are_not_replayed_as_one(column, values, code, steps):
    """Kernels that wait for other ranks, or calls of two devices at once, with and without steps:
    the ladder names what has no number and why, and no finding has a gain by replay."""
    made = QueuedPipeline([_LAUNCH_BOUND] * 4, [[_LAUNCH_BOUND]] * steps, _DECODE)
    run = made.simulated().run
    assert gains_of(run) is not None
    if column == "category":
        there = pl.col("category").cast(pl.String)
        other = pl.when(there == "compute").then(pl.lit(values[0])).otherwise(there)
        commands = run.commands.with_columns(category=other.cast(run.commands["category"].dtype))
        run = replace(run, commands=commands)
    else:
        device = pl.Series([values[i % 2] for i in range(len(run.calls))], dtype=pl.Categorical)
        begun = pl.lit(run.calls["start_ns"].min())
        run = replace(run, calls=run.calls.with_columns(device=device, start_ns=begun))
    assert gains_of(run) is None
    with pytest.raises(RefusedError) as refused:
        answer(run, cuda_graph=True)
    assert refused.value.why.code == code
    found = ladder_of(run, asked(run))
    assert found.rungs == ()
    assert found.refused == refused.value.why
    assert found.why_not == str(refused.value)


def test_a_report_does_not_wait_for_many_calls(monkeypatch):
    """Of a run without steps each call is replayed by itself: beyond so many `predict` alone does
    that, and the report says so."""
    monkeypatch.setattr("profiler.prediction.ladder._MANY_CALLS", 2)
    for steps, many in (([], True), ([[_LAUNCH_BOUND]] * 2, False)):
        analysis = asked(QueuedPipeline([_LAUNCH_BOUND] * 2, steps, _DECODE).simulated().run)
        found = ladder_of_analysis(analysis)
        assert (found.refused is not None) is many
        assert bool(found.rungs) is not many
        assert ladder_of(analysis.inputs.run, analysis).rungs


def test_a_graph_does_not_gain_what_the_host_did_once():
    """A collection of 20 ms in the second of four steps stays, that call is two graphs, and the
    time of each step that the device waits is without it: 50 launches are 41 us apart."""
    stalled = replace(_LAUNCH_BOUND, stalls=20_000_000)
    steps = [[_LAUNCH_BOUND], [stalled], [_LAUNCH_BOUND], [_LAUNCH_BOUND]]
    made = QueuedPipeline(_ENCODE, steps, _DECODE)
    run = made.simulated().run
    found, truth = answer(run, cuda_graph=True), made.simulated(graphs=True)
    assert found.request.ns == pytest.approx(truth.ns, rel=0.01)
    assert found.device.ns == pytest.approx(truth.device_span_ns, rel=0.01)
    stays = noted(found.assumes, Assumption.STALLS_STAY)[""].values["stalls_ns"]
    assert stays == pytest.approx(20_000_000, rel=0.01)
    (waits,) = (one for one in asked(run).findings if one.rule == "host_bound")
    assert waits.evidence["stalls_ns"] == pytest.approx(20_000_000, rel=0.01)
    assert waits.evidence["most_of_step_ns"] < 50 * 41_000


@pytest.mark.parametrize("call", [_LAUNCH_BOUND, _DEVICE_BOUND], ids=["launches", "device"])
def test_kernels_in_the_queue_stay_apart(call):
    """A device that takes 3 us from one queued kernel to the next, as much as 30 % of them, is
    replayed as it ran, and with half the work; in a graph they follow at once."""
    made, machine = pipeline(call), Machine(between=3_000)
    run = made.simulated(machine=machine).run
    for scenario, truth in (
        ({"steps": 6}, pipeline(call, 6).simulated(machine=machine)),
        ({"cuda_graph": True}, made.simulated(graphs=True, machine=machine)),
    ):
        assert answer(run, **scenario).request.ns == pytest.approx(truth.ns, rel=0.01)


def test_a_pipeline_call_that_returns_before_its_device():
    """It lasts until its last kernel has ended, as in the analysis, not until it returned."""
    machine = Machine(returns=True)
    run = pipeline(_DEVICE_BOUND).simulated(machine=machine).run
    whole = pipeline(_DEVICE_BOUND).simulated(machine=machine)
    assert answer(run).measured.ns == whole.ns
    assert answer(run, steps=4).request.ns == pytest.approx(whole.ns, rel=0.001)
    truth = pipeline(_DEVICE_BOUND, 7).simulated(machine=machine)
    assert answer(run, steps=7).request.ns == pytest.approx(truth.ns, rel=0.01)


def _with_hole(run: Run, at: int, length: int) -> Run:
    """The run, of which nothing was recorded for so long from `at` on, while all stood still."""

    def of(frame: pl.DataFrame) -> pl.DataFrame:
        end = pl.col("start_ns") + pl.col("duration_ns")
        start = pl.col("start_ns") + length * (pl.col("start_ns") >= at)
        return frame.with_columns(start, duration_ns=end + length * (end > at) - start)

    frames = ("calls", "commands", "spans")
    return replace(run, **{name: of(getattr(run, name)) for name in frames})


@pytest.mark.parametrize(
    "scenario",
    [
        {"steps": 4},
        {"drop": ("vae",)},
        {"drop": ("text_encoder",)},
        {"guidance": False},
        {"cuda_graph": True},
        {"untraced_ns": 8_200_000},
    ],
    ids=str,
)
@pytest.mark.parametrize("share", [0.4, 0.97])
def test_time_that_was_not_recorded_is_in_no_prediction(scenario, share):
    """Half a second without any event, while kernels and the host wait amid the steps or at the
    end: the run takes what it takes without that, before and after the change."""
    plain = pipeline(_DEVICE_BOUND).simulated()
    kernels = plain.run.commands.filter(pl.col("category") == "compute")["start_ns"].sort()
    run = _with_hole(plain.run, kernels[round(share * len(kernels))], 500_000_000)
    assert run.tiles.unrecorded.length == pytest.approx(500_000_000, abs=10_000)
    found, whole = answer(run, **scenario), answer(plain.run, **scenario)
    assert found.measured.recorded_ns == pytest.approx(plain.ns, abs=10_000)
    assert found.measured.ns == pytest.approx(whole.measured.ns, abs=10_000)
    assert found.request.ns == pytest.approx(whole.request.ns, abs=10_000)
    assert found.request.ns <= found.measured.ns + 10_000
    assert found.device.ns == pytest.approx(whole.device.ns, abs=10_000)


def test_work_from_before_the_recording_is_in_no_prediction():
    """A kernel of 300 us that was launched before the recording began holds the first ones up: the
    run takes what it takes without it, and no longer if a call is dropped."""
    plain = pipeline(_DEVICE_BOUND).simulated()
    first = plain.run.commands.filter(pl.col("category") == "compute").sort("start_ns")[:1]
    begin = first["start_ns"][0]
    run = _with_hole(plain.run, begin, 300_000)
    before = first.with_columns(duration_ns=pl.lit(300_000, pl.Int64))
    run = replace(run, commands=pl.concat([run.commands, before]))
    assert run.tiles.carried_over.length == 300_000
    unchanged = answer(run, steps=4)
    assert unchanged.request.ns == pytest.approx(unchanged.measured.ns, abs=10_000)
    assert answer(run, drop=("text_encoder",)).request.ns < unchanged.measured.ns


def _one_after_the_other(first: Run, second: Run, begin: int) -> Run:
    """A run of two, of which the second's host begins `begin` ns behind the first's, on a stream of
    its own."""
    calls, commands = len(first.calls), len(first.commands)
    later = pl.col("start_ns") + begin
    number = pl.lit(1, dtype=pl.Int32).alias("pipeline")
    track = pl.col("track").cast(pl.String) + " of the second"
    moved = {
        "calls": second.calls.with_columns(later, number, pl.col("call") + calls),
        "commands": second.commands.with_columns(
            later,
            number,
            call=pl.when(pl.col("call") >= 0).then(pl.col("call") + calls).otherwise(-1),
            track=track.cast(second.commands.schema["track"]),
        ),
        "spans": second.spans.with_columns(later, number),
        "flows": second.flows + commands,
    }
    joined = {
        name: pl.concat([getattr(first, name), frame.cast(getattr(first, name).schema)])
        for name, frame in moved.items()
    }
    return replace(first, **joined)


def test_a_pipeline_call_beneath_another_is_predicted_alone():
    """The second one's prompts are encoded while the first one's image is decoded, which takes
    longer than they do: alone it takes what a machine takes for it, unchanged and without guidance,
    though less of it could be seen."""
    made = pipeline(_LAUNCH_BOUND)
    decode = (QueuedCall("vae", kernels=200, length=100_000, host=5_000),)
    before = QueuedPipeline(_ENCODE, [[_LAUNCH_BOUND]] * 4, decode)
    first = before.simulated(machine=Machine(returns=True)).run
    (returned,) = first.spans.filter(pl.col("kind") == "pipeline")["duration_ns"]
    whole = made.simulated()
    run = _one_after_the_other(first, whole.run, returned)
    analysis = asked(run)
    seen = predict(run, analysis, Scenario(steps=4), 1)
    assert seen.measured.recorded_ns < 0.9 * whole.ns
    assert seen.measured.ns == pytest.approx(whole.ns, rel=0.01)
    assert seen.request.ns == seen.measured.ns
    assert not seen.measured.corrected
    assert [note.code for note in seen.assumes].count(Assumption.ALONE) == 1
    found = predict(run, analysis, Scenario(guidance=False), 1)
    share = noted(found.assumes, Assumption.HALF_BATCH_ON_DEVICE)["transformer"].values["share"]
    truth = made.without("negative_prompt").with_lengths("transformer", share).simulated()
    assert found.request.ns == pytest.approx(truth.ns, rel=0.01)
    assert found.measured.ns == seen.measured.ns


@pytest.mark.parametrize(
    "scenario", [{"steps": 9}, {"drop": ("text_encoder",)}, {"cuda_graph": True}, {}], ids=str
)
def test_untraced_takes_the_recording_off_the_host(scenario):
    """The host launches 1.6 times as slowly while it is recorded: with what the run takes untraced
    other requests are predicted as they run untraced."""
    made = pipeline(_LAUNCH_BOUND)
    run = made.simulated(machine=Machine(pace=1.6)).run
    changed = made
    if "steps" in scenario:
        changed = pipeline(_LAUNCH_BOUND, 9)
    if "drop" in scenario:
        changed = QueuedPipeline((), made.steps, made.decode)
    truth = changed.simulated(graphs="cuda_graph" in scenario)
    found = answer(run, untraced_ns=made.simulated().ns, **scenario)
    assert found.request.ns == pytest.approx(truth.ns, rel=0.015)
    assert found.measured.ns == pytest.approx(made.simulated().ns, rel=0.001)
    assert noted(found.assumes, Assumption.HOST_UNTRACED)
    assert not noted(found.assumes, Assumption.HOST_AS_RECORDED)


@pytest.mark.parametrize(("share", "says"), [(1.5, "longer"), (0.05, "not reached")])
def test_untraced_times_that_cannot_be_are_refused(share, says):
    """Longer than recorded, or shorter than the device's own work."""
    simulated = pipeline(_DEVICE_BOUND).simulated()
    with pytest.raises(InputError, match=says):
        answer(simulated.run, untraced_ns=round(simulated.ns * share))


def test_dropping_a_submodule():
    """Without the encoder's calls, as simulated within 1 %."""
    made = pipeline(_LAUNCH_BOUND)
    found = answer(made.simulated().run, drop=("text_encoder",))
    truth = QueuedPipeline((), made.steps, made.decode).simulated()
    assert found.request.ns == pytest.approx(truth.ns, rel=0.01)


def test_a_run_whose_replay_is_off_is_refused():
    """A stream waits for another, which is not in a trace: unchanged, the replay ends earlier, and
    nothing is predicted, but a question that changes no call."""
    apart = QueuedCall("vae", kernels=1, apart=900_000)
    run = QueuedPipeline(_ENCODE, [[_LAUNCH_BOUND]] * 2, [apart]).simulated().run
    with pytest.raises(RefusedError, match="device span") as refused:
        answer(run, guidance=False)
    assert refused.value.why.code == Refusal.REPLAY_OFF
    assert answer(run, concurrency=2).request.ns > 0


def test_a_run_that_lacks_launches_is_refused():
    """Every third is not in the trace: refused. None is: sums of calls, and what is not known names
    the device that worked on after calls had returned."""
    run = pipeline(_DEVICE_BOUND).simulated().run
    thinned = replace(run, flows=run.flows.gather_every(3))
    with pytest.raises(RefusedError, match="launches of") as refused:
        answer(thinned, steps=2)
    assert refused.value.why.code == Refusal.LAUNCHES_MISSING
    assert gains_of(thinned) is None
    without = replace(run, flows=run.flows.clear())
    noted_devices = [n.values for n in answer(without, steps=2).unknown if n.code == _NO_LAUNCHES]
    assert noted_devices == [{"devices": ("cuda:0",)}]


def test_a_submodule_partly_traced_is_refused():
    """One call of the denoiser without operators: what it launched is not known."""
    run = pipeline(_LAUNCH_BOUND).simulated().run
    untraced = pl.col("ops_traced") & (pl.col("call") != 3)
    run = replace(run, calls=run.calls.with_columns(ops_traced=untraced))
    with pytest.raises(RefusedError) as refused:
        answer(run, steps=2)
    assert refused.value.why.values == {"submodule": "transformer"}
    assert gains_of(run) is None


def test_rates_of_other_hardware_tell_nothing_where_work_is_launched():
    """What stays equal may be placed there; of the rest it is said why not."""
    target = TargetDevice("cuda:1", None, {"vae": 1.0, "transformer": 0.5})
    found = equal_hardware(target, {"vae": "cuda:0", "transformer": "cuda:0"})
    assert found.factors == {"vae": 1.0}
    assert found.why_not.note.code == PlacementNote.LAUNCHES_ELSEWHERE
    assert "how fast a host launches" in found.why_not.error


@needs_corpus
def test_sd35_without_guidance():
    """1.11 s of device span, not 0.835 s of everything, because the denoiser is launch-bound;
    recorded with Python stacks."""
    run = profiler.load(SD35)
    found = answer(run, guidance=False)
    assert found.device.recorded_ns == pytest.approx(1.17163e9, rel=0.001)
    assert found.device.ns == pytest.approx(1.11e9, rel=0.03)
    assert "transformer" in noted(found.reasons, Reason.HIDDEN_WORK)
    assert "transformer" in noted(found.reasons, Reason.LAUNCH_BOUND)
    assert noted(found.reasons, Reason.WITH_GRAPHS)
    assert noted(found.assumes, Assumption.AS_MANY_LAUNCHES)
    assert noted(found.assumes, Assumption.HOST_WITH_STACKS)


@needs_corpus
def test_sd35_with_a_graph_a_call():
    """Its denoiser takes what its kernels take, 628 ms instead of 995."""
    found = answer(profiler.load(SD35), cuda_graph=True)
    after = {part.name: part.after_ns for part in found.submodules}
    assert after["transformer"] == pytest.approx(627.7e6, rel=0.01)
