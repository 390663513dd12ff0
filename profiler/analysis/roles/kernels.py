"""What the name of a kernel that torch.compile wrote says: it fuses several operators.

Such kernels list the operations that they fuse, in their own alphabet:

    triton_per_fused__to_copy_add_addmm_mean_mul_pow_rsqrt_transpose_view_8

Matrix products, convolutions and attention in such a name are where the kernel's input comes
from: Triton kernels of these sorts (`poi`, `red`, `per`) compute none. `tem` kernels do.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from profiler.analysis.roles.operations import Sort, operation_of

__all__ = ["FusedKernel", "fused_kernel"]

# Compiled when a kernel is first asked about: runs on CPUs have none.
_COMPILED = (
    r"(?:triton_(poi|red|per|tem|for|spl|mm|fla)|(?:graph_\d+_)?cpp)_(?:fused_)?(.*?)(?:_\d+)?…?$"
)
_LONG = (
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_cudnn_attention",
    "scaled_dot_product_attention",
    "_upsample_nearest_exact2d",
    "_unsafe_index",
    "_unsafe_view",
    "_to_copy",
    "_log_softmax",
    "_softmax",
    "_adaptive_avg_pool2d",
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_fused_rms_norm",
    "split_with_sizes",
    "constant_pad_nd",
    "repeat_interleave",
    "upsample_nearest2d",
    "upsample_bilinear2d",
    "max_pool2d_with_indices",
    "convert_element_type",
    "select_scatter",
    "slice_scatter",
    "view_as_complex",
    "view_as_real",
    "index_select",
    "index_put",
    "masked_fill",
    "avg_pool2d",
    "full_like",
    "ones_like",
    "zeros_like",
    "clamp_min",
    "clamp_max",
    "bitwise_not",
    "bitwise_and",
    "logical_not",
    "logical_and",
    "linalg_vector_norm",
    "moe_forward_shared",
    "moe_forward",
    "unified_attention_with_output",
    "expand_as",
)
_WORD = "|".join([*_LONG, "[a-z][a-z0-9]*"])
_EXTERN = (Sort.MATMUL, Sort.CONVOLUTION, Sort.ATTENTION)
_MOVES = (Sort.LAYOUT, Sort.IDENTITY)
_CUSTOM = ("moe_forward_shared", "moe_forward", "unified_attention_with_output")  # of vLLM


class FusedKernel(Struct, frozen=True):
    """A kernel that torch.compile wrote: its operations by name, without those that only gave it
    its input, whose sorts are in `after`. `arithmetic` are the words that move no data;
    `foreach` is whether it works on a list of tensors."""

    words: frozenset[str]
    sorts: frozenset[Sort]
    after: frozenset[Sort]
    arithmetic: frozenset[str]
    foreach: bool


@lru_cache(maxsize=1 << 14)
def fused_kernel(name: str) -> FusedKernel | None:
    """What a kernel of torch.compile (Triton's, or C++ for the CPU) fuses, None for every other
    name."""
    match = re.match(_COMPILED, name)
    if match is None:
        return None
    found = [operation_of(word) for word in re.findall(_WORD, match[2])]
    template = match[1] in ("tem", "mm", "fla")
    found = [o for o in found if o.word not in _CUSTOM]
    given = [o for o in found if not template and o.sort in _EXTERN and o.word != "_softmax"]
    kept = [o for o in found if o not in given]
    return FusedKernel(
        frozenset(o.word for o in kept),
        frozenset(o.sort for o in kept),
        frozenset(o.sort for o in given),
        frozenset(o.word for o in kept if o.sort not in _MOVES),
        match[1] == "for",
    )
