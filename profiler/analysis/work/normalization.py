"""Normalizations: operations an element, by definition, each input and the result once.

mean (a sum), difference, square, sum of squares, product with the inverse deviation: five; RMS
norms have no mean and no difference: three. A scale and a shift are one each. What is computed
once a row (the quotient, the root) is not counted. Source: onnx.ai/onnx/operators
(LayerNormalization, GroupNormalization, RMSNormalization), onnxruntime's `docs/ContribOperators.md`
(SkipLayerNormalization), torch.nn.functional.
"""

from __future__ import annotations

from profiler.analysis.work.registry import Family, Operation, Work, formula

__all__ = [
    "batch_norm",
    "lp_norm",
    "skip_with_mean",
    "skip_without_mean",
    "with_mean",
    "without_mean",
]

_STATISTICS = 5
_RMS = 3


def _norm(op: Operation, operations: int) -> Work:
    """`operations` on each element of the first input."""
    x = op.input(0)
    return Work(Family.NORM, x.dtype, operations * x.size, op.inputs, op.outputs or (x,))


def _affine(op: Operation) -> int:
    """Scale and shift, an operation each: inputs that are smaller than the first."""
    size = op.input(0).size
    return min(sum(1 <= t.size < size for t in op.inputs[1:]), 2)


@formula(
    "LayerNormalization",
    "GroupNormalization",
    "GroupNorm",
    "InstanceNormalization",
    "MeanVarianceNormalization",
    "NhwcGroupNorm",
    "aten::layer_norm",
    "aten::native_layer_norm",
    "aten::group_norm",
    "aten::native_group_norm",
    "aten::instance_norm",
    "aiter::_groupnorm_run",
    "aiter::layer_norm",
)
def with_mean(op: Operation) -> Work:
    """Layer, group and instance norm: five operations an element, and scale and shift."""
    return _norm(op, _STATISTICS + _affine(op))


@formula(
    "RMSNormalization",
    "SimplifiedLayerNormalization",
    "aten::rms_norm",
    "aten::_fused_rms_norm",
    "aiter::rms_norm",
)
def without_mean(op: Operation) -> Work:
    """RMS norm: three operations an element, and the scale."""
    return _norm(op, _RMS + _affine(op))


@formula("SkipLayerNormalization", "SkipGroupNorm")
def skip_with_mean(op: Operation) -> Work:
    """com.microsoft: x + skip (+ bias), then a layer norm."""
    return _skip(op, _STATISTICS)


@formula("SkipSimplifiedLayerNormalization")
def skip_without_mean(op: Operation) -> Work:
    """com.microsoft: x + skip (+ bias), then an RMS norm."""
    return _skip(op, _RMS)


def _skip(op: Operation, operations: int) -> Work:
    op.input(1)
    return _norm(op, operations + 1 + min(len(op.inputs) - 2, 3))


@formula(
    "BatchNormalization",
    "aten::batch_norm",
    "aten::native_batch_norm",
    "aten::cudnn_batch_norm",
    "aten::miopen_batch_norm",
)
def batch_norm(op: Operation) -> Work:
    """In inference a scale and a shift by known statistics: two operations an element."""
    return _norm(op, 2)


@formula("LpNormalization")
def lp_norm(op: Operation) -> Work:
    """A square, a sum and a quotient an element."""
    return _norm(op, 3)
