"""ONNX export of known models: SD3, FLUX and Qwen-Image, their encoders and VAEs.

Names of inputs and outputs are those of optimum-onnx. FLUX and Qwen-Image take packed latents,
a row per patch of 2 by 2, and token positions: `img_ids` and `txt_ids`, float [tokens, 3].
Known configurations have no weights, so they are exported with random ones.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from profiler.errors import InputError
from profiler.graph.export_torch import PartGraph, StaticSizes, Trial, free_sizes, shapes_of
from profiler.pipelines.model_layouts import position_ids, real_rotations

# --- VAE decoders as graphs: latents → image, with optimum-onnx's names.


def image_decoder(module: Any, static: StaticSizes, *, scale: int, dtype: Any) -> PartGraph:
    """Describe AutoencoderKL's decoder: latents [batch_size, channels, height / 8, width / 8] →
    image."""
    return _decoder(module, static, scale, dtype, (), module.config.latent_channels)


def qwen_decoder(module: Any, static: StaticSizes, *, scale: int, dtype: Any) -> PartGraph:
    """Describe AutoencoderKLQwenImage's decoder: latents [batch_size, channels, 1, height / 8,
    width / 8] → image of one frame."""
    return _decoder(module, static, scale, dtype, (1,), module.config.z_dim)


def _decoder(
    module: Any, static: StaticSizes, scale: int, dtype: Any, frames: tuple[int, ...], channels: int
) -> PartGraph:
    rows, columns = static.latents(scale)
    inputs = {
        "latent_sample": (
            *(static.batch or "batch_size", channels, *frames),
            *(rows or "latent_height", columns or "latent_width"),
        )
    }

    def forward(latent_sample: Any) -> tuple[Any, ...]:
        return (module.decode(latent_sample, return_dict=False)[0],)

    def draw(random: Any, sizes: Trial) -> dict[str, Any]:
        import torch

        shape = shapes_of(inputs, sizes)["latent_sample"]
        return {"latent_sample": torch.from_numpy(random.standard_normal(shape)).to(dtype)}

    return PartGraph(
        module=module,
        forward=forward,
        inputs=inputs,
        outputs=("sample",),
        draw=draw,
        trials=free_sizes(
            {"batch_size": (2, 1), "latent_height": (4, 5), "latent_width": (6, 3)},
            {"batch_size": static.batch, "latent_height": rows, "latent_width": columns},
        ),
    )


# --- Diffusion transformers as graphs: SD3 and SD3.5, FLUX, Qwen-Image.
#
# Names are those of optimum-onnx. FLUX and Qwen-Image take packed latents, a row per patch of 2 by
# 2, and the position of each token: `img_ids` and `txt_ids`, float [tokens, 3].


_CLIP_TOKENS = 77  # before T5's in SD3's text
_PATCH = 2  # rows and columns of latents per token of FLUX and Qwen-Image


def sd3(module: Any, static: StaticSizes, *, scale: int, dtype: Any) -> PartGraph:
    """Describe SD3's transformer. Its static batch is twice that of the images, because the
    pipeline stacks the inputs of the prompt and of the negative prompt."""
    config = module.config
    rows, columns = static.latents(scale, config.patch_size)
    batch = None if static.batch is None else 2 * static.batch
    text = None if static.sequence is None else _CLIP_TOKENS + static.sequence
    largest = config.pos_embed_max_size * config.patch_size
    _check_reach(rows, columns, largest, scale)
    inputs = {
        "hidden_states": (
            *(batch or "batch_size", config.in_channels),
            *(rows or "height", columns or "width"),
        ),
        "encoder_hidden_states": (
            *(batch or "batch_size", text or "sequence_length"),
            config.joint_attention_dim,
        ),
        "pooled_projections": (batch or "batch_size", config.pooled_projection_dim),
        "timestep": (batch or "batch_size",),
    }
    return PartGraph(
        module=module,
        forward=_first_of(module.forward, inputs),
        inputs=inputs,
        outputs=("out_hidden_states",),
        draw=lambda random, sizes: _drawn(inputs, sizes, random, dtype, thousands=True),
        trials=free_sizes(
            {
                "batch_size": (2, 1),
                "height": (min(8, largest), min(6, largest)),
                "width": (min(6, largest), min(10, largest)),
                "sequence_length": (12, 7),
            },
            {"batch_size": batch, "height": rows, "width": columns, "sequence_length": text},
        ),
    )


def flux(module: Any, static: StaticSizes, *, scale: int, dtype: Any) -> PartGraph:
    """Describe FLUX's transformer; models distilled for guidance have an input `guidance`."""
    config = module.config
    inputs = {
        **_packed(module, static, scale),
        "pooled_projections": (static.batch or "batch_size", config.pooled_projection_dim),
        "timestep": (static.batch or "batch_size",),
        **_positions(static, scale),
    }
    if config.guidance_embeds:
        inputs["guidance"] = (static.batch or "batch_size",)

    def draw(random: Any, sizes: Trial) -> dict[str, Any]:
        import torch

        found = _drawn(inputs, sizes, random, dtype, thousands=False)
        grid = torch.zeros(sizes["rows"], sizes["columns"], 3)
        grid[..., 1] += torch.arange(sizes["rows"])[:, None]
        grid[..., 2] += torch.arange(sizes["columns"])[None, :]
        found["img_ids"] = grid.reshape(-1, 3).to(dtype)
        found["txt_ids"] = torch.zeros_like(found["txt_ids"])
        if "guidance" in found:
            found["guidance"] = found["guidance"].float() * 5 + 1
        return found

    return PartGraph(
        module=module,
        forward=_first_of(module.forward, inputs),
        inputs=inputs,
        outputs=("out_hidden_states",),
        draw=draw,
        trials=_packed_trials(static, scale),
    )


