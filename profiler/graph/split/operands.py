"""What the graph tells of an operand: its constant, its dimensions, slices of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from profiler.graph.values import is_constant

__all__ = ["Ranges", "dims_of", "is_weight", "ranges_of", "slice_of"]

_ON_WEIGHTS = frozenset(
    ("Transpose", "Cast", "DequantizeLinear", "Reshape", "Squeeze", "Unsqueeze", "Identity")
)
_MOST_ON_WEIGHTS = 8
Ranges: TypeAlias = "tuple[tuple[int, int], ...]"


def is_weight(value: ir.Value | None) -> bool:
    """Whether a value is a constant, or made of constants alone by operations that exporters leave
    on weights."""
    for _ in range(_MOST_ON_WEIGHTS):
        if value is None or is_constant(value):
            return value is not None
        producer = value.producer()
        if producer is None or producer.op_type not in _ON_WEIGHTS or not producer.inputs:
            return False
        if any(other is not None and not is_constant(other) for other in producer.inputs[1:]):
            return False
        value = producer.inputs[0]
    return False


def dims_of(value: ir.Value | None) -> list[int | None] | None:
    """The dimensions of a tensor, None for each that only a run tells; None where its rank is not
    known."""
    if value is None or value.shape is None:
        return None
    return [dim if isinstance(dim, int) else None for dim in value.shape]


def ranges_of(lengths: Sequence[int], unit: int = 1, begin: int = 0) -> list[tuple[int, int]]:
    """Begin and end of each portion, of `unit` indices each, behind each other from `begin`."""
    ends = (begin + np.cumsum(lengths) * unit).tolist()
    return list(zip([begin, *ends[:-1]], ends, strict=True))


def slice_of(tensor: ir.TensorProtocol, axis: int, ranges: Ranges, name: str) -> ir.TensorProtocol:
    """The indices in `ranges` of an axis, behind each other: read from `tensor` when asked for."""
    indices = [(*(slice(None),) * axis, slice(begin, end)) for begin, end in ranges]
    dims = list(tensor.shape.numpy())
    dims[axis] = sum(end - begin for begin, end in ranges)

    def read() -> ir.TensorProtocol:
        array = tensor.numpy()
        found = [array[index] for index in indices]
        whole = found[0] if len(found) == 1 else np.concatenate(found, axis)
        return ir.Tensor(np.ascontiguousarray(whole), dtype=tensor.dtype, name=name)

    return ir.LazyTensor(read, dtype=tensor.dtype, shape=ir.Shape(dims), name=name)
