"""Python's search for garbage, in commands that make their tables once and then end."""

from __future__ import annotations

import atexit
import gc

__all__ = ["keep_to_the_end", "leave"]

_RARELY = 1_000_000  # objects between searches
_left: list[bool] = []  # whether something was left; empty where everything is freed


def keep_to_the_end() -> None:
    """Nearly all that the command makes lives until the process ends: search rarely, and not at the
    end, where the system takes everything back at once.

    Not for commands that execute somebody's script, whose objects may have something to do when
    they are found.
    """
    gc.set_threshold(_RARELY)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    _left[:] = [False]


def leave(thing: object) -> None:
    """Where `keep_to_the_end` holds, do not free `thing`, of very many objects, before the process
    ends: one by one that takes as long as making some tables. Only the first is left."""
    if _left == [False]:
        _left[:] = [True]
        circle = [thing]
        circle.append(circle)  # only a search would free it
