"""The tables of the pages of many runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from profiler.analysis.document import TableView
from profiler.analysis.table_text import table
from profiler.cli.fleet.history_words import value_text, when
from profiler.cli.fleet.page_words import CHANGE_STATES, STATES, VERDICTS, quality_word
from profiler.fleet.metric_history import HistoryChange, MetricHistory
from profiler.fleet.noise import relative_noise
from profiler.fleet.overview import Overview
from profiler.fleet.states import change_state, levels, run_verdicts, state_of
from profiler.fleet.storage import is_url
from profiler.plugins import plain_text
from profiler.run.columns import FLOAT64, INT64, MINOR, STRING, Column

__all__ = [
    "HELD",
    "Beside",
    "bad_table",
    "changes_table",
    "history_table",
    "newest_table",
    "reports_beside",
    "slowest_table",
    "workloads_table",
]

HELD = {
    "newest": 200,
    "slowest": 200,
    "changes": 1000,
    "workloads": 1000,
    "bad": 500,
    "runs": 10_000,
}
"""Rows that a page holds at most."""
_SHOWN = 15
_COMMIT = 12  # characters

_KINDS = {"ns": "ns", "bytes": "bytes", "ratio": "ratio", "count": "number"}  # by unit

_TIME = Column("time", STRING, "", "begin of the run, in UTC")
_COMMIT_COLUMN = Column("commit", STRING, "", "commit of the program that ran")
_RUN = Column("run", STRING, "", "name of the run")
_WORKLOAD = Column(
    "workload",
    STRING,
    "",
    "group of comparable runs: its model, and in which fields others of that model differ",
)
_VALUE = Column("value", FLOAT64, "", "the run's value of the metric")
_REPORT = Column("report", STRING, "", "report in the run's bundle, from here", kind="file")
_PLACE = Column("bundle", STRING, "", "where the bundle or file was added from", importance=MINOR)

_RUNS = (
    _RUN,
    _TIME,
    _COMMIT_COLUMN,
    _WORKLOAD,
    _VALUE,
    Column("median", FLOAT64, "", "median of all runs that are comparable with it"),
    Column(
        "against",
        FLOAT64,
        "",
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
    Column("why", STRING, "", "what is bad about its quality", kind="word"),
    Column("drops", INT64, "", "drops by which time is missing"),
    Column(
        "residual", FLOAT64, "ratio", "largest share of a pipeline call that nothing accounts for"
    ),
    Column("tracing_cost", FLOAT64, "ratio", "what tracing added, of the time without it"),
    _VALUE,
    _REPORT,
    _PLACE,
)
_CHANGES = (
    _WORKLOAD,
    Column("metric", STRING, "", "name of the metric"),
    Column("by", FLOAT64, "", "new level over the one before, less 1", kind="change"),
    Column("before", STRING, "", "median of the runs before it", kind="figure"),
    Column("after", STRING, "", "median of the runs after it", kind="figure"),
    Column("last_good", STRING, "", "name of the last run before it"),
    Column("good_commit", STRING, "", "commit of the last run before it"),
    Column("first_bad", STRING, "", "name of the first run after it"),
    Column("bad_commit", STRING, "", "commit of the first run after it"),
    Column("time", STRING, "", "begin of the first run after it, in UTC"),
    Column("state", STRING, "", "alarm: slower, and nobody has accepted it", kind="word"),
    Column("because", STRING, "", "why it was accepted", importance=MINOR),
    Column("change", STRING, "", "its name, which fleet accept takes", importance=MINOR),
)
_WORKLOADS = (
    _WORKLOAD,
    Column("runs", INT64, "", "runs of good quality that have the metric"),
    Column("median", FLOAT64, "", "median of all its runs"),
    Column(
        "now", FLOAT64, "", "median of its runs since the last change", label="since last change"
    ),
    Column(
        "spread",
        FLOAT64,
        "ratio",
        "standard deviation of its runs since the last change, by their median absolute deviation",
    ),
    Column("state", STRING, "", "what its history has come to", kind="word"),
    Column("newest", STRING, "", "begin of its newest run, in UTC"),
)
_HISTORY = (
    _RUN,
    _COMMIT_COLUMN,
    _TIME,
    _VALUE,
    Column("low", FLOAT64, "", "lower end of the value's 95 % interval"),
    Column("high", FLOAT64, "", "upper end of the value's 95 % interval"),
    Column(
        "against",
        FLOAT64,
        "",
        "its value over the median of the runs between the changes around it, less 1",
        label="against level",
        kind="change",
    ),
    Column("verdict", STRING, "", "what the run is in its history", kind="word"),
)
_OF_UNIT = frozenset({"value", "median", "now", "low", "high"})

Beside = Callable[[str], str | None]


def reports_beside(folder: Path | None) -> Beside:
    """From the place of a run to its bundle's report, as a path from `folder`, in which the page
    will be; None where there is none, or no `folder`."""

    def found(place: str) -> str | None:
        if folder is None or is_url(place) or not place.isprintable():
            return None
        try:
            report = Path(place) / "report.html"
            beside = os.path.relpath(report, folder.resolve()) if report.is_file() else ""
        except (OSError, ValueError):
            return None
        return Path(beside).as_posix() if beside and beside.isprintable() else None

    return found


def newest_table(over: Overview, beside: Beside) -> TableView | None:
    """The newest runs of good quality."""
    frame = _runs(over.runs.reverse().head(HELD["newest"]), beside)
    columns = _in_unit(_RUNS, over.unit)
    return table(
        "newest", "Newest runs", columns, _RUNS, frame, shown=_SHOWN, search=True, sort="time"
    )


def slowest_table(over: Overview, beside: Beside) -> TableView | None:
    """The runs that are slowest against the runs like them; None where none is slower."""
    slower = over.runs.filter(pl.col("against") > 0).sort(
        "against", "time_ns", descending=True, maintain_order=True
    )
    frame = _runs(slower.head(HELD["slowest"]), beside)
    columns = _in_unit(_RUNS, over.unit)
    return table(
        "slowest", "Slowest runs", columns, _RUNS, frame, shown=_SHOWN, search=True, sort="against"
    )


def bad_table(over: Overview, beside: Beside) -> TableView | None:
    """The runs of bad quality, newest first."""
    frame = _runs(over.bad.reverse().head(HELD["bad"]), beside).with_columns(
        why=pl.col("quality").map_elements(lambda text: str(quality_word(text)), pl.String())
    )
    columns = _in_unit(_BAD, over.unit)
    return table("bad", "Runs of bad quality", columns, _BAD, frame, shown=_SHOWN, sort="time")


def changes_table(over: Overview) -> TableView | None:
    """The changes of all histories, the newest first."""
    rows = [
        _change_row(workload.name, past, each)
        for workload, past in over.histories
        for each in past.changes
    ]
    rows.sort(key=lambda row: row["time_ns"], reverse=True)
    schema = {column.name: column.dtype for column in _CHANGES}
    frame = pl.DataFrame(rows, schema={**schema, "time_ns": pl.Int64()}, orient="row")
    held = frame.head(HELD["changes"])
    return table(
        "changes", "Changes", _CHANGES, _CHANGES, held, shown=_SHOWN, search=True, sort="time"
    )


def workloads_table(over: Overview, metric: str, number: int) -> TableView | None:
    """The workloads by one metric, the most urgent first."""
    chosen = [(each, past) for each, past in over.histories if past.metric == metric]
    rows = [
        {
            "workload": plain_text(workload.name),
            "runs": len(past.values),
            "median": float(past.frame["value"].median()),  # type: ignore[arg-type]
            "now": past.now,
            "spread": relative_noise(_since(past)),
            "state": str(STATES[state_of(past)]),
            "newest": when(past.frame["time_ns"][-1]),
        }
        for workload, past in chosen[: HELD["workloads"]]
    ]
    schema = {column.name: column.dtype for column in _WORKLOADS}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    key = f"workloads_{number}"
    columns = _in_unit(_WORKLOADS, chosen[0][1].unit if chosen else "ns")
    return table(key, "Workloads", columns, _WORKLOADS, frame, shown=_SHOWN, search=True)


def history_table(past: MetricHistory, number: int) -> TableView | None:
    """The runs of a history, the newest first."""
    frame = past.frame.with_columns(
        *_texts(),
        against=pl.Series(past.values) / pl.Series(levels(past)) - 1,
        verdict=pl.Series([str(VERDICTS[each]) for each in run_verdicts(past)]),
    )
    key, columns = f"history_{number}", _in_unit(_HISTORY, past.unit)
    held = frame.reverse().head(HELD["runs"])
    return table(key, "Runs", columns, _HISTORY, held, shown=_SHOWN, search=True, sort="time")


def _in_unit(columns: Sequence[Column], unit: str) -> tuple[Column, ...]:
    """The columns, those that hold values of the metric in the kind of its unit."""
    kind = _KINDS.get(unit, "number")
    return tuple(replace(each, kind=kind) if each.name in _OF_UNIT else each for each in columns)


def _texts() -> tuple[pl.Expr, ...]:
    """Name, time and commit of the runs of a frame as they are shown."""
    return (
        pl.col("run_id").map_elements(plain_text, pl.String()).alias("run"),
        pl.col("time_ns").map_elements(when, pl.String()).alias("time"),
        pl.col("commit").str.head(_COMMIT).map_elements(plain_text, pl.String()).alias("commit"),
    )


def _runs(runs: pl.DataFrame, beside: Beside) -> pl.DataFrame:
    return runs.with_columns(
        *_texts(),
        pl.col("workload").map_elements(plain_text, pl.String()),
        report=pl.col("place").map_elements(beside, pl.String()),
        bundle=pl.col("place").map_elements(plain_text, pl.String()),
    )


def _since(past: MetricHistory) -> list[float]:
    """The values since the last change."""
    return list(past.values[past.changes[-1].change.at if past.changes else 0 :])


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
