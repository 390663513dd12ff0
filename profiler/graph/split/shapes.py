"""Shapes as far as ONNX infers them: of any run, and of one with given sizes."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from profiler.graph.infer import quiet

__all__ = ["infer_shapes", "shapes_for"]


def infer_shapes(model: ir.Model) -> None:
    """Add shapes to the values of `model`; what cannot be inferred, such as of custom operations,
    stays open."""
    from onnx_ir.passes.common import ShapeInferencePass

    with quiet():
        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)


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
        value.shape = value.shape.evaluate(sizes) if value.shape is not None else None
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
