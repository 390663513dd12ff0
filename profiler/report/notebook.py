"""A run and an analysis as notebooks show them: a small table, in the notebook's own colours.

`import profiler` in a notebook registers `as_html` with IPython, by the names of the types: so runs
know nothing of reports.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from profiler.analysis.result import Analysis
from profiler.report.headline import headline
from profiler.report.sentences.findings.words import words
from profiler.report.terminal.layout import shorten
from profiler.report.units import count, counted, duration, percent
from profiler.table.run import Run

__all__ = ["as_html"]

_ROWS = 12  # of a table; more are counted
_FINDINGS = 5
_NAME = 60  # characters
_PADDING = "padding:0 0.7em"


def as_html(shown: Run | Analysis) -> str:
    """The summary of a run or of an analysis, a piece of HTML without styles of colour; every
    name in it is escaped."""
    return _of_run(shown) if isinstance(shown, Run) else _of_analysis(shown)


def _of_run(run: Run) -> str:
    facts = (
        run.info.model,
        run.info.pipeline,
        counted(len(run.calls), "call"),
        counted(len(run.commands), "command"),
        _losses(len(run.losses)),
    )
    rows = (
        run.calls.group_by("submodule", "device", maintain_order=True)
        .agg(
            pl.len(),
            pl.col("duration_ns").sum().alias("total"),
            pl.col("duration_ns").first().alias("first"),
            pl.col("duration_ns").slice(1).median().alias("later"),
        )
        .sort("total", descending=True)
        .iter_rows()
    )
    cells = [
        (name, device, count(calls), duration(total), duration(first), _or_nothing(later))
        for name, device, calls, total, first, later in rows
    ]
    heads = ("submodule", "device", "calls", "total", "first call", "median later")
    return _page(run.run_id, facts, [_table(heads, cells, left=2)])


def _of_analysis(analysis: Analysis) -> str:
    run = analysis.run
    facts = (headline(analysis, 0),) if analysis.accounting.end_to_end_ns else ()
    cells = [
        (
            row["submodule"],
            row["device"],
            count(row["calls"]),
            duration(row["total_ns"]),
            duration(row["median_ns"]),
            "" if row["share"] is None else percent(row["share"]),
        )
        for row in analysis.submodules.sort("total_ns", descending=True).iter_rows(named=True)
    ]
    heads = ("submodule", "device", "calls", "total", "median", "share")
    found = [(finding.severity, words(finding).title) for finding in analysis.findings[:_FINDINGS]]
    parts = [_table(heads, cells, left=2)]
    if found:
        parts.append(_table(("findings", ""), found, left=2))
    more = len(analysis.findings) - len(found)
    if more > 0:
        parts.append(f"<div>… and {count(more)} more in <code>analysis.findings</code></div>")
    return _page(run.run_id, facts, parts)


def _losses(number: int) -> str:
    return f"{number} {'loss' if number == 1 else 'losses'} (run.losses)" if number else ""


def _or_nothing(ns: float | None) -> str:
    return "" if ns is None else duration(ns)


def _page(title: str, facts: Iterable[str], parts: Sequence[str]) -> str:
    line = ", ".join(filter(None, facts))
    return (
        f'<div style="line-height:1.5"><b>{_text(title)}</b>'
        f"<div>{_text(line, 400)}</div>{''.join(parts)}</div>"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]], left: int) -> str:
    """A table whose first `left` columns are texts, the others numbers."""
    sides = ["left" if at < left else "right" for at in range(len(heads))]
    top = "".join(
        f'<th style="text-align:{side};{_PADDING}">{_text(head)}</th>'
        for head, side in zip(heads, sides, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:{side};{_PADDING}">{_text(cell, 200)}</td>'
            for cell, side in zip(row, sides, strict=True)
        )
        + "</tr>"
        for row in rows[:_ROWS]
    )
    more = f"<div>… and {count(len(rows) - _ROWS)} more</div>" if len(rows) > _ROWS else ""
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: Any, most: int = _NAME) -> str:
    return html.escape(shorten(str(value), most))
