"""What a profiled script's user is told: one line on stderr each, never an exception."""

from __future__ import annotations

import os
import sys

from profiler.interruptions import let_pass
from profiler.plain_text import plain_text

__all__ = ["notice"]


def notice(sentence: str) -> None:
    """Write `sentence` to stderr as one line; nothing happens where there is no stderr, or it is
    full: what stays in its buffer would change the script's exit code."""
    own, line = sys.__stderr__, f"profile-sd3: {plain_text(' '.join(sentence.split()))}\n"
    try:
        if own is None or sys.stderr is not own:  # it is the script's, or a notebook's
            sys.stderr.write(line)
            sys.stderr.flush()
            return
        own.flush()
        data = line.encode(own.encoding, "backslashreplace")
        while data:
            data = data[os.write(own.fileno(), data) :]
    except (OSError, ValueError, AttributeError) as error:
        let_pass(error)
