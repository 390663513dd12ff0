"""Ctrl-C that ends at once what a library runs for long.

with at_ctrl_c(connection.interrupt):
    connection.sql(query).fetchall()
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["at_ctrl_c"]


@contextmanager
def at_ctrl_c(act: Callable[[], object]) -> Iterator[None]:
    """A block in which Ctrl-C also calls `act`, at once and on a thread of its own.

    Python tells its main thread of a signal when that is in Python again. DuckDB asks for signals
    while it computes, and may get to it after many seconds where another thread, such as one that
    draws progress, takes the interpreter's lock in between. Nothing is done on other threads than
    the main one, nor where somebody else is told of signals already, as asyncio's loop is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            yield
            return
        thread = threading.Thread(target=_watch, args=(ours, act), daemon=True)
        thread.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            theirs.close()
            thread.join()


def _watch(told: socket.socket, act: Callable[[], object]) -> None:
    """Call `act` whenever SIGINT's number comes, until the other side is closed."""
    while numbers := told.recv(64):
        if signal.SIGINT in numbers:
            act()
