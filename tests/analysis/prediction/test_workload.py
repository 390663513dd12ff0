"""What one request is made of, by hand."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from profiler.analysis import Axis, PipelineCalls
from profiler.errors import InputError
from profiler.prediction import workload_of
from profiler.trace import Submodule
from profiler.trace.manifest_fields import OverheadRatio
from tests.analysis.asked import asked
from tests.analysis.prediction.requested import WARM, by_name, stepped_run, workload
from tests.examples import examples
from tests.runs import Command, make_call, make_info, make_run, make_span, tiny_run

_ONE = [("transformer", "cond", 300)]
_TWO = [("transformer", "cond", 200)]


def test_a_request_is_cut_into_calls_and_the_hosts_time_between_them():
    """The 1000 ns of the tiny run, each ns in one task: the timeline of `tests.runs`."""
    found = workload(tiny_run())
    assert by_name(found.encode) == [
        ("tokenizer", [], [[10]]),
        ("text_encoder.prompt", [], [[90]]),
        ("host", [], [[110]]),
    ]
    assert by_name(found.step) == [
        ("host", [0], [[50]]),
        ("transformer.batched", [300], [[200]]),
    ]
    assert by_name(found.decode) == [
        ("host", [], [[150]]),
        ("vae", [], [[80]]),
        ("host", [], [[10]]),
    ]
    assert found.steps == 2
    assert found.measured_ns.tolist() == [1000]
    assert found.recorded_ns is None


def test_tasks_carry_their_labels():
    """Stage, branch and device of calls; of the host's time the call that it leads to."""
    found = workload(tiny_run())
    tokenizer, encoder, _ = found.encode
    assert (tokenizer.submodule, tokenizer.device, tokenizer.of) == (None, "", encoder.name)
    assert (encoder.stage, encoder.branch, encoder.device) == ("encode", "prompt", "rbln:1")
    assert [task.stage for task in found.decode] == ["decode", "decode", "decode"]
    assert found.submodules == ("text_encoder", "transformer", "vae")


def test_a_call_takes_until_its_device_is_done():
    """A call of 10 ns whose command ends 90 ns later takes 100; the host waited 20 of them."""
    calls = [
        make_call(0, "transformer", 0, 10, step=0),
        make_call(1, "transformer", 20, 30, step=1),
    ]
    commands = [
        Command(0, "cuda:0", "stream 7", "compute", "a", 5, 95),
        Command(1, "cuda:0", "stream 7", "compute", "a", 100, 50),
    ]
    found = workload(make_run(calls, commands, [make_span("pipeline", "P", 0, 200)]))
    assert by_name(found.step) == [("transformer", [100], [[50]])]
    assert by_name(found.decode) == [("host", [], [[50]])]


def test_pipeline_calls_are_rows():
    """Two warm pipeline calls of two steps: two rows, one steady step each."""
    found = workload(stepped_run([[_ONE, _TWO], [_TWO, _ONE]]))
    assert by_name(found.step)[1] == ("transformer.cond", [300, 200], [[200], [300]])
    assert found.measured_ns.tolist() == [730, 730]
    assert found.numbers == (0, 1)


def test_a_first_pipeline_call_without_warm_up_is_left_out():
    """It paid for what happens once; with a warm-up, or as the only one, it counts."""
    cold = structs.replace(WARM, warmup=None)
    assert workload(stepped_run([[_ONE, _TWO]] * 3, info=cold)).numbers == (1, 2)
    assert workload(stepped_run([[_ONE, _TWO]], info=cold)).numbers == (0,)
    assert workload(stepped_run([[_ONE, _TWO]] * 3, info=cold), 0).numbers == (0,)


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_last_pipeline_call_that_was_cut_short_is_left_out(kept):
    """Its calls are the first ones of those before it: of two only the whole one is measured, the
    first though it is cold, and the cut one if it is asked for."""
    cold = structs.replace(WARM, warmup=None)
    for pipelines, numbers in ((2, (0,)), (3, (1,))):
        run = stepped_run([[_ONE, _TWO]] * pipelines, info=cold)
        last = run.calls["pipeline"] == pipelines - 1
        calls = pl.concat([run.calls.filter(~last), run.calls.filter(last).head(kept)])
        cut = replace(run, calls=calls)
        assert workload(cut).numbers == numbers
        assert [task.name for task in workload(cut).decode if task.submodule] == ["vae"]
    assert workload(cut, 2).numbers == (2,)


