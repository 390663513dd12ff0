"""Positions of Qwen-Image's tokens, and its rotations from them with real numbers alone.

diffusers takes the rotations from complex tables by the image's size, a Python list: neither is
for a graph. Positions as inputs (as FLUX has them) leave the size free.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["position_ids", "real_rotations"]


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
    """Within the block `transformer` takes its rotations from the positions."""
    from diffusers.models.transformers import transformer_qwenimage

    rope = transformer.pos_embed
    rotations = _angles(rope, img_ids), _angles(rope, txt_ids)
    rope.forward = lambda *_, **__: rotations
    try:
        # The first would make the text's length a constant, the second asks for complex numbers.
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
    """Angles float32 [tokens, half of a head's width]: each axis has its share of it."""
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
