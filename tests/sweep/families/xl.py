"""Stable Diffusion XL and Kolors: two text encoders, a UNet."""

from __future__ import annotations

from typing import Any

import diffusers
import transformers

from tests.capture import tiny_diffusers as tiny
from tests.sweep import shared_components as parts
from tests.sweep.cases import variants


def _unet(channels: int, **config: Any) -> Any:
    return parts.unet(
        in_channels=channels,
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 2),
        projection_class_embeddings_input_dim=80,
        cross_attention_dim=64,
        **config,
    )


def _attending(_: Any) -> Any:
    return _unet(
        4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )


def components(*, channels: int = 4, **more: Any) -> dict[str, Any]:
    """`more`: of the further parts, what makes them of the UNet."""
    unet = _unet(channels)
    return {
        "unet": unet,
        "scheduler": diffusers.EulerDiscreteScheduler(),
        "vae": parts.vae(),
        "text_encoder": tiny.clip(transformers.CLIPTextModel),
        "text_encoder_2": tiny.clip(),
        "tokenizer": tiny.clip_tokenizer(),
        "tokenizer_2": tiny.clip_tokenizer(),
        "add_watermarker": False,
        "requires_aesthetics_score": False,
        **{name: part(unet) for name, part in more.items()},
    }


def controlnet(unet: Any) -> Any:
    return diffusers.ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(4, 8))


def _union(unet: Any) -> Any:
    return diffusers.ControlNetUnionModel(
        block_out_channels=(4, 8),
        layers_per_block=1,
        in_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 2),
        projection_class_embeddings_input_dim=80,
        cross_attention_dim=64,
        norm_num_groups=2,
        conditioning_embedding_out_channels=(4, 8),
        num_control_type=6,
        num_trans_channel=4,
        num_trans_head=1,
        num_trans_layer=1,
        num_proj_channel=4,
    )


def _cross(unet: Any) -> Any:
    return diffusers.ControlNetXSAdapter.from_unet(
        unet,
        size_ratio=0.5,
        conditioning_embedding_out_channels=(2, 2),
        num_attention_heads=2,
        learn_time_embedding=True,
    )


def _adapter(_: Any) -> Any:
    return diffusers.T2IAdapter(
        in_channels=3, channels=[4, 8], num_res_blocks=1, downscale_factor=2
    )


OFFERED = {
    "image": parts.image(),
    "control_image": parts.image(),
    "mask_image": parts.mask(),
    "strength": 1.0,
}
CONTROL: dict[str, Any] = {"controlnet": controlnet}
UNION: dict[str, Any] = {
    "controlnet": _union,
    "args": {"control_image": [parts.image()], "control_mode": [0]},
}
CASES = variants(
    "xl",
    components,
    OFFERED,
    {
        "StableDiffusionXLPipeline": {},
        "StableDiffusionXLImg2ImgPipeline": {"args": {"strength": 0.7}},
        "StableDiffusionXLInpaintPipeline": {},
        "StableDiffusionXLInstructPix2PixPipeline": {"channels": 8},
        "StableDiffusionXLControlNetPipeline": CONTROL,
        "StableDiffusionXLControlNetImg2ImgPipeline": CONTROL,
        "StableDiffusionXLControlNetInpaintPipeline": CONTROL,
        "StableDiffusionXLControlNetUnionPipeline": UNION,
        "StableDiffusionXLControlNetUnionImg2ImgPipeline": UNION,
        "StableDiffusionXLControlNetUnionInpaintPipeline": UNION,
        "StableDiffusionXLAdapterPipeline": {"adapter": _adapter, "unet": _attending},
        "StableDiffusionXLPAGPipeline": {},
        "StableDiffusionXLPAGImg2ImgPipeline": {},
        "StableDiffusionXLPAGInpaintPipeline": {},
        "StableDiffusionXLControlNetPAGPipeline": CONTROL,
        "StableDiffusionXLControlNetPAGImg2ImgPipeline": CONTROL,
    },
) + variants("xl", components, {}, {"StableDiffusionXLModularPipeline": {}})
