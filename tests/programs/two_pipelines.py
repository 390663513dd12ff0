"""A base and a refiner with models of their own, and a third pipeline with the base's model; what
a request loads anew has the names of what it replaces. Prints checksums."""

import torch
from diffusers import DDIMPipeline, DDIMScheduler, DDPMPipeline, DDPMScheduler, UNet2DModel


def model(seed):
    torch.manual_seed(seed)
    return UNet2DModel(
        sample_size=8,
        block_out_channels=(32,),
        layers_per_block=1,
        down_block_types=("DownBlock2D",),
        up_block_types=("UpBlock2D",),
    ).eval()


def run(pipe, steps):
    pipe.set_progress_bar_config(disable=True)
    images = pipe(
        num_inference_steps=steps,
        generator=torch.Generator().manual_seed(0),
        output_type="np",
    ).images
    print(type(pipe).__name__, round(float(images.sum()), 4))


base = DDPMPipeline(model(0), DDPMScheduler())
refiner = DDPMPipeline(model(1), DDPMScheduler())
preview = DDIMPipeline(base.unet, DDIMScheduler())
run(base, 3)
run(refiner, 2)
run(preview, 1)
run(base, 3)
run(refiner, 2)


def request():
    run(DDIMPipeline(model(2), DDIMScheduler()), 1)


request()
request()
