"""ONNX files without the package `onnx`: bytes of weights, types, and small models to measure with.

No weight is loaded: the protobuf wire format is read field by field. Lengths are checked before a
read: a misfit raises ValueError, and truncated data raises IndexError.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from profiler.capture.onnxruntime.sessions import model_path_of, opened_session
from profiler.errors import InputError
from profiler.plugins import let_pass
from profiler.trace.manifest_fields import SubmoduleSettings, WeightType
from profiler.trace.schema import serialized

# --- Protobuf's wire format, as far as ONNX files use it: the fields of a message, without schema.


Buffer: TypeAlias = "bytes | mmap.mmap"


def messages(data: Buffer, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of the content of fields with a length."""
    return (found for found in fields(data, begin, end) if found[2] >= 0)


def messages_of(
    data: Buffer, begin: int, end: int, *numbers: int
) -> Iterator[tuple[int, int, int]]:
    """Yield the fields with a length that have one of these numbers."""
    return (found for found in messages(data, begin, end) if found[0] in numbers)


def fields(data: Buffer, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of a message: number, then start and end of its content if it has a length,
    else the value and -1."""
    while begin < end:
        tag, begin = varint(data, begin)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, begin = varint(data, begin)
            yield number, value, -1
        elif wire == 2:
            length, begin = varint(data, begin)
            if begin + length > end:
                raise ValueError(f"field {number} is cut at byte {begin}")
            yield number, begin, begin + length
            begin += length
        elif wire in (1, 5):
            begin += 8 if wire == 1 else 4
        else:
            raise ValueError(f"no field begins at byte {begin}")
    if begin > end:
        raise ValueError(f"a field is cut at byte {end}")


def varints(data: Buffer, begin: int, end: int) -> Iterator[int]:
    """Yield consecutive varints, as in a packed field."""
    while begin < end:
        value, begin = varint(data, begin)
        yield value


def varint(data: Buffer, begin: int) -> tuple[int, int]:
    """The varint that starts at `begin`, and its end."""
    value = data[begin]
    if value < 0x80:
        return value, begin + 1
    value &= 0x7F
    for shift in range(7, 70, 7):
        begin += 1
        byte = data[begin]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, begin + 1
    raise ValueError(f"a number does not end at byte {begin}")


# --- ONNX models of a few nodes with one constant, to measure what a node costs on this machine.


CONSTANT = "c"
"""The name of the model's constant."""

_IR_VERSION, _OPSET = 8, 17
_FLOAT = 1  # onnx.TensorProto.FLOAT


class SmallNode(NamedTuple):
    """A node without attributes and with one output."""

    op_type: str
    inputs: Sequence[str]
    output: str


def chain(count: int) -> list[SmallNode]:
    """As many sums with the constant, one after the other, from x to y."""
    names = ["x", *(f"t{i}" for i in range(1, count)), "y"]
    return [SmallNode("Add", (read, CONSTANT), written) for read, written in pairwise(names)]


def small_model(nodes: Iterable[SmallNode], dims: Sequence[int], constant: Any) -> bytes:
    """A model from x to y, both float32 of these dims; `constant` is an array of float32."""
    graph = serialized(
        *((1, _node(place, node)) for place, node in enumerate(nodes)),
        (2, "small"),
        (5, _tensor(constant)),
        (11, _end("x", dims)),
        (12, _end("y", dims)),
    )
    return serialized((1, _IR_VERSION), (7, graph), (8, serialized((1, ""), (2, _OPSET))))


def _node(place: int, node: SmallNode) -> bytes:
    inputs = ((1, name) for name in node.inputs)
    name = f"{node.op_type.lower()}_{place}"
    return serialized(*inputs, (2, node.output), (3, name), (4, node.op_type))


def _tensor(array: Any) -> bytes:
    dims = ((1, size) for size in array.shape)
    data = np.ascontiguousarray(array, dtype="<f4").tobytes()
    return serialized(*dims, (2, _FLOAT), (8, CONSTANT), (9, data))


def _end(name: str, dims: Sequence[int]) -> bytes:
    """The input or output of that name."""
    shape = serialized(*((1, serialized((1, size))) for size in dims))
    tensor = serialized((1, _FLOAT), (2, shape))
    return serialized((1, name), (2, serialized((1, tensor))))


# --- How many bytes an ONNX model's weights take, read from its graph without loading one of them.
#
# The model file is mapped; dims, dtype and the locations of external data are read, the data itself
# is skipped.


_MOST_BYTES = 1 << 62
_DEEPEST = 64  # graphs nested in graphs
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
_NAMES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1",
    24: "float8_e8m0",
}
# Field numbers of onnx.proto.
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_SPARSE = 1, 5, 15
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 5, 6, 11
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_EXTERNAL = 1, 2, 13


