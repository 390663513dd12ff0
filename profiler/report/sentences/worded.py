"""Labels of codes and sentences of notes: what every report says of the values of an analysis.

    label(Bound.COMPUTE)                                  == "compute-bound"
    worded(Note.of(RedundancyEvidence.PATH, name="rope"))  == "path rope"

Each module of this package says some of it in `SENTENCES`: by enum and code a template with a place
for each value of the note; in `FACTORS` another one for where its `share` is twice as much or more,
which reads better as a factor; in `NULLS` what stands in a column of an enum for no code. It is
found by being here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from profiler.analysis.registry import question_modules
from profiler.text import (
    Note,
    NoteCode,
    Said,
    Value,
    count,
    duration,
    joined,
    notes_from,
    number,
    percent,
    said,
    size,
)

__all__ = [
    "Sentences",
    "add_sentences",
    "all_factors",
    "all_sentences",
    "label",
    "labels",
    "value_text",
    "why_not",
    "worded",
    "worded_cell",
]

Sentences = Mapping[type[StrEnum], Mapping[Any, Said]]
_NONE: Sentences = MappingProxyType({})
_ADDED: dict[str, dict[type[StrEnum], Any]] = {"SENTENCES": {}, "FACTORS": {}, "NULLS": {}}
_Units = tuple[tuple[str, Callable[[Any], str]], ...]

_OF_UNIT: _Units = (
    ("_ns", duration),
    ("_bytes", size),
    ("share", percent),
    ("ratio", "{:.2f}".format),
)
_AS_FACTORS: _Units = (("share", number), *_OF_UNIT)
_TWICE = 1.995  # what reads as 200 %


@lru_cache
def all_sentences() -> Sentences:
    """What the modules of this package say, by enum."""
    return _of_modules("SENTENCES")


@lru_cache
def all_factors() -> Sentences:
    """What they say in place of that where a share is twice as much or more, by enum."""
    return _of_modules("FACTORS")


def add_sentences(sentences: Sentences, factors: Sentences = _NONE) -> None:
    """Add what a module outside of the questions says, of codes that are its own."""
    _ADDED["SENTENCES"].update(sentences)
    _ADDED["FACTORS"].update(factors)
    all_sentences.cache_clear()
    all_factors.cache_clear()


def _of_modules(name: str) -> dict[type[StrEnum], Any]:
    """What the modules of questions have under a name, and what was added to it, by enum."""
    found: dict[type[StrEnum], Any] = {**_ADDED[name]}
    for module in question_modules():
        found |= getattr(module, name, {})
    return found


def label(code: StrEnum) -> Said:
    """A code as people read it; its own words where no module says more."""
    known = all_sentences().get(type(code), {}).get(code)
    return known if known is not None else Said(code.replace("_", " "))


@lru_cache
def _of_nulls() -> Mapping[type[StrEnum], Said]:
    """What the modules say where a column holds no code, by enum (`NULLS`)."""
    return _of_modules("NULLS")


def labels(values: Iterable[str | None], codes: type[StrEnum]) -> list[str]:
    """The labels of a column of codes, for nulls what a module says of them (`NULLS`) or nothing;
    what is none of `codes` stays as it is."""
    known = {code.value: label(code) for code in codes}
    none = _of_nulls().get(codes, "")
    return [none if value is None else known.get(value, value) for value in values]


def worded(note: Note, template: Said | None = None) -> Said:
    """A note as a sentence, or a part of one, without a full stop; by another `template` than that
    of its code where one is given."""
    units = _OF_UNIT
    if template is None and (template := _of_factors(note)):
        units = _AS_FACTORS
    values = {name: value_text(name, value, units) for name, value in note.values.items()}
    return said((template or label(note.code)).template, **values)


def _of_factors(note: Note) -> Said | None:
    """The template of a note whose `share` is twice as much or more, where a module has one."""
    share = note.values.get("share")
    if not isinstance(share, float) or share < _TWICE:
        return None
    return all_factors().get(type(note.code), {}).get(note.code)


def why_not(note: Note | None) -> str:
    """The reason that a note gives; "" where there is none."""
    return "" if note is None else worded(note)


def worded_cell(text: str, codes: type[NoteCode]) -> str:
    """The notes in a cell of a table (`notes_text`), joined with commas."""
    return joined(", ", map(worded, notes_from(text, codes)))


def value_text(name: str, value: Value, units: _Units = _OF_UNIT) -> str:
    """A value as people read it: its unit, one of `units`, is how its `name` ends."""
    if isinstance(value, Note):
        return worded(value)
    if isinstance(value, tuple):
        return joined(", ", [value_text(name, part, units) for part in value])
    if isinstance(value, StrEnum):
        return label(value)
    if isinstance(value, str):
        return value
    for suffix, text in units:
        if name.endswith(suffix):
            return text(value)
    return count(value) if isinstance(value, int) else f"{value:g}"
