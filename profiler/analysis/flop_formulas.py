"""FLOP and byte formulas: attention, convolutions, matmuls, norms, data movement.

Source of a count: its docstring, else `torch.utils.flop_counter` (but for causal masks), the
definitions at onnx.ai/onnx/operators and onnxruntime's `docs/ContribOperators.md`.
`flop_shapes.py` defines what counts as one operation and as a byte moved.
"""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from profiler.analysis.flop_shapes import (
    DoesNotFit,
    Family,
    Operation,
    Tensor,
    Work,
    broadcast,
    formula,
    sum_of_sizes,
    together,
)

# --- Attention: two products, `q @ kᵀ` and `scores @ v`; the softmax between them is not counted.
#
# Source of the count: `torch.utils.flop_counter.sdpa_flop_count`, except for causal masks, of which
# it counts every score: if an operator has one (`is_causal`), the scores above the diagonal count
# nothing, and those on it half, as in the flash-attention package's benchmarks and in AMD's
# TraceLens. Other masks, and windows, count as if every score were computed. Scores are no traffic:
# these operations keep them on the chip.


@formula(
    aten="scaled_dot_product_attention _scaled_dot_product_attention_math "
    "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_fused_attention_overrideable _cudnn_attention_forward"
)
def heads_first(op: Operation) -> Work:
    """q, k, v as [batch, heads, sequence, width]. Source: torch's `scaled_dot_product_attention`,
    and its `_cudnn_attention_forward`, which has them in this order, unlike flash's own."""
    return _attention(op, sequence=-2)


@formula(
    aten="_flash_attention_forward _efficient_attention_forward",
    prefixes=("flash_attn::", "flash_attn_3::", "aiter::fmha", "aiter::mha_fwd", "xformers::"),
)
def sequence_first(op: Operation) -> Work:
    """q, k, v as [batch, sequence, heads, width]. Source: torch's `_flash_attention_forward`,
    the flash-attention package. Packed sequences (three dims) say nothing of their lengths."""
    return _attention(op, sequence=-3)


def _attention(op: Operation, sequence: int) -> Work:
    q, k, v = (op.input(index) for index in range(3))
    least = 2 if sequence == -2 else 4
    if min(len(t.dims) for t in (q, k, v)) < least or q.dims[-1] != k.dims[-1]:
        raise DoesNotFit
    keys = k.dims[sequence]
    if keys != v.dims[sequence]:
        raise DoesNotFit
    queries = q.dims[sequence]
    twice = _twice_the_scores(queries, keys, op.causal, aligned_last=sequence == -3)
    flops = q.size // (q.dims[-1] * queries) * twice * (q.dims[-1] + v.dims[-1])
    out = q.like(*q.dims[:-1], v.dims[-1])
    mask = op.inputs[3:4] if sequence == -2 else ()  # `_flash_attention_forward` has none
    return Work(Family.ATTENTION, q.dtype, flops, (q, k, v, *mask), (out,))


def _twice_the_scores(queries: int, keys: int, causal: bool, *, aligned_last: bool) -> int:
    """Twice the number of scores of a head. With a causal mask a query has one key more than the
    query ahead of it: the first query has one (torch's `scaled_dot_product_attention`), or the last
    one has all (`aligned_last`; `_flash_attention_forward` and the flash-attention package)."""
    if not causal:
        return 2 * queries * keys
    shorter = min(queries, keys)
    seen_whole = aligned_last == (queries < keys)  # the rectangle beside the triangle
    return shorter * (shorter + 2 * abs(queries - keys) * seen_whole)


@formula("aiter::mha_batch_prefill")
def over_pool(op: Operation) -> Work:
    """`mha_batch_prefill(q[T,H,D], k_pool[P,G,D], v_pool[P,G,D], ends[n+1], ends[n+1], rows[M])`:
    of the pools of keys and values only `rows` are read.

    How the T queries are shared among n sequences is not in the shapes. A sequence has as many keys
    as queries at least, and equal sequences have the fewest scores together: T²/n, with a causal
    mask half of them. Source: aiter's `aiter/ops/mha.py`.
    """
    q, k, v, ends, _, rows = (op.input(index) for index in range(6))
    if len(q.dims) != 3 or len(k.dims) != 3 or len(v.dims) != 3 or ends.size < 2:
        raise DoesNotFit
    queries, heads, width = q.dims
    scores = queries * queries // ((ends.size - 1) * (2 if op.causal else 1))
    flops = 2 * heads * scores * (width + v.dims[-1])
    used = [t.like(min(rows.size, t.dims[0]), *t.dims[1:]) for t in (k, v)]
    out = q.like(queries, heads, v.dims[-1])
    return Work(Family.ATTENTION, q.dtype, flops, (q, *used, ends, rows), (out,))


