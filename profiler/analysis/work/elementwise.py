"""Operations that treat every element on its own, and reductions.

The count is that of the definition (`registry` says what counts as one operation); bytes are each
input and the result once. Source of the definitions: onnx.ai/onnx/operators,
docs.pytorch.org/docs/stable/torch.html, onnxruntime's `docs/ContribOperators.md`.
"""

from __future__ import annotations

from profiler.analysis.work.registry import DoesNotFit, Family, Operation, Work, formula
from profiler.analysis.work.shapes import Tensor, broadcast

__all__ = [
    "conversion",
    "dequantization",
    "extremes",
    "no_arithmetic",
    "one_operation",
    "quantization",
    "reduction",
    "reduction_of_squares",
    "several_operations",
    "softmax",
    "softmax_with_bias",
    "sum_of_inputs",
]

_ONE = {  # one operation an element
    "onnx": "Add Sub Mul Div Neg Abs Min Max Pow Sqrt Reciprocal Exp Log Sin Cos Tanh Erf Relu "
    "Clip Floor Ceil Round Sign Mod Softsign PRelu LeakyRelu Rsqrt",
    "aten": "add sub rsub mul div neg abs minimum maximum pow sqrt rsqrt reciprocal exp log sin "
    "cos tanh erf relu clamp clamp_min clamp_max floor ceil round sign remainder fmod square "
    "true_divide multiply leaky_relu exp2 log2 atan sinh cosh floor_divide",
}
_SEVERAL = {
    "Sigmoid": 4,  # 1 / (1 + exp(-x))
    "aten::sigmoid": 4,
    "HardSigmoid": 4,
    "aten::silu": 5,  # x · sigmoid(x)
    "Swish": 5,
    "QuickGelu": 6,  # x · sigmoid(a x)
    "Gelu": 5,  # x · 0.5 · (1 + erf(x / √2))
    "BiasGelu": 6,
    "FastGelu": 9,  # 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))
    "BiasSplitGelu": 7,
    "Mish": 5,
    "Elu": 3,
    "Softplus": 3,
    "aten::gelu": 5,
    "aten::softplus": 3,
    "aten::elu": 3,
    "aten::mish": 5,
    "aten::addcmul": 3,
    "aten::addcdiv": 3,
    "aten::lerp": 3,
}
_NONE = {  # no floating-point arithmetic; the result has another type than the inputs, or theirs
    "onnx": "Where Equal Less Greater LessOrEqual GreaterOrEqual And Or Not Xor IsNaN IsInf Cast "
    "QuantizeLinear DequantizeLinear BitShift Trilu",
    "aten": "where eq ne lt gt le ge logical_and logical_or logical_not logical_xor isnan isinf "
    "bitwise_and bitwise_or bitwise_not bitwise_xor masked_fill triu tril isfinite",
}
_BOOLEAN = frozenset(
    f"aten::{name}"
    for name in (
        *("eq", "ne", "lt", "gt", "le", "ge", "isnan", "isinf", "isfinite"),
        *("logical_and", "logical_or", "logical_not", "logical_xor"),
    )
)
_RANKS = {"complex": 3, "float": 2, "bfloat": 2, "int": 1, "uint": 1, "bool": 0}


def _names(table: dict[str, str]) -> tuple[str, ...]:
    return (*table["onnx"].split(), *(f"aten::{name}" for name in table["aten"].split()))


def _together(inputs: tuple[Tensor, ...]) -> Tensor:
    """What inputs of these shapes give under NumPy's rules, in torch's promoted type.

    Raises DoesNotFit where they do not broadcast.
    """
    dims = broadcast(*(tensor.dims for tensor in inputs))
    if dims is None or not inputs:
        raise DoesNotFit
    strongest = max(inputs, key=lambda t: (_rank(t), bool(t.dims), t.width or 0))
    return Tensor(strongest.dtype, dims)


def _rank(tensor: Tensor) -> int:
    return _RANKS.get(tensor.dtype.rstrip("0123456789emfnuz"), 2)


def _result(op: Operation) -> tuple[Tensor, ...]:
    """The outputs, or what the inputs broadcast to; in place, what is written over."""
    if op.outputs:
        return op.outputs
    if op.op_type.startswith("aten::") and op.op_type.endswith("_"):
        return op.inputs[:1]
    out = _together(op.inputs)
    return (Tensor("bool", out.dims) if op.op_type in _BOOLEAN else out,)


def _elementwise(op: Operation, operations: int) -> Work:
    out = _result(op)
    dtype = _together(op.inputs).dtype if op.op_type.startswith("aten::") else op.input(0).dtype
    per_element = operations if Tensor(dtype, ()).floating else 0
    if dtype.startswith("complex"):
        per_element *= 6 if op.op_type in ("aten::mul", "Mul") else 2
    return Work(Family.ELEMENTWISE, dtype, per_element * out[0].size, op.inputs, out)


