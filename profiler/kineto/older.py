"""Events of older recorders under today's names.

PyTorch 1.8 and 1.9 called categories `Operator`, `Runtime`, `Kernel`, `Memcpy` and `Memset`; ranges
that torch or the user named were operators.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from profiler.kineto.events import Event

__all__ = ["OLDER", "renamed"]

_CATEGORIES = {
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
OLDER = frozenset(_CATEGORIES)
_NAMED = re.compile(r"ProfilerStep#|Optimizer\.|enumerate\(|DistributedDataParallel\.|## ")


def renamed(events: Sequence[Event]) -> None:
    """Give events of older recorders the categories of today, in place."""
    for event in events:
        today = _CATEGORIES.get(event.cat)
        if today is not None:
            named = today == "cpu_op" and _NAMED.match(event.name)
            event.cat = "user_annotation" if named else today
