"""Terminal output of commands: reports, documents, progress and stderr messages.

    with progress("reading traces/") as say:
        run = load(path)
        say("analyzing")

Progress is drawn only on a terminal, after one second, and is erased. Output files are checked
before any work and appear only when complete. A failed write to stderr changes no exit code.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import gc
import io
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from profiler.errors import InputError, OutputError
from profiler.plugins import plain_text
from profiler.text import name_list

if TYPE_CHECKING:
    from rich.console import Console

    from profiler.analysis.document import Report


# --- Documents that commands write: JSON, Markdown; to a file that appears when complete, or to
# stdout for `-`. Paths that cannot be written are refused before any work.


STDOUT = Path("-")
_ESCAPED = "profile_sd3_escaped"


def check_documents(
    documents: Mapping[str, Path | None],
    *,
    inputs: Iterable[Path] = (),
    outputs: Mapping[str, Path | None] | None = None,
) -> None:
    """Refuse documents that would overwrite data or cannot be written; `documents` are by option,
    the other `outputs` of the command by argument or option.

    Raises OutputError if two of them are one file, or a document is part of a trace, one of
    `inputs`, a folder, or in a folder that does not exist or is not writable.
    """
    from profiler.files import same_file

    sources = list(inputs)
    options = {path: option for option, path in (outputs or {}).items() if path is not None}
    for option, path in documents.items():
        if path is None:
            continue
        if path in options:
            raise OutputError(f"{options[path]} and {option} both name {path}: give two files")
        options[path] = option
        if path != STDOUT:
            _check_place(option, path)
            if any(same_file(path, source) for source in sources):
                raise OutputError(
                    f"{option} {path} is an input, which is never written over: give another name"
                )


def _check_place(option: str, path: Path) -> None:
    of_parquet_run = False
    if path.suffix in (".json", ".parquet"):
        from profiler.run.run import FILES, is_parquet_run

        of_parquet_run = path.name in FILES and is_parquet_run(path.parent)
    if path.suffix == ".pb" or path.name == "manifest.json" or of_parquet_run:
        raise OutputError(f"{path} is part of a trace: give another file to write to")
    if path.is_dir():
        raise OutputError(f"{option} {path} is a folder: give the name of a file to write")
    if not path.parent.is_dir():
        raise OutputError(f"{option} {path}: {path.parent} is no folder: make it, or give another")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OutputError(f"{option} {path} may not be written: give a place where you may write")


def write_json(path: Path, text: str) -> None:
    r"""Write JSON text; on stdout, characters that its encoding lacks or that control a terminal
    are written as `\uXXXX`, which is the same JSON. Raises OutputError if it cannot be written."""
    if path == STDOUT:
        encoding = sys.stdout.encoding
        codecs.register_error(_ESCAPED, _escape)
        text = "\n".join(plain_text(line, _as_escape) for line in text.split("\n"))
        text = text.encode(encoding, _ESCAPED).decode(encoding)
    write_text(path, text)


def write_result(path: Path | None, kind: str, content: Callable[[], Mapping[str, Any]]) -> bool:
    """Write the document of a kind as JSON if a path is given; return whether stdout is free for
    the rest."""
    from profiler.trace.documents import document_text, envelope

    if path is not None:
        write_json(path, document_text({**envelope(kind), **content()}))
    return path != STDOUT


def write_text(path: Path, text: str) -> None:
    """Write text to stdout, or to a file in UTF-8. Raises OutputError if it cannot be written."""
    from profiler.files import write_atomically

    if path == STDOUT:
        sys.stdout.write(text)
    else:
        write_atomically(path, text.encode(), sync=True)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return _as_escape(error.object[error.start : error.end]), error.end


def _as_escape(text: str) -> str:
    return json.dumps(text)[1:-1]


@contextmanager
def handling(names: Iterable[str], handle: Callable[[int, Any], None]) -> Iterator[None]:
    """Let `handle` get these signals until the block ends. An ignored signal, as SIGHUP under
    `nohup`, stays ignored."""
    numbers = [number for name in names if (number := getattr(signal, name, None)) is not None]
    before = {
        number: signal.signal(number, handle)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- Memory of commands that make their tables once and then end.


_RARELY = 1_000_000  # objects between searches
# glibc's mallopt(3): M_MMAP_THRESHOLD, its largest value, and M_TRIM_THRESHOLD
_ARRAYS_FROM_HEAP, _FREE_MEMORY_KEPT = (-3, 32 << 20), (-1, 64 << 20)
_LARGE = 256 << 10  # KiB that a process had resident, from which on freed memory is returned
_keeping: list[bool] = []  # not empty after `keep_to_the_end`


def keep_to_the_end() -> None:
    """Keep memory until the process ends, because nearly all objects live until then: rare garbage
    collection, none at exit, and freed arrays are reused; glibc would return their memory, and the
    system clear it again. NumPy's BLAS gets one thread, because others spin while they wait, and
    no array here is large enough for two.

    Not for commands that execute a user's script, whose objects may have finalizers, and which
    inherits the number of threads.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_RARELY)
    if sys.platform == "linux":
        import ctypes  # imported as late as NumPy, which imports it, too

        for option in (_ARRAYS_FROM_HEAP, _FREE_MEMORY_KEPT):
            getattr(ctypes.CDLL(None), "mallopt", lambda *_: None)(*option)  # musl lacks it
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    _keeping[:] = [True]