@formula("MultiHeadAttention GroupQueryAttention PackedMultiHeadAttention")
def multi_head(op: Operation) -> Work:
    """com.microsoft's attention of projected inputs: q [B,S,hidden], k and v [B,L,hidden]. Also
    packed: q [B,S,heads,3,width], or q beside kv [B,L,heads,2,width], or k and v with heads first
    [B,heads,L,width]."""
    q = op.input(0)
    if len(q.dims) == 5 and q.dims[3] == 3:
        batch, length, heads, _, width = q.dims
        return _products(op, batch * length, length, heads * width, heads * width)
    if len(q.dims) != 3:
        raise DoesNotFit
    batch, length, hidden = q.dims
    k = op.input(1)
    if k.dims[:1] != (batch,) or len(k.dims) not in (3, 4, 5):
        raise DoesNotFit
    keys = k.dims[2] if len(k.dims) == 4 else k.dims[1]
    out_hidden = op.outputs[0].dims[-1] if op.outputs and op.outputs[0].dims else hidden
    return _products(op, batch * length, keys, hidden, out_hidden)


def _products(op: Operation, queries: int, keys: int, hidden: int, out_hidden: int) -> Work:
    """Return the work of all `queries` of a batch, `hidden` wide over all heads, against `keys`
    each."""
    flops = 2 * queries * keys * (hidden + out_hidden)
    return Work(Family.ATTENTION, op.input(0).dtype, flops, op.inputs, op.outputs)


@formula("Attention QAttention")
def onnx_attention(op: Operation) -> Work:
    """ONNX's Attention of q, k, v, or com.microsoft's, which projects its input first.

    ONNX (opset 23): q, k, v as [B,S,hidden] or [B,heads,S,width]. com.microsoft: x [B,S,D],
    weights [D,3·hidden] (packed weights are not in the trace), bias [3·hidden] ->
    [B,S,hidden]; its projection counts too. Source: onnx.ai/onnx/operators/onnx__Attention.html;
    onnxruntime's `docs/ContribOperators.md`.
    """
    x, out = op.input(0), op.output
    if len(op.inputs) > 2 and len(op.inputs[1].dims) == len(op.inputs[2].dims) == len(x.dims):
        if len(x.dims) == 4:
            return _attention(op, sequence=-2)
        return multi_head(op)
    if len(x.dims) != 3 or len(out.dims) != 3 or x.dims[:2] != out.dims[:2]:
        raise DoesNotFit
    batch, length, depth = x.dims
    hidden = out.dims[-1]
    flops = 2 * batch * length * depth * 3 * hidden + 4 * batch * length * length * hidden
    shown = any(len(t.dims) == 2 and t.dims[0] == depth for t in op.inputs[1:])
    packed = () if shown else (x.like(depth, 3 * hidden),)
    return Work(Family.ATTENTION, x.dtype, flops, (*op.inputs, *packed), op.outputs)


# --- Convolutions: 2·(C_in/groups)·kernel operations an element of the result.
#
# Source of the count: `torch.utils.flop_counter.conv_flop_count`; a weight has C_in/groups
# channels, so groups need not be known. Padding counts as if it were data.