def qwen_image(module: Any, static: StaticSizes, *, scale: int, dtype: Any) -> PartGraph:
    """Describe Qwen-Image's transformer. Its rotations are computed from `img_ids` and `txt_ids`
    instead of the list of image sizes, which no graph accepts; verified against torch's, from that
    list."""
    config = module.config
    if config.zero_cond_t or config.use_additional_t_cond or config.use_layer3d_rope:
        raise InputError(
            "this Qwen-Image transformer is one for editing or layers: only that of "
            "QwenImagePipeline is exported; leave it out with --parts"
        )
    packed = _packed(module, static, scale)
    mask = packed["encoder_hidden_states"][:2]
    inputs = {
        **packed,
        "encoder_hidden_states_mask": mask,
        "timestep": (static.batch or "batch_size",),
        **_positions(static, scale),
    }
    original = module.forward

    def forward(img_ids: Any, txt_ids: Any, **others: Any) -> tuple[Any, ...]:
        with real_rotations(module, img_ids, txt_ids):
            return (original(**others, img_shapes=None, return_dict=False)[0],)

    def reference(sizes: Trial, tensors: Mapping[str, Any]) -> tuple[Any, ...]:
        others = {name: array for name, array in tensors.items() if not name.endswith("_ids")}
        shapes = [[(1, sizes["rows"], sizes["columns"])]] * len(tensors["hidden_states"])
        return (original(**others, img_shapes=shapes, return_dict=False)[0],)

    def draw(random: Any, sizes: Trial) -> dict[str, Any]:
        import torch

        found = _drawn(inputs, sizes, random, dtype, thousands=False)
        length = found["txt_ids"].shape[0]
        keep = torch.ones(found["encoder_hidden_states"].shape[:2], dtype=torch.bool)
        keep[-1, length - length // 3 :] = False
        image, text = position_ids(sizes["rows"], sizes["columns"], length)
        return found | {
            "encoder_hidden_states_mask": keep,
            "img_ids": torch.from_numpy(image),
            "txt_ids": torch.from_numpy(text),
        }

    return PartGraph(
        module=module,
        forward=_with_names(forward, inputs),
        inputs=inputs,
        outputs=("out_hidden_states",),
        draw=draw,
        trials=_packed_trials(static, scale),
        reference=reference,
        notes=("img_ids and txt_ids take the place of img_shapes: see docs/graph-export.md",),
    )


def _check_reach(rows: int | None, columns: int | None, largest: int, scale: int) -> None:
    """Raise InputError if the image is beyond the transformer's position embeddings."""
    for name, size in (("height", rows), ("width", columns)):
        if size is not None and size > largest:
            raise InputError(
                f"--static {name}={size * scale} is beyond this model's position embeddings: give "
                f"at most {largest * scale}"
            )


def _packed(module: Any, static: StaticSizes, scale: int) -> dict[str, tuple[int | str, ...]]:
    """Return the inputs for image and text tokens; the number of image tokens follows from height
    and width."""
    tokens = _image_tokens(static, scale)
    config = module.config
    return {
        "hidden_states": (
            *(static.batch or "batch_size", tokens or "image_tokens"),
            config.in_channels,
        ),
        "encoder_hidden_states": (
            *(static.batch or "batch_size", static.sequence or "sequence_length"),
            config.joint_attention_dim,
        ),
    }


def _positions(static: StaticSizes, scale: int) -> dict[str, tuple[int | str, ...]]:
    tokens = _image_tokens(static, scale)
    return {
        "img_ids": (tokens or "image_tokens", 3),
        "txt_ids": (static.sequence or "sequence_length", 3),
    }


def _image_tokens(static: StaticSizes, scale: int) -> int | None:
    """Return the number of tokens of a static image, None if it is free."""
    rows, columns = static.latents(scale, _PATCH)
    if (rows is None) != (columns is None):
        raise InputError(
            "--static with one of height and width leaves the number of image tokens open, which "
            "is all that this transformer takes: give both, or none"
        )
    return None if rows is None or columns is None else rows * columns // _PATCH**2


def _packed_trials(static: StaticSizes, scale: int) -> tuple[Trial, ...]:
    """Trial sizes with rows and columns of the image's patches, which determine positions."""
    rows, columns = (size and size // _PATCH for size in static.latents(scale, _PATCH))
    found = free_sizes(
        {"batch_size": (2, 1), "rows": (4, 7), "columns": (6, 5), "sequence_length": (12, 7)},
        {
            "batch_size": static.batch,
            "rows": rows,
            "columns": columns,
            "sequence_length": static.sequence,
        },
    )
    return tuple({**s, "image_tokens": s["rows"] * s["columns"]} for s in found)


def _drawn(
    inputs: Mapping[str, tuple[int | str, ...]],
    sizes: Trial,
    random: Any,
    dtype: Any,
    *,
    thousands: bool,
) -> dict[str, Any]:
    """Normally distributed inputs; timesteps from 0 to 1000 in float32, or to 1 in `dtype`."""
    import numpy as np
    import torch

    found = {}
    for name, shape in shapes_of(inputs, sizes).items():
        if name in ("timestep", "guidance"):
            values = random.random(shape) * (1000 if thousands else 1)
        else:
            values = random.standard_normal(shape)
        kept = torch.float32 if name == "timestep" and thousands else dtype
        found[name] = torch.from_numpy(np.asarray(values, dtype=np.float32)).to(kept)
    return found


def _first_of(original: Any, names: Iterable[str]) -> Any:
    """A forward that takes tensors by name and returns only the first output of `original`."""

    def forward(**tensors: Any) -> tuple[Any, ...]:
        return (original(**tensors, return_dict=False)[0],)

    return _with_names(forward, names)


def _with_names(forward: Any, names: Iterable[str]) -> Any:
    """Give `forward` a signature with these parameter names, as torch.export requires."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    forward.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return forward


# --- Known configurations, written as a diffusers folder without weights.
#
# They are those of the published models, from their config.json files. Weights are not included:
# such a source is exported with random ones.


def _clip(width: int, layers: int, heads: int, activation: str) -> dict[str, Any]:
    return {
        "architectures": ["CLIPTextModelWithProjection"],
        "model_type": "clip_text_model",
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 1,
        "hidden_act": activation,
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "max_position_embeddings": 77,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "projection_dim": width,
        "vocab_size": 49408,
    }


_T5_XXL = {
    "architectures": ["T5EncoderModel"],
    "model_type": "t5",
    "d_ff": 10240,
    "d_kv": 64,
    "d_model": 4096,
    "dense_act_fn": "gelu_new",
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "feed_forward_proj": "gated-gelu",
    "is_encoder_decoder": True,
    "is_gated_act": True,
    "layer_norm_epsilon": 1e-06,
    "num_heads": 64,
    "num_layers": 24,
    "pad_token_id": 0,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": False,
    "use_cache": True,
    "vocab_size": 32128,
}

_TRANSFORMER = {
    "_class_name": "SD3Transformer2DModel",
    "attention_head_dim": 64,
    "caption_projection_dim": 1536,
    "in_channels": 16,
    "joint_attention_dim": 4096,
    "num_attention_heads": 24,
    "num_layers": 24,
    "out_channels": 16,
    "patch_size": 2,
    "pooled_projection_dim": 2048,
    "pos_embed_max_size": 192,
    "sample_size": 128,
}

_VAE = {
    "_class_name": "AutoencoderKL",
    "act_fn": "silu",
    "block_out_channels": [128, 256, 512, 512],
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
    "force_upcast": True,
    "in_channels": 3,
    "latent_channels": 16,
    "layers_per_block": 2,
    "norm_num_groups": 32,
    "out_channels": 3,
    "sample_size": 1024,
    "scaling_factor": 1.5305,
    "shift_factor": 0.0609,
    "use_post_quant_conv": False,
    "use_quant_conv": False,
}

SD3_INDEX = {
    "_class_name": "StableDiffusion3Pipeline",
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "CLIPTextModelWithProjection"],
    "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
    "text_encoder_3": ["transformers", "T5EncoderModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "tokenizer_2": ["transformers", "CLIPTokenizer"],
    "tokenizer_3": ["transformers", "T5TokenizerFast"],
    "transformer": ["diffusers", "SD3Transformer2DModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}
"""model_index.json of Stable Diffusion 3 with all three text encoders."""

CONFIGURATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "sd3-medium": {
        "model_index.json": SD3_INDEX,
        "scheduler/scheduler_config.json": {
            "_class_name": "FlowMatchEulerDiscreteScheduler",
            "num_train_timesteps": 1000,
            "shift": 3.0,
        },
        "text_encoder/config.json": _clip(768, layers=12, heads=12, activation="quick_gelu"),
        "text_encoder_2/config.json": _clip(1280, layers=32, heads=20, activation="gelu"),
        "text_encoder_3/config.json": _T5_XXL,
        "transformer/config.json": _TRANSFORMER,
        "vae/config.json": _VAE,
    }
}
"""Files of each known configuration, by path below the folder."""


def write_configuration(name: str, folder: Path) -> None:
    """Write the known configuration `name` into `folder`; KeyError for an unknown one."""
    for path, content in CONFIGURATIONS[name].items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


# --- Text encoders as graphs: CLIP, T5 and Qwen2.5-VL, with optimum-onnx's names.


def clip(module: Any, static: StaticSizes, *, pooled: str) -> PartGraph:
    """Describe a CLIP text encoder: ids int64 [batch_size, 77] → `pooled` (`text_embeds` with the
    projection, `pooler_output` without), the last hidden state and all of them."""
    config = module.config
    original = module.forward

    def forward(input_ids: Any) -> tuple[Any, ...]:
        found = original(input_ids=input_ids, output_hidden_states=True)
        return (getattr(found, pooled), found.last_hidden_state, *found.hidden_states)

    layers = range(config.num_hidden_layers + 1)
    return _of_ids(
        module,
        forward,
        (pooled, "last_hidden_state", *(f"hidden_states.{i}" for i in layers)),
        trials=free_sizes({"batch_size": (2, 1)}, {"batch_size": static.batch}),
        axes=(static.batch or "batch_size", config.max_position_embeddings),
    )


def t5(module: Any, static: StaticSizes) -> PartGraph:
    """T5's encoder: ids int64 [batch_size, sequence_length] → its last hidden state."""
    original = module.forward

    def forward(input_ids: Any) -> tuple[Any, ...]:
        return (original(input_ids=input_ids, return_dict=False)[0],)

    return _of_ids(
        module,
        forward,
        ("last_hidden_state",),
        trials=_text_trials(static),
        axes=(static.batch or "batch_size", static.sequence or "sequence_length"),
    )


def qwen(module: Any, static: StaticSizes) -> PartGraph:
    """Describe Qwen2.5-VL on text alone: ids and mask int64 [batch_size, sequence_length] → its
    last hidden state, normalized; QwenImagePipeline uses it as `hidden_states[-1]`."""
    language_model = module.model.language_model

    def forward(input_ids: Any, attention_mask: Any) -> tuple[Any, ...]:
        found = language_model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        return (found.last_hidden_state,)

    def reference(_: Trial, tensors: Any) -> tuple[Any, ...]:
        found = original(**tensors, output_hidden_states=True, use_cache=False)
        return (found.hidden_states[-1],)

    original = module.forward
    axes = (static.batch or "batch_size", static.sequence or "sequence_length")
    return PartGraph(
        module=module,
        forward=forward,
        inputs={"input_ids": axes, "attention_mask": axes},
        outputs=("last_hidden_state",),
        draw=lambda random, sizes: _ids_and_mask(module, random, axes, sizes),
        trials=_text_trials(static),
        reference=reference,
        notes=("text alone: the encoder's vision tower is left out",),
    )


def _text_trials(static: StaticSizes) -> tuple[Trial, ...]:
    return free_sizes(
        {"batch_size": (2, 1), "sequence_length": (12, 7)},
        {"batch_size": static.batch, "sequence_length": static.sequence},
    )


def _of_ids(
    module: Any,
    forward: Any,
    outputs: tuple[str, ...],
    *,
    trials: tuple[Trial, ...],
    axes: tuple[int | str, ...],
) -> PartGraph:
    def draw(random: Any, sizes: Trial) -> dict[str, Any]:
        return {"input_ids": _ids(module, random, shapes_of({"ids": axes}, sizes)["ids"])}

    return PartGraph(
        module=module,
        forward=forward,
        inputs={"input_ids": axes},
        outputs=outputs,
        draw=draw,
        trials=trials,
    )


def _ids(module: Any, random: Any, shape: tuple[int, ...]) -> Any:
    """Draw ids of the vocabulary, with an end of text in each row, because CLIP pools there."""
    import torch

    config = getattr(module.config, "text_config", module.config)
    ids = random.integers(0, config.vocab_size, size=shape)
    end = getattr(config, "eos_token_id", None)
    if isinstance(end, int) and 0 <= end < config.vocab_size:
        ids[:, shape[1] // 2] = end
    return torch.from_numpy(ids)


def _ids_and_mask(
    module: Any, random: Any, axes: tuple[int | str, ...], sizes: Trial
) -> dict[str, Any]:
    """Draw ids and a mask in which the last row's text is shorter than the others."""
    import torch

    shape = shapes_of({"ids": axes}, sizes)["ids"]
    mask = torch.ones(shape, dtype=torch.int64)
    mask[-1, shape[1] - shape[1] // 3 :] = 0
    return {"input_ids": _ids(module, random, shape), "attention_mask": mask}
