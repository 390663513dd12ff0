"""What analyses and manifests say beside numbers: a code, and the values that belong to it.

    Note.of(Evidence.PATH, name="to_k_ip").as_json() == {"code": "path", "name": "to_k_ip"}

`report.sentences` makes sentences of notes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias, Union

__all__ = ["Note", "NoteCode", "Value", "notes_from", "notes_text", "plain_value"]

Value: TypeAlias = Union[int, float, str, "Note", tuple["Value", ...]]
"""A number, a name from the trace, a code (`StrEnum`), a note, or several of these."""


class NoteCode(StrEnum):
    """What a note says; each question has a subclass with its codes."""


@dataclass(frozen=True, slots=True)
class Note:
    """A code, and what it is about: `values` by name, whose unit ends the name (`_ns`, `_bytes`,
    `_share`: 1.0 is all; none: a count, a ratio or a name)."""

    code: NoteCode
    values: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def of(cls, code: NoteCode, /, **values: Value) -> Note:
        """A note with these values."""
        return cls(code, values)

    def __hash__(self) -> int:
        return hash((self.code, frozenset(self.values.items())))

    def as_json(self) -> dict[str, Any]:
        """Plain values: the `code`, then the others."""
        return {"code": self.code.value} | {
            name: plain_value(value) for name, value in self.values.items()
        }


def plain_value(value: Value) -> Any:
    """`value` as JSON has it."""
    if isinstance(value, Note):
        return value.as_json()
    if isinstance(value, tuple):
        return [plain_value(part) for part in value]
    return value.value if isinstance(value, StrEnum) else value


def notes_from(text: str, codes: type[NoteCode]) -> tuple[Note, ...]:
    """The notes in a table's cell; notes in their values have codes of the same enum."""
    return tuple(_note(entry, codes) for entry in json.loads(text))


def _note(entry: Mapping[str, Any], codes: type[NoteCode]) -> Note:
    values = {name: _value(value, codes) for name, value in entry.items() if name != "code"}
    return Note(codes(entry["code"]), values)


def _value(plain: Any, codes: type[NoteCode]) -> Value:
    if isinstance(plain, list):
        return tuple(_value(part, codes) for part in plain)
    found: Value = _note(plain, codes) if isinstance(plain, dict) else plain
    return found


def notes_text(notes: Iterable[Note]) -> str:
    """Notes as the text of a table's cell: a JSON list."""
    return json.dumps([note.as_json() for note in notes], ensure_ascii=False)
