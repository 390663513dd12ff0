"""Qwen-Image and its variants: a language model that sees, true guidance."""

from __future__ import annotations

from typing import Any

import diffusers

from tests.capture import tiny_diffusers as tiny
from tests.sweep import shared_components as parts
from tests.sweep.cases import variants


def components(*, control: bool = False) -> dict[str, Any]:
    found = dict(tiny.qwen_image().components)
    if control:
        found["controlnet"] = diffusers.QwenImageControlNetModel(
            patch_size=2,
            in_channels=16,
            out_channels=4,
            num_layers=1,
            attention_head_dim=16,
            num_attention_heads=3,
            joint_attention_dim=16,
            axes_dims_rope=(8, 4, 4),
        )
    return found


OFFERED = {
    "image": parts.image(),
    "control_image": parts.image(),
    "mask_image": parts.mask(),
    "control_mask": parts.mask(),
    "strength": 1.0,
    "true_cfg_scale": 2.0,
}
CASES = variants(
    "qwen",
    components,
    OFFERED,
    {
        "QwenImagePipeline": {},
        "QwenImageImg2ImgPipeline": {"args": {"strength": 0.7}},
        "QwenImageInpaintPipeline": {},
        "QwenImageControlNetPipeline": {"control": True},
    },
) + variants("qwen", components, {}, {"QwenImageModularPipeline": {}})
