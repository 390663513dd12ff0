"""JSON text of a document, and plain values from whatever a document is made of."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec

__all__ = ["ascii_json", "json_text", "plain"]


def json_text(document: Any, *, indent: int | None = 1) -> str:
    """`document` as JSON text, without a newline at the end; `indent` None: on one line."""
    try:
        text = json.dumps(document, default=plain, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # a key that is no text, a number that JSON lacks
        text = json.dumps(plain(document), ensure_ascii=False, allow_nan=False)
    if indent is None:
        return text
    as_bytes = text.encode("utf-8", "surrogatepass")  # json.dumps would indent in Python, slowly
    return msgspec.json.format(as_bytes, indent=indent).decode("utf-8", "surrogatepass")


def ascii_json(data: Any) -> str:
    """Plain values as JSON in as few characters as there can be, all of them ASCII."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    """`value` as mappings, lists, text, numbers, booleans and None.

    Dataclasses and structs become objects, what has a method `as_json` what that returns, members
    of an enum their value, sequences and sets lists, sets in order. Numbers that JSON lacks (NaN,
    infinities) become None; what else it has no form for, such as a path or a time, becomes text.
    """
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float, Decimal)):
        return _number(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, Set)):
        parts = sorted(value, key=str) if isinstance(value, Set) else value
        return [plain(part) for part in parts]
    return _converted(value)


def _converted(value: Any) -> Any:
    for method in ("as_json", "tolist"):  # the latter of NumPy's scalars and arrays
        made = getattr(value, method, None)
        if callable(made):
            return plain(made())
    names = getattr(type(value), "__struct_fields__", None)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    return str(value)


def _number(value: float | Decimal) -> float | None:
    if isinstance(value, int):
        return int(value)
    number = float(value)
    return number if math.isfinite(number) else None
