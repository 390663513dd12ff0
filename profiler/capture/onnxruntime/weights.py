"""How many bytes an ONNX model's weights take, read from its graph without loading one of them.

The model file is mapped and walked field by field (protobuf's wire format): dims, dtype and the
places of external data are read, the data itself is skipped.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from profiler.capture.onnxruntime.wire_format import Buffer, fields, messages, messages_of, varints
from profiler.errors import InputError

__all__ = ["ModelWeights", "model_files_bytes", "model_weights"]

_MOST_BYTES = 1 << 62
_DEEPEST = 64  # graphs in graphs
# onnx.TensorProto.DataType → bits; strings (8) have no size of their own.
_BITS = {
    **dict.fromkeys((1, 6, 12), 32),
    **dict.fromkeys((7, 11, 13, 14), 64),
    **dict.fromkeys((4, 5, 10, 16), 16),
    **dict.fromkeys((2, 3, 9, 17, 18, 19, 20, 24), 8),
    **dict.fromkeys((21, 22, 23), 4),
    **dict.fromkeys((25, 26), 2),
    15: 128,
}
# Field numbers of onnx.proto.
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_SPARSE = 1, 5, 15
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 5, 6, 11
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_EXTERNAL = 1, 2, 13


@dataclass(slots=True)
class ModelWeights:
    """Bytes of all initializers and constants as their dims and dtypes say, subgraphs included,
    and the files, relative to the model's folder, that hold external data."""

    total_bytes: int = 0
    external: set[str] = field(default_factory=set)


def model_weights(model: Path | bytes) -> ModelWeights:
    """The weights of a model. Raises InputError where it is no readable ONNX model."""
    found = ModelWeights()
    try:
        if isinstance(model, bytes):
            _walk(model, found)
        else:
            with (
                model.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            ):
                _walk(mapped, found)
    except (OSError, ValueError, IndexError) as error:
        where = "the session's model" if isinstance(model, bytes) else str(model)
        raise InputError(
            f"{where} is not a readable ONNX model ({error}): export it again"
        ) from error
    return found


def model_files_bytes(model: Path | bytes) -> int:
    """What a model takes on disk: its own file and its external data. Files that are not there,
    or lie outside the model's folder, count nothing. Raises InputError as `model_weights`."""
    if isinstance(model, bytes):
        return len(model)
    folder = model.parent.resolve()
    paths = [(folder / name).resolve() for name in model_weights(model).external]
    inside = [path for path in paths if path.is_relative_to(folder) and path.is_file()]
    return model.stat().st_size + sum(path.stat().st_size for path in set(inside))


def _walk(data: Buffer, found: ModelWeights) -> None:
    graphs = [
        (begin, end, 0)
        for number, begin, end in messages(data, 0, len(data))
        if number == _MODEL_GRAPH
    ]
    while graphs:
        begin, end, depth = graphs.pop()
        if depth > _DEEPEST:
            raise ValueError(f"graphs nested more than {_DEEPEST} deep")
        for number, first, last in messages(data, begin, end):
            if number == _GRAPH_INITIALIZER:
                _add(data, first, last, found)
            elif number == _GRAPH_SPARSE:
                for _, tensor, tensor_end in messages_of(data, first, last, 1, 2):
                    _add(data, tensor, tensor_end, found)
            elif number == _GRAPH_NODE:
                graphs += [(*graph, depth + 1) for graph in _in_node(data, first, last, found)]
        if found.total_bytes > _MOST_BYTES:
            raise ValueError("its weights have impossible sizes")


def _in_node(data: Buffer, begin: int, end: int, found: ModelWeights) -> Iterator[tuple[int, int]]:
    """The graphs of a node's attributes; constants are added to `found`."""
    for _, first, last in messages_of(data, begin, end, _NODE_ATTRIBUTE):
        for number, value, value_end in messages(data, first, last):
            if number == _ATTRIBUTE_TENSOR:
                _add(data, value, value_end, found)
            elif number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS):
                yield value, value_end


def _add(data: Buffer, begin: int, end: int, found: ModelWeights) -> None:
    """Add the tensor that lies there."""
    dims: list[int] = []
    dtype = 0
    for number, value, value_end in fields(data, begin, end):
        if number == _TENSOR_DIMS:
            if value_end < 0:
                dims.append(value)
            else:
                dims += varints(data, value, value_end)
        elif number == _TENSOR_TYPE and value_end < 0:
            dtype = value
        elif number == _TENSOR_EXTERNAL:
            entry = {n: bytes(data[a:b]) for n, a, b in messages_of(data, value, value_end, 1, 2)}
            if entry.get(1) == b"location":
                found.external.add(entry.get(2, b"").decode())
    bits = _BITS.get(dtype)
    if bits is None:  # strings, and dtypes of the future: as many bytes as the tensor's message
        found.total_bytes += end - begin
        return
    if len(dims) > 64 or any(dim > _MOST_BYTES for dim in dims):
        raise ValueError(f"a tensor has impossible dims {dims[:8]}")
    found.total_bytes += (prod(dims) * bits + 7) // 8
