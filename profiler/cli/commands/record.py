"""`profile-sd3 record`: profile every Python process that a command starts.

`watch` shows a running recording for `profile-sd3 analyze --watch`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from profiler.cli import options as shared
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import handling, printable, progress, tell
from profiler.errors import InputError, ProfilerError
from profiler.files import opened

if TYPE_CHECKING:
    import subprocess

    from rich.console import Console, RenderableType

    from profiler.capture.settings import Settings
    from profiler.report.build import LiveRun


# --- `profile-sd3 record`: run a command with profiling switched on in every Python it starts.


_NOTHING_CAPTURED = 3  # exit code


@cli_options
class RecordOptions:
    """Options of `profile-sd3 record`."""

    command: list[str] = arg(
        "-- COMMAND  What to run: `python inference.py …`, or `inference.py …`, or `-m module …`."
    )
    out: Path | None = opt("DIR  Folder of bundles.  [default: RBLN_PROFILER_DIR or traces]")
    name: str | None = shared.RUN_NAME
    ops: str | None = opt(
        "[SUBMODULE=]CALLS  Calls whose operators are traced: all, none, first, last, every:N, "
        "steps:A-B, or several with commas or spaces.  [default: all]"
    )
    measure_overhead: bool = shared.MEASURE_OVERHEAD
    config: str | None = opt("JSON  Settings as JSON, or a JSON file, as RBLN_PROFILER_CONFIG.")
    compress: str | None = opt("METHOD  Pack the packets of all files: none, deflate or zstd.")
    max_size: str | None = shared.MAX_SIZE
    memory: bool = shared.MEMORY
    keep_prompts: bool = shared.KEEP_PROMPTS
    allow_empty: bool = opt("Exit code 0, not 3, if nothing was captured.")


def record(options: RecordOptions) -> None:
    """Run a command and profile the pipelines in it.

    ONNX Runtime sessions outside of pipelines are profiled as well. Same as setting
    RBLN_PROFILER=1. Forwards signals, returns the command's exit code (3 if it succeeded and
    nothing was captured), and prints where the bundles are.
    """
    import tempfile

    from profiler.capture.settings import CONFIG, Settings, environment_settings

    environment = dict(os.environ)
    if options.config is not None:
        environment[CONFIG] = options.config
    names = ("out", "name", "ops", "compress", "max_size")
    values = {name: getattr(options, name) for name in names}
    given = {name: value for name, value in values.items() if value is not None}
    given |= {name: True for name in ("memory", "keep_prompts") if getattr(options, name)}
    inherited = environment_settings(environment).given()
    with tempfile.TemporaryDirectory(prefix="profile-sd3-") as folder:
        journal = Path(folder) / "journal"
        settings = Settings.of({**inherited, **given, "journal": journal})
        if options.measure_overhead:
            settings = Settings.of({**settings.given(), "ops": f"{settings.ops} measure-overhead"})
        _check_folder(settings.out)
        settings.write_environment(environment)
        code = _run(_with_interpreter(options.command), environment)
        captured = _say_where(journal, settings)
    raise typer.Exit(code if captured or options.allow_empty else code or _NOTHING_CAPTURED)


def _check_folder(out: Path) -> None:
    """Refuse, before the command is run, a folder in which nothing can be created."""
    import tempfile

    from profiler.files import not_writable

    there = out.absolute()
    while not os.path.lexists(there):
        there = there.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".profile-sd3-", dir=there):
            pass
    except OSError as error:
        raise not_writable(out, error) from error


def _with_interpreter(command: list[str]) -> list[str]:
    """Put this Python before `script.py …` and `-m module …`; other commands are unchanged."""
    first = command[0]
    by_python = first in ("-m", "-c") or (first.endswith(".py") and not os.access(first, os.X_OK))
    if by_python or (shutil.which(first) is None and Path(first).is_file()):
        return [sys.executable, *command]
    return command


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run `command` and return its exit code; 128 plus the signal's number if a signal ended it, as
    in shells. Forwards signals to the command."""
    import subprocess

    try:
        child = subprocess.Popen(command, env=environment)  # noqa: S603 - what the user asked for
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"cannot run {command[0]}: {reason}: give a command that exists"
        ) from error
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    with handling(names, lambda number, _frame: _pass_on(child, number)):
        code = child.wait()
    return code if code >= 0 else 128 - code


