"""Nodes in the order that ONNX asks for."""

from __future__ import annotations

import onnx_ir as ir

from profiler.graph.checks.finding import CheckedModel
from profiler.graph.checks.order import unsorted_node

__all__ = ["sort_nodes"]


def sort_nodes(model: ir.Model) -> int:
    """Put each node behind those whose values it reads; a circle stays. Returns how many stood
    before them."""
    found = list(unsorted_node(CheckedModel(model)))
    if not found or not all(finding.fix for finding in found):
        return 0
    graphs: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for graph in graphs:
        graph.sort()
    return len(found)
