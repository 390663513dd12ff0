"""Latents as tokens, a row per patch of 2 by 2, as FLUX and Qwen-Image take them."""

import numpy as np
from numpy.typing import NDArray

from profiler.pipelines.onnx_pipeline import latents_of
from profiler.pipelines.onnx_submodule import Array
from profiler.pipelines.sizes import PackedSizes

__all__ = ["even_sigmas", "image_positions", "packed_noise", "unpack"]


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


def image_positions(rows: int, columns: int) -> NDArray[np.float32]:
    """FLUX's `img_ids`, float32 [rows * columns, 3]: 0, row and column of each token."""
    found = np.zeros((rows, columns, 3), np.float32)
    found[..., 1] = np.arange(rows)[:, None]
    found[..., 2] = np.arange(columns)[None, :]
    return found.reshape(-1, 3)


def even_sigmas(steps: int) -> NDArray[np.float64]:
    """Sigmas from 1 to 1 / steps, evenly: what these models are sampled on before the shift."""
    return np.linspace(1.0, 1 / max(steps, 1), max(steps, 0))
