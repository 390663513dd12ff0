"""The `profile-sd3` command line: entry point, exit codes and shell completion.

Exit codes: 0 done; 1 the answer is no (a gate failed); 2 an input or option cannot be used,
with one sentence on stderr; 3 with --strict, the recording is damaged; 130 interrupted; 141 the
reader of stdout closed it. Completion runs at each key press, so it imports nothing heavy and
never raises.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from profiler.cli import commands
from profiler.cli.subcommands import ADVANCED, add_subcommands, take_plain_values
from profiler.cli.terminal import end_at_once, plain_characters, printable, write_what_fits
from profiler.errors import ProfilerError
from profiler.trace import __version__

# --- Shell completion: runs, their submodules, and sections.
#
# It runs at each key press, so it imports nothing heavy, and what cannot be read is not offered: a
# broken bundle must not print a traceback into the prompt.


_MANIFEST = "manifest.json"
_MOST = 200  # entries of a folder that are read
_LARGEST = 4 << 20  # bytes of a manifest
_PACKAGE = Path(__file__).parents[1]
_SECTION = re.compile(r"^SECTION = SectionKind\(\s*\"(\w+)\",\s*(\d+),", re.MULTILINE)
_SPECIAL = re.compile(r"[^\w@%+:,./~-]")  # characters of a path that a shell interprets
_JOINED = re.compile(r"(?<=\n)(--[\w-]+)\n=\n")  # an option and its value, as bash splits them


def join_options() -> None:
    """Rejoin `--section=idle` for completion: bash passes the option, the sign and the value as
    three words, but the completion expects two."""
    line, at = os.environ.get("COMP_WORDS", ""), os.environ.get("COMP_CWORD", "")
    if _JOINED.search(line) and at.isdigit():
        os.environ["COMP_WORDS"], parts = _JOINED.subn(r"\1\n", line)
        os.environ["COMP_CWORD"] = str(int(at) - parts)


def _typed() -> list[str]:
    """Return the words of the line to complete."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    try:
        return shlex.split(line)
    except ValueError:  # an unclosed quotation
        return line.split()


def complete_submodule(incomplete: str) -> list[str]:
    """Complete the name of a submodule of the run on the line."""
    return [name for name in _of_named_run() if name.startswith(incomplete)]


def complete_placements(incomplete: str) -> list[str]:
    """Complete `SUBMODULE=DEVICE` from the run on the line."""
    pairs = (f"{name}={on}" for name in _of_named_run() for on in _of_named_run("devices"))
    return [pair for pair in pairs if pair.startswith(incomplete)]


def complete_runs(incomplete: str) -> list[str]:
    """Complete runs, folders and files; if nothing is typed, runs in `traces` first. A single
    folder is expanded to its entries, because shells end the word after a single answer."""
    try:
        usual = [*_entries("traces" + os.sep)] if not incomplete else []
        found = [*usual, *_entries(incomplete)]
        while len(found) == 1 and found[0].endswith(os.sep) and (inside := [*_entries(found[0])]):
            found = inside
    except (OSError, ValueError):
        return []
    if os.environ.get("_PROFILE_SD3_COMPLETE") != "complete_bash":
        return found
    return [_SPECIAL.sub(r"\\\g<0>", path) for path in found]  # bash inserts it unquoted


def _section_keys() -> list[str]:
    """Read the keys of sections, in order, from the source of their modules, because importing
    these takes as long as importing reports."""
    paths = [*_PACKAGE.glob("analysis/*.py"), *_PACKAGE.glob("prediction/*.py")]
    paths.append(_PACKAGE / "report" / "build.py")
    texts = (path.read_text(encoding="utf-8") for path in paths)
    found = [(int(m[2]), m[1]) for text in texts for m in _SECTION.finditer(text)]
    return [key for _, key in sorted(found)]


def _comparison_keys() -> list[str]:
    """Read the keys of `compare.report.TITLES` from its source."""
    source = (_PACKAGE / "compare" / "report.py").read_text(encoding="utf-8")
    titles = source.partition("\nTITLES: ")[2].partition("\n}")[0]
    return re.findall(r'^ {4}"(\w+)":', titles, re.MULTILINE)


