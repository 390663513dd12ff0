"""Stable Diffusion 3 text-to-image on ONNX Runtime and NumPy alone.

The pipeline has the shape of diffusers' `StableDiffusion3Pipeline` (same attributes, same order
of calls), so that whatever wraps that one can wrap this one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from profiler.errors import InputError
from profiler.pipelines.devices import Placement, ProviderSpec
from profiler.pipelines.image import ImageProcessor
from profiler.pipelines.loading import Components, load_components
from profiler.pipelines.parts import Array, OnnxPart, pick
from profiler.pipelines.prompts import (
    PromptEmbeddings,
    as_prompts,
    clip_embeddings,
    join_embeddings,
    t5_embeddings,
)

__all__ = ["PipelineOutput", "StableDiffusion3Pipeline", "StepCallback"]

StepCallback = Callable[
    ["StableDiffusion3Pipeline", int, float, dict[str, Array]], Mapping[str, Array] | None
]
"""Called after each step with pipeline, step, timestep and {"latents": …}; may return new ones."""


@dataclass(frozen=True)
class PipelineOutput:
    """What a run made.

    `images` is a list of PIL images (`pil`), float32 [batch, height, width, 3] from 0 to 1
    (`np`), or float32 latents [batch, 16, height/8, width/8] (`latent`).
    """

    images: list[Image.Image] | NDArray[np.float32]


class StableDiffusion3Pipeline:
    """Text to image. Make one with `from_folder`; use it from one thread at a time."""

    def __init__(self, components: Components) -> None:
        """Take loaded components."""
        self.tokenizer = components.tokenizer
        self.tokenizer_2 = components.tokenizer_2
        self.tokenizer_3 = components.tokenizer_3
        self.text_encoder = components.text_encoder
        self.text_encoder_2 = components.text_encoder_2
        self.text_encoder_3 = components.text_encoder_3
        self.transformer = components.transformer
        self.vae = components.vae
        self.scheduler = components.scheduler
        self.image_processor = ImageProcessor()
        self.placement: Placement = components.placement
        self.folder: Path = components.folder
        self.sizes = components.sizes
        self._guidance_scale = 1.0

    @classmethod
    def from_folder(
        cls,
        path: Path | str,
        devices: Mapping[str, str] | None = None,
        providers: Sequence[ProviderSpec] | None = None,
    ) -> "StableDiffusion3Pipeline":
        """Load a folder in the diffusers/optimum ONNX layout; sessions open on first use.

        `devices` maps submodules to `kind:index`. `providers` are the ONNX Runtime providers, in
        order, for submodules that `devices` does not name (default: the CPU, `cpu:0`). Raises
        `InputError` for a folder, device or provider that cannot be used.
        """
        return cls(load_components(path, devices or {}, providers))

    @property
    def name_or_path(self) -> str:
        """The name of the model folder, as diffusers calls it."""
        return self.folder.resolve().name

    @property
    def parts(self) -> dict[str, OnnxPart]:
        """Submodule name → part, in the order in which a run calls them; `vae` is its decoder."""
        named = {
            "text_encoder": self.text_encoder,
            "text_encoder_2": self.text_encoder_2,
            "text_encoder_3": self.text_encoder_3,
            "transformer": self.transformer,
            "vae": self.vae.decoder,
        }
        return {name: part for name, part in named.items() if part is not None}

    @property
    def components(self) -> dict[str, object]:
        """Component name → object, as diffusers has it: parts, VAE, tokenizers, scheduler."""
        return {
            **self.parts,
            "vae": self.vae,
            "tokenizer": self.tokenizer,
            "tokenizer_2": self.tokenizer_2,
            "tokenizer_3": self.tokenizer_3,
            "scheduler": self.scheduler,
        }

    @property
    def guidance_scale(self) -> float:
        """The guidance scale of the present or last run."""
        return self._guidance_scale

    @property
    def do_classifier_free_guidance(self) -> bool:
        """Whether the present or last run weighs prompt against negative prompt."""
        return self._guidance_scale > 1

    def __call__(  # noqa: PLR0913 - the parameters of diffusers' pipeline
        self,
        prompt: str | Sequence[str],
        negative_prompt: str | Sequence[str] = "",
        num_inference_steps: int = 28,
        guidance_scale: float = 7.0,
        height: int | None = None,
        width: int | None = None,
        *,
        seed: int | None = None,
        generator: np.random.Generator | None = None,
        latents: Array | None = None,
        max_sequence_length: int = 256,
        num_images_per_prompt: int = 1,
        callback_on_step_end: StepCallback | None = None,
        output_type: str = "pil",
    ) -> PipelineOutput:
        """Make images from prompts.

        `height` and `width` are pixels (default: the model's). Noise comes from `latents`, or
        `generator`, or `seed`, or chance; NumPy's noise differs from torch's. A guidance scale of
        1 or less does without the negative prompt. Raises `InputError` for arguments that do not
        fit the model.
        """
        _check_output(output_type, num_images_per_prompt)
        if not math.isfinite(guidance_scale):
            raise InputError(f"guidance_scale is {guidance_scale}; give a finite number")
        prompts = as_prompts(prompt, "prompt")
        height, width = self.sizes.image_size(height, width)
        self._guidance_scale = guidance_scale
        embeddings = self.encode_prompt(
            prompts,
            negative_prompt,
            num_images_per_prompt=num_images_per_prompt,
            do_classifier_free_guidance=self.do_classifier_free_guidance,
            max_sequence_length=max_sequence_length,
        )
        latents = self.prepare_latents(
            len(prompts) * num_images_per_prompt,
            height,
            width,
            generator=_generator(seed, generator),
            latents=latents,
        )
        tokens = self.sizes.image_tokens(height, width)
        mu = self.scheduler.mu(tokens) if self.scheduler.use_dynamic_shifting else None
        self.scheduler.set_timesteps(num_inference_steps, mu=mu)
        latents = self._denoise(latents, embeddings, callback_on_step_end)
        return PipelineOutput(self._decode(latents, output_type))

    def encode_prompt(
        self,
        prompt: str | Sequence[str],
        negative_prompt: str | Sequence[str] = "",
        *,
        num_images_per_prompt: int = 1,
        do_classifier_free_guidance: bool = True,
        max_sequence_length: int = 256,
    ) -> PromptEmbeddings:
        """Run the encoders: 1, 2, 3 on the prompts, then 1, 2, 3 on the negative prompts.

        Embeddings are float32 [batch * images, 77 + max_sequence_length, T5 width]; pooled ones
        [batch * images, both CLIPs' projections]. Without guidance the negative ones are None.
        """
        if not 3 <= max_sequence_length <= 512:
            raise InputError(f"max_sequence_length is {max_sequence_length}; use 3 to 512")
        prompts = as_prompts(prompt, "prompt")
        negatives = as_prompts(negative_prompt, "negative_prompt", batch=len(prompts))
        images = num_images_per_prompt
        embeds, pooled = self._encode(prompts, images, max_sequence_length)
        if not do_classifier_free_guidance:
            return PromptEmbeddings(embeds, None, pooled, None)
        negative_embeds, negative_pooled = self._encode(negatives, images, max_sequence_length)
        return PromptEmbeddings(embeds, negative_embeds, pooled, negative_pooled)

    def _encode(self, texts: list[str], images: int, t5_length: int) -> tuple[Array, Array]:
        """Run the three encoders on `texts` and repeat the result for each image of a text."""
        length = self.tokenizer.model_max_length
        first, first_pooled = clip_embeddings(self.text_encoder, self.tokenizer(texts, length))
        second, second_pooled = clip_embeddings(
            self.text_encoder_2, self.tokenizer_2(texts, length)
        )
        if self.text_encoder_3 is None or self.tokenizer_3 is None:
            third: Array = np.zeros((len(texts), t5_length, self.sizes.context_width), np.float32)
        else:
            third = t5_embeddings(self.text_encoder_3, self.tokenizer_3(texts, t5_length))
        pooled = np.concatenate([first_pooled, second_pooled], axis=-1).astype(np.float32)
        joined = join_embeddings(first, second, third)
        return np.repeat(joined, images, axis=0), np.repeat(pooled, images, axis=0)

    def prepare_latents(
        self,
        batch_size: int,
        height: int,
        width: int,
        *,
        generator: np.random.Generator | None = None,
        latents: Array | None = None,
    ) -> NDArray[np.float32]:
        """Return float32 latents [batch_size, channels, height/8, width/8]: given, or fresh noise.

        Raises `InputError` if given latents have another shape.
        """
        shape = self.sizes.latent_shape(batch_size, height, width)
        if latents is None:
            source = generator if generator is not None else np.random.default_rng()
            return source.standard_normal(shape, dtype=np.float32)
        if latents.shape != shape:
            raise InputError(
                f"the given latents have shape {latents.shape}; this run needs {shape}"
            )
        return np.asarray(latents, dtype=np.float32)

    def _denoise(
        self, latents: Array, embeddings: PromptEmbeddings, callback: StepCallback | None
    ) -> NDArray[np.float32]:
        """Run the transformer and the scheduler over all timesteps."""
        context, pooled = embeddings.prompt_embeds, embeddings.pooled_prompt_embeds
        if self.do_classifier_free_guidance:
            context = _stacked(embeddings.negative_prompt_embeds, context)
            pooled = _stacked(embeddings.negative_pooled_prompt_embeds, pooled)
        for step, timestep in enumerate(self.scheduler.timesteps):
            batch = np.tile(latents, (len(context) // len(latents), 1, 1, 1))
            outputs = self.transformer(
                hidden_states=batch,
                encoder_hidden_states=context,
                pooled_projections=pooled,
                timestep=np.full(len(batch), timestep, dtype=np.float32),
            )
            noise_pred = pick(outputs, "out_hidden_states", "out_sample", "sample")
            if self.do_classifier_free_guidance:
                noise_pred = self.apply_guidance(noise_pred, self._guidance_scale)
            latents = self.scheduler.step(noise_pred, timestep, latents)
            if callback is not None:
                changed = callback(self, step, float(timestep), {"latents": latents}) or {}
                latents = changed.get("latents", latents)
        return latents

    def _decode(
        self, latents: NDArray[np.float32], output_type: str
    ) -> list[Image.Image] | NDArray[np.float32]:
        """Turn the last latents into what the caller asked for."""
        if output_type == "latent":
            return latents
        pixels = self.vae.decode(latents / self.sizes.scaling_factor + self.sizes.shift_factor)
        return self.image_processor.postprocess(pixels, output_type)

    def apply_guidance(self, noise_pred: Array, scale: float) -> NDArray[np.float32]:
        """Weigh a stacked prediction [2 * batch, …] (negative half first): float32 [batch, …].

        The result is `negative + scale * (positive - negative)`.
        """
        negative, positive = np.split(noise_pred.astype(np.float32), 2)
        guided: NDArray[np.float32] = negative + np.float32(scale) * (positive - negative)
        return guided


def _stacked(negative: Array | None, positive: Array) -> Array:
    """Return the negative half before the positive one, along the batch."""
    assert negative is not None
    return np.concatenate([negative, positive], axis=0)


def _check_output(output_type: str, images: int) -> None:
    """Refuse an unknown kind of output and a number of images below one."""
    if output_type not in ("pil", "np", "latent"):
        raise InputError(f"{output_type!r} is not an output type; use pil, np or latent")
    if images < 1:
        raise InputError(f"num_images_per_prompt is {images}; give 1 or more")


def _generator(
    seed: int | None, generator: np.random.Generator | None
) -> np.random.Generator | None:
    """Return the source of noise that the caller asked for, if any."""
    if seed is not None and generator is not None:
        raise InputError("both seed and generator are given; keep one")
    if seed is not None and seed < 0:
        raise InputError(f"the seed is {seed}; use 0 or more")
    return np.random.default_rng(seed) if seed is not None else generator
