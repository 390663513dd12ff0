"""What the name of a GPU kernel says, where no operator is known or the kernel fuses several.

Kernels that torch.compile wrote list the operations that they fuse, in their own alphabet:

    triton_per_fused__to_copy_add_addmm_mean_mul_pow_rsqrt_transpose_view_8

Matrix products, convolutions and attention in such a name are where the kernel's input comes
from: Triton kernels of these sorts (`poi`, `red`, `per`) compute none. `tem` kernels do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from profiler.analysis.roles.operations import Operation, Sort, operation_of

__all__ = ["FusedKernel", "fused_kernel", "kernel_operation"]

_COMPILED = re.compile(
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
    "expand_as",
)
_WORD = re.compile("|".join([*_LONG, "[a-z][a-z0-9]*"]))
_EXTERN = (Sort.MATMUL, Sort.CONVOLUTION, Sort.ATTENTION)

# Vendors' kernels by their libraries' naming: cuBLAS and CUTLASS, hipBLASLt and Tensile (`Cijk_`),
# CK, cuDNN, MIOpen, FlashAttention, AITER, ATen's own.
_KERNELS: tuple[tuple[str, str], ...] = (
    (r"flash|fmha|attn|attention|sdpa|_mha_|mha_fwd|fav3|fa2_|fa3_", "sdpa"),
    (r"rotary|rope", "rope"),
    (r"rms_?norm", "rms_norm"),
    (r"group_?norm|RowwiseMoments|ComputeFusedParams", "group_norm"),
    (r"layer_?norm", "layer_norm"),
    (r"batch_?norm|bn_fw|BatchNorm", "batch_norm"),
    (r"softmax", "softmax"),
    (r"nchwToNhwc|nhwcToNchw|batched_transpose|[Tt]ranspose|CatArray|copy|Copy", "copy"),
    (r"[Ii]m2(d2)?[Cc]ol", "im2col"),
    (
        r"[Cc]onv|fprop|scudnn|winograd|igemm_fwd|naive_conv",
        "conv2d",
    ),
    (r"upsample|resize|interpolate|avg_?pool|max_?pool", "upsample"),
    (r"indexSelect|embedding|index_elementwise|gather", "embedding"),
    (
        r"gemm|Gemm|GEMM|Cijk_|cublas|cutlass|nvjet|gemv|splitK|matmul|MatMul|wmma|dot_kernel|_mm_",
        "matmul",
    ),
    (r"gelu|silu|GeluC|swiglu|act_and_mul|relu", "gelu"),
    (r"CUDAFunctor_add|AddFunctor|add_kernel", "add"),
    (r"MulFunctor|mul_kernel", "mul"),
)
_PATTERNS = tuple((re.compile(pattern), word) for pattern, word in _KERNELS)


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A kernel that torch.compile wrote: its operations by name, without those that only gave it
    its input; `reduces` tells a reduction from a pointwise kernel."""

    words: frozenset[str]
    sorts: frozenset[Sort]
    reduces: bool


@lru_cache(maxsize=1 << 14)
def fused_kernel(name: str) -> FusedKernel | None:
    """What a kernel of torch.compile (Triton's, or C++ for the CPU) fuses, None for every other
    name."""
    match = _COMPILED.match(name)
    if match is None:
        return None
    found = [operation_of(word) for word in _WORD.findall(match[2])]
    template = match[1] in ("tem", "mm", "fla")
    kept = [o for o in found if template or o.sort not in _EXTERN or o.word == "_softmax"]
    return FusedKernel(
        frozenset(o.word for o in kept),
        frozenset(o.sort for o in kept),
        match[1] in ("red", "per", "spl"),
    )


@lru_cache(maxsize=1 << 14)
def kernel_operation(name: str) -> Operation:
    """The operation of a library's kernel by its name; of sort UNKNOWN where no rule fits."""
    for pattern, word in _PATTERNS:
        if pattern.search(name):
            return operation_of(word)
    return Operation(name, Sort.UNKNOWN)