def _of_named_run(part: str = "submodules") -> list[str]:
    """The submodules, or the devices, of the run that the line names, else of the newest in
    `traces`."""
    from profiler.files import read_file

    try:
        named = (Path(word) for word in _typed()[2:] if not word.startswith("-"))
        path = next((path for path in named if path.is_dir()), Path("traces"))
        manifests = [folder / _MANIFEST for folder in (path, *_listed(path))]
        newest = max(filter(Path.is_file, manifests), key=lambda found: found.stat().st_mtime_ns)
        known = json.loads(read_file(newest, _LARGEST))
        return [str(name) for name in known[part]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []


def _behind_commas(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a completion of comma-separated lists of `names`: the entry after the last comma."""

    def complete(incomplete: str) -> list[str]:
        before, comma, typed = incomplete.rpartition(",")
        taken = before.split(",")
        found = (name for name in names() if name.startswith(typed) and name not in taken)
        return [f"{before}{comma}{name}" for name in found]

    return complete


complete_sections = _behind_commas(_section_keys)
complete_comparison_sections = _behind_commas(_comparison_keys)
complete_submodules = _behind_commas(_of_named_run)


def _listed(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as found:
        yield from (Path(entry.path) for entry in islice(found, _MOST))


def _entries(typed: str) -> Iterator[str]:
    """Yield paths that start with what is typed: runs without a trailing separator, other folders
    with one, so that completion can go on inside."""
    folder, separator, name = typed.rpartition(os.sep)
    for entry in sorted(_listed(Path(folder + separator or "."))):
        if not entry.name.startswith(name) or (entry.name.startswith(".") and not name):
            continue
        whole = entry.is_file() or (entry / _MANIFEST).is_file()
        yield f"{folder}{separator}{entry.name}{'' if whole else os.sep}"


# --- The command line: `profiler.cli.commands` contains its subcommands; errors become exit codes
# here.
#
# Exit codes: 0 done; 1 the answer is no (a gate failed); 2 the input or an option cannot be used,
# with one sentence on stderr; 3 a damaged recording, with --strict; 130 interrupted; 141 the reader
# of stdout closed it.


_CLOSED_PIPE = 141  # 128 + SIGPIPE


class _Commands(TyperGroup):
    """The group of all commands. Fixes typer's exit code 1 for a closed stdout."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of all commands."""
        return take_plain_values(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of subcommands, with advanced ones in a section of their own."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        shown = {name: one for name, one in found.items() if one is not None and not one.hidden}
        room = formatter.width - 6 - max(map(len, shown), default=0)
        for title in ("Commands", ADVANCED):
            rows = [
                (name, one.get_short_help_str(room))
                for name, one in shown.items()
                if (getattr(one, "rich_help_panel", None) == ADVANCED) == (title == ADVANCED)
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; exit with 141, as shells report SIGPIPE, if stdout was closed."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # `profile-sd3 dump … | head`
            _drop_stdout()
            sys.exit(_CLOSED_PIPE)


def command_line(named: str = "") -> typer.Typer:
    """Build the command line with all subcommands, or only with the one `named`, which is enough to
    run it."""
    app = typer.Typer(
        cls=_Commands,
        name="profile-sd3",
        help="Profile inference pipelines submodule by submodule, and analyze what they did.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    add_subcommands(app, commands, named)
    app.callback()(_root)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"profile-sd3 {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line as a process of its own, which it ends."""
    try:
        run()
    except SystemExit as ended:
        end_at_once(ended.code)
        raise


def run() -> None:
    """Run the command line; every ProfilerError ends as one sentence and exit code 2."""
    _stay_unprofiled()
    write_what_fits()
    join_options()
    plain_characters(sys.stdout)
    plain_characters(sys.stderr)
    try:
        command_line(*(sys.argv[1:] or _typed()[1:])[:1])()
    except ProfilerError as error:
        sentence = printable(" ".join(str(error).split()))
        sys.stderr.write(f"profile-sd3: {sentence}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        _drop_stdout()
        reason = error.strerror or str(error)
        place = f" {error.filename}" if error.filename else ""
        sys.stderr.write(printable(f"profile-sd3: cannot read or write{place}: {reason}") + "\n")
        sys.exit(2)


def _stay_unprofiled() -> None:
    """Keep this process unprofiled: RBLN_PROFILER=1 is meant for scripts, and `profile-sd3 run`
    profiles what it runs itself."""
    startup = sys.modules.get("profiler.capture.startup")
    if startup is not None:
        startup.stay_out()


def _drop_stdout() -> None:
    """Discard buffered output, so that the exit does not fail on it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
