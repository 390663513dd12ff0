"""Which evidence decides a role, and in which order."""

from dataclasses import replace
from unittest.mock import ANY

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.runs import Command, make_call, make_run

from .small import kinds_and_roles, one_call, roles

X, V = "float[2,64,32]", "float[2,1,32]"
_ATTENTION = ("attn", "aten::_scaled_dot_product_flash_attention")
RMS = [
    ("Pow", f"{X} float[] -> {X}"),
    ("ReduceMean", f"{X} -> float[2,64,1]"),
    ("Add", "float[2,64,1] float[] -> float[2,64,1]"),
    ("Sqrt", "float[2,64,1] -> float[2,64,1]"),
    ("Reciprocal", "float[2,64,1] -> float[2,64,1]"),
    ("Mul", f"{X} float[2,64,1] -> {X}"),
]


def _unnamed(*operations):
    return [(f"node_{op_type}_{at}", op_type, shapes) for at, (op_type, shapes) in operations]


def test_rms_norm_by_hand():
    """Pow, ReduceMean, Add, Sqrt, Reciprocal, Mul without any path are one RMSNorm."""
    assert roles(*_unnamed(*enumerate(RMS))) == [("norm", "RMSNorm", "chain")] * 6


def test_rms_norm_of_torch_by_hand():
    """The same with torch's op types and a cast in between, which stays data movement."""
    words = ("pow", "to", "mean", "add", "rsqrt", "mul")
    found = roles(*((f"aten::{word}", f"aten::{word}", X) for word in words))
    assert [role for role, _, _ in found] == ["norm", "data_movement", *["norm"] * 4]


def test_operators_of_all_modules_in_one_kind_are_no_norm():
    """Without modules and shapes all products are one kind: two of three are of the RMSNorm before
    them, so they are elementwise. All powers are the norm's."""
    words = ("pow", "mean", "add", "rsqrt", "mul", "mul", "cat", "mul")
    found = roles(*((f"aten::{word}", f"aten::{word}", None) for word in words))
    named = dict(zip(words, (role for role, _, _ in found), strict=True))
    assert named["mul"] == "elementwise"
    assert {named[word] for word in ("pow", "mean", "add", "rsqrt")} == {"norm"}


def test_layer_norm_by_hand():
    """ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div."""
    words = ("ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div")
    found = roles(*((f"node_{at}", word, None) for at, word in enumerate(words)))
    assert found == [("norm", "LayerNorm", "chain")] * 7


def test_attention_by_hand():
    """MatMul, Mul, Softmax, MatMul; integers between them, which compute shapes, do not count."""
    scores = "float[2,4,64,64]"
    found = roles(
        ("node_1", "MatMul", None),
        ("node_2", "Mul", f"int64[] int64[] -> {'int64[]'}"),
        ("node_3", "Mul", f"{scores} float[] -> {scores}"),
        ("node_4", "Softmax", f"{scores} -> {scores}"),
        ("node_5", "MatMul", None),
    )
    assert [role for role, _, _ in found] == [
        "attention",
        "elementwise",
        "attention",
        "attention",
        "attention",
    ]


def test_gelu_by_hand_is_part_of_the_mlp():
    """Pow, Mul, Add, Mul, Tanh, Add, Mul, Mul, as ONNX has the tanh approximation."""
    words = ("Pow", "Mul", "Add", "Mul", "Tanh", "Add", "Mul", "Mul")
    found = roles(*((f"node_{at}", word, None) for at, word in enumerate(words)))
    assert [role for role, _, _ in found] == ["mlp"] * 8


def test_shift_scale_and_gate_in_a_block():
    """1 + scale, scale and shift of tokens by a vector, and the gate are modulation; the sum of
    two streams of tokens is the residual."""
    block, classes = "blocks.0", {"": "DiT", "blocks.0": "DiTBlock"}
    found = roles(
        (block, "Add", f"{V} float[] -> {V}"),
        (block, "Mul", f"{X} {V} -> {X}"),
        (block, "Add", f"{X} {V} -> {X}"),
        (block, "Add", f"{X} {X} -> {X}"),
        classes=classes,
    )
    assert [role for role, _, _ in found] == ["modulation", "modulation", "modulation", "residual"]


