"""Arrays and tensors of any library, as far as they show what they are; nothing here raises."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from profiler.interruptions import let_pass

__all__ = ["described", "first_dimension"]

_DTYPE_NAMES: dict[Any, str] = {}


def described(value: Any) -> str:
    """An array or tensor as "dtype[d0,d1,…]", "" for anything else and for what does not tell
    (nested tensors have no shape)."""
    try:
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            return f"{_dtype_name(value.dtype)}[{','.join(map(str, value.shape))}]"
    except Exception as error:  # noqa: BLE001 - the script's own class
        let_pass(error)
    return ""


def first_dimension(value: Any) -> int:
    """The first dimension of an array or tensor, 0 for anything else."""
    try:
        shape = getattr(value, "shape", None)
        return int(shape[0]) if shape is not None and len(shape) > 0 else 0
    except Exception as error:  # noqa: BLE001 - as above
        let_pass(error)
        return 0


def _dtype_name(dtype: Any) -> str:
    """A type of elements, without its library; NumPy takes 3 µs to name one, so it is kept."""
    try:
        return _DTYPE_NAMES[dtype]
    except (KeyError, TypeError) as error:  # new, or without a hash
        let_pass(error)
        name = str(dtype).rpartition(".")[2]
    if isinstance(dtype, Hashable):
        _DTYPE_NAMES[dtype] = name
    return name
