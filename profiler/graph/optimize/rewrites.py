"""ONNX rewrites around ONNX Runtime's optimizer: inserted casts and MMDiT attention.

The optimized graph is for this CPU, so casts to float32 that it inserted are removed again.
Attention from torch's dynamo exporter is rewritten into the form that `fusion_mha_mmdit` of
onnxruntime.transformers 1.31 recognizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from profiler.graph.model import (
    add_initializer,
    all_values,
    constant,
    infer_shapes,
    infer_types,
    producer,
    scalar,
)

# --- Remove casts that ONNX Runtime inserts because its CPU lacks kernels of a type.
#
# Its optimized graph is what it would run here: a float16 model has casts to float32 around nearly
# every node, and the model's own casts beside these are gone. Without the inserted ones each value
# has its original type; if a node then reads another type than before, the model's cast is
# restored.


_INSERTED = "InsertedPrecisionFreeCast_"
_HALF, _SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT


def remove_inserted_casts(model: ir.Model, before: ir.Model) -> int:
    """Remove inserted casts from `model`, in place; return how many there were.

    `before` is the original model: its nodes define the types to read. It gets inferred types if it
    has none.
    """
    if not any(_is_inserted(node) for graph in model.graphs() for node in graph):
        return 0
    infer_types(before)
    infer_types(model)
    twins = _Twins(before)
    wanted = {
        node: twins.types_read(node)
        for graph in model.graphs()
        for node in graph
        if not _is_inserted(node)
    }
    types = {
        value: _HALF if (value.name or "").startswith(_INSERTED) else twins.type_of(value)
        for value in all_values(model)
    }
    count = sum(_remove_all(graph) for graph in model.graphs())
    for graph in model.graphs():
        _Casts(graph, types, twins).put_back(wanted)
    return count


def _is_inserted(node: ir.Node) -> bool:
    return node.op_type == "Cast" and (node.name or "").startswith(_INSERTED)


def _remove_all(graph: ir.Graph) -> int:
    casts = [node for node in graph if _is_inserted(node)]
    for cast in casts:
        _remove(graph, cast)
    if casts:
        for node in graph:
            for output in node.outputs:
                output.type = output.shape = None  # was that of the value between the casts
    return len(casts)


def _remove(graph: ir.Graph, cast: ir.Node) -> None:
    given, written = cast.inputs[0], cast.outputs[0]
    assert given is not None
    name, producer = written.name, given.producer()
    is_output = written.is_graph_output()
    own_name = (given.name or "").startswith(_INSERTED)
    ir.convenience.replace_all_uses_with(written, given, replace_graph_outputs=is_output)
    graph.remove(cast, safe=True)
    if producer is not None and (own_name or is_output) and not (name or "").startswith(_INSERTED):
        given.name = name


def _is_unread(value: ir.Value) -> bool:
    return not value.uses() and not value.is_graph_output() and not value.is_graph_input()


class _Twins:
    """The nodes of the original model, by output and by name."""

    def __init__(self, before: ir.Model) -> None:
        nodes = [node for graph in before.graphs() for node in graph]
        self._writers = {value.name: node for node in nodes for value in node.outputs if value.name}
        self._named = {node.name: node for node in nodes if node.name}

    def type_of(self, value: ir.Value) -> ir.DataType | None:
        """Return the type of `value`, from the original model for operators of ONNX Runtime, which
        ONNX's inference does not know."""
        if value.dtype is not None or value.name not in self._writers:
            return value.dtype
        outputs = self._writers[value.name].outputs
        return next(output.dtype for output in outputs if output.name == value.name)

    def of(self, node: ir.Node) -> ir.Node | None:
        """Return the original of `node`, None if it is new or another operation."""
        names = [(value.name or "").removeprefix(_INSERTED) for value in node.outputs]
        found = [self._writers[name] for name in names if name in self._writers]
        found += [self._named[node.name]] if node.name in self._named else []
        alike = (
            other
            for other in found
            if (other.op_type, other.domain) == (node.op_type, node.domain)
            and len(other.inputs) == len(node.inputs)
        )
        return next(alike, None)

    def types_read(self, node: ir.Node) -> list[ir.DataType | None]:
        """The float type of each input of `node` without inserted casts, None for any."""
        twin = self.of(node)
        if twin is not None:
            return [None if value is None else value.dtype for value in twin.inputs]
        inner = [(value.name or "").startswith(_INSERTED) for value in node.outputs]
        return [_HALF if any(inner) else None] * len(node.inputs)


