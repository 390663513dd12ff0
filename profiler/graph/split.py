"""`graph split`: split the large or named operations of ONNX models into parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.check import CheckedModel, invalid_node
from profiler.graph.model import (
    external_files,
    infer_shapes,
    layer_of,
    model_files,
    output_folder,
    read_model,
    refuse_over_input,
    write_model,
)
from profiler.graph.shapes import random_inputs, refuse_unknown_sizes
from profiler.graph.split_operations import (
    ATTENTION_OPERATIONS,
    AttentionChain,
    attention_chains,
    ways_of_attention,
    ways_of_chain,
    ways_of_conv,
    ways_of_gemm,
    ways_of_matmul,
)
from profiler.graph.split_parts import (
    CannotSplitError,
    Rewriter,
    SmallEnough,
    Target,
    Way,
    ways_in_order,
)
from profiler.graph.verify import OutputDifference, verify

# --- Split all operations of a model that are large enough, or named.


OPERATION_TYPES = ("MatMul", "Gemm", "Conv", "Attention")
"""The operations that can be split; `Attention` is ONNX's and ONNX Runtime's, and attention as
MatMul and Softmax."""

_OLDEST_OPSET = 11  # of negative axes, and Gemm without a bias
_WAYS: Mapping[str, Callable[..., list[Way]]] = {
    "MatMul": ways_of_matmul,
    "Gemm": ways_of_gemm,
    "Conv": ways_of_conv,
}


@dataclass(frozen=True, slots=True)
class SplitOperation:
    """A split operation: `axis` names what was cut (columns, rows, terms, batches, channels,
    groups, heads); bytes are those of its weights, or of its largest operand if it has none, before
    and of the largest part, None if known only at runtime."""

    node: str
    op_type: str
    layer: str
    axis: str
    parts: int
    bytes: int | None
    part_bytes: int | None


@dataclass(frozen=True, slots=True)
class WholeOperation:
    """An operation that should have been split but could not be, for this `reason`."""

    node: str
    op_type: str
    layer: str
    reason: str


@dataclass(frozen=True, slots=True)
class SplitResult:
    """The results for all operations, in the graph's order; `small` counts those within the byte
    limit."""

    split: list[SplitOperation]
    whole: list[WholeOperation]
    small: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An operation to split, represented by `node`. If it cannot be split, those in `instead`
    are."""

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
    """Split the operations of `model`, in place, and return the results.

    Only `op_types` are split, and only the named `nodes` if there are any. `sizes` are those of
    symbolic dimensions, to compute bytes. Raises InputError for an unknown name or type, a model of
    an opset before 11, and one with invalid nodes.
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
    """Split an operation; None if it is small enough."""
    node, op_type = candidate.node, candidate.op_type
    name, layer = node.name or str(node.outputs[0].name), layer_of(node)
    try:
        way, lengths = _split_candidate(rewriter, candidate, target)
    except SmallEnough:
        return None
    except CannotSplitError as reason:
        return WholeOperation(name, op_type, layer, str(reason))
    part_bytes = _part_bytes(way, lengths)
    return SplitOperation(name, op_type, layer, way.what, len(lengths), *part_bytes)


def _split_candidate(
    rewriter: Rewriter, candidate: _Candidate, target: Target
) -> tuple[Way, list[int]]:
    """Split an operation in the first way that succeeds."""
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
    chained = {node for chain in chains.values() for node in chain}
    for node in list(model.graph.all_nodes()):
        if not node.outputs:
            continue
        if node in chains:
            chain = chains[node]
            ends = (chain[0], chain[-1]) if "MatMul" in op_types else ()
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
            if chained.isdisjoint(chain):
                chained.update(chain)
                found[chain[-1]] = chain
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


# --- `graph split`: a model's file, or all of a folder → files whose operations are in parts.


@dataclass(frozen=True, slots=True)
class SplitFile:
    """The result for the model in `source`: written to `out` if operations were split, with the
    difference of each output."""

    source: Path
    out: Path
    result: SplitResult
    differences: tuple[OutputDifference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The split as a JSON object."""
        return {"model": str(self.source), "out": str(self.out)} | {
            "split": [asdict(operation) for operation in self.result.split],
            "whole": [asdict(operation) for operation in self.result.whole],
            "small": self.result.small,
            "differences": [asdict(difference) for difference in self.differences],
        }


