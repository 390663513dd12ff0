"""Attention in one operation, in parts by heads: ONNX's, and ONNX Runtime's two."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from profiler.graph.split.operands import dims_of, ranges_of
from profiler.graph.split.operation_parts import Parts
from profiler.graph.split.portions import CannotSplitError, Way
from profiler.graph.split.rewriter import Rewriter
from profiler.graph.values import is_constant

__all__ = ["ATTENTION_OPERATIONS", "ways_of_attention"]

ATTENTION_OPERATIONS = frozenset(
    {("", "Attention"), ("com.microsoft", "Attention"), ("com.microsoft", "MultiHeadAttention")}
)
"""Domain and op type of the operations that are split here."""


def ways_of_attention(rewriter: Rewriter, node: ir.Node) -> list[Way]:
    """The ways to split one of `ATTENTION_OPERATIONS`. States of earlier tokens stay whole, so an
    operation that reads or writes them cannot be split."""
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        raise CannotSplitError("it has outputs beside its result")
    if node.domain == "":
        return _of_onnx(rewriter, node)
    if node.op_type == "Attention":
        return _of_packed_weights(rewriter, node)
    return _of_multi_head(rewriter, node)


def _of_onnx(rewriter: Rewriter, node: ir.Node) -> list[Way]:
    """Heads of keys and values, each with its share of the queries' heads."""
    query, key, value, mask, *states = _inputs(node, 7)
    if any(states):
        raise CannotSplitError("it reads states of earlier tokens")
    rank = len(dims_of(query) or ())
    if rank not in (3, 4):
        raise CannotSplitError("the rank of its query is not known")
    if rank == 4:
        heads, kv_heads = _dim(query, 1), _dim(key, 1)
        axis, units = 1, (1, 1, 1)
    else:
        heads = _integer(node, "q_num_heads")
        kv_heads = _integer(node, "kv_num_heads")
        axis = 2
        units = (
            _unit(query, 2, heads),
            _unit(key, 2, kv_heads),
            _unit(value, 2, kv_heads),
        )
    if not heads or not kv_heads or heads % kv_heads:
        raise CannotSplitError("how many heads it has is only known when it runs")
    share = heads // kv_heads

    def make(lengths: list[int]) -> None:
        parts = Parts(rewriter, node)
        queries = [length * share for length in lengths]
        operands = [
            parts.portions_of(query, axis, [n * units[0] for n in queries]),
            parts.portions_of(key, axis, [n * units[1] for n in lengths]),
            parts.portions_of(value, axis, [n * units[2] for n in lengths]),
            _by_heads(parts, mask, queries),
        ]
        changes = [
            {"q_num_heads": n, "kv_num_heads": m} if rank == 3 else {}
            for n, m in zip(queries, lengths, strict=True)
        ]
        outputs = [
            parts.add(given, changed) for *given, changed in zip(*operands, changes, strict=True)
        ]
        parts.replace(parts.concat(outputs, axis))

    cut = rewriter.largest([query, key, value, node.outputs[0]])
    return [Way("heads", kv_heads, cut, 0, make)]


