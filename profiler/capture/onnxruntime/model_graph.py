"""The nodes of an ONNX file, without its weights and without the package `onnx`.

Whoever runs a model with ONNX Runtime need not have `onnx` installed. What layers are made of are
names: of nodes, of what they read and write, and the metadata that exporters leave on them. Only
that is read; tensors are passed over, and external data is not opened.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from profiler.capture.onnxruntime.wire_format import fields, messages_of, varint
from profiler.errors import InputError

__all__ = ["Graph", "Node", "read_graph"]

_DEEPEST = 64  # graphs in graphs
_LONGEST_NUMBER = 10  # bytes
# Field numbers of onnx.proto.
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_NAME = 1, 2
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OP_TYPE = 1, 2, 3, 4
_NODE_ATTRIBUTE, _NODE_METADATA = 5, 9
_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 6, 11
_ENTRY_KEY, _ENTRY_VALUE = 1, 2


@dataclass(slots=True)
class Graph:
    """The nodes of a graph in its order, without those of subgraphs."""

    name: str = ""
    nodes: list[Node] = field(default_factory=list)

    def all_nodes(self) -> Iterator[Node]:
        """Every node, those of subgraphs after the one that has them."""
        for node in self.nodes:
            yield node
            for graph in node.graphs:
                yield from graph.all_nodes()


@dataclass(slots=True)
class Node:
    """A node as the file has it; `graphs` are those of its attributes: branches, a loop's body."""

    name: str = ""
    op_type: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    graphs: list[Graph] = field(default_factory=list)


def read_graph(source: Path | bytes | BinaryIO, where: str = "the session's model") -> Graph:
    """The graph of a model. `where` names one that is not given by its path.

    Raises InputError where it is no readable ONNX model.
    """
    try:
        if isinstance(source, Path):
            where = str(source)
            with source.open("rb") as file:
                return _of_model(file)
        return _of_model(io.BytesIO(source) if isinstance(source, bytes) else source)
    except (OSError, ValueError, IndexError) as error:
        raise InputError(
            f"{where} is not a readable ONNX model ({error}): export it again"
        ) from error


def _of_model(file: BinaryIO) -> Graph:
    size = file.seek(0, os.SEEK_END)
    if not size:
        raise ValueError("it is empty")
    found, graphs = Graph(), 0
    for number, begin, end in _messages_in(file, 0, size):
        if number != _MODEL_GRAPH:
            continue
        graphs += 1
        for part, first, last in _messages_in(file, begin, end):
            if part in (_GRAPH_NODE, _GRAPH_NAME):
                _add(found, part, _bytes(file, first, last), 1)
    if not graphs:
        raise ValueError("it has no graph")
    return found


def _messages_in(file: BinaryIO, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Fields of a file that have a length: number, begin and end of what they hold, none of which
    is read. Who takes them may read elsewhere."""
    while begin < end:
        head = _bytes(file, begin, min(begin + 2 * _LONGEST_NUMBER, end))
        number, at, value_end = _first_field(head, end - begin)
        if at:
            yield number, begin + at, begin + value_end
        begin += value_end


def _first_field(head: bytes, room: int) -> tuple[int, int, int]:
    """The first field: number, begin (0: it has no length) and end of what it holds."""
    tag, at = varint(head, 0)
    number, wire = tag >> 3, tag & 7
    if wire == 2:
        length, at = varint(head, at)
        value_end = at + length
    elif wire == 0:
        _, value_end = varint(head, at)
        at = 0
    elif wire in (1, 5):
        at, value_end = 0, at + (8 if wire == 1 else 4)
    else:
        raise ValueError(f"field {number} is of no known kind")
    if value_end > room:
        raise ValueError(f"field {number} is cut")
    return number, at, value_end


def _bytes(file: BinaryIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    found = file.read(end - begin)
    if len(found) != end - begin:
        raise ValueError(f"it ends at byte {begin + len(found)}")
    return found


def _add(graph: Graph, number: int, data: bytes, depth: int) -> None:
    """Add a field of a graph to it."""
    if number == _GRAPH_NODE:
        graph.nodes.append(_node(data, depth))
    elif number == _GRAPH_NAME:
        graph.name = _text(data)


def _node(data: bytes, depth: int) -> Node:
    found = Node()
    for number, begin, end in fields(data, 0, len(data)):
        if end < 0:
            continue
        if number == _NODE_INPUT:
            found.inputs.append(_text(data[begin:end]))
        elif number == _NODE_OUTPUT:
            found.outputs.append(_text(data[begin:end]))
        elif number == _NODE_NAME:
            found.name = _text(data[begin:end])
        elif number == _NODE_OP_TYPE:
            found.op_type = _text(data[begin:end])
        elif number == _NODE_METADATA:
            entry = {n: data[a:b] for n, a, b in messages_of(data, begin, end, 1, 2)}
            found.metadata[_text(entry.get(_ENTRY_KEY, b""))] = _text(entry.get(_ENTRY_VALUE, b""))
        elif number == _NODE_ATTRIBUTE:
            for _, first, last in messages_of(
                data, begin, end, _ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS
            ):
                found.graphs.append(_subgraph(data[first:last], depth + 1))
    return found


def _subgraph(data: bytes, depth: int) -> Graph:
    if depth > _DEEPEST:
        raise ValueError(f"graphs nested more than {_DEEPEST} deep")
    found = Graph()
    for number, begin, end in messages_of(data, 0, len(data), _GRAPH_NODE, _GRAPH_NAME):
        _add(found, number, data[begin:end], depth)
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