@formula(
    "Conv FusedConv NhwcConv NhwcFusedConv ConvInteger "
    "Convolution CaskConvolution CaskGemmConvolution CudnnConvolution "  # these of TensorRT
    "CublasConvolution",
    aten="conv1d conv2d conv3d convolution _convolution cudnn_convolution cudnn_convolution_relu "
    "cudnn_convolution_add_relu miopen_convolution mkldnn_convolution _slow_conv2d_forward "
    "thnn_conv2d slow_conv3d conv_depthwise3d _conv_depthwise2d miopen_depthwise_convolution "
    "convolution_overrideable",
)
def convolution(op: Operation) -> Work:
    """`Conv(x[N,C,…], w[M,C/g,k…], b[M]) -> y[N,M,…]`. Without the result (stride and padding are
    not in the shapes) the work is not known. NHWC kernels have the channels last in x and y alone.
    Source: onnx.ai/onnx/operators/onnx__Conv.html, torch.nn.functional.conv2d."""
    x, weight, out = op.input(0), op.input(1), op.output
    if len(weight.dims) != len(x.dims) or len(x.dims) < 3 or len(out.dims) != len(x.dims):
        raise DoesNotFit
    flops = 2 * out.size * prod(weight.dims[1:])
    return Work(Family.CONVOLUTION, x.dtype, flops, op.inputs, op.outputs)


@formula(
    "ConvTranspose Deconvolution CaskDeconvolution",
    aten="conv_transpose1d conv_transpose2d conv_transpose3d miopen_convolution_transpose "
    "cudnn_convolution_transpose",
)
def transposed(op: Operation) -> Work:
    """`ConvTranspose(x[N,C,…], w[C,M/g,k…])`: every element of x meets M/g·k weights. Source:
    `torch.utils.flop_counter.conv_flop_count(transposed=True)`."""
    x, weight = op.input(0), op.input(1)
    if len(weight.dims) != len(x.dims) or len(x.dims) < 3:
        raise DoesNotFit
    flops = 2 * x.size * prod(weight.dims[1:])
    return Work(Family.CONVOLUTION, x.dtype, flops, op.inputs, op.outputs)


# --- Operations that treat every element on its own, and reductions.
#
# The count is that of the definition (`flop_shapes.py` says what counts as one operation); bytes
# are each input and the result once. Source of the definitions: onnx.ai/onnx/operators,
# docs.pytorch.org/docs/stable/torch.html, onnxruntime's `docs/ContribOperators.md`.


_SEVERAL = {
    name: operations
    for operations, names in {
        3: "Elu Softplus aten::elu aten::softplus aten::addcmul aten::addcdiv aten::lerp",
        4: "Sigmoid HardSigmoid aten::sigmoid",  # 1 / (1 + exp(-x))
        # x · sigmoid(x); x · 0.5 · (1 + erf(x / √2)); x · tanh(ln(1 + exp(x)))
        5: "Swish aten::silu Gelu aten::gelu Mish aten::mish",
        6: "QuickGelu BiasGelu",  # x · sigmoid(a x)
        7: "BiasSplitGelu",
        9: "FastGelu",  # 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))
    }.items()
    for name in names.split()
}
_BOOLEAN = {  # their results are booleans
    *("aten::eq", "aten::ne", "aten::lt", "aten::gt", "aten::le", "aten::ge"),
    *("aten::isnan", "aten::isinf", "aten::isfinite"),
    *("aten::logical_and", "aten::logical_or", "aten::logical_not", "aten::logical_xor"),
}


def _result(op: Operation) -> tuple[Tensor, ...]:
    """The outputs, or if they are unknown what the inputs broadcast to; an in-place operator writes
    its first input."""
    if op.outputs:
        return op.outputs
    if op.op_type.startswith("aten::") and op.op_type.endswith("_"):
        return op.inputs[:1]
    out = together(op.inputs)
    return (Tensor("bool", out.dims) if op.op_type in _BOOLEAN else out,)


def _elementwise(op: Operation, operations: int) -> Work:
    out = _result(op)
    dtype = together(op.inputs).dtype if op.op_type.startswith("aten::") else op.input(0).dtype
    per_element = operations if Tensor(dtype, ()).floating else 0
    if dtype.startswith("complex"):
        per_element *= 6 if op.op_type in ("aten::mul", "Mul") else 2
    return Work(Family.ELEMENTWISE, dtype, per_element * out[0].size, op.inputs, out)


@formula(
    "Add Sub Mul Div Neg Abs Min Max Pow Sqrt Reciprocal Exp Log Sin Cos Tanh Erf Relu Clip Floor "
    "Ceil Round Sign Mod Softsign PRelu LeakyRelu Rsqrt",
    aten="add sub rsub mul div neg abs minimum maximum pow sqrt rsqrt reciprocal exp log sin cos "
    "tanh erf relu clamp clamp_min clamp_max floor ceil round sign remainder fmod square "
    "true_divide multiply leaky_relu exp2 log2 atan sinh cosh floor_divide",
)
def one_operation(op: Operation) -> Work:
    """One operation per element of the result; a product of complex numbers counts as six, a sum as
    two."""
    return _elementwise(op, 1)


