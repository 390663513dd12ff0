"""Stable Diffusion 3: three text encoders, a transformer."""

from __future__ import annotations

from typing import Any

import diffusers

from tests.capture import tiny_diffusers as tiny
from tests.sweep import shared_components as parts
from tests.sweep.cases import variants


def components(*, latents: int = 4, channels: int = 0, control: bool = False) -> dict[str, Any]:
    """`control`: with a ControlNet that takes so many `channels` beside the image's."""
    found = tiny.sd3_parts(in_channels=latents, out_channels=latents)
    found["vae"] = tiny.vae(latent_channels=latents)
    if control:
        found["controlnet"] = diffusers.SD3ControlNetModel.from_transformer(
            found["transformer"], num_layers=1, num_extra_conditioning_channels=channels
        )
    return found


OFFERED = {
    "image": parts.image(),
    "control_image": parts.image(),
    "mask_image": parts.mask(),
    "strength": 1.0,
}
CASES = variants(
    "three",
    components,
    OFFERED,
    {
        "StableDiffusion3Pipeline": {},
        "StableDiffusion3Img2ImgPipeline": {"args": {"strength": 0.7}},
        "StableDiffusion3InpaintPipeline": {"latents": 16},
        "StableDiffusion3ControlNetPipeline": {"control": True},
        "StableDiffusion3ControlNetInpaintingPipeline": {
            "control": True,
            "channels": 1,
            "args": {"control_mask": parts.mask()},
        },
        "StableDiffusion3PAGPipeline": {},
        "StableDiffusion3PAGImg2ImgPipeline": {},
    },
) + variants("three", components, {}, {"StableDiffusion3ModularPipeline": {}})
