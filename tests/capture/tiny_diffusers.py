"""Real diffusers pipelines with tiny random weights, made in memory: nothing is downloaded.

Sizes are those of diffusers' own tests. Images have 32 by 32 pixels.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import diffusers
import tokenizers
import torch
import transformers

__all__ = ["flux", "image", "qwen_image", "sd3", "sd3_controlnet", "sd3_image_to_image", "sdxl"]

torch.set_num_threads(1)  # the models are too small for more
SIZE = {"height": 32, "width": 32}
_LETTERS = list("abcdefghijklmnopqrstuvwxyz")
TRANSFORMERS_5 = int(transformers.__version__.split(".")[0]) >= 5


def image():
    """A grey image as pipelines take it, float32 [1, 3, 32, 32] from 0 to 1."""
    return torch.full((1, 3, 32, 32), 0.5)


def quiet(pipeline):
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def clip_tokenizer():
    marks = ["<|startoftext|>", "<|endoftext|>"]
    words = [*_LETTERS, *(f"{letter}</w>" for letter in _LETTERS), *marks]
    vocab = {word: index for index, word in enumerate(words)}
    return _tokenizer(transformers.CLIPTokenizer, vocab, model_max_length=77)


def _tokenizer(kind, vocab, **options):
    """A tokenizer without merges; transformers before 5 reads what it knows from files."""
    if TRANSFORMERS_5:
        return kind(vocab=vocab, merges=[], **options)
    with tempfile.TemporaryDirectory() as folder:
        words, merges = Path(folder, "vocab.json"), Path(folder, "merges.txt")
        words.write_text(json.dumps(vocab), encoding="utf-8")
        merges.write_text("#version: 0.2\n", encoding="utf-8")
        return kind(str(words), str(merges), **options)


def t5_tokenizer():
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    pieces += [(letter, -3.0) for letter in _LETTERS]
    known = {"vocab": pieces}
    if not TRANSFORMERS_5:
        model = tokenizers.models.Unigram(pieces, unk_id=2, byte_fallback=False)
        known = {"tokenizer_object": tokenizers.Tokenizer(model)}
    return transformers.T5TokenizerFast(**known, extra_ids=0, model_max_length=77)


def qwen_tokenizer():
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    words = [*bytes_to_unicode().values(), "<|endoftext|>"]
    vocab = {word: index for index, word in enumerate(words)}
    return _tokenizer(transformers.Qwen2Tokenizer, vocab)


def clip(kind=transformers.CLIPTextModelWithProjection):
    config = transformers.CLIPTextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=2,
        projection_dim=32,
        hidden_act="gelu",
        bos_token_id=52,
        eos_token_id=53,
        pad_token_id=53,
    )
    return kind(config).eval()


def t5(width=32):
    config = transformers.T5Config(
        vocab_size=64, d_model=width, d_kv=8, d_ff=37, num_layers=1, num_heads=4
    )
    return transformers.T5EncoderModel(config).eval()


def flow_scheduler(**config):
    return diffusers.FlowMatchEulerDiscreteScheduler(**config)


def vae(**config):
    sizes = {
        "sample_size": 32,
        "block_out_channels": (4,),
        "latent_channels": 4,
        "norm_num_groups": 1,
        "use_quant_conv": False,
        "use_post_quant_conv": False,
        "shift_factor": 0.06,
        "scaling_factor": 1.5,
    }
    return diffusers.AutoencoderKL(**(sizes | config)).eval()


def sd3_parts(**transformer):
    torch.manual_seed(0)
    sizes = {
        "sample_size": 32,
        "patch_size": 1,
        "in_channels": 4,
        "num_layers": 2,
        "attention_head_dim": 8,
        "num_attention_heads": 4,
        "caption_projection_dim": 32,
        "joint_attention_dim": 32,
        "pooled_projection_dim": 64,
        "out_channels": 4,
    }
    return {
        "scheduler": flow_scheduler(),
        "text_encoder": clip(),
        "text_encoder_2": clip(),
        "text_encoder_3": t5(transformer.get("joint_attention_dim", 32)),
        "tokenizer": clip_tokenizer(),
        "tokenizer_2": clip_tokenizer(),
        "tokenizer_3": t5_tokenizer(),
        "transformer": diffusers.SD3Transformer2DModel(**(sizes | transformer)).eval(),
        "vae": vae(),
    }


def sd3(**transformer):
    """Stable Diffusion 3; `qk_norm="rms_norm"` and `dual_attention_layers` make it a 3.5."""
    return quiet(diffusers.StableDiffusion3Pipeline(**sd3_parts(**transformer)))


def sd3_image_to_image():
    return quiet(diffusers.StableDiffusion3Img2ImgPipeline(**sd3_parts()))


def sd3_controlnet():
    parts = sd3_parts()
    controlnet = diffusers.SD3ControlNetModel.from_transformer(
        parts["transformer"], num_layers=1, num_extra_conditioning_channels=0
    )
    return quiet(
        diffusers.StableDiffusion3ControlNetPipeline(**parts, controlnet=controlnet.eval())
    )


def flux(kind=diffusers.FluxPipeline):
    """FLUX, guidance-distilled; with a negative prompt and `true_cfg_scale` it calls twice."""
    torch.manual_seed(0)
    transformer = diffusers.FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    )
    return quiet(
        kind(
            scheduler=flow_scheduler(use_dynamic_shifting=True),
            text_encoder=clip(transformers.CLIPTextModel),
            text_encoder_2=t5(),
            tokenizer=clip_tokenizer(),
            tokenizer_2=t5_tokenizer(),
            transformer=transformer.eval(),
            vae=vae(latent_channels=1),
        )
    )


def qwen_image():
    torch.manual_seed(0)
    transformer = diffusers.QwenImageTransformer2DModel(
        patch_size=2,
        in_channels=16,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=3,
        joint_attention_dim=16,
        guidance_embeds=False,
        axes_dims_rope=(8, 4, 4),
    )
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 320,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [1, 1, 2],
                "rope_theta": 1000000.0,
            },
        },
        vision_config={
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 2,
            "out_hidden_size": 16,
        },
    )
    return quiet(
        diffusers.QwenImagePipeline(
            scheduler=flow_scheduler(use_dynamic_shifting=True),
            vae=diffusers.AutoencoderKLQwenImage(
                base_dim=8,
                z_dim=4,
                dim_mult=[1, 2],
                num_res_blocks=1,
                temperal_downsample=[False],
                latents_mean=[0.0] * 4,
                latents_std=[1.0] * 4,
            ).eval(),
            text_encoder=transformers.Qwen2_5_VLForConditionalGeneration(config).eval(),
            tokenizer=qwen_tokenizer(),
            transformer=transformer.eval(),
        )
    )


def sdxl():
    torch.manual_seed(0)
    unet = diffusers.UNet2DConditionModel(
        block_out_channels=(2, 4),
        layers_per_block=1,
        sample_size=32,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 2),
        projection_class_embeddings_input_dim=80,
        cross_attention_dim=64,
        norm_num_groups=1,
    )
    return quiet(
        diffusers.StableDiffusionXLPipeline(
            vae=vae(),
            text_encoder=clip(transformers.CLIPTextModel),
            text_encoder_2=clip(),
            tokenizer=clip_tokenizer(),
            tokenizer_2=clip_tokenizer(),
            unet=unet.eval(),
            scheduler=diffusers.EulerDiscreteScheduler(),
            add_watermarker=False,
        )
    )
