"""Divisions of sizes that round down, as Python's do: ONNX's Div of integers cuts towards zero.

torch's exporter writes Python's `//` of sizes as Div, after sympy has made `(96 - h) // 2` to
`48 + (-h) // 2`: an odd `h` is then one off. SD3 crops its position embeddings so, and fails at
every image with an odd number of patches.
"""

from __future__ import annotations

import onnx_ir as ir

from profiler.graph.values import constant, nodes

__all__ = ["round_divisions_down"]

_PASSING = {"Cast", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"}
_COMBINING = {"Add", "Concat", "Div", "Max", "Mul"}  # of what is not negative: nor is theirs
_DEPTH = 32


def round_divisions_down(model: ir.Model) -> int:
    """Make every Div of int64 whose dividend may be negative round down; returns how many.

    `a // b` is written as `(a - a mod b) / b`, with ONNX's Mod, whose sign is the divisor's.
    """
    found = [node for node in nodes(model) if _cuts(node)]
    for node in found:
        dividend, divisor = node.inputs
        rest = _beside(node, "Mod", [dividend, divisor], "remainder")
        whole = _beside(node, "Sub", [dividend, rest], "multiple")
        node.replace_input_with(0, whole)
    return len(found)


def _cuts(node: ir.Node) -> bool:
    if node.op_type != "Div" or node.domain or node.outputs[0].dtype != ir.DataType.INT64:
        return False
    return _may_be_negative(node.inputs[0], _DEPTH)


def _may_be_negative(value: ir.Value | None, depth: int) -> bool:
    """Whether a size may be below zero, as far as its arithmetic tells; True where it does not."""
    if value is None or depth == 0:
        return True
    array = constant(value)
    if array is not None:
        return bool((array < 0).any())
    node = value.producer()
    if node is None or node.domain:
        return True
    if node.op_type in _PASSING:
        return _may_be_negative(node.inputs[0], depth - 1)
    if node.op_type in _COMBINING:
        return any(_may_be_negative(entry, depth - 1) for entry in node.inputs)
    return node.op_type not in ("Shape", "Size")


def _beside(node: ir.Node, op_type: str, inputs: list[ir.Value | None], role: str) -> ir.Value:
    """The output of a new node before `node`, with its metadata."""
    output = ir.Value(
        name=f"{node.outputs[0].name}_{role}",
        type=ir.TensorType(ir.DataType.INT64),
        shape=node.outputs[0].shape,
    )
    made = ir.Node("", op_type, inputs, outputs=[output], name=f"{node.name}_{role}")
    made.metadata_props.update(node.metadata_props)
    assert node.graph is not None
    node.graph.insert_before(node, made)
    return output
