"""FLUX.1 text-to-image on ONNX Runtime and NumPy alone."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler.errors import InputError
from profiler.pipelines.model_folder import PackedSizes, block_scale
from profiler.pipelines.pipeline import (
    POOLED_NAMES,
    Array,
    Components,
    OnnxPart,
    OnnxPipeline,
    PipelineOutput,
    StepCallback,
    check_request,
    latents_of,
    noise_source,
    pick,
    t5_embeddings,
)
from profiler.pipelines.tokenizer import as_prompts, clip_tokenizer, t5_tokenizer

# --- Latents as tokens, a row per patch of 2 by 2, as FLUX and Qwen-Image take them.


def packed_noise(
    sizes: PackedSizes,
    batch: int,
    grid: tuple[int, int],
    generator: np.random.Generator | None,
    given: Array | None,
) -> NDArray[np.float32]:
    """Float32 latents [batch, rows * columns, channels * 4] for a grid of tokens: those that were
    given, or noise drawn as [batch, channels, 2 rows, 2 columns].

    Raises `InputError` if given latents have another shape.
    """
    (rows, columns), channels = grid, sizes.latent_channels
    if given is not None:
        return latents_of((batch, rows * columns, channels * 4), None, given)
    noise = latents_of((batch, channels, 2 * rows, 2 * columns), generator, None)
    patches = noise.reshape(batch, channels, rows, 2, columns, 2).transpose(0, 2, 4, 1, 3, 5)
    return patches.reshape(batch, rows * columns, channels * 4)


def unpack(latents: Array, grid: tuple[int, int]) -> Array:
    """Latents [batch, rows * columns, channels * 4] → [batch, channels, 2 rows, 2 columns]."""
    (rows, columns), (batch, _, width) = grid, latents.shape
    patches = latents.reshape(batch, rows, columns, width // 4, 2, 2).transpose(0, 3, 1, 4, 2, 5)
    return patches.reshape(batch, width // 4, 2 * rows, 2 * columns)


def even_sigmas(steps: int) -> NDArray[np.float64]:
    """Sigmas from 1 to 1 / steps, evenly: what these models are sampled on before the shift."""
    return np.linspace(1.0, 1 / max(steps, 1), max(steps, 0))


# --- What FLUX and Qwen-Image share: packed latents, and guidance by a second run of the denoiser.


class PackedPipeline(OnnxPipeline):
    """Text to image on tokens of latents. With a negative prompt and a `true_cfg_scale` above 1 the
    denoiser runs twice a step."""

    sizes: PackedSizes
    encode_prompt: Callable[..., Any]
    """Returns embeddings of prompts, for a number of images each and limited to a number of
    tokens."""
    apply_guidance: Callable[[Array, Array, float], Array]
    """Combines the predictions for the prompt and for the negative prompt by `true_cfg_scale`."""

    def _embeddings(
        self,
        prompts: list[str],
        negative_prompt: str | Sequence[str] | None,
        true_cfg_scale: float,
        images: int,
        length: int,
    ) -> list[Any]:
        """Embeddings of the prompts and, if they are used, of the negative prompts."""
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
        """Latents after all steps. `predict` returns the denoiser's prediction for latents,
        embeddings and timestep; it is called for each of `embeddings`, the prompt's first."""
        mu = self.scheduler.mu(latents.shape[1])
        self.scheduler.set_timesteps(steps, mu=mu, sigmas=even_sigmas(steps))

        def guided(latents: Array, timestep: np.float32) -> Array:
            noise_pred, *negative = (predict(latents, given, timestep) for given in embeddings)
            if not negative:
                return noise_pred
            return self.apply_guidance(noise_pred, negative[0], true_cfg_scale)

        return self._denoise(latents, guided, callback)


# --- FLUX.1.


class FluxEmbeddings(NamedTuple):
    """T5's `prompt_embeds` [batch, tokens, width], CLIP's `pooled_prompt_embeds` [batch, width] and
    the positions of the text's tokens, [tokens, 3], all 0; in diffusers' order."""

    prompt_embeds: Array
    pooled_prompt_embeds: Array
    text_ids: Array


