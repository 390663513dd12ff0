"""Two nodes in a row → one or none."""

from __future__ import annotations

import onnx_ir as ir

from profiler.graph.checks.pairs import does_nothing, permutation, redundant_first
from profiler.graph.fixes.removal import remove_unread
from profiler.graph.values import nodes

__all__ = ["merge_pairs"]


def merge_pairs(model: ir.Model) -> int:
    """Let the second node of each redundant pair read what the first reads, and remove nodes that
    do nothing. Returns how many nodes were changed or removed."""
    count = 0
    for node in list(nodes(model)):
        while node.graph is not None and (first := redundant_first(node)) is not None:
            count += 1
            if node.op_type in ("Squeeze", "Unsqueeze"):
                _bypass(model, node, first.inputs[0])
            else:
                _read_before(model, node, first)
        if node.graph is not None and does_nothing(node) and not node.outputs[0].is_graph_output():
            count += 1
            _bypass(model, node, node.inputs[0])
    return count


def _read_before(model: ir.Model, node: ir.Node, first: ir.Node) -> None:
    """Let `node` do what it and `first` did."""
    if node.op_type == "Transpose":
        before, after = permutation(first), permutation(node)
        node.attributes["perm"] = ir.AttrInt64s("perm", [before[axis] for axis in after])
    between = node.inputs[0]
    node.replace_input_with(0, first.inputs[0])
    remove_unread(model, [between])


def _bypass(model: ir.Model, node: ir.Node, value: ir.Value | None) -> None:
    """Let what reads `node` read `value`, and remove `node`."""
    assert value is not None
    node.outputs[0].replace_all_uses_with(value)
    remove_unread(model, [node.outputs[0]])
