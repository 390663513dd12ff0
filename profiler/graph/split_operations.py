"""How to split MatMul, Gemm, Conv and attention into parts that run in parallel.

Matmuls are split by columns, rows, batches or the inner dimension, convolutions by output
channels, groups or input channels, and attention by heads. In an attention chain every
operation between the two MatMuls is split the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import onnx_ir as ir

from profiler.graph.model import is_constant
from profiler.graph.split_parts import (
    CannotSplitError,
    Parts,
    Rewriter,
    Way,
    dims_of,
    is_weight,
    join,
    ranges_of,
)

# --- Split attention in one operation by heads: ONNX's, and ONNX Runtime's two.


ATTENTION_OPERATIONS = frozenset(
    {("", "Attention"), ("com.microsoft", "Attention"), ("com.microsoft", "MultiHeadAttention")}
)
"""Domain and op type of the operations that are split here."""


def ways_of_attention(rewriter: Rewriter, node: ir.Node) -> list[Way]:
    """Return the ways to split one of `ATTENTION_OPERATIONS`. States of earlier tokens are not
    split, so an operation that reads or writes them cannot be."""
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        raise CannotSplitError("it has outputs beside its result")
    if node.domain == "":
        return _of_onnx(rewriter, node)
    if node.op_type == "Attention":
        return _of_packed_weights(rewriter, node)
    return _of_multi_head(rewriter, node)


def _of_onnx(rewriter: Rewriter, node: ir.Node) -> list[Way]:
    """Return the ways for ONNX's Attention: heads of keys and values, each with its share of the
    queries' heads."""
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
        units = (_unit(query, 2, heads), _unit(key, 2, kv_heads), _unit(value, 2, kv_heads))
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
    """Return the ways for attention that projects its input by weights with columns of query, key
    and value."""
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
    """Return the ways for attention of projected queries, keys and values, separate or packed."""
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
    """Return the axis of the heads in an operand of MultiHeadAttention, and the length of one:
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
    """Each part's portion of a mask or bias that broadcasts to (batch, heads, length, length)."""
    return parts.broadcast_portions(value, -3, list(lengths))


def _inputs(node: ir.Node, count: int) -> list[ir.Value | None]:
    return [*node.inputs, *[None] * count][:count]


def _integer(node: ir.Node, name: str) -> int:
    """An attribute that is a positive number, 0 if there is none."""
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.INT:
        return 0
    return max(attribute.as_int(), 0)


def _dim(value: ir.Value | None, axis: int) -> int | None:
    dims = dims_of(value) or []
    return dims[axis] if axis < len(dims) else None


def _unit(value: ir.Value | None, axis: int, heads: int) -> int:
    """Return the length of one head on that axis."""
    size = _dim(value, axis)
    if not size or not heads or size % heads:
        raise CannotSplitError("how long its heads are is only known when it runs")
    return size // heads


# --- Split attention in several operations by heads: MatMul, scale and mask, Softmax, MatMul.
#
# Every operation between the two MatMuls is split the same way, so that the scores stay within a
# part; only the outputs of the second MatMuls are concatenated.


_ELEMENTWISE = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Neg", "Min", "Max", "Clip", "Tanh", "Cast", "Identity"),
        *("Where", "IsNaN", "IsInf", "Not", "And", "Or", "Equal"),
    }
)
_MOST_NODES = 32

AttentionChain = tuple[ir.Node, ...]
"""The nodes of one attention in the graph's order; first and last are its MatMuls."""


def attention_chains(graph: ir.Graph) -> Iterator[AttentionChain]:
    """The chains of a graph, without those of its subgraphs."""
    place = {node: number for number, node in enumerate(graph)}
    for node in place:
        if node.domain == "" and node.op_type == "MatMul" and not any(map(is_weight, node.inputs)):
            found = _chain_from(node)
            if found is not None:
                yield tuple(sorted(found, key=place.__getitem__))


def _chain_from(first: ir.Node) -> set[ir.Node] | None:
    """Return all nodes from a MatMul up to the next one, if they are attention; else None."""
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
    """Return the only way to split a chain: by heads."""
    return [_Heads(rewriter, chain).way()]


class _Heads:
    """Splits a chain whose heads are on the third axis from the right."""

    def __init__(self, rewriter: Rewriter, chain: AttentionChain) -> None:
        self._rewriter, self._nodes = rewriter, chain
        scores = dims_of(chain[0].outputs[0])
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
            operands = [  # a part's own of the chain's values, else its heads
                found[value] if value in found else parts.broadcast_portions(value, -3, lengths)
                for value in node.inputs
            ]
            made = parts.add_each(operands, self._rank - 3, lengths)
            found[node.outputs[0]] = list(made)
            all_parts.append((parts, made))
        last, outputs = all_parts.pop()
        for parts, _ in all_parts:
            parts.place()
        last.replace(last.concat(outputs, self._rank - 3))
        for node in reversed(self._nodes[:-1]):
            assert node.graph is not None
            node.graph.remove(node, safe=True)


