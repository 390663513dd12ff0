"""Components that several families share, of tiny random weights."""

from __future__ import annotations

from typing import Any

import diffusers
import torch
import transformers
from PIL import Image

__all__ = ["image", "image_processor", "mask", "masks", "picture", "unet", "vae", "video", "vision"]


def unet(**config: Any) -> Any:
    sizes: dict[str, Any] = {
        "block_out_channels": (4, 8),
        "layers_per_block": 1,
        "sample_size": 32,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        "norm_num_groups": 2,
        "attention_head_dim": 4,
    }
    return diffusers.UNet2DConditionModel(**(sizes | config))


def vae(**config: Any) -> Any:
    sizes: dict[str, Any] = {
        "block_out_channels": (4, 8),
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "latent_channels": 4,
        "norm_num_groups": 2,
    }
    return diffusers.AutoencoderKL(**(sizes | config))


def vision(kind: Any = None, **config: Any) -> Any:
    sizes = {
        "hidden_size": 32,
        "projection_dim": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "image_size": 32,
        "intermediate_size": 37,
        "patch_size": 8,
    }
    made = kind or transformers.CLIPVisionModelWithProjection
    return made(transformers.CLIPVisionConfig(**(sizes | config)))


def image_processor(size: int = 32) -> Any:
    return transformers.CLIPImageProcessor(crop_size=size, size=size)


def image() -> Any:
    """A picture in tensors, from 0 to 1."""
    return torch.linspace(0, 1, 3 * 32 * 32).reshape(1, 3, 32, 32)


def mask() -> Any:
    """What of it is to be painted anew."""
    found = torch.zeros(1, 1, 32, 32)
    found[..., 8:24] = 1
    return found


def picture(size: int = 32) -> Any:
    """A picture as Pillow has it."""
    return Image.new("RGB", (size, size), (90, 120, 30))


def video(frames: int = 9, size: int = 32) -> list[Any]:
    """As many pictures."""
    return [picture(size)] * frames


def masks(frames: int, size: int) -> list[Any]:
    """A video's mask, a picture each."""
    return [Image.new("L", (size, size), 0)] * frames
