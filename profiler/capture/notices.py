"""What a profiled script's user is told: one line on stderr each, never an exception."""

from __future__ import annotations

import contextlib
import sys

from profiler.plain_text import plain_text

__all__ = ["notice"]


def notice(sentence: str) -> None:
    """Write `sentence` to stderr as one line; nothing happens where there is no stderr."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        line = plain_text(" ".join(sentence.split()))
        sys.stderr.write(f"profile-sd3: {line}\n")
        sys.stderr.flush()
