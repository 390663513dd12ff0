"""Which parts a pipeline has, of which class each is, and how it becomes a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from profiler.errors import InputError
from profiler.graph.export import decoders, denoisers, text_encoders
from profiler.graph.export.part_graph import PartGraph

__all__ = ["PIPELINES", "PartKind", "find_pipeline"]


@dataclass(frozen=True, slots=True)
class PartKind:
    """A part: `submodule` in the source, `folder` in what is written, its class, and the function
    (module, static sizes, `scale` pixels per latent, `dtype` of torch) that makes a graph of it."""

    submodule: str
    library: str
    class_name: str
    build: Callable[..., PartGraph]
    folder: str = ""

    @property
    def out(self) -> str:
        """The folder that its graph is written to."""
        return self.folder or self.submodule


def _text(function: Callable[..., PartGraph], **options: Any) -> Callable[..., PartGraph]:
    """`function` of a text encoder, which has neither latents nor inputs of floats."""

    def build(module: Any, static: Any, **_: Any) -> PartGraph:
        return function(module, static, **options)

    return build


def _clip(submodule: str, class_name: str, pooled: str) -> PartKind:
    return PartKind(submodule, "transformers", class_name, _text(text_encoders.clip, pooled=pooled))


_projected = partial(_clip, class_name="CLIPTextModelWithProjection", pooled="text_embeds")
_vae = PartKind("vae", "diffusers", "AutoencoderKL", decoders.image_decoder, "vae_decoder")


def _t5(submodule: str) -> PartKind:
    return PartKind(submodule, "transformers", "T5EncoderModel", _text(text_encoders.t5))


PIPELINES: Mapping[str, tuple[PartKind, ...]] = {
    "StableDiffusion3Pipeline": (
        _projected("text_encoder"),
        _projected("text_encoder_2"),
        _t5("text_encoder_3"),
        PartKind("transformer", "diffusers", "SD3Transformer2DModel", denoisers.sd3),
        _vae,
    ),
    "FluxPipeline": (
        _clip("text_encoder", "CLIPTextModel", "pooler_output"),
        _t5("text_encoder_2"),
        PartKind("transformer", "diffusers", "FluxTransformer2DModel", denoisers.flux),
        _vae,
    ),
    "QwenImagePipeline": (
        PartKind(
            *("text_encoder", "transformers", "Qwen2_5_VLForConditionalGeneration"),
            _text(text_encoders.qwen),
        ),
        PartKind("transformer", "diffusers", "QwenImageTransformer2DModel", denoisers.qwen_image),
        PartKind(
            *("vae", "diffusers", "AutoencoderKLQwenImage", decoders.qwen_decoder, "vae_decoder")
        ),
    ),
}
"""Pipelines by their class in model_index.json; parts in the order in which a run calls them."""


def find_pipeline(class_name: object, where: object) -> tuple[PartKind, ...]:
    """The parts of a pipeline. Raises InputError for a class that is not exported."""
    if not isinstance(class_name, str) or class_name not in PIPELINES:
        raise InputError(
            f"{where} is of a {str(class_name)[:80]!r}, which is not exported: give one of "
            f"{', '.join(PIPELINES)}"
        )
    return PIPELINES[class_name]
