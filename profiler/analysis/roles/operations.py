"""What an op type says by itself: one word for an operation, whoever names it, and its sort.

    aten::linear, aten::addmm, Gemm, FusedMatMul, MatMulNBits → matmul
    aten::_to_copy, Cast                                      → cast (moves data)

`Sort` is what operations have in common where their place in the model decides what they are for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache

from msgspec import Struct

__all__ = ["Operation", "Sort", "operation_of", "word_of"]


class Sort(Enum):
    """What operations of one sort have in common."""

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
        mat_mul
        fused_gemm mat_mul_integer mat_mul_integer_to_float q_linear_mat_mul mat_mul_n_bits einsum
        mat_mul_bnb4 transpose_mat_mul fused_dense _scaled_mm _int_mm _weight_int8pack_mm gemv
        mkldnn_linear matrix_multiply cask_gemm gemm_v2 fully_connected dynamic_quantize_mat_mul
        dense dynamic_matmul bilinear linear_dynamic linear_relu linear_relu_dynamic
        linear_dynamic_fp16 linear_relu_dynamic_fp16 mat_mul8bit_fp mat_mul8bit_lt mat_mul4_bit
        gemm_4bit gemv_4bit int8_linear_matmul int8_mixed_scaled_mm _weight_int4pack_mm
        _weight_int4pack_mm_for_cpu""",
    Sort.CONVOLUTION: """conv conv1d conv2d conv3d convolution _convolution cudnn_convolution
        miopen_convolution mkldnn_convolution conv_transpose conv_transpose2d conv_transpose3d
        fused_conv nhwc_conv q_linear_conv conv_integer convolution_overrideable conv_tbc
        cudnn_convolution_add_relu cudnn_convolution_relu thnn_conv2d slow_conv2d_forward
        _slow_conv2d_forward miopen_depthwise_convolution _conv_depthwise2d conv_depthwise3d
        slow_conv3d slow_conv3d_forward cask_convolution cublas_convolution deconvolution
        cask_deconvolution cask_flattened_convolution""",
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
        upsample_bilinear2d upsample_bicubic2d upsample_linear1d upsample_trilinear3d
        _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
        _upsample_bilinear2d_aa _upsample_bicubic2d_aa interpolate grid_sample grid_sampler
        grid_sampler_2d avg_pool2d max_pool2d average_pool max_pool adaptive_avg_pool2d
        global_average_pool pixel_shuffle pixel_unshuffle depth_to_space space_to_depth
        pooling cask_pooling cuda_pooling cudnn_pooling tiled_pooling q_linear_average_pool
        q_linear_global_average_pool""",
    Sort.EMBEDDING: "embedding embedding_bag embed_layer_normalization",
    Sort.ROPE: "rotary_embedding apply_rotary_pos_emb rope fused_rope",
    Sort.ACTIVATION: """gelu silu relu leaky_relu elu selu tanh sigmoid erf mish hardswish
        hard_swish quick_gelu fast_gelu bias_gelu bias_split_gelu softplus glu swish prelu celu
        hard_sigmoid log_sigmoid relu6 hardtanh silu_and_mul gelu_and_mul geglu swiglu
        bias_add_gelu q_linear_sigmoid q_linear_leaky_relu""",
    Sort.ARITHMETIC: """add sub mul div neg abs pow sqrt rsqrt reciprocal exp log sin cos mean sum
        reduce_mean reduce_sum reduce_max reduce_min square square_difference maximum minimum min
        max where equal eq ne gt lt ge le greater less greater_or_equal less_or_equal not and or xor
        clamp clamp_min clamp_max clip
        outer floor ceil round mod remainder is_na_n isnan is_inf full full_like ones zeros
        ones_like zeros_like fill arange range argmax arg_max argmin cumsum cum_sum rand randn
        linalg_vector_norm norm lerp addcmul addcdiv lift_fresh is_nonzero empty sign atan2 polar
        complex reduce_l2 bias_add scale bias_dropout any all index_put masked_fill constant
        constant_of_shape trilu triu tril item _local_scalar_dense bitwise_not logical_not
        logical_and bitwise_and detach empty_like new_zeros new_ones new_full q_linear_add
        q_linear_mul""",
    Sort.LAYOUT: """to _to_copy cast type_as view reshape _reshape_alias _unsafe_view flatten
        unflatten permute transpose t contiguous clone copy cat concat concatenate split
        split_with_sizes chunk slice select narrow unsqueeze squeeze expand expand_as repeat
        repeat_interleave tile stack unbind pad roll flip gather gather_nd scatter
        scatter_nd index index_select slice_scatter select_scatter alias detach_ shape size
        sym_size as_strided real imag view_as_complex view_as_real movedim swapaxes rearrange
        constant_pad_nd unfold fold hstack vstack take dynamic_slice dynamic_concat dynamic_insert
        dynamic_transpose dynamic_reshape copy_from copy_to reflection_pad2d replication_pad2d
        col2im im2col lift shuffle padding no_op q_linear_concat""",
    Sort.REORDER: """reorder_input reorder_output reformat memcpy_to_host memcpy_from_host memcpy
        memset quantize_linear dequantize_linear dynamic_quantize_linear quantize_affine
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
_NORM_KINDS = {word: kind for kind, words in _NORMS.items() for word in words.split()}
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBERED = re.compile(r"(_\d+)+$")
_TYPED = re.compile(r"_(fp16|bf16|fp32|fp8|int8|int4)$")


@lru_cache(maxsize=1 << 16)
def operation_of(op_type: str) -> Operation:
    """The operation that an op type names: of torch (`aten::add_`), ONNX (`LayerNormalization`)
    or RBLN (`dynamic_matmul_fp16`); of sort UNKNOWN where it is none of those."""
    word = word_of(op_type)
    kind = _NORM_KINDS.get(word)
    if kind is not None:
        return Operation(word, Sort.NORM, kind)
    return Operation(word, _SORTS.get(word, Sort.UNKNOWN))


def word_of(op_type: str) -> str:
    """`aten::add_` → `add`, `FusedMatMul` → `fused_mat_mul`, `dense_fp16` → `dense`."""
    name = op_type.rsplit("::", 1)[-1].split(".", 1)[0]
    if not name.islower():
        name = _CAMEL.sub("_", name).lower()
    for short in (name, _NUMBERED.sub("", name)):
        bare = _TYPED.sub("", short)
        for word in (short, short.rstrip("_"), bare, bare.removeprefix("dynamic_")):
            if word in _SORTS or word in _NORM_KINDS:
                return word
    return name
