"""A tiny LLaVA of random weights: features of an image by themselves, then an answer to it; a
tiled VAE; an encoder-decoder that generates. Prints what came out."""

import torch
from diffusers import AutoencoderKL
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

torch.manual_seed(0)
torch.set_num_threads(1)
vision = CLIPVisionConfig(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    image_size=32,
    patch_size=8,
)
text = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
)
llava = LlavaForConditionalGeneration(
    LlavaConfig(vision_config=vision, text_config=text, image_token_id=63, image_seq_length=16)
).eval()
vae = AutoencoderKL(
    block_out_channels=(8, 8),
    down_block_types=("DownEncoderBlock2D",) * 2,
    up_block_types=("UpDecoderBlock2D",) * 2,
    norm_num_groups=4,
    latent_channels=4,
    sample_size=16,
).eval()
vae.enable_tiling()
t5 = T5ForConditionalGeneration(
    T5Config(
        vocab_size=64,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=63,
    )
).eval()

pixels = torch.rand(1, 3, 32, 32)
ids = torch.tensor([[1, *[63] * 16, 5, 6]])
with torch.no_grad():
    features = llava.get_image_features(pixel_values=pixels, vision_feature_layer=-2)
    answer = llava.generate(
        input_ids=ids, pixel_values=pixels, max_new_tokens=4, do_sample=False, eos_token_id=None
    )
    latents = vae.encode(pixels).latent_dist.mode()
    image = vae.decode(latents).sample
    sentence = t5.generate(input_ids=ids % 60, max_new_tokens=3, do_sample=False)
print(answer[0, -4:].tolist(), tuple(image.shape), sentence.tolist())
