"""Model layouts: widths that pipeline parts must share, and Qwen-Image token positions.

`graph export` and `run` check the widths before they load or export parts. Widths that a
configuration does not state are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiler.errors import InputError

# --- Whether the parts of a pipeline fit together, by the widths in their config.json.


_Configurations = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class _Width:
    """A width and its name in errors; None if the configurations do not state it."""

    said: str
    value: int | None


def check_widths(class_name: str, configurations: _Configurations) -> None:
    """Raise InputError if the parts are of different models.

    `configurations` are the contents of config.json, by submodule; a pipeline may lack some.
    """
    for given, wanted in _CHECKS[class_name](configurations):
        if given.value is not None and wanted.value is not None and given.value != wanted.value:
            raise InputError(
                f"{given.said} is {given.value} where {wanted.said} is {wanted.value}: the folder "
                "mixes parts of different models"
            )


def _sd3(parts: _Configurations) -> Iterator[tuple[_Width, _Width]]:
    text = _of(parts, "transformer", "joint_attention_dim")
    clips = _sum(parts, ("text_encoder", "text_encoder_2"), "hidden_size")
    t5 = _of(parts, "text_encoder_3", "d_model")
    room = t5 if t5.value is not None else text
    if clips.value is not None and room.value is not None and clips.value > room.value:
        raise InputError(
            f"{clips.said} is {clips.value}, more than {room.said}, which is {room.value}: the "
            "folder mixes parts of different models"
        )
    yield t5, text
    yield (
        _sum(parts, ("text_encoder", "text_encoder_2"), "projection_dim"),
        _of(parts, "transformer", "pooled_projection_dim"),
    )
    yield _of(parts, "vae", "latent_channels"), _of(parts, "transformer", "in_channels")


def _flux(parts: _Configurations) -> Iterator[tuple[_Width, _Width]]:
    pooled = _of(parts, "transformer", "pooled_projection_dim")
    yield _of(parts, "text_encoder", "hidden_size"), pooled
    yield _of(parts, "text_encoder_2", "d_model"), _of(parts, "transformer", "joint_attention_dim")
    yield _patched(_of(parts, "vae", "latent_channels")), _of(parts, "transformer", "in_channels")


def _qwen(parts: _Configurations) -> Iterator[tuple[_Width, _Width]]:
    text = _of(parts, "transformer", "joint_attention_dim")
    yield _of(parts, "text_encoder", "text_config.hidden_size"), text
    yield _of(parts, "text_encoder", "hidden_size"), text
    yield _patched(_of(parts, "vae", "z_dim")), _of(parts, "transformer", "in_channels")


_CHECKS: Mapping[str, Callable[[_Configurations], Iterator[tuple[_Width, _Width]]]] = {
    "StableDiffusion3Pipeline": _sd3,
    "FluxPipeline": _flux,
    "QwenImagePipeline": _qwen,
}


def _of(parts: _Configurations, name: str, key: str) -> _Width:
    """The width at `key`, whose parts are separated by dots."""
    value: object = parts.get(name)
    for step in key.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if not isinstance(value, int) or isinstance(value, bool):
        value = None
    return _Width(f"{key} of {name}", value)


def _sum(parts: _Configurations, names: tuple[str, ...], key: str) -> _Width:
    values = [_of(parts, name, key).value for name in names]
    known = [value for value in values if value is not None]
    return _Width(
        f"{key} of {' and '.join(names)} together",
        sum(known) if len(known) == len(values) else None,
    )


def _patched(channels: _Width) -> _Width:
    """The channels of a patch of 2 by 2 latents, as FLUX and Qwen-Image take them."""
    return _Width(f"4 × {channels.said}", None if channels.value is None else 4 * channels.value)


# --- Positions of Qwen-Image's tokens, and rotations from them in real numbers.
#
# diffusers takes the rotations from complex tables by the image's size, a Python list, neither of
# which can be in a graph. Positions as inputs (as for FLUX) leave the size free.


def position_ids(rows: int, columns: int, text_tokens: int) -> tuple[Any, Any]:
    """`img_ids` [rows * columns, 3] and `txt_ids` [text_tokens, 3], float32, of one image.

    `rows` and `columns` count tokens: pixels by 16. An image token has frame 0 and its row and
    column from the middle; text tokens follow the larger half of the image on all three axes.
    """
    image = np.zeros((rows, columns, 3), np.float32)
    image[..., 1] = (np.arange(rows) - (rows - rows // 2))[:, None]
    image[..., 2] = (np.arange(columns) - (columns - columns // 2))[None, :]
    text = max(rows // 2, columns // 2) + np.arange(text_tokens, dtype=np.float32)
    return image.reshape(-1, 3), np.repeat(text[:, None], 3, axis=1)


@contextmanager
def real_rotations(transformer: Any, img_ids: Any, txt_ids: Any) -> Iterator[None]:
    """Make `transformer` compute its rotations from the positions inside the block."""
    from diffusers.models.transformers import transformer_qwenimage

    rope = transformer.pos_embed
    rotations = _angles(rope, img_ids), _angles(rope, txt_ids)
    rope.forward = lambda *_, **__: rotations
    try:
        # The first would make the text's length a constant, the second needs complex numbers.
        with (
            _replaced(transformer_qwenimage, "compute_text_seq_len_from_mask", _text_length),
            _replaced(transformer_qwenimage, "apply_rotary_emb_qwen", _rotated),
        ):
            yield
    finally:
        del rope.forward


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _text_length(states: Any, keep: Any) -> tuple[Any, None, Any]:
    return states.shape[1], None, keep


def _angles(rope: Any, ids: Any) -> Any:
    """Angles float32 [tokens, half of a head's width]: each axis has its share of the width."""
    import torch

    shares = []
    for axis, width in enumerate(rope.axes_dim):
        powers = torch.arange(0, width, 2, dtype=torch.float32) / width
        shares.append(ids[:, axis : axis + 1] * torch.pow(float(rope.theta), -powers)[None])
    return torch.cat(shares, dim=1)


def _rotated(states: Any, angles: Any, **_: Any) -> Any:
    """`states` [batch, tokens, heads, width], each pair of neighbours turned by its angle."""
    import torch

    cosine, sine = angles.cos()[None, :, None], angles.sin()[None, :, None]
    real, imaginary = states.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack(
        [real * cosine - imaginary * sine, real * sine + imaginary * cosine], dim=-1
    )
    return turned.flatten(3).type_as(states)
