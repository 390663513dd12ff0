"""Layers of an engine: how long each took, joined with what the layer file says of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from profiler.events import UNKNOWN
from profiler.grammars.tensorrt import TensorRtLayer
from profiler.importers.tensorrt.files import Export

__all__ = ["Layer", "layers_of"]

_TYPES = {  # words of "Format/Datatype" and of weights → type, bits
    "FP32": ("float", 32),
    "FLOAT": ("float", 32),
    "FP16": ("half", 16),
    "HALF": ("half", 16),
    "BF16": ("bfloat16", 16),
    "FP8": ("float8e4m3fn", 8),
    "INT8": ("int8", 8),
    "UINT8": ("uint8", 8),
    "INT4": ("int4", 4),
    "INT32": ("int32", 32),
    "INT64": ("int64", 64),
    "BOOL": ("bool", 8),
}
_GRAMMAR = TensorRtLayer()
_NODE = re.compile(r"(?:^(?=.*_\d)|/)([A-Z][A-Za-z]*)(?:[123]D)?(?:_\d+)*$")
_WORD = re.compile(r"[A-Za-z]+\d*")
_LARGEST = 1 << 40  # of a dimension, and of a count
_DECONVOLUTION = "deconv"


@dataclass(frozen=True, slots=True)
class Layer:
    """`average_ns` is per inference; "" and `UNKNOWN` is what no file tells. Bytes are those of
    tensors without the padding of their formats, and of weights."""

    name: str
    average_ns: int
    op_type: str = ""
    kernel: str = ""
    shapes: str = ""
    bytes_read: int = UNKNOWN
    bytes_written: int = UNKNOWN


def layers_of(profile: Export | None, described: Export | None) -> list[Layer]:
    """The layers in order of execution: those of the profile, with what the layer file says of
    each by its name, the first of equal names for the first; of the layer file alone, untimed."""
    by_name: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for layer in described.layers if described is not None else ():
        by_name[layer["Name"]].append(layer)
    if profile is None:
        return [_layer(name, UNKNOWN, one) for name, found in by_name.items() for one in found]
    made = []
    for time in profile.times:
        average = time.averageMs if time.averageMs >= 0 else time.timeMs / profile.count
        found = by_name.get(time.name)
        told = found.pop(0) if found else {}
        made.append(_layer(time.name, max(round(average * 1e6), 0), told))
    return made


def _layer(name: str, average_ns: int, told: dict[str, Any]) -> Layer:
    inputs, outputs = _tensors(told.get("Inputs")), _tensors(told.get("Outputs"))
    weights = _weights(told, inputs)
    if weights is not None:  # then what is added to the result, where that is fused
        inputs = [*inputs[:1], weights, *inputs[1:]]
    known = inputs and outputs and (weights is not None or "Weights" not in told)
    text = " ".join(t.text for t in inputs) + " -> " + " ".join(t.text for t in outputs)
    return Layer(
        name,
        average_ns,
        _text(told.get("LayerType")) or _by_name(name),
        _text(told.get("TacticName")),
        text if known else "",
        sum(t.bytes for t in inputs) if known else UNKNOWN,
        sum(t.bytes for t in outputs) if known else UNKNOWN,
    )


def _by_name(name: str) -> str:
    """The op type of the first ONNX node that a layer's name has, "" where it has none."""
    parsed = _GRAMMAR.parse(name)
    if parsed is not None:
        return parsed.op_types[0] if parsed.op_types else ""
    node = _NODE.search(name)
    return node[1] if node else ""


@dataclass(frozen=True, slots=True)
class _Tensor:
    text: str
    dims: tuple[int, ...]
    bytes: int


def _tensor(dims: Sequence[int], described: str) -> _Tensor | None:
    for word in _WORD.findall(described):
        if word.upper() in _TYPES:
            name, bits = _TYPES[word.upper()]
            size = prod(dims) * bits // 8
            return _Tensor(f"{name}[{','.join(map(str, dims))}]", tuple(dims), min(size, _LARGEST))
    return None


def _tensors(given: object) -> list[_Tensor]:
    """None at all where one of them cannot be read: what is left would not be the operation's."""
    found = []
    for one in given if isinstance(given, list) else []:
        dims = _dims(one.get("Dimensions")) if isinstance(one, dict) else None
        tensor = _tensor(dims, _text(one.get("Format/Datatype"))) if dims is not None else None
        if tensor is None:
            return []
        found.append(tensor)
    return found


def _weights(told: dict[str, Any], inputs: Sequence[_Tensor]) -> _Tensor | None:
    """Of a convolution [M, C/groups, k…], of its transpose [C, M/groups, k…]."""
    weights, kernel = told.get("Weights"), _dims(told.get("Kernel"))
    maps, groups = _size(told.get("OutMaps")), _size(told.get("Groups")) or 1
    if not isinstance(weights, dict) or not kernel or not maps or not inputs:
        return None
    if len(inputs[0].dims) < 2:
        return None
    channels = inputs[0].dims[1]
    dims = [maps, channels // groups, *kernel]
    if _DECONVOLUTION in _text(told.get("LayerType")).lower():
        dims = [channels, maps // groups, *kernel]
    if prod(dims) != weights.get("Count"):
        return None
    return _tensor(dims, _text(weights.get("Type")))


def _dims(given: object) -> list[int] | None:
    if not isinstance(given, list):
        return None
    found = [size for size in map(_size, given) if size is not None]
    return found if len(found) == len(given) else None


def _size(given: object) -> int | None:
    return given if type(given) is int and 0 <= given <= _LARGEST else None


def _text(given: object) -> str:
    return given if isinstance(given, str) else ""