@pytest.mark.parametrize(
    ("path", "class_name", "op_type", "expected"),
    [
        ("blocks.0.norm1.linear", "AdaLayerNormZero", "Gemm", ("modulation", None)),
        ("blocks.0.norm1.norm", "AdaLayerNormZero", "Pow", ("norm", "AdaLayerNormZero")),
        ("blocks.0.norm1.norm", "AdaLayerNormZeroSingle", "Pow", ("norm", "AdaLayerNormZero")),
        ("blocks.0.norm1.norm", "SD35AdaLayerNormZeroX", "Pow", ("norm", "AdaLayerNormZero")),
        ("out.norm1.norm", "AdaLayerNormContinuous", "Mul", ("norm", "AdaLayerNormContinuous")),
        ("blocks.0.norm1.norm", "AdaGroupNorm", "group_norm", ("norm", "AdaGroupNorm")),
    ],
)
def test_adaptive_norms_by_class(path, class_name, op_type, expected):
    """The class of the module around a norm says which; its projection is modulation."""
    outer = path.rpartition(".")[0]
    classes = {
        "": "DiT",
        outer: class_name,
        path: "LayerNorm" if path.endswith("norm") else "Linear",
    }
    assert roles((path, op_type), classes=classes)[0][:2] == expected


@pytest.mark.parametrize(
    ("class_name", "kind"),
    [
        ("RMSNorm", "RMSNorm"),
        ("T5LayerNorm", "RMSNorm"),
        ("QwenImageRMS_norm", "RMSNorm"),
        ("FP32LayerNorm", "LayerNorm"),
        ("GroupNorm", "GroupNorm"),
        ("BatchNorm2d", "BatchNorm"),
        ("InstanceNorm2d", "InstanceNorm"),
    ],
)
def test_norms_by_class(class_name, kind):
    """Everything in a norm is the norm, casts included."""
    found = roles(("a.n", "aten::to"), ("a.n", "aten::mul"), classes={"a.n": class_name})
    assert found == [("norm", kind, "class")] * 2


def test_class_comes_before_the_name():
    """`norm1` of SD3 is an AdaLayerNormZero, whose own arithmetic is modulation."""
    classes = {"blocks.0.norm1": "AdaLayerNormZero"}
    command = ("blocks.0.norm1", "aten::mul", f"{X} {V}")
    assert roles(command, classes=classes) == [("modulation", None, "class")]
    assert roles(command) == [("norm", None, "path")]
    with_projection = [command, ("blocks.0.norm1.linear", "aten::linear")]
    assert roles(*with_projection)[0] == ("modulation", None, "path")


def test_convolutions_that_embed_or_project():
    """A patch embedding is one, an attention's 1x1 convolution projects; others stay."""
    classes = {
        "pos_embed": "PatchEmbed",
        "pos_embed.proj": "Conv2d",
        "attn": "QwenImageAttentionBlock",
        "attn.to_qkv": "Conv2d",
        "conv_in": "Conv2d",
    }
    layers = ("pos_embed.proj", "attn.to_qkv", "conv_in")
    found = roles(*((layer, "aten::conv2d") for layer in layers), classes=classes)
    assert [role for role, _, _ in found] == ["embedding", "qkv_projection", "convolution"]


def test_rotary_positions_in_attention():
    """Arithmetic of an attention that negates halves is rope; without, masks and scores."""
    attention = ("mul", "neg", "cat", "mul", "add", "scaled_dot_product_attention", "cat")
    commands = [
        ("b.attn", f"aten::{word}", f"float[{at + 1},4,8]") for at, word in enumerate(attention)
    ]
    found = [role for role, _, _ in roles(*commands, classes={"b.attn": "FluxAttention"})]
    assert found == ["rope", "rope", "rope", "rope", "rope", "attention", "data_movement"]
    plain = [command for command in commands if command[1] != "aten::neg"]
    found = [role for role, _, _ in roles(*plain, classes={"b.attn": "FluxAttention"})]
    assert found == [
        "attention",
        "data_movement",
        "attention",
        "attention",
        "attention",
        "data_movement",
    ]


def test_what_attention_adds_after_its_projection_is_the_residual():
    """The VAE's attention adds what came in."""
    classes = {"a": "Attention", "a.to_q": "Linear", "a.to_out.0": "Linear"}
    found = roles(
        ("a.to_q", "aten::linear"),
        ("a", "aten::scaled_dot_product_attention"),
        ("a.to_out.0", "aten::linear"),
        ("a", "aten::add"),
        classes=classes,
    )
    assert [role for role, _, _ in found] == [
        "qkv_projection",
        "attention",
        "qkv_projection",
        "residual",
    ]


