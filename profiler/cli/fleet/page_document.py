"""The frame of the pages of many runs: self-contained, offline, of the scripts and styles that the
page of one run has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import Template
from typing import Any

from msgspec import Struct

from profiler._version import __version__
from profiler.analysis.document import TableView
from profiler.cli.fleet.page_words import spoken_words
from profiler.report.html.page import (
    Top,
    contents,
    document,
    embedded,
    script_hash,
    style_sheet,
    template,
)
from profiler.report.html.tables import table_json
from profiler.report.language import page_messages, spoken, spoken_template, titled
from profiler.text import Said, said

__all__ = ["Block", "page_document"]

_SCRIPTS = (
    "format.js",
    "theme.js",
    "data.js",
    "language.js",
    "columns.js",
    "tables.js",
    "table_files.js",
    "contents.js",
    "many_runs.js",
)


class Block(Struct, frozen=True, eq=False):
    """A section of a page: its `key` and its name in the list of contents, its HTML, the tables
    that this has places for, and the `quality` of runs that these name."""

    key: str
    name: str
    html: str
    tables: tuple[TableView, ...] = ()
    qualities: frozenset[str] = frozenset()


def page_document(
    headline: Said, summary: Sequence[str], blocks: Sequence[Block], language: str = "auto"
) -> str:
    """The whole page: sentences below its headline, and the blocks. It opens in `language` (`en`,
    `ko`), with `auto` in its reader's."""
    script = "\n".join(['"use strict";', *map(template, _SCRIPTS)])
    page = Template(spoken_template(template("many_runs.html"))).substitute(
        headline=spoken(headline),
        summary="".join(f'<p class="subject">{spoken(line)}</p>' for line in summary),
        sections="\n".join(block.html for block in blocks),
        footer=spoken(
            said("Written by profile-sd3 {version}. This file loads nothing.", version=__version__)
        ),
        data=embedded(_data(blocks, language)),
        script=script,
    )
    style = style_sheet("report.css", "first_screen.css", "many_runs.css")
    top = Top(
        contents([("summary", said("Summary")), *((block.key, block.name) for block in blocks)])
    )
    return document(top, page, titled(headline), style, [script_hash(script.encode())])


def _data(blocks: Iterable[Block], language: str) -> dict[str, Any]:
    """What the scripts read, as JSON has it."""
    tables = {
        view.key: _with_languages(table_json(view), spoken_words(set(block.qualities)))
        for block in blocks
        for view in block.tables
    }
    return {
        "palette": {"submodules": {}, "roles": {}},
        "tables_shown": tables,
        "run": "fleet",
        "messages": page_messages(map(template, _SCRIPTS), tables),
        "language": language,
    }


def _with_languages(table: dict[str, Any], words: dict[str, Said]) -> dict[str, Any]:
    """A table whose words have their languages."""
    if "words" in table:
        table["words"] = [words.get(text, text) for text in table["words"]]
    return table
