"""Matrix products: 2·M·N·K operations for `[…,M,K] @ [K,N]`, bias and activation not counted.

Source of the count: `torch.utils.flop_counter` (`mm_flop`, `addmm_flop`, `bmm_flop`).
"""

from __future__ import annotations

from math import prod

from profiler.analysis.work.registry import DoesNotFit, Family, Operation, Work, formula
from profiler.analysis.work.shapes import Tensor, broadcast

__all__ = [
    "aten_addmm",
    "aten_int_mm",
    "aten_linear",
    "aten_matmul",
    "aten_outer",
    "einsum",
    "onnx_matmul",
    "packed_in_bytes",
]


def _product(left: Tensor, right: Tensor, out: Tensor, extra: tuple[Tensor, ...] = ()) -> Work:
    """The work of `left[…,M,K] @ right[…,K,N]`, whose batch dims broadcast to those of `out`."""
    flops = 2 * out.size * left.dims[-1]
    return Work(Family.MATMUL, left.dtype, flops, (left, right, *extra), (out,))


@formula("aten::mm", "aten::bmm", "aten::matmul", "aten::mv", "aten::dot", "aten::_scaled_mm")
def aten_matmul(op: Operation) -> Work:
    """`aten::mm(a, b)` and its like, with NumPy's rules for vectors and batch dims.

    Source: docs.pytorch.org/docs/stable/generated/torch.matmul.html.
    """
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


@formula("aten::addmm", "aten::baddbmm", "aten::addmv", "aten::_addmm_activation")
def aten_addmm(op: Operation) -> Work:
    """`aten::addmm(c, a, b)`: c + a @ b. Source: torch's `native_functions.yaml`."""
    found = aten_matmul(Operation(op.op_type, (op.input(1), op.input(2)), None))
    return Work(found.family, found.dtype, found.flops, (*found.reads, op.input(0)), found.writes)


@formula("aten::_int_mm")
def aten_int_mm(op: Operation) -> Work:
    """`aten::_int_mm(a, b)`: int8, summed in int32. Source: torch's `native_functions.yaml`."""
    found = aten_matmul(op)
    sums = tuple(Tensor("int32", out.dims) for out in found.writes or ())
    return Work(found.family, found.dtype, found.flops, found.reads, sums)


@formula(
    "aten::linear",
    "quantized::linear_dynamic",
    "quantized::linear_relu_dynamic",
    "quantized::linear_dynamic_fp16",
    "quantized::linear_relu_dynamic_fp16",
    "aten::_weight_int8pack_mm",
    "MatMul8bitFp",
)
def aten_linear(op: Operation) -> Work:
    """`aten::linear(x[…,K], w[N,K], b[N])`, and the like with quantized weights: their products are
    counted, what quantizes x is not. Source: torch.nn.functional.linear; torch.ao.nn.quantized;
    bitsandbytes' `autograd/_functions.py`."""
    x, weight = op.input(0), op.input(1)
    if not x.dims or not weight.dims or x.dims[-1] != weight.dims[-1]:
        raise DoesNotFit
    out = x.like(*x.dims[:-1], *weight.dims[:-1])
    return _product(x, weight, out, op.inputs[2:3])


@formula("bitsandbytes::gemm_4bit")
def packed_in_bytes(op: Operation) -> Work:
    """`gemm_4bit(x[…,K], w[N·K/2,1], …)`: two weights a byte. Source: bitsandbytes' `_ops.py`."""
    x, packed = op.input(0), op.input(1)
    depth = x.dims[-1] if x.dims else 0
    if packed.dtype != "uint8" or not depth or 2 * packed.size % depth:
        raise DoesNotFit
    out = x.like(*x.dims[:-1], 2 * packed.size // depth)
    return Work(Family.MATMUL, x.dtype, 2 * out.size * depth, op.inputs, (out,))


@formula("aten::outer", "aten::ger")
def aten_outer(op: Operation) -> Work:
    """`aten::outer(a[M], b[N])`: one multiplication an element of the result."""
    a, b = op.input(0), op.input(1)
    out = a.like(a.size, b.size)
    return Work(Family.ELEMENTWISE, a.dtype, out.size, (a, b), (out,))


@formula(
    "MatMul",
    "FusedMatMul",
    "TransposeMatMul",
    "FusedMatMulActivation",
    "Gemm",
    "FusedGemm",
    "GemmFastGelu",
    "GemmFloat8",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul",
    "QLinearMatMul",
    "QGemm",
    "MatMulNBits",
    "MatMulBnb4",
)
def onnx_matmul(op: Operation) -> Work:
    """ONNX's products, from what is always in the trace: one factor and the result.

    ONNX Runtime's profile leaves out constants that a kernel packed in advance, and a product may
    transpose its factors. Of a factor `[…,a,b]` and a result `[…,M,N]`, the dim that is not M is
    K; where neither is M, the factor is the right one and its dim that is not N is K. A factor
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
    """K, and whether `factor` is the left one."""
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


@formula("Einsum", "aten::einsum")
def einsum(op: Operation) -> Work:
    """A sum of one factor is a transposition or a sum; of several, the equation is not in a trace.

    With one input and as many elements in the result nothing is computed. Source:
    onnx.ai/onnx/operators/onnx__Einsum.html.
    """
    if len(op.inputs) != 1:
        raise DoesNotFit
    x = op.input(0)
    if op.outputs is None:
        raise DoesNotFit
    flops = 0 if op.output.size == x.size else x.size
    return Work(Family.MOVEMENT, x.dtype, flops, (x,), op.outputs)
