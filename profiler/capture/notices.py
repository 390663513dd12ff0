"""What a profiled script's user is told: one line on stderr each, never an exception."""

from __future__ import annotations

import contextlib
import sys

__all__ = ["notice"]


def notice(sentence: str) -> None:
    """Write `sentence` to stderr as one line; nothing happens where there is no stderr."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"profile-sd3: {' '.join(sentence.split())}\n")
        sys.stderr.flush()
