"""What the hooks record of a pipeline, to the nanosecond, on a toy with a hand-moved clock."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import profiler
from profiler.capture import FakeClock, PipelineHooks, Recorder
from profiler.capture.pipelines.call_hooks import _shapes
from profiler.errors import InputError
from profiler.trace import Warmup
from tests.capture.toy import ToyPipeline
from tests.runs import told

START = 1_790_000_000_000_000_000


def run_toy(tmp_path, steps=2, **options):
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock, guidance=options.pop("guidance", True))
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock, **options) as run:
        pipeline(num_inference_steps=steps)
    return profiler.load(run.path)


def test_calls_in_order_with_labels_and_exact_times(tmp_path):
    """Nine calls of a two-step run carry submodule, stage, branch, step, device and wall time."""
    calls = run_toy(tmp_path).calls
    rows = calls.select(
        "submodule", "stage", "branch", "step", "device", "start_ns", "duration_ns"
    ).rows()
    assert [(*row[:5], row[5] - START, row[6]) for row in rows] == [
        ("text_encoder", "encode", "prompt", -1, "cpu:0", 5, 100),
        ("text_encoder_2", "encode", "prompt", -1, "cpu:0", 105, 200),
        ("text_encoder_3", "encode", "prompt", -1, "cpu:1", 305, 300),
        ("text_encoder", "encode", "negative_prompt", -1, "cpu:0", 610, 100),
        ("text_encoder_2", "encode", "negative_prompt", -1, "cpu:0", 710, 200),
        ("text_encoder_3", "encode", "negative_prompt", -1, "cpu:1", 910, 300),
        ("transformer", "denoise", "batched", 0, "cpu:0", 1217, 1000),
        ("transformer", "denoise", "batched", 1, "cpu:0", 2227, 1000),
        ("vae", "decode", None, -1, "cpu:0", 3237, 500),
    ]


def test_a_method_that_the_script_replaces_for_a_time(tmp_path):
    """By a function that calls the hooked one; after the script has deleted it, calls are recorded
    again, and it stays deleted."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock) as run:
        pipeline(1)
        decode = pipeline.vae.decode
        pipeline.vae.decode = lambda latents: decode(latents + 1)
        pipeline(1)
        del pipeline.vae.decode
        pipeline(1)
    submodules = profiler.load(run.path).calls["submodule"].to_list()
    assert submodules.count("vae") == submodules.count("transformer") == 3
    assert vars(pipeline.vae).keys() == {"decoder"}


def test_stages_tile_the_pipeline_and_steps_end_with_the_scheduler(tmp_path):
    """Stage borders are the ends of encode_prompt and of the last scheduler step."""
    spans = run_toy(tmp_path).spans.select("kind", "name", "start_ns", "duration_ns").rows()
    assert [(kind, name, start - START, duration) for kind, name, start, duration in spans] == [
        ("pipeline", "ToyPipeline", 0, 3737),
        ("stage", "encode", 0, 1210),
        ("stage", "denoise", 1210, 2027),
        ("step", "step 0", 1217, 1010),
        ("step", "step 1", 2227, 1010),
        ("stage", "decode", 3237, 500),
    ]


def test_host_work_is_recorded_once_with_its_stage_and_step(tmp_path):
    """Tokenizers and scheduler steps stand on the host track of the root device, in no call."""
    host = run_toy(tmp_path).commands
    assert set(host["call"]) == {-1}
    assert set(host["device"]) == {"cpu:0"}
    assert set(host["track"]) == {"Host"}
    rows = host.filter(host["layer"].is_in(["tokenizer", "scheduler.step"]))
    assert rows.select("layer", "stage", "step", "duration_ns").rows() == [
        ("tokenizer", "encode", -1, 5),
        ("tokenizer", "encode", -1, 5),
        ("scheduler.step", "denoise", 0, 10),
        ("scheduler.step", "denoise", 1, 10),
    ]


