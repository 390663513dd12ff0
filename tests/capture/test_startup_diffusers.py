"""Real diffusers pipelines through the environment variable alone, in a script of their own."""

from __future__ import annotations

import signal
import sys

import pytest

from profiler.trace import NO_STEP
from profiler.trace.events import component_of
from tests.capture.switched_on import Environment, drops, labels, whole

pytest.importorskip("diffusers", reason="needs the torch extra")
pytest.importorskip("torch", reason="needs the torch extra")

pytestmark = pytest.mark.torch

SCRIPT = """
    import tests.capture.tiny_diffusers as tiny

    sd3, flux = tiny.quiet(tiny.sd3()), tiny.quiet(tiny.flux())
    classes = [type(sd3), type(flux)]
    sd3("a cat", num_inference_steps=2, output_type="np", **tiny.SIZE)
    flux("a cat", num_inference_steps=1, output_type="np", **tiny.SIZE)
    sd3.encode_prompt("a", "a", "a", do_classifier_free_guidance=False)

    import profiler
    print(profiler.done().name)
    print([type(pipe) is cls for pipe, cls in zip([sd3, flux], classes)])
    print([vars(cls)["__call__"].__code__.co_filename.count("profiler") for cls in classes])
    sd3("a cat", num_inference_steps=1, output_type="np", **tiny.SIZE)
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    return Environment(tmp_path_factory.mktemp("environment")).at(folder)


def encoded(count, *branches):
    names = ("text_encoder", "text_encoder_2", "text_encoder_3")[:count]
    return [(name, "encode", branch, NO_STEP) for branch in branches for name in names]


def test_two_pipelines_in_one_script(scripts):
    """Every call of both pipelines is in the run with its labels, a prompt encoded by itself too,
    those of the second under names of their own;
    with `done()` pipelines and classes are as they were, and nothing more is recorded."""
    ended = scripts.run(SCRIPT, RBLN_PROFILER_CONFIG='{"ops": "none"}')
    assert ended.code == 0, ended.err
    name, instances, classes = ended.out.splitlines()[-3:]
    assert name == ended.bundle.name
    assert (instances, classes) == ("[True, True]", "[0, 0]")
    assert labels(ended.bundle) == [
        *encoded(3, "prompt", "negative_prompt"),
        *(("transformer", "denoise", "batched", step) for step in range(2)),
        ("vae", "decode", "", NO_STEP),
        *((f"{name}@flux", *labels) for name, *labels in encoded(2, "prompt")),
        ("transformer@flux", "denoise", "cond", 0),
        ("vae@flux", "decode", "", NO_STEP),
        *encoded(3, "prompt"),
    ]
    assert drops(ended.bundle) == []
    pipelines = "StableDiffusion3Pipeline, FluxPipeline"
    assert whole(ended.bundle).info.pipeline == pipelines


DECODE = ("vae", "decode", "", NO_STEP)
ENCODE = ("vae", "encode", "", NO_STEP)


def denoised(*calls):
    """Denoise calls, each given as "submodule branch step"."""
    split = (call.split() for call in calls)
    return [(name, "denoise", branch, int(step)) for name, branch, step in split]


def by_pipeline(bundle):
    """The labels of the calls of each pipeline call, in order; each pipeline's own names, without
    what tells them from those of the others."""
    found = {}
    for entry, (name, *label) in zip(whole(bundle).calls, labels(bundle), strict=True):
        found.setdefault(entry.call.pipeline, []).append((component_of(name), *label))
    assert list(found) == list(range(len(found)))
    return list(found.values())


SD3_FAMILY = """
    import torch
    import tests.capture.tiny_diffusers as tiny

    sd3, sd35 = tiny.sd3(), tiny.sd3(qk_norm="rms_norm", dual_attention_layers=(0,))
    to_image, controlnet = tiny.sd3_image_to_image(), tiny.sd3_controlnet()
    short = dict(num_inference_steps=2, output_type="np")
    sd3("a cat", **short, **tiny.SIZE)
    sd3(["a cat", "a dog"], num_images_per_prompt=3, guidance_scale=1.0, **short, **tiny.SIZE)
    to_image("a cat", image=tiny.image(), strength=0.5, num_inference_steps=4, **tiny.SIZE)
    controlnet("a cat", control_image=tiny.image(), **short, **tiny.SIZE)
    sd35("a cat", num_inference_steps=3, skip_guidance_layers=[1], skip_layer_guidance_start=0.2,
         skip_layer_guidance_stop=0.5, **tiny.SIZE)

    sd3.vae.enable_tiling()
    sd3.vae.tile_sample_min_size = sd3.vae.tile_latent_min_size = 16
    tiles = []
    sd3.vae.decoder.register_forward_hook(lambda *_: tiles.append(1))
    sd3("a cat", **short, **tiny.SIZE)
    print(len(tiles), flush=True)
"""


OTHERS = """
    import diffusers

    true_cfg = dict(negative_prompt="dog", true_cfg_scale=2.0, num_inference_steps=2)
    flux, again = tiny.flux(), tiny.flux(diffusers.FluxImg2ImgPipeline)
    flux("a cat", max_sequence_length=16, **true_cfg, **tiny.SIZE)
    again("a cat", image=tiny.image(), strength=1.0, max_sequence_length=16, **true_cfg,
          **tiny.SIZE)
    tiny.qwen_image()("a cat", **true_cfg, **tiny.SIZE)
    tiny.sdxl()("a cat", negative_prompt="dog", num_inference_steps=2, **tiny.SIZE)