@pytest.mark.parametrize(
    ("shapes", "role"),
    [
        ("in: bf16[8192,2432] bf16[2432,2432]", "qkv_projection"),
        ("in: bf16[2432] bf16[8192,2432] bf16[2432,2432]", "qkv_projection"),
        ("in: bf16[8192,2432] bf16[2432,7296]", "qkv_projection"),
        ("in: bf16[8192,2432] bf16[2432,9728]", "mlp"),
        ("in: bf16[8192,9728] bf16[9728,2432]", "mlp"),
        ("in: bf16[2,2432] bf16[2432,14592]", "modulation"),
        ("in: bf16[2,256] bf16[256,2432]", "embedding"),
        ("in: bf16[8192,2432] bf16[2432,64]", "embedding"),
        ("float[2,576,64] -> float[2,576,256]", "mlp"),
    ],
)
def test_products_by_their_sizes(shapes, role):
    """In a compiled transformer only sizes tell what a product is for."""
    found = roles(("aten::mm", "aten::mm", shapes), _ATTENTION)
    assert found[0] == (role, None, "shapes")


@pytest.mark.parametrize(
    "shapes",
    [
        "in: float32[1024,9,128] float32[1024,128,9]",  # of a recommender: features with each other
        "in: float32[1024,13] float32[13,512]",
        "in: float32[1024,512] float32[512,512]",
        "in: float32[8,256] float32[256,512]",
    ],
)
def test_sizes_of_products_say_nothing_without_attention(shapes):
    """Batches of features are multiplied with each other, and vectors projected, in networks that
    are no transformers: without a softmax or a fused attention a product has no place."""
    (found,) = roles(("aten::bmm", "aten::bmm", shapes), submodule="DLRM")
    assert found == ("matmul", None, "op_type")
    classified = roles(
        ("aten::bmm", "aten::bmm", shapes), ("p", "aten::softmax", "float32[1024,2]")
    )
    assert classified[0] == ("matmul", None, "op_type")
    weighted = roles(
        ("w", "aten::_softmax", "in: float32[2,1]"), ("aten::bmm", "aten::bmm", shapes)
    )
    assert weighted[1] == ("matmul", None, "op_type")


def test_a_kernel_tells_where_its_operator_does_not():
    """A library's operator of which nobody knows what it is for has the role of its kernel."""
    kernel = "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp<float>"
    run = one_call(("b", "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>"))
    named = pl.Series("kernel", [kernel], dtype=pl.String).cast(run.commands["kernel"].dtype)
    run = replace(run, commands=run.commands.with_columns(named))
    _, found = kinds_and_roles(run)
    assert found.select("role", "role_by").rows() == [("embedding", "kernel")]


@pytest.mark.parametrize(
    "beside",
    [
        ("aten::_softmax", "aten::_softmax", "float32[64,256,256]"),
        ("aten::_scaled_dot_product_flash_attention",) * 2,
        ("k", "softmax_warp_forward"),
        ("k", "flash_fwd_kernel"),
        ("k", "triton_per_fused__softmax_add_3", "float32[64,256,256]"),
        ("k", "triton_poi_fused__scaled_dot_product_flash_attention_transpose_2"),
    ],
)
def test_what_shows_that_a_submodule_attends(beside):
    """A softmax that products follow, or a fused attention, whoever names it: then a product of two
    batches of matrices is scores or weighting."""
    product = ("aten::bmm", "aten::bmm", "in: bf16[64,256,64] bf16[64,64,256]")
    found = roles(product, beside, product)
    assert [role for role, *_ in found][::2] == ["attention"] * 2


@pytest.mark.parametrize(
    ("shapes", "role"),
    [
        ("in: bf16[15,4096] bf16[4096,151936]", "matmul"),  # Qwen3's, of 15 requests
        ("in: bf16[15360,4096] bf16[4096,151936]", "matmul"),
        ("in: bf16[15360,151936] bf16[151936,4096]", "matmul"),  # its gradient
        ("in: bf16[32,8192] bf16[8192,57344]", "mlp"),  # gate and up of a 70 B model
        ("in: bf16[2,2560] bf16[2560,30720]", "modulation"),  # 12 widths
    ],
)
def test_a_product_with_a_vocabulary_is_no_embedding(shapes, role):
    """A language model's head has no role in the list, so it is a product of no place."""
    assert roles(("aten::mm", "aten::mm", shapes), _ATTENTION)[0][0] == role


