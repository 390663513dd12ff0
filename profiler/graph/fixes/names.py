"""Names for nodes that have none, or share one."""

from __future__ import annotations

import onnx_ir as ir

from profiler.graph.values import nodes

__all__ = ["name_nodes", "number_names"]


def number_names(model: ir.Model) -> int:
    """Give each node that shares its name with an earlier one a name of its own."""
    taken: set[str | None] = {node.name for node in nodes(model) if node.name}
    seen: set[str] = set()
    count = 0
    for node in nodes(model):
        if node.name and node.name in seen:
            node.name = _free(node.name, taken)
            count += 1
        if node.name:
            seen.add(node.name)
    return count


def name_nodes(model: ir.Model) -> int:
    """Name each node without a name after its operation and what it writes."""
    taken: set[str | None] = {node.name for node in nodes(model) if node.name}
    count = 0
    for node in nodes(model):
        if not node.name:
            written = next((output.name for output in node.outputs if output.name), "")
            node.name = _free(f"{node.op_type}_{written}".rstrip("_"), taken)
            count += 1
    return count


def _free(name: str, taken: set[str | None]) -> str:
    """`name`, or the first of name_1, name_2, … that is not taken; it is taken from now on."""
    found, number = name, 1
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(found)
    return found
