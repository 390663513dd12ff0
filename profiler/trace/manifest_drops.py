"""What was executed but is not in the trace, as the manifest has it: strict about every value."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from profiler.drop_reasons import DropReason
from profiler.events import Drop, DropKind
from profiler.notes import Note, Value
from profiler.trace.manifest_fields import Fields

__all__ = ["DropRow"]

_Count = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]


class _Detail(Fields, frozen=True, kw_only=True):
    """A note of a drop; its values may be notes again."""

    code: DropReason
    values: dict[str, int | float | str | _Detail | tuple[int | float | str | _Detail, ...]] = (
        field(default_factory=dict)
    )

    def note(self) -> Note:
        """The note that it says. Raises ValueError for a value that is called `code`."""
        if "code" in self.values:
            raise ValueError("a value of a drop's detail is called code")
        return Note(self.code, {name: _value(value) for name, value in self.values.items()})


def _value(value: Any) -> Value:
    if isinstance(value, tuple):
        return tuple(map(_value, value))
    found: Value = value.note() if isinstance(value, _Detail) else value
    return found


class DropRow(Fields, frozen=True, kw_only=True):
    """One of the manifest's `drops`."""

    kind: DropKind
    where: str
    count: _Count
    unit: str
    detail: _Detail

    def drop(self) -> Drop:
        """The drop that it says."""
        return Drop(self.kind, self.where, self.count, self.unit, self.detail.note())
