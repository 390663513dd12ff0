"""What FLUX and Qwen-Image share: packed latents, and guidance by a second run of the denoiser."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from profiler.pipelines.onnx_pipeline import OnnxPipeline, StepCallback
from profiler.pipelines.onnx_submodule import Array
from profiler.pipelines.packed import even_sigmas
from profiler.pipelines.prompts import as_prompts
from profiler.pipelines.sizes import PackedSizes

__all__ = ["PackedPipeline"]


class PackedPipeline(OnnxPipeline):
    """Text to image on tokens of latents. With a negative prompt and a `true_cfg_scale` above 1 the
    denoiser runs twice a step."""

    sizes: PackedSizes
    encode_prompt: Callable[..., Any]
    """Embeddings of prompts, for a number of images each and of so many tokens at most."""
    apply_guidance: Callable[[Array, Array, float], Array]
    """Weighs the predictions for the prompt and for the negative prompt by `true_cfg_scale`."""

    def _embeddings(
        self,
        prompts: list[str],
        negative_prompt: str | Sequence[str] | None,
        true_cfg_scale: float,
        images: int,
        length: int,
    ) -> list[Any]:
        """Embeddings of the prompts and, where they count, of the negative prompts."""
        found = [self.encode_prompt(prompts, images, length)]
        if negative_prompt is not None and true_cfg_scale > 1:
            negatives = as_prompts(negative_prompt, "negative_prompt", batch=len(prompts))
            found.append(self.encode_prompt(negatives, images, length))
        return found

    def _sample(
        self,
        latents: Array,
        steps: int,
        embeddings: list[Any],
        predict: Callable[[Array, Any, np.float32], Array],
        true_cfg_scale: float,
        callback: StepCallback | None,
    ) -> Array:
        """Latents after all steps. `predict` says what the denoiser predicts of latents, embeddings
        and timestep; it is asked for each of `embeddings`, of the prompt first."""
        mu = self.scheduler.mu(latents.shape[1])
        self.scheduler.set_timesteps(steps, mu=mu, sigmas=even_sigmas(steps))

        def guided(latents: Array, timestep: np.float32) -> Array:
            noise_pred, *negative = (predict(latents, given, timestep) for given in embeddings)
            if not negative:
                return noise_pred
            return self.apply_guidance(noise_pred, negative[0], true_cfg_scale)

        return self._denoise(latents, guided, callback)
