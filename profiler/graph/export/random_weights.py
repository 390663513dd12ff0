"""Random weights that depend on a seed and each parameter's name alone, in memory or in a file.

Matrices keep the variance of what passes through them, norms are about one, biases near zero: so
activations of deep models stay finite in float16, too. T5 does not scale its attention but
initializes its queries smaller; so do these, else each softmax would choose one token alone and a
rounding error another.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["fill_parameters", "map_parameters", "random_values"]

_CHUNK = 1 << 24  # values that are drawn at once


def fill_parameters(module: Any, seed: int) -> None:
    """Give the module's parameters their random values, in place.

    T5's queries are not made smaller here: the embedded model ships with weights without it.
    """
    import torch

    with torch.no_grad():
        for name, parameter in module.named_parameters():
            _fill(parameter, name, seed, 1.0)


def map_parameters(module: Any, file: Path, seed: int, dtype: Any) -> int:
    """Give a module whose parameters have no memory yet (device `meta`) random ones in a file.

    The file is mapped: weights beyond what memory holds stay on the disk. They are of `dtype`, but
    what the class keeps in float32. Returns their bytes.
    """
    import torch

    places, size = [], 0
    for name, parameter in list(module.named_parameters()):
        kept = torch.float32 if _stays_float32(module, name) else dtype
        places.append((name, parameter.shape, kept, size))
        size += -(-parameter.numel() * kept.itemsize // 64) * 64
    storage = torch.UntypedStorage.from_file(str(file), shared=True, nbytes=max(size, 64))
    with torch.no_grad():
        for name, shape, kept, offset in places:
            tensor = torch.empty(0, dtype=kept)
            start = offset // kept.itemsize
            tensor.set_(storage, start, shape, torch.empty(shape, device="meta").stride())
            _fill(tensor, name, seed, _shrink(module, name))
            owner, _, attribute = name.rpartition(".")
            fresh = torch.nn.Parameter(tensor, requires_grad=False)
            setattr(module.get_submodule(owner), attribute, fresh)
    return size


def _stays_float32(module: Any, name: str) -> bool:
    """Whether the module's class asks for float32 there: T5 does for one of its matrices."""
    kept = getattr(module, "_keep_in_fp32_modules", None) or ()
    return bool(set(name.split(".")) & set(kept))


def _shrink(module: Any, name: str) -> float:
    """The factor of T5's queries in `T5PreTrainedModel._init_weights`; 1 for all else."""
    width = getattr(getattr(module, "config", None), "d_kv", 0)
    return float(width**-0.5) if width and name.endswith("SelfAttention.q.weight") else 1.0


def _fill(tensor: Any, name: str, seed: int, factor: float) -> None:
    import torch

    flat, position = tensor.view(-1), 0
    for values in random_values(tuple(tensor.shape), name, seed):
        flat[position : position + values.size] = torch.from_numpy(factor * values)
        position += values.size


def random_values(shape: tuple[int, ...], name: str, seed: int) -> Iterator[Any]:
    """The values of the parameter `name`, float32, in pieces."""
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    left = int(np.prod(shape, dtype=np.int64))
    while left:
        values = generator.standard_normal(min(left, _CHUNK), dtype=np.float32)
        left -= values.size
        if len(shape) > 1:
            values *= float(np.prod(shape[1:])) ** -0.5
        elif name.endswith("weight"):
            values = 1.0 + 0.1 * values
        else:
            values *= 0.02
        yield values