def test_call_files_are_named_by_submodule_branch_and_step(tmp_path):
    """The files of a run say what they hold, in call order."""
    run_toy(tmp_path, name="toy")
    assert sorted(path.name for path in (tmp_path / "toy").iterdir()) == [
        "000_text_encoder.prompt.pb",
        "001_text_encoder_2.prompt.pb",
        "002_text_encoder_3.prompt.pb",
        "003_text_encoder.negative_prompt.pb",
        "004_text_encoder_2.negative_prompt.pb",
        "005_text_encoder_3.negative_prompt.pb",
        "006_transformer.step000.pb",
        "007_transformer.step001.pb",
        "008_vae.decode.pb",
        "host.pb",
        "manifest.json",
        "merged.pb",
    ]


def test_without_guidance_there_is_no_negative_prompt_and_the_denoiser_is_cond(tmp_path):
    """Branches come from the prompt order and from whether guidance doubles the batch."""
    calls = run_toy(tmp_path, guidance=False).calls
    assert calls["branch"].to_list() == ["prompt", "prompt", "prompt", "cond", "cond", None]


def test_input_shapes_are_recorded(tmp_path):
    """A call span says dtype and shape of each array it was given."""
    calls = run_toy(tmp_path).calls
    assert calls["input_shapes"][0] == "input_ids: int64[1,77]"
    assert calls["input_shapes"][6] == "hidden_states: float32[2,16,4,4]"


def test_shapes_of_arrays_of_any_library():
    """Types of elements are named once and kept, unless they cannot be a key."""

    class Odd:
        dtype, shape = ["odd"], (2, 3)

    array = np.zeros((1, 2), np.float16)
    given = {"a": array, "b": array, "odd": Odd(), "none": None}
    expected = {"a": "float16[1,2]", "b": "float16[1,2]", "odd": "['odd'][2,3]"}
    assert _shapes(given) == expected == _shapes(given)


def test_two_pipeline_calls_append(tmp_path):
    """A second call of the pipeline in one run adds its calls and spans; nothing is overwritten."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock) as profiled:
        pipeline(num_inference_steps=1)
        pipeline(num_inference_steps=1)
    run = profiler.load(profiled.path)
    assert len(run.calls) == 16
    assert run.spans["kind"].to_list().count("pipeline") == 2
    assert run.calls["step"].to_list().count(0) == 2


def test_settings_are_those_of_each_pipeline_call(tmp_path):
    """What calls share is the run's; what differs stands under the number of its call."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    for steps, expected in {
        (2,): ({"num_inference_steps": 2}, {}),
        (2, 2): ({"num_inference_steps": 2}, {}),
        (3, 2): ({}, {"0": {"num_inference_steps": 3}, "1": {"num_inference_steps": 2}}),
    }.items():
        with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock) as profiled:
            with profiled.warmup():
                pipeline(num_inference_steps=1)
            for number in steps:
                pipeline(num_inference_steps=number)
        info = profiler.load(profiled.path).info
        assert (info.settings, info.pipeline_settings) == expected
        assert list(info.pipeline_settings) == list(expected[1])


def test_a_profile_in_a_profile(tmp_path):
    """Of the same pipeline it is refused, and the outer run goes on; of another both are whole."""
    clock = FakeClock(START)
    pipeline, other = ToyPipeline(clock), ToyPipeline(clock)
    with profiler.profile(pipeline, out=tmp_path, ops="none", name="outer", clock=clock) as outer:
        again = profiler.profile(pipeline, out=tmp_path, ops="none", name="again", clock=clock)
        with pytest.raises(InputError, match="being profiled already: end that first"), again:
            pass
        with profiler.profile(other, out=tmp_path, ops="none", name="inner", clock=clock) as inner:
            pipeline(num_inference_steps=1)
            other(num_inference_steps=2)
    assert [len(profiler.load(run.path).calls) for run in (outer, inner)] == [8, 9]
    assert not (tmp_path / "again").exists()


