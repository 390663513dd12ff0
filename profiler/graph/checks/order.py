"""The order of nodes: ONNX asks that each stands behind those whose values it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

import onnx_ir as ir

from profiler.graph.checks.finding import CheckedModel, GraphFinding, place, rule

__all__ = ["unsorted_node"]

_Nodes: TypeAlias = "ir.Graph | ir.Function"


@rule
def unsorted_node(checked: CheckedModel) -> Iterator[GraphFinding]:
    """A node reads what a later one writes, or what follows from its own output."""
    model = checked.model
    graphs: list[_Nodes] = [*model.graphs(), *model.functions.values()]
    for graph in graphs:
        number = {node: index for index, node in enumerate(graph)}
        late = {
            node: value
            for node in graph
            for value in _read(node)
            if (writer := value.producer()) is not None and number.get(writer, -1) >= number[node]
        }
        circular = _in_circles(graph) if late else set()
        for node, value in late.items():
            in_circle = node in circular
            yield GraphFinding(
                "unsorted_node",
                "error",
                place(node),
                f"{node.op_type} reads {value.name!r}, which "
                + ("is computed from what it writes" if in_circle else "a later node writes"),
                "export the model again" if in_circle else "put the nodes in order",
                fix=not in_circle,
            )


def _read(node: ir.Node) -> Iterator[ir.Value]:
    """What a node reads, in its subgraphs too."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield from (value for value in current.inputs if value is not None)
        for attribute in current.attributes.values():
            if attribute.is_ref():
                continue
            if attribute.type == ir.AttributeType.GRAPH:
                pending += attribute.as_graph()
            elif attribute.type == ir.AttributeType.GRAPHS:
                pending += [inner for graph in attribute.as_graphs() for inner in graph]


def _in_circles(graph: _Nodes) -> set[ir.Node]:
    """The nodes that cannot be put in order: those in circles and behind them."""
    waits: Counter[ir.Node] = Counter()
    readers: dict[ir.Node, list[ir.Node]] = {node: [] for node in graph}
    for node in graph:
        for value in _read(node):
            writer = value.producer()
            if writer is not None and writer in readers:
                readers[writer].append(node)
                waits[node] += 1
    pending = [node for node in graph if not waits[node]]
    done: set[ir.Node] = set()
    while pending:
        node = pending.pop()
        done.add(node)
        for reader in readers[node]:
            waits[reader] -= 1
            if not waits[reader]:
                pending.append(reader)
    return set(readers) - done
