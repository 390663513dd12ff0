"""HTML pages of many runs: the overview of a data set and the history of its metrics.

Pages are self-contained and load nothing. Names come from manifests and are not trusted: they
are escaped or become text nodes.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.document import TableView
from profiler.analysis.table_text import renamed, table
from profiler.fleet.change_points import relative_noise
from profiler.fleet.compare import Overview, Workload
from profiler.fleet.history import (
    HistoryChange,
    MetricHistory,
    State,
    change_state,
    levels,
    run_verdicts,
    state_of,
)
from profiler.fleet.storage import is_url
from profiler.fleet.text import (
    CHANGE_STATES,
    STATES,
    VERDICTS,
    apart_line,
    change_lines,
    counted_state,
    history_lines,
    quality_word,
    spoken_words,
    value_text,
    when,
)
from profiler.plugins import plain_text
from profiler.report.html.library import (
    Top,
    contents,
    definitions,
    document,
    embedded,
    filled,
    modules,
    script_hash,
    script_of,
    style_sheet,
    template,
)
from profiler.report.html.tables import table_json
from profiler.report.language import page_messages, spoken, titled
from profiler.run.columns import FLOAT64, INT64, MINOR, RATIO, STRING, Column, col, schema
from profiler.text import Said, count, counted, joined, said, sentence

# --- The curve of a history as SVG, for pages: its runs, its levels, its changes.


_LEFT, _EDGE = 70, 16  # for the labels of the axis, and margins


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a curve: width and height in units of the picture, the maximum number of drawn
    runs, and whether each shows its name."""

    width: int
    height: int
    runs: int
    named: bool


LARGE = Size(960, 220, 4000, named=True)
SMALL = Size(420, 110, 240, named=False)


