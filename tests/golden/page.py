"""A page unpacked: its markup, its data as JSON, digests of columns and scripts, Korean apart."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

__all__ = ["digest", "page_parts"]

_SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(r"<style[^>]*>(.*?)</style>", re.DOTALL)
_KOREAN = re.compile(r'\sdata-ko([a-z-]*)="([^"]*)"')
_NAME = re.compile(r'id="([^"]+)"')
_LIBRARY = "page-plotly"  # the plotly of the environment: not ours


def digest(data: bytes | str) -> str:
    """The first 16 digits of the SHA-256 of `data`."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:16]


def page_parts(html: str, *, whole: bool = False) -> dict[str, str]:
    """The parts of a page by name, each as text of many lines; scripts and styles as digests, or
    `whole`. What is Korean stands in parts of their own, `korean/…`: untranslated sentences are
    allowed to differ."""
    found: dict[str, str] = {}
    korean: list[str] = []
    fixed: list[tuple[str, str]] = []
    tables: dict[str, Any] = {}
    packed: dict[str, bytes] = {}
    for attributes, text in _SCRIPT.findall(html):
        named = _NAME.search(attributes)
        name = named[1] if named else "first-script"
        if name == _LIBRARY:
            continue
        content = text.encode() if _is_plain(name) else _inflated(text)
        if name in ("page-columns", "page-cells"):
            packed[name] = content
        elif name == "page-trace":
            fixed.append((name, f"{len(content)} bytes, {digest(content)}"))
        elif "script" in name:
            fixed.append((name, content.decode() if whole else digest(content)))
        else:
            document = json.loads(content)
            korean += _without_korean(document, name)
            if "cells" in document:
                tables = {
                    "page-columns": document["tables"],
                    "page-cells": document["cells"]["tables"],
                }
            found[name] = json.dumps(document, indent=1, ensure_ascii=False)
    fixed += [("style", text if whole else digest(text)) for text in _STYLE.findall(html)]
    markup = _STYLE.sub("<style></style>", _SCRIPT.sub(r"<script\1></script>", html))
    korean += [f"{name or 'text'}: {text}" for name, text in _KOREAN.findall(markup)]
    found["markup"] = _KOREAN.sub("", markup).replace("><", ">\n<")
    found["columns"] = "\n".join(
        line for name, content in packed.items() for line in _columns(tables[name], content)
    )
    found["fixed"] = "\n".join(f"{name}: {text}" for name, text in fixed)
    found["korean"] = "\n".join(korean)
    return found


def _is_plain(name: str) -> bool:
    return name in ("page-data", "first-script")


def _inflated(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text)) if text.strip() else b""


def _without_korean(document: Any, place: str) -> Iterator[str]:
    """What `document` says in Korean, line by line, which is taken out of it."""
    if isinstance(document, dict):
        if isinstance(document.get("ko"), dict | list | str):
            taken = document.pop("ko")
            entries = taken.items() if isinstance(taken, dict) else enumerate([taken])
            for key, text in entries:
                yield f"{place} {key}: {json.dumps(text, ensure_ascii=False)}"
        for key, value in document.items():
            yield from _without_korean(value, f"{place}/{key}")
    elif isinstance(document, list):
        for value in document:
            yield from _without_korean(value, place)


def _columns(tables: dict[str, Any], packed: bytes) -> Iterator[str]:
    """A line a column: rows, how it is stored, and the digest of its bytes."""
    for table, told in tables.items():
        for name, how in told["columns"].items():
            stored = packed[how["at"] : how["at"] + how["width"] * told["rows"]]
            yield f"{table}.{name}: {told['rows']} rows, {json.dumps(how)}, {digest(stored)}"