def _of_packed_weights(rewriter: Rewriter, node: ir.Node) -> list[Way]:
    """Attention that projects its input by weights with the columns of query, key and value."""
    x, weights, bias, mask, past, attention_bias, *states = _inputs(node, 7)
    if past is not None or any(states):
        raise CannotSplitError("it reads states of earlier tokens")
    if weights is None or not is_constant(weights) or (bias is not None and not is_constant(bias)):
        raise CannotSplitError("its weights are no constants")
    heads = _integer(node, "num_heads")
    columns = _dim(weights, 1) or 0
    widths = node.attributes.get("qkv_hidden_sizes")
    hidden = [columns // 3] * 3
    if widths is not None and widths.type == ir.AttributeType.INTS:
        hidden = list(widths.as_ints())
    if not heads or any(size % heads for size in hidden) or sum(hidden) != columns:
        raise CannotSplitError("its weights do not have the columns of whole heads")

    if bias is not None and _dim(bias, 0) != columns:
        raise CannotSplitError("its bias does not have the columns of its weights")

    def make(lengths: list[int]) -> None:
        parts = Parts(rewriter, node)
        ranges = _packed_ranges(lengths, hidden)
        biases = _by_heads(parts, attention_bias, lengths)
        outputs = []
        for length, found, of_bias in zip(lengths, ranges, biases, strict=True):
            given = [
                x,
                rewriter.sliced(weights, 1, found),
                None if bias is None else rewriter.sliced(bias, 0, found),
                *(mask, None, of_bias),
            ]
            changed: dict[str, object] = {"num_heads": length}
            if "qkv_hidden_sizes" in node.attributes:
                changed["qkv_hidden_sizes"] = [size // heads * length for size in hidden]
            outputs.append(parts.add(given, changed))
        parts.replace(parts.concat(outputs, 2))

    return [Way("heads", heads, rewriter.largest([weights]), 0, make)]


def _of_multi_head(rewriter: Rewriter, node: ir.Node) -> list[Way]:
    """Attention of projected queries, keys and values, each by itself or packed."""
    query, key, value, bias, mask, attention_bias, *states = _inputs(node, 10)
    if any(states):
        raise CannotSplitError("it reads states of earlier tokens")
    heads = _integer(node, "num_heads")
    places = [_place(operand, heads) for operand in (query, key, value)]
    hidden = []
    if bias is not None:
        if not is_constant(bias):
            raise CannotSplitError("its bias is no constant")
        widths = [
            _dim(operand, 2) if operand is not None else None for operand in (query, key, value)
        ]
        total = _dim(bias, 0) or 0
        hidden = [width if width else total // 3 for width in widths]
        if sum(hidden) != total or any(size % heads for size in hidden):
            raise CannotSplitError("its bias does not have whole heads of query, key and value")

    def make(lengths: list[int]) -> None:
        parts = Parts(rewriter, node)
        operands = [
            parts.portions_of(operand, axis, [length * unit for length in lengths])
            for operand, (axis, unit) in zip((query, key, value), places, strict=True)
        ]
        ranges = _packed_ranges(lengths, hidden)
        biases = [None if bias is None else rewriter.sliced(bias, 0, found) for found in ranges]
        masks = _by_heads(parts, attention_bias, lengths)
        outputs = [
            parts.add([q, k, v, of_bias, mask, of_mask], {"num_heads": length})
            for q, k, v, of_bias, of_mask, length in zip(
                *operands, biases, masks, lengths, strict=True
            )
        ]
        parts.replace(parts.concat(outputs, 2))

    cut = rewriter.largest([query, key, value, node.outputs[0]])
    return [Way("heads", heads, cut, 0, make)]


def _place(operand: ir.Value | None, heads: int) -> tuple[int, int]:
    """The axis of an operand of MultiHeadAttention that holds the heads, and how long one is:
    (batch, length, hidden), (batch, heads, length, size) or (batch, length, heads, n, size)."""
    if operand is None:
        return 0, 1
    rank = len(dims_of(operand) or ())
    if rank == 3:
        return 2, _unit(operand, 2, heads)
    if rank in (4, 5):
        return (1, 1) if rank == 4 else (2, 1)
    raise CannotSplitError(f"the rank of its operand {operand.name} is not known")


def _packed_ranges(
    lengths: Sequence[int], hidden: Sequence[int]
) -> list[tuple[tuple[int, int], ...]]:
    """The columns of each part's heads in query, key and value, whose widths are `hidden`."""
    heads = sum(lengths)
    begins = [sum(hidden[:number]) for number in range(len(hidden))]
    each = [
        ranges_of(lengths, size // heads, begin) for size, begin in zip(hidden, begins, strict=True)
    ]
    return list(zip(*each, strict=True)) if each else [()] * len(lengths)


def _by_heads(
    parts: Parts, value: ir.Value | None, lengths: Sequence[int]
) -> list[ir.Value | None]:
    """What each part takes of a mask or bias that broadcasts to (batch, heads, length, length)."""
    return parts.broadcast_portions(value, -3, list(lengths))


def _inputs(node: ir.Node, count: int) -> list[ir.Value | None]:
    return [*node.inputs, *[None] * count][:count]


def _integer(node: ir.Node, name: str) -> int:
    """An attribute that is a positive number, 0 where there is none."""
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.INT:
        return 0
    return max(attribute.as_int(), 0)


def _dim(value: ir.Value | None, axis: int) -> int | None:
    dims = dims_of(value) or []
    return dims[axis] if axis < len(dims) else None


def _unit(value: ir.Value | None, axis: int, heads: int) -> int:
    """How long one head is on that axis."""
    size = _dim(value, axis)
    if not size or not heads or size % heads:
        raise CannotSplitError("how long its heads are is only known when it runs")
    return size // heads
