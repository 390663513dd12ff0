"""Which ranges are calls, and their stage, step, branch and name."""

from __future__ import annotations

import pytest

from profiler.analysis.profiling_overhead import unmeasured

from .traces import DECODE, ENCODE_PROMPT, PIPELINE, STEP, Trace, calls, flux


def test_a_pipeline_becomes_its_submodule_calls(tmp_path):
    """Outermost modules and the VAE's decode are the calls, placed by the scheduler's steps."""
    run = flux().imported(tmp_path)
    assert calls(run) == [
        ("text_encoder", "encode", "prompt", -1),
        ("text_encoder_2", "encode", "prompt", -1),
        ("transformer", "denoise", "cond", 0),
        ("transformer", "denoise", "cond", 1),
        ("vae", "decode", None, -1),
    ]
    assert run.calls["duration_ns"].to_list() == [20_000, 40_000, 60_000, 60_000, 300_000]
    assert run.info.recording.steps_from == ("scheduler",)


def test_stages_tile_the_pipeline_and_steps_end_with_the_scheduler(tmp_path):
    """Encode ends with encode_prompt, a step with its scheduler step, decode with the pipeline."""
    run = flux().imported(tmp_path)
    begin = run.spans["start_ns"].min()
    spans = [
        (kind, step, (start - begin) // 1000, length // 1000)
        for kind, step, start, length in run.spans.select(
            "kind", "step", "start_ns", "duration_ns"
        ).iter_rows()
    ]
    assert sorted(spans) == [
        ("pipeline", -1, 0, 1000),
        ("stage", -1, 0, 100),
        ("stage", -1, 100, 400),
        ("stage", -1, 500, 500),
        ("step", 0, 150, 150),
        ("step", 1, 300, 200),
    ]


def test_two_calls_a_step_are_the_two_branches(tmp_path):
    """Guidance without batching calls the denoiser twice between two scheduler steps."""
    run = flux(guided=True).imported(tmp_path)
    assert [row[1:] for row in calls(run) if row[0] == "transformer"] == [
        ("denoise", "cond", 0),
        ("denoise", "uncond", 0),
        ("denoise", "cond", 1),
        ("denoise", "uncond", 1),
    ]


def test_a_second_pass_over_the_encoders_is_the_negative_prompt(tmp_path):
    """Encoders of one class are told apart by instance, passes by order."""
    trace = Trace()
    trace.frame(PIPELINE, 0, 1000)
    trace.frame(ENCODE_PROMPT, 10, 200)
    for begin in (20, 100):
        trace.module("CLIPTextModelWithProjection_0", begin, 10)
        trace.module("CLIPTextModelWithProjection_1", begin + 20, 10)
        trace.module("T5EncoderModel_0", begin + 40, 10)
    trace.module("SD3Transformer2DModel_0", 300, 10)
    trace.frame(STEP, 320, 10)
    run = trace.imported(tmp_path)
    assert calls(run) == [
        ("text_encoder", "encode", "prompt", -1),
        ("text_encoder_2", "encode", "prompt", -1),
        ("text_encoder_3", "encode", "prompt", -1),
        ("text_encoder", "encode", "negative_prompt", -1),
        ("text_encoder_2", "encode", "negative_prompt", -1),
        ("text_encoder_3", "encode", "negative_prompt", -1),
        ("transformer", "denoise", "batched", 0),
    ]


def test_a_second_encode_prompt_is_the_negative_prompt(tmp_path):
    """True guidance of FLUX and Qwen-Image encodes each prompt in an encode_prompt of its own."""
    trace = flux(guided=True)
    trace.frame(ENCODE_PROMPT, 101, 40)
    trace.module("CLIPTextModel_0", 105, 10)
    run = trace.imported(tmp_path)
    assert calls(run)[2] == ("text_encoder", "encode", "negative_prompt", -1)


@pytest.mark.parametrize(("batch", "branch"), [(1, "cond"), (2, "batched")])
def test_a_doubled_batch_holds_both_branches(tmp_path, batch, branch):
    """One call a step is `batched` where it has twice as many inputs as images are decoded."""
    trace = flux()
    for begin in (150, 350):
        dims = [[batch, 16, 64, 64], [4, 16, 2, 2]]
        trace.op("aten::conv2d", begin + 1, 5, **{"Input Dims": dims})
    trace.op("aten::conv2d", 620, 5, **{"Input Dims": [[1, 16, 64, 64]]})
    run = trace.imported(tmp_path)
    assert {row[2] for row in calls(run) if row[0] == "transformer"} == {branch}


@pytest.mark.parametrize("inner", [True, False])
def test_a_compiled_denoiser_is_one_call_under_its_wrapper(tmp_path, inner):
    """The wrapper of torch.compile is the call; its name is that of what it wraps."""
    trace = Trace()
    trace.frame(PIPELINE, 0, 1000)
    trace.module("OptimizedModule_1", 20, 10)
    for begin in (100, 200):
        trace.module("OptimizedModule_0", begin, 50)
        if inner:
            trace.module("UNet2DConditionModel_0", begin + 5, 40)
        else:
            trace.frame("diffusers/models/unets/unet_2d_condition.py(9): forward", begin + 5, 40)
        trace.frame(STEP, begin + 60, 10)
    run = trace.imported(tmp_path)
    assert calls(run) == [
        ("text_encoder", "encode", "prompt", -1),
        ("unet", "denoise", "cond", 0),
        ("unet", "denoise", "cond", 1),
    ]
    assert run.calls["duration_ns"].to_list()[1:] == [50_000, 50_000]


def test_a_controlnet_belongs_to_the_step_of_its_denoiser(tmp_path):
    """What runs between scheduler steps denoises, the first time too."""
    trace = Trace()
    trace.frame(PIPELINE, 0, 1000)
    trace.module("CLIPTextModel_0", 20, 10)
    for begin in (100, 200):
        trace.module("ControlNetModel_0", begin, 10)
        trace.module("UNet2DConditionModel_0", begin + 20, 10)
        trace.frame(STEP, begin + 40, 10)
    assert calls(trace.imported(tmp_path))[1:] == [
        ("controlnet", "denoise", "cond", 0),
        ("unet", "denoise", "cond", 0),
        ("controlnet", "denoise", "cond", 1),
        ("unet", "denoise", "cond", 1),
    ]


def test_a_controlnet_of_a_single_step(tmp_path):
    """With one scheduler step, behind it all: what is no ControlNet still comes before the loop."""
    trace = Trace()
    trace.frame(PIPELINE, 0, 1000)
    trace.module("Adapter_0", 20, 10)
    trace.module("ControlNetModel_0", 100, 10)
    trace.module("UNet2DConditionModel_0", 120, 10)
    trace.frame(STEP, 140, 10)
    stages = [stage for _, stage, *_ in calls(trace.imported(tmp_path))]
    assert stages == ["encode", "denoise", "denoise"]


def test_a_pipeline_in_which_nothing_is_called_is_no_call(tmp_path):
    """Of two frames on one thread, and one elsewhere at the same time, one holds the calls."""
    trace = flux()
    trace.frame(PIPELINE, 5000, 1000)
    trace.frame(PIPELINE, 0, 1000, tid=9)
    for folder in ("three", "one"):
        (tmp_path / folder).mkdir()
    run, alone = trace.imported(tmp_path / "three"), flux().imported(tmp_path / "one")
    assert run.spans.equals(alone.spans)
    assert calls(run) == calls(alone)


def test_an_image_is_encoded_before_the_loop(tmp_path):
    """Image-to-image calls the VAE's encode in the encode stage and an image encoder by name."""
    trace = flux()
    trace.frame(DECODE.replace("decode", "encode"), 105, 20)
    trace.module("Encoder_0", 110, 10)
    trace.module("CLIPVisionModelWithProjection_0", 130, 5)
    run = trace.imported(tmp_path)
    assert calls(run)[2:4] == [
        ("vae", "encode", None, -1),
        ("image_encoder", "encode", None, -1),
    ]
    assert run.spans.filter(run.spans["name"] == "encode")["duration_ns"].item() == 135_000


def test_a_module_borrowed_from_a_submodule_is_no_call(tmp_path):
    """A pipeline that applies an encoder's last norm itself does not get a further submodule."""
    trace = flux()
    trace.module("LayerNorm_3", 25, 5)
    trace.module("LayerNorm_3", 42, 5)
    assert len(trace.imported(tmp_path).calls) == 5


def test_a_module_that_holds_the_pipeline_is_no_call(tmp_path):
    """Where a module runs the whole pipeline, its children are the submodules."""
    trace = flux()
    trace.module("MyGenerator_0", -0.0, 1100)
    assert calls(trace.imported(tmp_path)) == calls(flux().imported(tmp_path))


def test_without_a_scheduler_steps_are_numbered_by_call_order(tmp_path):
    """The most called module denoises, and the manifest says where the numbers come from."""
    trace = flux()
    trace.events = [event for event in trace.events if "scheduling" not in event["name"]]
    run = trace.imported(tmp_path)
    assert calls(run) == calls(flux().imported(tmp_path))
    assert run.info.recording.steps_from == ("call_order",)


def test_a_learning_rate_scheduler_is_no_noise_scheduler(tmp_path):
    """Training traces have `step` frames of schedulers too."""
    trace = Trace()
    for begin in (0, 100):
        trace.module("ResNet_0", begin, 50)
        trace.frame("torch/optim/lr_scheduler.py(133): step", begin + 60, 10)
    run = trace.imported(tmp_path)
    assert calls(run) == [("ResNet", "run", None, -1)] * 2
    assert run.info.recording.steps_from == ()


def test_a_language_model_is_no_diffusion(tmp_path):
    """Nothing denoises: submodules have the names of their classes, and one stage. A step of the
    profiler is no pipeline."""
    trace = Trace()
    trace.event("user_annotation", "ProfilerStep#6", 0, 500)
    trace.module("Qwen2ForCausalLM_0", 100, 200)
    trace.module("LogitsProcessor_0", 310, 10)
    trace.module("LogitsProcessor_1", 330, 10)
    run = trace.imported(tmp_path)
    names = ("Qwen2ForCausalLM", "LogitsProcessor", "LogitsProcessor_2")
    assert calls(run) == [(name, "run", None, -1) for name in names]
    assert run.spans.select("kind", "name", "duration_ns").rows() == [
        ("pipeline", "trace", 240_000),
        ("stage", "run", 240_000),
    ]


def test_a_single_encoder_needs_no_pipeline(tmp_path):
    """A trace of one module gives one call and a pipeline span of its length."""
    trace = Trace()
    trace.module("T5EncoderModel_0", 100, 50)
    run = trace.imported(tmp_path)
    assert calls(run) == [("T5EncoderModel", "run", None, -1)]
    assert run.spans["duration_ns"].to_list() == [50_000, 50_000]


def test_each_pipeline_call_has_its_own_steps(tmp_path):
    """Two images in one trace are two pipeline spans, and steps begin anew."""
    trace = flux()
    for event in flux().events:
        trace.events.append({**event, "ts": event["ts"] + 2000})
    run = trace.imported(tmp_path)
    assert [row[3] for row in calls(run)] == [-1, -1, 0, 1, -1] * 2
    assert (run.spans["kind"] == "pipeline").sum() == 2


def test_calls_outside_the_pipeline_count_to_it(tmp_path):
    """A prompt encoded ahead and an image decoded afterwards belong to the pipeline call."""
    trace = Trace()
    trace.module("T5EncoderModel_0", 0, 10)
    trace.frame(PIPELINE, 100, 100)
    trace.module("FluxTransformer2DModel_0", 110, 10)
    trace.frame(STEP, 130, 10)
    trace.frame(DECODE, 300, 10)
    run = trace.imported(tmp_path)
    assert [row[:2] for row in calls(run)] == [
        ("text_encoder", "encode"),
        ("transformer", "denoise"),
        ("vae", "decode"),
    ]
    assert run.spans.filter(run.spans["kind"] == "pipeline")["duration_ns"].item() == 310_000


def test_a_recording_that_stops_in_the_loop_keeps_the_last_step(tmp_path):
    """A denoiser call that no scheduler step follows is one more step, not decoding."""
    trace = Trace()
    for begin in (0, 100):
        trace.module("FluxTransformer2DModel_0", begin, 50)
        trace.frame(STEP, begin + 60, 10)
    trace.module("FluxTransformer2DModel_0", 200, 50)
    assert [row[1:] for row in calls(trace.imported(tmp_path))] == [
        ("denoise", "cond", 0),
        ("denoise", "cond", 1),
        ("denoise", "cond", 2),
    ]


def test_steps_of_a_decoder_are_not_denoising_steps(tmp_path):
    """A consistency decoder steps a scheduler of its own inside the call."""
    trace = flux()
    trace.frame(STEP, 700, 10)
    assert calls(trace.imported(tmp_path)) == calls(flux().imported(tmp_path))


def test_settings_of_the_host_need_events_of_the_host(tmp_path):
    """A file may ask for shapes in its head and hold kernels and launches alone: no operators were
    recorded then that could have slowed the host."""
    told = {}
    for operators in (False, True):
        trace = Trace(record_shapes=1, with_stack=0, profile_memory=0)
        for number in range(3):
            begin = 100.0 * number
            if operators:
                trace.op("aten::add", begin, 20)
            trace.kernel("add_kernel", begin + 30, 10, launched=begin + 5)
        folder = tmp_path / str(operators)
        folder.mkdir()
        run = trace.imported(folder)
        told[operators] = str(unmeasured(run.info.recording)), "shapes" in run.info.capabilities
    assert told == {
        False: ("not measured", False),
        True: ("not measured (recording operators slows the host)", True),
    }
