"""Further pipelines that make videos: CogVideoX, HunyuanVideo, Mochi, Latte, Stable Video."""

from __future__ import annotations

from typing import Any

import diffusers
import transformers

from tests.capture import tiny_components
from tests.capture import tiny_diffusers as tiny
from tests.sweep import shared_components as parts
from tests.sweep.cases import Case, variants


def cogvideo(*, channels: int = 4, rotary: bool = False) -> dict[str, Any]:
    heads = {"num_attention_heads": 2, "attention_head_dim": 16}
    if rotary:
        heads |= {"use_rotary_positional_embeddings": True}
        heads |= {"use_learned_positional_embeddings": True}
    return {
        "transformer": diffusers.CogVideoXTransformer3DModel(
            **heads,
            in_channels=channels,
            out_channels=4,
            time_embed_dim=2,
            text_embed_dim=32,
            num_layers=1,
            sample_width=2,
            sample_height=2,
            sample_frames=9,
            patch_size=2,
            temporal_compression_ratio=4,
            max_text_seq_length=16,
        ),
        "vae": diffusers.AutoencoderKLCogVideoX(
            down_block_types=("CogVideoXDownBlock3D",) * 4,
            up_block_types=("CogVideoXUpBlock3D",) * 4,
            block_out_channels=(8, 8, 8, 8),
            latent_channels=4,
            layers_per_block=1,
            norm_num_groups=2,
            temporal_compression_ratio=4,
        ),
        "scheduler": diffusers.CogVideoXDDIMScheduler(),
        "text_encoder": tiny.t5(),
        "tokenizer": tiny.t5_tokenizer(),
    }


def _hunyuan_transformer(channels: int, **more: Any) -> Any:
    sizes: dict[str, Any] = {
        "in_channels": channels,
        "out_channels": 4,
        "num_attention_heads": 2,
        "attention_head_dim": 10,
        "num_layers": 1,
        "num_single_layers": 1,
        "num_refiner_layers": 1,
        "patch_size": 1,
        "patch_size_t": 1,
        "guidance_embeds": True,
        "text_embed_dim": 16,
        "pooled_projection_dim": 32,
        "rope_axes_dim": (2, 4, 4),
    }
    return diffusers.HunyuanVideoTransformer3DModel(**(sizes | more))


def _llama() -> dict[str, Any]:
    return {
        "bos_token_id": 0,
        "eos_token_id": 2,
        "hidden_size": 16,
        "intermediate_size": 37,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "pad_token_id": 1,
        "vocab_size": 320,
    }


def hunyuan() -> dict[str, Any]:
    return {
        "transformer": _hunyuan_transformer(4),
        "vae": diffusers.AutoencoderKLHunyuanVideo(
            latent_channels=4,
            down_block_types=("HunyuanVideoDownBlock3D",) * 4,
            up_block_types=("HunyuanVideoUpBlock3D",) * 4,
            block_out_channels=(8, 8, 8, 8),
            layers_per_block=1,
            norm_num_groups=4,
            spatial_compression_ratio=8,
            temporal_compression_ratio=4,
        ),
        "scheduler": tiny.flow_scheduler(shift=7.0),
        "text_encoder": transformers.LlamaModel(transformers.LlamaConfig(**_llama())),
        "tokenizer": tiny.qwen_tokenizer(),
        "text_encoder_2": tiny.clip(transformers.CLIPTextModel),
        "tokenizer_2": tiny.clip_tokenizer(),
    }


def hunyuan_image() -> dict[str, Any]:
    vision = transformers.CLIPVisionConfig(
        hidden_size=8,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=2,
        image_size=32,
        patch_size=16,
    )
    llava = transformers.LlavaConfig(
        vision_config=vision,
        text_config=transformers.LlamaConfig(**(_llama() | {"pad_token_id": 300})),
        pad_token_id=300,
        image_token_index=301,
    )
    return {
        **hunyuan(),
        "transformer": _hunyuan_transformer(
            9, guidance_embeds=False, image_condition_type="latent_concat"
        ),
        "text_encoder": transformers.LlavaForConditionalGeneration(llava),
        "image_processor": parts.image_processor(),
    }


