"""Names for nodes that have none, or share one."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from profiler.graph.values import nodes

__all__ = ["name_nodes", "number_names"]


def number_names(model: ir.Model) -> int:
    """Give each node that shares its name with an earlier one a name of its own."""
    names = _Names(model)
    seen: set[str] = set()
    count = 0
    for node in nodes(model):
        if node.name and node.name in seen:
            node.name = names.free(node.name)
            count += 1
        if node.name:
            seen.add(node.name)
    return count


def name_nodes(model: ir.Model) -> int:
    """Name each node without a name after its operation and what it writes."""
    names = _Names(model)
    count = 0
    for node in nodes(model):
        if not node.name:
            written = next((output.name for output in node.outputs if output.name), "")
            node.name = names.free(f"{node.op_type}_{written}".rstrip("_"))
            count += 1
    return count


class _Names:
    """The names of the nodes of a model."""

    def __init__(self, model: ir.Model) -> None:
        self._taken = {node.name for node in nodes(model) if node.name}
        self._numbers: Counter[str] = Counter()  # the last that each name got

    def free(self, name: str) -> str:
        """`name`, or the first of name_1, name_2, … that is not taken; it is taken from now on."""
        found = name
        while found in self._taken:
            self._numbers[name] += 1
            found = f"{name}_{self._numbers[name]}"
        self._taken.add(found)
        return found
