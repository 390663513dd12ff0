"""What the subcommands of `profile-sd3 graph` print and write."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from profiler.cli import documents
from profiler.cli.terminal import tell
from profiler.files import json_text

__all__ = ["echo", "grouped", "named", "write_json"]

_Entry = TypeVar("_Entry")
_NAMED = 3  # nodes of a group that are named


def echo(text: str) -> None:
    """Write a line without what a terminal would act on: names are the model's."""
    tell(text)


def write_json(path: Path, document: Any) -> None:
    """Write `document` to `path`, or to stdout for `-`. Raises OutputError where it cannot be."""
    documents.write_json(path, json_text(document) + "\n")


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
