"""The calls of real diffusers pipelines on torch: which, in which order, with which labels."""

from __future__ import annotations

import pytest

import profiler

pytest.importorskip("diffusers", reason="needs the torch extra")
pytest.importorskip("torch", reason="needs the torch extra")

from tests.capture import tiny_diffusers as tiny

pytestmark = pytest.mark.torch

VAE_DECODE = ("decode", "vae", None, -1)


def encoders(count, *branches):
    names = ("text_encoder", "text_encoder_2", "text_encoder_3")[:count]
    return [("encode", name, branch, -1) for branch in branches for name in names]


def profiled(tmp_path, pipeline, *args, **kwargs):
    with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
        pipeline(*args, **(tiny.SIZE | kwargs))
    return profiler.load(run.path)


def calls(run):
    return run.calls.select("stage", "submodule", "branch", "step").rows()


@pytest.fixture(scope="module")
def sd3():
    return tiny.sd3()


@pytest.fixture(scope="module")
def flux():
    return tiny.flux()


def test_stable_diffusion_3(tmp_path, sd3):
    """Six encoder calls, one batched transformer call a step, one VAE call; nothing is lost."""
    run = profiled(tmp_path, sd3, "a cat", num_inference_steps=2)
    assert calls(run) == [
        ("encode", "text_encoder", "prompt", -1),
        ("encode", "text_encoder_2", "prompt", -1),
        ("encode", "text_encoder_3", "prompt", -1),
        ("encode", "text_encoder", "negative_prompt", -1),
        ("encode", "text_encoder_2", "negative_prompt", -1),
        ("encode", "text_encoder_3", "negative_prompt", -1),
        ("denoise", "transformer", "batched", 0),
        ("denoise", "transformer", "batched", 1),
        ("decode", "vae", None, -1),
    ]
    assert run.drops == ()
    assert set(run.calls["device"]) == {"cpu:0"}
    assert not run.calls["ops_traced"].any()
    shapes = run.calls["input_shapes"][6]
    assert "hidden_states: float32[2,4,32,32]" in shapes


def test_stages_tile_the_pipeline(tmp_path, sd3):
    """The stages' lengths add up to the pipeline's, and each call lies within its stage."""
    run = profiled(tmp_path, sd3, "a cat", num_inference_steps=2)
    spans = run.spans.select("kind", "name", "start_ns", "duration_ns").rows()
    assert [(kind, name) for kind, name, *_ in spans] == [
        ("pipeline", "StableDiffusion3Pipeline"),
        ("stage", "encode"),
        ("stage", "denoise"),
        ("step", "step 0"),
        ("step", "step 1"),
        ("stage", "decode"),
    ]
    stages = {
        name: (start, start + length) for kind, name, start, length in spans if kind[1] == "t"
    }
    assert sum(length for kind, _, _, length in spans if kind == "stage") == spans[0][3]
    for stage, start, length in run.calls.select("stage", "start_ns", "duration_ns").rows():
        assert stages[stage][0] <= start
        assert start + length <= stages[stage][1]


def test_without_guidance_the_transformer_is_cond(tmp_path, sd3):
    """No guidance: no negative prompt, and the batch is that of the latents."""
    run = profiled(tmp_path, sd3, "a cat", num_inference_steps=1, guidance_scale=1.0)
    assert calls(run) == [
        *encoders(3, "prompt"),
        ("denoise", "transformer", "cond", 0),
        VAE_DECODE,
    ]


def test_several_images_per_prompt_are_no_guidance(tmp_path, sd3):
    """Three latents a prompt make a batch of three, which is no doubled one; with guidance six
    are."""
    options = {"num_inference_steps": 1, "num_images_per_prompt": 3}
    run = profiled(tmp_path, sd3, "a cat", guidance_scale=1.0, **options)
    assert calls(run)[3:] == [("denoise", "transformer", "cond", 0), VAE_DECODE]
    run = profiled(tmp_path, sd3, "a cat", guidance_scale=5.0, **options)
    assert calls(run)[6:] == [("denoise", "transformer", "batched", 0), VAE_DECODE]


def test_a_prompt_given_as_embeddings_is_not_encoded(tmp_path, sd3):
    """Where only the negative prompt is text, the encoders' calls are the negative prompt's."""
    embeddings, _, pooled, _ = sd3.encode_prompt("a cat", "a cat", "a cat")
    run = profiled(
        tmp_path,
        sd3,
        prompt_embeds=embeddings,
        pooled_prompt_embeds=pooled,
        negative_prompt="dog",
        num_inference_steps=1,
    )
    assert calls(run)[:3] == encoders(3, "negative_prompt")


def test_image_to_image(tmp_path):
    """The VAE encodes in stage encode; steps begin where the scheduler begins."""
    pipeline = tiny.sd3_image_to_image()
    run = profiled(
        tmp_path, pipeline, "a cat", image=tiny.image(), num_inference_steps=4, strength=0.5
    )
    assert calls(run) == [
        *encoders(3, "prompt", "negative_prompt"),
        ("encode", "vae", None, -1),
        ("denoise", "transformer", "batched", 2),
        ("denoise", "transformer", "batched", 3),
        VAE_DECODE,
    ]
    files = [path.name for path in sorted((tmp_path / run.run_id).glob("*_vae.*"))]
    assert files == ["006_vae.encode.pb", "009_vae.decode.pb"]


