"""Names with their values as people read them: with the unit, in one line where they nest."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from profiler.report.model import Group
from profiler.report.sentences.worded import worded
from profiler.text import Note, count, duration, percent, size
from profiler.trace.manifest_fields import Fields, stated

__all__ = ["grouped", "grouped_by_name", "named_value"]

_ENTRIES = 12  # of a mapping within a mapping; of a longer one, such as modules, their number


def grouped(title: str, mapping: Mapping[str, Any]) -> Group:
    """The pairs of a mapping under a title."""
    return Group(title, _pairs(mapping))


def grouped_by_name(
    title: str, mapping: Mapping[str, Fields], called: Mapping[str, str] = MappingProxyType({})
) -> Group:
    """What is stated of each name, a row each; `called` has other words for some of its keys."""
    rows = []
    for name, fields in mapping.items():
        pairs = ((called.get(key, key), text) for key, text in _pairs(stated(fields)) if text)
        texts = (" ".join(filter(None, pair)) for pair in pairs)
        rows.append((name, ", ".join(texts)))
    return Group(title, tuple(rows))


def _pairs(mapping: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(named_value(str(key), value) for key, value in mapping.items())


def named_value(key: str, value: Any) -> tuple[str, str]:
    """A key without its unit, and its value with it: `("hooks", "1.43 ms")`."""
    for suffix, text in (("_ns", duration), ("_bytes", size), ("share", percent)):
        if key.endswith(suffix) and isinstance(value, (int, float)) and value is not True:
            name = key.removesuffix(suffix) if suffix.startswith("_") else key
            return name.replace("_", " "), text(value)
    if isinstance(value, Mapping) and len(value) > _ENTRIES:
        return key.replace("_", " "), count(len(value))
    return key.replace("_", " "), _text(value)


def _text(value: Any) -> str:
    if isinstance(value, Note):
        return worded(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(" ".join(named_value(str(key), part)) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(part) for part in value)
    return value if isinstance(value, str) else str(value)