def test_the_head_of_a_language_model_by_its_place():
    """`lm_head` of a small model, whose sizes say mlp: its name and its class decide first."""
    small = "in: bf16[64,16] bf16[16,64]"
    (named,) = roles(("lm_head", "aten::mm", small))
    (by_class,) = roles(("Qwen2ForCausalLM.ParallelLMHead", "aten::mm", small))
    assert (named, by_class) == (("matmul", None, "path"), ("matmul", None, "class"))


@pytest.mark.parametrize(
    "op_type",
    ["sglang::store_cache", "vllm::reshape_and_cache_flash", "_C_cache_ops::concat_and_cache_mla"],
)
def test_writing_a_cache_in_attention_moves_data(op_type):
    """What an attention module puts into its cache it does not compute; what reads it, it does."""
    layer = "Qwen3DecoderLayer_0.Qwen3Attention.RadixAttention"
    found = roles((layer, op_type), (layer, "aiter::mha_batch_prefill"))
    assert found == [("data_movement", None, "op_type"), ("attention", None, "class")]


@pytest.mark.parametrize(
    ("name", "shapes", "role", "kind"),
    [
        (
            "triton_per_fused__to_copy_add_addmm_mean_mul_pow_rsqrt_transpose_view_8",
            "in: bf16[8192,2432] bf16[64]",
            "norm",
            "RMSNorm",
        ),
        (
            "triton_red_fused_add_addmm_mul_native_layer_norm_split_unsqueeze_view_16",
            "in: bf16[2,4096,2432] bf16[2,14592]",
            "norm",
            "AdaLayerNormZero",
        ),
        (
            "triton_red_fused_add_mul_native_layer_norm_split_unsqueeze_24",
            "in: bf16[2,4096,2432] bf16[2,4864]",
            "norm",
            "AdaLayerNormContinuous",
        ),
        ("triton_red_fused_native_group_norm_0", "in: bf16[1,512,64,64]", "norm", "GroupNorm"),
        ("triton_poi_fused_addmm_gelu_view_15", "in: bf16[2,4096,9728]", "mlp", None),
        ("triton_poi_fused_convolution_silu_1", "in: bf16[1,128,64,64]", "convolution", None),
        ("triton_poi_fused_add_addmm_silu_3", "in: bf16[2,2432] bf16[2,2432]", "modulation", None),
        ("triton_poi_fused_arange_cat_cos_div_exp_mul_sin_0", "in: float32[2]", "embedding", None),
        ("triton_poi_fused_add_mul_split_unsqueeze_2", "in: bf16[2,64,32]", "modulation", None),
        ("triton_poi_fused_add_view_2", "in: bf16[2,64,32]", "residual", None),
        ("triton_poi_fused_add_cos_sin_0", "in: float32[10,10]", "elementwise", None),
        ("triton_poi_fused_add_cos_mul_sin_0", "in: bf16[2,8,64,32]", "rope", None),
        ("triton_poi_fused_cat_transpose_10", None, "data_movement", None),
        ("triton_poi_fused_upsample_nearest2d_1", None, "resample", None),
    ],
)
def test_fused_kernels(name, shapes, role, kind):
    """torch.compile's kernels by the rarest of what they fuse."""
    assert roles((name, name, shapes)) == [(role, kind, "kernel")]


def test_products_of_batches_where_nothing_attends():
    """Features that a recommender multiplies are no attention, beside a gate's softmax of vectors,
    and widths say nothing of a transformer there; with a softmax of batches they do."""
    products = [
        ("bmm", "aten::bmm", "in: float32[2048,160,300] float32[2048,300,40]"),
        ("mm", "aten::mm", "in: float32[2048,110] float32[110,180]"),
    ]
    gate = ("gate", "aten::_softmax", "in: float32[2,1]")
    last = ("bmm", "aten::mul", "in: float32[2048,160,40]")
    found = [role for role, *_ in roles(*products, gate, products[0], last)]
    assert found == ["matmul", "matmul", "elementwise", "matmul", "elementwise"]
    scores = ("scores", "aten::_softmax", "in: float32[2048,160,40]")
    found = [role for role, *_ in roles(products[0], scores, *products, last)]
    assert found == ["attention", "attention", "attention", "embedding", "elementwise"]


