"""A denoising loop written by hand: guidance by doubled latents, no pipeline object."""

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel, UniPCMultistepScheduler
from transformers import CLIPTextConfig, CLIPTextModel

torch.manual_seed(0)
text_encoder = CLIPTextModel(
    CLIPTextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=16,
        bos_token_id=0,
        eos_token_id=1,
    )
).eval()
unet = UNet2DConditionModel(
    sample_size=8,
    in_channels=4,
    out_channels=4,
    layers_per_block=1,
    block_out_channels=(32, 64),
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    cross_attention_dim=32,
    norm_num_groups=32,
    attention_head_dim=8,
).eval()
vae = AutoencoderKL(
    block_out_channels=(32,),
    norm_num_groups=32,
    latent_channels=4,
    down_block_types=("DownEncoderBlock2D",),
    up_block_types=("UpDecoderBlock2D",),
).eval()
scheduler = UniPCMultistepScheduler()

with torch.no_grad():
    prompt = text_encoder(torch.arange(16)[None] % 60 + 2)[0]
    empty = text_encoder(torch.ones(1, 16, dtype=torch.long))[0]
    embeddings = torch.cat([empty, prompt])
    latents = torch.randn(1, 4, 8, 8, generator=torch.manual_seed(1))
    scheduler.set_timesteps(5)
    for t in scheduler.timesteps:
        doubled = scheduler.scale_model_input(torch.cat([latents] * 2), timestep=t)
        noise = unet(doubled, t, encoder_hidden_states=embeddings).sample
        unconditional, conditional = noise.chunk(2)
        guided = unconditional + 7.5 * (conditional - unconditional)
        latents = scheduler.step(guided, t, latents).prev_sample
    image = vae.decode(latents).sample
print("checksum", round(float(image.double().sum()), 6))
