"""Static shapes, where they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from profiler.graph.checks.finding import CheckedModel, GraphFinding, place, rule
from profiler.graph.values import nodes
from profiler.onnx_targets import find_target

__all__ = ["dynamic_shape"]

_OF_DATA = {"NonZero", "Unique", "NonMaxSuppression", "Compress", "StringSplit"}


@rule
def dynamic_shape(checked: CheckedModel) -> Iterator[GraphFinding]:
    """With `static`, or a target that takes fixed sizes alone: a size of an input is not fixed, or
    a node's shape depends on data."""
    target = find_target(checked.target) if checked.target else None
    needed = target is not None and target.fixed_sizes
    if not checked.static and not needed:
        return
    because = (
        f", and {target.title} takes fixed ones ({target.fixed_sizes})" if target and needed else ""
    )
    for value in checked.model.graph.inputs:
        if value.name in checked.model.graph.initializers:
            continue
        named = _dynamic(value)
        if named:
            yield GraphFinding(
                "dynamic_shape",
                "error",
                value.name or "",
                f"input of shape {_text(value)}: {', '.join(named)} {_not_fixed(named)}{because}",
                "export it with fixed sizes, or set them by `python -m "
                "onnxruntime.tools.make_dynamic_shape_fixed`",
            )
    for node in nodes(checked.model):
        if node.op_type in _OF_DATA and not node.domain:
            yield GraphFinding(
                "dynamic_shape",
                "error",
                place(node),
                f"{node.op_type}: the shape of what it writes depends on data{because}",
                "compute with a mask of fixed shape instead",
            )


def _dynamic(value: ir.Value) -> list[str]:
    if value.shape is None:
        return ["its shape"]
    found = (dim if isinstance(dim, int) else str(dim.value or "?") for dim in value.shape)
    return [str(dim) for dim in found if not isinstance(dim, int) or dim < 0]


def _not_fixed(named: list[str]) -> str:
    return "is not fixed" if len(named) == 1 else "are not fixed"


def _text(value: ir.Value) -> str:
    if value.shape is None:
        return "unknown"
    return " x ".join(str(d if isinstance(d, int) else d.value or "?") for d in value.shape)
