"""Further real diffusers pipelines with tiny random weights: what their components are called is
nothing that a list of ours would have."""

from __future__ import annotations

import diffusers
import torch
import transformers

from tests.capture import tiny_diffusers as tiny

__all__ = ["image_to_video", "kandinsky"]


def _vision(**config):
    sizes = {
        "hidden_size": 32,
        "projection_dim": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "image_size": 224,
        "intermediate_size": 37,
        "patch_size": 56,
    }
    return transformers.CLIPVisionModelWithProjection(
        transformers.CLIPVisionConfig(**(sizes | config))
    ).eval()


def _image_processor():
    return transformers.CLIPImageProcessor(crop_size=32, size=32)


def kandinsky():
    """Kandinsky 2.2, prior and decoder in one: a pipeline of pipelines with two loops."""
    torch.manual_seed(0)
    prior = diffusers.PriorTransformer(
        num_attention_heads=2, attention_head_dim=12, embedding_dim=32, num_layers=1
    )
    prior.clip_std = torch.nn.Parameter(torch.ones(prior.clip_std.shape))
    unet = diffusers.UNet2DConditionModel(
        in_channels=4,
        out_channels=8,
        addition_embed_type="image",
        down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
        up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
        mid_block_type="UNetMidBlock2DSimpleCrossAttn",
        block_out_channels=(32, 64),
        layers_per_block=1,
        encoder_hid_dim=32,
        encoder_hid_dim_type="image_proj",
        cross_attention_dim=32,
        attention_head_dim=4,
        resnet_time_scale_shift="scale_shift",
    )
    movq = diffusers.VQModel(
        block_out_channels=[32, 64],
        down_block_types=["DownEncoderBlock2D", "AttnDownEncoderBlock2D"],
        up_block_types=["AttnUpDecoderBlock2D", "UpDecoderBlock2D"],
        latent_channels=4,
        layers_per_block=1,
        norm_num_groups=8,
        norm_type="spatial",
        num_vq_embeddings=12,
        vq_embed_dim=4,
    )
    return tiny.quiet(
        diffusers.KandinskyV22CombinedPipeline(
            unet=unet.eval(),
            scheduler=diffusers.DDIMScheduler(clip_sample=False, prediction_type="epsilon"),
            movq=movq.eval(),
            prior_prior=prior.eval(),
            prior_image_encoder=_vision(),
            prior_text_encoder=tiny.clip(),
            prior_tokenizer=tiny.clip_tokenizer(),
            prior_scheduler=diffusers.UnCLIPScheduler(
                variance_type="fixed_small_log", prediction_type="sample", num_train_timesteps=1000
            ),
            prior_image_processor=_image_processor(),
        )
    )


def image_to_video():
    """Stable Video Diffusion: an image encoder, a VAE that decodes frames in chunks."""
    torch.manual_seed(0)
    unet = diffusers.UNetSpatioTemporalConditionModel(
        block_out_channels=(32, 64),
        layers_per_block=1,
        sample_size=32,
        in_channels=8,
        out_channels=4,
        down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
        up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
        cross_attention_dim=32,
        num_attention_heads=8,
        projection_class_embeddings_input_dim=96,
        addition_time_embed_dim=32,
    )
    vae = diffusers.AutoencoderKLTemporalDecoder(
        block_out_channels=[32, 64], down_block_types=["DownEncoderBlock2D"] * 2, latent_channels=4
    )
    return tiny.quiet(
        diffusers.StableVideoDiffusionPipeline(
            unet=unet.eval(),
            image_encoder=_vision(),
            scheduler=diffusers.EulerDiscreteScheduler(
                timestep_type="continuous",
                prediction_type="v_prediction",
                sigma_min=0.002,
                sigma_max=700.0,
                use_karras_sigmas=True,
            ),
            vae=vae.eval(),
            feature_extractor=_image_processor(),
        )
    )
