"""Configurations that are known by name: written as a diffusers folder without weights.

They are those of the published models, as their config.json files state them. Weights are not
shipped: such a source is exported with random ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["CONFIGURATIONS", "SD3_INDEX", "write_configuration"]


def _clip(width: int, layers: int, heads: int, activation: str) -> dict[str, Any]:
    return {
        "architectures": ["CLIPTextModelWithProjection"],
        "model_type": "clip_text_model",
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 1,
        "hidden_act": activation,
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "max_position_embeddings": 77,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "projection_dim": width,
        "vocab_size": 49408,
    }


_T5_XXL = {
    "architectures": ["T5EncoderModel"],
    "model_type": "t5",
    "d_ff": 10240,
    "d_kv": 64,
    "d_model": 4096,
    "dense_act_fn": "gelu_new",
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "feed_forward_proj": "gated-gelu",
    "is_encoder_decoder": True,
    "is_gated_act": True,
    "layer_norm_epsilon": 1e-06,
    "num_heads": 64,
    "num_layers": 24,
    "pad_token_id": 0,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": False,
    "use_cache": True,
    "vocab_size": 32128,
}

_TRANSFORMER = {
    "_class_name": "SD3Transformer2DModel",
    "attention_head_dim": 64,
    "caption_projection_dim": 1536,
    "in_channels": 16,
    "joint_attention_dim": 4096,
    "num_attention_heads": 24,
    "num_layers": 24,
    "out_channels": 16,
    "patch_size": 2,
    "pooled_projection_dim": 2048,
    "pos_embed_max_size": 192,
    "sample_size": 128,
}

_VAE = {
    "_class_name": "AutoencoderKL",
    "act_fn": "silu",
    "block_out_channels": [128, 256, 512, 512],
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
    "force_upcast": True,
    "in_channels": 3,
    "latent_channels": 16,
    "layers_per_block": 2,
    "norm_num_groups": 32,
    "out_channels": 3,
    "sample_size": 1024,
    "scaling_factor": 1.5305,
    "shift_factor": 0.0609,
    "use_post_quant_conv": False,
    "use_quant_conv": False,
}

SD3_INDEX = {
    "_class_name": "StableDiffusion3Pipeline",
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "CLIPTextModelWithProjection"],
    "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
    "text_encoder_3": ["transformers", "T5EncoderModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "tokenizer_2": ["transformers", "CLIPTokenizer"],
    "tokenizer_3": ["transformers", "T5TokenizerFast"],
    "transformer": ["diffusers", "SD3Transformer2DModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}
"""model_index.json of Stable Diffusion 3 with all three text encoders."""

CONFIGURATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "sd3-medium": {
        "model_index.json": SD3_INDEX,
        "scheduler/scheduler_config.json": {
            "_class_name": "FlowMatchEulerDiscreteScheduler",
            "num_train_timesteps": 1000,
            "shift": 3.0,
        },
        "text_encoder/config.json": _clip(768, layers=12, heads=12, activation="quick_gelu"),
        "text_encoder_2/config.json": _clip(1280, layers=32, heads=20, activation="gelu"),
        "text_encoder_3/config.json": _T5_XXL,
        "transformer/config.json": _TRANSFORMER,
        "vae/config.json": _VAE,
    },
}
"""Files of each known configuration, by path below the folder."""


def write_configuration(name: str, folder: Path) -> None:
    """Write the known configuration `name` into `folder`; KeyError for an unknown one."""
    for path, content in CONFIGURATIONS[name].items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