class FluxPipeline(PackedPipeline):
    """Text to image, as diffusers' `FluxPipeline`: dev, distilled for guidance, and schnell."""

    CLASS = "FluxPipeline"
    SUBMODULES = ("text_encoder", "text_encoder_2", "transformer", "vae")

    def __init__(self, components: Components) -> None:
        """Take loaded components."""
        super().__init__(components)
        folder, parts = components.folder, components.parts
        self.text_encoder: OnnxPart = parts["text_encoder"]
        self.text_encoder_2: OnnxPart = parts["text_encoder_2"]
        self.tokenizer = clip_tokenizer(folder.path / "tokenizer")
        self.tokenizer_2 = t5_tokenizer(folder.path / "tokenizer_2")
        vae = folder.settings("vae_decoder")
        self.sizes = PackedSizes.read(folder, block_scale(vae))
        self._scaling, self._shift = vae.number("scaling_factor"), vae.number("shift_factor", 0.0)
        self._distilled = folder.settings("transformer").flag("guidance_embeds")
        self._guidance_scale = 3.5

    def guidance_arguments(
        self, scale: float | None, negative_prompt: str | None
    ) -> dict[str, object]:
        """A guidance scale of 3.5, if not given; refused by schnell, as negative prompts are by
        both."""
        if negative_prompt:
            raise InputError(
                "FLUX has its guidance distilled and takes no negative prompt: leave it out, or "
                "give true_cfg_scale from Python"
            )
        if self._distilled:
            return {"guidance_scale": 3.5 if scale is None else scale}
        if scale is not None:
            raise InputError("this FLUX (schnell) knows no guidance scale: leave it out")
        return {}

    @property
    def guidance_scale(self) -> float:
        """The guidance scale of the present or last run."""
        return self._guidance_scale

    def __call__(  # noqa: PLR0913 - the parameters of diffusers' pipeline
        self,
        prompt: str | Sequence[str],
        negative_prompt: str | Sequence[str] | None = None,
        num_inference_steps: int = 28,
        guidance_scale: float = 3.5,
        height: int | None = None,
        width: int | None = None,
        *,
        true_cfg_scale: float = 1.0,
        seed: int | None = None,
        generator: np.random.Generator | None = None,
        latents: Array | None = None,
        max_sequence_length: int = 512,
        num_images_per_prompt: int = 1,
        callback_on_step_end: StepCallback | None = None,
        output_type: str = "pil",
    ) -> PipelineOutput:
        """Make images from prompts.

        `height` and `width` are pixels (default: 1024). `guidance_scale` is an input of the
        distilled model; a `negative_prompt` counts with a `true_cfg_scale` above 1 alone, and the
        denoiser then runs twice a step. Noise comes from packed `latents`, or `generator`, or
        `seed`, or chance. Raises `InputError` for arguments that do not fit the model.
        """
        check_request(
            output_type,
            num_images_per_prompt,
            guidance_scale=guidance_scale,
            true_cfg_scale=true_cfg_scale,
        )
        prompts = as_prompts(prompt, "prompt")
        height, width = self.sizes.image_size(height, width)
        self._guidance_scale = guidance_scale
        images, length = num_images_per_prompt, max_sequence_length
        embeddings = self._embeddings(prompts, negative_prompt, true_cfg_scale, images, length)
        latents, positions = self.prepare_latents(
            len(prompts) * images,
            height,
            width,
            generator=noise_source(seed, generator),
            latents=latents,
        )
        latents = self._sample(
            latents,
            num_inference_steps,
            embeddings,
            lambda latents, given, timestep: self._predict(latents, given, positions, timestep),
            true_cfg_scale,
            callback_on_step_end,
        )
        if output_type == "latent":
            return PipelineOutput(latents)
        unpacked = unpack(latents, self.sizes.grid(height, width))
        pixels = self.vae.decode(unpacked / self._scaling + self._shift)
        return PipelineOutput(self.image_processor.postprocess(pixels, output_type))

    def encode_prompt(
        self,
        prompt: str | Sequence[str],
        num_images_per_prompt: int = 1,
        max_sequence_length: int = 512,
    ) -> FluxEmbeddings:
        """Run CLIP, then T5, on the prompts, and repeat the result for each image of a prompt."""
        if not 3 <= max_sequence_length <= 512:
            raise InputError(f"max_sequence_length is {max_sequence_length}; use 3 to 512")
        texts = as_prompts(prompt, "prompt")
        pooled = clip_pooled(
            self.text_encoder, self.tokenizer(texts, self.tokenizer.model_max_length)
        )
        embeds = t5_embeddings(self.text_encoder_2, self.tokenizer_2(texts, max_sequence_length))
        return FluxEmbeddings(
            np.repeat(embeds, num_images_per_prompt, axis=0),
            np.repeat(pooled, num_images_per_prompt, axis=0),
            np.zeros((embeds.shape[1], 3), np.float32),
        )

    def prepare_latents(
        self,
        batch_size: int,
        height: int,
        width: int,
        *,
        generator: np.random.Generator | None = None,
        latents: Array | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return float32 latents [batch_size, tokens, channels * 4], given or fresh noise, and the
        positions of their tokens, float32 [tokens, 3].

        Raises `InputError` if given latents have another shape.
        """
        grid = self.sizes.grid(height, width)
        noise = packed_noise(self.sizes, batch_size, grid, generator, latents)
        return noise, image_positions(*grid)

    def _predict(
        self, latents: Array, embeddings: FluxEmbeddings, positions: Array, timestep: np.float32
    ) -> Array:
        """The denoiser's prediction, [batch, tokens, channels * 4]."""
        batch = len(latents)
        inputs = {
            "hidden_states": latents,
            "encoder_hidden_states": embeddings.prompt_embeds,
            "pooled_projections": embeddings.pooled_prompt_embeds,
            "timestep": np.full(batch, timestep / np.float32(1000), np.float32),
            "img_ids": positions,
            "txt_ids": embeddings.text_ids,
        }
        if self._distilled:
            inputs["guidance"] = np.full(batch, self._guidance_scale, np.float32)
        return pick(self.transformer(**inputs), "out_hidden_states", "out_sample", "sample")

    def apply_guidance(
        self, noise_pred: Array, negative: Array, scale: float
    ) -> NDArray[np.float32]:
        """Weigh two predictions: `negative + scale * (noise_pred - negative)`, in float32."""
        low = negative.astype(np.float32)
        return low + np.float32(scale) * (noise_pred - low)


def clip_pooled(part: OnnxPart, ids: Array) -> Array:
    """Run a CLIP text encoder on ids [batch, 77]; returns its pooled output [batch, width]. Raises
    `InputError` if the export lacks it."""
    outputs = part(input_ids=ids)
    found = next((outputs[name] for name in reversed(POOLED_NAMES) if name in outputs), None)
    if found is None:
        raise InputError(
            f"{part.name} ({part.model_path}) gives {', '.join(outputs)}; FLUX needs "
            "pooler_output, so export it as CLIPTextModel"
        )
    return found


def image_positions(rows: int, columns: int) -> NDArray[np.float32]:
    """FLUX's `img_ids`, float32 [rows * columns, 3]: 0, row and column of each token."""
    found = np.zeros((rows, columns, 3), np.float32)
    found[..., 1] = np.arange(rows)[:, None]
    found[..., 2] = np.arange(columns)[None, :]
    return found.reshape(-1, 3)
