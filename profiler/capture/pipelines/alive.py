"""The instances of some classes that live in the process, found in one look at all objects.

Subclasses are asked of their classes, so that each object costs a look at its type and no more.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import compress
from typing import Any

__all__ = ["instances"]


def instances(kinds: Sequence[type]) -> list[Any]:
    """Those of `kinds` and of their subclasses. What `gc.freeze()` hides is not found."""
    wanted = _with_subclasses(kinds)
    if not wanted:
        return []
    objects = gc.get_objects()
    return list(compress(objects, map(wanted.__contains__, map(type, objects))))


def _with_subclasses(kinds: Sequence[type]) -> set[type]:
    found, left = set(kinds), list(kinds)
    while left:
        below: list[type] = type.__subclasses__(left.pop())
        new = [kind for kind in below if kind not in found]
        found.update(new)
        left += new
    return found
