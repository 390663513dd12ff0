"""The tiny model's parts as torch modules: Stable Diffusion 3's own classes, small sizes.

Weights are random and depend on `SEED` and each parameter's name alone, not on torch's generator,
so building twice gives the same numbers whatever the order of the parts.
"""

from dataclasses import dataclass
from typing import TypeVar

from profiler.errors import needing
from profiler.graph.export.random_weights import fill_parameters
from profiler.pipelines.tiny.vocabulary import BOS_ID, EOS_ID, VOCABULARY_SIZE

with needing("torch", "profiler.pipelines.tiny"):
    import torch
    from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection, T5Config, T5EncoderModel

__all__ = [
    "CLIP_2_WIDTH",
    "CLIP_WIDTH",
    "HEAD_WIDTH",
    "LATENT_CHANNELS",
    "SAMPLE_SIZE",
    "SEED",
    "T5_WIDTH",
    "TRANSFORMER_BLOCKS",
    "TRANSFORMER_HEADS",
    "VAE_CHANNELS",
    "TinyParts",
    "build_parts",
]

SEED = 3
"""Seed of every weight."""

SAMPLE_SIZE = 48
"""Default height and width of the latents; the image is eight times as large: 384 pixels."""

LATENT_CHANNELS = 16
CLIP_WIDTH, CLIP_2_WIDTH, T5_WIDTH = 24, 32, 64
TRANSFORMER_HEADS, HEAD_WIDTH, TRANSFORMER_BLOCKS = 4, 16, 4
VAE_CHANNELS = (8, 16, 24, 24)

_Model = TypeVar("_Model", bound=torch.nn.Module)


@dataclass(frozen=True)
class TinyParts:
    """The modules of the model, in evaluation mode, float32, on the CPU."""

    text_encoder: CLIPTextModelWithProjection
    text_encoder_2: CLIPTextModelWithProjection
    text_encoder_3: T5EncoderModel
    transformer: SD3Transformer2DModel
    vae: AutoencoderKL
    scheduler: FlowMatchEulerDiscreteScheduler


def build_parts() -> TinyParts:
    """Make the model's parts with their fixed weights."""
    return TinyParts(
        text_encoder=_clip(CLIP_WIDTH, heads=2, layers=2, activation="quick_gelu"),
        text_encoder_2=_clip(CLIP_2_WIDTH, heads=4, layers=3, activation="gelu"),
        text_encoder_3=_t5(),
        transformer=_transformer(),
        vae=_vae(),
        scheduler=FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=3.0),
    )


def _clip(width: int, *, heads: int, layers: int, activation: str) -> CLIPTextModelWithProjection:
    config = CLIPTextConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=width,
        intermediate_size=4 * width,
        projection_dim=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=77,
        hidden_act=activation,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=EOS_ID,
    )
    return _with_weights(CLIPTextModelWithProjection(config))


def _t5() -> T5EncoderModel:
    config = T5Config(
        vocab_size=VOCABULARY_SIZE,
        d_model=T5_WIDTH,
        d_kv=16,
        d_ff=2 * T5_WIDTH,
        num_layers=2,
        num_heads=T5_WIDTH // 16,
        feed_forward_proj="gated-gelu",
        is_encoder_decoder=False,
        use_cache=False,
    )
    return _with_weights(T5EncoderModel(config))


def _transformer() -> SD3Transformer2DModel:
    transformer = SD3Transformer2DModel(
        sample_size=SAMPLE_SIZE,
        patch_size=2,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        num_layers=TRANSFORMER_BLOCKS,
        num_attention_heads=TRANSFORMER_HEADS,
        attention_head_dim=HEAD_WIDTH,
        joint_attention_dim=T5_WIDTH,
        caption_projection_dim=TRANSFORMER_HEADS * HEAD_WIDTH,
        pooled_projection_dim=CLIP_WIDTH + CLIP_2_WIDTH,
        pos_embed_max_size=32,
    )
    return _with_weights(transformer)


def _vae() -> AutoencoderKL:
    vae = AutoencoderKL(
        in_channels=3,
        out_channels=3,
        latent_channels=LATENT_CHANNELS,
        block_out_channels=VAE_CHANNELS,
        down_block_types=("DownEncoderBlock2D",) * len(VAE_CHANNELS),
        up_block_types=("UpDecoderBlock2D",) * len(VAE_CHANNELS),
        layers_per_block=1,
        norm_num_groups=4,
        sample_size=8 * SAMPLE_SIZE,
        scaling_factor=1.5305,
        shift_factor=0.0609,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    return _with_weights(vae)


def _with_weights(model: _Model) -> _Model:
    """Fill every parameter: matrices keep the variance of what passes, norms are about one."""
    fill_parameters(model, SEED)
    model.eval()
    return model