def end_at_once(code: object) -> None:
    """After `keep_to_the_end`, end the process without freeing objects one by one, which takes as
    long as making some tables. What was registered for the exit is done first. Returns if that is
    not enough: a thread still runs, or output is left that cannot be written.
    """
    if not _keeping or threading.active_count() > 1 or not (code is None or isinstance(code, int)):
        return
    atexit._run_exitfuncs()  # noqa: SLF001 (it has no other name)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


def return_freed() -> None:
    """After `keep_to_the_end`, return to the system what a large process freed: the frames that
    come next are in Polars' own memory, which reuses nothing of it."""
    if _keeping and sys.platform == "linux":
        import ctypes
        import resource

        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > _LARGE:
            getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)  # musl lacks it


# --- Print a report: the most important in 40 lines, everything, or some sections. The options are
# the same for the report of a run and of a comparison.


Titles = Callable[[], Mapping[str, str]]
"""The sections of a kind of report: heading by key, in their order."""


def run_sections() -> Mapping[str, str]:
    """The sections of the report of a run."""
    from profiler.report.build import section_kinds

    return {kind.key: kind.title for kind in section_kinds()}


def comparison_sections() -> Mapping[str, str]:
    """The sections of a comparison."""
    from profiler.compare.report import TITLES

    return TITLES


def chosen_sections(texts: Sequence[str], titles: Titles, *, full: bool) -> tuple[str, ...]:
    """Return the sections that `--section` names. Raises InputError if one does not exist, or
    `--full` is given as well."""
    named = name_list(texts)
    if named and full:
        raise InputError("--full and --section contradict each other: give one of them")
    known = titles() if named else {}
    for key in named:
        if key not in known:
            raise InputError(f"there is no section {key!r}: there is {', '.join(known)}")
    return named


def print_chosen(
    whole: Callable[[], Report],
    brief: Callable[[Console], None] | None,
    sections: Sequence[str],
    *,
    full: bool,
    notes: Sequence[str] = (),
    written: Sequence[Path] = (),
    above: bool = False,
) -> None:
    """Print `sections` of the `whole` report; all of it with `full` or without a `brief` form; else
    what `brief` prints. `notes` say how the run was chosen, `written` are files that are listed at
    the end; `above` also prints the report's first lines before the sections."""
    from profiler.report.terminal import print_report, print_sections

    console = terminal()
    if sections:
        for note in notes:
            tell(note)
        print_sections(console, whole(), ("summary", *sections) if above else sections)
    elif full or brief is None:
        print_report(console, whole(), notes=notes)
    else:
        brief(console)
    print_written(written, apart=bool(sections or full))


def print_written(written: Sequence[Path], *, apart: bool) -> None:
    """List the files that were written, after an empty line if `apart`."""
    if written and apart:
        tell()
    for path in written:
        tell(f"wrote {path}")


# --- Standard error of a command: failed writes are dropped and change no exit code.
#
# A sentence that a full disk or a closed reader does not accept must neither end the command nor
# stay in a buffer, which Python would fail to write at exit: with code 120, whatever the result.


class _Forgiving(io.RawIOBase):
    """A raw stream that writes to `descriptor` and drops what fails."""

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
    """Make `sys.stderr` never fail, if it is the process's own. A closed one is replaced by
    /dev/null, so that no other file gets its descriptor."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for good
        return
    own = sys.__stderr__
    if own is None or sys.stderr is not own:  # redirected within this process
        return
    raw = io.BufferedWriter(_Forgiving(own.fileno()))
    sys.stderr = io.TextIOWrapper(
        raw, encoding=own.encoding, errors=own.errors, line_buffering=True
    )


# --- The console that reports are printed to, and replacements for characters that an encoding
# lacks.


_LONGEST = 4_000  # characters of a line
_PLAIN = "profile_sd3_plain"
_STAND_INS = {
    **dict(zip("▁▂▃▄▅▆▇█", "_.:-=+*#", strict=True)),
    "µ": "u",
    "…": "~",
    "\N{REPLACEMENT CHARACTER}": "?",
    "→": ">",
    "↔": "-",
    "·": "-",
    "±": "+",
    "≥": ">",
    "≤": "<",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{EN DASH}": "-",
    "\N{MINUS SIGN}": "-",
    "─": "-",
    "\N{NO-BREAK SPACE}": " ",
}


def terminal() -> Console:
    """Return a console on standard output: no highlighting, no markup. Printing raises
    BrokenPipeError if its reader has gone."""
    from rich.console import Console, ConsoleDimensions

    class Terminal(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with 1, like a failed gate
            raise BrokenPipeError

    console = Terminal(highlight=False, markup=False, emoji=False, soft_wrap=False)
    if console.is_dumb_terminal:  # rich would assume 80 columns
        columns, lines = shutil.get_terminal_size()
        console.size = ConsoleDimensions(columns, lines)
    return console


def printable(text: str) -> str:
    """Return `text` as one line without characters that control a terminal, and of limited length:
    names come from a model or a trace."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return plain_text(text).replace("\N{NO-BREAK SPACE}", " ")


