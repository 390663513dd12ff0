"""Names of kernels: what torch.compile fused, and what libraries call theirs."""

import pytest

from profiler.analysis.roles.kernels import fused_kernel, kernel_operation
from profiler.analysis.roles.operations import Sort, operation_of

FUSED = "triton_per_fused__to_copy_add_addmm_mean_mul_pow_rsqrt_transpose_view_8"


def test_operations_of_a_fused_kernel():
    """All but the product whose output the kernel takes in."""
    kernel = fused_kernel(FUSED)
    assert kernel.reduces
    assert kernel.words == {"_to_copy", "add", "mean", "mul", "pow", "rsqrt", "transpose", "view"}


def test_attention_in_a_pointwise_kernel_is_where_its_output_goes():
    """It concatenates and transposes what attention will read."""
    name = "triton_poi_fused__scaled_dot_product_flash_attention_cat_transpose_view_10"
    assert fused_kernel(name).sorts == {Sort.LAYOUT}


def test_kernels_for_the_cpu():
    """torch.compile writes C++ there."""
    assert fused_kernel("graph_0_cpp_fused_add_native_layer_norm_1").words == {
        "add",
        "native_layer_norm",
    }


def test_template_kernels_compute_their_product():
    """torch.compile's own matrix products."""
    assert Sort.MATMUL in fused_kernel("triton_tem_fused_addmm_gelu_3").sorts


@pytest.mark.parametrize("name", ["aten::mm", "triton_kernel_of_a_user", "Cijk_Ailk_Bljk", ""])
def test_other_kernels_are_not_fused_ones(name):
    """Only names in torch.compile's form are taken apart."""
    assert fused_kernel(name) is None


@pytest.mark.parametrize(
    ("name", "sort"),
    [
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", Sort.MATMUL),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", Sort.MATMUL),
        ("cutlass::Kernel2", Sort.MATMUL),
        ("Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64", Sort.MATMUL),
        ("Custom_Cijk_Alik_Bljk_BBS_BH", Sort.MATMUL),
        ("ck::kernel_gemm_xdl_cshuffle_v3", Sort.MATMUL),
        ("cublasLt::splitKreduce_kernel", Sort.MATMUL),
        ("flash_fwd_kernel", Sort.ATTENTION),
        ("pytorch_flash::flash_fwd_splitkv_kernel", Sort.ATTENTION),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", Sort.ATTENTION),
        ("aiter::fmha_fwd_hd64_bf16", Sort.ATTENTION),
        ("ck_tile::kentry_attn_fwd", Sort.ATTENTION),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop", Sort.ATTENTION),
        ("sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32", Sort.CONVOLUTION),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x256x32", Sort.CONVOLUTION),
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1", Sort.CONVOLUTION),
        ("cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1", Sort.CONVOLUTION),
        ("cudnn::winograd_nonfused::winogradForwardOutput4x4", Sort.CONVOLUTION),
        ("at::native::vectorized_layer_norm_kernel", Sort.NORM),
        ("at::native::RowwiseMomentsCUDAKernel", Sort.NORM),
        ("at::native::CatArrayBatchedCopy", Sort.LAYOUT),
        ("cudnn::ops::nchwToNhwcKernel", Sort.LAYOUT),
        ("batched_transpose_32x32_half", Sort.LAYOUT),
        ("at::native::upsample_nearest2d_nhwc_out_frame", Sort.RESAMPLE),
        ("softmax_warp_forward", Sort.ATTENTION),
        ("some_kernel", Sort.UNKNOWN),
    ],
)
def test_kernels_of_libraries(name, sort):
    """cuBLAS, CUTLASS, hipBLASLt, CK, cuDNN, MIOpen, FlashAttention, AITER and ATen."""
    assert kernel_operation(name).sort is sort


@pytest.mark.parametrize(
    ("op_type", "word", "sort"),
    [
        ("aten::add_", "add", Sort.ARITHMETIC),
        ("aten::_to_copy", "_to_copy", Sort.LAYOUT),
        ("aten::_flash_attention_forward", "_flash_attention_forward", Sort.ATTENTION),
        ("FusedMatMul", "fused_mat_mul", Sort.MATMUL),
        ("MatMulNBits", "mat_mul_n_bits", Sort.MATMUL),
        ("SkipLayerNormalization", "skip_layer_normalization", Sort.NORM),
        ("InstanceNormalization", "instance_normalization", Sort.NORM),
        ("IsNaN", "is_na_n", Sort.ARITHMETIC),
        ("ReorderInput", "reorder_input", Sort.REORDER),
        ("Conv_nchwc", "conv_nchwc", Sort.UNKNOWN),
        ("dynamic_matmul_fp16", "dynamic_matmul", Sort.MATMUL),
        ("dense_fp16", "dense", Sort.MATMUL),
        ("paged_attn_prefill", "paged_attn_prefill", Sort.ATTENTION),
        ("aiter::_groupnorm_run", "_groupnorm_run", Sort.NORM),
        ("linear_196", "linear", Sort.MATMUL),
        ("", "", Sort.UNKNOWN),
    ],
)
def test_words_of_op_types(op_type, word, sort):
    """torch, ONNX and RBLN name the same operations."""
    assert (operation_of(op_type).word, operation_of(op_type).sort) == (word, sort)
