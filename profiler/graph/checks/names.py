"""Names of nodes: by them profiles, metadata and converters find a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from profiler.graph.checks.finding import CheckedModel, GraphFinding, place, rule
from profiler.graph.values import nodes

__all__ = ["duplicate_node_name", "unnamed_node"]


@rule
def duplicate_node_name(checked: CheckedModel) -> Iterator[GraphFinding]:
    """Several nodes share a name."""
    counts = Counter(node.name for node in nodes(checked.model) if node.name)
    for name, count in counts.items():
        if count > 1:
            yield GraphFinding(
                "duplicate_node_name",
                "error",
                name,
                f"{count} nodes have this name: ONNX Runtime refuses the model, a profile takes "
                "them for one",
                "name each node differently",
                fix=True,
            )


@rule
def unnamed_node(checked: CheckedModel) -> Iterator[GraphFinding]:
    """A node has no name."""
    for node in nodes(checked.model):
        if not node.name:
            yield GraphFinding(
                "unnamed_node",
                "note",
                place(node),
                f"{node.op_type} has no name, so that a profile cannot tell which node it was",
                "name it after its operation and what it writes",
                fix=True,
            )
