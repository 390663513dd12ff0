"""Pipelines of two stages: Kandinsky and Stable Cascade, priors, decoders and both in one."""

from __future__ import annotations

from typing import Any

import diffusers
import torch

from tests.capture import tiny_components
from tests.capture import tiny_diffusers as tiny
from tests.sweep import shared_components as parts
from tests.sweep.cases import Case, variants


def _kandinsky() -> dict[str, Any]:
    return dict(tiny_components.kandinsky().components)


def kandinsky_prior() -> dict[str, Any]:
    """The prior's components under the names that they have alone."""
    found = _kandinsky()
    alone = {name.removeprefix("prior_"): found[name] for name in found if "prior_" in name}
    return alone | {"image_encoder": parts.vision()}


def kandinsky() -> dict[str, Any]:
    return _kandinsky()


def _unet(channels: int, **more: Any) -> Any:
    sizes: dict[str, Any] = {
        "in_channels": channels,
        "out_channels": 8,
        "addition_embed_type": "image",
        "down_block_types": ("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
        "up_block_types": ("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
        "mid_block_type": "UNetMidBlock2DSimpleCrossAttn",
        "block_out_channels": (32, 64),
        "layers_per_block": 1,
        "encoder_hid_dim": 32,
        "encoder_hid_dim_type": "image_proj",
        "cross_attention_dim": 32,
        "attention_head_dim": 4,
        "resnet_time_scale_shift": "scale_shift",
    }
    return diffusers.UNet2DConditionModel(**(sizes | more))


def kandinsky_with(channels: int, **more: Any) -> dict[str, Any]:
    return _kandinsky() | {"unet": _unet(channels, **more)}


def kandinsky_3() -> dict[str, Any]:
    return {
        "unet": diffusers.Kandinsky3UNet(
            in_channels=4,
            time_embedding_dim=4,
            groups=2,
            attention_head_dim=4,
            layers_per_block=3,
            block_out_channels=(32, 64),
            cross_attention_dim=4,
            encoder_hid_dim=32,
        ),
        "movq": _kandinsky()["movq"],
        "scheduler": diffusers.DDPMScheduler(beta_schedule="squaredcos_cap_v2"),
        "text_encoder": tiny.t5(),
        "tokenizer": tiny.t5_tokenizer(),
    }


def _cascade_prior() -> Any:
    return diffusers.models.StableCascadeUNet(
        conditioning_dim=32,
        block_out_channels=(32, 32),
        num_attention_heads=(2, 2),
        down_num_layers_per_block=(1, 1),
        up_num_layers_per_block=(1, 1),
        clip_image_in_channels=768,
        switch_level=(False,),
        clip_text_in_channels=32,
        clip_text_pooled_in_channels=32,
    )


def _cascade_decoder() -> Any:
    blocks = ("SDCascadeResBlock", "SDCascadeTimestepBlock")
    return diffusers.models.StableCascadeUNet(
        in_channels=4,
        out_channels=4,
        conditioning_dim=32,
        block_out_channels=(8, 16, 32, 32),
        num_attention_heads=(-1, -1, 1, 2),
        down_num_layers_per_block=(1, 1, 1, 1),
        up_num_layers_per_block=(1, 1, 1, 1),
        down_blocks_repeat_mappers=(1, 1, 1, 1),
        up_blocks_repeat_mappers=(3, 3, 2, 2),
        block_types_per_layer=(blocks, blocks, *[(*blocks, "SDCascadeAttnBlock")] * 2),
        switch_level=None,
        clip_text_pooled_in_channels=32,
        dropout=(0.1, 0.1, 0.1, 0.1),
    )


def cascade() -> dict[str, Any]:
    """Both stages, also under the names that they have alone."""
    from diffusers.pipelines.deprecated.wuerstchen.modeling_paella_vq_model import PaellaVQModel

    prior = _cascade_prior()
    return {
        "prior": prior,
        "prior_prior": prior,
        "decoder": _cascade_decoder(),
        "vqgan": PaellaVQModel(bottleneck_blocks=1, num_vq_embeddings=2),
        "scheduler": diffusers.DDPMWuerstchenScheduler(),
        "prior_scheduler": diffusers.DDPMWuerstchenScheduler(),
        "text_encoder": tiny.clip(),
        "prior_text_encoder": tiny.clip(),
        "tokenizer": tiny.clip_tokenizer(),
        "prior_tokenizer": tiny.clip_tokenizer(),
    }


EMBEDDED = {"image_embeds": torch.ones(1, 32), "negative_image_embeds": torch.zeros(1, 32)}
IMAGE = {
    **EMBEDDED,
    "image": parts.image(),
    "mask_image": parts.mask(),
    "hint": parts.image().repeat(1, 1, 4, 4),
    "strength": 1.0,
    "prior_num_inference_steps": 2,
}
HINT = {"addition_embed_type": "image_hint"}
CASES = [
    Case("KandinskyV22CombinedPipeline", "priors", kandinsky, {"prior_num_inference_steps": 2}),
    Case("KandinskyV22Img2ImgCombinedPipeline", "priors", kandinsky, IMAGE),
    Case("KandinskyV22Pipeline", "priors", kandinsky, IMAGE),
    Case("KandinskyV22Img2ImgPipeline", "priors", kandinsky, IMAGE),
    *variants(
        "priors",
        kandinsky_with,
        IMAGE,
        {
            "KandinskyV22InpaintPipeline": {"channels": 9},
            "KandinskyV22ControlnetPipeline": {"channels": 8, **HINT},
            "KandinskyV22ControlnetImg2ImgPipeline": {"channels": 8, **HINT},
        },
    ),
    Case("KandinskyV22PriorPipeline", "priors", kandinsky_prior),
    Case("KandinskyV22PriorEmb2EmbPipeline", "priors", kandinsky_prior, IMAGE),
    Case("Kandinsky3Pipeline", "priors", kandinsky_3),
    Case("Kandinsky3Img2ImgPipeline", "priors", kandinsky_3, IMAGE),
    Case(
        "StableCascadeCombinedPipeline",
        "priors",
        cascade,
        {
            "prior_num_inference_steps": 2,
            "decoder_guidance_scale": 4.0,
            "height": 128,
            "width": 128,
        },
    ),
    Case("StableCascadePriorPipeline", "priors", cascade, {"height": 128, "width": 128}),
    Case(
        "StableCascadeDecoderPipeline",
        "priors",
        cascade,
        {"image_embeddings": torch.ones(1, 16, 4, 4), "guidance_scale": 2.0},
    ),
]
