"""The console that reports are printed to, and what an encoding lacks in characters of its own."""

from __future__ import annotations

import codecs
import io
import shutil
from typing import TYPE_CHECKING, TextIO

from profiler.plugins import plain_text

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["is_drawn_on", "plain_characters", "printable", "tell", "terminal"]

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
    """Standard output as it is: no highlighting, no markup. Printing raises BrokenPipeError where
    its reader has gone."""
    from rich.console import Console, ConsoleDimensions

    class Terminal(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with 1, which says that a gate failed
            raise BrokenPipeError

    console = Terminal(highlight=False, markup=False, emoji=False, soft_wrap=False)
    if console.is_dumb_terminal:  # rich would take it for 80 columns
        columns, lines = shutil.get_terminal_size()
        console.size = ConsoleDimensions(columns, lines)
    return console


def printable(text: str) -> str:
    """One line without what a terminal would act on, and no longer than one can read: names are a
    model's or a trace's."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return plain_text(text).replace("\N{NO-BREAK SPACE}", " ")


def tell(line: object = "", *, err: bool = False, whole: bool = False) -> None:
    """Write a line to stdout, or to stderr: all that commands print beside reports, tables and
    documents. Whatever names stand in it, the terminal does nothing but show it; `whole`: also
    one that is longer than anybody reads."""
    import typer

    text = str(line)
    typer.echo(plain_text(text) if whole else printable(text), err=err)


def plain_characters(stream: TextIO) -> None:
    """Have `stream` write, for what its encoding lacks, a character of ASCII that stands for it:
    bars stay bars and tables straight."""
    if isinstance(stream, io.TextIOWrapper):
        codecs.register_error(_PLAIN, _stand_in)
        stream.reconfigure(errors=_PLAIN)


def is_drawn_on(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that can be drawn on: no file, no pipe, not a dumb one."""
    import os

    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_STAND_INS.get(character, "?") for character in text), error.end