def test_host_work_around_a_call_is_cut_by_it(tmp_path):
    """`prepare_latents` encodes the image: it is host work before and after that call only."""
    run = profiled(
        tmp_path,
        tiny.sd3_image_to_image(),
        "a cat",
        image=tiny.image(),
        num_inference_steps=2,
        strength=0.5,
    )
    encode = run.calls.row(6, named=True)
    assert encode["submodule"] == "vae"
    pieces = run.commands.filter(run.commands["layer"].cast(str) == "prepare_latents")
    begin, end = encode["start_ns"], encode["start_ns"] + encode["duration_ns"]
    assert len(pieces) == 2
    for start, length in pieces.select("start_ns", "duration_ns").rows():
        assert start + length <= begin or start >= end


def test_controlnet(tmp_path):
    """The ControlNet is a submodule of the denoise stage, once before each transformer call; the
    control image is encoded by the VAE."""
    run = profiled(
        tmp_path, tiny.sd3_controlnet(), "a cat", control_image=tiny.image(), num_inference_steps=2
    )
    assert calls(run) == [
        *encoders(3, "prompt", "negative_prompt"),
        ("encode", "vae", None, -1),
        ("denoise", "controlnet", "batched", 0),
        ("denoise", "transformer", "batched", 0),
        ("denoise", "controlnet", "batched", 1),
        ("denoise", "transformer", "batched", 1),
        VAE_DECODE,
    ]


def test_skip_layer_guidance(tmp_path):
    """SD3.5 with QK norm: the extra call of skip-layer guidance has a branch and a file of its
    own, in the steps in which the guidance is on."""
    pipeline = tiny.sd3(qk_norm="rms_norm", dual_attention_layers=(0,))
    run = profiled(
        tmp_path,
        pipeline,
        "a cat",
        num_inference_steps=3,
        skip_guidance_layers=[1],
        skip_layer_guidance_start=0.2,
        skip_layer_guidance_stop=0.5,
    )
    assert calls(run)[6:] == [
        ("denoise", "transformer", "batched", 0),
        ("denoise", "transformer", "batched", 1),
        ("denoise", "transformer", "skip_layers", 1),
        ("denoise", "transformer", "batched", 2),
        VAE_DECODE,
    ]
    names = {path.name for path in (tmp_path / run.run_id).glob("*.pb")}
    assert {"007_transformer.step001.pb", "008_transformer.step001.skip_layers.pb"} <= names


def test_flux(tmp_path, flux):
    """Guidance is distilled in: two encoder calls, one transformer call a step."""
    run = profiled(tmp_path, flux, "a cat", num_inference_steps=2, max_sequence_length=16)
    assert calls(run) == [
        ("encode", "text_encoder", "prompt", -1),
        ("encode", "text_encoder_2", "prompt", -1),
        ("denoise", "transformer", "cond", 0),
        ("denoise", "transformer", "cond", 1),
        VAE_DECODE,
    ]


TRUE_CFG = [
    *encoders(2, "prompt", "negative_prompt"),
    ("denoise", "transformer", "cond", 0),
    ("denoise", "transformer", "uncond", 0),
    ("denoise", "transformer", "cond", 1),
    ("denoise", "transformer", "uncond", 1),
    VAE_DECODE,
]


def test_flux_with_true_guidance(tmp_path, flux):
    """True CFG calls the transformer twice a step, told apart by `cache_context`."""
    options = {"negative_prompt": "dog", "true_cfg_scale": 2.0, "max_sequence_length": 16}
    assert calls(profiled(tmp_path, flux, "a cat", num_inference_steps=2, **options)) == TRUE_CFG


def test_true_guidance_without_cache_context(tmp_path):
    """Image-to-image FLUX names no cache context: whose embeddings the transformer gets tells."""
    import diffusers

    pipeline = tiny.flux(diffusers.FluxImg2ImgPipeline)
    options = {"negative_prompt": "dog", "true_cfg_scale": 2.0, "max_sequence_length": 16}
    run = profiled(
        tmp_path,
        pipeline,
        "a cat",
        image=tiny.image(),
        num_inference_steps=2,
        strength=1.0,
        **options,
    )
    expected = [*TRUE_CFG[:4], ("encode", "vae", None, -1), *TRUE_CFG[4:]]
    assert calls(run) == expected


@pytest.mark.skipif(not tiny.TRANSFORMERS_5, reason="older ones configure its encoder otherwise")
def test_qwen_image(tmp_path):
    """One encoder, called for both prompts; two transformer calls a step."""
    run = profiled(
        tmp_path,
        tiny.qwen_image(),
        "a cat",
        negative_prompt="dog",
        true_cfg_scale=2.0,
        num_inference_steps=2,
    )
    assert calls(run) == [
        ("encode", "text_encoder", "prompt", -1),
        ("encode", "text_encoder", "negative_prompt", -1),
        *TRUE_CFG[4:],
    ]


def test_stable_diffusion_xl(tmp_path):
    """A UNet with doubled batch, two encoders and both prompts."""
    run = profiled(tmp_path, tiny.sdxl(), "a cat", negative_prompt="dog", num_inference_steps=2)
    assert calls(run) == [
        *encoders(2, "prompt", "negative_prompt"),
        ("denoise", "unet", "batched", 0),
        ("denoise", "unet", "batched", 1),
        VAE_DECODE,
    ]
