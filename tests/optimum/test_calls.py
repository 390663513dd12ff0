"""Pipelines of optimum-onnx through the environment variable alone: every call, with its labels."""

from __future__ import annotations

import pytest

from profiler.trace import MANIFEST_NAME, NO_STEP, read_manifest
from tests.capture.switched_on import drops, labels, whole

DECODED = ("vae", "decode", "", NO_STEP)
PRELUDE = """
import torch
from optimum.onnxruntime import {names}

def load(pipeline_class, folder):
    pipe = pipeline_class.from_pretrained(folder, export=False)
    pipe.set_progress_bar_config(disable=True)
    return pipe

size = {{"height": 32, "width": 32, "output_type": "np"}}
image = torch.full((1, 3, 32, 32), 0.5)
"""


def script(names, body):
    return PRELUDE.format(names=names) + body


def encoded(branch, *names):
    return [(name, "encode", branch, NO_STEP) for name in names]


def denoised(submodule, *steps):
    return [(submodule, "denoise", branch, step) for branch, step in steps]


def of_second(*rows):
    """Calls of a second pipeline's own objects, which the script calls `pipe`, too."""
    return [(f"{submodule}@pipe", *rest) for submodule, *rest in rows]


def test_stable_diffusion_3(scripts):
    """Text-to-image, then image-to-image by a pipeline of its own: both prompts, one batched call
    a step, which begins late where there is an image; the VAE's encoder and decoder; operators of
    every call."""
    ended = scripts.profiled(
        script(
            "ORTStableDiffusion3Img2ImgPipeline, ORTStableDiffusion3Pipeline",
            """
pipe = load(ORTStableDiffusion3Pipeline, "sd3")
pipe("a cat", negative_prompt="a dog", num_inference_steps=2, **size)
pipe = load(ORTStableDiffusion3Img2ImgPipeline, "sd3")
pipe("a cat", image=image, strength=0.5, num_inference_steps=4, output_type="np")
""",
        )
    )
    both = [
        *encoded("prompt", "text_encoder", "text_encoder_2", "text_encoder_3"),
        *encoded("negative_prompt", "text_encoder", "text_encoder_2", "text_encoder_3"),
    ]
    assert labels(ended.bundle) == [
        *both,
        *denoised("transformer", ("batched", 0), ("batched", 1)),
        DECODED,
        *of_second(
            *both,
            ("vae", "encode", "", NO_STEP),
            *denoised("transformer", ("batched", 2), ("batched", 3)),
            DECODED,
        ),
    ]
    manifest = whole(ended.bundle)
    assert drops(ended.bundle) == []
    assert all(entry.commands > 0 for entry in manifest.calls)
    assert manifest.info.pipeline == (
        "ORTStableDiffusion3Pipeline, ORTStableDiffusion3Img2ImgPipeline"
    )
    assert manifest.calls[0].call.input_shapes == {"input_ids": "int64[1,77]"}
    assert manifest.calls[8].call.input_shapes == {"latent_sample": "float32[1,4,32,32]"}


def test_flux(scripts):
    """One prompt and one call a step; with a negative prompt and true CFG two of each."""
    ended = scripts.profiled(
        script(
            "ORTFluxPipeline",
            """
pipe = load(ORTFluxPipeline, "flux")
pipe("a cat", num_inference_steps=2, **size)
pipe("a cat", negative_prompt="a dog", true_cfg_scale=2.0, num_inference_steps=2, **size)
""",
        )
    )
    assert labels(ended.bundle) == [
        *encoded("prompt", "text_encoder", "text_encoder_2"),
        *denoised("transformer", ("cond", 0), ("cond", 1)),
        DECODED,
        *encoded("prompt", "text_encoder", "text_encoder_2"),
        *encoded("negative_prompt", "text_encoder", "text_encoder_2"),
        *denoised("transformer", ("cond", 0), ("uncond", 0), ("cond", 1), ("uncond", 1)),
        DECODED,
    ]
    assert drops(ended.bundle) == []
    assert all(entry.commands > 0 for entry in whole(ended.bundle).calls)


def test_stable_diffusion_xl(scripts):
    """The UNet is the denoiser. Without a negative prompt only the prompt is encoded, with one
    both are; two images a prompt are no second branch; image-to-image encodes its image."""
    ended = scripts.profiled(
        script(
            "ORTStableDiffusionXLImg2ImgPipeline, ORTStableDiffusionXLPipeline",
            """
pipe = load(ORTStableDiffusionXLPipeline, "sdxl")
pipe("a cat", num_inference_steps=1, **size)
pipe("a cat", guidance_scale=1.0, num_images_per_prompt=2, num_inference_steps=1, **size)
pipe = load(ORTStableDiffusionXLImg2ImgPipeline, "sdxl")
pipe("a cat", negative_prompt="a dog", image=image, strength=0.5, num_inference_steps=4)
""",
        )
    )
    assert labels(ended.bundle) == [
        *encoded("prompt", "text_encoder", "text_encoder_2"),
        *denoised("unet", ("batched", 0)),
        DECODED,
        *encoded("prompt", "text_encoder", "text_encoder_2"),
        *denoised("unet", ("cond", 0)),
        DECODED,
        *of_second(
            *encoded("prompt", "text_encoder", "text_encoder_2"),
            *encoded("negative_prompt", "text_encoder", "text_encoder_2"),
            ("vae", "encode", "", NO_STEP),
            *denoised("unet", ("batched", 2), ("batched", 3)),
            DECODED,
        ),
    ]
    assert drops(ended.bundle) == []
    assert all(entry.commands > 0 for entry in whole(ended.bundle).calls)


SD3 = script(
    "ORTStableDiffusion3Pipeline",
    """
pipe = load(ORTStableDiffusion3Pipeline, "sd3")
pipe("a cat", guidance_scale=1.0, num_inference_steps=4, **size)
""",
)


@pytest.mark.parametrize(
    ("ops", "traced", "sessions"),
    [
        ("none", [], [0, 0, 0, 0, 0]),
        ("none transformer=every:2", ["transformer 0", "transformer 2"], [0, 0, 0, 1, 0]),
    ],
)
def test_which_calls_are_traced(scripts, ops, traced, sessions):
    """All calls are recorded; operators only of those that were chosen, and only what has such
    calls gets profiled sessions."""
    ended = scripts.profiled(SD3, RBLN_PROFILER_CONFIG=f'{{"ops": "{ops}"}}')
    assert labels(ended.bundle) == [
        *encoded("prompt", "text_encoder", "text_encoder_2", "text_encoder_3"),
        *denoised("transformer", *(("cond", step) for step in range(4))),
        DECODED,
    ]
    manifest = read_manifest(ended.bundle / MANIFEST_NAME)
    with_operators = [entry.call for entry in manifest.calls if entry.commands]
    assert [f"{call.submodule} {call.step}" for call in with_operators] == traced
    names = ("text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae")
    submodules = manifest.info.submodules
    assert [submodules[name].profiled_sessions for name in names] == sessions
