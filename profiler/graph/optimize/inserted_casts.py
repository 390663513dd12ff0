"""Casts that ONNX Runtime inserts where its CPU has no kernel of a type, out of a graph again.

What it writes as its optimized graph is what it would run here: a model in float16 has casts to
float32 around nearly every node, and casts of the model itself that stood beside these are gone.
Without the inserted ones each value has the type that it had; where a node then reads another type
than it did, the cast of the model is put back.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from profiler.graph.infer import infer_types

__all__ = ["remove_inserted_casts"]

_INSERTED = "InsertedPrecisionFreeCast_"
_HALF, _SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT


def remove_inserted_casts(model: ir.Model, before: ir.Model) -> int:
    """Remove them from `model`, in place; returns how many there were.

    `before` is the model that was optimized: its nodes tell the types that they read. It gets
    inferred types where it has none.
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
        for value in _values(model)
    }
    count = sum(_remove_all(graph) for graph in model.graphs())
    for graph in model.graphs():
        _Casts(graph, types, twins).put_back(wanted)
    return count


def _is_inserted(node: ir.Node) -> bool:
    return node.op_type == "Cast" and (node.name or "").startswith(_INSERTED)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs


def _remove_all(graph: ir.Graph) -> int:
    casts = [node for node in graph if _is_inserted(node)]
    for cast in casts:
        _remove(graph, cast)
    if casts:
        for node in graph:
            for output in node.outputs:
                output.type = output.shape = None  # that was what lies between the casts
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
    """The nodes of the model before, by what they write and by name."""

    def __init__(self, before: ir.Model) -> None:
        nodes = [node for graph in before.graphs() for node in graph]
        self._writers = {value.name: node for node in nodes for value in node.outputs if value.name}
        self._named = {node.name: node for node in nodes if node.name}

    def type_of(self, value: ir.Value) -> ir.DataType | None:
        """The type of `value`: ONNX's inference knows none of ONNX Runtime's operators."""
        if value.dtype is not None or value.name not in self._writers:
            return value.dtype
        outputs = self._writers[value.name].outputs
        return next(output.dtype for output in outputs if output.name == value.name)

    def of(self, node: ir.Node) -> ir.Node | None:
        """What `node` was, None where it is new or another operation."""
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
    """Puts casts back into a graph whose values have these `types`."""

    def __init__(
        self, graph: ir.Graph, types: dict[ir.Value, ir.DataType | None], twins: _Twins
    ) -> None:
        self._graph, self._types, self._twins = graph, types, twins
        self._made = dict(self._there())
        self._names = {value.name for value in types}

    def _there(self) -> Iterator[tuple[tuple[ir.Value, ir.DataType], ir.Value]]:
        """The casts that are left, each moved to where what it reads is written."""
        for node in [n for n in self._graph if n.op_type == "Cast" and not n.domain]:
            value = node.inputs[0]
            writer = None if value is None else value.producer()
            if value is not None and writer is not None and writer.graph is self._graph:
                self._graph.remove(node)
                self._graph.insert_after(writer, node)
                yield (value, ir.DataType(node.attributes["to"].as_int())), node.outputs[0]

    def put_back(self, wanted: dict[ir.Node, list[ir.DataType | None]]) -> None:
        """Have each node read the types that it wants; one that is new and tells none reads one
        type, float32 where it reads both."""
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
        """A constant of functions that ONNX Runtime has written out, in another type."""
        tensor = value.const_value
        if tensor is None or value.graph is not self._graph or value.is_graph_input():
            return None
        name = self._free(f"{value.name}_{to.name.lower()}")
        array = tensor.numpy().astype(to.numpy())
        made = ir.Value(name=name, const_value=ir.tensor(array, name=name))
        made.type, made.shape = ir.TensorType(to), value.shape
        self._graph.register_initializer(made)
        return made

    def _as_node(self, reader: ir.Node, index: int, value: ir.Value, to: ir.DataType) -> ir.Value:
        """A Cast before `reader`: that of the model before, where one stood there."""
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
        """`name`, or with a number where a value has it."""
        found, number = name, 1
        while found in self._names:
            found, number = f"{name}_{number}", number + 1
        self._names.add(found)
        return found
