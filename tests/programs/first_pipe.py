"""Unconditional generation with a tiny DDPM; prints how long the first call took, in ns."""

import time

import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=8,
    block_out_channels=(32,),
    layers_per_block=1,
    down_block_types=("DownBlock2D",),
    up_block_types=("UpBlock2D",),
)
pipe = DDPMPipeline(unet, DDPMScheduler())
pipe.set_progress_bar_config(disable=True)
begin = time.perf_counter_ns()
pipe(num_inference_steps=2, output_type="np")
print(time.perf_counter_ns() - begin)
