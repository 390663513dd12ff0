"""What kernels of libraries are for, by their names alone.

Names tell what a kernel computes, seldom where in a model: a product has the role `matmul`,
arithmetic `elementwise`, whatever they are part of. The rules are in order, the first that fits
speaks; those of a function come before those of its template arguments, which decide for the
functions that run anything (`elementwise_kernel`, `cutlass::Kernel`, `ck_tile::kentry`).

Conventions: cuBLAS and CUTLASS (`sgemm`, `nvjet`, `xmma`), hipBLASLt and Tensile (`Cijk_`), cuDNN
(`scudnn`, `bn_fw`, `dgrad`), MIOpen and CK (`igemm_fwd`, `grouped_conv`), FlashAttention, AITER,
FlashInfer, vLLM, SGLang, FBGEMM, llama.cpp, ATen, CUB and rocPRIM, NCCL and RCCL.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from profiler.analysis.roles.kernel_names import parse_kernel

__all__ = ["LibraryKernel", "library_kernel", "writes_cache"]


class LibraryKernel(Struct, frozen=True):
    """A kernel's role; `norm_kind` of norms, "" where the name does not tell."""

    role: str
    norm_kind: str = ""


_Rules = tuple[tuple[str, str], ...]  # pattern, which `re` compiles when it is first asked; role

_ATTENTION = (
    r"flash(?!infer)|fmha|attn|attention|sdpa|(?<![a-z])mha_|fav3|(?<![a-z])fa[23]_"
    r"|(?<![a-z])sage|(paged|ragged)kvcache|(single|batch)(prefill|decode)|(?<![a-z])mla(?![a-z])"
    r"|gated_?delta|(?<![a-z])(lightning|linear)_?attn"  # linear attention
    r"|(?<![a-z])_fwd_(grouped_)?kernel(_stage\d)?$|reduce_segments|merge_?states"
)
_NORM = (
    r"(rms|layer|group|batch|instance)_?norm|(?<![a-z])bn_?(fw|bw)|rowwisemoments|gammabeta"
    r"|computefusedparams|computeinternalgradients|computebackwardfusedparams|(?<![a-z])ln_(f|b)wd"
    r"|(?<![a-z])qk_?norm"
)
_CONVOLUTION = (
    r"conv(?!er[st])|[dw]grad|fprop|scudnn|winograd|igemm_(fwd|bwd|wrw|v4r)|implicit_?gemm|miopen"
    r"|im2(d2)?col|col2im|(cask|cutlass)_cudnn|fft2d"  # parts of cuDNN's convolutions
)
_PRODUCT = (
    r"(?<!fb)gemm|gemv|mat_?mul|mul_?mat|cijk_|cublas|cutlass|nvjet|split_?k|wmma|dot_kernel"
    r"|(?<![a-z])(b|add|q)?mm(?![a-z])|marlin"
)
_OPTIMIZER = r"(?<![a-z])(fused_?)?(adam|adamw|sgd|lamb|lion|adagrad|adafactor|rmsprop)(?![a-z])"

_CACHE = r"(store|write|copy|reshape_and|concat_and|append).*cache"
_GATED = (  # stands in no part but a gated mlp
    r"act_and_mul|unary_gated_op|swi?glu|geglu|(silu|gelu)_and_mul"
)

