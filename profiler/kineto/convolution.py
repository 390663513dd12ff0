"""The result of a convolution, which torch's events do not have: from input, weight and arguments.

    result_dims("aten::conv2d", [[1, 4, 8, 8], [6, 4, 3, 3]], [None, None, None, [2, 2], [1, 1]])
    → (1, 6, 4, 4)

Source: torch's `native_functions.yaml` (order of the arguments), torch.nn.Conv2d (the size).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

__all__ = ["argument_values", "is_convolution", "result_dims"]


class _Places(NamedTuple):
    """Where an operator has its arguments; -1: it has none."""

    stride: int
    padding: int
    dilation: int
    transposed: int = -1


_PLACES = {
    "aten::conv1d": _Places(3, 4, 5),
    "aten::conv2d": _Places(3, 4, 5),
    "aten::conv3d": _Places(3, 4, 5),
    "aten::convolution": _Places(3, 4, 5, 6),
    "aten::_convolution": _Places(3, 4, 5, 6),
    "aten::convolution_overrideable": _Places(3, 4, 5, 6),
    "aten::cudnn_convolution": _Places(3, 2, 4),
    "aten::cudnn_convolution_relu": _Places(3, 4, 5),
    "aten::miopen_convolution": _Places(4, 3, 5),
    "aten::miopen_depthwise_convolution": _Places(4, 3, 5),
    "aten::mkldnn_convolution": _Places(4, 3, 5),
    "aten::thnn_conv2d": _Places(4, 5, -1),
    "aten::_slow_conv2d_forward": _Places(4, 5, -1),
    "aten::_conv_depthwise2d": _Places(4, 5, 6),
    "aten::conv_depthwise3d": _Places(4, 5, 6),
}


def is_convolution(operator: str) -> bool:
    """Whether `result_dims` knows the operator."""
    return operator in _PLACES


def result_dims(
    operator: str, dims: Sequence[Any], arguments: Sequence[Any]
) -> tuple[int, ...] | None:
    """Dims of the result of `operator`, None where they do not follow.

    `dims` are those of its inputs in order, `arguments` the values of those that are no tensors;
    a missing one is the default: stride and dilation 1, no padding.
    """
    places = _PLACES.get(operator)
    if places is None or len(dims) < 2:
        return None
    x, weight = dims[0], dims[1]
    rank = len(x) - 2
    if rank < 1 or len(weight) != len(x) or _at(arguments, places.transposed) not in (None, False):
        return None
    stride = _each(_at(arguments, places.stride), 1, rank)
    dilation = _each(_at(arguments, places.dilation), 1, rank)
    padding = _padding(_at(arguments, places.padding), weight[2:], dilation, rank)
    if stride is None or dilation is None or padding is None or 0 in stride:
        return None
    sizes = [
        (size + pad - d * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, d in zip(
            x[2:], weight[2:], stride, padding, dilation, strict=True
        )
    ]
    return None if min(sizes) < 1 else (x[0], weight[0], *sizes)


def argument_values(printed: bytes | msgspec.Raw) -> list[Any]:
    """The "Concrete Inputs" of an event, a JSON list of arguments as torch prints them: "[1, 1]",
    "1", "False", "same", "" for a tensor. Raises ValueError or TypeError where it is no list."""
    return [_value(text) for text in msgspec.json.decode(printed)]


def _value(text: object) -> object:
    try:
        return msgspec.json.decode(str(text).lower())
    except (msgspec.DecodeError, RecursionError):
        return text


def _at(arguments: Sequence[Any], place: int) -> Any:
    value = arguments[place] if 0 <= place < len(arguments) else None
    return None if value == "" else value


def _each(value: Any, default: int, rank: int) -> list[int] | None:
    """One whole number a dimension; None where the argument is something else."""
    values = [default] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values):
        return None
    if len(values) == 1:
        return values * rank
    return values if len(values) == rank else None


def _padding(
    value: Any, kernel: Sequence[int], dilation: list[int] | None, rank: int
) -> list[int] | None:
    """What padding adds to each dimension, on both sides together."""
    if value == "valid":
        return [0] * rank
    if value == "same" and dilation is not None:
        return [d * (size - 1) for d, size in zip(dilation, kernel, strict=True)]
    each = _each(value, 0, rank)
    return None if each is None else [2 * size for size in each]
