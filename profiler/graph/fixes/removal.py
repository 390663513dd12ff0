"""Nodes and initializers that nothing reads any more."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

__all__ = ["remove_unread"]


def remove_unread(model: ir.Model, values: Iterable[ir.Value | None]) -> None:
    """Remove those of `values` that nothing reads, with the nodes that write them, and so on with
    what those read. Inputs and outputs of graphs stay."""
    pending = list(values)
    while pending:
        value = pending.pop()
        if value is None or value.uses() or value.is_graph_output() or value.is_graph_input():
            continue
        node = value.producer()
        if node is None:
            if value.is_initializer() and value.graph is model.graph:
                model.graph.initializers.pop(value.name or "", None)
        elif node.graph is not None and not any(
            output.uses() or output.is_graph_output() for output in node.outputs
        ):
            pending += node.inputs
            node.graph.remove(node, safe=True)
