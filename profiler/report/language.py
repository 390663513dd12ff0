"""The languages of the page: English, which messages are written in, and catalogues of others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from html import escape, unescape
from importlib import resources
from typing import Any

from profiler.text import Catalogue, Said, said

LANGUAGES = ("en", "ko")
OTHERS = LANGUAGES[1:]

_DATA = ("values", "keys", "picks")  # what traces say
_MARKED = re.compile(r"(<[a-z][a-z0-9]*\s[^>]*\bdata-say[^>]*>)([^<]*)")
_MARK = re.compile(r"\sdata-say(-[a-z-]+)?(?=[\s>])")
_SAY = re.compile(r'\b(?:say|message)\(\s*"((?:[^"\\]|\\.)*)"')


@lru_cache
def catalogue(language: str) -> Catalogue:
    """English template → template in `language`; empty for English."""
    if language == "en":
        return {}
    place = resources.files("profiler.report") / "languages" / f"{language}.json"
    found: dict[str, str] = json.loads(place.read_text(encoding="utf-8"))
    return found


def spoken(text: str) -> str:
    """`text` as HTML for the content of an element, escaped; what has other languages stands in
    a span that holds them."""
    others = "".join(f' data-{name}="{escape(given)}"' for name, given in _others(text))
    return f"<span{others}>{escape(text)}</span>" if others else escape(text)


def titled(text: str) -> str:
    """The title of a page."""
    others = "".join(f' data-{name}="{escape(given)}"' for name, given in _others(text))
    return f"<title{others}>{escape(text)}</title>"


def spoken_template(html: str) -> str:
    """`html` of ours with the other languages of each text whose element says `data-say`, and of
    each attribute that it says `data-say-NAME` of."""

    def with_languages(found: re.Match[str]) -> str:
        tag, text = found[1], found[2]
        others = "".join(
            f' data-{language}{name}="{escape(given)}"'
            for name, message in _marked(tag, text)
            for language, given in _others(said(message))
        )
        return f"{_MARK.sub('', tag)[:-1]}{others}>{text}"

    return _MARKED.sub(with_languages, html)


def _marked(tag: str, text: str) -> Iterator[tuple[str, str]]:
    """The suffix of each marked text of an element, and the text."""
    for name in _MARK.findall(tag):
        value = re.search(rf'\s{name[1:]}="([^"]*)"', tag) if name else None
        yield name, unescape(value[1]) if value else " ".join(unescape(text).split())


def _others(text: str) -> Iterator[tuple[str, str]]:
    if isinstance(text, Said):
        for language in OTHERS:
            given = text.given_in(catalogue(language))
            if given != text:
                yield language, given


def page_messages(scripts: Iterable[str], data: Any) -> dict[str, dict[str, str]]:
    """By language the messages that `scripts` say, and the texts of `data`, by their English."""
    literals = {json.loads(f'"{text}"') for script in scripts for text in _SAY.findall(script)}
    texts = [text for _, text in _texts(data, ())]
    return {
        language: {text: found[text] for text in sorted(literals) if text in found}
        | {str(text): given for text in texts if (given := text.given_in(found)) != text}
        for language in OTHERS
        for found in (catalogue(language),)
    }


def translations(data: Any) -> dict[str, list[tuple[list[str | int], str]]]:
    """By language the place of each text in `data` (nested mappings and sequences, as JSON has
    them) that reads differently there, and how it reads."""
    texts = [(list(path), text) for path, text in _texts(data, ())]
    return {
        language: [(path, given) for path, text in texts if (given := text.given_in(found)) != text]
        for language in OTHERS
        for found in (catalogue(language),)
    }


def _texts(data: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Said]]:
    """The places of `Said` in `data`; columns of numbers, and what traces say, hold none."""
    if isinstance(data, Said):
        yield path, data
    elif isinstance(data, (str, int, float)):
        return  # as nearly all
    elif isinstance(data, Mapping):
        for key, value in data.items():
            if key not in _DATA:
                yield from _texts(value, (*path, key))
    elif isinstance(data, (list, tuple)) and not (data and isinstance(data[0], (int, float))):
        for number, value in enumerate(data):
            yield from _texts(value, (*path, number))
