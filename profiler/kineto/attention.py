"""Whether an attention operator masks causally, which its arguments tell and its shapes do not.

    is_causal("aten::scaled_dot_product_attention", [None, None, None, None, 0.0, True])    → True

Source: torch's `native_functions.yaml`, the flash-attention package's `flash_attn_interface.py` and
aiter's `aiter/ops/mha.py` (order of the arguments).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from profiler.kineto.convolution import argument_values

__all__ = ["CAUSAL_PLACES", "causal_mark", "is_attention", "is_causal"]

CAUSAL_PLACES = {
    "aten::scaled_dot_product_attention": 5,
    "aten::_scaled_dot_product_attention_math": 5,
    "aten::_scaled_dot_product_flash_attention": 4,
    "aten::_scaled_dot_product_flash_attention_for_cpu": 4,
    "aten::_scaled_dot_product_efficient_attention": 6,
    "aten::_scaled_dot_product_cudnn_attention": 6,
    "aten::_scaled_dot_product_fused_attention_overrideable": 5,
    "aten::_flash_attention_forward": 8,
    "aten::_cudnn_attention_forward": 10,
    "aten::_efficient_attention_forward": 9,  # custom_mask_type: 1 and 2 are causal
    "flash_attn::_flash_attn_forward": 5,
    "aiter::mha_batch_prefill": 12,
}
"""Where an operator says it, by its name."""


def is_attention(operator: str) -> bool:
    """Whether `is_causal` knows the operator."""
    return operator in CAUSAL_PLACES


def is_causal(operator: str, arguments: Sequence[Any]) -> bool:
    """Whether the operator's scores lie below the diagonal; False where it does not tell.
    `arguments` are its values as `convolution.argument_values` reads them."""
    place = CAUSAL_PLACES.get(operator, len(arguments))
    return place < len(arguments) and arguments[place] in (True, 1, 2)


def causal_mark(operator: str, printed: bytes | msgspec.Raw) -> str:
    """What the text of the operator's shapes ends in: " causal", or nothing. `printed` is the
    event's "Concrete Inputs"."""
    try:
        return " causal" if is_causal(operator, argument_values(printed)) else ""
    except (ValueError, TypeError):  # DecodeError is a ValueError
        return ""