def _pass_on(child: subprocess.Popen[bytes], number: int) -> None:
    """Forward a signal, unless the terminal has sent it to the whole foreground group itself."""
    if number in (signal.SIGINT, getattr(signal, "SIGQUIT", None)) and _in_foreground():
        return
    with suppress(OSError, ValueError):  # it has ended; Windows has few signals
        child.send_signal(number)


def _in_foreground() -> bool:
    """Whether a terminal's Ctrl-C reaches both this process and its children."""
    try:
        with open(os.ctermid(), "rb") as terminal:  # noqa: PTH123
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except (OSError, AttributeError):
        return False


def _say_where(journal: Path, settings: Settings) -> bool:
    """Report on stderr each bundle that the command's processes have written, or what ran if there
    is none; return whether there is one."""
    events = list(_events(journal))
    finished = [event["finished"] for event in events if "finished" in event]
    bundles = dict.fromkeys(event["bundle"] for event in events if "bundle" in event)
    opened = [path for path in bundles if Path(path).is_dir()]  # bundles without a call are removed
    for path in opened:
        where = _shortest(Path(path))
        if path in finished:
            _say(f"the run is in {where}: `profile-sd3 analyze {where}` reports on it")
        else:
            _say(f"{where} was cut short: `profile-sd3 merge {where}` completes it")
    _summarize([Path(path) for path in opened if path in finished])
    if opened or any("failed" in event for event in events):
        return bool(opened)  # a failed process has reported that itself
    ran = dict.fromkeys(name for event in events for name in event.get("uncaptured", ()))
    what = "no pipeline, module or ONNX Runtime session ran"
    if ran:
        what = f"{', '.join(ran)} ran, which is no submodule: name it by profiler.submodule()"
    if any("process" in event for event in events):
        _say(f"nothing was recorded in {settings.out}: {what}")
    else:
        advice = "install profile-sd3 in the environment whose Python it runs"
        _say(f"nothing was recorded, for no process of the command was switched on: {advice}")
    return False


def _summarize(bundles: list[Path]) -> None:
    """Write a summary for data sets into each whole bundle, after the command has ended, so that it
    takes no time of its processes."""
    if not bundles:
        return
    with progress("summarizing the run"):
        for bundle in bundles:
            summarize_recorded(bundle, Path.cwd())


def _events(journal: Path) -> Iterator[dict[str, Any]]:
    """Read the events that the command's processes have written; skips incomplete lines."""
    lines = journal.read_bytes().splitlines() if journal.is_file() else []
    for line in lines:
        with suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                yield event


def _shortest(path: Path) -> Path:
    """Return `path` relative to the current folder if it is below it."""
    relative = Path(os.path.relpath(path))
    return path if relative.parts[:1] == ("..",) else relative


def _say(sentence: str) -> None:
    tell(f"profile-sd3: {sentence}", err=True)


SUBCOMMAND = Subcommand(
    record,
    place=20,
    settings={"allow_interspersed_args": False},
    about_runs=True,
    examples=(
        ("profile-sd3 record -- inference.py", "a script, by this Python"),
        ("profile-sd3 record --ops last -- python inference.py", "operators of the last calls"),
        ("profile-sd3 record --ops none -- python inference.py", "calls alone, at full speed"),
    ),
    panels={
        "What to record": "ops measure_overhead memory keep_prompts max_size",
        "Files": "out name compress",
    },
)


# --- The commit of a program, from its environment.
#
# Git is not started: its files are read, so that no configuration of a repository is executed.


_VARIABLES = (
    *("PROFILE_SD3_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA"),
    *("BUILDKITE_COMMIT", "CIRCLE_SHA1", "GIT_COMMIT"),
)
_NAME = re.compile(r"[\w.+/-]{1,80}")
_HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_REF = re.compile(r"ref: (refs/[\w./+-]{1,250})")
_MOST_BYTES = 4 << 20  # of packed-refs


def commit_of(folder: Path) -> str | None:
    """Return the commit that environment variables name, else that of the git repository around
    `folder`; None if there is neither."""
    for name in _VARIABLES:
        commit = os.environ.get(name, "").strip()
        if _NAME.fullmatch(commit):
            return commit
    return _of_repository(folder)


def checked_commit(text: str) -> str:
    """`text`, if it can name a commit. Raises InputError if it cannot."""
    if not _NAME.fullmatch(text):
        raise InputError(
            f"--commit {text!r:.80} names no commit: give a hash, a tag or a number, 80 characters "
            "at most"
        )
    return text