def curve(past: MetricHistory, size: Size) -> str:
    """Draw the values of a history over its runs, oldest first. If there are too many runs, the
    minimum and maximum of each group are drawn."""
    values = past.values
    low, high = float(values.min()), float(values.max())
    low = min(low, 0.9 * high) if high > 0 else low
    frame = _Frame(size, len(values), low, (high - low) or 1.0)
    said = escape(plain_text(past.metric))
    return (
        f'<svg class="curve" viewBox="0 0 {size.width} {size.height}" role="img" '
        f'aria-label="{said}">'
        + "".join((*_axis(past, frame, high), *_lines(past, frame), *_run_dots(past, frame)))
        + "</svg>"
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    size: Size
    runs: int
    low: float
    span: float

    def x(self, at: float) -> float:
        return _LEFT + (at + 0.5) / self.runs * (self.size.width - _LEFT - _EDGE)

    def y(self, value: float) -> float:
        height = self.size.height
        return height - _EDGE - (value - self.low) / self.span * (height - 2 * _EDGE)


def _axis(past: MetricHistory, frame: _Frame, high: float) -> Iterator[str]:
    for value in (frame.low, (frame.low + high) / 2, high):
        text = escape(value_text(value, past.unit))
        yield f'<text x="4" y="{frame.y(value) + 4:.1f}">{text}</text>'


def _lines(past: MetricHistory, frame: _Frame) -> Iterator[str]:
    """Yield the lines of the levels between changes, and of the changes."""
    values, height = past.values, frame.size.height
    for each in past.drifts:  # a line through the median of its runs
        middle = float(np.median(values[each.first : each.end]))
        half = math.log1p(each.slope) * (each.end - 1 - each.first) / 2
        low, high = (frame.y(middle * math.exp(way * half)) for way in (-1, 1))
        ends = f'x1="{frame.x(each.first):.1f}" x2="{frame.x(each.end - 1):.1f}"'
        yield f'<line class="level" {ends} y1="{low:.1f}" y2="{high:.1f}"/>'
    for begin, end in pairwise([0, *(each.change.at for each in past.changes), len(values)]):
        if any(each.first <= begin and end <= each.end for each in past.drifts):
            continue
        level = frame.y(float(np.median(values[begin:end])))
        ends = f'x1="{frame.x(begin - 0.5):.1f}" x2="{frame.x(end - 0.5):.1f}"'
        yield f'<line class="level" {ends} y1="{level:.1f}" y2="{level:.1f}"/>'
    for change in past.changes:
        at, kind = frame.x(change.change.at - 0.5), "alarm" if change.is_open else "change"
        ends = f'x1="{at:.1f}" x2="{at:.1f}" y1="{_EDGE}" y2="{height - _EDGE}"'
        name = escape(plain_text(change.name))
        yield f'<line class="{kind}" {ends}><title>{name}</title></line>'


def _run_dots(past: MetricHistory, frame: _Frame) -> Iterator[str]:
    values = past.values
    shown = _shown(values, frame.size.runs)
    if not frame.size.named:
        dots = "".join(f"M{frame.x(at):.1f} {frame.y(values[at]):.1f}h0" for at in shown)
        yield f'<path class="runs" d="{dots}"/>'
        return
    names = past.frame["run_id"]
    for at in shown:
        said = escape(plain_text(f"{names[at]}: {value_text(float(values[at]), past.unit)}"))
        yield (
            f'<circle class="run" cx="{frame.x(at):.1f}" cy="{frame.y(values[at]):.1f}" r="2.5">'
            f"<title>{said}</title></circle>"
        )


def _shown(values: np.typing.NDArray[np.float64], most: int) -> list[int]:
    """Return the positions of the drawn runs: all, or the minimum and maximum of each group."""
    if len(values) <= most:
        return [*range(len(values))]
    found: set[int] = set()
    for group in np.array_split(np.arange(len(values)), most // 2):
        found |= {int(group[np.argmin(values[group])]), int(group[np.argmax(values[group])])}
    return sorted(found)


# --- The frame of the pages of many runs: self-contained, offline, with the scripts and styles of
# the page of one run.


_SCRIPTS = modules("many_runs.js")


class Block(Struct, frozen=True, eq=False):
    """A section of a page: its `key` and its name in the list of contents, its HTML, the tables for
    its placeholders, and the `quality` texts in these."""

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
    script = script_of(_SCRIPTS)
    page = filled(
        "many_runs.html",
        headline=spoken(headline),
        summary="".join(f'<p class="subject">{spoken(line)}</p>' for line in summary),
        sections="\n".join(block.html for block in blocks),
        data=embedded(_data(blocks, language)),
        script=script,
    )
    style = style_sheet("report.css", "first_screen.css", "many_runs.css")
    listed = [("summary", said("Summary")), *((block.key, block.name) for block in blocks)]
    top = Top(contents(listed))
    return document(top, page, titled(headline), style, [script_hash(script.encode())])


def _data(blocks: Iterable[Block], language: str) -> dict[str, Any]:
    """The data of the scripts, as JSON values."""
    tables = {}
    for block in blocks:
        words = spoken_words(block.qualities)
        for view in block.tables:
            shown = tables[view.key] = table_json(view)
            if "words" in shown:
                shown["words"] = [words.get(text, text) for text in shown["words"]]
    return {
        "palette": {"submodules": {}, "roles": {}},
        "tables_shown": tables,
        "run": "fleet",
        "messages": page_messages(map(template, _SCRIPTS), tables),
        "language": language,
    }


# --- The tables of the pages of many runs.


HELD = {
    "newest": 200,
    "slowest": 200,
    "changes": 1000,
    "workloads": 1000,
    "bad": 500,
    "runs": 10_000,
}
"""The maximum number of rows in the page, by table."""
_SHOWN = 15
_COMMIT = 12  # characters

_KINDS = {"ns": "ns", "bytes": "bytes", "ratio": "ratio", "count": "number"}  # by unit

_TIME = col("time", STRING, "begin of the run, in UTC")
_COMMIT_COLUMN = col("commit", STRING, "commit of the program that ran")
_RUN = col("run", STRING, "name of the run")
_WORKLOAD = col(
    "workload",
    STRING,
    "group of comparable runs: its model, and in which fields others of that model differ",
)
_VALUE = col("value", FLOAT64, "the run's value of the metric")
_REPORT = col("report", STRING, "report in the run's bundle, from here", kind="file")
_PLACE = col("bundle", STRING, "where the bundle or file was added from", importance=MINOR)

_RUNS = (
    _RUN,
    _TIME,
    _COMMIT_COLUMN,
    _WORKLOAD,
    _VALUE,
    col("median", FLOAT64, "median of all runs that are comparable with it"),
    col(
        "against",
        FLOAT64,
        "its value over the median of the runs that are comparable with it, less 1",
        label="against median",
        kind="change",
    ),
    _REPORT,
    _PLACE,
)
_BAD = (
    _RUN,
    _TIME,
    _COMMIT_COLUMN,
    col("why", STRING, "what is bad about its quality", kind="word"),
    col("drops", INT64, "drops by which time is missing"),
    col("residual", RATIO, "largest share of a pipeline call that nothing accounts for"),
    col("tracing_cost", RATIO, "what tracing added, of the time without it"),
    _VALUE,
    _REPORT,
    _PLACE,
)
_CHANGES = (
    _WORKLOAD,
    col("metric", STRING, "name of the metric"),
    col("by", FLOAT64, "new level over the one before, less 1", kind="change"),
    col("before", STRING, "median of the runs before it", kind="figure"),
    col("after", STRING, "median of the runs after it", kind="figure"),
    col("last_good", STRING, "name of the last run before it"),
    col("good_commit", STRING, "commit of the last run before it"),
    col("first_bad", STRING, "name of the first run after it"),
    col("bad_commit", STRING, "commit of the first run after it"),
    col("time", STRING, "begin of the first run after it, in UTC"),
    col("state", STRING, "alarm: slower, and nobody has accepted it", kind="word"),
    col("because", STRING, "why it was accepted", importance=MINOR),
    col("change", STRING, "its name, which fleet accept takes", importance=MINOR),
)
_WORKLOADS = (
    _WORKLOAD,
    col("runs", INT64, "runs of good quality that have the metric"),
    col("median", FLOAT64, "median of all its runs"),
    col("now", FLOAT64, "median of its runs since the last change", label="since last change"),
    col(
        "spread",
        RATIO,
        "standard deviation of its runs since the last change, by their median absolute deviation",
    ),
    col("state", STRING, "what its history has come to", kind="word"),
    col("newest", STRING, "begin of its newest run, in UTC"),
)
_HISTORY = (
    _RUN,
    _COMMIT_COLUMN,
    _TIME,
    _VALUE,
    col("low", FLOAT64, "lower end of the value's 95 % interval"),
    col("high", FLOAT64, "upper end of the value's 95 % interval"),
    col(
        "against",
        FLOAT64,
        "its value over the median of the runs between the changes around it, less 1",
        label="against level",
        kind="change",
    ),
    col("verdict", STRING, "what the run is in its history", kind="word"),
)
_OF_UNIT = frozenset({"value", "median", "now", "low", "high"})

Beside = Callable[[str], str | None]


def reports_beside(folder: Path | None) -> Beside:
    """Return a function from the place of a run to its bundle's report, as a path relative to the
    page's `folder`; it returns None if there is no report, or no `folder`."""

    def found(place: str) -> str | None:
        if folder is None or not place or is_url(place) or not place.isprintable():
            return None
        try:
            report = Path(place) / "report.html"
            beside = os.path.relpath(report, folder.resolve()) if report.is_file() else ""
        except (OSError, ValueError):
            return None
        return Path(beside).as_posix() if beside and beside.isprintable() else None

    return found


def _view(
    key: str,
    name: str,
    columns: Sequence[Column],
    frame: pl.DataFrame,
    unit: str = "",
    *,
    search: bool = True,
    sort: str = "time",
) -> TableView | None:
    """`frame` as a table whose values of the metric are in `unit`."""
    kind = _KINDS.get(unit, "number")
    shown = [
        renamed(columns, each.name, kind=kind) if each.name in _OF_UNIT else each
        for each in columns
    ]
    return table(key, name, shown, columns, frame, shown=_SHOWN, search=search, sort=sort)


def _texts() -> tuple[pl.Expr, ...]:
    """Return expressions for the displayed name, time and commit of the runs of a frame."""
    return (
        pl.col("run_id").map_elements(plain_text, pl.String()).alias("run"),
        pl.col("time_ns").map_elements(when, pl.String()).alias("time"),
        pl.col("commit").str.head(_COMMIT).map_elements(plain_text, pl.String()).alias("commit"),
    )


def _runs_frame(runs: pl.DataFrame, beside: Beside) -> pl.DataFrame:
    return runs.with_columns(
        *_texts(),
        pl.col("workload").map_elements(plain_text, pl.String()),
        report=pl.col("place").map_elements(beside, pl.String()),
        bundle=pl.col("place").replace("", None).map_elements(plain_text, pl.String()),
    )


def _change_row(workload: str, past: MetricHistory, each: HistoryChange) -> dict[str, Any]:
    return {
        "workload": plain_text(workload),
        "metric": plain_text(past.metric),
        "by": each.change.change,
        "before": value_text(each.change.before, past.unit),
        "after": value_text(each.change.after, past.unit),
        "last_good": plain_text(each.good["run_id"]),
        "good_commit": plain_text((each.good["commit"] or "")[:_COMMIT]),
        "first_bad": plain_text(each.bad["run_id"]),
        "bad_commit": plain_text((each.bad["commit"] or "")[:_COMMIT]),
        "time": when(each.bad["time_ns"]),
        "state": str(CHANGE_STATES[change_state(past, each)]),
        "because": plain_text(each.because or ""),
        "change": plain_text(each.name),
        "time_ns": each.bad["time_ns"],
    }


# --- Histories as one HTML page: their curves, changes and runs.


def history_page(
    dataset: str,
    histories: Sequence[MetricHistory],
    explained: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    language: str = "auto",
) -> str:
    """Return the page of a data set's histories. `explained` are texts by name of a change, `notes`
    say what is left out."""
    blocks = [_block(past, number, explained or {}) for number, past in enumerate(histories)]
    title = said("History of {dataset}", dataset=plain_text(dataset))
    return page_document(title, notes, blocks, language)


def _block(past: MetricHistory, number: int, explained: Mapping[str, str]) -> Block:
    frame = past.frame.with_columns(
        *_texts(),
        against=pl.Series(past.values) / pl.Series(levels(past)) - 1,
        verdict=pl.Series([str(VERDICTS[each]) for each in run_verdicts(past)]),
    )
    held = frame.reverse().head(HELD["runs"])
    view = _view(f"history_{number}", "Runs", _HISTORY, held, past.unit)
    key, name = f"metric-{number}", plain_text(past.metric)
    lines = [f"<p>{spoken(line)}</p>" for line in history_lines(past)]
    parts = (curve(past, LARGE), *_history_changes(past, explained), _runs_part(past, number))
    return _section(key, name, *lines, *parts, view=view)


def _history_changes(past: MetricHistory, explained: Mapping[str, str]) -> Iterator[str]:
    for each in past.changes:
        first, *others = change_lines(each, past.unit)
        items = "".join(f"<p>{spoken(line)}</p>" for line in others)
        yield f'<div class="part"><h3>{spoken(first)}</h3>{items}'
        if each.name in explained:
            text = escape("\n".join(map(plain_text, explained[each.name].split("\n"))))
            summary = spoken(said("What differs"))
            yield (
                f'<details class="part"><summary>{summary}</summary>'
                f'<pre class="explained" lang="en" tabindex="0">{text}</pre></details>'
            )
        yield "</div>"


def _runs_part(past: MetricHistory, number: int) -> str:
    """The placeholder of the table of runs, with a note on rows that are left out."""
    all_runs, held = len(past.values), HELD["runs"]
    cut = said("The newest {held} of {all} runs.", held=count(held), all=count(all_runs))
    note = _help(cut) if all_runs > held else ""
    heading = spoken(said("Runs"))
    return (
        f'<div class="part"><h3>{heading}</h3><div data-table="history_{number}"></div>{note}</div>'
    )


# --- All runs of a data set as one HTML page.


CURVES = 60
"""Workloads with a curve on the page."""
_WRONG = (State.CHANGE, State.OUTSIDE)


def overview_headline(over: Overview) -> Said:
    """Say how many runs and workloads there are, and in which states."""
    states = Counter(each.state for each in over.workloads)
    counts = [counted_state(state, states[state]) for state in State if states[state]]
    if not counts:
        return said("No comparable runs")
    runs = counted(sum(each.runs for each in over.workloads), "run")
    workloads = counted(len(over.workloads), "workload")
    return said(
        "{runs} of {workloads}: {states}",
        runs=runs,
        workloads=workloads,
        states=joined(", ", counts),
    )


def overview_page(dataset: str, over: Overview, beside: Beside, language: str = "auto") -> str:
    """Return the page; `beside` returns the path of a run's report, relative to the page."""
    blocks = [
        _changes_block(over),
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


def _changes_block(over: Overview) -> Block | None:
    """The changes of all histories, the newest first."""
    if not over.workloads:
        return None
    rows = [
        _change_row(workload.name, past, each)
        for workload, past in over.histories
        for each in past.changes
    ]
    rows.sort(key=lambda row: row["time_ns"], reverse=True)
    frame = pl.DataFrame(rows, schema={**schema(_CHANGES), "time_ns": pl.Int64()}, orient="row")
    view = _view("changes", "Changes", _CHANGES, frame.head(HELD["changes"]))
    family = sum(1 for _ in over.histories)
    note = said(
        "The newest runs of the {family} histories of this page are tested together: one of them "
        "alone may be told as outside by fleet history, and not here.",
        family=count(family),
    )
    lead = "" if rows else said("No history has a change.")
    notes = (*_cut(len(rows), "changes"), *((note,) if family > 1 else ()))
    return _tables("changes", said("Changes"), lead, view, notes)


def _workloads(over: Overview) -> Iterator[Block]:
    """Yield the table of workloads for each metric, most urgent first."""
    for number, metric in enumerate(over.metrics):
        chosen = [(each, past) for each, past in over.histories if past.metric == metric]
        rows = [
            {
                "workload": plain_text(workload.name),
                "runs": len(past.values),
                "median": float(np.median(past.values)),
                "now": past.now,
                "spread": relative_noise([*past.values[past.since :]]),
                "state": str(STATES[state_of(past)]),
                "newest": when(past.frame["time_ns"][-1]),
            }
            for workload, past in chosen[: HELD["workloads"]]
        ]
        if not rows:
            continue
        frame = pl.DataFrame(rows, schema=schema(_WORKLOADS), orient="row")
        key = f"workloads_{number}"
        view = _view(key, "Workloads", _WORKLOADS, frame, chosen[0][1].unit, sort="")
        single = len(over.metrics) == 1
        title = said("Workloads") if single else said("Workloads by {metric}", metric=metric)
        yield _tables(key, title, "", view, _cut(len(rows), "workloads"))


def _newest(over: Overview, beside: Beside) -> Block:
    frame = _runs_frame(over.runs.reverse().head(HELD["newest"]), beside)
    view = _view("newest", "Newest runs", _RUNS, frame, over.unit)
    return _tables("newest", said("Newest runs"), "", view, _cut(len(over.runs), "newest"))


def _slowest(over: Overview, beside: Beside) -> Block:
    """The slowest runs relative to comparable runs."""
    slower = over.runs.filter(pl.col("against") > 0)
    ranked = slower.sort("against", "time_ns", descending=True, maintain_order=True)
    frame = _runs_frame(ranked.head(HELD["slowest"]), beside)
    view = _view("slowest", "Slowest runs", _RUNS, frame, over.unit, sort="against")
    lead = said("Each run against the median of all runs that are comparable with it.")
    if view is None:
        lead = said("No run is slower than the runs that are comparable with it.")
    notes = _cut(len(slower), "slowest")
    return _tables("slowest", said("Slowest runs"), lead, view, notes)


def _bad(over: Overview, beside: Beside) -> Block | None:
    """The runs of bad quality, newest first."""
    frame = _runs_frame(over.bad.reverse().head(HELD["bad"]), beside).with_columns(
        why=pl.col("quality").map_elements(lambda text: str(quality_word(text)), pl.String())
    )
    view = _view("bad", "Runs of bad quality", _BAD, frame, over.unit, search=False)
    if view is None:
        return None
    lead = said("They take no part in medians and histories: --bad-quality takes them.")
    notes = _cut(len(over.bad), "bad")
    block = _tables("bad", said("Runs of bad quality"), lead, view, notes)
    return replace(block, qualities=frozenset(over.bad["quality"].unique()))


def _cut(total: int, what: str) -> tuple[Said, ...]:
    """A sentence if a table has fewer rows than there are."""
    held = HELD[what]
    if total <= held:
        return ()
    return (said("This page holds {held} of {all} rows.", held=count(held), all=count(total)),)


def _tables(
    key: str, title: Said, lead: str, view: TableView | None, notes: Sequence[Said]
) -> Block:
    parts = [f'<p class="lead">{spoken(lead)}</p>'] if lead else []
    parts += [f'<div data-table="{view.key}"></div>'] if view is not None else []
    return _section(key, title, *parts, *map(_help, notes), view=view)


def _section(key: str, title: str, *parts: str, view: TableView | None = None) -> Block:
    style = ' class="history"' if key.startswith("metric-") else ""
    html = (
        f'<section{style} id="{key}" aria-labelledby="{key}-title">'
        f'<h2 id="{key}-title">{spoken(title)}</h2>{"".join(parts)}</section>'
    )
    return Block(key, title, html, () if view is None else (view,))


def _help(note: Said) -> str:
    return f'<p class="help">{spoken(note)}</p>'


def _curves(over: Overview) -> Block | None:
    """A block per workload: its state, descriptions and curves of its histories, its identity."""
    if not over.workloads:
        return None
    note = said(
        "Of {all} workloads the {held} most urgent have a curve here: fleet history has those of "
        "the others.",
        all=count(len(over.workloads)),
        held=count(CURVES),
    )
    parts = [f'<div class="workloads">{"".join(map(_workload, over.workloads[:CURVES]))}</div>']
    parts += [_help(note)] if len(over.workloads) > CURVES else []
    return _section("curves", said("Histories by workload"), *parts)


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
    rows = definitions(
        (field, "\N{EN DASH}" if value is None else plain_text(str(value)))
        for field, value in each.identity.items()
    )
    return (
        f'<details class="part"><summary>{spoken(said("Identity"))}</summary>'
        f'<dl class="identity">{rows}</dl></details>'
    )
