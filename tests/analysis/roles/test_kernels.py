"""Names of kernels: what torch.compile fused, and what libraries call theirs."""

import pytest

from profiler.analysis.role_kernel_names import (
    KernelName,
    Sort,
    fused_kernel,
    library_kernel,
    operation_of,
    parse_kernel,
)
from profiler.analysis.role_rules import role_of_name

FUSED = "triton_per_fused__to_copy_add_addmm_mean_mul_pow_rsqrt_transpose_view_8"


def test_operations_of_a_fused_kernel():
    """All but the product whose output the kernel takes in."""
    kernel = fused_kernel(FUSED)
    assert kernel.after == {Sort.MATMUL}
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
    ("name", "function", "arguments"),
    [
        ("void reduce_kernel<512, 1>(at::ReduceOp<float>)", "reduce_kernel", "<512, 1>(at::Re…"),
        ("std::enable_if<!(false), void>::type gemvx::kernel<int>(int)", "gemvx::kernel", "<int>…"),
        ("void (anonymous namespace)::softmax<float>(float*)", "softmax", "<float>(float*)"),
        ("splitKreduce(int) [clone .kd]", "splitKreduce", "(int)"),
        ("_ZN7ck_tile6kentryILi2ENS_38FmhaBatch", "ck_tile::kentry", "ILi2ENS_38FmhaBatch"),
        ("_Z9my_kernelPf", "my_kernel", "Pf"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)", ""),
        ("at::native::elementwise_kern…", "at::native::elementwise_kern", ""),
        ("attn_fwd", "attn_fwd", ""),
        ("", "", ""),
    ],
)
def test_parts_of_a_name(name, function, arguments):
    """The function without return type and template arguments, demangled or not, whole or cut."""
    found = parse_kernel(name)
    assert found.function == function
    if arguments.endswith("…"):
        assert found.arguments.startswith(arguments[:-1])
    else:
        assert found == KernelName(function, arguments)


ATEN = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, at::detail::Array>(int)"


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "matmul"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "matmul"),
        ("cutlass::Kernel2", "matmul"),
        ("void cutlass::device_kernel<cutlass::gemm::GemmUniversal<NumericConverter>>()", "matmul"),
        ("void cutlass::device_kernel<cutlass::fmha::kernel::FmhaKernelTma>()", "attention"),
        ("Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64", "matmul"),
        ("Custom_Cijk_Alik_Bljk_BBS_BH", "matmul"),
        ("ck::kernel_gemm_xdl_cshuffle_v3", "matmul"),
        ("cublasLt::splitKreduce_kernel", "matmul"),
        ("volta_igemm_int8_128x128_ldg4_nt", "matmul"),
        ("mul_mat_vec_q", "matmul"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", "matmul"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", "mlp"),
        ("flash_fwd_kernel", "attention"),
        ("pytorch_flash::flash_fwd_splitkv_kernel", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "attention"),
        ("aiter::fmha_fwd_hd64_bf16", "attention"),
        ("sage_attn_qk_int8_sv_f16_kernel", "attention"),
        ("flashinfer::BatchDecodeWithPagedKVCacheKernel", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop", "attention"),
        ("softmax_warp_forward", "attention"),
        ("void softmax_warp_forward<float, float, float, 10, false>(float*)", "attention"),
        ("void softmax_warp_forward<float, float, float, 10, true>(float*)", "elementwise"),
        ("flashinfer::norm::FusedAddRMSNormKernel", "norm"),
        ("at::native::vectorized_layer_norm_kernel", "norm"),
        ("MIOpenBatchNormFwdTrainSpatial", "norm"),
        ("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdI", "norm"),
        ("vllm::rotary_embedding_kernel", "rope"),
        ("sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32", "convolution"),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x256x32", "convolution"),
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1", "convolution"),
        ("cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1", "convolution"),
        (
            "void cutlass_cudnn_train::Kernel<cutlass_tensorop_s1688wgrad_optimized>()",
            "convolution",
        ),
        ("at::native::max_pool_forward_nchw", "resample"),
        ("at::native::upsample_nearest2d_nhwc_out_frame", "resample"),
        ("fbgemm_gpu::permute_2D_data_kernel", "data_movement"),
        ("vllm::convert_fp8_kernel", "data_movement"),
        ("cudnn::ops::nchwToNhwcKernel", "data_movement"),
        ("batched_transpose_32x32_half", "data_movement"),
        ("vllm::reshape_and_cache_flash_kernel", "data_movement"),
        ("Memcpy DtoD", "data_movement"),
        (ATEN.format("bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)"), "data_movement"),
        (ATEN.format("FillFunctor<float>"), "data_movement"),
        (ATEN.format("(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)"), "elementwise"),
        (ATEN.format("CUDAFunctor_add<float>"), "elementwise"),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps>>()",
            "elementwise",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ArgMaxOps>>()",
            "sampling",
        ),
        ("at::native::sbtopk::gatherTopK", "sampling"),
        ("void at::native::indexSelectLargeIndex<c10::BFloat16, long>()", "embedding"),
        ("void at::native::indexSelectLargeIndex<long, long>()", "data_movement"),
        ("nll_loss_forward_reduce_cuda_kernel_2d", "elementwise"),
        ("sgl_hip::activation::act_and_mul_kernel", "mlp"),
        ("fused_moe_kernel", "mlp"),
        ("_topk_forward", "router"),
        (
            "void multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor>()",
            "optimizer",
        ),
        ("void multi_tensor_apply_kernel<TensorListMetadata<2>, CopyFunctor>()", "data_movement"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", "collective"),
        ("void vllm::cross_device_reduce_1stage<float, 8>()", "collective"),
        ("void cub::DeviceRadixSortOnesweepKernel<Policy>()", "other"),
        ("some_kernel", "other"),
        ("triton_kernel_of_a_user", "other"),
    ],
)
def test_kernels_of_libraries(name, role):
    """What vendors, frameworks and serving engines call theirs; a role alone, without a place."""
    assert role_of_name(name) == role


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aiter::add_rmsnorm_quant_kernel", "RMSNorm"),
        ("groupnorm_kernel_dispatch_down", "GroupNorm"),
        ("cudnn::bn_fw_tr_1C11_kernel_NCHW", "BatchNorm"),
        ("at::native::GammaBetaBackwardCUDAKernel", "LayerNorm"),
        ("at::native::RowwiseMomentsCUDAKernel", ""),
        ("attn_fwd", ""),
    ],
)
def test_kinds_of_norms(name, kind):
    """Moments of rows are of layers or of groups: their kernel does not tell."""
    assert library_kernel(name).norm_kind == kind