@formula(" ".join(_SEVERAL))
def several_operations(op: Operation) -> Work:
    """Activations: the operations of their definition, per element of the result."""
    return _elementwise(op, _SEVERAL.get(op.op_type) or _SEVERAL[op.op_type.removesuffix("_")])


@formula(
    "Where Equal Less Greater LessOrEqual GreaterOrEqual And Or Not Xor IsNaN IsInf Cast "
    "QuantizeLinear DequantizeLinear BitShift Trilu",
    aten="where eq ne lt gt le ge logical_and logical_or logical_not logical_xor isnan isinf "
    "bitwise_and bitwise_or bitwise_not bitwise_xor masked_fill triu tril isfinite",
)
def no_arithmetic(op: Operation) -> Work:
    """Comparisons, choices and conversions: traffic, and no floating-point arithmetic."""
    return _elementwise(op, 0)


@formula(
    "torchao::quantize_affine torchao::dequantize_affine quantized::quantize_per_tensor_dynamic",
    aten="quantize_per_tensor quantize_per_channel",
)
def quantization(op: Operation) -> Work:
    """A conversion whose result type is an argument, so that written bytes are unknown. Source:
    torchao's `quant_primitives.py`."""
    return Work(Family.ELEMENTWISE, op.input(0).dtype, 0, op.inputs, op.outputs)


@formula("aten::dequantize")
def dequantization(op: Operation) -> Work:
    """A conversion to float32."""
    x = op.input(0)
    return Work(Family.ELEMENTWISE, "float32", 0, (x,), (Tensor("float32", x.dims),))


@formula("Sum Mean", aten="sum_to_size")
def sum_of_inputs(op: Operation) -> Work:
    """ONNX's Sum of n inputs: n - 1 additions per element."""
    return _elementwise(op, max(len(op.inputs) - 1, 1))


@formula("aten::type_as")
def conversion(op: Operation) -> Work:
    """`x.type_as(y)`: a copy of x in y's type; nothing if they have one type."""
    x, other = op.input(0), op.input(1)
    if x.dtype == other.dtype:
        return Work(Family.VIEW, x.dtype, 0, (), ())
    return Work(Family.ELEMENTWISE, x.dtype, 0, (x,), (Tensor(other.dtype, x.dims),))


@formula(
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceLogSum CumSum ArgMax "
    "ArgMin",
    aten="sum mean amax amin max min prod cumsum cumprod argmax argmin any all norm nansum",
)
def reduction(op: Operation) -> Work:
    """One operation per element of the input. A torch result that is not in the shapes has at least
    one element. `aten::max` and `aten::min` of two tensors are elementwise; running sums (`cumsum`)
    have as many elements as the input."""
    if op.op_type in ("aten::cumsum", "aten::cumprod"):
        return Work(Family.REDUCTION, op.input(0).dtype, _flops(op, 1), op.inputs, op.inputs[:1])
    if len(op.inputs) == 2 and op.op_type in ("aten::max", "aten::min"):
        return _elementwise(op, 1)
    return _reduction(op, 1)


@formula(
    "ReduceSumSquare ReduceL2 torchao::choose_qparams_affine", aten="linalg_vector_norm var std"
)
def two_operations(op: Operation) -> Work:
    """Two operations an element of the input: a square and a sum, or the least and greatest of
    each block (torchao's `quant_primitives.py`)."""
    return _reduction(op, 2)


def _reduction(op: Operation, operations: int) -> Work:
    x, flops, reads = op.input(0), _flops(op, operations), op.inputs[:1]
    least = x.like().nbytes if op.outputs is None else None
    return Work(Family.REDUCTION, x.dtype, flops, reads, op.outputs, least_written=least)


def _flops(op: Operation, operations: int) -> int:
    """`operations` per element of the first input, 0 if it is not floating-point."""
    x = op.input(0)
    return operations * x.size if x.floating else 0


