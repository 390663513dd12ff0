"""Commands of operations that `profile-sd3 graph split` has split, as it wrote them on the nodes.

ONNX Runtime keeps no metadata in its optimized graph, but names what it makes of a node after the
node (`fc1/part_0/MatMulAddFusion`, `fused fc1/part_0`) or, for convolutions, after its output
(`conv/part_0_nchwc`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from profiler.capture.onnxruntime.model_graph import Node

__all__ = ["OperationPart", "OperationParts", "operation_parts"]

_LAYER = "profile_sd3.layer"
_COMMAND_INDEX = "profile_sd3.command_index"
_OPERATION = "profile_sd3.operation"
_CATEGORY = "profile_sd3.category"
_CHANNELS_LAST = "_nchwc"
_WITH_ACTIVATION = "fused "


@dataclass(frozen=True, slots=True)
class OperationPart:
    """A node of a split operation: `operation` is the name of the node that was split, `moves`
    whether it only hands data to parts or gathers theirs."""

    operation: str
    layer: str
    command_index: int
    moves: bool

    @property
    def path(self) -> str:
        """The module path of its layer, "" where that is called after the operation."""
        return "" if self.layer == self.operation else self.layer


@dataclass(frozen=True, slots=True)
class OperationParts:
    """The parts in a model, by the names of their nodes and of the tensors that they write."""

    by_node: Mapping[str, OperationPart] = field(default_factory=dict)
    by_output: Mapping[str, OperationPart] = field(default_factory=dict)

    def find(self, node: str) -> OperationPart | None:
        """The part that a node of that name is, or was made of."""
        if not self.by_node:
            return None
        if node.endswith(_CHANNELS_LAST):
            return self.by_output.get(node.removesuffix(_CHANNELS_LAST))
        name = node.removeprefix(_WITH_ACTIVATION)
        while name:
            if name in self.by_node:
                return self.by_node[name]
            name = name.rpartition("/")[0]
        return None

    def operation_of(self, node: str) -> str:
        """The name of the operation that a node is a part of, its own where of none."""
        part = self.find(node)
        return part.operation if part is not None else node


def operation_parts(nodes: Iterable[Node]) -> OperationParts:
    """The parts among `nodes` of the model as it was given: those with a layer and a number."""
    by_node: dict[str, OperationPart] = {}
    by_output: dict[str, OperationPart] = {}
    for node in nodes:
        layer, index = node.metadata.get(_LAYER, ""), node.metadata.get(_COMMAND_INDEX, "")
        if not (layer and index.isdecimal() and len(index) < 9):
            continue
        operation = node.metadata.get(_OPERATION) or layer
        moves = node.metadata.get(_CATEGORY) == "copy"
        part = OperationPart(operation, layer, int(index), moves)
        by_output |= dict.fromkeys(filter(None, node.outputs), part)
        if node.name:
            by_node[node.name] = part
    return OperationParts(by_node, by_output)