# --- Split Conv: by output channels of its weights, groups, or input channels with a sum.


def ways_of_conv(rewriter: Rewriter, node: ir.Node) -> list[Way]:
    """The ways to split a Conv of any number of dimensions."""
    weight = node.inputs[1]
    dims = dims_of(weight)
    if weight is None or dims is None or len(dims) < 3 or dims[0] is None or dims[1] is None:
        raise CannotSplitError("the shape of its weights is not known")
    group = node.attributes.get_int("group", 1)
    if group < 1 or dims[0] % group:
        raise CannotSplitError(f"its {dims[0]} channels have no {group} groups")
    cut, kept = rewriter.largest([weight, *node.outputs]), rewriter.largest([node.inputs[0]])
    if is_weight(weight):
        cut, kept = rewriter.largest([weight]), 0
    if group > 1:
        each = dims[0] // group
        return [Way("groups", group, cut, kept, lambda n: _groups(rewriter, node, each, n))]
    return [
        Way("channels", dims[0], cut, kept, lambda n: _output_channels(rewriter, node, n)),
        Way("terms", dims[1], cut, kept, lambda n: _input_channels(rewriter, node, n)),
    ]


def _output_channels(rewriter: Rewriter, node: ir.Node, lengths: list[int]) -> None:
    parts = Parts(rewriter, node)
    weights = parts.portions_of(node.inputs[1], 0, lengths)
    biases = parts.portions_of(_bias(node), 0, lengths)
    operands = [[node.inputs[0]] * len(lengths), weights, biases]
    join(parts, parts.add_each(operands, 1, lengths), 1, lengths)


def _groups(rewriter: Rewriter, node: ir.Node, each: int, lengths: list[int]) -> None:
    """Split into whole groups: each with its input channels and `each` output channels."""
    parts = Parts(rewriter, node)
    dims = dims_of(node.inputs[1])
    assert dims is not None
    assert dims[1] is not None
    inputs = parts.portions_of(node.inputs[0], 1, [length * dims[1] for length in lengths])
    channels = [length * each for length in lengths]
    weights = parts.portions_of(node.inputs[1], 0, channels)
    biases = parts.portions_of(_bias(node), 0, channels)
    outputs = [
        parts.add([x, weight, bias], {"group": length}, (1, length * each))
        for x, weight, bias, length in zip(inputs, weights, biases, lengths, strict=True)
    ]
    join(parts, outputs, 1, channels)


def _input_channels(rewriter: Rewriter, node: ir.Node, lengths: list[int]) -> None:
    """Split by input channels and add up; the bias goes only to the first part."""
    parts = Parts(rewriter, node)
    inputs = parts.portions_of(node.inputs[0], 1, lengths)
    weights = parts.portions_of(node.inputs[1], 1, lengths)
    parts.replace_by_sum(inputs, weights, [_bias(node), *[None] * (len(lengths) - 1)])


def _bias(node: ir.Node) -> ir.Value | None:
    return node.inputs[2] if len(node.inputs) > 2 else None


# --- Split MatMul and Gemm: by columns, rows or batches of their output, or terms of their sums.
#
# With a constant on the right, parts have columns of it; with one on the left, rows. If those are
# too few, parts have portions of the inner dimension, and their outputs are added up. Between two
# activations, parts have portions of a batch axis (heads) if both may have one, else columns, else
# rows.


def ways_of_matmul(rewriter: Rewriter, node: ir.Node) -> list[Way]:
    """Return the ways to split a MatMul of any ranks; its operands broadcast as in numpy."""
    return _MatMul(rewriter, node).ways()