def tell(line: object = "", *, err: bool = False, whole: bool = False) -> None:
    """Write a line to stdout or stderr: everything that commands print except reports, tables and
    documents. Characters that control a terminal are removed; `whole` keeps lines of any length."""
    import typer

    text = str(line)
    typer.echo(plain_text(text) if whole else printable(text), err=err)


def plain_characters(stream: TextIO) -> None:
    """Let `stream` replace characters that its encoding lacks by similar ASCII ones, so that bars
    stay bars and tables straight."""
    if isinstance(stream, io.TextIOWrapper):
        codecs.register_error(_PLAIN, _stand_in)
        stream.reconfigure(errors=_PLAIN)


def is_drawn_on(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that can be drawn on: no file, no pipe, not a dumb one."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_STAND_INS.get(character, "?") for character in text), error.end


# --- Progress on stderr, if a command takes longer than a second.
#
# Nothing is drawn if stderr is no terminal, and it is erased at the end.


_PATIENCE_S = 1.0
_TICK_S = 0.5


@contextmanager
def progress(
    text: str, *, after_s: float = _PATIENCE_S, of: Path | None = None
) -> Iterator[Callable[[str], None]]:
    """Show `text` with the elapsed time until the block ends, once `after_s` seconds have passed,
    and how much of the file `of` is read, at which rate. Yields a function that changes the text.
    Names in texts are shown literally."""
    if not is_drawn_on(sys.stderr):
        yield _nothing
        return
    line = _Line(text, of)
    thread = threading.Thread(target=line.draw, args=(after_s,), daemon=True)
    thread.start()
    try:
        yield line.say
    finally:
        line.ended.set()
        thread.join()  # before any other output


def of_many(show: Callable[[str], None], noun: str = "") -> Callable[[int, int, Any], None]:
    """Return a function that shows how many of how many are done, and the `place` of the last."""
    return lambda number, of, done: show(f"{number:,} of {of:,}{noun}: {done.place}")


@contextmanager
def note(text: str) -> Iterator[None]:
    """Show `text` until the block ends, drawn once: no thread disturbs the measurement."""
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
    """Show how many of `total` steps are done. Yields a function; each call of it, with any
    arguments, is one step and draws: no thread disturbs the measurement."""
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
    """Do nothing: there is no terminal to show it."""


class _Line:
    """One line of progress, drawn by a thread while the command works in others."""

    def __init__(self, text: str, of: Path | None = None) -> None:
        self.ended = threading.Event()
        self._text = text
        self._of = of
        self._begin = time.monotonic()  # the clock of rich's Progress
        self._lock = threading.Lock()
        self._shown: tuple[Any, Any] | None = None

    def say(self, text: str) -> None:
        """Show this text from now on."""
        with self._lock:
            self._text, self._of = text, None
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
            redirect_stdout=sys.stdout.isatty(),  # printed lines go above it; not into a pipe
            redirect_stderr=False,
        ) as bar:
            with self._lock:
                self._shown = bar, bar.add_task(printable(self._text), total=None)
                bar.tasks[0].start_time = self._begin
            while not self.ended.wait(_TICK_S):
                with self._lock:
                    bar.update(bar.tasks[0].id, description=printable(self._text + self._rate()))

    def _rate(self) -> str:
        """How much of the file is read, and the rate; "" if it is not open."""
        read, size = (0, 0) if self._of is None else position_in(self._of)
        rate = read / (time.monotonic() - self._begin) / 1e6
        return f" · {read / 1e6:,.0f} of {size / 1e6:,.0f} MB, {rate:,.0f} MB/s" if read else ""


def position_in(path: Path) -> tuple[int, int]:
    """How far this process has read the file at `path`, and its size, as Linux tells; (0, 0) if it
    has not opened it."""
    with contextlib.suppress(OSError), os.scandir("/proc/self/fd") as entries:
        wanted = path.stat()
        for entry in entries:
            with contextlib.suppress(OSError):  # closed meanwhile
                if os.path.samestat(entry.stat(), wanted):
                    text = Path(f"/proc/self/fdinfo/{entry.name}").read_text(encoding="ascii")
                    return int(text.split()[1]), wanted.st_size
    return 0, 0
