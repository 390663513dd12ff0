"""Further pipelines that make images with a transformer: Sana, PixArt, AuraFlow, Z-Image, …"""

from __future__ import annotations

from typing import Any

import diffusers
import torch
import transformers

from tests.capture import tiny_diffusers as tiny
from tests.sweep import shared_components as parts
from tests.sweep.cases import Case, variants


def _t5(transformer: Any, scheduler: Any = None) -> dict[str, Any]:
    return {
        "transformer": transformer,
        "vae": parts.vae(),
        "scheduler": scheduler or tiny.flow_scheduler(),
        "text_encoder": tiny.t5(),
        "tokenizer": tiny.t5_tokenizer(),
    }


def _sana_sizes(**more: Any) -> dict[str, Any]:
    return {
        "patch_size": 1,
        "in_channels": 4,
        "out_channels": 4,
        "num_layers": 2,
        "num_attention_heads": 2,
        "attention_head_dim": 4,
        "num_cross_attention_heads": 2,
        "cross_attention_head_dim": 4,
        "cross_attention_dim": 8,
        "caption_channels": 8,
        "sample_size": 32,
        **more,
    }


def gemma() -> Any:
    config = transformers.Gemma2Config(
        head_dim=16,
        hidden_size=8,
        intermediate_size=16,
        num_attention_heads=2,
        num_hidden_layers=1,
        num_key_value_heads=2,
        vocab_size=320,
        pad_token_id=0,
        attn_implementation="eager",
    )
    return transformers.Gemma2Model(config)


def sana(*, sprint: bool = False, control: bool = False) -> dict[str, Any]:
    """`sprint`: two or three steps of a distilled model."""
    more = {"qk_norm": "rms_norm_across_heads", "guidance_embeds": True} if sprint else {}
    channels = (8, 8)
    found = {
        "transformer": diffusers.SanaTransformer2DModel(**_sana_sizes(**more)),
        "vae": diffusers.AutoencoderDC(
            in_channels=3,
            latent_channels=4,
            attention_head_dim=2,
            encoder_block_types=("ResBlock", "EfficientViTBlock"),
            decoder_block_types=("ResBlock", "EfficientViTBlock"),
            encoder_block_out_channels=channels,
            decoder_block_out_channels=channels,
            encoder_qkv_multiscales=((), (5,)),
            decoder_qkv_multiscales=((), (5,)),
            encoder_layers_per_block=(1, 1),
            decoder_layers_per_block=(1, 1),
            downsample_block_type="conv",
            upsample_block_type="interpolate",
            decoder_norm_types="rms_norm",
            decoder_act_fns="silu",
            scaling_factor=0.41407,
        ),
        "scheduler": diffusers.SCMScheduler() if sprint else tiny.flow_scheduler(shift=7.0),
        "text_encoder": gemma(),
        "tokenizer": tiny.qwen_tokenizer(),
    }
    if control:
        found["controlnet"] = diffusers.SanaControlNetModel(**_sana_sizes())
    return found


def pixart() -> dict[str, Any]:
    transformer = diffusers.PixArtTransformer2DModel(
        sample_size=16,
        num_layers=2,
        patch_size=2,
        attention_head_dim=8,
        num_attention_heads=3,
        caption_channels=32,
        in_channels=4,
        cross_attention_dim=24,
        out_channels=8,
    )
    return _t5(transformer, diffusers.DDIMScheduler())


def aura() -> dict[str, Any]:
    transformer = diffusers.AuraFlowTransformer2DModel(
        sample_size=32,
        patch_size=2,
        in_channels=4,
        num_mmdit_layers=1,
        num_single_dit_layers=1,
        attention_head_dim=8,
        num_attention_heads=4,
        caption_projection_dim=32,
        joint_attention_dim=32,
        out_channels=4,
        pos_embed_max_size=256,
    )
    umt5 = transformers.UMT5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=37, num_layers=1, num_heads=4
    )
    return _t5(transformer) | {"text_encoder": transformers.UMT5EncoderModel(umt5)}


def chroma() -> dict[str, Any]:
    transformer = diffusers.ChromaTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        axes_dims_rope=(4, 4, 8),
        approximator_hidden_dim=32,
        approximator_layers=1,
        approximator_num_channels=16,
    )
    return _t5(transformer) | {"vae": tiny.vae(latent_channels=1)}


def qwen3(kind: Any) -> Any:
    config = transformers.Qwen3Config(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=320,
        max_position_embeddings=512,
    )
    return kind(config)


