"""Parse kernel names and op types: which operation a kernel of a library or compiler runs.

    void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, ...>(...)
    triton_per_fused__to_copy_add_addmm_mean_mul_pow_rsqrt_transpose_view_8

Names say what a kernel computes and seldom its place in a model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache

from msgspec import Struct, structs

from profiler.grammars.names import parse_name

# --- The parts of a kernel's name: the function, and the template arguments that say what it is of.
#
#     void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, …>(int, …)
#          function                                  arguments
#     _ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelI…
#
# C++ names come demangled or as the compiler wrote them (Itanium ABI, section 5.1); names of other
# languages are a function without arguments. Names may have been cut.


_NESTED = re.compile(r"_ZN?K?(?=\d)")
_LENGTH = re.compile(r"\d+")
_SUFFIX = re.compile(r"\s*\[clone [^\]]*\]$|\.kd$|…$")
_ANONYMOUS = "(anonymous namespace)::"
_NO_CODE = re.compile(r"Mem(cpy|set)\b")  # what runtimes do themselves, in words


class KernelName(Struct, frozen=True):
    """`function` with its namespaces, without return type; `arguments` of its template and its
    call as they stand in the name, "" if it has none."""

    function: str
    arguments: str = ""


def parse_kernel(name: str) -> KernelName:
    """Function and arguments of a kernel by its name, whole or cut."""
    text = _SUFFIX.sub("", name.strip()).replace(_ANONYMOUS, "")
    if text.startswith("_Z"):
        return _mangled(text)
    if _NO_CODE.match(text):
        return KernelName(text)
    depth, begin, end = 0, 0, len(text)
    for at, character in enumerate(text):
        if character == "<":
            if depth == 0:
                end = min(end, at)
            depth += 1
        elif character == ">":
            depth = max(depth - 1, 0)
        elif depth == 0 and character == " ":  # what stood before is the type that it returns
            begin, end = at + 1, len(text)
        elif depth == 0 and character == "(" and at > begin:
            end = min(end, at)
            break
    return KernelName(text[begin:end], text[end:])


def _mangled(text: str) -> KernelName:
    """`_ZN5aiter24add_rmsnorm_quant_kernelIDF16b…` → `aiter::add_rmsnorm_quant_kernel`: names
    with their lengths, until template arguments (I) or the end (E) come."""
    opening = _NESTED.match(text)
    if opening is None:
        return KernelName(text)
    at = opening.end()
    parts: list[str] = []
    while (length := _LENGTH.match(text, at)) is not None:
        at = length.end() + int(length[0])
        parts.append(text[length.end() : at])
    return KernelName("::".join(parts), text[at:])


# --- What kernels of libraries are for, by their names alone.
#
# Names say what a kernel computes, seldom its place in a model: a product has the role `matmul`,
# arithmetic `elementwise`, whatever they are part of. The rules are in order, and the first match
# decides; those of a function come before those of its template arguments, which decide for the
# functions that run anything (`elementwise_kernel`, `cutlass::Kernel`, `ck_tile::kentry`).
#
# Conventions: cuBLAS and CUTLASS (`sgemm`, `nvjet`, `xmma`), hipBLASLt and Tensile (`Cijk_`), cuDNN
# (`scudnn`, `bn_fw`, `dgrad`), MIOpen and CK (`igemm_fwd`, `grouped_conv`), FlashAttention, AITER,
# FlashInfer, vLLM, SGLang, FBGEMM, llama.cpp, ATen, CUB and rocPRIM, NCCL and RCCL.


class LibraryKernel(Struct, frozen=True):
    """A kernel's role; `norm_kind` of norms, "" if the name does not say."""

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
_OPTIMIZER = (
    r"(?<![a-z])((?:fused|apply)_?)?(adam|adamw|sgd|lamb|lion|adagrad|adafactor|rmsprop)(?![a-z])"
)
_CACHE = r"(store|write|copy|reshape_and|concat_and|append).*cache"
_GATED = (  # stands in no part but a gated mlp
    r"act_and_mul|unary_gated_op|swi?glu|geglu|(silu|gelu)_and_mul"
)
_RANDOM = (
    r"philox|(?<![a-z])(cu|roc)rand|(?<![a-z])(stateless)?random_?(standard)?_?(normal|uniform|int)"
    r"|(?<![a-z])rng_?(bit|uniform)|truncated_?normal"
)
_ROUTER = (
    r"routing|bitmatrix|^_topk_forward|topk_?(softmax|sigmoid|gating)|(grouped|fused)_?topk"
    r"|moe_?(fused_?)?(align|gat(e|ing)|topk)"
)

