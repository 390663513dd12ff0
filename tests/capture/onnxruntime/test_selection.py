"""Some calls traced, others not, on the embedded SD3: which session runs, and what reports say."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import profiler
from profiler.analysis import key_facts
from profiler.analysis.analyze import analyze
from profiler.capture import EventCost
from profiler.capture.onnxruntime import operators
from profiler.errors import InputError
from profiler.pipelines import StableDiffusion3Pipeline, default_model_folder
from tests.command_line import run_command

SETTINGS = {"num_inference_steps": 8, "seed": 1, "height": 64, "width": 64}


@pytest.fixture(scope="module")
def pipeline():
    return StableDiffusion3Pipeline.from_folder(default_model_folder())


@pytest.fixture(scope="module", autouse=True)
def quick_estimate():
    """The cost of an event is measured once per run; its own test measures it for real."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "onnx_event_cost", lambda _: EventCost(5_000.0))
        yield


def profiled(pipeline, out, ops):
    with profiler.profile(pipeline, out=out, ops=ops) as run:
        pipeline("a cat", **SETTINGS)
    return profiler.load(run.path)


@pytest.fixture(scope="module")
def run(pipeline, tmp_path_factory):
    return profiled(pipeline, tmp_path_factory.mktemp("run"), "every:2 text_encoder_2=none")


def traced(run, submodule):
    calls = run.calls.filter(pl.col("submodule").cast(str) == submodule)
    return calls.sort("start_ns")["ops_traced"].to_list()


def test_every_second_step_is_traced(run):
    """Steps go by their number, encoders and VAE by their ordinal; what is off stays off."""
    assert traced(run, "transformer") == [True, False] * 4
    assert traced(run, "text_encoder") == [True, False]
    assert traced(run, "text_encoder_2") == [False, False]
    assert traced(run, "vae") == [True]


def test_untraced_calls_hold_no_commands(run):
    """A call has commands exactly where it was traced, and all traced steps have the same."""
    commands = run.commands.filter(pl.col("call") >= 0)
    with_commands = set(commands["call"].to_list())
    assert with_commands == set(run.calls.filter("ops_traced")["call"].to_list())
    steps = commands.filter(pl.col("step") >= 0).group_by("step").len()
    assert sorted(steps["step"]) == [0, 2, 4, 6]
    assert steps["len"].n_unique() == 1


def test_what_is_left_out_by_choice_is_not_lost(run):
    """Neither the manifest nor the report calls an unselected call a drop."""
    assert run.drops == ()
    analysis = analyze(run)
    assert analysis.drops == ()
    facts = {fact.label: fact for fact in key_facts(analysis, 0)}
    assert facts["Lost"].value == "no events"
    assert "without" in facts["Nodes"].note


def test_both_kinds_measure_the_cost_of_tracing(run):
    """The transformer's cost is measured on its three steady calls of either kind, and its
    operators are corrected by the very factor that the manifest states, unless that is noise."""
    measured = run.info.overhead.measured
    assert set(measured) == {"transformer"}
    cost = measured["transformer"]
    assert (cost.traced_calls, cost.untraced_calls) == (3, 3)
    assert cost.call_low_ns <= cost.call_ns <= cost.call_high_ns
    overhead_ratio = run.info.submodules["transformer"].overhead_ratio
    assert overhead_ratio.low <= overhead_ratio.factor <= overhead_ratio.high
    analysis = analyze(run)
    row = analysis.submodules.row(by_predicate=pl.col("submodule") == "transformer", named=True)
    noise = overhead_ratio.low <= 1 <= overhead_ratio.high
    assert row["overhead_ratio"] == (1 if noise else overhead_ratio.factor)
    facts = {fact.label: fact for fact in key_facts(analysis, 0)}
    note = facts["Profiling overhead"].note
    assert note.startswith("of pipeline calls' time, ")  # a large part: an alarm next
    assert ", measured: transformer " in note
    assert " a call (" in note
    assert ", else estimated" in note


def test_calls_left_out_run_on_the_pipelines_own_session(pipeline, tmp_path):
    """The image is the same, an unselected call runs on the session that the pipeline had open,
    and afterwards it has that one again."""
    before = np.asarray(pipeline("a cat", **SETTINGS).images[0])
    own = pipeline.transformer.session
    used = []
    with profiler.profile(pipeline, out=tmp_path, ops="first"):

        def note(*_):
            used.append(pipeline.transformer.session is own)

        during = pipeline("a cat", **SETTINGS, callback_on_step_end=note).images[0]
    assert used == [False] + [True] * 7
    assert pipeline.transformer.session is own
    assert np.array_equal(before, np.asarray(during))


def test_a_session_that_was_not_open_is_not_left_open(tmp_path):
    """A pipeline that had opened nothing has nothing open afterwards."""
    fresh = StableDiffusion3Pipeline.from_folder(default_model_folder())
    run = profiled(fresh, tmp_path, "first,last")
    assert traced(run, "transformer") == [True] + [False] * 6 + [True]
    assert fresh.transformer.opened_session is None


def test_measure_overhead_leaves_out_every_fourth_step(pipeline, tmp_path):
    """`measure-overhead` makes steps 3 and 7 untraced; encoders and VAE stay traced."""
    run = profiled(pipeline, tmp_path, "all measure-overhead")
    assert traced(run, "transformer") == [True, True, True, False] * 2
    assert traced(run, "text_encoder") == [True, True]


def test_a_submodule_that_is_not_there_is_refused(pipeline, tmp_path):
    """A name mistyped is said before anything runs, and nothing is written."""
    with pytest.raises(InputError, match="'unet' is not a submodule of this pipeline; it has"):
        profiler.profile(pipeline, out=tmp_path, ops="unet=none")
    assert list(tmp_path.iterdir()) == []


def test_run_takes_several_ops_and_measure_overhead(tmp_path):
    """`profile-sd3 run` joins its --ops, and --measure-overhead leaves out every fourth step of
    them."""
    options = ("--ops", "none", "--ops", "transformer=all", "--measure-overhead", "--steps", 4)
    size = ("--height", 64, "--width", 64, "--warmup", 0)
    assert run_command("run", *options, *size, "--out", tmp_path) == 0
    run = profiler.load(next(tmp_path.iterdir()))
    assert traced(run, "transformer") == [True, True, True, False]
    assert traced(run, "vae") == [False]