_CHAT = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def chat_tokenizer() -> Any:
    found = tiny.qwen_tokenizer()
    found.chat_template = _CHAT
    return found


def z_image() -> dict[str, Any]:
    transformer = diffusers.ZImageTransformer2DModel(
        all_patch_size=(2,),
        all_f_patch_size=(1,),
        in_channels=16,
        dim=32,
        n_layers=2,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=16,
        axes_dims=[8, 4, 4],
        axes_lens=[256, 32, 32],
    )
    with torch.no_grad():
        transformer.x_pad_token.fill_(1)
        transformer.cap_pad_token.fill_(1)
    return {
        "transformer": transformer,
        "vae": parts.vae(latent_channels=16, scaling_factor=0.3611, shift_factor=0.1159),
        "scheduler": tiny.flow_scheduler(),
        "text_encoder": qwen3(transformers.Qwen3Model),
        "tokenizer": chat_tokenizer(),
    }


def klein() -> dict[str, Any]:
    return {
        "transformer": diffusers.Flux2Transformer2DModel(
            patch_size=1,
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=16,
            timestep_guidance_channels=256,
            axes_dims_rope=(4, 4, 4, 4),
            guidance_embeds=False,
        ),
        "vae": diffusers.AutoencoderKLFlux2(
            sample_size=32,
            down_block_types=("DownEncoderBlock2D",),
            up_block_types=("UpDecoderBlock2D",),
            block_out_channels=(4,),
            layers_per_block=1,
            latent_channels=1,
            norm_num_groups=1,
            use_quant_conv=False,
            use_post_quant_conv=False,
        ),
        "scheduler": tiny.flow_scheduler(use_dynamic_shifting=True),
        "text_encoder": qwen3(transformers.Qwen3ForCausalLM),
        "tokenizer": chat_tokenizer(),
    }


def cogview() -> dict[str, Any]:
    transformer = diffusers.CogView4Transformer2DModel(
        patch_size=2,
        in_channels=4,
        num_layers=2,
        attention_head_dim=4,
        num_attention_heads=4,
        out_channels=4,
        text_embed_dim=32,
        time_embed_dim=8,
        condition_dim=4,
    )
    glm = transformers.GlmConfig(
        hidden_size=32,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=320,
        pad_token_id=0,
    )
    scheduler = tiny.flow_scheduler(
        base_shift=0.25,
        max_shift=0.75,
        base_image_seq_len=256,
        use_dynamic_shifting=True,
        time_shift_type="linear",
    )
    return {
        "transformer": transformer,
        "vae": parts.vae(),
        "scheduler": scheduler,
        "text_encoder": transformers.GlmModel(glm),
        "tokenizer": tiny.qwen_tokenizer(),
    }


SMALL = {
    "max_sequence_length": 16,
    "use_resolution_binning": False,
    "complex_human_instruction": None,
    "clean_caption": False,
    "control_image": parts.image(),
}
IMAGE = {**SMALL, "image": parts.image(), "mask_image": parts.mask(), "strength": 1.0}
CASES = [
    *variants(
        "image",
        sana,
        SMALL,
        {
            "SanaPipeline": {},
            "SanaPAGPipeline": {},
            "SanaControlNetPipeline": {"control": True},
            "SanaSprintPipeline": {
                "sprint": True,
                "args": {"num_inference_steps": 2},
            },
            "SanaSprintImg2ImgPipeline": {
                "sprint": True,
                "args": {"image": parts.image(), "strength": 1.0, "num_inference_steps": 2},
            },
        },
    ),
    *(
        Case(name, "image", pixart, SMALL)
        for name in ("PixArtAlphaPipeline", "PixArtSigmaPipeline", "PixArtSigmaPAGPipeline")
    ),
    Case("AuraFlowPipeline", "image", aura, SMALL),
    *(Case(name, "image", chroma, IMAGE) for name in ("ChromaPipeline", "ChromaImg2ImgPipeline")),
    *(
        Case(name, "image", z_image, IMAGE)
        for name in ("ZImagePipeline", "ZImageImg2ImgPipeline", "ZImageInpaintPipeline")
    ),
    *variants("image", z_image, SMALL, {"ZImageModularPipeline": {}}),
    Case("Flux2KleinPipeline", "image", klein, {**SMALL, "text_encoder_out_layers": (1,)}),
    Case("CogView4Pipeline", "image", cogview, SMALL),
]
