"""Standard error of a command: what it cannot take is lost, and changes no exit code.

A sentence that does not reach a full disk or a reader that is gone must neither end the command
nor stay in a buffer, which Python would fail to write as it exits: with 120, whatever the answer.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

__all__ = ["write_what_fits"]


class _Forgiving(io.RawIOBase):
    """Writes to `descriptor` what it takes."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Any, /) -> int:
        view = memoryview(data)
        with contextlib.suppress(OSError):
            done = 0
            while done < view.nbytes:
                done += os.write(self._descriptor, view[done:])
        return view.nbytes


def write_what_fits() -> None:
    """Have `sys.stderr` fail no more, where it is the process's own. One that is closed goes to
    /dev/null, whose descriptor no other file then gets."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
        return
    own = sys.__stderr__
    if own is None or sys.stderr is not own:  # somebody reads it in this process
        return
    raw = io.BufferedWriter(_Forgiving(own.fileno()))
    sys.stderr = io.TextIOWrapper(
        raw, encoding=own.encoding, errors=own.errors, line_buffering=True
    )