@dataclass(slots=True)
class ModelWeights:
    """The bytes of all initializers and constants by dims and dtype, including subgraphs, in total
    and by element type; and the files with external data, relative to the model's folder."""

    total_bytes: int = 0
    by_type: dict[str, int] = field(default_factory=dict)
    external: set[str] = field(default_factory=set)


def model_weights(model: Path | bytes) -> ModelWeights:
    """Read the weights of a model. Raises InputError if it is not a readable ONNX model."""
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
    """The bytes of a model on disk: its own file and its external data. Files that are missing, or
    outside the model's folder, count as 0. Raises InputError as `model_weights`."""
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
    """Yield the graphs in a node's attributes, and add its constants to `found`."""
    for _, first, last in messages_of(data, begin, end, _NODE_ATTRIBUTE):
        for number, value, value_end in messages(data, first, last):
            if number == _ATTRIBUTE_TENSOR:
                _add(data, value, value_end, found)
            elif number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS):
                yield value, value_end


def _add(data: Buffer, begin: int, end: int, found: ModelWeights) -> None:
    """Add the tensor at `begin` to `found`."""
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
    if bits is None:  # strings, and unknown dtypes: the size of the tensor's message
        _count(found, dtype, end - begin)
        return
    if len(dims) > 64 or any(dim > _MOST_BYTES for dim in dims):
        raise ValueError(f"a tensor has impossible dims {dims[:8]}")
    _count(found, dtype, (prod(dims) * bits + 7) // 8)


def _count(found: ModelWeights, dtype: int, size: int) -> None:
    name = _NAMES.get(dtype, f"type {dtype}")
    found.by_type[name] = found.by_type.get(name, 0) + size
    found.total_bytes += size


# --- Settings of a session of ONNX Runtime: types of weights and inputs, providers.


_LONGEST = 200  # characters of an option


def session_settings(part: Any) -> SubmoduleSettings:
    """The settings of a part; inputs and providers are known once its session is open."""
    session = opened_session(part)
    inputs = session.get_inputs() if session is not None else ()
    options = session.get_provider_options() if session is not None else {}
    return SubmoduleSettings(
        weights=_weights(part),
        inputs={one.name: _element_type(one.type) for one in inputs},
        providers={
            name: {key: str(value)[:_LONGEST] for key, value in given.items()}
            for name, given in options.items()
        },
    )


def _element_type(text: str) -> str:
    """`float16` of "tensor(float16)"; ONNX Runtime calls float32 float, and float64 double."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(name, name)


def _weights(part: Any) -> dict[str, WeightType]:
    """The weight types from the model's file, which is read once; none for a model without a
    file."""
    path = model_path_of(part)
    try:
        known = path.stat() if path is not None else None
        if path is None or known is None:
            return {}
        return dict(_of_file(path, known.st_mtime_ns, known.st_size))
    except (OSError, InputError) as error:
        let_pass(error)
        return {}


@lru_cache(maxsize=64)
def _of_file(path: Path, _changed: int, _size: int) -> tuple[tuple[str, WeightType], ...]:
    found = model_weights(path)
    total = found.total_bytes
    ordered = sorted(found.by_type.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple((n, WeightType(bytes=size, share=size / total)) for n, size in ordered if size)