def test_an_unknown_operator_by_its_kernel():
    """What a library's autograd node runs is told by the kernel, where the name of that says it."""
    node = "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>"
    run = one_call((node, node, "in: float32[64,32]"), ("x::y", "x::y"))
    kernels = ["split_embedding_backward_codegen_rowwise_adagrad_kernel<float>", "nobody_knows"]
    column = pl.Series("kernel", kernels, dtype=pl.String).cast(run.commands["kernel"].dtype)
    kinds, found = kinds_and_roles(replace(run, commands=run.commands.with_columns(column)))
    rows = found.select("role", "role_by").rows()
    told = [rows[kind] for kind in kinds.of_command.tolist()]
    assert told == [("embedding", "kernel"), ("other", None)]


def test_a_softmax_that_ends_a_call():
    """A classifier's softmax weighs nothing: no attention, unlike one that a product follows."""
    classified = roles(
        ("conv", "Conv", "float[1,3,8,8] float[4,3,3,3]"),
        ("head", "Gemm", "float[1,64] float[64,10]"),
        ("prob", "Softmax", "float[1,10]"),
    )
    assert [(role, by) for role, _, by in classified] == [
        ("convolution", "op_type"),
        ("matmul", "op_type"),
        ("elementwise", "chain"),
    ]
    attending = roles(
        ("scores", "MatMul", "float[8,64,64] float[8,64,64]"),
        ("weights", "Softmax", "float[8,64,64]"),
        ("values", "MatMul", "float[8,64,64] float[8,64,64]"),
    )
    assert [role for role, *_ in attending] == ["attention"] * 3


def test_a_place_decides_before_a_name():
    """One kernel of cuBLAS projects where an attention's module launched it, has a size where its
    operator has one, and is a product without either; the same of arithmetic."""
    gemm, add = "ampere_sgemm_128x64_nn", "at::native::vectorized_elementwise_kernel"
    found = roles(
        ("transformer_blocks.0.attn.to_q", gemm),
        ("node", gemm, "float[64,32] float[32,128]"),
        ("node", gemm),
        ("transformer_blocks.0.ff.net.0", add),
        ("node", add),
        submodule="transformer",
    )
    assert [(role, by) for role, _, by in found] == [
        ("qkv_projection", "path"),
        ("mlp", "kernel"),
        ("matmul", "kernel"),
        ("mlp", "path"),
        ("elementwise", "kernel"),
    ]


def test_products_and_arithmetic_of_no_place():
    """Operators that nothing places say what they compute."""
    names = ("aten::mm", "aten::pow", "GreaterOrEqual", "aten::fill_", "Unheard")
    assert roles(*((name, name) for name in names)) == [
        ("matmul", None, "op_type"),
        ("elementwise", None, "op_type"),
        ("elementwise", None, "op_type"),
        ("data_movement", None, "op_type"),
        ("other", None, None),
    ]


def test_operators_of_training():
    """Gradients have the role of what they are of; a foreach operator is the optimizer's."""
    names = (
        "aten::cudnn_convolution_backward_input",
        "aten::native_layer_norm_backward",
        "aten::threshold_backward",
        "aten::_foreach_add_",
        "aten::nll_loss_forward",
        "aten::max_pool2d_with_indices_backward",
    )
    assert [role for role, _, _ in roles(*((name, name) for name in names))] == [
        "convolution",
        "norm",
        "elementwise",
        "optimizer",
        "elementwise",
        "resample",
    ]


@pytest.mark.parametrize(
    ("category", "name", "role"),
    [
        ("collective", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "collective"),
        ("collective", "record_param_comms", "collective"),
        ("copy", "Memcpy DtoD", "data_movement"),
        ("dma", "Memcpy HtoD", "data_movement"),
        ("copy", "Memset", "data_movement"),
    ],
)
def test_transfers_between_ranks_are_collectives(category, name, role):
    """The category of a track that computes nothing says it."""
    call = make_call(0, "transformer", 0, 10, step=0, device="cuda:0")
    command = Command(0, "cuda:0", "stream 7", category, name, 0, 10, name)
    found = kinds_and_roles(make_run([call], [command]))[1]
    assert found.select("role", "role_by").row(0) == (role, "category")


def test_pairs_are_turned_whoever_writes_it():
    """ONNX takes pairs apart with Split and puts them together with Concat; the image and the
    context stream are put together too, which moves data."""
    pair, half = "float[1,64,2,8,2]", "float[1,64,2,8,1]"
    own = "transformer_blocks.0.attn"
    found = roles(
        (f"{own}.to_q", "MatMul", "float[1,64,32] -> float[1,64,32]"),
        (own, "Split", f"{pair} int64[2] -> {half} {half}"),
        (own, "Neg", "float[1,64,2,8] -> float[1,64,2,8]"),
        (own, "Unsqueeze", f"float[1,64,2,8] int64[1] -> {half}"),
        (own, "Concat", f"{half} {half} -> {pair}"),
        (own, "Concat", "float[1,40,2,16] float[1,24,2,16] -> float[1,64,2,16]"),
        (own, "Split", "float[1,64,32] int64[2] -> float[1,40,32] float[1,24,32]"),
    )
    moved = ["data_movement", "data_movement"]
    assert [role for role, _, _ in found[1:]] == ["rope", "rope", "data_movement", "rope", *moved]


