"""Names of runs, which are names of their folders, too."""

from __future__ import annotations

import re

from profiler.errors import InputError

__all__ = ["check_run_name", "run_name_of"]

_FOREIGN = re.compile(r"[^\w.+-]+")
_MOST_BYTES = 200  # a folder's name may have 255, and `-2` may follow


def check_run_name(name: str) -> str:
    """`name`, if it can name a run. Raises InputError where it cannot."""
    if not name or name.startswith(".") or _FOREIGN.search(name):
        raise InputError(
            f"{name!r:.80} cannot name a run: use letters, digits, '.', '-' and '_', and no '.' "
            "at the beginning"
        )
    if len(name.encode()) > _MOST_BYTES:
        raise InputError(f"{name!r:.80}… cannot name a run: use at most {_MOST_BYTES} bytes")
    return name


def run_name_of(text: str) -> str:
    """The name of a run that is closest to `text`, such as a file's name; "" where none is."""
    name = _FOREIGN.sub("-", text).encode()[:_MOST_BYTES].decode(errors="ignore")
    return name.strip(".-")