@formula(
    "Softmax LogSoftmax BiasSoftmax", aten="softmax _softmax log_softmax _log_softmax _safe_softmax"
)
def softmax(op: Operation) -> Work:
    """Five operations an element: maximum, difference, exp, sum, quotient; six of com.microsoft's
    softmax(x + bias)."""
    x, biased = op.input(0), op.op_type == "BiasSoftmax"
    reads = op.inputs if biased else (x,)
    return Work(Family.SOFTMAX, x.dtype, (5 + biased) * x.size, reads, op.outputs or (x,))


# --- Matrix products: 2·M·N·K operations for `[…,M,K] @ [K,N]`, bias and activation not counted.
#
# Source of the count: `torch.utils.flop_counter` (`mm_flop`, `addmm_flop`, `bmm_flop`).


def _product(left: Tensor, right: Tensor, out: Tensor, extra: tuple[Tensor, ...] = ()) -> Work:
    """The work of `left[…,M,K] @ right[…,K,N]`, whose batch dims broadcast to those of `out`."""
    flops = 2 * out.size * left.dims[-1]
    return Work(Family.MATMUL, left.dtype, flops, (left, right, *extra), (out,))


@formula(aten="mm bmm matmul mv dot _scaled_mm")
def aten_matmul(op: Operation) -> Work:
    """`aten::mm(a, b)` and its like, with NumPy's rules for vectors and batch dims. Source:
    docs.pytorch.org/docs/stable/generated/torch.matmul.html."""
    left, right = op.input(0), op.input(1)
    if not left.dims or not right.dims:
        raise DoesNotFit
    rows = left.dims[-2:-1]
    columns = right.dims[-1:] if len(right.dims) > 1 else ()
    inner = right.dims[-2] if len(right.dims) > 1 else right.dims[0]
    batch = broadcast(left.dims[:-2], right.dims[:-2])
    if left.dims[-1] != inner or batch is None:
        raise DoesNotFit
    return _product(left, right, left.like(*batch, *rows, *columns))


@formula(aten="addmm baddbmm addmv _addmm_activation")
def aten_addmm(op: Operation) -> Work:
    """`aten::addmm(c, a, b)`: c + a @ b. Source: torch's `native_functions.yaml`."""
    found = aten_matmul(Operation(op.op_type, (op.input(1), op.input(2)), None))
    return replace(found, reads=(*found.reads, op.input(0)))


@formula("aten::_int_mm")
def aten_int_mm(op: Operation) -> Work:
    """`aten::_int_mm(a, b)`: int8, summed in int32. Source: torch's `native_functions.yaml`."""
    found = aten_matmul(op)
    return replace(found, writes=tuple(Tensor("int32", out.dims) for out in found.writes or ()))


@formula(
    "quantized::linear_dynamic quantized::linear_relu_dynamic quantized::linear_dynamic_fp16 "
    "quantized::linear_relu_dynamic_fp16 MatMul8bitFp",
    aten="linear _weight_int8pack_mm",
)
def aten_linear(op: Operation) -> Work:
    """`aten::linear(x[…,K], w[N,K], b[N])`, and the like with quantized weights: the product
    counts, quantizing x does not. Source: torch.nn.functional.linear; torch.ao.nn.quantized;
    bitsandbytes' `autograd/_functions.py`."""
    x, weight = op.input(0), op.input(1)
    if not x.dims or not weight.dims or x.dims[-1] != weight.dims[-1]:
        raise DoesNotFit
    out = x.like(*x.dims[:-1], *weight.dims[:-1])
    return _product(x, weight, out, op.inputs[2:3])