def _of_repository(folder: Path) -> str | None:
    place = folder.absolute()
    for parent in (place, *place.parents):
        git = parent / ".git"
        if git.is_dir():
            return _head(git, git)
        if git.is_file():  # a worktree
            named = _line(git).removeprefix("gitdir: ")
            own = (parent / named).resolve()
            common = _line(own / "commondir")
            return _head(own, (own / common).resolve() if common else own)
    return None


def _head(own: Path, common: Path) -> str | None:
    head = _line(own / "HEAD")
    if _HASH.fullmatch(head):
        return head
    ref = _REF.fullmatch(head)
    if ref is None or ".." in ref[1]:
        return None
    loose = _line(own / ref[1]) or _line(common / ref[1])
    return loose if _HASH.fullmatch(loose) else _packed(common / "packed-refs", ref[1])


def _packed(path: Path, ref: str) -> str | None:
    for line in _text(path).splitlines():
        value, _, name = line.partition(" ")
        if name == ref and _HASH.fullmatch(value):
            return value
    return None


def _line(path: Path) -> str:
    return _text(path).partition("\n")[0].strip()


def _text(path: Path) -> str:
    try:
        with opened(path) as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def summarize_recorded(bundle: Path, folder: Path) -> bool:
    """Write the summary of a bundle that a program in `folder` has just recorded, with the commit
    there unless the summary has one; return whether that was possible."""
    from profiler.tools.metrics import read_summary, summarized, write_summary
    from profiler.tools.sources import Kind, Source

    source = Source(bundle, Kind.BUNDLE)
    try:
        found = read_summary(bundle) or summarized(source)
        values = {**found.run, "commit": found.run["commit"] or commit_of(folder)}
        return write_summary(bundle, msgspec.structs.replace(found, run=values))
    except ProfilerError:  # `analyze` reports what is wrong with the bundle
        return False


# --- `profile-sd3 analyze --watch`: shows a run in progress.


_EVERY_S = 0.5


def watch(
    path: Path,
    console: Console,
    *,
    drawn: bool,
    now_ns: Callable[[], int] = time.time_ns,
    wait: Callable[[float], None] = time.sleep,
) -> Path:
    """Show the running run at `path`, a bundle or a folder of them, until it ends; return the path
    to report on.

    Waits for a run if there is none; returns `path` if its runs have all ended. Without `drawn`,
    for consoles that are no terminal, it waits silently. Raises InputError if the run was killed,
    or ended without a call.
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
        wait(_EVERY_S)  # its process may be removing the journal
        if not _has_ended(directory):
            # No report has more.
            console.print(_view(run, run.last_end_ns, console.width))
            advice = f"`profile-sd3 merge {directory}` completes it"
            raise InputError(f"the run in {directory} was killed before its end: {advice}")
    return directory


def _view(run: LiveRun, now_ns: int, width: int) -> RenderableType:
    """Render the run as known at `now_ns`."""
    from rich.console import Group

    from profiler.report.terminal import report_texts

    return Group(*report_texts(run.report(now_ns), width))


def _look(path: Path) -> tuple[Path | None, bool]:
    """Find the newest running run at `path`, and whether there is a run that has ended, whole or
    not, or a file."""
    from profiler.trace.bundle import JOURNAL_NAME, search

    try:
        found = search(path)
        running = max(
            found.running, key=lambda entry: (entry / JOURNAL_NAME).stat().st_mtime_ns, default=None
        )
    except NotADirectoryError:
        return None, True
    except FileNotFoundError:  # nothing yet, or it ended just now
        return None, False
    return running, bool(found.whole or found.unfinished)


@contextmanager
def _drawing(console: Console, *, drawn: bool) -> Iterator[Callable[[RenderableType], None]]:
    """Yield a function that draws each view over the one before; erases the last. Draws nothing
    without `drawn`."""
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
    """Pass the run to `look` until its process stops writing; return what was read of it."""
    from profiler.report.build import LiveRun
    from profiler.trace.bundle import JournalReader, is_running

    run, journal = LiveRun(directory.name), JournalReader(directory)
    while True:
        goes_on = is_running(directory)  # before reading, so that its last writes are read
        run.add(entry.call for entry in journal.read())
        look(run)
        if not goes_on:
            return run
        wait(_EVERY_S)


def _has_ended(directory: Path) -> bool:
    """Whether a run left a whole bundle in `directory`. Raises InputError if it left none."""
    from profiler.trace.bundle import State, state_of

    try:
        return state_of(directory) in (State.WHOLE, State.EMPTY)
    except FileNotFoundError:
        raise InputError(f"the run in {directory} ended without a call: record it again") from None
