"""Stable Diffusion 1 and 2 and what is made of their parts."""

from __future__ import annotations

from typing import Any

import diffusers
import transformers

from tests.capture import tiny_diffusers as tiny
from tests.sweep import shared_components as parts
from tests.sweep.cases import variants


def components(*, channels: int = 4, **more: Any) -> dict[str, Any]:
    """`more`: of the further parts, what makes them of the UNet."""
    unet = parts.unet(in_channels=channels, cross_attention_dim=32)
    return {
        "unet": unet,
        "scheduler": diffusers.DDIMScheduler(clip_sample=False, set_alpha_to_one=False),
        "vae": parts.vae(),
        "text_encoder": tiny.clip(transformers.CLIPTextModel),
        "tokenizer": tiny.clip_tokenizer(),
        **{name: part(unet) for name, part in more.items()},
    }


def controlnet(unet: Any) -> Any:
    return diffusers.ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(4, 8))


def two_controlnets(unet: Any) -> Any:
    return [controlnet(unet), controlnet(unet)]


def _adapter(_: Any) -> Any:
    return diffusers.T2IAdapter(
        in_channels=3, channels=[4, 8], num_res_blocks=1, downscale_factor=2
    )


def _attending(_: Any) -> Any:
    return parts.unet(
        cross_attention_dim=32,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )


def _depth(_: Any) -> Any:
    config = transformers.DPTConfig(
        image_size=32,
        patch_size=16,
        hidden_size=32,
        num_hidden_layers=4,
        backbone_out_indices=(0, 1, 2, 3),
        num_attention_heads=4,
        intermediate_size=37,
        is_decoder=False,
        initializer_range=0.02,
        is_hybrid=False,
        neck_hidden_sizes=(8, 8, 8, 8),
        fusion_hidden_size=8,
        reassemble_factors=(4, 2, 1, 0.5),
    )
    return transformers.DPTForDepthEstimation(config)


def _depth_processor(_: Any) -> Any:
    return transformers.DPTImageProcessor(size={"height": 32, "width": 32})


def _vision(_: Any) -> Any:
    return parts.vision()


def _processor(_: Any) -> Any:
    return parts.image_processor()


def _motion(_: Any) -> Any:
    return diffusers.MotionAdapter(
        block_out_channels=(4, 8),
        motion_layers_per_block=1,
        motion_norm_num_groups=2,
        motion_num_attention_heads=2,
    )


def _upscaling(_: Any) -> Any:
    return diffusers.DDPMScheduler()


def _lcm(_: Any) -> Any:
    return diffusers.LCMScheduler(clip_sample=False, set_alpha_to_one=False)


def _euler(_: Any) -> Any:
    return diffusers.EulerDiscreteScheduler(prediction_type="sample")


def _guided(_: Any) -> Any:
    return parts.unet(cross_attention_dim=32, time_cond_proj_dim=8)


def _in_latents(_: Any) -> Any:
    return parts.unet(
        in_channels=8,
        cross_attention_dim=32,
        block_out_channels=(8, 8),
        time_cond_proj_dim=160,
        out_channels=5,
    )


def _class_labels(_: Any) -> Any:
    return parts.unet(
        in_channels=7,
        cross_attention_dim=32,
        num_class_embeds=350,
        only_cross_attention=(True, False),
    )


def _spatial(_: Any) -> Any:
    return diffusers.UNet3DConditionModel(
        block_out_channels=(4, 8),
        layers_per_block=1,
        sample_size=32,
        in_channels=4,
        out_channels=4,
        down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
        up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
        cross_attention_dim=32,
        attention_head_dim=4,
        norm_num_groups=2,
    )


OFFERED = {
    "image": parts.image(),
    "control_image": parts.image(),
    "mask_image": parts.mask(),
    "strength": 1.0,
    "num_frames": 4,
}
CONTROL: dict[str, Any] = {"controlnet": controlnet}
MOTION: dict[str, Any] = {"motion_adapter": _motion}
VIDEO = {"video": parts.video(4), "strength": 1.0}
CASES = variants(
    "stable_diffusion",
    components,
    OFFERED,
    {
        "StableDiffusionPipeline": {},
        "StableDiffusionImg2ImgPipeline": {"args": {"strength": 0.7}},
        "StableDiffusionInpaintPipeline": {"channels": 9},
        "StableDiffusionInstructPix2PixPipeline": {"channels": 8},
        "StableDiffusionControlNetPipeline": {
            "controlnet": two_controlnets,
            "args": {"image": [parts.image()] * 2},
        },
        "StableDiffusionControlNetImg2ImgPipeline": CONTROL,
        "StableDiffusionControlNetInpaintPipeline": CONTROL,
        "StableDiffusionPAGPipeline": {},
        "StableDiffusionPAGImg2ImgPipeline": {},
        "StableDiffusionPAGInpaintPipeline": {},
        "StableDiffusionControlNetPAGPipeline": CONTROL,
        "StableDiffusionControlNetPAGInpaintPipeline": CONTROL,
        "StableDiffusionAdapterPipeline": {"adapter": _adapter, "unet": _attending},
        "StableDiffusionDepth2ImgPipeline": {
            "channels": 5,
            "depth_estimator": _depth,
            "feature_extractor": _depth_processor,
            "args": {"image": parts.picture()},
        },
        "StableDiffusionImageVariationPipeline": {
            "image_encoder": _vision,
            "feature_extractor": _processor,
            "args": {"image": parts.picture()},
        },
        "StableDiffusionUpscalePipeline": {
            "unet": _class_labels,
            "low_res_scheduler": _upscaling,
        },
        "StableDiffusionLatentUpscalePipeline": {
            "unet": _in_latents,
            "scheduler": _euler,
        },
        "LatentConsistencyModelPipeline": {"unet": _guided, "scheduler": _lcm},
        "LatentConsistencyModelImg2ImgPipeline": {"unet": _guided, "scheduler": _lcm},
        "AnimateDiffPipeline": MOTION,
        "AnimateDiffPAGPipeline": MOTION,
        "AnimateDiffVideoToVideoPipeline": {**MOTION, "args": VIDEO},
        "AnimateDiffControlNetPipeline": {
            **MOTION,
            **CONTROL,
            "args": {"conditioning_frames": parts.video(4)},
        },
        "AnimateDiffVideoToVideoControlNetPipeline": {
            **MOTION,
            **CONTROL,
            "args": {**VIDEO, "conditioning_frames": parts.video(4)},
        },
        "TextToVideoSDPipeline": {"unet": _spatial},
        "VideoToVideoSDPipeline": {"unet": _spatial, "args": VIDEO},
        "MarigoldDepthPipeline": {"channels": 8, "args": {"processing_resolution": 0}},
    },
)