def test_a_call_in_some_of_the_steps_takes_nothing_in_the_others():
    """uncond in two of three steps: 0 ns in the last, and the workload says so."""
    both = [*_TWO, ("transformer", "uncond", 150)]
    found = workload(stepped_run([[both, both, _TWO]]))
    named = {task.name: task for task in found.step if task.submodule}
    assert named["transformer.uncond"].steady_ns.tolist() == [[150, 0]]
    assert found.steps_of == {"transformer.uncond": 2}
    assert found.measured_ns.tolist() == [
        int(asked(stepped_run([[both, both, _TWO]])).accounting.end_to_end_ns)
    ]


def test_two_calls_of_a_name_in_a_step_are_two_tasks():
    """Second-order schedulers call the denoiser twice."""
    found = workload(stepped_run([[[*_ONE, *_TWO], [*_TWO, *_TWO]]]))
    times = [(t.first_ns.tolist(), t.steady_ns.tolist()) for t in found.step if t.submodule]
    assert times == [([300], [[200]]), ([200], [[200]])]


def test_traced_calls_are_corrected_where_capture_measured_it():
    """A factor of 0.9 in the manifest: 300 ns count as 270."""
    info = structs.replace(
        WARM, submodules={"transformer": Submodule(overhead_ratio=OverheadRatio(factor=0.9))}
    )
    run = stepped_run([[_ONE, _TWO]], traced=True, info=info)
    found = workload_of(run, asked(run))
    assert by_name(found.step)[1] == ("transformer.cond", [270], [[180]])
    assert found.overhead_ratio == {"transformer": 0.9}
    assert found.recorded_ns is not None
    assert (found.recorded_ns - found.measured_ns).tolist() == [50]


def test_an_overhead_ratio_within_noise_is_none():
    """Between 0.8 and 1.1 nobody knows whether tracing cost anything: 300 ns stay 300."""
    measured = {"factor": 0.9, "low": 0.8, "high": 1.1}
    info = make_info(warmup={"runs": 1}, submodules={"transformer": {"overhead_ratio": measured}})
    run = stepped_run([[_ONE, _TWO]], traced=True, info=info)
    found = workload_of(run, asked(run))
    assert found.overhead_ratio == {}
    assert by_name(found.step)[1] == ("transformer.cond", [300], [[200]])


def test_analysis_and_prediction_take_the_same_overhead_ratio():
    """What `analyze` shows for a submodule is what a prediction counts with, within noise too."""
    for low, high in ((0.8, 1.1), (0.8, 0.95)):
        measured = {"factor": 0.9, "low": low, "high": high}
        info = make_info(
            warmup={"runs": 1}, submodules={"transformer": {"overhead_ratio": measured}}
        )
        run = stepped_run([[_ONE, _TWO]], traced=True, info=info)
        analysis = asked(run)
        shown = dict(analysis.submodules.select("submodule", "overhead_ratio").drop_nulls().rows())
        found = workload_of(run, analysis)
        assert {name: f for name, f in shown.items() if f != 1} == found.overhead_ratio
        assert shown == {"transformer": 1.0 if high > 1 else 0.9}


def test_few_traced_and_untraced_calls_correct_nothing():
    """Two of a kind differ by chance."""
    run = stepped_run([[_ONE, _TWO, _ONE, _TWO]])
    traced = run.calls["call"].is_in([1, 2])
    found = workload(replace(run, calls=run.calls.with_columns(ops_traced=traced)))
    assert found.overhead_ratio == {}


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (make_run([make_call(0, "t", 0, 10, step=0)]), "no pipeline span"),
        (
            make_run(spans=[make_span("pipeline", "P", 0, 9, pipeline=0)]),
            "the calls of a pipeline call, and the run holds none",
        ),
        (stepped_run([[_ONE, _TWO], [_ONE]]), "choose one with --pipeline"),
        (stepped_run([[_ONE], [[("transformer", "batched", 9)]]]), "did different things"),
    ],
)
def test_runs_that_tell_of_no_request(run, says):
    """One sentence each."""
    with pytest.raises(InputError, match=says):
        workload(run)