def mochi() -> dict[str, Any]:
    transformer = diffusers.MochiTransformer3DModel(
        patch_size=2,
        num_attention_heads=2,
        attention_head_dim=8,
        num_layers=2,
        pooled_projection_dim=16,
        in_channels=12,
        text_embed_dim=32,
        time_embed_dim=4,
        max_sequence_length=16,
    )
    transformer.pos_frequencies.data.zero_()
    return {
        "transformer": transformer,
        "vae": diffusers.AutoencoderKLMochi(
            latent_channels=12,
            encoder_block_out_channels=(32, 32, 32, 32),
            decoder_block_out_channels=(32, 32, 32, 32),
            layers_per_block=(1, 1, 1, 1, 1),
        ),
        "scheduler": tiny.flow_scheduler(),
        "text_encoder": tiny.t5(),
        "tokenizer": tiny.t5_tokenizer(),
    }


def latte() -> dict[str, Any]:
    return {
        "transformer": diffusers.LatteTransformer3DModel(
            sample_size=8,
            num_layers=1,
            patch_size=2,
            attention_head_dim=8,
            num_attention_heads=3,
            caption_channels=32,
            in_channels=4,
            cross_attention_dim=24,
            out_channels=8,
            attention_bias=True,
            activation_fn="gelu-approximate",
            num_embeds_ada_norm=1000,
            norm_type="ada_norm_single",
            norm_elementwise_affine=False,
            norm_eps=1e-6,
        ),
        "vae": parts.vae(),
        "scheduler": diffusers.DDIMScheduler(),
        "text_encoder": tiny.t5(),
        "tokenizer": tiny.t5_tokenizer(),
    }


def stable_video() -> dict[str, Any]:
    return dict(tiny_components.image_to_video().components)


COGVIDEO = {"height": 16, "width": 16, "num_frames": 8, "max_sequence_length": 16}
CLIP = parts.video(8, 16)
HUNYUAN = {
    "height": 16,
    "width": 16,
    "num_frames": 9,
    "max_sequence_length": 16,
    "prompt_template": {"template": "{}", "crop_start": 0},
    "true_cfg_scale": 2.0,
}
CASES = [
    *variants(
        "video",
        cogvideo,
        COGVIDEO,
        {
            "CogVideoXPipeline": {},
            "CogVideoXImageToVideoPipeline": {
                "channels": 8,
                "rotary": True,
                "args": {"image": parts.picture(16)},
            },
            "CogVideoXVideoToVideoPipeline": {"args": {"video": CLIP, "strength": 1.0}},
            "CogVideoXFunControlPipeline": {"channels": 8, "args": {"control_video": CLIP}},
        },
    ),
    Case("HunyuanVideoPipeline", "video", hunyuan, HUNYUAN),
    Case(
        "HunyuanVideoImageToVideoPipeline",
        "video",
        hunyuan_image,
        HUNYUAN
        | {
            "image": parts.picture(16),
            "max_sequence_length": 64,
            "prompt_template": {
                "template": "{}",
                "crop_start": 0,
                "image_emb_len": 4,
                "image_emb_start": 5,
                "image_emb_end": 9,
            },
        },
    ),
    Case(
        "MochiPipeline",
        "video",
        mochi,
        {"height": 16, "width": 16, "num_frames": 7, "max_sequence_length": 16},
    ),
    Case("LattePipeline", "video", latte, {"video_length": 1, "height": 8, "width": 8}),
    Case(
        "StableVideoDiffusionPipeline",
        "video",
        stable_video,
        {"image": parts.picture(), "num_frames": 2, "decode_chunk_size": 1},
    ),
]
