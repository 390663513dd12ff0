"""The two pages beside the UI: one that opens it on the trace, and one with the ready queries.

Both live on the UI's own origin: so the first can lay the ready queries, starred, into the history
of the UI's query page, which it keeps in `localStorage`. What a user has there stays.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlencode

from profiler.report.perfetto.queries import MARK, QUERIES, Query

__all__ = ["queries_page", "start_page", "ui_address"]

_DEVICES = "^[a-z_]+:[0-9]+$"  # groups of tracks that are devices of ours


def ui_address(trace: str, sql: str = "") -> str:
    """The UI, opened on the trace at the address `trace`, its devices unfolded, with the answer to
    `sql` in a tab below the timeline."""
    commands = [{"id": "dev.perfetto.ExpandTracksByRegex", "args": [_DEVICES]}]
    if sql:
        commands.append({"id": "dev.perfetto.RunQueryAndShowTab", "args": [sql]})
    arguments = {"url": trace, "startupCommands": json.dumps(commands)}
    return f"/#!/?{urlencode(arguments, quote_via=quote)}"


def start_page(trace: str, *, ours: bool) -> str:
    """The page that leads to the UI at once, HTML. `ours`: the trace has calls and commands."""
    queries = _fitting(ours=ours)
    data = {
        "address": ui_address(trace, queries[0].text),
        "queries": [query.text for query in queries],
        "mark": MARK,
    }
    return _filled("start.html", {"DATA": json.dumps(data).replace("<", "\\u003c")})


def queries_page(trace: str, name: str, *, ours: bool) -> str:
    """The ready queries, each with a link that opens the UI with its answer, HTML."""
    entries = (_entry(query, trace) for query in _fitting(ours=ours))
    return _filled(
        "queries.html",
        {"NAME": html.escape(name), "QUERIES": "\n".join(entries), "START": "/start"},
    )


def _fitting(*, ours: bool) -> Sequence[Query]:
    return QUERIES if ours else [query for query in QUERIES if query.general]


def _entry(query: Query, trace: str) -> str:
    address = html.escape(ui_address(trace, query.text))
    return (
        f"<section><h2>{html.escape(query.title)}</h2><p>{html.escape(query.question)} "
        f'<a href="{address}" target="_blank" rel="noopener">Open with the answer</a></p>'
        f'<pre tabindex="0">{html.escape(query.sql)}</pre></section>'
    )


def _filled(template: str, values: dict[str, str]) -> str:
    text = _template(template)
    for name, value in values.items():
        text = text.replace("{{" + name + "}}", value)
    return text


@cache
def _template(name: str) -> str:
    return (Path(__file__).parent / "pages" / name).read_text(encoding="utf-8")
