"""Stable Diffusion 3 text-to-image on ONNX Runtime and NumPy alone."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from profiler.errors import InputError, needing
from profiler.pipelines.model_folder import PatchedSizes
from profiler.pipelines.pipeline import (
    POOLED_NAMES,
    Array,
    Components,
    OnnxPart,
    OnnxPipeline,
    PipelineOutput,
    PromptEmbeddings,
    StepCallback,
    check_request,
    latents_of,
    noise_source,
    pick,
    t5_embeddings,
)
from profiler.pipelines.tokenizer import as_prompts, clip_tokenizer, t5_tokenizer

with needing("run", "profiler.pipelines"):
    from PIL import Image


class StableDiffusion3Pipeline(OnnxPipeline):
    """Text to image, as diffusers' `StableDiffusion3Pipeline`; T5 may be absent."""

    CLASS = "StableDiffusion3Pipeline"
    SUBMODULES = ("text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae")
    OPTIONAL = frozenset({"text_encoder_3"})
    sizes: PatchedSizes

    def __init__(self, components: Components) -> None:
        """Take loaded components."""
        super().__init__(components)
        folder, parts = components.folder, components.parts
        self.text_encoder: OnnxPart = parts["text_encoder"]
        self.text_encoder_2: OnnxPart = parts["text_encoder_2"]
        self.text_encoder_3: OnnxPart | None = parts.get("text_encoder_3")
        self.tokenizer = clip_tokenizer(folder.path / "tokenizer")
        self.tokenizer_2 = clip_tokenizer(folder.path / "tokenizer_2")
        with_t5 = self.text_encoder_3 is not None
        self.tokenizer_3 = t5_tokenizer(folder.path / "tokenizer_3") if with_t5 else None
        self.sizes = PatchedSizes.read(folder)
        self._guidance_scale = 1.0

    def guidance_arguments(
        self, scale: float | None, negative_prompt: str | None
    ) -> dict[str, object]:
        """A guidance scale of 7 and an empty negative prompt, if not given."""
        return {
            "guidance_scale": 7.0 if scale is None else scale,
            "negative_prompt": negative_prompt or "",
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
        check_request(output_type, num_images_per_prompt, guidance_scale=guidance_scale)
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
            generator=noise_source(seed, generator),
            latents=latents,
        )
        tokens = self.sizes.image_tokens(height, width)
        mu = self.scheduler.mu(tokens) if self.scheduler.use_dynamic_shifting else None
        self.scheduler.set_timesteps(num_inference_steps, mu=mu)
        context, pooled = embeddings.prompt_embeds, embeddings.pooled_prompt_embeds
        if self.do_classifier_free_guidance:
            context = _stacked(embeddings.negative_prompt_embeds, context)
            pooled = _stacked(embeddings.negative_pooled_prompt_embeds, pooled)
        latents = self._denoise(
            latents,
            lambda latents, timestep: self._predict(latents, context, pooled, timestep),
            callback_on_step_end,
        )
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
        return latents_of(self.sizes.latent_shape(batch_size, height, width), generator, latents)

    def _predict(
        self, latents: Array, context: Array, pooled: Array, timestep: np.float32
    ) -> Array:
        """The denoiser's prediction, guided if both branches are stacked."""
        batch = np.tile(latents, (len(context) // len(latents), 1, 1, 1))
        outputs = self.transformer(
            hidden_states=batch,
            encoder_hidden_states=context,
            pooled_projections=pooled,
            timestep=np.full(len(batch), timestep, dtype=np.float32),
        )
        noise_pred = pick(outputs, "out_hidden_states", "out_sample", "sample")
        if self.do_classifier_free_guidance:
            return self.apply_guidance(noise_pred, self._guidance_scale)
        return noise_pred

    def _decode(
        self, latents: NDArray[np.float32], output_type: str
    ) -> list[Image.Image] | NDArray[np.float32]:
        """Decode the last latents to the requested kind of output."""
        if output_type == "latent":
            return latents
        pixels = self.vae.decode(latents / self.sizes.scaling_factor + self.sizes.shift_factor)
        return self.image_processor.postprocess(pixels, output_type)

    def apply_guidance(self, noise_pred: Array, scale: float) -> NDArray[np.float32]:
        """Weigh a stacked prediction [2 * batch, …] (negative half first): float32 [batch, …].

        The result is `negative + scale * (positive - negative)`.
        """
        negative, positive = np.split(noise_pred.astype(np.float32), 2)
        return negative + np.float32(scale) * (positive - negative)


def _stacked(negative: Array | None, positive: Array) -> Array:
    """Return the negative half before the positive one, along the batch."""
    assert negative is not None
    return np.concatenate([negative, positive], axis=0)


# --- From prompts to the embeddings that the transformer takes.
#
# CLIP's two embeddings stand side by side, padded with zeros to T5's width; T5's follow as further
# tokens. Shapes and order are those of diffusers' `StableDiffusion3Pipeline.encode_prompt`.


def clip_embeddings(part: OnnxPart, ids: Array) -> tuple[Array, Array]:
    """Run a CLIP text encoder on ids [batch, 77].

    Returns the hidden states before the last layer [batch, 77, width] and the pooled projection
    [batch, projection]. Raises `InputError` if the export lacks either.
    """
    outputs = part(input_ids=ids)
    pooled = next((outputs[name] for name in POOLED_NAMES if name in outputs), None)
    hidden = _penultimate(outputs, part.config.get("num_hidden_layers"))
    if pooled is None or hidden is None:
        raise InputError(
            f"{part.name} ({part.model_path}) gives {', '.join(outputs)}; Stable Diffusion 3 "
            "needs text_embeds and hidden_states.N, so export it as "
            "CLIPTextModelWithProjection with output_hidden_states"
        )
    return hidden, pooled


def _penultimate(outputs: Mapping[str, Array], layers: object) -> Array | None:
    """Return the input of the last layer: hidden_states.N with N = layers - 1."""
    matches = ((re.fullmatch(r"hidden_states[._]?(\d+)", name), name) for name in outputs)
    numbered = {int(match[1]): outputs[name] for match, name in matches if match}
    if isinstance(layers, int):
        return numbered.get(layers - 1)
    # Without a config: the embeddings come first and the last layer's output last.
    return numbered[sorted(numbered)[-2]] if len(numbered) > 1 else None


def join_embeddings(first: Array, second: Array, third: Array) -> Array:
    """Join two CLIP embeddings and T5's into float32 [batch, 77 + T5 length, T5 width].

    Raises `InputError` if the CLIPs together are wider than T5.
    """
    clip = np.concatenate([first, second], axis=-1).astype(np.float32)
    missing = third.shape[-1] - clip.shape[-1]
    if missing < 0:
        raise InputError(
            f"the CLIP encoders are {clip.shape[-1]} wide together and T5 only "
            f"{third.shape[-1]}; the folder mixes parts of different models"
        )
    padded = np.pad(clip, [(0, 0), (0, 0), (0, missing)])
    return np.concatenate([padded, third.astype(np.float32)], axis=-2)
