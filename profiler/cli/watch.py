"""`profile-sd3 analyze --watch`: a run that goes on, shown while it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli.terminal import printable
from profiler.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from profiler.report.build import LiveRun

__all__ = ["watch"]

_EVERY_S = 0.5


def watch(
    path: Path,
    console: Console,
    *,
    drawn: bool,
    now_ns: Callable[[], int] = time.time_ns,
    wait: Callable[[float], None] = time.sleep,
) -> Path:
    """Show the run that goes on at `path`, a bundle or a folder of them, until it has ended; the
    path of what is then to be reported.

    Waits for a run where there is none at all; returns `path` where its runs have all ended.
    Without `drawn`, for consoles that are no terminal, the run is waited for in silence. Raises
    InputError where it was killed, or ended without a call.
    """
    directory, has_run = _look(path)
    if directory is None and not has_run and drawn:
        console.print(printable(f"waiting for a run in {path}, Ctrl-C ends it"), soft_wrap=True)
    while directory is None:
        if has_run:
            return path
        wait(_EVERY_S)
        directory, has_run = _look(path)
    with _drawing(console, drawn=drawn) as draw:
        run = _follow(directory, lambda run: draw(_view(run, now_ns(), console.width)), wait)
    if not _has_ended(directory):
        wait(_EVERY_S)  # its process may be taking the journal away
        if not _has_ended(directory):
            # No report tells more.
            console.print(_view(run, run.last_end_ns, console.width))
            advice = f"`profile-sd3 merge {directory}` completes it"
            raise InputError(f"the run in {directory} was killed before its end: {advice}")
    return directory


def _view(run: LiveRun, now_ns: int, width: int) -> RenderableType:
    """The run as it is known at `now_ns`."""
    from rich.console import Group

    from profiler.report.terminal import report_texts

    return Group(*report_texts(run.report(now_ns), width))


def _look(path: Path) -> tuple[Path | None, bool]:
    """The run at `path` that goes on, the newest of several, and whether there is one that has
    ended, whole or not, or a file."""
    from profiler.trace.bundle import JOURNAL_NAME, search

    try:
        found = search(path)
        running = max(
            found.running,
            key=lambda entry: (entry / JOURNAL_NAME).stat().st_mtime_ns,
            default=None,
        )
    except NotADirectoryError:
        return None, True
    except FileNotFoundError:  # nothing yet, or it has ended meanwhile
        return None, False
    return running, bool(found.whole or found.unfinished)


@contextmanager
def _drawing(console: Console, *, drawn: bool) -> Iterator[Callable[[RenderableType], None]]:
    """Draws each view over the one before; the last goes, too. Does nothing without `drawn`."""
    from rich.live import Live

    if not drawn:
        yield lambda _view: None
        return
    with Live(
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    ) as live:
        yield lambda view: live.update(view, refresh=True)


def _follow(
    directory: Path, look: Callable[[LiveRun], None], wait: Callable[[float], None]
) -> LiveRun:
    """Give the run to `look` until nobody writes it any longer; what was seen of it."""
    from profiler.report.build import LiveRun
    from profiler.trace.bundle import JournalReader, is_running

    run, journal = LiveRun(directory.name), JournalReader(directory)
    while True:
        goes_on = is_running(directory)  # before reading: what it wrote last is read, too
        run.add(entry.call for entry in journal.read())
        look(run)
        if not goes_on:
            return run
        wait(_EVERY_S)


def _has_ended(directory: Path) -> bool:
    """Whether the run in `directory` left a whole bundle. Raises InputError where it left none."""
    from profiler.trace.bundle import State, state_of

    try:
        return state_of(directory) in (State.WHOLE, State.EMPTY)
    except FileNotFoundError:
        raise InputError(f"the run in {directory} ended without a call: record it again") from None