"""


@pytest.fixture(scope="module")
def of_all(scripts, tmp_path_factory):
    """Both scripts in one process, since importing diffusers takes ten seconds of a core: the tiles
    that the first one's last call decoded, and the labels of each pipeline call."""
    out = tmp_path_factory.mktemp("all") / "traces"
    ended = scripts.run(
        SD3_FAMILY + OTHERS, RBLN_PROFILER_DIR=str(out), RBLN_PROFILER_CONFIG='{"ops": "none"}'
    )
    assert ended.code == 0, ended.err
    (bundle,) = out.iterdir()
    assert drops(bundle) == []
    found = by_pipeline(bundle)
    assert len(found) == 10
    return int(ended.out.splitlines()[-1]), found


@pytest.fixture
def sd3_family(of_all):
    """The tiles, and the labels of the six pipeline calls of Stable Diffusion 3."""
    tiles, found = of_all
    return tiles, found[:6]


@pytest.fixture
def others(of_all):
    """The labels of the four of other pipelines."""
    return of_all[1][6:]


BOTH_PROMPTS = encoded(3, "prompt", "negative_prompt")
TWO_STEPS = denoised("transformer batched 0", "transformer batched 1")


def test_several_calls_of_one_pipeline_are_appended(sd3_family):
    """Each pipeline call of the process has its calls, in their order."""
    _, found = sd3_family
    assert found[0] == [*BOTH_PROMPTS, *TWO_STEPS, DECODE]


def test_several_images_of_several_prompts(sd3_family):
    """Six latents without guidance are one call a step, of the conditional branch."""
    steps = denoised("transformer cond 0", "transformer cond 1")
    assert sd3_family[1][1] == [*encoded(3, "prompt"), *steps, DECODE]


def test_image_to_image(sd3_family):
    """The VAE encodes the image, and the steps begin where the scheduler does."""
    steps = denoised("transformer batched 2", "transformer batched 3")
    assert sd3_family[1][2] == [*BOTH_PROMPTS, ENCODE, *steps, DECODE]


def test_controlnet(sd3_family):
    """The ControlNet runs in front of the transformer in every step."""
    assert sd3_family[1][3] == [
        *BOTH_PROMPTS,
        ENCODE,
        *denoised("controlnet batched 0", "transformer batched 0"),
        *denoised("controlnet batched 1", "transformer batched 1"),
        DECODE,
    ]


def test_skip_layer_guidance(sd3_family):
    """SD3.5 with QK norm: the call without the skipped layers has a branch of its own."""
    assert sd3_family[1][4] == [
        *BOTH_PROMPTS,
        *denoised("transformer batched 0", "transformer batched 1"),
        *denoised("transformer skip_layers 1", "transformer batched 2"),
        DECODE,
    ]


def test_tiles_are_one_call(sd3_family):
    """A VAE that decodes nine tiles decodes once."""
    tiles, found = sd3_family
    assert tiles == 9
    assert found[5] == [*BOTH_PROMPTS, *TWO_STEPS, DECODE]


TRUE_CFG = denoised(
    "transformer cond 0", "transformer uncond 0", "transformer cond 1", "transformer uncond 1"
)


def test_flux_with_true_guidance(others):
    """True CFG: two calls a step; image-to-image encodes the image as well."""
    prompts = encoded(2, "prompt", "negative_prompt")
    assert others[0] == [*prompts, *TRUE_CFG, DECODE]
    assert others[1] == [*prompts, ENCODE, *TRUE_CFG, DECODE]


def test_qwen_image(others):
    """One encoder for both prompts, two transformer calls a step."""
    assert others[2] == [*encoded(1, "prompt", "negative_prompt"), *TRUE_CFG, DECODE]


def test_stable_diffusion_xl(others):
    """A UNet with doubled batch, two encoders and both prompts."""
    prompts = encoded(2, "prompt", "negative_prompt")
    assert others[3] == [*prompts, *denoised("unet batched 0", "unet batched 1"), DECODE]


INTERRUPTED = """
    import os, signal
    import tests.capture.tiny_diffusers as tiny

    def after_step(pipe, step, timestep, arguments):
        if step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return arguments

    sd3 = tiny.quiet(tiny.sd3())
    sd3("a cat", num_inference_steps=4, callback_on_step_end=after_step, **tiny.SIZE)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_sigterm_in_the_middle_of_a_pipeline_call(scripts, tmp_path):
    """The calls that had ended are in a whole bundle with their operators, though torch's
    profiler was still running for the pipeline call that was cut short."""
    ended = scripts.run(INTERRUPTED, RBLN_PROFILER_DIR=str(tmp_path / "traces"))
    assert ended.code == -signal.SIGTERM
    (bundle,) = (tmp_path / "traces").iterdir()
    assert labels(bundle) == [
        *encoded(3, "prompt", "negative_prompt"),
        *(("transformer", "denoise", "batched", step) for step in range(2)),
    ]
    assert all(entry.commands > 0 for entry in whole(bundle).calls)
    assert drops(bundle) == [("aborted_run", "the run ended with SIGTERM")]
