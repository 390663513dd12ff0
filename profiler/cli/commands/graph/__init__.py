"""Shared option parsing and output of the `profile-sd3 graph` subcommands."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from profiler.cli.subcommands import Subcommand, command_group
from profiler.cli.terminal import tell
from profiler.errors import InputError
from profiler.text import parse_size

if TYPE_CHECKING:
    from profiler.graph.verify import OutputDifference

# --- Numbers in options of `profile-sd3 graph`: bytes, and sizes of symbolic dimensions.


def parse_bytes(text: str, option: str) -> int:
    """`8MiB`, `1.5 GB` or `4096` in bytes. Raises InputError for anything else, and for less than
    1."""
    number = parse_size(text)
    if number is None:
        raise InputError(f"{option} {text} is no number of bytes: give for instance {option} 8MiB")
    return number


def parse_sizes(given: Iterable[str]) -> dict[str, int]:
    """`NAME=N` as numbers by name. Raises InputError for anything else."""
    sizes = {}
    for text in given:
        name, _, number = text.partition("=")
        if not name or not (number.isascii() and number.isdecimal()) or not 0 < len(number) < 10:
            raise InputError(f"--size {text} is no NAME=N: give for instance --size height=64")
        sizes[name] = int(number)
    if 0 in sizes.values():
        raise InputError("--size takes sizes of 1 or more: give for instance --size height=64")
    return sizes


# --- What the subcommands of `profile-sd3 graph` print and write.


_Entry = TypeVar("_Entry")
_NAMED = 3  # nodes of a group that are named


def grouped(
    entries: Iterable[_Entry], kind: Callable[[_Entry], Hashable], *, each: bool
) -> list[list[_Entry]]:
    """The entries by kind, in the order of the first of each; `each` for itself if asked."""
    groups: dict[Hashable, list[_Entry]] = {}
    for number, entry in enumerate(entries):
        groups.setdefault(number if each else kind(entry), []).append(entry)
    return list(groups.values())


def named(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    found = list(dict.fromkeys(filter(None, names)))
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def tell_compared(differences: Sequence[OutputDifference], *, each: bool) -> None:
    """Print how outputs differ, the one that does most; `each` if asked."""
    worst = max(differences, key=lambda difference: difference.relative, default=None)
    more = f" (the most of {len(differences)} outputs)" if len(differences) > 1 else ""
    for line in differences if each else [f"{worst}{more}"][: len(differences)]:
        tell(f"  compared: {line}")


# --- `profile-sd3 graph`: the subcommands that work on ONNX graphs.


graph = command_group("Prepare ONNX graphs, and see times on their nodes.", __name__)

SUBCOMMAND = Subcommand(graph, place=120, advanced=True)
