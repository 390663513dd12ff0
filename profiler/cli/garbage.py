"""Python's search for garbage, in commands that make their tables once and then end."""

from __future__ import annotations

import atexit
import gc

__all__ = ["keep_to_the_end"]

_RARELY = 1_000_000  # objects between searches


def keep_to_the_end() -> None:
    """Nearly all that the command makes lives until the process ends: search rarely, and not at the
    end, where the system takes everything back at once.

    Not for commands that execute somebody's script, whose objects may have something to do when
    they are found.
    """
    gc.set_threshold(_RARELY)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
