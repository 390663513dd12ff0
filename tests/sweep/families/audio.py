"""Pipelines that make sound: AudioLDM 2, Stable Audio."""

from __future__ import annotations

from typing import Any

import diffusers
import transformers
import transformers.convert_slow_tokenizer

from tests.capture import tiny_diffusers as tiny
from tests.sweep import shared_components as parts
from tests.sweep.cases import Case


def _clap() -> Any:
    text = {
        "hidden_size": 8,
        "intermediate_size": 37,
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "vocab_size": 320,
        "projection_dim": 8,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 1,
        "max_position_embeddings": 600,
    }
    audio = {
        "spec_size": 8,
        "window_size": 4,
        "num_mel_bins": 8,
        "intermediate_size": 37,
        "depths": [1, 1],
        "num_attention_heads": [1, 1],
        "num_hidden_layers": 1,
        "hidden_size": 192,
        "projection_dim": 8,
        "patch_size": 2,
        "patch_stride": 2,
        "patch_embed_input_channels": 4,
    }
    config = transformers.ClapConfig(text_config=text, audio_config=audio, projection_dim=16)
    return transformers.ClapModel(config)


def _roberta_tokenizer() -> Any:
    marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    words = [*marks, *transformers.convert_slow_tokenizer.bytes_to_unicode().values()]
    vocab = {word: index for index, word in enumerate(words)}
    return transformers.RobertaTokenizer(vocab=vocab, merges=[], model_max_length=77)


def _vocoder() -> Any:
    return transformers.SpeechT5HifiGan(
        transformers.SpeechT5HifiGanConfig(
            model_in_dim=8,
            sampling_rate=16000,
            upsample_initial_channel=16,
            upsample_rates=[2, 2],
            upsample_kernel_sizes=[4, 4],
            resblock_kernel_sizes=[3, 7],
            resblock_dilation_sizes=[[1, 3, 5], [1, 3, 5]],
            normalize_before=False,
        )
    )


def _language_model() -> Any:
    found = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_embd=16, n_head=1, n_layer=1, vocab_size=320, n_positions=99, eos_token_id=None
        )
    )
    found.config.max_new_tokens = 4
    return found


def audioldm() -> dict[str, Any]:
    return {
        "unet": diffusers.AudioLDM2UNet2DConditionModel(
            block_out_channels=(8, 16),
            layers_per_block=1,
            norm_num_groups=8,
            sample_size=32,
            in_channels=4,
            out_channels=4,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=(8, 16),
        ),
        "scheduler": diffusers.DDIMScheduler(clip_sample=False, set_alpha_to_one=False),
        "vae": parts.vae(
            in_channels=1, out_channels=1, block_out_channels=(8, 16), norm_num_groups=8
        ),
        "text_encoder": _clap(),
        "text_encoder_2": tiny.t5(),
        "tokenizer": _roberta_tokenizer(),
        "tokenizer_2": tiny.t5_tokenizer(),
        "feature_extractor": transformers.ClapFeatureExtractor(feature_size=8, hop_length=7900),
        "language_model": _language_model(),
        "projection_model": diffusers.AudioLDM2ProjectionModel(
            text_encoder_dim=16, text_encoder_1_dim=32, langauge_model_dim=16
        ),
        "vocoder": _vocoder(),
    }


def stable_audio() -> dict[str, Any]:
    from diffusers.pipelines.stable_audio.modeling_stable_audio import StableAudioProjectionModel

    return {
        "transformer": diffusers.StableAudioDiTModel(
            sample_size=4,
            in_channels=3,
            num_layers=2,
            attention_head_dim=4,
            num_key_value_attention_heads=2,
            out_channels=3,
            cross_attention_dim=4,
            time_proj_dim=8,
            global_states_input_dim=8,
            cross_attention_input_dim=4,
        ),
        "scheduler": diffusers.EDMDPMSolverMultistepScheduler(
            solver_order=2,
            prediction_type="v_prediction",
            sigma_data=1.0,
            sigma_schedule="exponential",
        ),
        "vae": diffusers.AutoencoderOobleck(
            encoder_hidden_size=6,
            downsampling_ratios=[1, 2],
            decoder_channels=3,
            decoder_input_channels=3,
            audio_channels=2,
            channel_multiples=[2, 4],
            sampling_rate=4,
        ),
        "text_encoder": tiny.t5(),
        "tokenizer": tiny.t5_tokenizer(),
        "projection_model": StableAudioProjectionModel(
            text_encoder_dim=32, conditioning_dim=4, min_value=0, max_value=32
        ),
    }


CASES = [
    Case(
        "AudioLDM2Pipeline",
        "audio",
        audioldm,
        {"audio_length_in_s": 0.01, "output_type": "np", "max_new_tokens": 4},
    ),
    Case("StableAudioPipeline", "audio", stable_audio),
]
