"""The shapes of commands, to be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from profiler.analysis.flops import KindCost

__all__ = ["told"]


def told(kinds: Iterable[KindCost]) -> Counter:
    """How many commands have which operation and shapes."""
    found: Counter = Counter()
    for one in kinds:
        tensors = [] if one.shapes is None else [*one.shapes.inputs, *(one.shapes.outputs or ())]
        found[one.op_type, *((t.dtype, t.dims) for t in tensors)] += one.commands
    return found
