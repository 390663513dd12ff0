"""Names as they may be shown: what comes from a trace or a model steers no terminal and no page.

The one place that decides which characters those are: control characters, and with them all escape
sequences (colours, links by OSC 8, the clipboard by OSC 52), line breaks, marks that turn the
direction of writing, what has no width and halves of characters.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["plain_text"]

_NO_BREAK = "\N{NO-BREAK SPACE}"  # between a number and its unit
_STAND_IN = "\N{REPLACEMENT CHARACTER}"


def plain_text(text: str, instead: Callable[[str], str] | None = None) -> str:
    """`text` as one line in which nothing is hidden; a run of what cannot be shown is one �, or
    each such character what `instead` makes of it. No-break spaces stay."""
    if text.isprintable():
        return text
    found: list[str] = []
    for character in text:
        if character.isprintable() or character == _NO_BREAK:
            found.append(character)
        elif instead is not None:
            found.append(instead(character))
        elif found[-1:] != [_STAND_IN]:
            found.append(_STAND_IN)
    return "".join(found)
