"""Labels of codes and sentences of notes: what every report says of the values of an analysis.

    label(Bound.COMPUTE)                                  == "compute-bound"
    worded(Note.of(RedundancyEvidence.PATH, name="rope"))  == "path rope"

Each module of this package says some of it in `SENTENCES`: by enum and code a template with a place
for each value of the note; in `NULLS` what stands in a column of an enum for no code. It is found
by being here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from profiler.messages import Said, joined, said
from profiler.notes import Note, NoteCode, Value, notes_from
from profiler.report import sentences
from profiler.report.units import count, duration, percent, size

__all__ = [
    "Sentences",
    "all_sentences",
    "label",
    "labels",
    "value_text",
    "why_not",
    "worded",
    "worded_cell",
]

Sentences = Mapping[type[StrEnum], Mapping[Any, Said]]

_OF_UNIT: tuple[tuple[str, Callable[[Any], str]], ...] = (
    ("_ns", duration),
    ("_bytes", size),
    ("share", percent),
    ("ratio", "{:.2f}".format),
)


@lru_cache
def all_sentences() -> Sentences:
    """What the modules of this package say, by enum."""
    found: dict[type[StrEnum], Mapping[Any, Said]] = {}
    for module in iter_modules(sentences.__path__):
        imported = import_module(f"{sentences.__name__}.{module.name}")
        found |= getattr(imported, "SENTENCES", {})
    return found


def label(code: StrEnum) -> Said:
    """A code as people read it; its own words where no module says more."""
    known = all_sentences().get(type(code), {}).get(code)
    return known if known is not None else Said(code.replace("_", " "))


@lru_cache
def _of_nulls() -> Mapping[type[StrEnum], Said]:
    """What the modules say where a column holds no code, by enum (`NULLS`)."""
    found: dict[type[StrEnum], Said] = {}
    for module in iter_modules(sentences.__path__):
        imported = import_module(f"{sentences.__name__}.{module.name}")
        found |= getattr(imported, "NULLS", {})
    return found


def labels(values: Iterable[str | None], codes: type[StrEnum]) -> list[str]:
    """The labels of a column of codes, for nulls what a module says of them (`NULLS`) or nothing;
    what is none of `codes` stays as it is."""
    known = {code.value: label(code) for code in codes}
    none = _of_nulls().get(codes, "")
    return [none if value is None else known.get(value, value) for value in values]


def worded(note: Note, template: Said | None = None) -> Said:
    """A note as a sentence, or a part of one, without a full stop; by another `template` than that
    of its code where one is given."""
    values = {name: value_text(name, value) for name, value in note.values.items()}
    return said((template or label(note.code)).template, **values)


def why_not(note: Note | None) -> str:
    """The reason that a note gives; "" where there is none."""
    return "" if note is None else worded(note)


def worded_cell(text: str, codes: type[NoteCode]) -> str:
    """The notes in a cell of a table (`notes_text`), joined with commas."""
    return joined(", ", map(worded, notes_from(text, codes)))


def value_text(name: str, value: Value) -> str:
    """A value as people read it: its unit is how its `name` ends."""
    if isinstance(value, Note):
        return worded(value)
    if isinstance(value, tuple):
        return joined(", ", [value_text(name, part) for part in value])
    if isinstance(value, StrEnum):
        return label(value)
    if isinstance(value, str):
        return value
    for suffix, text in _OF_UNIT:
        if name.endswith(suffix):
            return text(value)
    return count(value) if isinstance(value, int) else f"{value:g}"
