"""What options take: lists of names (`vae,transformer`), ranges of steps (`0-3`), KEY=VALUE."""

from __future__ import annotations

import re
from collections.abc import Iterable

from profiler.errors import InputError

__all__ = ["key_values", "name_list", "step_range"]

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def name_list(given: int | str | Iterable[int | str]) -> tuple[str, ...]:
    """The names in one text or several, each with commas, once each, in order; numbers as text."""
    texts = (given,) if isinstance(given, (int, str)) else given
    words = (word.strip() for text in texts for word in str(text).split(","))
    return tuple(dict.fromkeys(filter(None, words)))


def step_range(text: str) -> tuple[int, int] | None:
    """The first and the last step of `"7"` or `"0-3"`; None for what is neither, or ends before it
    begins."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    return (first, last) if first <= last else None


def key_values(texts: Iterable[str] | None, option: str, example: str) -> dict[str, str]:
    """KEY=VALUE texts of an option by key. Raises InputError, which shows an `example`, for a text
    that is none, or a key that is given twice."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, _, value = text.partition("=")
        if not key or not value:
            raise InputError(f"{option} {text!r:.80} is no KEY=VALUE: write {option} {example}")
        if key in found:
            raise InputError(f"{option} {key} is given twice: give it once")
        found[key] = value
    return found
