"""The result of a reduction, which torch's events do not have: from its input and arguments.

    reduced_dims("aten::mean", [2, 24, 4096, 64], [None, [-1], True, ""])    → (2, 24, 4096, 1)

Source: torch's `native_functions.yaml` (overloads, which the number of their arguments tells apart,
and the order of these).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["is_reduction", "reduced_dims"]

_PLACES = {  # operator: arguments of the overload with dims → where it has these, and keepdim
    "aten::mean": {4: (1, 2)},
    "aten::sum": {4: (1, 2)},
    "aten::amax": {3: (1, 2)},
    "aten::amin": {3: (1, 2)},
    "aten::var": {4: (1, 3)},
    "aten::std": {4: (1, 3)},
    "aten::linalg_vector_norm": {5: (2, 3)},
}
_TYPES = {"aten::mean": 3, "aten::sum": 3, "aten::linalg_vector_norm": 4}  # of the result


def is_reduction(operator: str) -> bool:
    """Whether `reduced_dims` knows the operator."""
    return operator in _PLACES


def reduced_dims(
    operator: str, dims: Sequence[int], arguments: Sequence[Any]
) -> tuple[int, ...] | None:
    """Dims of what `operator` makes of an input of these `dims`, in the input's type; None where
    they do not follow or the type is another. `arguments` are its values as
    `convolution.argument_values` reads them."""
    found = _PLACES.get(operator, {}).get(len(arguments))
    if found is None or arguments[_TYPES.get(operator, 0)] not in ("", None):
        return None
    chosen, kept = (arguments[place] for place in found)
    rank = len(dims)
    if chosen in ("", None, []):
        chosen = list(range(rank))
    if not isinstance(chosen, list):
        chosen = [chosen]
    if not all(_is_place(place, rank) for place in chosen) or kept not in (True, False):
        return None
    reduced = {place % rank for place in chosen}
    sizes = ((1 if at in reduced else size) for at, size in enumerate(dims))
    return tuple(size for at, size in enumerate(sizes) if kept or at not in reduced)


def _is_place(value: object, rank: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -rank <= value < rank
