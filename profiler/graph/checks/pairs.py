"""Pairs of Cast, Transpose, Reshape or Squeeze that one or no node does as well, and nodes that do
nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from profiler.graph.checks.finding import CheckedModel, GraphFinding, place, rule
from profiler.graph.values import constant, is_settled, nodes, producer

__all__ = ["does_nothing", "permutation", "redundant_first", "redundant_pair"]


@rule
def redundant_pair(checked: CheckedModel) -> Iterator[GraphFinding]:
    """Two nodes in a row that one or none does as well, or one that does nothing."""
    for node in nodes(checked.model):
        first = redundant_first(node)
        if first is not None:
            yield GraphFinding(
                "redundant_pair",
                "warning",
                place(node),
                f"{node.op_type} of what {first.op_type} {place(first)!r} writes: one node or none "
                "gives the same",
                "let it read what the first one reads",
                fix=True,
            )
        elif does_nothing(node):
            yield GraphFinding(
                "redundant_pair",
                "warning",
                place(node),
                f"{node.op_type} writes what it reads",
                "remove it",
                fix=not node.outputs[0].is_graph_output(),
            )


def redundant_first(node: ir.Node) -> ir.Node | None:
    """The node before `node` that `node` makes needless, None where there is none."""
    if node.op_type not in _NEEDLESS or node.domain or not is_settled(node):
        return None
    op_type, needless = _NEEDLESS[node.op_type]
    first = producer(node.inputs[0], op_type)
    if first is None or not is_settled(first):
        return None
    return first if needless(first, node) else None


def does_nothing(node: ir.Node) -> bool:
    """Whether `node` writes what it reads."""
    if node.domain or not node.inputs or node.inputs[0] is None or not is_settled(node):
        return False
    if node.op_type == "Identity":
        return not node.inputs[0].is_initializer()
    if node.op_type == "Cast":
        return node.inputs[0].dtype is not None and node.inputs[0].dtype == _to(node)
    if node.op_type == "Transpose":
        perm = permutation(node)
        return bool(perm) and perm == list(range(len(perm)))
    return False


def permutation(node: ir.Node) -> list[int]:
    """The permutation of a Transpose, empty where neither it nor the rank is known."""
    if "perm" in node.attributes:
        return list(node.attributes["perm"].as_ints())
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    return [] if shape is None else list(range(len(shape)))[::-1]


def _to(cast: ir.Node) -> ir.DataType:
    return ir.DataType(cast.attributes["to"].as_int())


def _keeps(cast: ir.Node) -> bool:
    """Whether a Cast keeps every value that it reads."""
    before = cast.inputs[0].dtype if cast.inputs[0] is not None else None
    after = _to(cast)
    if before is None or ir.DataType.STRING in (before, after):
        return False
    try:
        old, new = np.dtype(before.numpy()), np.dtype(after.numpy())
    except TypeError:
        return False
    rounding = old.kind in "iu" and new.kind in "fc" and old.itemsize >= new.itemsize
    return not rounding and np.can_cast(old, new, casting="safe")


def _both_known(first: ir.Node, second: ir.Node) -> bool:
    """Whether two Transposes have a permutation each, which make one."""
    return bool(permutation(first)) and bool(permutation(second))


def _sizes_alone(_first: ir.Node, second: ir.Node) -> bool:
    """Whether the second Reshape goes by its own sizes: 0 stands for one of what it reads."""
    sizes = constant(second.inputs[1])
    return sizes is not None and 0 not in sizes


def _undone(first: ir.Node, second: ir.Node) -> bool:
    """Whether Squeeze and Unsqueeze are of the same axes, and both can go."""
    axes = _axes(first)
    return axes is not None and axes == _axes(second) and not second.outputs[0].is_graph_output()


def _axes(node: ir.Node) -> list[int] | None:
    """The axes of a Squeeze or Unsqueeze, None where they are computed or left out."""
    if "axes" in node.attributes:
        return list(node.attributes["axes"].as_ints())
    array = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return None if array is None else [int(axis) for axis in array.reshape(-1)]


# The second operation → the first, and whether the second makes the first needless.
_NEEDLESS: Mapping[str, tuple[str, Callable[[ir.Node, ir.Node], bool]]] = {
    "Cast": ("Cast", lambda first, _second: _keeps(first)),
    "Transpose": ("Transpose", _both_known),
    "Reshape": ("Reshape", _sizes_alone),
    "Squeeze": ("Unsqueeze", _undone),
    "Unsqueeze": ("Squeeze", _undone),
}