def test_pipelines_of_several_classes():
    """A refiner is not the base, though both call a transformer in two steps."""
    run = stepped_run([[_ONE, _TWO]] * 2)
    refiner = (pl.col("kind").cast(pl.String) == "pipeline") & (pl.col("pipeline") == 1)
    name = pl.when(refiner).then(pl.lit("R")).otherwise(pl.col("name").cast(pl.String))
    spans = run.spans.with_columns(name=name.cast(pl.Categorical))
    with pytest.raises(InputError, match="0, 1 of the run did different things"):
        workload(replace(run, spans=spans))


def test_a_pipeline_call_that_is_not_there():
    """The sentence names those that are."""
    with pytest.raises(InputError, match="no pipeline call 7: choose one of 0"):
        workload(stepped_run([[_ONE]]), 7)


def test_pipeline_calls_that_overlap_and_are_not_told_apart():
    """What belongs to which is not known."""
    run = stepped_run([[_ONE, _TWO]] * 2)
    spans = pl.col("kind").cast(pl.String) == "pipeline"
    untold = run.spans.with_columns(
        pipeline=pl.lit(-1, dtype=pl.Int32),
        duration_ns=pl.when(spans).then(10_000).otherwise("duration_ns"),
    )
    calls = run.calls.with_columns(pipeline=pl.lit(-1, dtype=pl.Int32))
    with pytest.raises(InputError, match="overlap"):
        workload(replace(run, spans=untold, calls=calls))


def test_a_run_without_step_spans():
    """A step begins where the one before ends: the host's time between them is the later one's."""
    run = stepped_run([[_ONE, _TWO]])
    kept = run.spans.filter(pl.col("kind").cast(pl.String) != "step")
    found = workload(replace(run, spans=kept))
    assert by_name(found.step) == [("host", [0], [[20]]), ("transformer.cond", [300], [[200]])]
    assert np.array_equal(found.measured_ns, workload(run).measured_ns)


def test_calls_that_other_steps_lack_stand_behind_those_before_them():
    """The longest step first; what begins a shorter one alone begins the part."""
    names = ("transformer", "adapter", "vae"), ("transformer", "vae"), ("controlnet", "transformer")
    steps = [[(name, "", 10) for name in some] for some in names]
    found = workload(stepped_run([steps]))
    in_order = [task.name for task in found.step if task.submodule is not None]
    assert in_order == ["controlnet", "transformer", "adapter", "vae"]


_MOMENTS = st.integers(-50, 1100)
_CALLS = st.lists(
    st.tuples(
        st.sampled_from(["text_encoder", "transformer", "vae"]),
        _MOMENTS,
        st.integers(0, 400),
        st.integers(-1, 3),
        st.integers(0, 300),
    ),
    min_size=1,
    max_size=8,
)


@given(_CALLS, st.lists(_MOMENTS, max_size=4, unique=True), st.lists(_MOMENTS, max_size=3))
@settings(max_examples=examples(60), deadline=None)
def test_no_time_is_left_out_or_counted_twice(some, steps, work):
    """Calls that overlap, return before their device is done, or stick out of the pipeline call;
    steps anywhere: tasks always add up to its time on the devices' axis, and none is negative."""
    calls, commands = [], []
    for index, (name, start, duration, step, later) in enumerate(some):
        calls.append(make_call(index, name, start, start + duration, step=step, pipeline=0))
        commands.append(Command(index, "rbln:0", "C", "compute", "a", start + duration, later))
    for at in work:
        row = Command(-1, "cpu:0", "Host", "host", "tokenizer", at, 30, "", "encode", -1, 0)
        commands.append(row)
    spans = [make_span("pipeline", "P", 0, 1000, pipeline=0)]
    spans += [make_span("step", "s", t, t + 70, i, pipeline=0) for i, t in enumerate(sorted(steps))]
    spans += [make_span("stage", "denoise", 300, 900, pipeline=0)]
    run = make_run(calls, commands, spans)
    found = workload(run)
    assert found.measured_ns.tolist() == [Axis.of(run, PipelineCalls.of(run)).counted.length]
    assert all((t.first_ns >= 0).all() and (t.steady_ns >= 0).all() for t in found.tasks)
