"""Conv in parts: output channels of its weights, groups, or input channels added up."""

from __future__ import annotations

import onnx_ir as ir

from profiler.graph.split.epilogue import join
from profiler.graph.split.operands import dims_of, is_weight
from profiler.graph.split.operation_parts import Parts
from profiler.graph.split.portions import CannotSplitError, Way
from profiler.graph.split.rewriter import Rewriter

__all__ = ["ways_of_conv"]


def ways_of_conv(rewriter: Rewriter, node: ir.Node) -> list[Way]:
    """The ways to split a Conv of any number of dimensions."""
    weight = node.inputs[1]
    dims = dims_of(weight)
    if weight is None or dims is None or len(dims) < 3 or dims[0] is None or dims[1] is None:
        raise CannotSplitError("the shape of its weights is not known")
    group = node.attributes.get_int("group", 1)
    if group < 1 or dims[0] % group:
        raise CannotSplitError(f"its {dims[0]} channels have no {group} groups")
    cut, kept = rewriter.largest([weight, *node.outputs]), rewriter.largest([node.inputs[0]])
    if is_weight(weight):
        cut, kept = rewriter.largest([weight]), 0
    if group > 1:
        each = dims[0] // group
        return [Way("groups", group, cut, kept, lambda n: _groups(rewriter, node, each, n))]
    return [
        Way("channels", dims[0], cut, kept, lambda n: _output_channels(rewriter, node, n)),
        Way("terms", dims[1], cut, kept, lambda n: _input_channels(rewriter, node, n)),
    ]


def _output_channels(rewriter: Rewriter, node: ir.Node, lengths: list[int]) -> None:
    parts = Parts(rewriter, node)
    weights = parts.portions_of(node.inputs[1], 0, lengths)
    biases = parts.portions_of(_bias(node), 0, lengths)
    outputs = [
        parts.add([node.inputs[0], weight, bias], length=(1, length))
        for weight, bias, length in zip(weights, biases, lengths, strict=True)
    ]
    join(parts, outputs, 1, lengths)


def _groups(rewriter: Rewriter, node: ir.Node, each: int, lengths: list[int]) -> None:
    """Each part has whole groups: their input channels and the `each` output channels of each."""
    parts = Parts(rewriter, node)
    dims = dims_of(node.inputs[1])
    assert dims is not None
    assert dims[1] is not None
    inputs = parts.portions_of(node.inputs[0], 1, [length * dims[1] for length in lengths])
    channels = [length * each for length in lengths]
    weights = parts.portions_of(node.inputs[1], 0, channels)
    biases = parts.portions_of(_bias(node), 0, channels)
    outputs = [
        parts.add([x, weight, bias], {"group": length}, (1, length * each))
        for x, weight, bias, length in zip(inputs, weights, biases, lengths, strict=True)
    ]
    join(parts, outputs, 1, channels)


def _input_channels(rewriter: Rewriter, node: ir.Node, lengths: list[int]) -> None:
    """The bias goes to the first part: added once."""
    parts = Parts(rewriter, node)
    inputs = parts.portions_of(node.inputs[0], 1, lengths)
    weights = parts.portions_of(node.inputs[1], 1, lengths)
    outputs = [
        parts.add([x, weight, None if number else _bias(node)])
        for number, (x, weight) in enumerate(zip(inputs, weights, strict=True))
    ]
    parts.replace(parts.sum(outputs))


def _bias(node: ir.Node) -> ir.Value | None:
    return node.inputs[2] if len(node.inputs) > 2 else None
