"""A command in a pseudo-terminal of its own: what it writes there, as a user's terminal gets it."""

from __future__ import annotations

import codecs
import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence

__all__ = ["PtyCommand"]

_PATIENCE_S = 120  # until a command that says nothing counts as hanging


class PtyCommand:
    """A Python command whose stdout and stderr are a terminal of `columns` characters in 40 lines.

    `environment` is added to this process's, without its settings of colours; None takes away.
    """

    def __init__(
        self,
        arguments: Sequence[object],
        *,
        columns: int = 80,
        environment: Mapping[str, str | None] | None = None,
    ) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        changes = {
            "TERM": "xterm-256color",
            **dict.fromkeys(("NO_COLOR", "FORCE_COLOR", "COLUMNS")),
        }
        changes |= environment or {}
        settings = {**os.environ, **{name: text for name, text in changes.items() if text}}
        for name in (name for name, text in changes.items() if not text):
            settings.pop(name, None)
        command = [sys.executable, *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, env=settings
        )
        os.close(theirs)
        self.text = ""
        # What one read ends with may be the first part of a character.
        self._decoded = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read_until(self, words: str) -> None:
        """Read until the terminal has got these words; fails where the command ends before."""
        end = time.monotonic() + _PATIENCE_S
        while words not in self.text:
            assert time.monotonic() < end, f"{words!r} never came: {self.text!r}"
            assert self._read(), f"{words!r} never came: {self.text!r}"

    def finish(self, said: bytes = b"") -> int:
        """Say this on its stdin, read to the end, and return the exit code."""
        if said:
            assert self.process.stdin is not None
            self.process.stdin.write(said)
        assert self.process.stdin is not None
        self.process.stdin.close()
        while self._read():
            pass
        os.close(self._ours)
        return self.process.wait(_PATIENCE_S)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._ours], [], [], _PATIENCE_S)
        assert ready, f"nothing more came: {self.text!r}"
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:  # Linux: the other end is closed
            return False
        self.text += self._decoded.decode(data)
        return bool(data)