@pytest.mark.parametrize("op_type", ["aten::embedding", "Gather"])
def test_position_biases_are_of_the_attention(op_type):
    """T5 looks them up in a table within its attention; tokens are looked up outside."""
    own = "encoder.block.0.layer.0.SelfAttention"
    found = roles(
        (f"{own}.q", "aten::linear", "float[1,7,8] float[8,8]"),
        (f"{own}.relative_attention_bias", op_type, "float[32,4] int64[7,7]"),
        ("encoder.embed_tokens", op_type, "float[99,8] int64[1,7]"),
        submodule="text_encoder_3",
    )
    assert [role for role, _, _ in found] == ["qkv_projection", "attention", "embedding"]


def test_roles_that_a_producer_gave_stay():
    """A role in the trace is kept; commands of the kind without one have it too."""
    run = one_call(("a", "Attention"), ("a", "Attention"), ("b", "Attention"))
    given_roles = pl.Series("role", ["mlp", None, None], dtype=run.commands["role"].dtype)
    run = replace(run, commands=run.commands.with_columns(given_roles))
    _, found = kinds_and_roles(run)
    assert found.select("role", "role_by").rows() == [("mlp", "producer"), ("attention", "op_type")]


def test_host_work_has_no_role_whoever_says():
    """A producer's role for a launch is no device time of that role."""
    run = one_call(("a", "Softmax"))
    changed = run.commands.with_columns(
        pl.Series("role", ["mlp"], dtype=run.commands["role"].dtype),
        pl.Series("category", ["host"], dtype=run.commands["category"].dtype),
    )
    _, found = kinds_and_roles(replace(run, commands=changed))
    assert found.select("role", "role_by").rows() == [(None, None)]


_texts = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "blocks.0.attn.to_q",
            "a.norm1.linear",
            "aten::mm",
            "/a/b/Add",
            "1_x_2",
            "T5Block_2.T5Norm",
        ]
    ),
)


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(st.tuples(_texts, _texts, _texts), min_size=1, max_size=8))
def test_every_name_has_a_role(commands):
    """Whatever a foreign trace holds, each command gets one role of the list."""
    found = roles(*((layer or "x", op_type, shapes) for layer, op_type, shapes in commands))
    assert len(found) == len(commands)
    assert all(role is not None for role, _, _ in found)


@pytest.mark.parametrize(
    "layer",
    ["a." * 30_000, "/" + "a/" * 30_000 + "B", "norm_" * 30_000, "_" * 60_000, "(" * 60_000],
)
def test_long_names_of_foreign_traces(layer):
    """They take neither memory nor time that grows with their square."""
    assert roles((layer, "Softmax"), (layer, layer)) == [("attention", None, "op_type"), ANY]


_CONVOLUTION = ("conv1", "aten::cudnn_convolution", "in: float32[32,3,224,224] float32[64,3,7,7]")
_SCORES = ("b", "aten::bmm", "in: float32[8,64,16] float32[8,16,64]")
_HEAD = ("fc", "aten::addmm", "in: float32[1000] float32[32,2048] float32[2048,1000]")


@pytest.mark.parametrize(
    ("beside", "role"),
    [
        ((), "matmul"),
        ((("attn", "aten::_scaled_dot_product_flash_attention", None),), "embedding"),
        ((_SCORES,), "matmul"),
        ((_SCORES, ("w", "aten::_softmax", "in: float32[8,64,64]"), _SCORES), "embedding"),
        ((("k", "flash_fwd_kernel", None),), "embedding"),
    ],
)
def test_sizes_of_a_product_tell_of_a_transformer_alone(beside, role):
    """A ResNet's last product ends in no embedding: its submodule convolves and attends to nothing.
    Beside an attention, its sizes are those of a projection out of the model."""
    first, *_, last = roles(_CONVOLUTION, *beside, _HEAD, submodule="ResNet")
    assert (first[0], last[0]) == ("convolution", role)
