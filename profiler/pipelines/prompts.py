"""From prompts to the embeddings that transformers take, Stable Diffusion 3's above all.

CLIP's two embeddings stand side by side, padded with zeros to T5's width; T5's follow as further
tokens. Shapes and order are those of diffusers' `StableDiffusion3Pipeline.encode_prompt`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from profiler.errors import InputError
from profiler.pipelines.onnx_submodule import Array, OnnxPart, pick

__all__ = [
    "PromptEmbeddings",
    "as_prompts",
    "clip_embeddings",
    "clip_pooled",
    "join_embeddings",
    "t5_embeddings",
]

_POOLED_NAMES = ("text_embeds", "pooler_output", "pooled_output")


class PromptEmbeddings(NamedTuple):
    """Embeddings of prompts and negative prompts, the latter None without guidance.

    `prompt_embeds` [batch, tokens, width] and `pooled_prompt_embeds` [batch, pooled width], in
    diffusers' order.
    """

    prompt_embeds: Array
    negative_prompt_embeds: Array | None
    pooled_prompt_embeds: Array
    negative_pooled_prompt_embeds: Array | None


def as_prompts(prompt: object, what: str, batch: int | None = None) -> list[str]:
    """Return one text or a sequence of them as a list; one text stands for a whole batch.

    `what` names the argument in errors. Raises `InputError` for anything that is not text, for
    no texts at all, and for a count other than `batch`.
    """
    if isinstance(prompt, str):
        return [prompt] * (batch or 1)
    if not isinstance(prompt, Sequence) or not all(isinstance(text, str) for text in prompt):
        raise InputError(f"{what} must be a text or a list of texts, not {type(prompt).__name__}")
    texts = list(prompt)
    if not texts:
        raise InputError(f"{what} is an empty list; give at least one text")
    if batch is not None and len(texts) != batch:
        raise InputError(
            f"{what} has {len(texts)} texts for {batch} prompts; give one for each, or one text"
        )
    return texts


def clip_embeddings(part: OnnxPart, ids: Array) -> tuple[Array, Array]:
    """Run a CLIP text encoder on ids [batch, 77].

    Returns the hidden states before the last layer [batch, 77, width] and the pooled projection
    [batch, projection]. Raises `InputError` if the export lacks either.
    """
    outputs = part(input_ids=ids)
    pooled = next((outputs[name] for name in _POOLED_NAMES if name in outputs), None)
    hidden = _penultimate(outputs, part.config.get("num_hidden_layers"))
    if pooled is None or hidden is None:
        raise InputError(
            f"{part.name} ({part.model_path}) gives {', '.join(outputs)}; Stable Diffusion 3 "
            "needs text_embeds and hidden_states.N, so export it as "
            "CLIPTextModelWithProjection with output_hidden_states"
        )
    return hidden, pooled


def clip_pooled(part: OnnxPart, ids: Array) -> Array:
    """Run a CLIP text encoder on ids [batch, 77]; returns its pooled output [batch, width]. Raises
    `InputError` if the export lacks it."""
    outputs = part(input_ids=ids)
    found = next((outputs[name] for name in reversed(_POOLED_NAMES) if name in outputs), None)
    if found is None:
        raise InputError(
            f"{part.name} ({part.model_path}) gives {', '.join(outputs)}; FLUX needs "
            "pooler_output, so export it as CLIPTextModel"
        )
    return found


def _penultimate(outputs: Mapping[str, Array], layers: object) -> Array | None:
    """Return the input of the last layer: hidden_states.N with N = layers - 1."""
    matches = ((re.fullmatch(r"hidden_states[._]?(\d+)", name), name) for name in outputs)
    numbered = {int(match[1]): outputs[name] for match, name in matches if match}
    if isinstance(layers, int):
        return numbered.get(layers - 1)
    # Without a config: the embeddings come first and the last layer's output last.
    return numbered[sorted(numbered)[-2]] if len(numbered) > 1 else None


def t5_embeddings(part: OnnxPart, ids: Array) -> Array:
    """Run the T5 encoder on ids [batch, length]; returns [batch, length, width]."""
    outputs = part(input_ids=ids)
    return pick(outputs, "last_hidden_state")


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
