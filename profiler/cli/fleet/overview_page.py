"""All runs of a data set as one HTML page. Self-contained, nothing is loaded.

Names come from manifests and are never trusted: they are escaped, or become text nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from profiler.analysis.document import TableView
from profiler.cli.fleet.curves import SMALL, curve
from profiler.cli.fleet.history_words import history_lines
from profiler.cli.fleet.page_document import Block, page_document
from profiler.cli.fleet.page_tables import (
    HELD,
    Beside,
    bad_table,
    changes_table,
    newest_table,
    slowest_table,
    workloads_table,
)
from profiler.cli.fleet.page_words import STATES, counted_state
from profiler.cli.fleet.words import apart_line
from profiler.fleet.overview import Overview, Workload
from profiler.fleet.states import State, state_of
from profiler.plugins import plain_text
from profiler.report.language import spoken
from profiler.text import Said, count, counted, joined, said, sentence

__all__ = ["CURVES", "overview_headline", "overview_page"]

CURVES = 60
"""Workloads whose curves a page holds."""
_WRONG = (State.CHANGE, State.OUTSIDE)


def overview_headline(over: Overview) -> Said:
    """How many runs of what, and in which states."""
    states = Counter(each.state for each in over.workloads)
    told = [counted_state(state, states[state]) for state in State if states[state]]
    if not told:
        return said("No comparable runs")
    runs = counted(sum(each.runs for each in over.workloads), "run")
    workloads = counted(len(over.workloads), "workload")
    return said(
        "{runs} of {workloads}: {states}",
        runs=runs,
        workloads=workloads,
        states=joined(", ", told),
    )


def overview_page(dataset: str, over: Overview, beside: Beside, language: str = "auto") -> str:
    """The page; `beside` tells where a run's report is, from the page's place."""
    blocks = [
        _changes(over),
        *_workloads(over),
        _curves(over),
        _newest(over, beside),
        _slowest(over, beside),
        _bad(over, beside),
    ]
    summary = [
        said(
            "Data set {dataset}; metrics: {metrics}.",
            dataset=plain_text(dataset),
            metrics=plain_text(", ".join(over.metrics)),
        ),
        *(sentence(apart_line(each)) for each in over.apart[:20]),
    ]
    if len(over.apart) > 20:
        summary.append(said("Further reasons: {n}.", n=count(len(over.apart) - 20)))
    if len(over.bad):
        runs = counted(len(over.bad), "run")
        summary.append(said("Of bad quality, and in none of the rest: {runs}.", runs=runs))
    return page_document(
        overview_headline(over), summary, [block for block in blocks if block], language
    )


def _changes(over: Overview) -> Block | None:
    if not over.workloads:
        return None
    view = changes_table(over)
    family = sum(1 for _ in over.histories)
    note = said(
        "The newest runs of the {family} histories of this page are tested together: one of them "
        "alone may be told as outside by fleet history, and not here.",
        family=count(family),
    )
    total = sum(len(past.changes) for _, past in over.histories)
    lead = "" if total else said("No history has a change.")
    notes = (*_cut(total, "changes"), *((note,) if family > 1 else ()))
    return _tables("changes", said("Changes"), lead, view, notes)


def _workloads(over: Overview) -> Iterator[Block]:
    for number, metric in enumerate(over.metrics):
        view = workloads_table(over, metric, number)
        if view is None:
            continue
        single = len(over.metrics) == 1
        title = said("Workloads") if single else said("Workloads by {metric}", metric=metric)
        yield _tables(view.key, title, "", view, _cut(len(view.frame), "workloads"))


def _newest(over: Overview, beside: Beside) -> Block:
    notes = _cut(len(over.runs), "newest")
    return _tables("newest", said("Newest runs"), "", newest_table(over, beside), notes)


def _slowest(over: Overview, beside: Beside) -> Block:
    view = slowest_table(over, beside)
    lead = said("Each run against the median of all runs that are comparable with it.")
    if view is None:
        lead = said("No run is slower than the runs that are comparable with it.")
    slower = len(over.runs.filter(over.runs["against"] > 0))
    return _tables("slowest", said("Slowest runs"), lead, view, _cut(slower, "slowest"))


def _bad(over: Overview, beside: Beside) -> Block | None:
    view = bad_table(over, beside)
    if view is None:
        return None
    lead = said("They take no part in medians and histories: --bad-quality takes them.")
    notes = _cut(len(over.bad), "bad")
    block = _tables("bad", said("Runs of bad quality"), lead, view, notes)
    return Block(
        block.key, block.name, block.html, block.tables, frozenset(over.bad["quality"].unique())
    )


def _cut(total: int, what: str) -> tuple[Said, ...]:
    """A sentence where a table holds fewer rows than there are."""
    held = HELD[what]
    if total <= held:
        return ()
    return (said("This page holds {held} of {all} rows.", held=count(held), all=count(total)),)


def _tables(
    key: str, title: Said, lead: str, view: TableView | None, notes: Sequence[Said]
) -> Block:
    html = (
        f'<section id="{key}" aria-labelledby="{key}-title">'
        f'<h2 id="{key}-title">{spoken(title)}</h2>'
        + (f'<p class="lead">{spoken(lead)}</p>' if lead else "")
        + (f'<div data-table="{view.key}"></div>' if view is not None else "")
        + "".join(f'<p class="help">{spoken(note)}</p>' for note in notes)
        + "</section>"
    )
    return Block(key, title, html, () if view is None else (view,))


def _curves(over: Overview) -> Block | None:
    """A block a workload: its state, what its histories show, their curves, its identity."""
    if not over.workloads:
        return None
    key, title = "curves", said("Histories by workload")
    shown, left = over.workloads[:CURVES], max(len(over.workloads) - CURVES, 0)
    note = said(
        "Of {all} workloads the {held} most urgent have a curve here: fleet history has those of "
        "the others.",
        all=count(len(over.workloads)),
        held=count(CURVES),
    )
    html = (
        f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{spoken(title)}'
        f'</h2><div class="workloads">{"".join(map(_workload, shown))}</div>'
        + (f'<p class="help">{spoken(note)}</p>' if left else "")
        + "</section>"
    )
    return Block(key, title, html)


def _workload(each: Workload) -> str:
    parts = [f"<div><h3>{escape(plain_text(each.name))}</h3>"]
    for past in each.histories:
        state = state_of(past)
        style = "state wrong" if state in _WRONG else "state"
        parts.append(f'<p class="{style}">{spoken(STATES[state])}</p>')
        parts += [f"<p>{spoken(line)}</p>" for line in history_lines(past)]
        parts.append(curve(past, SMALL))
    return "".join(parts) + _identity(each) + "</div>"


def _identity(each: Workload) -> str:
    rows = "".join(
        f"<div><dt>{escape(field)}</dt><dd>{escape(_value(value))}</dd></div>"
        for field, value in each.identity.items()
    )
    return (
        f'<details class="part"><summary>{spoken(said("Identity"))}</summary>'
        f'<dl class="identity">{rows}</dl></details>'
    )


def _value(value: object) -> str:
    return "\N{EN DASH}" if value is None else plain_text(str(value))
