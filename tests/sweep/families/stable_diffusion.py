"""Stable Diffusion 1 and 2 and what is made of their parts."""

from __future__ import annotations

from typing import Any

import diffusers
import torch
import transformers
from PIL import Image

from tests.capture import tiny_diffusers as tiny
from tests.sweep import parts
from tests.sweep.cases import Case, variants


def _unet(**config: Any) -> Any:
    return parts.unet(cross_attention_dim=32, **config)


def components(*, channels: int = 4, **more: Any) -> dict[str, Any]:
    unet = _unet(in_channels=channels)
    return {
        "unet": unet,
        "scheduler": diffusers.DDIMScheduler(clip_sample=False, set_alpha_to_one=False),
        "vae": parts.vae(),
        "text_encoder": tiny.clip(transformers.CLIPTextModel),
        "tokenizer": tiny.clip_tokenizer(),
        **{name: part(unet) for name, part in more.items()},
    }


def controlnet(unet: Any) -> Any:
    return diffusers.ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(4, 8))


def image() -> Any:
    return torch.linspace(0, 1, 3 * 32 * 32).reshape(1, 3, 32, 32)


def mask() -> Any:
    found = torch.zeros(1, 1, 32, 32)
    found[..., 8:24] = 1
    return found


OFFERED = {
    "image": image(),
    "control_image": image(),
    "mask_image": mask(),
    "strength": 1.0,
}
CONTROL = {"controlnet": controlnet}
CASES = [
    *variants(
        "stable_diffusion",
        components,
        OFFERED,
        {
            "StableDiffusionPipeline": {},
            "StableDiffusionImg2ImgPipeline": {},
            "StableDiffusionInpaintPipeline": {"channels": 9},
            "StableDiffusionInstructPix2PixPipeline": {"channels": 8},
            "StableDiffusionControlNetPipeline": CONTROL,
            "StableDiffusionControlNetImg2ImgPipeline": CONTROL,
            "StableDiffusionControlNetInpaintPipeline": CONTROL,
            "StableDiffusionPAGPipeline": {},
            "StableDiffusionPAGImg2ImgPipeline": {},
            "StableDiffusionPAGInpaintPipeline": {},
            "StableDiffusionControlNetPAGPipeline": CONTROL,
            "StableDiffusionControlNetPAGInpaintPipeline": CONTROL,
        },
    ),
]
