"""The ends of a process: whatever it dies of, what was recorded is closed first, where it can be.

    end = ProcessEnd(close=lambda failure: ..., forked=lambda: ...)
    end.watch()

| end | what happens |
|---|---|
| normal, `sys.exit` | `close("")` by `atexit`, after the script's own exit functions |
| uncaught exception, SIGINT | `close("ValueError: …")` by `atexit` |
| SIGTERM, SIGHUP with their default action | `close("SIGTERM")`, then the default action |
| the same while the run is being closed | when it is, the default action; a second one: at once |
| the script's own signal handler | its business: it is left alone; if it exits, `atexit` closes |
| one in C, as `faulthandler.register`'s | the same |
| a child by `os.fork` | `forked()` in the child, which is then watched as its parent is |
| a `multiprocessing` child by fork | as above, and `close` when its target has returned |
| `os._exit`, `exec`, SIGKILL, a crash | nothing: what was written stays |

As every handler in Python, ours does not run while the main thread waits for a lock without end, if
the signal came in the instant in which that began; the next signal wakes it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from profiler.interruptions import let_pass

__all__ = ["ProcessEnd", "uncaught"]

_SIGNALS = ("SIGTERM", "SIGHUP")
_PATIENCE_S = 60.0  # a signal waits for the bundle this long; what was written stays anyway


class ProcessEnd:
    """Calls `close(failure)` when the process ends and `forked()` in its forked children."""

    def __init__(self, close: Callable[[str], None], forked: Callable[[], None]) -> None:
        self._close = close
        self._forked = forked
        self._handled: set[signal.Signals] = set()
        self._watching = False
        self._registered = False
        self._closing = False
        self._waiting: int | None = None  # a signal that came while the run was being closed

    def watch(self) -> None:
        """Watch for the end of the process; may be called again without effect."""
        if not self._registered:
            self._registered = True
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._in_child)
        if not self._watching:
            self._watching = True
            atexit.register(self._at_exit)

    def watch_signals(self) -> None:
        """Take the signals whose default action would end the process; only the main thread can,
        elsewhere nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            return
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is None or signal.getsignal(number) != signal.SIG_DFL:
                continue
            if not _handled_in_c(number):
                signal.signal(number, self._on_signal)
                self._handled.add(number)

    def leave(self) -> None:
        """Watch no more, and give the signals back."""
        self._watching = False
        atexit.unregister(self._at_exit)
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._handled:
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_DFL)
        self._handled.clear()

    def _at_exit(self) -> None:
        self._close(uncaught())
        if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
            _die_of_sigint_still()

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Whoever closes the run does so inside: a first signal waits for the end of it."""
        self._closing = True
        try:
            yield
        finally:
            self._closing = False
            if self._waiting is not None:
                signal.raise_signal(self._waiting)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Close, then die of the signal after all; at once of a second one.

        This runs between two bytecodes of the main thread, which is where a runtime's profiler can
        be stopped, if it was started there. The main thread may hold a lock that closing needs: so
        another thread sees to it that the process does not wait for itself without end. While the
        interpreter shuts down, Python 3.12 and later start none: then only a second signal does.
        """
        signal.signal(number, signal.SIG_DFL)
        closed = threading.Event()
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=_kill_unless, args=(closed, number), daemon=True).start()
        if self._closing:
            self._waiting = number
            return
        try:
            self._close(signal.Signals(number).name)
        finally:
            closed.set()
            signal.raise_signal(number)

    def _in_child(self) -> None:
        self._closing, self._waiting = False, None  # where another thread was closing
        if not self._watching:
            return
        self._forked()
        util = sys.modules.get("multiprocessing.util")
        if util is not None:  # its children leave by os._exit, which runs no exit functions
            util.register_after_fork(self, _finalize_in_child)

    def close_in_child(self) -> None:
        """What a `multiprocessing` child runs when its target has returned or raised."""
        if self._watching:
            self._close("")


def _die_of_sigint_still() -> None:
    """Let the interpreter remember that Ctrl-C ends it, so that its end is seen to be SIGINT's.

    It forgets that with any further string that it executes (`run_eval_code_obj` in CPython's
    Python/pythonrun.c), as a module does whose import makes a named tuple.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")  # noqa: S102 - a constant


def _handled_in_c(number: int) -> bool:
    """Whether code in C, such as `faulthandler.register`, handles a signal for which Python has no
    handler; False where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        let_pass(error)
        return False
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def _kill_unless(closed: threading.Event, number: int) -> None:
    if not closed.wait(_PATIENCE_S):
        os.kill(os.getpid(), number)


def _finalize_in_child(end: Any) -> None:
    from multiprocessing.util import Finalize

    Finalize(None, end.close_in_child, exitpriority=-100)


def uncaught() -> str:
    """The exception that ends the process, as "ValueError: …"; "" where there is none.

    Interactive interpreters keep the last error of a command that ended nothing.
    """
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return ""
    error = getattr(sys, "last_value", None)
    if error is None:
        return ""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
