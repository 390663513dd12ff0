"""What a command is at, on stderr, where it takes longer than a second.

    with progress("reading traces/") as say:
        run = load(path)
        say("analyzing")

Nothing is drawn where stderr is no terminal, and nothing stays of it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from profiler.cli.terminal import is_drawn_on, plain_characters, printable

__all__ = ["bar", "note", "progress"]

_PATIENCE_S = 1.0


@contextmanager
def progress(text: str, *, after_s: float = _PATIENCE_S) -> Iterator[Callable[[str], None]]:
    """Show `text` with the time since the begin, once `after_s` seconds have passed, until the
    block ends; what is given takes another text. Names in texts are shown as they are."""
    if not is_drawn_on(sys.stderr):
        yield _nothing
        return
    line = _Line(text)
    thread = threading.Thread(target=line.draw, args=(after_s,), daemon=True)
    thread.start()
    try:
        yield line.say
    finally:
        line.ended.set()
        thread.join()  # before anything else is printed


@contextmanager
def note(text: str) -> Iterator[None]:
    """Show `text` until the block ends, drawn once: no thread takes time from what is measured."""
    if not is_drawn_on(sys.stderr):
        yield
        return
    sys.stderr.write(printable(text))
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


@contextmanager
def bar(text: str, total: int) -> Iterator[Callable[..., None]]:
    """Show how many of `total` steps are done; each call of what is given, with whatever arguments,
    is one. It is drawn by these calls: no thread takes time from what is measured."""
    if not is_drawn_on(sys.stderr):
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(text), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as drawn:
        task = drawn.add_task("", total=total)

        def advance(*_: Any) -> None:
            drawn.advance(task)
            drawn.refresh()

        yield advance


def _nothing(*_: Any) -> None:
    """Nobody sees it."""


class _Line:
    """One line, drawn by a thread of its own while the command works in others."""

    def __init__(self, text: str) -> None:
        self.ended = threading.Event()
        self._text = text
        self._begin = time.monotonic()  # the clock of rich's Progress
        self._lock = threading.Lock()
        self._shown: tuple[Any, Any] | None = None

    def say(self, text: str) -> None:
        """Show this text from now on."""
        with self._lock:
            self._text = text
            if self._shown is not None:
                bar, task = self._shown
                bar.update(task, description=printable(text))

    def draw(self, after_s: float) -> None:
        """Wait, then draw until the block has ended."""
        if self.ended.wait(after_s):
            return
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        plain_characters(sys.stderr)
        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        spinner = "dots" if console.encoding.startswith("utf") else "line"
        columns = (
            SpinnerColumn(spinner),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        with Progress(
            *columns,
            console=console,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # what is printed stands above, in a pipe alone
            redirect_stderr=False,
        ) as bar:
            with self._lock:
                self._shown = bar, bar.add_task(printable(self._text), total=None)
                bar.tasks[0].start_time = self._begin
            self.ended.wait()