class _MatMul:
    def __init__(self, rewriter: Rewriter, node: ir.Node) -> None:
        a, b = node.inputs[0], node.inputs[1]
        dims_a, dims_b = dims_of(a), dims_of(b)
        if a is None or b is None or dims_a is None or dims_b is None:
            raise CannotSplitError("the ranks of its operands are not known")
        if not dims_a or not dims_b:
            raise CannotSplitError("one of its operands has no axis, which no MatMul takes")
        self._rewriter, self._node = rewriter, node
        self._operands, self._dims_a, self._dims_b = (a, b), dims_a, dims_b
        self._rank = max(len(dims_a), len(dims_b)) - (len(dims_a) == 1) - (len(dims_b) == 1)

    def ways(self) -> list[Way]:
        rewriter, (a, b) = self._rewriter, self._operands
        output = rewriter.largest([self._node.outputs[0]])
        if is_weight(b):
            weight = rewriter.largest([b])
            return [*self._columns(weight, 0), *self._terms(weight)]
        if is_weight(a):
            weight = rewriter.largest([a])
            return [*self._rows(weight, 0), *self._terms(weight)]
        first, second = rewriter.largest([a]), rewriter.largest([b])
        found = [
            *self._columns(_larger(second, output), first),
            *self._rows(_larger(first, output), second),
        ]
        batches = list(self._batches())
        return [*batches, *found] if len(self._dims_b) > 2 else [*found, *batches]

    def _portions(self, cut: Mapping[int, int], back: int) -> Callable[[list[int]], None]:
        """What makes parts of portions: `cut` has, by operand, the axis on which it is cut; their
        outputs are portions of the axis `back` from the right."""

        def make(lengths: list[int]) -> None:
            parts = Parts(self._rewriter, self._node)
            operands = [
                parts.portions_of(value, cut[number], lengths)
                if number in cut
                else [value] * len(lengths)
                for number, value in enumerate(self._operands)
            ]
            axis = self._rank - back
            join(parts, parts.add_each(operands, axis, lengths), axis, lengths)

        return make

    def _columns(self, cut: int | None, kept: int | None) -> Iterator[Way]:
        if len(self._dims_b) > 1:
            yield Way("columns", self._dims_b[-1], cut, kept, self._portions({1: -1}, 1))

    def _rows(self, cut: int | None, kept: int | None) -> Iterator[Way]:
        if len(self._dims_a) > 1:
            back = min(len(self._dims_b), 2)
            yield Way("rows", self._dims_a[-2], cut, kept, self._portions({0: -2}, back))

    def _terms(self, cut: int | None) -> Iterator[Way]:
        def make(lengths: list[int]) -> None:
            parts = Parts(self._rewriter, self._node)
            a, b = self._operands
            of_a = parts.portions_of(a, -1, lengths)
            parts.replace_by_sum(of_a, parts.portions_of(b, inner, lengths))

        inner = -2 if len(self._dims_b) > 1 else -1
        yield Way("terms", self._dims_b[inner] or self._dims_a[-1], cut, 0, make)

    def _batches(self) -> Iterator[Way]:
        """Yield ways by batch axes that both operands have, or one has and the other broadcasts;
        heads first."""
        for back in range(3, max(len(self._dims_a), len(self._dims_b)) + 1):
            sizes = [
                dims[-back] if len(dims) >= back else 1 for dims in (self._dims_a, self._dims_b)
            ]
            if None not in sizes and max(size or 0 for size in sizes) > 1:
                yield self._batch(back, sizes)

    def _batch(self, back: int, sizes: list[int | None]) -> Way:
        cut = [value for value, size in zip(self._operands, sizes, strict=True) if size != 1]
        kept = [value for value, size in zip(self._operands, sizes, strict=True) if size == 1]
        largest = self._rewriter.largest
        make = self._portions({n: -back for n, size in enumerate(sizes) if size != 1}, back)
        size = max(size or 1 for size in sizes)
        return Way("batches", size, largest([*cut, *self._node.outputs]), largest(kept), make)


def ways_of_gemm(rewriter: Rewriter, node: ir.Node) -> list[Way]:
    """Return the ways to split a Gemm, including transposed operands and a bias that broadcasts."""
    a, b = node.inputs[0], node.inputs[1]
    dims_a, dims_b = dims_of(a) or [None, None], dims_of(b) or [None, None]
    if a is None or b is None or len(dims_a) != 2 or len(dims_b) != 2:
        raise CannotSplitError("its operands are no matrices")
    c = node.inputs[2] if len(node.inputs) > 2 else None
    axes = (  # of the rows of a, and of the columns of b
        int(node.attributes.get_int("transA", 0) != 0),
        1 - int(node.attributes.get_int("transB", 0) != 0),
    )
    rows, columns = dims_a[axes[0]], dims_b[axes[1]]
    inner = dims_b[1 - axes[1]] or dims_a[1 - axes[0]]
    first, second = rewriter.largest([a]), rewriter.largest([b])
    output = rewriter.largest(node.outputs)

    def portions(axis: int, lengths: list[int]) -> None:
        """Rows of the output (axis 0), or columns (1)."""
        parts = Parts(rewriter, node)
        of_c = parts.broadcast_portions(c, axis - 2, lengths)
        operands: list[Sequence[ir.Value | None]] = [[a] * len(lengths), [b] * len(lengths), of_c]
        operands[axis] = parts.portions_of((a, b)[axis], axes[axis], lengths)
        join(parts, parts.add_each(operands, axis, lengths), axis, lengths)

    def terms(lengths: list[int]) -> None:
        """The bias goes to the first part: added once."""
        parts = Parts(rewriter, node)
        of_a = parts.portions_of(a, 1 - axes[0], lengths)
        of_b = parts.portions_of(b, 1 - axes[1], lengths)
        parts.replace_by_sum(of_a, of_b, [c, *[None] * (len(lengths) - 1)])

    by_rows, by_columns = partial(portions, 0), partial(portions, 1)
    if is_weight(b):
        return [
            Way("columns", columns, second, 0, by_columns),
            Way("terms", inner, second, 0, terms),
        ]
    if is_weight(a):
        return [Way("rows", rows, first, 0, by_rows), Way("terms", inner, first, 0, terms)]
    return [
        Way("columns", columns, _larger(second, output), first, by_columns),
        Way("rows", rows, _larger(first, output), second, by_rows),
    ]


def _larger(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else max(first, second)
