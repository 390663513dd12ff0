"""Sentences that a report can give in several languages: English text that knows its template.

    said("{n} of {all} calls", n=3, all=12)     == "3 of 12 calls"

Wherever a `Said` goes it is its English text: it compares, prints and serializes as such. A page
looks its template up in a catalogue (template → template, as gettext has them) and fills in the
values again. Text of a trace is a value, never a template: nobody looks it up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["Catalogue", "Said", "in_language", "joined", "said", "sentence"]

Catalogue = Mapping[str, str]

_PLACE = re.compile(r"\{(\w+)\}")


class Said(str):
    """English text, made of `template` and `values`; `change` was done to it afterwards."""

    __slots__ = ("change", "template", "values")

    template: str
    values: Mapping[str, Any]
    change: Callable[[str], str] | None

    def __new__(
        cls,
        text: str,
        template: str = "",
        values: Mapping[str, Any] | None = None,
        change: Callable[[str], str] | None = None,
    ) -> Said:
        made = super().__new__(cls, text)
        made.template, made.values, made.change = template or text, values or {}, change
        return made

    def changed(self, change: Callable[[str], str]) -> Said:
        """This text after `change`, which each language undergoes by itself, as escaping does."""
        before = self.change
        both = change if before is None else lambda text: change(before(text))
        return Said(change(str(self)), self.template, self.values, both)

    def given_in(self, catalogue: Catalogue) -> str:
        """The text with templates of `catalogue`; English where that has none."""
        template = catalogue.get(self.template, self.template)
        values = {name: in_language(value, catalogue) for name, value in self.values.items()}
        text = _filled(template, values)
        return text if self.change is None else self.change(text)


def said(template: str, /, **values: object) -> Said:
    """`template` with each `{name}` replaced by the value of that name, as `str` gives it; braces
    around other words stay. A value may be `Said` itself."""
    return Said(_filled(template, values), template, values)


def joined(separator: str, parts: Iterable[str]) -> Said:
    """`separator.join(parts)` that keeps the languages of its parts."""
    values = {f"part{number}": part for number, part in enumerate(parts)}
    template = separator.join(f"{{{name}}}" for name in values)
    return Said(_filled(template, values), template, values)


def sentence(text: str) -> str:
    """`text` with a capital at its beginning, which other languages may not have or put a name
    there, and a full stop at its end."""
    english = f"{text[:1].upper()}{text[1:]}."
    if not isinstance(text, Said):
        return english
    ended = text.changed(_ended)
    return Said(english, ended.template, ended.values, ended.change)


def in_language(text: Any, catalogue: Catalogue) -> str:
    """`text` in the language of `catalogue`; what is not `Said` as it is."""
    return text.given_in(catalogue) if isinstance(text, Said) else str(text)


def _filled(template: str, values: Mapping[str, Any]) -> str:
    def value(place: re.Match[str]) -> str:
        name = place[1]
        return str(values[name]) if name in values else place[0]

    return _PLACE.sub(value, template)


def _ended(text: str) -> str:
    return f"{text}."