_FUNCTIONS: _Rules = (
    (r"^(nccl|rccl|msccl)|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all", "collective"),
    (r"cross_device_reduce|nvshmem|(?<![a-z])c10d|param_comms", "collective"),
    (r"^mem(cpy|set)\b|_foreach_(copy|zero)", "data_movement"),
    (_CACHE + "|kv_indices", "data_movement"),
    (r"(?<![a-z])moe|routing|bitmatrix|^_topk_forward|topk_?(softmax|gating)", "mlp"),  # experts
    (r"(?<![a-z])(cub|rocprim|hipcub|thrust)::", "other"),  # of samplers, or of indices
    (r"split_embedding|bounds_check_indices|linearize_index", "embedding"),  # tables of FBGEMM
    (_OPTIMIZER + r"|(?<![a-z])_foreach_|optimizer", "optimizer"),
    (r"log_?softmax|cross_?entropy|nll_?loss|nllcriterion|_loss", "elementwise"),
    (_ATTENTION + "|soft_?max", "attention"),
    (_NORM, "norm"),
    (r"rotary|(?<![a-z])rope", "rope"),
    (r"upsample|downsample|interpolat|resize|grid_?sampl|pool(?!ed)|pixel_?(un)?shuf", "resample"),
    (_CONVOLUTION, "convolution"),
    (_GATED, "mlp"),  # also as the last part of a product
    (_PRODUCT, "matmul"),
    (r"argm(ax|in)|top_?[kp]|multinomial|sampl|gumbel|(bitonic|radix|merge)_?sort", "sampling"),
    (r"sort_?(key|kv)|radixfindkth|(?<![a-z])min_p(?![a-z])", "sampling"),
    (r"embedding|indexselect|vectorized_gather|get_rows", "embedding"),
    (r"to_?(nhwc|nchw)|transpose|permute|catarray|(?<![a-z])cat_|concat|copy", "data_movement"),
    (
        r"(?<!broad)(?<!(?<![a-z])b)cast|convert|quant|fp8|qparam|index_|gather|scatter|reorder",
        "data_movement",
    ),
    (r"(?<![a-z])(cpy|pad|flip|roll|tril|triu|repeat|fill)|compute_cuda", "data_movement"),
)
# Compiled when a kernel is first asked about: runs on CPUs have none.
_WRITES_CACHE = rf"(?i)(?:^|::|\s){_CACHE}[a-z_]*$"
_ARITHMETIC = (
    r"(?i)elementwise|pointwise|unary_op|binary_op|reduce|dropout|random|tensor_?op|op\d?d?_?tensor|scale|bias|clamp|relu"
    r"|gelu|silu|sigmoid|tanh|threshold|arange|bernoulli|bcast|(?<![a-z])(add|mul|sub|div|exp|pow"
    r"|scal|axpy|neg|sum|mean|where|sqrt|rsqrt|sin|cos|log|max|min|norm|erf|abs|normal|uniform)"
    r"(?![a-z])"
)
_OF_ANYTHING = r"(?i)(^|::)(device_)?kernel2?$|kentry$|kernel_entry$|globalkernel$"
_WRAPPED: _Rules = (  # the arguments of a function that runs anything
    (r"moe", "mlp"),
    (_ATTENTION, "attention"),
    (_NORM, "norm"),
    (_CONVOLUTION, "convolution"),
    (_PRODUCT, "matmul"),
)
_FUNCTORS: _Rules = (  # of ATen's elementwise kernels and reductions
    (r"copyfunctor|copy_kernel|copy_device_to_device|hfp8|quantiz|fillfunctor", "data_movement"),
    (r"index_(put_)?kernel_impl|tensorassign|(flip|roll)_", "data_movement"),
    (r"argm(ax|in)ops|exponential", "sampling"),
)
_OF_FUNCTORS = r"(^|::)(\w*elementwise_(kernel|grid_stride)\w*|reduce_kernel)"
_COPIES = r"CopyFunctor|native::Copy<"
_LOG_SOFTMAX = r"<[^,]*,[^,]*,[^,]*, *\d+, *true|LogSoftMax"
_INDICES = r"<(long|int|short|bool|unsigned)"
_NORM_KINDS: _Rules = (
    (r"rms_?norm|qk_?norm", "RMSNorm"),
    (r"group_?norm|computefusedparams", "GroupNorm"),
    (r"batch_?norm|bn_?(fw|bw)", "BatchNorm"),
    (r"instance_?norm", "InstanceNorm"),
    (r"layer_?norm|gammabeta|ln_(f|b)wd", "LayerNorm"),
)


def writes_cache(op_type: str) -> bool:
    """Whether an operation's name says that it writes to a cache of keys and values:
    `sglang::store_cache`, `vllm::reshape_and_cache_flash`."""
    return re.search(_WRITES_CACHE, op_type) is not None


@lru_cache(maxsize=1 << 14)
def library_kernel(name: str) -> LibraryKernel | None:
    """What a library's kernel is for by its name, whole or cut; None where no rule fits."""
    parsed = parse_kernel(name)
    role = _role(parsed.function, parsed.arguments)
    if not role:
        return None
    return LibraryKernel(role, _first(_NORM_KINDS, name) if role == "norm" else "")


def _role(function: str, arguments: str) -> str:
    if function.removesuffix("_kernel").endswith("multi_tensor_apply"):  # a list of tensors at once
        return "data_movement" if re.search(_COPIES, arguments) else "optimizer"
    if re.search(_OF_ANYTHING, function) and (role := _first(_WRAPPED, function + arguments)):
        return role
    if re.search(_OF_FUNCTORS, function):
        return _first(_FUNCTORS, arguments) or "elementwise"
    role = _first(_FUNCTIONS, function)
    if role == "attention" and re.match(_LOG_SOFTMAX, arguments):
        role = "elementwise"  # of a loss
    elif "indexSelect" in function and re.match(_INDICES, arguments):
        role = "data_movement"  # no table of vectors
    return role or ("elementwise" if re.search(_ARITHMETIC, function) else "")


def _first(rules: _Rules, text: str) -> str:
    found = (value for pattern, value in rules if re.search(pattern, text, re.IGNORECASE))
    return next(found, "")