@formula("bitsandbytes::gemm_4bit")
def packed_in_bytes(op: Operation) -> Work:
    """`gemm_4bit(x[…,K], w[N·K/2,1], …)`: two weights per byte. Source: bitsandbytes' `_ops.py`."""
    x, packed = op.input(0), op.input(1)
    depth = x.dims[-1] if x.dims else 0
    if packed.dtype != "uint8" or not depth or 2 * packed.size % depth:
        raise DoesNotFit
    out = x.like(*x.dims[:-1], 2 * packed.size // depth)
    return Work(Family.MATMUL, x.dtype, 2 * out.size * depth, op.inputs, (out,))


@formula(aten="outer ger")
def aten_outer(op: Operation) -> Work:
    """`aten::outer(a[M], b[N])`: one multiplication per element of the result."""
    a, b = op.input(0), op.input(1)
    out = a.like(a.size, b.size)
    return Work(Family.ELEMENTWISE, a.dtype, out.size, (a, b), (out,))


@formula(
    "MatMul FusedMatMul TransposeMatMul FusedMatMulActivation Gemm FusedGemm GemmFastGelu "
    "GemmFloat8 MatMulInteger MatMulIntegerToFloat DynamicQuantizeMatMul QLinearMatMul QGemm "
    "MatMulNBits MatMulBnb4 gemm"  # gemm is of TensorRT
)
def onnx_matmul(op: Operation) -> Work:
    """ONNX's products, from what is always in the trace: one factor and the result.

    ONNX Runtime's profile leaves out constants that a kernel packed in advance, and a product may
    transpose its factors. Of a factor `[…,a,b]` and a result `[…,M,N]`, the dim that is not M is
    K; if neither is M, the factor is the right one and its dim that is not N is K. A factor
    that is not among the inputs was packed: its K·N elements are read all the same, in the type
    of the other. Source: onnx.ai/onnx/operators, Gemm and MatMul; onnxruntime's
    `docs/ContribOperators.md`.
    """
    first, out = op.input(0), op.output
    m, n = ((1,) * 2 + out.dims)[-2:]
    depth, is_left = _depth(first, m, n)
    other = (depth, n) if is_left else (m, depth)
    shown = any(_is_factor(tensor, other) for tensor in op.inputs[1:])
    packed = () if shown else (first.like(*other),)
    flops = 2 * out.size * depth
    return Work(Family.MATMUL, first.dtype, flops, (*op.inputs, *packed), op.outputs)


def _depth(factor: Tensor, m: int, n: int) -> tuple[int, bool]:
    """Return the inner size K of a product, and whether `factor` is the left one."""
    if not factor.dims:
        raise DoesNotFit
    a, b = (1, *factor.dims)[-2:]
    if a == m or len(factor.dims) == 1:
        return b, True
    if b == m:
        return a, True
    if b == n:
        return a, False
    if a == n:
        return b, False
    raise DoesNotFit


def _is_factor(tensor: Tensor, dims: tuple[int, int]) -> bool:
    """Whether an input is the other factor: its matrices have the dims, in either order, or its
    bytes are two elements each (`MatMulNBits`)."""
    packed_by_two = tensor.dtype == "uint8" and 2 * tensor.size == prod(dims)
    return sorted((1, *tensor.dims)[-2:]) == sorted(dims) or packed_by_two


@formula("Einsum", aten="einsum")
def einsum(op: Operation) -> Work:
    """One input is transposed or summed; several do not fit, since traces lack the equation. If the
    result has as many elements as the input, nothing is computed. Source:
    onnx.ai/onnx/operators/onnx__Einsum.html."""
    if len(op.inputs) != 1 or op.outputs is None:
        raise DoesNotFit
    x = op.input(0)
    flops = 0 if op.output.size == x.size else x.size
    return Work(Family.MOVEMENT, x.dtype, flops, (x,), op.outputs)


# --- Operations that compute nothing: they move data, or only say how to look at it.
#
# Zero floating-point operations is what is known of all of them, not what is assumed. Source:
# onnx.ai/onnx/operators; onnxruntime's CPU kernels, which reuse the input's buffer for Reshape,
# Squeeze, Unsqueeze, Flatten and Identity; torch's list of view operations
# (docs.pytorch.org/docs/stable/tensor_view.html).


@formula(
    "Reshape Squeeze Unsqueeze Flatten Identity Shape Size Constant",
    aten="view transpose t permute unsqueeze squeeze slice select chunk split split_with_sizes "
    "unbind expand expand_as unflatten flatten alias detach lift_fresh as_strided narrow "
    "_unsafe_view view_as view_as_complex view_as_real real imag _reshape_alias movedim swapaxes "
    "dropout result_type empty empty_like empty_strided resize_ unfold numpy_T tensor_split "
    "is_nonzero item _local_scalar_dense",
)
def view(op: Operation) -> Work:
    """A view of the same memory: nothing is moved. In inference dropout is one."""
    dtype = op.inputs[0].dtype if op.inputs else ""
    return Work(Family.VIEW, dtype, 0, (), ())


@formula("Transpose Concat Pad DepthToSpace SpaceToDepth Tile ReorderInput ReorderOutput Compress")
def whole(op: Operation) -> Work:
    """Every input is read, the outputs are written."""
    return Work(Family.MOVEMENT, op.input(0).dtype, 0, op.inputs, op.outputs)


@formula("Slice Split Gather GatherND GatherElements Expand SplitToSequence EyeLike")
def part(op: Operation) -> Work:
    """Reads as much as is written, at most the whole input, and the indices. The rest of the input
    is not touched."""
    if op.outputs is None:
        raise DoesNotFit
    x = op.input(0)
    taken = x.like(min(sum(t.size for t in op.outputs), x.size))
    known = sum_of_sizes((taken, *op.inputs[1:]))
    return Work(Family.MOVEMENT, x.dtype, 0, op.inputs, op.outputs, known)


@formula(
    "Upsample Resize GridSample",
    aten="upsample_bilinear2d upsample_bicubic2d grid_sampler_2d _upsample_bilinear2d_aa "
    "upsample_trilinear3d",
)
def resample(op: Operation) -> Work:
    """Only bytes are known: FLOPs depend on the interpolation, which is not in the shapes. What
    torch writes is unknown too: the size of the result is an argument."""
    return Work(Family.MOVEMENT, op.input(0).dtype, None, op.inputs, op.outputs)


@formula(aten="copy _copy_from")
def copy(op: Operation) -> Work:
    """`dst.copy_(src)`: src, broadcast to dst, is read, dst written. Between types it is a
    conversion, which is elementwise."""
    target, source = op.input(0), op.input(1)
    family = Family.MOVEMENT if target.dtype == source.dtype else Family.ELEMENTWISE
    return Work(family, target.dtype, 0, (source,), (target,))


@formula(aten="cat concat concatenate stack _cat")
def joined(op: Operation) -> Work:
    """The tensors of a list, each read and written once. The result has as many elements as they
    have together; along which dim is not in the shapes. Source: torch.cat."""
    x = op.input(0)
    out = x.like(sum(t.size for t in op.inputs))
    return Work(Family.MOVEMENT, x.dtype, 0, op.inputs, (out,))


@formula("aten::clone")
def clone(op: Operation) -> Work:
    """The input, copied."""
    x = op.input(0)
    return Work(Family.MOVEMENT, x.dtype, 0, (x,), (x,))


@formula(aten="full_like zeros_like ones_like rand_like randn_like fill zero")
def filled(op: Operation) -> Work:
    """A tensor of the input's shape is written, nothing is read."""
    x = op.input(0)
    return Work(Family.MOVEMENT, x.dtype, 0, (), (x,))


@formula("aten::embedding")
def embedding(op: Operation) -> Work:
    """One row of the table per index is read and written; at most the whole table is read. Source:
    torch.nn.functional.embedding."""
    table, index = op.input(0), op.input(1)
    out = table.like(*index.dims, *table.dims[1:])
    return Work(
        Family.MOVEMENT, table.dtype, 0, (min(out, table, key=lambda t: t.size), index), (out,)
    )


@formula(aten="gather take_along_dim")
def gather(op: Operation) -> Work:
    """One element of the input per index is read and written. An index of several dims is often a
    column that was expanded over the rows: at least a column of it is read."""
    x, index = op.input(0), op.input(1)
    out = Tensor(x.dtype, index.dims)
    column = index.like(*index.dims[:-1]) if len(index.dims) > 1 else index
    return Work(Family.MOVEMENT, x.dtype, 0, (min(out, x, key=lambda t: t.size), column), (out,))


@formula("aten::index_select")
def index_select(op: Operation) -> Work:
    """`x.index_select(dim, index)`: as many slices of x as there are indices, read and written. The
    dim is not in the shapes: the one that moves least counts."""
    x, index = op.input(0), op.input(1)
    if not x.dims or len(index.dims) > 1:
        raise DoesNotFit
    slices = [x.size // length * index.size for length in x.dims if length]
    out = x.like(min(slices, default=0))
    return Work(Family.MOVEMENT, x.dtype, 0, (min(out, x, key=lambda t: t.size), index), (out,))


@formula("aten::index")
def index_of_unknown(op: Operation) -> Work:
    """`x[i, j]`: torch's events lack the indices, a list, so how much of x is read and written is
    unknown."""
    x = op.input(0)
    return Work(Family.MOVEMENT, x.dtype, 0, op.inputs, op.outputs, partly=op.outputs is None)


@formula("sglang::store_cache sgl_kernel::store_cache sgl_kernel::store_kv_cache")
def store_cache(op: Operation) -> Work:
    """`store_cache(k, v, k_pool, v_pool, slots)`: k and v are read and written to their slots of
    the pools. Source: sglang's `jit_kernel/kvcache.py`."""
    k, v, slots = op.input(0), op.input(1), op.input(4)
    return Work(Family.MOVEMENT, k.dtype, 0, (k, v, slots), (k, v))


@formula("ConstantOfShape Range RandomNormalLike RandomUniformLike NonZero")
def made(op: Operation) -> Work:
    """The output is written."""
    return Work(Family.MOVEMENT, op.output.dtype, 0, (), op.outputs)


@formula(
    aten="pad constant_pad_nd reflection_pad2d replication_pad2d repeat repeat_interleave tile "
    "nonzero roll flip upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d pixel_shuffle pixel_unshuffle to _to_copy "
    "contiguous reshape arange full zeros ones linspace scalar_tensor one_hot bincount unique"
)
def unknown_result(op: Operation) -> Work:
    """Nothing is computed, and how much is moved is not in the shapes of the inputs."""
    dtype = op.inputs[0].dtype if op.inputs else ""
    return Work(Family.MOVEMENT, dtype, 0, op.inputs, op.outputs)


# --- Normalizations: operations per element, by definition, each input and the result once.
#
# mean (a sum), difference, square, sum of squares, product with the inverse deviation: five; RMS
# norms have no mean and no difference: three. A scale and a shift are one each. What is computed
# once per row (the quotient, the root) is not counted. Source: onnx.ai/onnx/operators
# (LayerNormalization, GroupNormalization, RMSNormalization), onnxruntime's
# `docs/ContribOperators.md` (SkipLayerNormalization), torch.nn.functional.


_STATISTICS = 5
_RMS = 3


def _norm(op: Operation, operations: int) -> Work:
    """`operations` on each element of the first input."""
    x = op.input(0)
    return Work(Family.NORM, x.dtype, operations * x.size, op.inputs, op.outputs or (x,))


def _affine(op: Operation) -> int:
    """Return the operations per element of scale and shift: one for each input that is smaller than
    the first."""
    size = op.input(0).size
    return min(sum(1 <= t.size < size for t in op.inputs[1:]), 2)


@formula(
    "LayerNormalization GroupNormalization GroupNorm InstanceNormalization "
    "MeanVarianceNormalization NhwcGroupNorm aiter::_groupnorm_run aiter::layer_norm",
    aten="layer_norm native_layer_norm group_norm native_group_norm instance_norm",
)
def with_mean(op: Operation) -> Work:
    """Layer, group and instance norm: five operations per element, plus scale and shift."""
    return _norm(op, _STATISTICS + _affine(op))


@formula(
    "RMSNormalization SimplifiedLayerNormalization aiter::rms_norm", aten="rms_norm _fused_rms_norm"
)
def without_mean(op: Operation) -> Work:
    """RMS norm: three operations per element, plus the scale."""
    return _norm(op, _RMS + _affine(op))


@formula("SkipLayerNormalization SkipGroupNorm SkipSimplifiedLayerNormalization")
def after_skip(op: Operation) -> Work:
    """com.microsoft: x + skip (+ bias), then a layer norm, or a simplified one, which is an RMS
    norm."""
    operations = _RMS if "Simplified" in op.op_type else _STATISTICS
    op.input(1)  # without it the shapes do not fit
    return _norm(op, operations + 1 + min(len(op.inputs) - 2, 3))


@formula(
    "BatchNormalization LpNormalization",
    aten="batch_norm native_batch_norm cudnn_batch_norm miopen_batch_norm",
)
def other_norms(op: Operation) -> Work:
    """Batch norm is in inference a scale and a shift by known statistics: two operations per
    element. LpNormalization is a square, a sum and a quotient."""
    return _norm(op, 3 if op.op_type == "LpNormalization" else 2)
