"""The command line: `profiler.cli.commands` holds its subcommands; errors become exit codes here.

Exit codes: 0 done; 1 the answer is no (a gate failed); 2 the input or an option cannot be used,
said in one sentence on stderr; 130 interrupted; 141 who read stdout closed it.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from profiler._version import __version__
from profiler.cli import commands
from profiler.cli.completion import join_options, typed_command
from profiler.cli.plain_values import take_plain_values
from profiler.cli.stderr import write_what_fits
from profiler.cli.subcommands import add_subcommands
from profiler.cli.terminal import plain_characters, printable
from profiler.errors import ProfilerError

__all__ = ["command_line", "main"]

_CLOSED_PIPE = 141  # 128 + SIGPIPE


class _Commands(TyperGroup):
    """All commands: what they print is for any encoding, and typer's end with 1 where who reads
    stdout has closed it is mended."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command; what stdout or stderr lack in characters is written as others."""
        plain_characters(sys.stdout)
        plain_characters(sys.stderr)
        return super().main(*args, **options)

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of all commands."""
        return take_plain_values(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Raises SystemExit(141), as a shell shows a program that SIGPIPE ended, for that."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # `profile-sd3 dump … | head`
            _drop_stdout()
            sys.exit(_CLOSED_PIPE)


def command_line(named: str = "") -> typer.Typer:
    """The command line with all subcommands, or with the `named` one alone, if it is one: enough to
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
    """Run the command line; every ProfilerError ends as one sentence and exit code 2."""
    _stay_unprofiled()
    write_what_fits()
    join_options()
    try:
        command_line(sys.argv[1] if sys.argv[1:] else typed_command())()
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
    """RBLN_PROFILER=1 is meant for scripts: `profile-sd3 run` profiles what it runs itself."""
    startup = sys.modules.get("profiler.capture.startup")
    if startup is not None:
        startup.stay_out()


def _drop_stdout() -> None:
    """Let what is still buffered go nowhere, so that the exit does not fail on it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
