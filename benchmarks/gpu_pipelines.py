"""Diffusers pipelines in full size with random weights, for measuring GPUs without a download.

Sizes are those of the published configurations (Stable Diffusion 3.5 medium, FLUX.1 dev, Wan 2.1
1.3B); how long a kernel takes hardly depends on what its weights are. `tiny` makes the same
pipelines small enough for a processor: they show that a script works, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import diffusers
import torch
import transformers

__all__ = ["PIPELINES", "Made", "Making"]

PROMPT = "a red fox in fresh snow under a pine, soft light of a winter morning"


class Tokenizer:
    """Ids of words, made up: no vocabulary has to be downloaded. Padded to `model_max_length`."""

    def __init__(self, vocab: int, end: int, pad: int, length: int = 77) -> None:
        self.vocab, self.end, self.pad, self.model_max_length = vocab, end, pad, length

    def __call__(
        self, text: str | list[str], padding: str = "", max_length: int | None = None, **_: Any
    ) -> Any:
        texts = [text] if isinstance(text, str) else text
        most = max_length or self.model_max_length
        rows = [[*self._words(one)[: most - 1], self.end] for one in texts]
        length = max(map(len, rows)) if padding == "longest" else most
        ids = [row + [self.pad] * (length - len(row)) for row in rows]
        mask = [[1] * len(row) + [0] * (length - len(row)) for row in rows]
        return SimpleNamespace(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask))

    added_tokens_encoder: Mapping[str, int] = {}

    def tokenize(self, text: str) -> list[str]:
        return text.split()

    def batch_decode(self, ids: Any, **_: Any) -> list[str]:
        return [""] * len(ids)

    def _words(self, text: str) -> list[int]:
        return [sum(map(ord, word)) * 31 % (self.vocab - 3) for word in text.split()]


@dataclass(frozen=True, slots=True)
class Made:
    """A pipeline and what it is called with."""

    pipeline: Any
    arguments: Mapping[str, Any]

    def __call__(self, **changes: Any) -> Any:
        return self.pipeline(**{**self.arguments, **changes})


@dataclass(frozen=True, slots=True)
class Making:
    """Where a pipeline is made, and whether in full size."""

    device: str
    dtype: torch.dtype
    tiny: bool

    def sized(self, tiny: Any, full: Any) -> Any:
        return tiny if self.tiny else full

    def module(self, make: Callable[[], Any]) -> Any:
        """Made where it will run: drawing billions of weights on a processor takes minutes."""
        with torch.device(self.device):
            module = make()
        return module.to(device=self.device, dtype=self.dtype).eval().requires_grad_(False)


@dataclass(frozen=True, slots=True)
class Encoder:
    """A text encoder and its tokenizer, neither made yet."""

    make: Callable[[], Any]
    tokenizer: Callable[[], Tokenizer]


@dataclass(frozen=True, slots=True)
class ClipSize:
    """What tells encoders of CLIP apart."""

    width: int
    layers: int
    heads: int
    act: str = "quick_gelu"


CLIP_L, CLIP_BIG_G = ClipSize(768, 12, 12), ClipSize(1280, 32, 20, "gelu")
TINY_CLIP_L, TINY_CLIP_BIG_G = ClipSize(64, 2, 4), ClipSize(64, 2, 4, "gelu")


def clip(size: ClipSize, kind: Any) -> Encoder:
    config = transformers.CLIPTextConfig(
        vocab_size=49408,
        hidden_size=size.width,
        intermediate_size=4 * size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        projection_dim=size.width,
        hidden_act=size.act,
    )
    return Encoder(lambda: kind(config), lambda: Tokenizer(49408, 49407, 49407))


def t5(tiny: bool, kind: str = "T5", width: int = 64) -> Encoder:
    sizes = {"d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64}
    if tiny:
        sizes = {"d_model": width, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    vocab = 256384 if kind == "UMT5" else 32128
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=vocab, feed_forward_proj="gated-gelu", **sizes
    )
    model = getattr(transformers, f"{kind}EncoderModel")
    return Encoder(lambda: model(config), lambda: Tokenizer(vocab, 1, 0, 512))


def encoders(making: Making, *some: Encoder) -> dict[str, Any]:
    """Encoders and tokenizers under the names that pipelines have for them."""
    named = [(f"_{number}" if number > 1 else "", one) for number, one in enumerate(some, 1)]
    return {
        **{f"text_encoder{suffix}": making.module(one.make) for suffix, one in named},
        **{f"tokenizer{suffix}": one.tokenizer() for suffix, one in named},
    }


def image_parts(making: Making, scaling: float, shift: float, **schedule: Any) -> dict[str, Any]:
    """What pipelines of images share: a VAE of 16 channels, and flow matching."""
    widths = making.sized((16, 16, 32, 32), (128, 256, 512, 512))
    vae = making.module(
        lambda: diffusers.AutoencoderKL(
            in_channels=3,
            out_channels=3,
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=widths,
            layers_per_block=2,
            latent_channels=16,
            norm_num_groups=making.sized(8, 32),
            use_quant_conv=False,
            use_post_quant_conv=False,
            scaling_factor=scaling,
            shift_factor=shift,
        )
    )
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, **schedule)
    return {"vae": vae, "scheduler": scheduler}


def sd35(making: Making) -> Made:
    """Stable Diffusion 3.5 medium: guidance doubles the batch."""
    heads, layers = making.sized((4, 2), (24, 24))
    one, two = making.sized((TINY_CLIP_L, TINY_CLIP_BIG_G), (CLIP_L, CLIP_BIG_G))
    joint = making.sized(128, 4096)  # at least both widths of CLIP
    kind = transformers.CLIPTextModelWithProjection

    def transformer() -> Any:
        return diffusers.SD3Transformer2DModel(
            sample_size=128,
            patch_size=2,
            in_channels=16,
            out_channels=16,
            num_layers=layers,
            attention_head_dim=64,
            num_attention_heads=heads,
            joint_attention_dim=joint,
            caption_projection_dim=heads * 64,
            pooled_projection_dim=one.width + two.width,
            pos_embed_max_size=384,
            dual_attention_layers=tuple(range(min(13, layers))),
            qk_norm="rms_norm",
        )

    parts = {
        "transformer": making.module(transformer),
        **encoders(making, clip(one, kind), clip(two, kind), t5(making.tiny, width=joint)),
        **image_parts(making, scaling=1.5305, shift=0.0609),
    }
    return _of_images(making, diffusers.StableDiffusion3Pipeline(**parts), guidance=7.0)


def flux(making: Making) -> Made:
    """FLUX.1 dev: guidance is an input of the transformer, which runs once a step."""
    heads, double, single = making.sized((2, 1, 2), (24, 19, 38))
    one = making.sized(TINY_CLIP_L, CLIP_L)

    def transformer() -> Any:
        return diffusers.FluxTransformer2DModel(
            patch_size=1,
            in_channels=64,
            num_layers=double,
            num_single_layers=single,
            attention_head_dim=128,
            num_attention_heads=heads,
            joint_attention_dim=making.sized(64, 4096),
            pooled_projection_dim=one.width,
            guidance_embeds=True,
            axes_dims_rope=(16, 56, 56),
        )

    parts = {
        "transformer": making.module(transformer),
        **encoders(making, clip(one, transformers.CLIPTextModel), t5(making.tiny)),
        **image_parts(making, scaling=0.3611, shift=0.1159, use_dynamic_shifting=True),
    }
    return _of_images(making, diffusers.FluxPipeline(**parts), guidance=3.5)


def wan(making: Making) -> Made:
    """A video transformer of Wan 2.1's smaller shape: guidance is a second call each step."""
    heads, layers = making.sized((2, 2), (12, 30))

    def transformer() -> Any:
        return diffusers.WanTransformer3DModel(
            patch_size=(1, 2, 2),
            num_attention_heads=heads,
            attention_head_dim=128,
            in_channels=16,
            out_channels=16,
            text_dim=making.sized(64, 4096),
            freq_dim=256,
            ffn_dim=making.sized(256, 8960),
            num_layers=layers,
            cross_attn_norm=True,
            qk_norm="rms_norm_across_heads",
            rope_max_seq_len=1024,
        )

    vae = making.sized({"base_dim": 8}, {})
    parts = {
        "transformer": making.module(transformer),
        **encoders(making, t5(making.tiny, "UMT5")),
        "vae": making.module(lambda: diffusers.AutoencoderKLWan(**vae)),
        "scheduler": diffusers.UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
    }
    height, width, frames = making.sized((32, 32, 5), (480, 832, 33))
    return _made(
        diffusers.WanPipeline(**parts),
        guidance_scale=5.0,
        height=height,
        width=width,
        num_frames=frames,
        output_type="np",
    )


def _of_images(making: Making, pipeline: Any, guidance: float) -> Made:
    size = making.sized(64, 1024)
    return _made(pipeline, guidance_scale=guidance, height=size, width=size)


def _made(pipeline: Any, **arguments: Any) -> Made:
    pipeline.set_progress_bar_config(disable=True)
    return Made(pipeline, {"prompt": PROMPT, "num_inference_steps": 4, **arguments})


PIPELINES: dict[str, Callable[[Making], Made]] = {"sd35": sd35, "flux": flux, "wan": wan}
