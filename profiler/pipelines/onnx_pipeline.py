"""What the pipelines share: parts on ONNX Runtime, noise, and the shape of diffusers' pipelines.

Each has the attributes and the order of calls of diffusers' pipeline of its name, so that whatever
wraps that one can wrap this one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from profiler.errors import InputError, needing
from profiler.pipelines.devices import Placement, ProviderSpec
from profiler.pipelines.image import ImageProcessor
from profiler.pipelines.loading import Components, load_components
from profiler.pipelines.onnx_submodule import Array, OnnxPart, OnnxVae
from profiler.pipelines.scheduler import FlowMatchEulerDiscreteScheduler
from profiler.pipelines.sizes import PackedSizes, PatchedSizes

with needing("run", "profiler.pipelines"):
    from PIL import Image

__all__ = [
    "OnnxPipeline",
    "PipelineOutput",
    "StepCallback",
    "check_request",
    "latents_of",
    "noise_source",
]

StepCallback = Callable[[Any, int, float, dict[str, Array]], Mapping[str, Array] | None]
"""Called after each step with pipeline, step, timestep and {"latents": …}; may return new ones."""


@dataclass(frozen=True)
class PipelineOutput:
    """What a run made.

    `images` is a list of PIL images (`pil`), float32 [batch, height, width, 3] from 0 to 1
    (`np`), or float32 latents as the denoiser takes them (`latent`).
    """

    images: list[Image.Image] | NDArray[np.float32]


class OnnxPipeline:
    """Text to image, by calling it with a prompt. Make one with `from_folder`; use it from one
    thread at a time."""

    CLASS: ClassVar[str]
    """Its class in model_index.json, with or without ORT before it."""
    SUBMODULES: ClassVar[tuple[str, ...]]
    """Its submodules, in the order in which a run calls them."""
    sizes: PatchedSizes | PackedSizes
    OPTIONAL: ClassVar[frozenset[str]] = frozenset()
    """Those that a folder may lack."""
    __call__: Callable[..., PipelineOutput]

    def __init__(self, components: Components) -> None:
        """Take loaded components."""
        self.folder: Path = components.folder.path
        self.placement: Placement = components.placement
        self.scheduler: FlowMatchEulerDiscreteScheduler = components.scheduler
        self.image_processor = ImageProcessor()
        self.transformer = components.parts["transformer"]
        self.vae = OnnxVae(components.parts["vae"])

    @classmethod
    def from_folder(
        cls,
        path: Path | str,
        devices: Mapping[str, str] | None = None,
        providers: Sequence[ProviderSpec] | None = None,
    ) -> Self:
        """Load a folder in the diffusers/optimum ONNX layout; sessions open on first use.

        `devices` maps submodules to `kind:index`. `providers` are the ONNX Runtime providers, in
        order, for submodules that `devices` does not name (default: the CPU, `cpu:0`). Raises
        `InputError` for a folder, device or provider that cannot be used.
        """
        components = load_components(
            path, cls.CLASS, cls.SUBMODULES, cls.OPTIONAL, devices or {}, providers
        )
        return cls(components)

    @property
    def name_or_path(self) -> str:
        """The name of the model folder, as diffusers calls it."""
        return self.folder.resolve().name

    @property
    def parts(self) -> dict[str, OnnxPart]:
        """Submodule name → part, in the order in which a run calls them; `vae` is its decoder."""
        named = {name: getattr(self, name) for name in self.SUBMODULES}
        named["vae"] = self.vae.decoder
        return {name: part for name, part in named.items() if part is not None}

    @property
    def components(self) -> dict[str, object]:
        """Component name → object, as diffusers has it: parts, VAE, tokenizers, scheduler."""
        tokenizers = {k: v for k, v in vars(self).items() if k.startswith("tokenizer")}
        return {**self.parts, "vae": self.vae, **tokenizers, "scheduler": self.scheduler}

    def guidance_arguments(
        self, scale: float | None, negative_prompt: str | None
    ) -> dict[str, object]:
        """The arguments of a run for a guidance scale and a negative prompt, None: the model's
        own. Raises `InputError` for what the model does not take."""
        raise NotImplementedError

    def check(
        self, *, height: int | None, width: int | None, seed: int | None, **scales: float
    ) -> None:
        """Refuse arguments that a run would refuse before it calls a submodule. Raises
        `InputError`."""
        check_request("pil", 1, **scales)
        self.sizes.image_size(height, width)
        noise_source(seed, None)

    def _denoise(
        self,
        latents: Array,
        predict: Callable[[Array, np.float32], Array],
        callback: StepCallback | None,
    ) -> Array:
        """Move `latents` over all timesteps along what `predict` says of them, float32."""
        for step, timestep in enumerate(self.scheduler.timesteps):
            latents = self.scheduler.step(predict(latents, timestep), timestep, latents)
            if callback is not None:
                changed = callback(self, step, float(timestep), {"latents": latents}) or {}
                latents = changed.get("latents", latents)
        return latents


def check_request(output_type: str, images: int, **scales: float) -> None:
    """Refuse an unknown kind of output, a number of images below one, and scales that are no
    finite number. Raises `InputError`."""
    if output_type not in ("pil", "np", "latent"):
        raise InputError(f"{output_type!r} is not an output type; use pil, np or latent")
    if images < 1:
        raise InputError(f"num_images_per_prompt is {images}; give 1 or more")
    for name, scale in scales.items():
        if not math.isfinite(scale):
            raise InputError(f"{name} is {scale}; give a finite number")


def noise_source(seed: int | None, generator: np.random.Generator | None) -> np.random.Generator:
    """The source of noise that the caller asked for, or one of chance. Raises `InputError`."""
    if seed is not None and generator is not None:
        raise InputError("both seed and generator are given; keep one")
    if seed is not None and seed < 0:
        raise InputError(f"the seed is {seed}; use 0 or more")
    return generator if generator is not None else np.random.default_rng(seed)


def latents_of(
    shape: tuple[int, ...], source: np.random.Generator | None, given: Array | None
) -> NDArray[np.float32]:
    """Float32 latents of `shape`: those that were given, or fresh noise.

    Raises `InputError` if given latents have another shape.
    """
    if given is None:
        source = source if source is not None else np.random.default_rng()
        return source.standard_normal(shape, dtype=np.float32)
    if given.shape != shape:
        raise InputError(f"the given latents have shape {given.shape}; this run needs {shape}")
    return np.asarray(given, dtype=np.float32)
