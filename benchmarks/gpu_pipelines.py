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

__all__ = ["PIPELINES", "Made"]

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


def on_device(make: Callable[[], Any], device: str, dtype: torch.dtype) -> Any:
    """A module made where it will run: drawing billions of weights on a processor takes minutes."""
    with torch.device(device):
        module = make()
    return module.to(device=device, dtype=dtype).eval().requires_grad_(False)


def clip(width: int, layers: int, heads: int, act: str, kind: Any) -> Callable[[], Any]:
    config = transformers.CLIPTextConfig(
        vocab_size=49408,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        projection_dim=width,
        hidden_act=act,
    )
    return lambda: kind(config)


def t5(tiny: bool, kind: str = "T5", width: int = 64) -> Callable[[], Any]:
    sizes = {"d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64}
    if tiny:
        sizes = {"d_model": width, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    vocab = 256384 if kind == "UMT5" else 32128
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=vocab, feed_forward_proj="gated-gelu", **sizes
    )
    return lambda: getattr(transformers, f"{kind}EncoderModel")(config)


def image_vae(tiny: bool, **more: Any) -> Callable[[], Any]:
    widths = (16, 16, 32, 32) if tiny else (128, 256, 512, 512)
    return lambda: diffusers.AutoencoderKL(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=widths,
        layers_per_block=2,
        latent_channels=16,
        norm_num_groups=8 if tiny else 32,
        use_quant_conv=False,
        use_post_quant_conv=False,
        **more,
    )


def clip_tokenizer() -> Tokenizer:
    return Tokenizer(49408, 49407, 49407)


def t5_tokenizer(vocab: int = 32128) -> Tokenizer:
    return Tokenizer(vocab, 1, 0, 512)


def sd35(device: str, dtype: torch.dtype, tiny: bool) -> Made:
    """Stable Diffusion 3.5 medium: guidance doubles the batch."""
    heads, layers = (4, 2) if tiny else (24, 24)
    kind = transformers.CLIPTextModelWithProjection
    one = (64, 2, 4) if tiny else (768, 12, 12)
    two = (64, 2, 4) if tiny else (1280, 32, 20)
    joint = 128 if tiny else 4096  # at least both widths of CLIP

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
            pooled_projection_dim=one[0] + two[0],
            pos_embed_max_size=384,
            dual_attention_layers=tuple(range(min(13, layers))),
            qk_norm="rms_norm",
        )

    parts = {
        "transformer": on_device(transformer, device, dtype),
        "text_encoder": on_device(clip(*one, "quick_gelu", kind), device, dtype),
        "text_encoder_2": on_device(clip(*two, "gelu", kind), device, dtype),
        "text_encoder_3": on_device(t5(tiny, width=joint), device, dtype),
        "vae": on_device(
            image_vae(tiny, scaling_factor=1.5305, shift_factor=0.0609), device, dtype
        ),
        "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        "tokenizer": clip_tokenizer(),
        "tokenizer_2": clip_tokenizer(),
        "tokenizer_3": t5_tokenizer(),
    }
    size = 64 if tiny else 1024
    arguments = {"guidance_scale": 7.0, "height": size, "width": size}
    return _made(diffusers.StableDiffusion3Pipeline(**parts), arguments)


def flux(device: str, dtype: torch.dtype, tiny: bool) -> Made:
    """FLUX.1 dev: guidance is an input of the transformer, which runs once a step."""
    heads, double, single = (2, 1, 2) if tiny else (24, 19, 38)
    one = (64, 2, 4) if tiny else (768, 12, 12)

    def transformer() -> Any:
        return diffusers.FluxTransformer2DModel(
            patch_size=1,
            in_channels=64,
            num_layers=double,
            num_single_layers=single,
            attention_head_dim=128,
            num_attention_heads=heads,
            joint_attention_dim=64 if tiny else 4096,
            pooled_projection_dim=one[0],
            guidance_embeds=True,
            axes_dims_rope=(16, 56, 56),
        )

    kind = transformers.CLIPTextModel
    parts = {
        "transformer": on_device(transformer, device, dtype),
        "text_encoder": on_device(clip(*one, "quick_gelu", kind), device, dtype),
        "text_encoder_2": on_device(t5(tiny), device, dtype),
        "vae": on_device(
            image_vae(tiny, scaling_factor=0.3611, shift_factor=0.1159), device, dtype
        ),
        "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(
            shift=3.0, use_dynamic_shifting=True
        ),
        "tokenizer": clip_tokenizer(),
        "tokenizer_2": t5_tokenizer(),
    }
    size = 64 if tiny else 1024
    arguments = {"guidance_scale": 3.5, "height": size, "width": size}
    return _made(diffusers.FluxPipeline(**parts), arguments)


def wan(device: str, dtype: torch.dtype, tiny: bool) -> Made:
    """A video transformer of Wan 2.1's smaller shape: guidance is a second call each step."""
    heads, layers = (2, 2) if tiny else (12, 30)

    def transformer() -> Any:
        return diffusers.WanTransformer3DModel(
            patch_size=(1, 2, 2),
            num_attention_heads=heads,
            attention_head_dim=128,
            in_channels=16,
            out_channels=16,
            text_dim=64 if tiny else 4096,
            freq_dim=256,
            ffn_dim=256 if tiny else 8960,
            num_layers=layers,
            cross_attn_norm=True,
            qk_norm="rms_norm_across_heads",
            rope_max_seq_len=1024,
        )

    vae = {"base_dim": 8} if tiny else {}
    parts = {
        "transformer": on_device(transformer, device, dtype),
        "text_encoder": on_device(t5(tiny, "UMT5"), device, dtype),
        "vae": on_device(lambda: diffusers.AutoencoderKLWan(**vae), device, dtype),
        "scheduler": diffusers.UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
        "tokenizer": t5_tokenizer(256384),
    }
    arguments = {"guidance_scale": 5.0, "height": 480, "width": 832, "num_frames": 33}
    if tiny:
        arguments |= {"height": 32, "width": 32, "num_frames": 5}
    return _made(diffusers.WanPipeline(**parts), {**arguments, "output_type": "np"})


def _made(pipeline: Any, arguments: Mapping[str, Any]) -> Made:
    pipeline.set_progress_bar_config(disable=True)
    return Made(pipeline, {"prompt": PROMPT, "num_inference_steps": 4, **arguments})


PIPELINES: dict[str, Callable[[str, torch.dtype, bool], Made]] = {
    "sd35": sd35,
    "flux": flux,
    "wan": wan,
}