_FUNCTIONS: _Rules = (
    (r"^(nccl|rccl|msccl|hccl|xccl|hcom_)", "collective"),
    (r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all", "collective"),
    (r"cross_device_reduce|nvshmem|(?<![a-z])c10d|param_comms", "collective"),
    (r"^mem(cpy|set)\b|_foreach_(copy|zero)", "data_movement"),
    (_CACHE + "|kv_indices", "data_movement"),
    (_RANDOM, "random"),
    (_ROUTER, "router"),
    (r"(?<![a-z])moe", "mlp"),  # experts
    (r"(?<![a-z])(cub|rocprim|hipcub|thrust)::", "other"),  # of samplers, or of indices
    (r"split_embedding|bounds_check_indices|linearize_index", "embedding"),  # tables of FBGEMM
    (_OPTIMIZER + r"|(?<![a-z])_foreach_|^foreach(add|mul|div|sub)|optimizer", "optimizer"),
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
    (r"(normal|uniform|bernoulli\w*|random\w*)_kernel", "random"),
)
_OF_FUNCTORS = r"(^|::)(\w*elementwise_(kernel|grid_stride)\w*|reduce_kernel)"
_COPIES = r"CopyFunctor|native::Copy<"
_LOG_SOFTMAX = r"<[^,]*,[^,]*,[^,]*, *\d+, *true|LogSoftMax"
_INDICES = r"<(long|int|short|bool|unsigned)"
_NORM_PATTERNS: _Rules = (
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


_LONGEST = 20_000  # characters of a name that are looked at: compilers write some thousands


@lru_cache(maxsize=1 << 14)
def library_kernel(name: str) -> LibraryKernel | None:
    """What a library's kernel is for by its name, whole or cut; None if no rule fits."""
    if not name:  # before the rules are compiled: runs on CPUs name no kernel
        return None
    name = name[:_LONGEST]
    parsed = parse_kernel(name)
    role = _role(parsed.function, parsed.arguments)
    norm_kind = _first(_NORM_PATTERNS, name) if role == "norm" else ""
    return LibraryKernel(role, norm_kind) if role else None


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
    return next((value for pattern, value in rules if re.search(pattern, text, re.I)), "")


# --- What an op type says by itself: one word for an operation, whatever its producer, and its
# sort.
#
#     aten::linear, aten::addmm, Gemm, FusedMatMul, MatMulNBits → matmul
#     aten::_to_copy, Cast                                      → cast (moves data)
#
# `Sort` is what operations have in common whose place in the model decides what they are for.


class Sort(Enum):
    """Sort of an operation, whatever its place in a model."""

    MATMUL = "matmul"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"  # fused, or the softmax, which nothing else has here
    NORM = "norm"
    EMBEDDING = "embedding"
    RESAMPLE = "resample"
    ROPE = "rope"
    ACTIVATION = "activation"
    ARITHMETIC = "arithmetic"
    LAYOUT = "layout"  # reshapes, copies, slices: no arithmetic
    REORDER = "reorder"  # a copy that a runtime inserted for itself
    IDENTITY = "identity"
    UNKNOWN = "unknown"


class Operation(Struct, frozen=True):
    """An op type's word and sort; `norm_kind` of what is a norm by itself, else ""."""

    word: str
    sort: Sort
    norm_kind: str = ""


_WORDS: Mapping[Sort, str] = {
    Sort.MATMUL: """linear matmul mm addmm bmm baddbmm addbmm addmv mv dot gemm fused_mat_mul
        mat_mul fused_gemm mat_mul_integer mat_mul_integer_to_float q_linear_mat_mul mat_mul_n_bits
        einsum mat_mul_bnb4 transpose_mat_mul fused_dense _scaled_mm _int_mm _weight_int8pack_mm
        gemv mkldnn_linear matrix_multiply cask_gemm gemm_v2 fully_connected
        dynamic_quantize_mat_mul dense dynamic_matmul bilinear linear_dynamic linear_relu
        linear_relu_dynamic linear_dynamic_fp16 linear_relu_dynamic_fp16 mat_mul8bit_fp
        mat_mul8bit_lt mat_mul4_bit gemm_4bit gemv_4bit int8_linear_matmul int8_mixed_scaled_mm
        _weight_int4pack_mm _weight_int4pack_mm_for_cpu""",
    Sort.CONVOLUTION: """conv conv1d conv2d conv3d convolution _convolution cudnn_convolution
        miopen_convolution mkldnn_convolution conv_transpose conv_transpose2d conv_transpose3d
        fused_conv nhwc_conv q_linear_conv conv_integer convolution_overrideable conv_tbc
        cudnn_convolution_add_relu cudnn_convolution_relu thnn_conv2d slow_conv2d_forward
        _slow_conv2d_forward miopen_depthwise_convolution _conv_depthwise2d conv_depthwise3d
        slow_conv3d slow_conv3d_forward cask_convolution cublas_convolution deconvolution
        cask_deconvolution cask_flattened_convolution cask_gemm_convolution""",
    Sort.ATTENTION: """scaled_dot_product_attention _scaled_dot_product_flash_attention
        _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention
        _scaled_dot_product_cudnn_attention _flash_attention_forward _efficient_attention_forward
        _cudnn_attention_forward _scaled_dot_product_attention_math flash_attn_fwd softmax
        _softmax _safe_softmax multi_head_attention fused_attention group_query_attention attention
        packed_attention packed_multi_head_attention decoder_masked_multi_head_attention sdpa
        paged_attn paged_attn_prefill paged_attention dynamic_window_softmax
        bias_softmax cuda_soft_max soft_max sage_attn flash_fwd fmha_fwd flex_attention q_attention
        sparse_attention relative_position_bias gated_relative_position_bias q_linear_softmax""",
    Sort.RESAMPLE: """resize upsample upsample_nearest1d upsample_nearest2d upsample_nearest3d
        upsample_bilinear2d upsample_bicubic2d upsample_linear1d upsample_trilinear3d interpolate
        _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d pixel_shuffle
        _upsample_bilinear2d_aa _upsample_bicubic2d_aa grid_sample grid_sampler grid_sampler_2d
        avg_pool2d max_pool2d average_pool max_pool adaptive_avg_pool2d global_average_pool
        pixel_unshuffle depth_to_space space_to_depth pooling cask_pooling cuda_pooling
        cudnn_pooling tiled_pooling q_linear_average_pool q_linear_global_average_pool""",
    Sort.EMBEDDING: "embedding embedding_bag embed_layer_normalization",
    Sort.ROPE: "rotary_embedding apply_rotary_pos_emb rope fused_rope",
    Sort.ACTIVATION: """gelu silu relu leaky_relu elu selu tanh sigmoid erf mish hardswish
        hard_swish quick_gelu fast_gelu bias_gelu bias_split_gelu softplus glu swish prelu celu
        hard_sigmoid log_sigmoid relu6 hardtanh silu_and_mul gelu_and_mul geglu swiglu
        bias_add_gelu q_linear_sigmoid q_linear_leaky_relu""",
    Sort.ARITHMETIC: """add sub mul div neg abs pow sqrt rsqrt reciprocal exp log sin cos mean sum
        reduce_mean reduce_sum reduce_max reduce_min square square_difference maximum minimum min
        max where equal eq ne gt lt ge le greater less greater_or_equal less_or_equal not and or xor
        clamp clamp_min clamp_max clip outer floor ceil round mod remainder is_na_n isnan is_inf
        full full_like ones zeros ones_like zeros_like fill arange range argmax arg_max argmin
        cumsum cum_sum rand randn rand_like randn_like randint randperm random normal uniform
        bernoulli random_normal random_normal_like random_uniform random_uniform_like logical_or
        linalg_vector_norm norm lerp addcmul addcdiv lift_fresh is_nonzero empty sign atan2 polar
        complex reduce_l2 bias_add scale bias_dropout any all index_put masked_fill constant
        constant_of_shape trilu triu tril item _local_scalar_dense bitwise_not logical_not
        logical_and bitwise_and detach empty_like new_zeros new_ones new_full q_linear_add
        q_linear_mul real_div reduce_sum_d lp_norm_update_v2 greater_equal muls adds zero""",
    Sort.LAYOUT: """to _to_copy cast type_as view reshape _reshape_alias _unsafe_view flatten
        unflatten permute transpose t contiguous clone copy cat concat concatenate split take no_op
        split_with_sizes chunk slice select narrow unsqueeze squeeze expand expand_as repeat
        repeat_interleave tile stack unbind pad roll flip gather gather_nd scatter non_zero lift
        scatter_nd index index_select slice_scatter select_scatter alias detach_ shape size
        sym_size as_strided real imag view_as_complex view_as_real movedim swapaxes rearrange
        constant_pad_nd unfold fold hstack vstack dynamic_slice dynamic_concat strided_slice_d
        dynamic_insert dynamic_transpose dynamic_reshape copy_from copy_to reflection_pad2d
        replication_pad2d col2im im2col shuffle padding q_linear_concat broadcast_to gather_v2""",
    Sort.REORDER: """reorder_input reorder_output reformat memcpy_to_host memcpy_from_host memcpy
        memset trans_data quantize_linear dequantize_linear dynamic_quantize_linear quantize_affine
        dequantize_affine choose_qparams_affine quantize_per_tensor quantize_per_tensor_dynamic
        quantize_per_channel dequantize""",
    Sort.IDENTITY: "dropout identity feature_dropout alpha_dropout native_dropout",
}
_SORTS = {word: sort for sort, words in _WORDS.items() for word in words.split()}
_NORMS = {
    "LayerNorm": """layer_norm native_layer_norm layer_normalization skip_layer_normalization
        skip_layer_norm simplified_layer_norm layernorm fused_layer_norm""",
    "RMSNorm": """rms_norm _fused_rms_norm simplified_layer_normalization rms_normalization
        skip_simplified_layer_normalization skip_rms_norm rmsnorm fused_add_rms_norm""",
    "GroupNorm": """group_norm native_group_norm group_normalization skip_group_norm groupnorm
        _groupnorm_run""",
    "BatchNorm": """batch_norm native_batch_norm batch_normalization _batch_norm_impl_index
        cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit_no_training""",
    "InstanceNorm": "instance_norm instance_normalization",
}
_NORM_WORDS = {word: kind for kind, words in _NORMS.items() for word in words.split()}
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBERED = re.compile(r"(_\d+)+$")
_TYPED = re.compile(r"_(fp16|bf16|fp32|fp8|int8|int4)$")


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


@lru_cache(maxsize=1 << 16)
def operation_of(op_type: str) -> Operation:
    """The operation that an op type names: of torch (`aten::add_`), ONNX (`LayerNormalization`)
    or RBLN (`dynamic_matmul_fp16`); of sort UNKNOWN if it is none of those."""
    word = word_of(op_type)
    if word in _NORM_WORDS:
        return Operation(word, Sort.NORM, _NORM_WORDS[word])
    return Operation(word, _SORTS.get(word, Sort.UNKNOWN))


def word_of(op_type: str) -> str:
    """`aten::add_` → `add`, `FusedMatMul` → `fused_mat_mul`, `dense_fp16` → `dense`."""
    name = op_type.rsplit("::", 1)[-1].split(".", 1)[0]
    if not name.islower():
        name = _CAMEL.sub("_", name).lower()
    for short in (name, _NUMBERED.sub("", name)):
        bare = _TYPED.sub("", short)
        for word in (short, short.rstrip("_"), bare, bare.removeprefix("dynamic_")):
            if word in _SORTS or word in _NORM_WORDS:
                return word
    return name


# --- What the name of a kernel that torch.compile wrote says: it fuses several operators.
#
# Such kernels list the operations that they fuse, in their own alphabet:
#
#     triton_per_fused__to_copy_add_addmm_mean_mul_pow_rsqrt_transpose_view_8
#
# Matrix products, convolutions and attention in such a name are where the kernel's input comes
# from: Triton kernels of these sorts (`poi`, `red`, `per`) compute none. `tem` kernels do.


# Compiled when a kernel is first asked about: runs on CPUs have none.
_COMPILED = (
    r"(?:triton_(poi|red|per|tem|for|spl|mm|fla)|(?:graph_\d+_)?cpp)_(?:fused_)?(.*?)(?:_\d+)?…?$"
)
# Names of several words; one that starts like another one stands before it.
_LONG = """_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_flash_attention _scaled_dot_product_cudnn_attention
    scaled_dot_product_attention _upsample_nearest_exact2d _unsafe_index _unsafe_view _to_copy
    _log_softmax _softmax _adaptive_avg_pool2d native_layer_norm native_group_norm
    native_batch_norm _fused_rms_norm split_with_sizes constant_pad_nd repeat_interleave
    upsample_nearest2d upsample_bilinear2d max_pool2d_with_indices convert_element_type
    select_scatter slice_scatter view_as_complex view_as_real index_select index_put masked_fill
    avg_pool2d full_like ones_like zeros_like clamp_min clamp_max bitwise_not bitwise_and
    logical_not logical_and linalg_vector_norm moe_forward_shared moe_forward
    unified_attention_with_output expand_as"""
_WORD = "|".join([*_LONG.split(), "[a-z][a-z0-9]*"])
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
    """What a kernel of torch.compile (Triton's, or C++ for the CPU) fuses, None for other names."""
    match = re.match(_COMPILED, name)
    if match is None:
        return None
    template = match[1] in ("tem", "mm", "fla")
    operations = map(operation_of, re.findall(_WORD, match[2]))
    found = [o for o in operations if o.word not in _CUSTOM]
    given = [o for o in found if not template and o.sort in _EXTERN and o.word != "_softmax"]
    kept = [o for o in found if o not in given]
    return FusedKernel(
        frozenset(o.word for o in kept),
        frozenset(o.sort for o in kept),
        frozenset(o.sort for o in given),
        frozenset(o.word for o in kept if o.sort not in _MOVES),
        match[1] == "for",
    )


# --- Where in a model a command lies: its module path, read from the inside out.
#
# Each module on the path says what it is for, by its class, else by its name, and the innermost
# that says something decides. A class says more than a name: SD3's `norm1` is an AdaLayerNormZero,
# whose projection and arithmetic are modulation and whose inner LayerNorm is the norm.


class Purpose(Enum):
    """What a module is for. In some modules all operations have one purpose, in others it
    depends."""

    NORM = "norm"
    MODULATION = "modulation"
    EMBEDDING = "embedding"
    ROPE = "rope"
    ATTENTION = "attention"
    MLP = "mlp"
    ROUTER = "router"  # chooses the experts of a mixture
    SAMPLING = "sampling"  # chooses the next token
    CONVOLUTION = "convolution"
    RESAMPLE = "resample"
    RESNET = "resnet"
    ADAPTER = "adapter"  # beside the weights that it adapts
    HEAD = "head"  # from a language model's width to its vocabulary
    BLOCK = "block"  # adds what its parts compute to what came in


_BY_CLASS: tuple[tuple[Purpose, str], ...] = (
    (Purpose.ROUTER, r"Router|SwitchGate|(TopK|MoE|Moe|Experts?)Gat(e|ing)"),
    (Purpose.SAMPLING, r"^(TopKTopP|Rejection|TypicalAcceptance|Greedy|Token|Logits)?Sampler$"),
    (Purpose.MLP, r"Mo[Ee](Block|Layer|MLP)?$|Experts?$"),
    (Purpose.MODULATION, r"^(SD35)?Ada(Layer|Group)|NormZero|NormContinuous|Modulation"),
    (Purpose.NORM, r"[Nn]orm(\dd)?$"),
    (Purpose.HEAD, r"LMHead|^LogitsProcessor$"),
    (Purpose.ROPE, r"[Rr]ope|Rotary|^FluxPosEmbed$|^EmbedND$"),
    (Purpose.EMBEDDING, r"Embed|^Timesteps?$|TimestepProj|TextProj|ImageProj|CaptionProj"),
    (Purpose.ATTENTION, r"AttentionBlock$"),
    (Purpose.RESNET, r"^Res(net)?Block|ResidualBlock$"),
    (
        Purpose.BLOCK,
        r"^T5Layer(Self|Cross)Attention$|^T5LayerFF$|Transformer2D|Block(\dD)?$|Layer$",
    ),
    (Purpose.ATTENTION, r"Attention|Attn"),
    (Purpose.MLP, r"FeedForward|MLP|Mlp|DenseAct|DenseGated|^GEGLU$|^SwiGLU$"),
    (Purpose.CONVOLUTION, r"Conv\dd$"),
    (Purpose.RESAMPLE, r"[Uu]psample|[Dd]ownsample|Resample"),
)
_EMBEDDED = (
    "pos|patch|token|time|add|class|position|x|context|t|y|image|label|vector|time_text|timestep|"
    "guidance|text|caption|size|pixel"
)
_EMBEDDINGS = (
    "embeddings?|embed_tokens|wte|wpe|shared|(time|add_time)_proj|(img|txt|time|vector|guidance)_in|"
    "(text|visual|caption)_projection|encoder_hid_proj|proj_(in|out)|relative_attention_bias"
)
_BY_NAME: tuple[tuple[Purpose, str], ...] = (
    (
        Purpose.MODULATION,
        r"(img|txt|)_?mod(ulation)?|adaLN_modulation|time_emb_proj|scale_shift_table|adaln_\w+",
    ),
    (Purpose.ROUTER, r"(\w+_)?router(_\w+)?"),
    (Purpose.ADAPTER, r"(lora|dora|hada|lokr|oft|boft|vera|ia3)_\w+"),
    (Purpose.NORM, r"(\w+_)?norm\d*(_\w+)?|(\w+_)?layer_?norm\d*|ln_\w+|(\w+_)?layernorm"),
    (Purpose.ROPE, r"rope|rotary_emb|rotary_pos_emb|rotary"),
    (Purpose.HEAD, r"lm_head|logits_processor"),
    (Purpose.EMBEDDING, rf"({_EMBEDDED})_embed(der|ding|dings)?|{_EMBEDDINGS}"),
    (Purpose.ATTENTION, r"attn\d*|attention|self_?attn|cross_?attn|SelfAttention|EncDecAttention"),
    (
        Purpose.MLP,
        r"ff(_context)?|(\w+_)?mlp|mlp_\w+|DenseReluDense|feed_forward|act_mlp|ffn|fc\d|(\w+_)?(moe|experts?)",
    ),
    (
        Purpose.CONVOLUTION,
        r"conv(_in|_out|_shortcut|_act|\d+)?|nonlinearity|(post_)?quant_conv|skip_conv",
    ),
    (Purpose.RESAMPLE, r"(up|down)samplers?|(up|down)sample|resample"),
    (Purpose.RESNET, r"resnets?"),
    (Purpose.BLOCK, r"(\w+_)?blocks?|(\w+_)?layers?|h|stages?"),
)
_CLASSES = tuple((purpose, re.compile(pattern)) for purpose, pattern in _BY_CLASS)
_NAMES = tuple((purpose, re.compile(f"(?:{pattern})")) for purpose, pattern in _BY_NAME)
_PROJECTION = re.compile(r"to_(q|k|v|qkv|kv)|(q|k|v|qkv)(_proj)?|query|key|value")
_BLOCKS = re.compile(r"(\w*blocks?|\w*layers?|h|stages?|resnets)")
_BLOCK_CLASS = re.compile(r"\w*(Block\w*|Layer)")
_CONTEXT = re.compile(
    r"(\w+_)?context(_\w+)?|txt(_\w+)?|add_[qkv]_proj|to_add_out|norm_added_\w+|encoder_attn\w*"
)
_GATES = ("gate", "shared_expert_gate")  # beside `experts`
_ADAPTED = ".base_layer"  # how peft calls what it adapts, inside what stands in its place
_NO_PATH = re.compile(r"::|^triton_|[ (<]")
_DEEPEST = 64  # modules in one another; a foreign trace may hold any text
_CLASS_NUMBER = re.compile(r"_\d+$")
_CLASS_LIKE = re.compile(r"[A-Z]\w{2,}")


class Place(Struct, frozen=True):
    """What a module path says about a command.

    `purpose` is that of the innermost module that has one, `own_class` its class as far as known
    and `path` its path; `by` says whether the `class` or the `path` decided. `child` is whether the
    command lies in a module below that one. `outer` and `outer_class` are those of the next module
    outwards that has a purpose. `block` is the block around it, `context` whether a name on the
    path belongs to the context stream, `names` the whole path.
    """

    purpose: Purpose | None = None
    by: str = ""
    child: bool = False
    outer: Purpose | None = None
    outer_class: str = ""
    own_class: str = ""
    path: str = ""
    block: str | None = None
    context: bool = False
    names: tuple[str, ...] = ()


@lru_cache(maxsize=1 << 14)
def module_path(layer: str, root: str = "") -> str:
    """The module path in the name of a layer, "" for the submodule itself, whose class is `root`,
    and if it has none. A word of no known grammar is a module directly in the submodule."""
    parsed = parse_name(layer)
    path = parsed.module_path if parsed is not None else layer
    if path == root or _NO_PATH.search(path) or path.count(".") > _DEEPEST:
        return ""
    return path


@lru_cache(maxsize=1 << 14)
def class_in(name: str) -> str:
    """The class in a module's name (`Linear_3`) as importers of torch's traces have it, else ""."""
    return _CLASS_NUMBER.sub("", name) if _CLASS_LIKE.fullmatch(name) else ""


class Places:
    """The places of the layers of one submodule.

    `layers` are all of them, `classes` the classes of modules by path if capture kept them, `name`
    that of the submodule, which importers call by its class.
    """

    def __init__(self, layers: Iterable[str], classes: Mapping[str, str], name: str = "") -> None:
        self._classes = classes
        self._root = classes.get("", "")
        samples = _class_purpose(self._root or name) is Purpose.SAMPLING
        self._nowhere = Place(Purpose.SAMPLING, "class") if samples else Place()
        paths = {module_path(layer, self._root) for layer in layers} | classes.keys()
        ends = [(path, *path.rpartition(".")[::2]) for path in paths]
        self._parents = {parent for _, parent, name in ends if _PROJECTION.fullmatch(name)}
        self._modulated = {up for path, up, _ in ends if path.endswith((".linear", ".silu"))}
        self._fused_mlps = {up for path, up, _ in ends if path.endswith(".proj_mlp")}
        self._routed = {up for _, up, name in ends if name == "experts"}
        self._adapted = {p.removesuffix(_ADAPTED) for p in paths if p.endswith(_ADAPTED)}
        self._known: dict[str, Place] = {}

    def of(self, layer: str) -> Place:
        """The place that a layer names; without a path nothing is known."""
        path = module_path(layer, self._root)
        if path not in self._known:
            self._known[path] = self._read(path)
        return self._known[path]

    def _read(self, path: str) -> Place:
        names = tuple(path.split(".")) if path else ()
        paths = [".".join(names[: end + 1]) for end in range(len(names))]
        classes = [
            self._classes.get(own, "") or class_in(name)
            for own, name in zip(paths, names, strict=True)
        ]
        block, context = _block(names, classes), any(map(_is_context, names))
        found: list[tuple[int, Purpose, str]] = []
        for at in range(len(names) - 1, -1, -1):
            purpose, by = self._purpose(paths[at], names[at], classes[at])
            if path in self._adapted and at == len(names) - 1:
                purpose, by = Purpose.ADAPTER, "path"  # it scales and adds what its adapters give
            if purpose is not None:
                found.append((at, purpose, by))
        inside = (Purpose.EMBEDDING, Purpose.ATTENTION)
        if len(found) > 1 and found[0][1] is Purpose.CONVOLUTION and found[1][1] in inside:
            del found[0]  # patches are embedded, and projections made, by convolutions
        if not found:
            return structs.replace(self._nowhere, block=block, context=context, names=names)
        at, purpose, by = found[0]
        outer, around, _ = found[1] if len(found) > 1 else (-1, None, "")
        return Place(
            purpose=purpose,
            by=by,
            child=at < len(names) - 1,
            outer=around,
            outer_class=classes[outer] if outer >= 0 else "",
            own_class=classes[at],
            path=paths[at],
            block=block,
            context=context,
            names=names,
        )

    def _purpose(self, path: str, name: str, class_name: str) -> tuple[Purpose | None, str]:
        named = _name_purpose(name)
        if class_name and named is not Purpose.ADAPTER and (told := _class_purpose(class_name)):
            return told, "class"
        if purpose := self._beside(path):
            return purpose, "path"
        if path.endswith(_ADAPTED):
            return None, ""  # it is what it was under its own name
        if named is Purpose.NORM and path in self._modulated:
            return Purpose.MODULATION, "path"
        return named, "path" if named is not None else ""

    def _beside(self, path: str) -> Purpose | None:
        """Return what a module is for by those beside it or in it, None if they do not say."""
        parent, _, last = path.rpartition(".")
        if path in self._parents:
            return Purpose.ATTENTION
        if last in _GATES and parent in self._routed:
            return Purpose.ROUTER
        return Purpose.MLP if last == "proj_out" and parent in self._fused_mlps else None


@lru_cache(maxsize=1 << 12)
def _class_purpose(class_name: str) -> Purpose | None:
    return next((purpose for purpose, of in _CLASSES if of.search(class_name)), None)


@lru_cache(maxsize=1 << 14)
def _name_purpose(name: str) -> Purpose | None:
    return next((purpose for purpose, of in _NAMES if of.fullmatch(name)), None)


@lru_cache(maxsize=1 << 14)
def _is_context(name: str) -> bool:
    return _CONTEXT.fullmatch(name) is not None


@lru_cache(maxsize=1 << 14)
def _is_numbered_block(name: str) -> bool:
    """Whether the name is that of a block's class with a number."""
    number = _CLASS_NUMBER.search(name)
    return number is not None and _BLOCK_CLASS.fullmatch(name[: number.start()]) is not None


def _block(names: tuple[str, ...], classes: list[str]) -> str | None:
    """The path of the outermost numbered block, or of a middle block; None outside of blocks."""
    for at, name in enumerate(names):
        middle = name == "mid_block" or classes[at].startswith("UNetMidBlock")
        numbered = at and name.isdigit() and _BLOCKS.fullmatch(names[at - 1])
        if middle or numbered or _is_numbered_block(name):
            return ".".join(names[: at + 1])
    return None
