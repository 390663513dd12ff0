"""All operations of a model that are large enough, or named, in parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.checks.finding import CheckedModel
from profiler.graph.checks.nodes import invalid_node
from profiler.graph.metadata import layer_of
from profiler.graph.split.attention import ATTENTION_OPERATIONS, ways_of_attention
from profiler.graph.split.attention_chain import (
    AttentionChain,
    attention_chains,
    ways_of_chain,
)
from profiler.graph.split.convolution import ways_of_conv
from profiler.graph.split.matmul import ways_of_gemm, ways_of_matmul
from profiler.graph.split.portions import (
    CannotSplitError,
    SmallEnough,
    Target,
    Way,
    ways_in_order,
)
from profiler.graph.split.rewriter import Rewriter
from profiler.graph.split.shapes import infer_shapes

__all__ = ["OPERATION_TYPES", "SplitOperation", "SplitResult", "WholeOperation", "split_model"]

OPERATION_TYPES = ("MatMul", "Gemm", "Conv", "Attention")
"""What can be split; `Attention` is ONNX's and ONNX Runtime's, and attention in MatMul and
Softmax."""

_OLDEST_OPSET = 11  # of negative axes, and Gemm without a bias
_WAYS: Mapping[str, Callable[..., list[Way]]] = {
    "MatMul": ways_of_matmul,
    "Gemm": ways_of_gemm,
    "Conv": ways_of_conv,
}


@dataclass(frozen=True, slots=True)
class SplitOperation:
    """An operation that was split: `axis` names what was cut (columns, rows, terms, batches,
    channels, groups, heads); bytes are those of its weights, or of its largest operand where it
    has none, before and of the largest part, None where only a run tells."""

    node: str
    op_type: str
    layer: str
    axis: str
    parts: int
    bytes: int | None
    part_bytes: int | None


@dataclass(frozen=True, slots=True)
class WholeOperation:
    """An operation that should have been split and could not be: `reason` says why."""

    node: str
    op_type: str
    layer: str
    reason: str


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What became of the operations, in the graph's order; `small` had no more bytes than asked
    for."""

    split: list[SplitOperation]
    whole: list[WholeOperation]
    small: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An operation to split: `node` stands for it. `instead` are split where it cannot be."""

    node: ir.Node
    op_type: str
    ways: Callable[[Rewriter], list[Way]]
    instead: tuple[_Candidate, ...] = ()


def split_model(
    model: ir.Model,
    target: Target,
    *,
    op_types: Collection[str] = OPERATION_TYPES,
    nodes: Collection[str] = (),
    sizes: Mapping[str, int] | None = None,
) -> SplitResult:
    """Split the operations of `model`, in place, and say what became of each.

    Only `op_types` are split, and where `nodes` are named only those. `sizes` are those of
    symbolic dimensions, to tell bytes by. Raises InputError for an unknown name or type, a model of
    an opset before 11, and one with nodes that are no use of their operator.
    """
    unknown = sorted(set(op_types) - set(OPERATION_TYPES))
    if unknown:
        known = ", ".join(OPERATION_TYPES)
        raise InputError(f"operations of type {unknown[0]} cannot be split: give some of {known}")
    opset = model.opset_imports.get("", _OLDEST_OPSET)
    if opset < _OLDEST_OPSET:
        raise InputError(f"the model is of opset {opset}: convert it to {_OLDEST_OPSET} or later")
    for finding in invalid_node(CheckedModel(model)):
        raise InputError(f"node {finding.node}: {finding.evidence}: export the model again")
    infer_shapes(model)
    candidates = list(_candidates(model, op_types))
    if nodes:
        candidates = _named(candidates, nodes)
    rewriter = Rewriter(model, sizes or {})
    found: list[SplitOperation | WholeOperation | None] = [*_in_functions(model, op_types, nodes)]
    for candidate in candidates:
        outcome = _outcome(rewriter, candidate, target)
        instead = candidate.instead if isinstance(outcome, WholeOperation) else ()
        outcomes = [_outcome(rewriter, other, target) for other in instead]
        done = any(isinstance(other, SplitOperation) for other in outcomes)
        found += outcomes if done else [outcome]
    rewriter.finish()
    return SplitResult(
        [one for one in found if isinstance(one, SplitOperation)],
        [one for one in found if isinstance(one, WholeOperation)],
        found.count(None),
    )


def _outcome(
    rewriter: Rewriter, candidate: _Candidate, target: Target
) -> SplitOperation | WholeOperation | None:
    """Split an operation; None where it is small enough."""
    node, op_type = candidate.node, candidate.op_type
    name, layer = node.name or str(node.outputs[0].name), layer_of(node)
    try:
        way, lengths = _split(rewriter, candidate, target)
    except SmallEnough:
        return None
    except CannotSplitError as reason:
        return WholeOperation(name, op_type, layer, str(reason))
    part_bytes = _part_bytes(way, lengths)
    return SplitOperation(name, op_type, layer, way.what, len(lengths), *part_bytes)


def _split(rewriter: Rewriter, candidate: _Candidate, target: Target) -> tuple[Way, list[int]]:
    """Split by the first way that succeeds."""
    reasons = []
    for way, lengths in ways_in_order(target, candidate.ways(rewriter)):
        try:
            way.make(lengths)
        except CannotSplitError as reason:
            reasons.append(str(reason))
        else:
            return way, lengths
    raise CannotSplitError("; ".join(reasons))


def _part_bytes(way: Way, lengths: Sequence[int]) -> tuple[int | None, int | None]:
    """The operation's bytes, and those of its largest part."""
    if way.cut_bytes is None or way.kept_bytes is None:
        return None, None
    part = -(-way.cut_bytes * max(lengths) // sum(lengths))
    return max(way.cut_bytes, way.kept_bytes), max(part, way.kept_bytes)


def _candidates(model: ir.Model, op_types: Collection[str]) -> Iterator[_Candidate]:
    chains = _chains(model) if "Attention" in op_types else {}
    chained = {node for chain in chains.values() for node in chain.nodes}
    for node in list(model.graph.all_nodes()):
        if not node.outputs:
            continue
        if node in chains:
            chain = chains[node]
            ends = (chain.nodes[0], chain.last) if "MatMul" in op_types else ()
            yield _Candidate(
                node,
                "Attention",
                partial(ways_of_chain, chain=chain),
                tuple(_Candidate(end, "MatMul", partial(ways_of_matmul, node=end)) for end in ends),
            )
        elif node in chained:
            continue
        elif (node.domain, node.op_type) in ATTENTION_OPERATIONS and "Attention" in op_types:
            yield _Candidate(node, node.op_type, partial(ways_of_attention, node=node))
        elif node.domain == "" and node.op_type in _WAYS and node.op_type in op_types:
            yield _Candidate(node, node.op_type, partial(_WAYS[node.op_type], node=node))


def _chains(model: ir.Model) -> dict[ir.Node, AttentionChain]:
    """The attention chains of all graphs that share no node, by their last nodes."""
    found: dict[ir.Node, AttentionChain] = {}
    chained: set[ir.Node] = set()
    for graph in (model.graph, *model.graph.subgraphs()):
        for chain in attention_chains(graph):
            if chained.isdisjoint(chain.nodes):
                chained.update(chain.nodes)
                found[chain.last] = chain
    return found


def _named(candidates: list[_Candidate], nodes: Collection[str]) -> list[_Candidate]:
    found = [candidate for candidate in candidates if candidate.node.name in nodes]
    missing = sorted(set(nodes) - {str(candidate.node.name) for candidate in found})
    if missing:
        raise InputError(
            f"node {missing[0]} is none that can be split here: give the name of a node of type "
            f"{', '.join(OPERATION_TYPES)}, of attention its last MatMul"
        )
    return found


def _in_functions(
    model: ir.Model, op_types: Collection[str], nodes: Collection[str]
) -> list[WholeOperation]:
    reason = "it is in a function of the model: inline that first"
    return [
        WholeOperation(node.name or node.op_type, node.op_type, layer_of(node), reason)
        for function in model.functions.values()
        for node in function.all_nodes()
        if node.op_type in op_types and not nodes
    ]
