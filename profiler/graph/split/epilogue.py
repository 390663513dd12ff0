"""What follows an operation element by element, carried on in its parts.

Compilers add the bias and apply the activation to each part before parts are put together, and so
does this: ONNX Runtime then fuses into the parts what it fuses into the whole operation.
"""

from __future__ import annotations

import onnx_ir as ir

from profiler.graph.split.operands import dims_of
from profiler.graph.split.operation_parts import Parts
from profiler.graph.split.portions import CannotSplitError
from profiler.graph.values import is_constant

__all__ = ["join"]

_ACTIVATIONS = frozenset(("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "Clip", "Gelu"))
_WITH_CONSTANT = frozenset(("Add", "Mul", "Div"))


def join(parts: Parts, outputs: list[ir.Value], axis: int, lengths: list[int]) -> None:
    """Put `parts` in their operation's place: their `outputs`, portions of that `axis` with these
    `lengths`, are put together behind the operations that can be carried on.

    Such an operation alone reads what is joined, and is an activation, or adds or multiplies a
    constant. The Concat belongs to the operation that ONNX Runtime names the fused one after: to
    the MatMul or Gemm that takes in a constant, else to the last.
    """
    joined = parts.replace(parts.concat(outputs, axis))
    owner = parts
    while True:
        following = _following(joined)
        concat = joined.producer()
        if following is None or concat is None:
            return
        node, position = following
        parts = Parts(parts.rewriter, node)
        back = axis - len(dims_of(joined) or ())
        try:
            operands = [
                list(concat.inputs)
                if number == position
                else parts.broadcast_portions(value, back, lengths)
                for number, value in enumerate(node.inputs)
            ]
        except CannotSplitError:  # what follows does not fit: the model is at fault
            return
        outputs = [
            parts.add(given, length=(axis, length))
            for *given, length in zip(*operands, lengths, strict=True)
        ]
        if node.op_type in _ACTIVATIONS or owner.node.op_type not in ("MatMul", "Gemm"):
            owner = parts
        parts.rewriter.release(concat)
        joined = parts.replace(parts.concat(outputs, axis, owner))
        assert concat.graph is not None
        concat.graph.remove(concat, safe=True)


def _following(joined: ir.Value) -> tuple[ir.Node, int] | None:
    """The operation that takes in the parts next, and as which input; None where none does."""
    uses, rank = joined.uses(), len(dims_of(joined) or ())
    if joined.is_graph_output() or len(uses) != 1 or not rank:
        return None
    node, position = next(iter(uses))
    producer = joined.producer()
    if producer is None or node.graph is not producer.graph or node.domain:
        return None
    others = [value for number, value in enumerate(node.inputs) if number != position]
    if node.op_type in _ACTIVATIONS:
        fits = all(value is None or _is_scalar(value) for value in others)
    else:
        fits = node.op_type in _WITH_CONSTANT and all(_is_small(other, rank) for other in others)
    return (node, position) if fits else None


def _is_scalar(value: ir.Value) -> bool:
    return is_constant(value) and dims_of(value) in ([], [1])


def _is_small(value: ir.Value | None, rank: int) -> bool:
    """Whether a value is a constant that broadcasts along all axes but one."""
    dims = dims_of(value)
    if not is_constant(value) or dims is None or len(dims) > rank:
        return False
    return sum(dim != 1 for dim in dims) <= 1
