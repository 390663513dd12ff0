"""What a command's shapes say: the tensors of its operator, with what its arguments and its kernel
tell of them.

    in: bfloat16[2,77,64] bfloat16[64]                   inputs
    float32[2,24,4096,64] -> float32[2,24,4096,1]        of some operators the result
    in: bits16[2,24,4096,64] bits16[2,24,333,64]         a list, by the kernel that copied it
    in: tensor[2,77,64] tensor[2,77,64]                  a list whose type nobody tells
    in: float16[2,5,4,8] float16[2,3,4,8] … causal       attention
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from profiler.kineto.attention import causal_mark, is_attention
from profiler.kineto.events import Args
from profiler.kineto.listed_types import is_list_copy, listed_type
from profiler.kineto.results import has_result, result_of

__all__ = ["ShapeTexts"]

_DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "long int": "int64",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
}
_LIST = "TensorList"
_UNKNOWN = "tensor"


class ShapeTexts:
    """The text of each operator's shapes; equal operators are read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bytes, bytes, bytes], str] = {}

    def of(self, operator: str, args: Args, kernel: str) -> str:
        """The text of an operator whose `kernel` is one of those that it launched, "" where shapes
        were not recorded."""
        asked = has_result(operator) or is_attention(operator)
        values = bytes(args.values) if asked else b""
        listed = listed_type(kernel) if is_list_copy(operator) else ""
        key = (operator if asked else "", listed, values, bytes(args.dims), bytes(args.types))
        text = self._known.get(key)
        if text is None:
            text = self._known[key] = _text(operator, args, _dtype(listed) if listed else _UNKNOWN)
        return text


def _text(operator: str, args: Args, listed: str) -> str:
    if not bytes(args.dims) or not bytes(args.types):
        return ""
    try:
        dims, types = msgspec.json.decode(args.dims), msgspec.json.decode(args.types)
    except msgspec.DecodeError:
        return ""
    if not isinstance(dims, list) or not isinstance(types, list):
        return ""
    inputs = _inputs(dims, types, listed)
    if not inputs:
        return ""
    result = result_of(operator, dims, types, args.values)
    if result is not None:
        return f"{inputs} -> {_dtype(str(types[0]))}[{','.join(map(str, result))}]"
    return f"in: {inputs}" + (causal_mark(operator, args.values) if is_attention(operator) else "")


def _inputs(dims: Sequence[Any], types: Sequence[Any], listed: str) -> str:
    """Tensor inputs as "bfloat16[2,77,64] …", those of a list in the type `listed`."""
    inputs: list[str] = []
    for shape, kind in zip(dims, types, strict=False):
        if isinstance(shape, list):
            many = str(kind) == _LIST
            tensors = shape if many else [shape]
            name = listed if many else _dtype(str(kind))
            inputs += (f"{name}[{','.join(map(str, one))}]" for one in tensors if _is_shape(one))
    return " ".join(inputs)


def _is_shape(dims: object) -> bool:
    """Whether these are the dims of a tensor that has any."""
    return isinstance(dims, list) and bool(dims) and all(isinstance(size, int) for size in dims)


def _dtype(name: str) -> str:
    name = name.removeprefix("c10::")
    return _DTYPES.get(name.lower(), name.lower())
