"""What a profiled script's user is told: one line on stderr each, never an exception."""

from __future__ import annotations

import os
import sys

from profiler.interruptions import let_pass

__all__ = ["notice"]


def notice(sentence: str) -> None:
    """Write `sentence` to stderr as one line; nothing happens where there is no stderr, or it is
    full: what stays in its buffer would change the script's exit code."""
    stream, line = sys.stderr, f"profile-sd3: {' '.join(sentence.split())}\n"
    try:
        if stream is not sys.__stderr__:  # the script's own, or a notebook's
            stream.write(line)
            stream.flush()
            return
        stream.flush()
        data = line.encode(stream.encoding, "backslashreplace")
        while data:
            data = data[os.write(stream.fileno(), data) :]
    except (OSError, ValueError, AttributeError) as error:
        let_pass(error)
