"""The result of an operator, which torch's events do not have, where its inputs and arguments tell:
of convolutions, reductions and resamplings.

    result_of("aten::mean", [[2, 24, 4096, 64]], ["c10::BFloat16"], b'["","[-1]","True",""]')
    → (2, 24, 4096, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from profiler.kineto.convolution import argument_values, is_convolution, result_dims
from profiler.kineto.reductions import is_reduction, reduced_dims
from profiler.kineto.resampling import is_resampling, resampled_dims

__all__ = ["has_result", "result_of"]

_Result = Callable[[str, Sequence[Any], Sequence[Any]], tuple[int, ...] | None]
_REAL = ("float", "double", "half", "bfloat")  # sums of integers are int64


def has_result(operator: str) -> bool:
    """Whether the dims of its result may follow."""
    return _finder(operator) is not None


def result_of(
    operator: str, dims: Sequence[Any], types: Sequence[Any], values: bytes | msgspec.Raw
) -> tuple[int, ...] | None:
    """Dims of the result, whose type is that of the first input; None where they do not follow, or
    the type is another. `dims`, `types` and `values` are those of the event, of each argument."""
    find = _finder(operator)
    if find is None or not _keeps_type(operator, types):
        return None
    try:
        return find(operator, dims, argument_values(values))
    except (ValueError, TypeError, IndexError, AttributeError):  # DecodeError is a ValueError
        return None


def _finder(operator: str) -> _Result | None:
    if is_convolution(operator):
        return result_dims
    if is_reduction(operator):
        return _of_first(reduced_dims)
    return _of_first(resampled_dims) if is_resampling(operator) else None


def _keeps_type(operator: str, types: Sequence[Any]) -> bool:
    kind = str(types[0]).removeprefix("c10::").lower() if types else ""
    return operator != "aten::sum" or kind.startswith(_REAL)


def _of_first(find: _Result) -> _Result:
    """What finds the result from the dims of the first input alone, as one of all inputs'."""

    def found(
        operator: str, dims: Sequence[Any], arguments: Sequence[Any]
    ) -> tuple[int, ...] | None:
        return find(operator, dims[0], arguments) if _is_shape(dims[0]) else None

    return found


def _is_shape(dims: object) -> bool:
    return isinstance(dims, list) and bool(dims) and all(isinstance(size, int) for size in dims)
