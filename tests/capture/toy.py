"""A toy pipeline of diffusers' shape whose parts take as long as a hand-moved clock says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from profiler.capture import FakeClock

__all__ = ["ToyPipeline"]


class _Part:
    def __init__(self, clock: FakeClock, duration_ns: int, device: str = "cpu:0") -> None:
        self.clock, self.duration_ns, self.device = clock, duration_ns, device

    def __call__(self, **inputs: Any) -> Any:
        return self.forward(**inputs)

    def forward(self, **inputs: Any) -> Any:
        self.clock.advance(self.duration_ns)
        return inputs


class _Vae:
    def __init__(self, decoder: _Part) -> None:
        self.decoder = decoder

    def decode(self, latents: Any) -> Any:
        return self.decoder(latent_sample=latents)


class _Scheduler:
    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.step_index = clock, None

    def set_timesteps(self, steps: int) -> None:
        self.step_index = None

    def step(self, latents: Any) -> Any:
        self.clock.advance(10)
        self.step_index = (self.step_index or 0) + 1
        return latents


class ToyPipeline:
    """Encoders take 100, 200, 300 ns, the transformer 1000, the VAE 500, a tokenizer 5, a
    scheduler step 10; between them the pipeline itself takes 7."""

    def __init__(self, clock: FakeClock, *, guidance: bool = True, fail_at: int = -1) -> None:
        self.clock, self.do_classifier_free_guidance, self.fail_at = clock, guidance, fail_at
        self.text_encoder = _Part(clock, 100)
        self.text_encoder_2 = _Part(clock, 200)
        self.text_encoder_3 = _Part(clock, 300, "cpu:1")
        self.transformer = _Part(clock, 1000)
        self.vae = _Vae(_Part(clock, 500))
        self.scheduler = _Scheduler(clock)
        self.tokenizer = _Tokenizer(clock)
        self.image_processor = SimpleNamespace(postprocess=lambda image: image)

    def encode_prompt(self) -> None:
        for _ in range(2 if self.do_classifier_free_guidance else 1):
            ids = self.tokenizer("a cat")
            for encoder in (self.text_encoder, self.text_encoder_2, self.text_encoder_3):
                encoder(input_ids=ids)

    def __call__(self, num_inference_steps: int = 2) -> Any:
        self.encode_prompt()
        self.clock.advance(7)
        self.scheduler.set_timesteps(num_inference_steps)
        latents = np.zeros((2, 16, 4, 4), dtype=np.float32)
        for step in range(num_inference_steps):
            if step == self.fail_at:
                raise RuntimeError("out of memory")
            self.transformer(hidden_states=latents)
            latents = self.scheduler.step(latents)
        image = self.vae.decode(latents)
        return self.image_processor.postprocess(image)


class _Tokenizer:
    model_max_length = 77

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def __call__(self, text: str) -> Any:
        self.clock.advance(5)
        return np.zeros((1, 77), dtype=np.int64)