class _Casts:
    """Restores casts in a graph whose values have these `types`."""

    def __init__(
        self, graph: ir.Graph, types: dict[ir.Value, ir.DataType | None], twins: _Twins
    ) -> None:
        self._graph, self._types, self._twins = graph, types, twins
        self._made = dict(self._there())
        self._names = {value.name for value in types}

    def _there(self) -> Iterator[tuple[tuple[ir.Value, ir.DataType], ir.Value]]:
        """Yield the remaining casts, each moved directly behind the node whose value it reads."""
        for node in [n for n in self._graph if n.op_type == "Cast" and not n.domain]:
            value = node.inputs[0]
            writer = None if value is None else value.producer()
            if value is not None and writer is not None and writer.graph is self._graph:
                self._graph.remove(node)
                self._graph.insert_after(writer, node)
                yield (value, ir.DataType(node.attributes["to"].as_int())), node.outputs[0]

    def put_back(self, wanted: dict[ir.Node, list[ir.DataType | None]]) -> None:
        """Make each node read the types in `wanted`; a new node without types reads a single type,
        float32 if it has both."""
        for node in list(self._graph):
            given = [self._types.get(value) if value else None for value in node.inputs]
            asked = wanted.get(node, [])
            if not any(asked) and {_HALF, _SINGLE} <= {*given}:
                asked = [_SINGLE] * len(given)
            for index, (value, has, asks) in enumerate(
                zip(node.inputs, given, asked, strict=False)
            ):
                if value is not None and {has, asks} == {_HALF, _SINGLE} and asks is not None:
                    node.replace_input_with(index, self._cast(node, index, value, asks))
        unread = [v for v in self._graph.initializers.values() if _is_unread(v)]
        for value in unread:
            del self._graph.initializers[value.name or ""]

    def _cast(self, reader: ir.Node, index: int, value: ir.Value, to: ir.DataType) -> ir.Value:
        if (value, to) not in self._made:
            made = self._as_initializer(value, to) or self._as_node(reader, index, value, to)
            self._made[value, to] = made
            self._types[made] = to
        return self._made[value, to]

    def _as_initializer(self, value: ir.Value, to: ir.DataType) -> ir.Value | None:
        """A constant from a function inlined by ONNX Runtime as an initializer of another type."""
        tensor = value.const_value
        if tensor is None or value.graph is not self._graph or value.is_graph_input():
            return None
        name = self._free(f"{value.name}_{to.name.lower()}")
        array = tensor.numpy().astype(to.numpy())
        return add_initializer(self._graph, ir.tensor(array, name=name))

    def _as_node(self, reader: ir.Node, index: int, value: ir.Value, to: ir.DataType) -> ir.Value:
        """Insert a Cast before `reader`, with the name of the original one, if there was one."""
        twin = self._twins.of(reader)
        source = None if twin is None else twin.inputs[index]
        cast = None if source is None else source.producer()
        own = cast is not None and cast.op_type == "Cast" and not cast.domain
        kept = source.name if own and source and source.name not in self._names else None
        name = self._free(kept or f"{value.name}_{to.name.lower()}")
        made = ir.node("Cast", [value], {"to": to}, name=cast.name if kept and cast else name)
        made.outputs[0].name = name
        self._graph.insert_before(reader, made)
        return made.outputs[0]

    def _free(self, name: str) -> str:
        """Return `name`, with a number if it is taken."""
        found, number = name, 1
        while found in self._names:
            found, number = f"{name}_{number}", number + 1
        self._names.add(found)
        return found


# --- Rewrite attention of torch's dynamo exporter into the form of ONNX Runtime's MMDiT fusion.
#
# That fusion (`fusion_mha_mmdit` of onnxruntime.transformers 1.31) recognizes the graph of the
# TorchScript exporter: both operands are scaled by the square root of 1 / sqrt(head size), which is
# computed from the shape of the queries; keys are transposed by one Transpose; the number of heads
# is in a Concat of four sizes. The dynamo exporter folds the scale to a constant, transposes the
# keys in three dimensions between two Reshapes, and may fold the sizes. The rewritten form computes
# the same; the fusion replaces all of it.


