"""What the subcommands of `profile-sd3 graph` print and write."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import typer

from profiler.cli.terminal import plain_characters, printable
from profiler.errors import OutputError

__all__ = ["STDOUT", "echo", "grouped", "named", "write_json"]

_Entry = TypeVar("_Entry")
STDOUT = Path("-")
_NAMED = 3  # nodes of a group that are named


def echo(text: str) -> None:
    """Write a line without what a terminal would act on: names are the model's."""
    plain_characters(sys.stdout)
    typer.echo(printable(text))


def write_json(path: Path, document: Any) -> None:
    """Write `document` to `path`, or to stdout for `-`. Raises OutputError where it cannot be."""
    if path == STDOUT:
        sys.stdout.write(_json(document, sys.stdout.encoding))
        return
    try:
        path.write_text(_json(document, "utf-8"), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path} ({error.strerror or error})") from error


def _json(document: Any, encoding: str) -> str:
    """The document as text: in ASCII where the encoding lacks a character of its names."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    return text


def grouped(
    entries: Iterable[_Entry], kind: Callable[[_Entry], Hashable], *, each: bool
) -> list[list[_Entry]]:
    """The entries by kind, in the order of the first of each; `each` for itself where asked."""
    groups: dict[Hashable, list[_Entry]] = {}
    for number, entry in enumerate(entries):
        groups.setdefault(number if each else kind(entry), []).append(entry)
    return list(groups.values())


def named(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    found = list(dict.fromkeys(filter(None, names)))
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more
