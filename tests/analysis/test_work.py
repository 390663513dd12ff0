"""FLOPs and bytes of single operations, counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.analysis import parse_shapes, work_of
from profiler.analysis.flop_shapes import _FORMULAS, _PREFIXES, formula

UNKNOWN = None

# op type, shapes, FLOPs, bytes read, bytes written
PRODUCTS = [
    # 2·3·5·4 = 120; a 12 elements, b 20, result 15 of 4 bytes
    ("aten::mm", "float[3,4] float[4,5]", 120, 128, 60),
    ("aten::mm", "in: bfloat16[3,4] bfloat16[4,5] bfloat16[3,5]", 120, 64, 30),
    ("aten::mm", "float[3,4] float[5,4]", UNKNOWN, UNKNOWN, UNKNOWN),
    ("aten::addmm", "float[5] float[3,4] float[4,5]", 120, 148, 60),
    ("aten::bmm", "float[2,3,4] float[2,4,5]", 240, 256, 120),
    ("aten::baddbmm", "float[2,3,5] float[2,3,4] float[2,4,5]", 240, 376, 120),
    ("aten::matmul", "float[2,1,3,4] float[7,4,5]", 2 * 14 * 3 * 5 * 4, 4 * (24 + 140), 4 * 210),
    ("aten::matmul", "float[4] float[4,5]", 40, 96, 20),
    ("aten::mv", "float[3,4] float[4]", 24, 64, 12),
    ("aten::dot", "float[4] float[4]", 8, 32, 4),
    ("aten::linear", "float[2,3,4] float[5,4] float[5]", 240, 4 * (24 + 20 + 5), 120),
    ("aten::linear", "float[2,3,4] float[5,3]", UNKNOWN, UNKNOWN, UNKNOWN),
    ("aten::_int_mm", "int8[3,4] int8[4,5]", 120, 32, 60),  # sums are int32
    ("quantized::linear_dynamic", "float[2,3,4] qint8[5,4] float[5]", 240, 96 + 20 + 20, 120),
    ("quantized::linear_dynamic", "float[2,3,4]", UNKNOWN, UNKNOWN, UNKNOWN),
    ("quantized::linear_dynamic_fp16", "float[2,3,4] half[5,4]", 240, 96 + 40, 120),
    # ten bytes are twenty weights, 5 by 4; the scale of their one block
    ("bitsandbytes::gemm_4bit", "float[2,3,4] uint8[10,1] float[1]", 240, 96 + 10 + 4, 120),
    ("bitsandbytes::gemm_4bit", "float[2,3,7] uint8[10,1]", UNKNOWN, UNKNOWN, UNKNOWN),
    ("aten::outer", "float[3] float[4]", 12, 28, 48),
    ("MatMul", "float[2,3,4] float[2,4,5] -> float[2,3,5]", 240, 256, 120),
    # the constant factor [4,5] was packed and is not in the profile: 20 elements all the same
    ("MatMul", "float[2,3,4] -> float[2,3,5]", 240, 4 * (24 + 20), 120),
    ("MatMul", "float[3,4] -> float[2,4]", 2 * 2 * 4 * 3, 4 * (12 + 6), 32),  # it is the right one
    ("Gemm", "float[2,64] float[128] -> float[2,128]", 2 * 2 * 64 * 128, 33_792, 1024),
    ("Gemm", "float[2,4] float[4,5] float[5] -> float[2,5]", 80, 4 * (8 + 20 + 5), 40),
    ("Gemm", "float[2,4] float[5,4] -> float[2,5]", 80, 4 * (8 + 20), 40),
    ("FusedMatMul", "float[1,4,3] -> float[1,3,5]", 120, 4 * (12 + 20), 60),  # transposes A
    ("FusedMatMul", "float[3,4] float[5,4] -> float[3,5]", 120, 128, 60),  # transposes B
    ("MatMul", "float[7,9] -> float[3,5]", UNKNOWN, UNKNOWN, UNKNOWN),
    ("MatMulInteger", "uint8[3,4] int8[4,5] -> int32[3,5]", 120, 32, 60),
    # weights of four bits, two a byte: [5 columns, 1 block, 16 bytes] are 32 rows
    ("MatMulNBits", "float[3,32] uint8[5,1,16] -> float[3,5]", 960, 3 * 32 * 4 + 80, 60),
    ("Einsum", "float[2,3,4] -> float[4,3,2]", 0, 96, 96),
    ("Einsum", "float[2,3] float[3,4] -> float[2,4]", UNKNOWN, UNKNOWN, UNKNOWN),
    ("aten::einsum", "tensor[2,3,4]", UNKNOWN, UNKNOWN, UNKNOWN),
]
CONVOLUTIONS = [
    # result [1,6,4,4] = 96 elements, each 4·3·3 products
    ("Conv", "float[1,4,4,4] float[6,4,3,3] float[6] -> float[1,6,4,4]", 6912, 1144, 384),
    ("aten::conv2d", "float[1,4,8,8] float[6,4,3,3] -> float[1,6,4,4]", 6912, 1888, 384),
    # two groups: the weight has 2 of 4 channels
    ("aten::conv2d", "float[1,4,4,4] float[6,2,3,3] -> float[1,6,4,4]", 3456, 688, 384),
    ("aten::conv2d", "float[1,4,8,8] float[6,4,3,3]", UNKNOWN, UNKNOWN, UNKNOWN),
    ("aten::conv1d", "float[1,4,8] float[6,4,3] -> float[1,6,8]", 2 * 48 * 12, 416, 192),
    ("Conv", "float[1,4,4,4] float[6] -> float[1,6,4,4]", UNKNOWN, UNKNOWN, UNKNOWN),
    # 64 elements, each 6·2·2 products
    ("ConvTranspose", "float[1,4,4,4] float[4,6,2,2] -> float[1,6,8,8]", 3072, 640, 1536),
]
ATTENTION = [
    # q 2·4·3 rows of 8, 5 keys: 2·24·5·8 for the scores, as many for the values
    (
        "aten::scaled_dot_product_attention",
        "float[2,4,3,8] float[2,4,5,8] float[2,4,5,8]",
        3840,
        4 * (192 + 640),
        768,
    ),
    (
        "aten::scaled_dot_product_attention",
        "float[2,4,3,8] float[2,4,5,8] float[2,4,5,6]",
        2 * 24 * 5 * 14,
        4 * 752,
        576,
    ),
    (
        "aten::_flash_attention_forward",
        "in: float16[2,3,4,8] float16[2,5,4,8] float16[2,5,4,8]",
        3840,
        1664,
        384,
    ),
    (
        "aten::_flash_attention_forward",
        "float16[3,4,8] float16[5,4,8] float16[5,4,8]",
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
    ),
    (
        "flash_attn::_flash_attn_forward",
        "float16[2,3,4,8] float16[2,5,4,8] float16[2,5,4,8]",
        3840,
        1664,
        384,
    ),
    # heads first, unlike flash's; and with 4 heads of queries for 2 of keys and values
    (
        "aten::_cudnn_attention_forward",
        "in: float16[2,4,3,8] float16[2,4,5,8] float16[2,4,5,8]",
        3840,
        1664,
        384,
    ),
    (
        "aten::_cudnn_attention_forward",
        "in: float16[2,4,3,8] float16[2,2,5,8] float16[2,2,5,8]",
        3840,
        2 * (192 + 320),
        384,
    ),
    # 8 heads of 3 queries and 5 keys, 16 a score: of 15 scores the triangle has 4.5, which torch
    # aligns at the first key, and 6 lie beside it where the last query sees the last key
    (
        "aten::scaled_dot_product_attention",
        "float[2,4,3,8] float[2,4,5,8] float[2,4,5,8] causal",
        8 * 2 * 9 // 2 * 16,
        4 * (192 + 640),
        768,
    ),
    (
        "aten::_cudnn_attention_forward",
        "in: float16[2,4,3,8] float16[2,4,5,8] float16[2,4,5,8] causal",
        8 * 2 * 9 // 2 * 16,
        1664,
        384,
    ),
    (
        "aten::_flash_attention_forward",
        "in: float16[2,3,4,8] float16[2,5,4,8] float16[2,5,4,8] causal",
        8 * 2 * (9 + 12) // 2 * 16,
        1664,
        384,
    ),
    (
        "aten::scaled_dot_product_attention",
        "float[2,4,5,8] float[2,4,3,8] float[2,4,3,8] causal",
        8 * 2 * (9 + 12) // 2 * 16,
        4 * (320 + 384),
        1280,
    ),
    (
        "aten::_flash_attention_forward",
        "in: float16[2,5,4,8] float16[2,3,4,8] float16[2,3,4,8] causal",
        8 * 2 * 9 // 2 * 16,
        2 * (320 + 384),
        640,
    ),
    # four heads of 8 side by side
    (
        "MultiHeadAttention",
        "float[2,3,32] float[2,5,32] float[2,5,32] -> float[2,3,32]",
        3840,
        4 * (192 + 640),
        768,
    ),
    (
        "MultiHeadAttention",
        "float[2,3,32] float[2,4,5,8] float[2,4,5,8] -> float[2,3,32]",
        3840,
        4 * (192 + 640),
        768,
    ),
    ("MultiHeadAttention", "float[2,3,4,3,8] -> float[2,3,32]", 2 * 6 * 3 * 64, 2304, 768),
    # com.microsoft: 2·2·3·10·96 for q, k and v, 4·2·3·3·32 for attention; the weights were packed
    (
        "Attention",
        "float[2,3,10] float[96] -> float[2,3,32]",
        11_520 + 2304,
        4 * (60 + 96 + 960),
        768,
    ),
    (
        "Attention",
        "float[2,3,10] float[10,96] float[96] -> float[2,3,32]",
        13_824,
        4 * (60 + 960 + 96),
        768,
    ),
    # ONNX: q, k, v
    (
        "Attention",
        "float[2,4,3,8] float[2,4,5,8] float[2,4,5,8] -> float[2,4,3,8]",
        3840,
        4 * 832,
        768,
    ),
    ("Attention", "float[2,3,32] float[2,5,32] float[2,5,32] -> float[2,3,32]", 3840, 4 * 832, 768),
]
ELEMENTS = [
    ("Add", "float[2,3] float[3] -> float[2,3]", 6, 36, 24),
    ("Add", "int64[2] int64[] -> int64[2]", 0, 24, 16),
    ("aten::add", "float[2,1] float[3]", 6, 20, 24),
    ("aten::add_", "bfloat16[2,3] bfloat16[2,3]", 6, 24, 12),
    ("aten::mul", "complex64[2,3] complex64[3]", 36, 72, 48),
    ("aten::add", "float[2] float[3]", UNKNOWN, UNKNOWN, UNKNOWN),
    ("aten::eq", "float[4] float[]", 0, 20, 4),
    ("aten::silu", "float[4]", 20, 16, 16),
    ("QuickGelu", "float[4] -> float[4]", 24, 16, 16),
    ("aten::gelu", "float[4]", 20, 16, 16),
    ("FastGelu", "float[4] -> float[4]", 36, 16, 16),
    ("Cast", "float[4] -> float16[4]", 0, 16, 8),
    ("Where", "bool[4] float[4] float[] -> float[4]", 0, 24, 16),
    ("Softmax", "float[2,4] -> float[2,4]", 40, 32, 32),
    ("aten::softmax", "float[2,4]", 40, 32, 32),
    ("ReduceMean", "float[2,4] int64[1] -> float[2,1]", 8, 32, 8),
    ("aten::mean", "float[2,4]", 8, 32, 4),  # an element at least
    ("aten::mean", "float[2,4] -> float[2,1]", 8, 32, 8),
    ("aten::cumsum", "float[2,4]", 8, 32, 32),
    ("aten::min", "float[2,4] float[2,4]", 8, 64, 32),
    ("aten::linalg_vector_norm", "float[2,4]", 16, 32, 4),
    # torch promotes to the wider element, however few there are of them
    ("aten::mul", "bfloat16[2,8] float[2,1]", 16, 32 + 8, 64),
    ("aten::mul_", "bfloat16[2,8] float[2,1]", 16, 32 + 8, 32),  # in place
]
NORMS = [
    # five for the statistics, one scale, one shift
    ("LayerNormalization", "float[2,4] float[4] float[4] -> float[2,4]", 56, 64, 32),
    ("aten::layer_norm", "float[2,4]", 40, 32, 32),
    ("aten::group_norm", "float[1,4,6] float[4] float[4]", 168, 128, 96),
    ("InstanceNormalization", "float[1,4,6] float[4] float[4] -> float[1,4,6]", 168, 128, 96),
    ("aten::rms_norm", "float[2,4] float[4]", 32, 48, 32),
    ("SimplifiedLayerNormalization", "float[2,4] float[4] -> float[2,4]", 32, 48, 32),
    # x + skip, then five and a scale
    ("SkipLayerNormalization", "float[2,4] float[2,4] float[4] -> float[2,4]", 56, 80, 32),
    (
        "BatchNormalization",
        "float[1,4,6] float[4] float[4] float[4] float[4] -> float[1,4,6]",
        48,
        160,
        96,
    ),
]
MOVEMENT = [
    ("Transpose", "float[2,3] -> float[3,2]", 0, 24, 24),
    ("Concat", "float[2,3] float[2,3] -> float[2,6]", 0, 48, 48),
    ("Slice", "float[100] int64[1] int64[1] -> float[2]", 0, 24, 8),
    ("Gather", "float[1000,4] int64[3] -> float[3,4]", 0, 72, 48),
    ("Split", "float[4] -> float[2] float[2]", 0, 16, 16),
    ("Reshape", "float[2,3] int64[1] -> float[6]", 0, 0, 0),
    ("aten::view", "float[2,3]", 0, 0, 0),
    ("aten::copy_", "in: float16[4] float32[4]", 0, 16, 8),
    ("aten::clone", "float[4]", 0, 16, 16),
    ("aten::embedding", "float[1000,4] int64[3]", 0, 72, 48),
    ("aten::gather", "float[10,4] int64[2,4]", 0, 32 + 16, 32),
    ("aten::type_as", "float[4] float16[9]", 0, 16, 8),
    ("aten::type_as", "float[4] float[9]", 0, 0, 0),
    ("aten::cat", "tensor[2,3] tensor[2,3]", 0, UNKNOWN, UNKNOWN),
    ("aten::cat", "in: bits16[2,3] bits16[2,5]", 0, 32, 32),
    ("aten::cat", "in: bfloat16[2,3] bfloat16[2,5]", 0, 32, 32),
    ("aten::zeros_like", "float[4]", 0, 0, 16),
    ("Resize", "float[1,1,2,2] float[4] -> float[1,1,4,4]", UNKNOWN, 32, 64),
    ("triton_poi_fused_gelu_1", "in: bfloat16[8] bfloat16[2] bfloat16[8]", UNKNOWN, 20, 16),
    # gelu in place: what it updates, [4,2], is read and written, the bias read
    ("triton_poi_fused_addmm_gelu_1", "in: bfloat16[4,2] bfloat16[2]", UNKNOWN, 20, 16),
    ("triton_poi_fused_silu_0", "in: float[8]", UNKNOWN, 32, 32),
    # 12 elements: [2,3,2] is updated in place, whatever is cut elsewhere; of 2 it is read
    ("triton_poi_fused_sub_unbind_1", "in: float[2,3,2] float[2,1,2] over 12", UNKNOWN, 64, 48),
    ("triton_poi_fused_sub_unbind_1", "in: float[2,3,2] float[2,1,2] over 4", UNKNOWN, 16, 16),
    # a reduction of all of [2,3,4], the same, and one that normalizes it in place
    ("triton_red_fused_mean_unbind_1", "in: float[2,3,4] float[2,1,4] over 8,3", UNKNOWN, 96, 32),
    ("triton_per_fused_mean_slice_1", "in: float[2,3,4] float[4] over 6,4", UNKNOWN, 112, 96),
    # sizes that are none of its tensors' tell nothing
    ("triton_poi_fused_gelu_1", "in: bfloat16[4,2] bfloat16[2] over 5,7", UNKNOWN, 20, 16),
]
AT_LEAST = [  # inputs of which a part is touched
    # 48 of 144 elements: as many are read as written
    ("triton_poi_fused_clone_slice_1", "in: float[2,4,9,2] float[2,3,8]", UNKNOWN, 192, 192),
    # a table of 36 rows, of which 4 are added to both images of the batch
    ("triton_poi_fused_add_slice_1", "in: float[1,36,5] float[2,4,5]", UNKNOWN, 80, 160),
    # the same in a reduction over the last dim, beside [2,5,2,2]
    (
        "triton_red_fused_add_native_layer_norm_slice_4",
        "in: float[2,5,2,2] float[1,36,5] float[2,4,1,1] float[2,4,1,1]",
        UNKNOWN,
        4 * (40 + 20 + 8),
        32,
    ),
    # no cut in its name: the mean of all of it
    ("triton_red_fused_mean_4", "in: float[1,36,5] float[1,5]", UNKNOWN, 720, 20),
    ("aten::index_select", "float[1000,4] int64[3]", 0, 4 * 12 + 24, 48),
    ("aten::index_select", "float[2,4] int64[9]", 0, 4 * 8 + 72, 4 * 18),
    ("aten::index_select", "float[2,4] int64[9,9]", UNKNOWN, UNKNOWN, UNKNOWN),
    # six times the same two rows: the table is read once
    ("aten::embedding", "float[2,4] int64[6]", 0, 4 * 8 + 48, 96),
    ("Gather", "float[2,4] int64[6] -> float[6,4]", 0, 4 * 8 + 48, 96),
    ("Expand", "float[1,4] int64[2] -> float[9,4]", 0, 16 + 16, 144),
    # the index is a column expanded over the row
    ("aten::gather", "float[1000,4] int64[3,4] float[3,4]", 0, 48 + 24, 48),
    ("aten::gather", "float[1000] int64[3]", 0, 12 + 24, 12),
    ("aten::index", "float[1000,4]", 0, UNKNOWN, UNKNOWN),
    # 3 tokens go to 3 of 1000 slots
    (
        "sglang::store_cache",
        "in: float[3,8] float[3,8] float[1000,8] float[1000,8] int64[3]",
        0,
        192 + 24,
        192,
    ),
    # 6 queries of 2 sequences: 6²/2 scores at least; 7 rows of a pool of 1000
    (
        "aiter::mha_batch_prefill",
        "in: float[6,4,8] float[1000,2,8] float[1000,2,8] int32[3] int32[3] int32[7]",
        2 * 4 * 18 * 16,
        4 * (192 + 2 * 7 * 16 + 3 + 7),
        768,
    ),
    (
        "aiter::mha_batch_prefill",
        "in: float[6,4,8] float[9,4,8] float[9,4,8] int32[3] int32[3] int32[7] causal",
        2 * 4 * (36 // 4) * 16,
        4 * (6 * 32 + 2 * 7 * 32 + 3 + 7),
        4 * 6 * 32,
    ),
    ("aiter::mha_batch_prefill", "in: float[6,4,8] float[6,4,8]", UNKNOWN, UNKNOWN, UNKNOWN),
]
NOTHING_KNOWN = [
    ("NoSuchOp", "float[4] -> float[4]"),
    ("aten::no_such_op", "float[4]"),
    ("linear_196", None),
    ("aten::mm", None),
    ("aten::mm", "float[4]"),
    (None, "float[4]"),
    ("", "float[4]"),
]


@pytest.mark.parametrize(
    ("op_type", "shapes", "flops", "read", "written"),
    [*PRODUCTS, *CONVOLUTIONS, *ATTENTION, *ELEMENTS, *NORMS, *MOVEMENT, *AT_LEAST],
)
def test_work(op_type, shapes, flops, read, written):
    """FLOPs, bytes read and written; all three None where the shapes do not fit."""
    work = work_of(op_type, parse_shapes(shapes))
    found = (work.flops, work.bytes_read, work.bytes_written) if work else (None,) * 3
    assert found == (flops, read, written)


@pytest.mark.parametrize(("op_type", "shapes"), NOTHING_KNOWN)
def test_unknown(op_type, shapes):
    """No formula, or inputs that it needs are missing: not known, which is not zero."""
    assert work_of(op_type, parse_shapes(shapes)) is None


def test_parts_share_the_work():
    """A command that is the second of three of its operator knows that."""
    work = work_of("aten::mm", parse_shapes("float[3,4] float[4,5] part 2/3"))
    assert (work.flops, work.part, work.parts) == (120, 2, 3)


def test_every_formula_has_its_source_in_words():
    """A formula is documented: what it counts, and (in its docstring or module) from where."""
    for function in {*_FORMULAS.values(), *_PREFIXES.values()}:
        assert function.__doc__, function.__name__
        module = __import__(function.__module__, fromlist=["x"])
        assert "Source" in function.__doc__ + module.__doc__, function.__name__


def test_one_formula_an_operation_type():
    """A second formula for a name is a mistake of ours."""
    with pytest.raises(ValueError, match="MatMul has a formula already"):
        formula("MatMul")(lambda op: None)


_TENSOR = st.tuples(
    st.sampled_from(["float", "bfloat16", "int64", "bool", "tensor", "complex64", "uint8"]),
    st.lists(st.integers(0, 9), max_size=5),
).map(lambda pair: f"{pair[0]}[{','.join(map(str, pair[1]))}]")
_TENSORS = st.lists(_TENSOR, max_size=5).map(" ".join)


@given(
    st.sampled_from([*sorted(_FORMULAS), "aten::add_", "triton_red_x", "flash_attn::fwd"]),
    _TENSORS,
    st.none() | _TENSORS,
)
def test_any_shapes_have_work_or_not(op_type, inputs, outputs):
    """No shapes make a formula raise, and what it gives is not negative."""
    text = inputs if outputs is None else f"{inputs} -> {outputs}"
    work = work_of(op_type, parse_shapes(text))
    if work is not None:
        for value in (work.flops, work.bytes_read, work.bytes_written):
            assert value is None or value >= 0


_SIZE = st.integers(1, 64)


@given(_SIZE, _SIZE, _SIZE, _SIZE)
def test_products_agree(batch, m, n, k):
    """One product in four spellings is the same work: torch's linear and matmul, ONNX's MatMul
    with the weight in the profile and without."""
    x, w, y = f"float[{batch},{m},{k}]", f"float[{k},{n}]", f"float[{batch},{m},{n}]"
    spellings = [
        ("aten::linear", f"{x} float[{n},{k}]"),
        ("aten::matmul", f"{x} {w}"),
        ("MatMul", f"{x} {w} -> {y}"),
        ("MatMul", f"{x} -> {y}"),
    ]
    found = [work_of(name, parse_shapes(text)) for name, text in spellings]
    counts = {(work.flops, work.bytes_read, work.bytes_written) for work in found}
    assert counts == {(2 * batch * m * n * k, 4 * (batch * m * k + k * n), 4 * batch * m * n)}
