"""Qwen-Image text-to-image on ONNX Runtime and NumPy alone, from what `graph export` writes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler.errors import InputError
from profiler.pipelines.flux import PackedPipeline, packed_noise, unpack
from profiler.pipelines.model_folder import PackedSizes, Settings
from profiler.pipelines.model_layouts import position_ids
from profiler.pipelines.pipeline import (
    Array,
    Components,
    OnnxPart,
    PipelineOutput,
    StepCallback,
    check_request,
    noise_source,
    pick,
)
from profiler.pipelines.tokenizer import as_prompts, qwen_tokenizer

_TEMPLATE = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "
    "quantity, text, spatial relationships of the objects and background:<|im_end|>\n"
    "<|im_start|>user\n"
    "{}<|im_end|>\n<|im_start|>assistant\n"
)
_TEMPLATE_TOKENS = 34  # tokens of the template before the prompt, whose states are dropped
_MOST_TOKENS = 1024  # of a prompt


class QwenEmbeddings(NamedTuple):
    """States [batch, tokens, width], 0 after the end of a text, and a bool mask of its tokens."""

    prompt_embeds: Array
    prompt_embeds_mask: Array


class QwenImagePipeline(PackedPipeline):
    """Text to image, as diffusers' `QwenImagePipeline`."""

    CLASS = "QwenImagePipeline"
    SUBMODULES = ("text_encoder", "transformer", "vae")

    def __init__(self, components: Components) -> None:
        """Take loaded components."""
        super().__init__(components)
        folder = components.folder
        self.text_encoder: OnnxPart = components.parts["text_encoder"]
        self.tokenizer = qwen_tokenizer(folder.path / "tokenizer")
        vae = folder.settings("vae_decoder")
        halvings = vae.values.get("temperal_downsample")
        if not isinstance(halvings, list):
            raise InputError(f"temperal_downsample in {vae.source} must be a list")
        self.sizes = PackedSizes.read(folder, 2 ** len(halvings))
        self._mean, self._std = _statistics(vae, "latents_mean"), _statistics(vae, "latents_std")

    def guidance_arguments(
        self, scale: float | None, negative_prompt: str | None
    ) -> dict[str, object]:
        """A scale of 4 and an empty negative prompt, if not given."""
        return {
            "true_cfg_scale": 4.0 if scale is None else scale,
            "negative_prompt": negative_prompt or "",
        }

    def __call__(  # noqa: PLR0913 - the parameters of diffusers' pipeline
        self,
        prompt: str | Sequence[str],
        negative_prompt: str | Sequence[str] | None = None,
        true_cfg_scale: float = 4.0,
        num_inference_steps: int = 50,
        height: int | None = None,
        width: int | None = None,
        *,
        seed: int | None = None,
        generator: np.random.Generator | None = None,
        latents: Array | None = None,
        max_sequence_length: int = 512,
        num_images_per_prompt: int = 1,
        callback_on_step_end: StepCallback | None = None,
        output_type: str = "pil",
    ) -> PipelineOutput:
        """Make images from prompts.

        `height` and `width` are pixels (default: 1024). With a negative prompt and a
        `true_cfg_scale` above 1 the denoiser runs twice a step. Noise comes from packed `latents`,
        or `generator`, or `seed`, or chance. Raises `InputError` for arguments that do not fit the
        model.
        """
        check_request(output_type, num_images_per_prompt, true_cfg_scale=true_cfg_scale)
        prompts = as_prompts(prompt, "prompt")
        height, width = self.sizes.image_size(height, width)
        images, length = num_images_per_prompt, max_sequence_length
        embeddings = self._embeddings(prompts, negative_prompt, true_cfg_scale, images, length)
        latents = self.prepare_latents(
            len(prompts) * images,
            height,
            width,
            generator=noise_source(seed, generator),
            latents=latents,
        )
        grid = self.sizes.grid(height, width)
        latents = self._sample(
            latents,
            num_inference_steps,
            embeddings,
            lambda latents, given, timestep: self._predict(latents, given, grid, timestep),
            true_cfg_scale,
            callback_on_step_end,
        )
        if output_type == "latent":
            return PipelineOutput(latents)
        frames = unpack(latents, grid)[:, :, None] * self._std + self._mean
        pixels = self.vae.decode(frames.astype(np.float32))[:, :, 0]
        return PipelineOutput(self.image_processor.postprocess(pixels, output_type))

    def encode_prompt(
        self,
        prompt: str | Sequence[str],
        num_images_per_prompt: int = 1,
        max_sequence_length: int = 512,
    ) -> QwenEmbeddings:
        """Run the encoder on the prompts in their template, drop the template's states, and repeat
        the result for each image of a prompt."""
        if not 1 <= max_sequence_length <= _MOST_TOKENS:
            raise InputError(
                f"max_sequence_length is {max_sequence_length}; use 1 to {_MOST_TOKENS}"
            )
        texts = [_TEMPLATE.format(text) for text in as_prompts(prompt, "prompt")]
        tokens = self.tokenizer(texts, _MOST_TOKENS + _TEMPLATE_TOKENS)
        states = pick(self.text_encoder(**tokens._asdict()), "last_hidden_state")
        keep = tokens.attention_mask[:, _TEMPLATE_TOKENS:].astype(bool)[:, :max_sequence_length]
        embeds = states[:, _TEMPLATE_TOKENS:][:, :max_sequence_length] * keep[..., None]
        return QwenEmbeddings(
            np.repeat(embeds, num_images_per_prompt, axis=0),
            np.repeat(keep, num_images_per_prompt, axis=0),
        )

    def prepare_latents(
        self,
        batch_size: int,
        height: int,
        width: int,
        *,
        generator: np.random.Generator | None = None,
        latents: Array | None = None,
    ) -> NDArray[np.float32]:
        """Return float32 latents [batch_size, tokens, channels * 4], given or fresh noise.

        Raises `InputError` if given latents have another shape.
        """
        grid = self.sizes.grid(height, width)
        return packed_noise(self.sizes, batch_size, grid, generator, latents)

    def _predict(
        self,
        latents: Array,
        embeddings: QwenEmbeddings,
        grid: tuple[int, int],
        timestep: np.float32,
    ) -> Array:
        """The denoiser's prediction, [batch, tokens, channels * 4]."""
        image_ids, text_ids = position_ids(*grid, embeddings.prompt_embeds.shape[1])
        outputs = self.transformer(
            hidden_states=latents,
            encoder_hidden_states=embeddings.prompt_embeds,
            encoder_hidden_states_mask=embeddings.prompt_embeds_mask,
            timestep=np.full(len(latents), timestep / np.float32(1000), np.float32),
            img_ids=image_ids,
            txt_ids=text_ids,
        )
        return pick(outputs, "out_hidden_states", "out_sample", "sample")

    def apply_guidance(
        self, noise_pred: Array, negative: Array, scale: float
    ) -> NDArray[np.float32]:
        """Weigh two predictions: `negative + scale * (noise_pred - negative)`, each token as long
        as in `noise_pred`; in float32."""
        high, low = noise_pred.astype(np.float32), negative.astype(np.float32)
        guided = low + np.float32(scale) * (high - low)
        lengths = np.linalg.norm(high, axis=-1, keepdims=True)
        found: NDArray[np.float32] = guided * (
            lengths / np.linalg.norm(guided, axis=-1, keepdims=True)
        )
        return found


def _statistics(vae: Settings, key: str) -> NDArray[np.float32]:
    """One number per channel of latents, [1, channels, 1, 1, 1]; raises `InputError` for anything
    else."""
    values = vae.values.get(key)
    if not isinstance(values, list) or not all(isinstance(v, int | float) for v in values):
        raise InputError(f"{key} in {vae.source} must be a list of numbers")
    return np.asarray(values, np.float32).reshape(1, -1, 1, 1, 1)
