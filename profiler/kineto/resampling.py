"""The result of an upsampling, which torch's events do not have: from its input and arguments.

    resampled_dims("aten::upsample_nearest2d", [1, 256, 64, 64], [None, [128, 128], None, None])
    → (1, 256, 128, 128)

Source: torch's `native_functions.yaml` (`output_size` stands behind the input).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["is_resampling", "resampled_dims"]

_OPERATORS = frozenset(
    f"aten::{name}"
    for name in (
        *(f"upsample_nearest{rank}d" for rank in (1, 2, 3)),
        *(f"_upsample_nearest_exact{rank}d" for rank in (1, 2, 3)),
        *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"),
        *("upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
    )
)


def is_resampling(operator: str) -> bool:
    """Whether `resampled_dims` knows the operator."""
    return operator in _OPERATORS


def resampled_dims(
    operator: str, dims: Sequence[int], arguments: Sequence[Any]
) -> tuple[int, ...] | None:
    """Dims of what `operator` makes of an input of these `dims`, None where they do not follow: an
    overload takes factors. `arguments` are its values as `convolution.argument_values` reads
    them."""
    sizes = arguments[1] if len(arguments) > 1 else None
    if operator not in _OPERATORS or not isinstance(sizes, list) or len(sizes) != len(dims) - 2:
        return None
    if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes):
        return None
    return (*dims[:2], *sizes)