_SWAPPED = [0, 2, 1, 3]  # batch, heads, sequence, size ↔ batch, sequence, heads, size
_TURNED = [0, 1, 3, 2]
_SCALE_TOLERANCE = 2e-3  # float16 represents a scale to 1e-3


@dataclass(frozen=True, slots=True)
class _Attention:
    """softmax(q kᵀ / sqrt(head size)) v: `product` is the MatMul of queries and keys, `queries`
    and `keys` are [batch, heads, sequence, head size], `swaps` the Transposes that give the values
    that order."""

    product: ir.Node
    queries: ir.Value
    keys: ir.Value
    heads: int
    size: int
    swaps: tuple[ir.Node, ...]


def write_for_mmdit_fusion(model: ir.Model) -> int:
    """Rewrite each unmasked attention of the main graph into the fusion's form, in place, and
    return how many there are. Others are unchanged."""
    infer_shapes(model)
    softmaxes = [node for node in model.graph if node.op_type == "Softmax" and not node.domain]
    found = [*filter(None, map(_attention, softmaxes))]
    for number, attention in enumerate(found):
        _Writer(model.graph, f"mmdit_attention_{number}").write(attention)
    return len(found)


def _attention(softmax: ir.Node) -> _Attention | None:
    """The attention of a Softmax; None if it is masked, or of another form or scale."""
    swaps = _values_of(softmax)
    scores, factor = _unscaled(softmax.inputs[0])
    product = producer(scores, "MatMul")
    last = softmax.attributes.get_int("axis", -1) in (-1, 3)
    if swaps is None or product is None or not last:
        return None
    queries, of_queries = _unscaled(product.inputs[0])
    turned, of_keys = _unscaled(product.inputs[1])
    keys = _before_turning(turned)
    size = _dim(queries, 3)
    if queries is None or keys is None or size is None or _dim(keys, 3) != size:
        return None
    heads = _dim(queries, 1)
    scale = factor * of_queries * of_keys
    if heads is None or not math.isclose(
        scale * math.sqrt(size), 1.0, rel_tol=_SCALE_TOLERANCE, abs_tol=0
    ):
        return None
    return _Attention(product, queries, keys, heads, size, swaps)


def _values_of(softmax: ir.Node) -> tuple[ir.Node, ...] | None:
    """Return the Transposes that give the values the order of queries and keys (two if joined);
    None unless the result goes through a Transpose and a Reshape of its own."""
    value: ir.Value = softmax.outputs[0]
    node = softmax
    for op_type in ("MatMul", "Transpose", "Reshape"):
        uses = list(value.uses())
        if len(uses) != 1 or value.is_graph_output():
            return None
        node, position = uses[0]
        if node.op_type != op_type or node.domain or position:
            return None
        if op_type == "Transpose" and _perm(node) != _SWAPPED:
            return None
        if op_type == "MatMul":
            values = node.inputs[1]
        value = node.outputs[0]
    joined = producer(values, "Concat")
    if joined is not None and len(joined.inputs) != 2:
        return None
    parts = joined.inputs if joined is not None else [values]
    swaps = [producer(part, "Transpose") for part in parts]
    found = tuple(swap for swap in swaps if swap is not None and _perm(swap) == _SWAPPED)
    return found if len(found) == len(parts) else None


def _unscaled(value: ir.Value | None) -> tuple[ir.Value | None, float]:
    """Return the operand that is scaled by a constant number, and the factor; `value` and 1 if
    there is none."""
    node = producer(value, "Mul", "Div")
    if node is None:
        return value, 1.0
    for at in (0, 1) if node.op_type == "Mul" else (1,):
        number = scalar(node.inputs[at])
        if number:
            return node.inputs[1 - at], number if node.op_type == "Mul" else 1 / number
    return value, 1.0


def _before_turning(value: ir.Value | None) -> ir.Value | None:
    """Return the keys, with four dimensions, that `value` has with the last two swapped."""
    turn = producer(value, "Transpose")
    if turn is not None and _perm(turn) == _TURNED:
        return turn.inputs[0]
    apart = producer(value, "Reshape")
    turn = producer(apart.inputs[0], "Transpose") if apart is not None else None
    together = producer(turn.inputs[0], "Reshape") if turn is not None else None
    if turn is None or together is None or _perm(turn) != [0, 2, 1]:
        return None
    keys = together.inputs[0]
    ranks = (_rank(keys), _rank(together.outputs[0]), _rank(value))
    whole = _dim(keys, 1) is not None and _dim(keys, 1) == _dim(value, 1)
    return keys if ranks == (4, 3, 4) and (whole or _same_dims(keys, value)) else None


