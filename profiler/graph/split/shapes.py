"""Shapes as far as ONNX infers them: of any run, and of one with given sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping

import onnx_ir as ir

from profiler.graph.infer import quiet

__all__ = ["infer_shapes", "shape_for", "shapes_for"]

# Names, numbers and + - * / % ( ) of what torch's exporter writes: no powers, which need not end.
_EXPRESSION = re.compile(r"(?!.*(?:\*\*|\d{10}))[A-Za-z0-9_+\-*/%(), .]{1,400}")


def infer_shapes(model: ir.Model) -> None:
    """Add shapes to the values of `model`; what cannot be inferred, such as of custom operations,
    stays open."""
    from onnx_ir.passes.common import ShapeInferencePass

    with quiet():
        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)


def shape_for(shape: ir.Shape, sizes: Mapping[str, int]) -> ir.Shape:
    """`shape` with these sizes of symbolic dimensions, and of expressions of them; what they do not
    tell, or is no expression, stays open."""
    return ir.Shape([dim if isinstance(dim, int) else _size(dim, sizes) for dim in shape])


def _size(dim: ir.SymbolicDim, sizes: Mapping[str, int]) -> int | ir.SymbolicDim:
    text = dim.value or ""
    if text in sizes:
        return sizes[text]
    if not sizes or not _EXPRESSION.fullmatch(text):
        return dim
    try:
        found = dim.evaluate(sizes)
    except (ArithmeticError, RecursionError, TypeError, ValueError):  # a name such as "batch size"
        return dim
    return found if isinstance(found, int) and found >= 0 else dim


def shapes_for(model: ir.Model, sizes: Mapping[str, int]) -> dict[str, ir.Shape]:
    """The shapes of the values of the main graph, by name, in a run with these sizes of symbolic
    dimensions; those that are known."""
    if not sizes:
        return {}
    try:
        run = model.clone()
    except (RuntimeError, ValueError):  # nodes out of order, say: ONNX Runtime will refuse them
        return {}
    for value in run.graph.inputs:
        value.shape = shape_for(value.shape, sizes) if value.shape is not None else None
    for node in run.graph:
        for output in node.outputs:
            output.shape = None
    infer_shapes(run)
    values = [output for node in run.graph for output in node.outputs]
    return {
        value.name: value.shape
        for value in (*run.graph.inputs, *values)
        if value.name and value.shape is not None and value.shape.is_static()
    }
