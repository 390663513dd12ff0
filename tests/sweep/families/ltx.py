"""LTX-Video."""

from __future__ import annotations

from typing import Any

import diffusers

from tests.capture import tiny_diffusers as tiny
from tests.sweep import shared_components as parts
from tests.sweep.cases import Case, variants


def _vae() -> Any:
    found = diffusers.AutoencoderKLLTXVideo(
        in_channels=3,
        out_channels=3,
        latent_channels=8,
        block_out_channels=(8, 8, 8, 8),
        decoder_block_out_channels=(8, 8, 8, 8),
        layers_per_block=(1, 1, 1, 1, 1),
        decoder_layers_per_block=(1, 1, 1, 1, 1),
        spatio_temporal_scaling=(True, True, False, False),
        decoder_spatio_temporal_scaling=(True, True, False, False),
        decoder_inject_noise=(False,) * 5,
        upsample_residual=(False,) * 4,
        upsample_factor=(1,) * 4,
        timestep_conditioning=False,
        patch_size=1,
        patch_size_t=1,
        encoder_causal=True,
        decoder_causal=False,
    )
    found.use_framewise_encoding = found.use_framewise_decoding = False
    return found


def components() -> dict[str, Any]:
    return {
        "transformer": diffusers.LTXVideoTransformer3DModel(
            in_channels=8,
            out_channels=8,
            patch_size=1,
            patch_size_t=1,
            num_attention_heads=4,
            attention_head_dim=8,
            cross_attention_dim=32,
            num_layers=1,
            caption_channels=32,
        ),
        "vae": _vae(),
        "scheduler": tiny.flow_scheduler(),
        "text_encoder": tiny.t5(),
        "tokenizer": tiny.t5_tokenizer(),
    }


def _upsampler() -> dict[str, Any]:
    upsampler = diffusers.pipelines.ltx.modeling_latent_upsampler.LTXLatentUpsamplerModel(
        in_channels=8,
        mid_channels=32,
        num_blocks_per_stage=1,
        dims=3,
        spatial_upsample=True,
        temporal_upsample=False,
    )
    return {"vae": _vae(), "latent_upsampler": upsampler}


OFFERED = {"image": parts.picture(), "num_frames": 9, "max_sequence_length": 16}
CASES = [
    *variants(
        "ltx",
        components,
        OFFERED,
        {"LTXPipeline": {}, "LTXImageToVideoPipeline": {}, "LTXConditionPipeline": {}},
    ),
    Case("LTXLatentUpsamplePipeline", "ltx", _upsampler, {"video": parts.video(9)}),
    *variants(
        "ltx",
        components,
        {"num_frames": 9, "max_sequence_length": 16, "output": "videos"},
        {"LTXModularPipeline": {}},
    ),
]
