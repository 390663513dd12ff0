"""FLUX and its variants."""

from __future__ import annotations

from typing import Any

import diffusers
import transformers

from tests.capture import tiny_diffusers as tiny
from tests.sweep import shared_components as parts
from tests.sweep.cases import Case, variants


def _sizes(channels: int) -> dict[str, Any]:
    return {
        "patch_size": 1,
        "in_channels": channels,
        "num_layers": 1,
        "num_single_layers": 1,
        "attention_head_dim": 16,
        "num_attention_heads": 2,
        "joint_attention_dim": 32,
        "pooled_projection_dim": 32,
        "axes_dims_rope": (4, 4, 8),
        "guidance_embeds": True,
    }


def components(*, channels: int = 4, latents: int = 1, control: bool = False) -> dict[str, Any]:
    transformer = diffusers.FluxTransformer2DModel(**_sizes(channels), out_channels=4 * latents)
    found = {
        "scheduler": tiny.flow_scheduler(use_dynamic_shifting=True),
        "text_encoder": tiny.clip(transformers.CLIPTextModel),
        "text_encoder_2": tiny.t5(),
        "tokenizer": tiny.clip_tokenizer(),
        "tokenizer_2": tiny.t5_tokenizer(),
        "transformer": transformer,
        "vae": tiny.vae(latent_channels=latents),
    }
    if control:
        found["controlnet"] = diffusers.FluxControlNetModel(**_sizes(channels))
    return found


def _redux() -> dict[str, Any]:
    vision = transformers.SiglipVisionConfig(
        hidden_size=32,
        intermediate_size=37,
        num_hidden_layers=1,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
    )
    return {
        "image_encoder": transformers.SiglipVisionModel(vision),
        "feature_extractor": transformers.SiglipImageProcessor(size={"height": 32, "width": 32}),
        "image_embedder": diffusers.pipelines.flux.modeling_flux.ReduxImageEncoder(
            redux_dim=32, txt_in_features=4096
        ),
    }


OFFERED = {
    "image": parts.image(),
    "control_image": parts.image(),
    "mask_image": parts.mask(),
    "strength": 1.0,
    "max_sequence_length": 16,
}
TRUE_CFG = {"true_cfg_scale": 2.0}
KONTEXT = {**TRUE_CFG, "max_area": 32 * 32, "_auto_resize": False}
CONTROL = {"control": True, "channels": 16, "latents": 4}
CASES = [
    *variants(
        "flux",
        components,
        OFFERED,
        {
            "FluxPipeline": {"args": TRUE_CFG},
            "FluxImg2ImgPipeline": {"args": {"strength": 0.7, **TRUE_CFG}},
            "FluxInpaintPipeline": {"args": TRUE_CFG},
            "FluxKontextPipeline": {"args": KONTEXT},
            "FluxKontextInpaintPipeline": {"args": KONTEXT},
            "FluxFillPipeline": {"channels": 4 + 4 + 4 * 1},
            "FluxControlPipeline": {"channels": 8},
            "FluxControlImg2ImgPipeline": {"channels": 8},
            "FluxControlInpaintPipeline": {"channels": 8},
            "FluxControlNetPipeline": CONTROL,
            "FluxControlNetImg2ImgPipeline": CONTROL,
            "FluxControlNetInpaintPipeline": CONTROL,
        },
    ),
    Case("FluxPriorReduxPipeline", "flux", _redux, {"image": parts.picture()}),
    *variants(
        "flux",
        components,
        {"max_sequence_length": 16},
        {
            "FluxModularPipeline": {},
            "FluxKontextModularPipeline": {
                "args": {"image": parts.picture(), "max_area": 32 * 32, "_auto_resize": False}
            },
        },
    ),
]
