"""LayerNorms without affine parameters, with ones and zeros while they are exported.

Exporters give such a norm no bias, or an unnamed one, which some compilers refuse. Times one and
plus zero changes nothing in inference.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["with_affine_layer_norms"]


@contextmanager
def with_affine_layer_norms(module: Any, dtype: Any, *, fix: bool = True) -> Iterator[int]:
    """Within the block every LayerNorm of `module` has scale and bias; yields how many lacked one.

    They are put back as they were. Nothing changes where `fix` is false.
    """
    import torch

    lacking = [
        (norm, name)
        for norm in module.modules()
        if isinstance(norm, torch.nn.LayerNorm)
        for name in ("weight", "bias")
        if fix and getattr(norm, name) is None
    ]
    for norm, name in lacking:
        fill = torch.ones if name == "weight" else torch.zeros
        given = norm.bias if name == "weight" else norm.weight
        kept = dtype if given is None else given.dtype
        values = fill(norm.normalized_shape, dtype=kept)
        setattr(norm, name, torch.nn.Parameter(values, requires_grad=False))
    try:
        yield len({id(norm) for norm, _ in lacking})
    finally:
        for norm, name in lacking:
            setattr(norm, name, None)
