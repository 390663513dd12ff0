"""Pipelines of a denoiser alone, or with a VAE: no text."""

from __future__ import annotations

from typing import Any

import diffusers

from tests.sweep import shared_components as parts
from tests.sweep.cases import Case


def _unet() -> Any:
    return diffusers.UNet2DModel(
        block_out_channels=(4, 8),
        layers_per_block=1,
        sample_size=16,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=2,
        attention_head_dim=4,
    )


def ddpm() -> dict[str, Any]:
    return {"unet": _unet(), "scheduler": diffusers.DDPMScheduler()}


def ddim() -> dict[str, Any]:
    return {"unet": _unet(), "scheduler": diffusers.DDIMScheduler()}


def consistency() -> dict[str, Any]:
    scheduler = diffusers.CMStochasticIterativeScheduler(
        num_train_timesteps=40, sigma_min=0.002, sigma_max=80.0
    )
    return {"unet": _unet(), "scheduler": scheduler}


def dit() -> dict[str, Any]:
    transformer = diffusers.DiTTransformer2DModel(
        sample_size=16,
        num_layers=2,
        patch_size=4,
        attention_head_dim=8,
        num_attention_heads=2,
        in_channels=4,
        out_channels=8,
        num_embeds_ada_norm=1000,
    )
    return {
        "transformer": transformer,
        "vae": parts.vae(),
        "scheduler": diffusers.DDIMScheduler(),
    }


CASES = [
    Case("DDPMPipeline", "unconditional", ddpm, args={"output_type": "np"}),
    Case("DDIMPipeline", "unconditional", ddim, args={"output_type": "np"}),
    Case("ConsistencyModelPipeline", "unconditional", consistency),
    Case("DiTPipeline", "unconditional", dit, args={"class_labels": [1], "output_type": "np"}),
]
