"""Operations that the exporter wrote as many small nodes, though ONNX has an operator for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from profiler.graph.checks.finding import CheckedModel, GraphFinding, opset, place, rule
from profiler.graph.values import (
    constant,
    is_constant,
    nodes,
    only_node,
    producer,
    scalar,
)

__all__ = [
    "decomposed_attention",
    "decomposed_gelu",
    "decomposed_layernorm",
    "decomposed_rmsnorm",
]

_CUBIC = 0.044715  # the factor of x³ in GELU's approximation by tanh
_SCORES = {"Add", "Mul", "Div", "Sub", "Cast", "Where", "Reshape", "Clip"}
_WEIGHTS = {"Cast", "Where", "Dropout", "Reshape", "Identity"}
_FAR = 8  # nodes that are followed before a pattern is given up


def _finding(model: ir.Model, node: ir.Node, name: str, evidence: str, since: int) -> GraphFinding:
    version = opset(model)
    late = f"opset {since} has it as one operator, the model is of opset {version}: " * (
        version < since
    )
    return GraphFinding(
        f"decomposed_{name.lower()}",
        "note",
        place(node),
        evidence,
        f"{late}export it as one operator, or fuse it with an optimizer, where the compiler does "
        "not do so itself",
    )


@rule
def decomposed_layernorm(checked: CheckedModel) -> Iterator[GraphFinding]:
    """A LayerNorm of ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div."""
    for node, centered in _norms(checked.model):
        if centered:
            evidence = (
                "a LayerNorm stands there as ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div"
            )
            yield _finding(checked.model, node, "LayerNorm", evidence, 17)


@rule
def decomposed_rmsnorm(checked: CheckedModel) -> Iterator[GraphFinding]:
    """An RMSNorm of Pow, ReduceMean, Add, Sqrt, Div."""
    for node, centered in _norms(checked.model):
        if not centered:
            evidence = "an RMSNorm stands there as Pow, ReduceMean, Add, Sqrt and Div or Mul"
            yield _finding(checked.model, node, "RMSNorm", evidence, 23)


def _norms(model: ir.Model) -> Iterator[tuple[ir.Node, bool]]:
    """The node that divides by the deviation, and whether the mean is subtracted before."""
    for root in nodes(model):
        if root.op_type != "Sqrt" or root.domain:
            continue
        add = producer(root.inputs[0], "Add")
        mean = None if add is None else _either(add, "ReduceMean")
        square = None if mean is None else producer(mean.inputs[0], "Pow", "Mul")
        if square is None or not _squares(square):
            continue
        divides = only_node(root.outputs[0].uses(), "Div", "Reciprocal")
        if divides is not None:
            yield divides, _centers(square.inputs[0])


def _squares(node: ir.Node) -> bool:
    if node.op_type == "Mul":
        return node.inputs[0] is node.inputs[1]
    return scalar(node.inputs[1]) == 2.0


def _centers(value: ir.Value | None) -> bool:
    """Whether `value` is something less its own mean."""
    difference = producer(_uncast(value), "Sub")
    if difference is None:
        return False
    mean = producer(_uncast(difference.inputs[1]), "ReduceMean")
    return mean is not None and _uncast(mean.inputs[0]) is _uncast(difference.inputs[0])


def _uncast(value: ir.Value | None) -> ir.Value | None:
    cast = producer(value, "Cast")
    return value if cast is None else cast.inputs[0]


def _either(node: ir.Node, *op_types: str) -> ir.Node | None:
    """The producer of one of the inputs that is one of `op_types`."""
    found = (producer(value, *op_types) for value in node.inputs)
    return next((node for node in found if node is not None), None)


@rule
def decomposed_gelu(checked: CheckedModel) -> Iterator[GraphFinding]:
    """A GELU of Erf or Tanh and what stands around it."""
    for node in nodes(checked.model):
        if node.domain or node.op_type not in ("Erf", "Tanh"):
            continue
        plus = only_node(node.outputs[0].uses(), "Add")
        if plus is None or all(scalar(value) != 1.0 for value in plus.inputs):
            continue
        if only_node(plus.outputs[0].uses(), "Mul") is None:
            continue
        if node.op_type == "Erf" or _is_cubic(node.inputs[0]):
            evidence = f"a GELU stands there as {node.op_type}, Add, Mul and what feeds them"
            yield _finding(checked.model, node, "GELU", evidence, 20)


def _is_cubic(value: ir.Value | None) -> bool:
    """Whether the factor of GELU's approximation stands among what computes `value`."""
    pending, far = [value], 0
    while pending and far < _FAR:
        node = producer(pending.pop(0), "Mul", "Add", "Pow")
        if node is None:
            continue
        far += 1
        arrays = (constant(entry, 64) for entry in node.inputs)
        if any(
            a is not None and a.size and np.isclose(a.flat[0], _CUBIC, rtol=1e-3) for a in arrays
        ):
            return True
        pending += node.inputs
    return False


@rule
def decomposed_attention(checked: CheckedModel) -> Iterator[GraphFinding]:
    """Attention of MatMul, Softmax, MatMul on computed tensors."""
    for node in nodes(checked.model):
        if node.op_type == "Softmax" and not node.domain and _has_scores(node) and _has_sum(node):
            evidence = "attention stands there as MatMul, Softmax, MatMul and what scales and masks"
            yield _finding(checked.model, node, "attention", evidence, 23)


def _has_scores(softmax: ir.Node) -> bool:
    """Whether a MatMul of two computed tensors gives what `softmax` reads."""
    pending, far = [softmax.inputs[0]], 0
    while pending and far < _FAR:
        node = producer(pending.pop(0))
        far += 1
        if node is None:
            continue
        if node.op_type == "MatMul":
            return not any(is_constant(value) for value in node.inputs)
        if node.op_type in _SCORES:
            pending += node.inputs
    return False


def _has_sum(softmax: ir.Node) -> bool:
    """Whether a MatMul reads what `softmax` writes."""
    pending, far = [softmax.outputs[0]], 0
    while pending and far < _FAR:
        for use in pending.pop(0).uses():
            far += 1
            if use.node.op_type == "MatMul":
                return True
            if use.node.op_type in _WEIGHTS:
                pending += use.node.outputs
    return False
