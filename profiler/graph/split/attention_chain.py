"""Attention in several operations, in parts by heads: MatMul, scale and mask, Softmax, MatMul.

Every operation between the two MatMuls is split the same way, so that a part's scores stay its
own; only what the second MatMuls write is put together again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from profiler.graph.split.operands import dims_of, is_weight
from profiler.graph.split.operation_parts import Parts
from profiler.graph.split.portions import CannotSplitError, Way
from profiler.graph.split.rewriter import Rewriter

__all__ = ["AttentionChain", "attention_chains", "ways_of_chain"]

_ELEMENTWISE = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Neg", "Min", "Max", "Clip", "Tanh", "Cast", "Identity"),
        *("Where", "IsNaN", "IsInf", "Not", "And", "Or", "Equal"),
    }
)
_MOST_NODES = 32


@dataclass(frozen=True, slots=True)
class AttentionChain:
    """The nodes of one attention in the graph's order: first and last are its MatMuls."""

    nodes: tuple[ir.Node, ...]

    @property
    def last(self) -> ir.Node:
        """The MatMul with the values."""
        return self.nodes[-1]


def attention_chains(graph: ir.Graph) -> Iterator[AttentionChain]:
    """The chains of a graph, without those of its subgraphs."""
    place = {node: number for number, node in enumerate(graph)}
    for node in place:
        if node.domain == "" and node.op_type == "MatMul" and not any(map(is_weight, node.inputs)):
            found = _chain_from(node)
            if found is not None:
                yield AttentionChain(tuple(sorted(found, key=place.__getitem__)))


def _chain_from(first: ir.Node) -> set[ir.Node] | None:
    """All nodes from a MatMul up to the next one, where they are those of attention."""
    members, last = {first}, None
    softmax = False
    pending = [first.outputs[0]]
    while pending:
        value = pending.pop()
        if value.is_graph_output() or not value.uses() or len(members) > _MOST_NODES:
            return None
        for node, position in value.uses():
            if node.domain != "" or node.graph is not first.graph or node in (first,):
                return None
            if node.op_type == "MatMul" and position == 0 and last in (None, node):
                last = node
            elif node.op_type in _ELEMENTWISE or node.op_type == "Softmax":
                softmax |= node.op_type == "Softmax"
                if node not in members:
                    members.add(node)
                    pending += node.outputs
            else:
                return None
    if not softmax or last is None or is_weight(last.inputs[1]):
        return None
    return members | {last}


def ways_of_chain(rewriter: Rewriter, chain: AttentionChain) -> list[Way]:
    """The ways to split a chain: one."""
    return [_Heads(rewriter, chain).way()]


class _Heads:
    """A chain whose third axis from the right holds its heads."""

    def __init__(self, rewriter: Rewriter, chain: AttentionChain) -> None:
        self._rewriter, self._nodes = rewriter, chain.nodes
        scores = dims_of(chain.nodes[0].outputs[0])
        if scores is None or len(scores) < 3:
            raise CannotSplitError("its scores are not known to have an axis of heads")
        self._rank = len(scores)
        self._heads = scores[-3]
        self._inner = {output for node in self._nodes[:-1] for output in node.outputs}
        for node in self._nodes:
            axis = node.attributes.get_int("axis", -1 if rewriter.opset >= 13 else 1)
            if node.op_type == "Softmax" and axis not in (-1, self._rank - 1):
                raise CannotSplitError("its Softmax is not over its last axis")

    def way(self) -> Way:
        outer = [
            value
            for node in self._nodes
            for value in node.inputs
            if value is not None and value not in self._inner
        ]
        whole = [value for value in outer if (dims_of(value) or [None])[-3:-2] in ([], [1])]
        cut = [value for value in outer if value not in whole]
        largest = self._rewriter.largest
        cut_bytes = largest([*cut, *(node.outputs[0] for node in self._nodes)])
        return Way("heads", self._heads, cut_bytes, largest(whole), self._make)

    def _make(self, lengths: list[int]) -> None:
        found: dict[ir.Value, list[ir.Value | None]] = {}
        all_parts = []
        for node in self._nodes:
            parts = Parts(self._rewriter, node)
            operands = [self._operand(parts, value, found, lengths) for value in node.inputs]
            axis = self._rank - 3
            made = [
                parts.add(given, length=(axis, length))
                for *given, length in zip(*operands, lengths, strict=True)
            ]
            found[node.outputs[0]] = list(made)
            all_parts.append((parts, made))
        last, outputs = all_parts.pop()
        for parts, _ in all_parts:
            parts.place()
        last.replace(last.concat(outputs, self._rank - 3))
        for node in reversed(self._nodes[:-1]):
            assert node.graph is not None
            node.graph.remove(node, safe=True)

    def _operand(
        self,
        parts: Parts,
        value: ir.Value | None,
        found: dict[ir.Value, list[ir.Value | None]],
        lengths: list[int],
    ) -> list[ir.Value | None]:
        """What each part takes of an operand: its own of the chain's values, else its heads."""
        if value in found:
            return found[value]
        return parts.broadcast_portions(value, -3, lengths)