@dataclass(frozen=True, slots=True)
class _Split:
    """A model that was split and is not written yet."""

    source: Path
    model: ir.Model
    inputs: Mapping[str, Any]
    data: set[Path]
    result: SplitResult

    def write(self, out: Path) -> SplitFile:
        def check(written: Path) -> tuple[OutputDifference, ...]:
            what = f"{out}: the split model"
            return tuple(verify(self.source, written, self.inputs, what=what))

        differences = write_model(
            self.model,
            out,
            sources=[self.source, *self.data],
            check=check,
            external=bool(self.data),
        )
        return SplitFile(self.source, out, self.result, differences)


def split_files(
    source: Path,
    out: Path,
    target: Target,
    *,
    op_types: Collection[str] = OPERATION_TYPES,
    nodes: Collection[str] = (),
    sizes: Mapping[str, int] | None = None,
) -> list[SplitFile]:
    """Split the model in the file `source` into the file `out`, or the models of a folder into a
    copy of it, `out`: written if the outputs are the same for random inputs.

    Arguments are those of `split_model`; `sizes` are also those of the inputs. Models of a folder
    in which nothing was split are copied. Raises InputError if a model cannot be read or run, none
    has a dimension that `sizes` names, nothing was split, or one of the `nodes` was not, and
    OutputError if `out` cannot be written, is an input, or would compute something else.
    """
    if nodes and source.is_dir():
        raise InputError("nodes are named in one model: give its file instead of the folder")
    asked: dict[str, Any] = {"op_types": op_types, "nodes": nodes, "sizes": sizes}
    paths = model_files(source)
    refuse_unknown_sizes(paths, sizes or {})
    found = [_split_file(path, out, target, **asked) for path in paths]
    results = [one.result for one in found]
    if not any(result.split for result in results) or (nodes and results[0].whole):
        raise InputError(_refusal(source, results, target))
    if not source.is_dir():
        return [found[0].write(out)]
    return _write_folder(source, out, found)


def _split_file(path: Path, out: Path, target: Target, **asked: Any) -> _Split:
    model = read_model(path)
    data = external_files(model)
    refuse_over_input([out] if not out.is_dir() else [], [path, *data])
    try:
        inputs = random_inputs(model, asked["sizes"])
        result = split_model(model, target, **asked)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return _Split(path, model, inputs, data, result)


def _write_folder(source: Path, out: Path, found: list[_Split]) -> list[SplitFile]:
    kept = {file for one in found if not one.result.split for file in one.data}
    written = [one for one in found if one.result.split]
    without = {file for one in written for file in (one.source, *one.data)} - kept
    for one in written:
        data = one.source.with_name(one.source.name + ".data")
        if data.resolve() in {file.resolve() for file in kept}:
            raise InputError(f"{data} holds weights of several models: split them one by one")
    results = []
    with output_folder(source, out, without) as copy:
        for one in found:
            relative = one.source.relative_to(source)
            if one.result.split:
                file = one.write(copy / relative)
            else:
                file = SplitFile(one.source, out / relative, one.result)
            results.append(replace(file, out=out / relative))
    return results


def _refusal(source: Path, results: list[SplitResult], target: Target) -> str:
    """Why nothing is written."""
    reasons = [f"{whole.node}: {whole.reason}" for result in results for whole in result.whole]
    if reasons:
        more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        return f"{source} was not split: {reasons[0]}{more}: name other operations or sizes"
    if any(result.small for result in results):
        limit = f"{target.max_bytes:,}"
        return f"{source}: no operation has more than {limit} bytes: give a smaller --max-bytes"
    kinds = ", ".join(OPERATION_TYPES)
    return (
        f"{source} has no operation of the types asked for that can be split: give some of {kinds}"
    )
