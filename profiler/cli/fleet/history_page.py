"""Histories as one HTML page: their curves, changes and runs. Self-contained, nothing is loaded.

Names come from manifests and are never trusted: they are escaped, or become text nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from profiler.cli.fleet.curves import LARGE, curve
from profiler.cli.fleet.history_words import change_lines, history_lines
from profiler.cli.fleet.page_document import Block, page_document
from profiler.cli.fleet.page_tables import HELD, history_table
from profiler.fleet.metric_history import MetricHistory
from profiler.plugins import plain_text
from profiler.report.language import spoken
from profiler.text import count, said

__all__ = ["history_page"]


def history_page(
    dataset: str,
    histories: Sequence[MetricHistory],
    explained: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    language: str = "auto",
) -> str:
    """The page of histories of a data set. `explained` are texts by the name of a change, `notes`
    say what takes no part."""
    blocks = [_block(past, number, explained or {}) for number, past in enumerate(histories)]
    title = said("History of {dataset}", dataset=plain_text(dataset))
    return page_document(title, notes, blocks, language)


def _block(past: MetricHistory, number: int, explained: Mapping[str, str]) -> Block:
    view, key = history_table(past, number), f"metric-{number}"
    name = plain_text(past.metric)
    html = (
        f'<section class="history" id="{key}" aria-labelledby="{key}-title">'
        f'<h2 id="{key}-title">{escape(name)}</h2>'
        + "".join(f"<p>{spoken(line)}</p>" for line in history_lines(past))
        + curve(past, LARGE)
        + "".join(_changes(past, explained))
        + _runs(past, number)
        + "</section>"
    )
    return Block(key, name, html, () if view is None else (view,))


def _changes(past: MetricHistory, explained: Mapping[str, str]) -> Iterator[str]:
    for each in past.changes:
        first, *others = change_lines(each, past.unit)
        items = "".join(f"<p>{spoken(line)}</p>" for line in others)
        yield f'<div class="part"><h3>{spoken(first)}</h3>{items}'
        if each.name in explained:
            lines = explained[each.name].split("\n")
            text = escape("\n".join(map(plain_text, lines)))
            summary = spoken(said("What differs"))
            yield (
                f'<details class="part"><summary>{summary}</summary>'
                f'<pre class="explained" lang="en" tabindex="0">{text}</pre></details>'
            )
        yield "</div>"


def _runs(past: MetricHistory, number: int) -> str:
    """The place of the table of runs, and what it leaves out."""
    all_runs, held = len(past.values), HELD["runs"]
    cut = said("The newest {held} of {all} runs.", held=count(held), all=count(all_runs))
    note = f'<p class="help">{spoken(cut)}</p>' if all_runs > held else ""
    heading = spoken(said("Runs"))
    return (
        f'<div class="part"><h3>{heading}</h3><div data-table="history_{number}"></div>{note}</div>'
    )
