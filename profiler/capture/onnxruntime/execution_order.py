"""Nodes without a name, found in a profile by the order of execution.

ONNX Runtime calls such a node after its type and a number that only it knows (`Sub_538`). It
writes the optimized graph in the order in which it executes it, so the events of a run are that
graph's nodes one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from profiler.capture.onnxruntime.layer_inference import node_key
from profiler.capture.onnxruntime.model_graph import Graph, Node
from profiler.ort_profiles.nodes import NodeKind

__all__ = ["ExecutionOrder", "execution_order"]


@dataclass(frozen=True, slots=True)
class ExecutionOrder:
    """The nodes of an optimized graph as executed: of each its name, type and `node_key`.

    `inner` are the names of the nodes in subgraphs, whose events lie between those of others.
    """

    nodes: tuple[tuple[str, str, str], ...] = ()
    inner: frozenset[str] = field(default_factory=frozenset)

    def keys_of(self, events: Iterable[NodeKind]) -> dict[str, str]:
        """The keys of nodes without a name in one run, by the names that its profile gives them.

        Empty where the run's events are not these nodes in this order, from the first on; a run
        that failed may end early.
        """
        if not self.nodes:
            return {}
        found: dict[str, str] = {}
        executed = [event for event in events if event.name not in self.inner]
        if len(executed) > len(self.nodes):
            return {}
        for event, (name, op_type, key) in zip(executed, self.nodes, strict=False):
            named = event.name == name if name else _numbered(event.name, op_type)
            if event.op_type != op_type or not named:
                return {}
            if key and not name:
                found[event.name] = key
        return found


def execution_order(graph: Graph, nodes: Iterable[Node]) -> ExecutionOrder:
    """The order of an optimized graph, empty where all of its nodes have names.

    `nodes` are all of them, those of subgraphs included.
    """
    if all(node.name for node in graph.nodes):
        return ExecutionOrder()
    outer = tuple((node.name, node.op_type, node_key(node)) for node in graph.nodes)
    names = frozenset(node.name for node in nodes)
    return ExecutionOrder(outer, names.difference(name for name, _, _ in outer))


def _numbered(name: str, op_type: str) -> bool:
    return re.fullmatch(rf"{re.escape(op_type)}_\d+", name) is not None
