"""Diffusion transformers as graphs: SD3 and SD3.5, FLUX, Qwen-Image.

Names are those of optimum-onnx. FLUX and Qwen-Image take their latents packed, a row per patch of
2 by 2, and the position of each token: `img_ids` and `txt_ids`, float [tokens, 3].
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from profiler.errors import InputError
from profiler.graph.export.options import StaticSizes
from profiler.graph.export.part_graph import PartGraph, Trial, free_sizes, shapes_of
from profiler.model_layouts import position_ids, real_rotations

__all__ = ["flux", "qwen_image", "sd3"]

_CLIP_TOKENS = 77  # stand before T5's in SD3's text
_PATCH = 2  # rows and columns of latents in a token of FLUX and Qwen-Image


def sd3(module: Any, static: StaticSizes, *, scale: int, dtype: Any) -> PartGraph:
    """SD3's transformer. Its static batch is twice that of the images: the pipeline stacks what
    follows the prompt and what follows the negative one."""
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
    """FLUX's transformer; `guidance` is an input of the models distilled for it."""
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
    """Qwen-Image's transformer. Its rotations follow from `img_ids` and `txt_ids` instead of the
    image's size as a list, which no graph takes; compared with torch's own, from that list."""
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
    """Raise InputError where the image is beyond the transformer's position embeddings."""
    for name, size in (("height", rows), ("width", columns)):
        if size is not None and size > largest:
            raise InputError(
                f"--static {name}={size * scale} is beyond this model's position embeddings: give "
                f"at most {largest * scale}"
            )


def _packed(module: Any, static: StaticSizes, scale: int) -> dict[str, tuple[int | str, ...]]:
    """Image and text tokens; the image's number follows from height and width."""
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
    """Tokens of a static image, None where it is free."""
    rows, columns = static.latents(scale, _PATCH)
    if (rows is None) != (columns is None):
        raise InputError(
            "--static with one of height and width leaves the number of image tokens open, which "
            "is all that this transformer takes: give both, or none"
        )
    return None if rows is None or columns is None else rows * columns // _PATCH**2


def _packed_trials(static: StaticSizes, scale: int) -> tuple[Trial, ...]:
    """Sizes with the rows and columns of the image's patches, which positions follow from."""
    rows, columns = (size and size // _PATCH for size in static.latents(scale, _PATCH))
    found = free_sizes(
        {
            "batch_size": (2, 1),
            "rows": (4, 7),
            "columns": (6, 5),
            "sequence_length": (12, 7),
        },
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
    """`original` with tensors by name → its first output alone."""

    def forward(**tensors: Any) -> tuple[Any, ...]:
        return (original(**tensors, return_dict=False)[0],)

    return _with_names(forward, names)


def _with_names(forward: Any, names: Iterable[str]) -> Any:
    """`forward` with parameters of these names, as torch.export asks for."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    forward.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return forward
