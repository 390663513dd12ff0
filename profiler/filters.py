"""Lists of names, and ranges of steps, as filters take them: `vae,transformer`, `0-3,7`."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["name_list", "step_range"]

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