def _same_dims(keys: ir.Value | None, turned: ir.Value | None) -> bool:
    """Whether the heads and sizes of both, as far as known, do not contradict each other."""
    known = {dim for dim in (_dim(keys, 1), _dim(turned, 1)) if dim is not None}
    return len(known) < 2 and _dim(keys, 3) in (None, _dim(turned, 2) or _dim(keys, 3))


def _perm(node: ir.Node) -> list[int]:
    perm = node.attributes.get("perm")
    return list(perm.as_ints()) if perm is not None else []


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def _dim(value: ir.Value | None, axis: int) -> int | None:
    if value is None or value.shape is None or len(value.shape) <= axis:
        return None
    dim = value.shape[axis]
    return dim if isinstance(dim, int) else None


class _Writer:
    """Writes one attention; names of new nodes and values start with `name`."""

    def __init__(self, graph: ir.Graph, name: str) -> None:
        self._graph, self._name, self._count = graph, name, 0

    def write(self, attention: _Attention) -> None:
        product = attention.product
        scale = self._scale(attention.queries, product)
        turned = self._node("Transpose", [attention.keys], product, perm=_TURNED)
        product.replace_input_with(0, self._node("Mul", [attention.queries, scale], product))
        product.replace_input_with(1, self._node("Mul", [turned, scale], product))
        _next_softmax(product).replace_input_with(0, product.outputs[0])
        for swap in attention.swaps:
            self._write_sizes(swap, attention.heads, attention.size)

    def _scale(self, queries: ir.Value, before: ir.Node) -> ir.Value:
        """Write sqrt(1 / sqrt(head size)) as nodes, as the TorchScript exporter does."""
        dtype = queries.dtype or ir.DataType.FLOAT
        sizes = self._node("Shape", [queries], before)
        ends = [self._integers([end]) for end in (-1, np.iinfo(np.int64).max)]
        size = self._node("Slice", [sizes, *ends], before)
        cast = self._node("Cast", [size], before, to=dtype.value)
        root = self._node("Sqrt", [cast], before)
        one = self._constant(np.ones(1).astype(dtype.numpy()))
        inverse = self._node("Div", [one, root], before)
        return self._node("Sqrt", [inverse], before)

    def _write_sizes(self, swap: ir.Node, heads: int, size: int) -> None:
        """Make sure that the Transpose has a Reshape in front whose sizes are a Concat of four."""
        reshape = producer(swap.inputs[0], "Reshape")
        sizes = reshape.inputs[1] if reshape is not None else None
        joined = producer(sizes, "Concat")
        if joined is not None and len(joined.inputs) == 4 and scalar(joined.inputs[2]) == heads:
            return
        known = constant(sizes)
        if reshape is not None and known is not None and known.shape == (4,):
            parts = [self._integers([int(number)]) for number in known]
            reshape.replace_input_with(1, self._node("Concat", parts, reshape, axis=0))
            return
        parts = [self._integers([number]) for number in (0, 0, heads, size)]  # 0: unchanged
        whole = self._node("Concat", parts, swap, axis=0)
        given = swap.inputs[0]
        assert given is not None
        swap.replace_input_with(0, self._node("Reshape", [given, whole], swap))

    def _integers(self, values: Sequence[int]) -> ir.Value:
        return self._constant(np.array(values, dtype=np.int64))

    def _constant(self, array: Any) -> ir.Value:
        self._count += 1
        tensor = ir.tensor(array, name=f"{self._name}_constant_{self._count}")
        return add_initializer(self._graph, tensor)

    def _node(
        self, op_type: str, inputs: Sequence[ir.Value], before: ir.Node, **attributes: Any
    ) -> ir.Value:
        self._count += 1
        made = ir.node(op_type, inputs, attributes)
        made.name = f"{self._name}_{op_type}_{self._count}"
        made.outputs[0].name = f"{made.name}_output"
        self._graph.insert_before(before, made)
        return made.outputs[0]


def _next_softmax(product: ir.Node) -> ir.Node:
    """Return the Softmax behind a product and its scale."""
    node = product
    while node.op_type != "Softmax":
        node = next(iter(node.outputs[0].uses())).node
    return node