@formula(*_names(_ONE))
def one_operation(op: Operation) -> Work:
    """One operation an element of the result; a product of complex numbers six, a sum two."""
    return _elementwise(op, 1)


@formula(*_SEVERAL)
def several_operations(op: Operation) -> Work:
    """Activations: the operations of their definition, an element of the result."""
    return _elementwise(op, _SEVERAL.get(op.op_type) or _SEVERAL[op.op_type.removesuffix("_")])


@formula(*_names(_NONE))
def no_arithmetic(op: Operation) -> Work:
    """Comparisons, choices and conversions: traffic, and no floating-point arithmetic."""
    return _elementwise(op, 0)


@formula(
    "torchao::quantize_affine",
    "torchao::dequantize_affine",
    "quantized::quantize_per_tensor_dynamic",
    "aten::quantize_per_tensor",
    "aten::quantize_per_channel",
)
def quantization(op: Operation) -> Work:
    """A conversion, whose result has a type that is an argument: what is written is not known.
    Source: torchao's `quant_primitives.py`."""
    return Work(Family.ELEMENTWISE, op.input(0).dtype, 0, op.inputs, op.outputs)


@formula("aten::dequantize")
def dequantization(op: Operation) -> Work:
    """A conversion to float32."""
    x = op.input(0)
    return Work(Family.ELEMENTWISE, "float32", 0, (x,), (Tensor("float32", x.dims),))


@formula("Sum", "Mean", "aten::sum_to_size")
def sum_of_inputs(op: Operation) -> Work:
    """ONNX's Sum of n inputs: n - 1 additions an element."""
    return _elementwise(op, max(len(op.inputs) - 1, 1))


@formula("aten::type_as")
def conversion(op: Operation) -> Work:
    """`x.type_as(y)`: a copy of x in y's type; nothing where they have one type."""
    x, other = op.input(0), op.input(1)
    if x.dtype == other.dtype:
        return Work(Family.VIEW, x.dtype, 0, (), ())
    return Work(Family.ELEMENTWISE, x.dtype, 0, (x,), (Tensor(other.dtype, x.dims),))


_REDUCTIONS = (
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceLogSum CumSum ArgMax ArgMin"
)
_RUNNING = ("aten::cumsum", "aten::cumprod")
_ATEN_REDUCTIONS = (
    "sum mean amax amin max min prod cumsum cumprod argmax argmin any all norm nansum"
)


@formula(*_REDUCTIONS.split(), *(f"aten::{name}" for name in _ATEN_REDUCTIONS.split()))
def reduction(op: Operation) -> Work:
    """One operation an element of the input. Where torch's result is not in the shapes, it has an
    element at least. `aten::max` and `aten::min` of two tensors are elementwise, and sums along the
    way (`cumsum`) are as many as the elements."""
    if op.op_type in _RUNNING:
        return Work(Family.REDUCTION, op.input(0).dtype, _flops(op, 1), op.inputs, op.inputs[:1])
    if len(op.inputs) == 2 and op.op_type in ("aten::max", "aten::min"):
        return _elementwise(op, 1)
    return _reduction(op, 1)


@formula("torchao::choose_qparams_affine")
def extremes(op: Operation) -> Work:
    """Least and greatest of each block: two operations an element. Source: torchao's
    `quant_primitives.py`."""
    return _reduction(op, 2)


@formula("ReduceSumSquare", "ReduceL2", "aten::linalg_vector_norm", "aten::var", "aten::std")
def reduction_of_squares(op: Operation) -> Work:
    """Two operations an element of the input: a square and a sum."""
    return _reduction(op, 2)


def _reduction(op: Operation, operations: int) -> Work:
    x = op.input(0)
    least = x.like().nbytes if op.outputs is None else None
    return Work(
        Family.REDUCTION,
        x.dtype,
        _flops(op, operations),
        op.inputs[:1],
        op.outputs,
        least_written=least,
    )


def _flops(op: Operation, operations: int) -> int:
    """`operations` an element of the first input, of floating-point numbers alone."""
    x = op.input(0)
    return operations * x.size if x.floating else 0


_SOFTMAX = (
    "Softmax",
    "LogSoftmax",
    "aten::softmax",
    "aten::_softmax",
    "aten::log_softmax",
    "aten::_log_softmax",
    "aten::_safe_softmax",
)


@formula(*_SOFTMAX)
def softmax(op: Operation) -> Work:
    """Five operations an element: maximum, difference, exp, sum, quotient."""
    x = op.input(0)
    return Work(Family.SOFTMAX, x.dtype, 5 * x.size, (x,), op.outputs or (x,))


@formula("BiasSoftmax")
def softmax_with_bias(op: Operation) -> Work:
    """com.microsoft's softmax(x + bias): six operations an element."""
    x = op.input(0)
    return Work(Family.SOFTMAX, x.dtype, 6 * x.size, op.inputs, op.outputs or (x,))