@pytest.mark.parametrize(
    ("operations", "role"),
    [
        ("poi_fused_addmm_gelu_view_15", "mlp"),
        ("poi_fused_gelu_view_1", "elementwise"),
        ("poi_fused_mul_silu_1", "mlp"),
        ("poi_fused_convolution_silu_1", "convolution"),
        ("per_fused__log_softmax_nll_loss_forward_0", "elementwise"),
        ("per_fused__softmax_3", "attention"),
        ("poi_fused_add_cat_cos_mul_neg_sin_4", "rope"),
        ("poi_fused_add_addmm_mul_split_unsqueeze_7", "modulation"),
        ("poi_fused_add_addmm_view_7", "residual"),
        ("poi_fused_add_pow_7", "elementwise"),
        ("poi_fused_add_cos_sin_0", "elementwise"),
        ("red_fused_native_layer_norm_native_layer_norm_backward_2", "norm"),
        ("red_fused_argmax_0", "sampling"),
        ("poi_fused_constant_pad_nd_moe_forward_0", "data_movement"),
        ("poi_fused_0", "elementwise"),
        ("for_fused_0", "optimizer"),
        ("tem_fused_mm_3", "matmul"),
        ("tem_fused_addmm_gelu_3", "mlp"),
    ],
)
def test_compiled_kernels_by_name_alone(operations, role):
    """A name lists what is fused: what several parts of a model have is of none of them."""
    assert role_of_name(f"triton_{operations}") == role


@pytest.mark.parametrize(
    ("name", "role"),
    [
        (
            "void k_bin_bcast<&(op_mul(float, float)), float, float, float>(float const*)",
            "elementwise",
        ),
        (
            "void unary_op_kernel<&(op_silu(float)), float>(float const*, float*, int)",
            "elementwise",
        ),
        ("void unary_gated_op_kernel<&(op_silu(float)), float>(float const*, float*)", "mlp"),
        ("void gated_delta_net_cuda<128, 1>(float const*, float const*)", "attention"),
        ("quantize_q8_1(float const*, void*, long)", "data_movement"),
        ("void broadcast_kernel<float>(float*)", "other"),
        ("void cast_kernel<float, half>(float*)", "data_movement"),
    ],
)
def test_kernels_of_ggml(name, role):
    """llama.cpp's: a binary operation that broadcasts is no cast, a gated delta net attends."""
    assert role_of_name(name) == role


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