def test_warm_up_is_kept_apart(tmp_path):
    """What runs in warm-up is in no table, and the manifest says how long it took."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock) as profiled:
        with profiled.warmup():
            pipeline(num_inference_steps=1)
        pipeline(num_inference_steps=1)
    run = profiler.load(profiled.path)
    assert len(run.calls) == 8
    assert run.info.warmup == Warmup(runs=1, duration_ns=2727)


def test_warm_up_in_warm_up_is_part_of_it(tmp_path):
    """Nothing is recorded until the outer one has ended, and time is counted once."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock) as profiled:
        with profiled.warmup():
            with profiled.warmup():
                pipeline(num_inference_steps=1)
            pipeline(num_inference_steps=1)
        pipeline(num_inference_steps=1)
    run = profiler.load(profiled.path)
    assert len(run.calls) == 8
    assert run.info.warmup == Warmup(runs=1, duration_ns=2 * 2727)


def test_time_in_our_hooks_is_counted():
    """What passes between a call's hook and its begin is ours, and behind its end, and around the
    pipeline call: one reading of 1 ns each here."""
    recorder = Recorder(FakeClock(step_ns=1))
    pipeline = ToyPipeline(recorder.clock)
    hooks = PipelineHooks(pipeline, recorder, lambda entry: None, lambda pipeline: None)
    hooks.attach()
    pipeline(num_inference_steps=1)
    hooks.detach()
    assert len(recorder.calls()) == 8
    assert recorder.hooks_ns == 8 * 2 + 2
    (whole,) = recorder.pipelines
    assert recorder.traced_ns == whole.end_ns - whole.start_ns + 2


@pytest.mark.torch
def test_the_device_of_a_call_is_that_of_its_output(tmp_path):
    """A module that offload moves after it was invoked has run where its output is."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")

    class Pipeline:
        def __init__(self):
            self.transformer = torch.nn.Linear(2, 2)
            self.transformer.register_forward_pre_hook(lambda module, _: module.to("meta") and None)

        def __call__(self):
            return self.transformer(torch.empty(1, 2, device="meta"))

    pipeline = Pipeline()
    with profiler.profile(pipeline, out=tmp_path, ops="none") as profiled:
        pipeline()
    assert profiler.load(profiled.path).calls["device"].to_list() == ["meta:0"]


def test_the_pipeline_is_left_as_it_was(tmp_path):
    """Detaching restores the class, every attribute and every session."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    before = {name: dict(vars(value)) for name, value in vars(pipeline).items() if _has_vars(value)}
    attributes, kind = dict(vars(pipeline)), type(pipeline)
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock):
        assert isinstance(pipeline, kind)
        assert pipeline.tokenizer.model_max_length == 77
    assert vars(pipeline) == attributes
    assert type(pipeline) is kind
    after = {name: dict(vars(value)) for name, value in vars(pipeline).items() if _has_vars(value)}
    assert after == before


def _has_vars(value):
    return hasattr(value, "__dict__") and not callable(value)


def test_an_exception_keeps_finished_calls_and_is_reported(tmp_path):
    """A run that fails in its second step leaves seven whole calls and says how it ended."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock, fail_at=1)
    profiled = profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock)
    with pytest.raises(RuntimeError, match="out of memory"), profiled:
        pipeline(num_inference_steps=2)
    run = profiler.load(profiled.path)
    assert len(run.calls) == 7
    assert [drop.kind for drop in run.drops] == ["aborted_run"]
    assert "out of memory" in told(run.drops[0])
    assert "forward" not in vars(pipeline.transformer)


def test_a_failed_step_stays_in_denoise_and_is_named(tmp_path):
    """A run that ends in its second transformer call has no decode stage, and the drop names the
    submodule and step that did not return."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    forward = pipeline.transformer.forward

    def fail_in_second_step(**inputs):
        if pipeline.scheduler.step_index == 1:
            clock.advance(400)
            raise RuntimeError("out of memory")
        return forward(**inputs)

    pipeline.transformer.forward = fail_in_second_step
    profiled = profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock)
    with pytest.raises(RuntimeError, match="out of memory"), profiled:
        pipeline(num_inference_steps=3)
    run = profiler.load(profiled.path)
    stages = run.spans.filter(run.spans["kind"].cast(str) == "stage")
    assert stages.select("name", "duration_ns").rows() == [("encode", 1210), ("denoise", 1417)]
    lost = [(drop.kind, drop.where, told(drop)) for drop in run.drops]
    assert lost[0] == (
        "untraced_call",
        "transformer",
        "the call of step 1 did not return, so it has no file",
    )


