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

_DATA = ("values", "keys", "picks")  # keys of data from traces, which is not translated
_MARKED = re.compile(r"(<[a-z][a-z0-9]*\s[^>]*\bdata-say[^>]*>)([^<]*)")
_MARK = re.compile(r"\sdata-say(-[a-z-]+)?(?=[\s>])")
_SAY = re.compile(r'\b(?:say|message)\(\s*"((?:[^"\\]|\\.)*)"')


@lru_cache
def catalogue(language: str) -> Catalogue:
    """Return the templates in `language` by English template; empty for English."""
    if language == "en":
        return {}
    place = resources.files("profiler.report") / "languages" / f"{language}.json"
    found: dict[str, str] = json.loads(place.read_text(encoding="utf-8"))
    return found


def spoken(text: str) -> str:
    """Return `text` as escaped HTML; if it has translations, in a span with them as attributes."""
    others = "".join(f' data-{name}="{escape(given)}"' for name, given in _others(text))
    return f"<span{others}>{escape(text)}</span>" if others else escape(text)


def titled(text: str) -> str:
    """Return the title element of a page, with translations."""
    others = "".join(f' data-{name}="{escape(given)}"' for name, given in _others(text))
    return f"<title{others}>{escape(text)}</title>"


def spoken_template(html: str) -> str:
    """Add translations to the template `html`: for each element marked `data-say`, and each
    attribute named by `data-say-NAME`."""

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
    """Yield the marked texts of an element, each after the suffix of its mark."""
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
    """Return the translations of messages in `scripts` and of texts in `data`, by language and
    English text."""
    literals = {json.loads(f'"{text}"') for script in scripts for text in _SAY.findall(script)}
    texts = [text for _, text in _texts(data, ())]
    return {
        language: {text: found[text] for text in sorted(literals) if text in found}
        | {str(text): given for text in texts if (given := text.given_in(found)) != text}
        for language in OTHERS
        for found in (catalogue(language),)
    }


def translations(data: Any) -> dict[str, list[tuple[list[str | int], str]]]:
    """Return, by language, the place and translation of each text in `data` (nested mappings and
    sequences, as in JSON) that has one."""
    texts = [(list(path), text) for path, text in _texts(data, ())]
    return {
        language: [(path, given) for path, text in texts if (given := text.given_in(found)) != text]
        for language in OTHERS
        for found in (catalogue(language),)
    }


def _texts(data: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Said]]:
    """Yield each `Said` in `data` with its place; skips columns of numbers and data from traces."""
    if isinstance(data, Said):
        yield path, data
    elif isinstance(data, (str, int, float)):
        return  # the most frequent case
    elif isinstance(data, Mapping):
        for key, value in data.items():
            if key not in _DATA:
                yield from _texts(value, (*path, key))
    elif isinstance(data, (list, tuple)) and not (data and isinstance(data[0], (int, float))):
        for number, value in enumerate(data):
            yield from _texts(value, (*path, number))
