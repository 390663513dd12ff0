"""Wan: video from text, image and video; two experts that take turns."""

from __future__ import annotations

from typing import Any

import diffusers
import transformers

from tests.capture import tiny_diffusers as tiny
from tests.sweep import shared_components as parts
from tests.sweep.cases import variants

_SIZES: dict[str, Any] = {
    "patch_size": (1, 2, 2),
    "num_attention_heads": 2,
    "attention_head_dim": 12,
    "out_channels": 16,
    "text_dim": 32,
    "freq_dim": 256,
    "ffn_dim": 32,
    "num_layers": 2,
    "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads",
    "rope_max_seq_len": 32,
}


def _transformer(channels: int, **more: Any) -> Any:
    return diffusers.WanTransformer3DModel(**_SIZES, in_channels=channels, **more)


def vae(**config: Any) -> Any:
    sizes: dict[str, Any] = {
        "base_dim": 3,
        "z_dim": 16,
        "dim_mult": [1, 1, 1, 1],
        "num_res_blocks": 1,
        "temperal_downsample": [False, True, True],
    }
    return diffusers.AutoencoderKLWan(**(sizes | config))


def _vision() -> dict[str, Any]:
    return {
        "image_encoder": parts.vision(transformers.CLIPVisionModelWithProjection),
        "image_processor": parts.image_processor(),
    }


def components(*, channels: int = 16, experts: bool = False, sees: bool = False) -> dict[str, Any]:
    """`experts`: two transformers, for early and for late steps; `sees`: with an image encoder."""
    more = {"image_dim": 32} if sees else {}
    found = {
        "transformer": _transformer(channels, **more),
        "vae": vae(),
        "scheduler": tiny.flow_scheduler(shift=7.0),
        "text_encoder": tiny.t5(),
        "tokenizer": tiny.t5_tokenizer(),
    }
    if experts:
        found |= {"transformer_2": _transformer(channels, **more), "boundary_ratio": 0.875}
    return found | (_vision() if sees else {})


def _vace() -> dict[str, Any]:
    sizes = {**_SIZES, "num_layers": 3}
    transformer = diffusers.WanVACETransformer3DModel(
        **sizes, in_channels=16, vace_layers=[0, 2], vace_in_channels=96
    )
    return {**components(), "transformer": transformer}


OFFERED = {
    "image": parts.picture(16),
    "num_frames": 9,
    "height": 16,
    "width": 16,
    "max_sequence_length": 16,
}
CASES = [
    *variants(
        "wan",
        components,
        OFFERED,
        {
            "WanPipeline": {"experts": True},
            "WanImageToVideoPipeline": {"channels": 36, "sees": True},
            "WanVideoToVideoPipeline": {"args": {"video": parts.video(9, 16), "strength": 1.0}},
            "LucyEditPipeline": {
                "channels": 32,
                "args": {"video": parts.video(9, 16)},
            },
        },
    ),
    *variants(
        "wan",
        _vace,
        OFFERED,
        {"WanVACEPipeline": {"args": {"video": parts.video(9, 16), "mask": parts.masks(9, 16)}}},
    ),
    *variants(
        "wan",
        components,
        {key: value for key, value in OFFERED.items() if key != "image"} | {"output": "videos"},
        {"WanModularPipeline": {}, "Wan22ModularPipeline": {"experts": True}},
    ),
]