def test_profiling_a_pipeline_twice_at_once_is_refused(tmp_path):
    """A second profile of the same pipeline is refused; the first one goes on undisturbed."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock) as outer:
        with pytest.raises(profiler.ProfilerError, match="being profiled already"):
            profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock).__enter__()
        pipeline(num_inference_steps=1)
    assert len(profiler.load(outer.path).calls) == 8
    assert len(list(tmp_path.iterdir())) == 1


def test_as_decorator_each_call_is_a_run(tmp_path):
    """A decorated function writes a bundle of its own every time it is called."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)

    @profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock, name="toy")
    def infer(steps):
        return pipeline(num_inference_steps=steps)

    infer(1)
    infer(2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy", "toy-2"]
    assert len(profiler.load(tmp_path / "toy-2").calls) == 9


def test_async_functions_are_decorated_too(tmp_path):
    """The run of a coroutine lasts until it has been awaited."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    profiled = profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock)

    @profiled
    async def infer(steps):
        await asyncio.sleep(0)
        return pipeline(num_inference_steps=steps)

    assert asyncio.run(infer(1)) is not None
    assert len(profiler.load(profiled.path).calls) == 8


def test_generators_are_refused(tmp_path):
    """They run after they have been called, so that nothing would be recorded."""
    pipeline = ToyPipeline(FakeClock(START))
    with pytest.raises(profiler.ProfilerError, match="images is a generator"):

        @profiler.profile(pipeline, out=tmp_path, ops="none")
        def images():
            yield pipeline()


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"unet_9": {}}, "'unet_9' is not a submodule of this pipeline; it has text_encoder"),
        ({"vae": {"activate": True}}, "has unknown keys activate: use activate_profiler and"),
        ({"vae": {"activate_profiler": 1}}, "activate_profiler of vae is 1: write True or False"),
        ({"vae": {"device": 3.5}}, "device of vae is 3.5: write an index or kind:index"),
        ({"vae": True}, "the configuration of vae is True"),
        (["vae"], r"config is \['vae'\]: write"),
        ({"text_encoder_3": {"device": 0}}, "is configured for device 0 but runs on cpu:1"),
    ],
)
def test_a_wrong_configuration_gets_one_sentence(tmp_path, config, sentence):
    """Unknown submodules, keys, values and devices are refused before anything is written."""
    pipeline = ToyPipeline(FakeClock(START))
    with pytest.raises(profiler.ProfilerError, match=sentence):
        profiler.profile(pipeline, config=config, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_something_that_is_no_pipeline_is_refused(tmp_path):
    """An object without any known submodule gets a sentence, not an AttributeError."""
    with pytest.raises(profiler.ProfilerError, match="shaped like diffusers"):
        profiler.profile(np.zeros(3), out=tmp_path)


def test_operators_of_a_part_without_session_cannot_be_traced(tmp_path):
    """Asking for operators of a part that has no ONNX Runtime session says what to do, and
    leaves neither wraps nor an empty bundle behind."""
    pipeline = ToyPipeline(FakeClock(START))
    with pytest.raises(profiler.ProfilerError, match="ops='none'"):
        profiler.profile(pipeline, out=tmp_path).__enter__()
    assert list(tmp_path.iterdir()) == []
    assert type(pipeline) is ToyPipeline
