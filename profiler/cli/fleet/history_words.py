"""Sentences, tables and documents about histories and gates: for terminals, CI and programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl

from profiler.fleet.gate import Gate, GateVerdict, Outcome
from profiler.fleet.metric_history import HistoryChange, MetricHistory
from profiler.fleet.newest import LEAST_RUNS, history_needed
from profiler.report.markdown import escaped
from profiler.report.terminal.layout import clean
from profiler.report.units import counted, duration, percent, size

__all__ = [
    "bmf",
    "change_lines",
    "changes_frame",
    "gate_document",
    "gate_line",
    "gate_markdown",
    "history_document",
    "history_lines",
    "value_text",
]

_BMF_UNITS = {"ns": "latency", "bytes": "memory", "ratio": "utilization", "count": "count"}
_BMF_NAME = 1024  # characters that Bencher allows


def value_text(value: float, unit: str) -> str:
    """A value in the unit that is read best."""
    if unit == "ns":
        return duration(value)
    if unit == "bytes":
        return size(value)
    return percent(value) if unit == "ratio" else f"{value:,.6g}"


def _signed(change: float) -> str:
    if not math.isfinite(change):
        return "from nothing"
    return ("+" if change > 0 else "") + percent(change)


def _when(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M")


def _run_text(row: Mapping[str, Any]) -> str:
    commit = f", commit {clean(row['commit'][:12])}" if row["commit"] else ""
    return f"{clean(row['run_id'])} ({row['run'][:8]}, {_when(row['time_ns'])}{commit})"


def history_lines(past: MetricHistory) -> Iterator[str]:
    """What the history of a metric shows, in sentences."""
    values = past.values
    now = value_text(past.now, past.unit)
    held = f", held against {value_text(past.level, past.unit)}" if past.has_alarm else ""
    yield f"{past.metric}: {counted(len(values), 'run')}, {now} now{held}"
    for drift in past.drifts:
        total = math.expm1(math.log1p(drift.slope) * (drift.end - drift.first - 1))
        end = "now" if drift.end == len(values) else clean(past.frame["run_id"][drift.end - 1])
        first = clean(past.frame["run_id"][drift.first])
        yield (
            f"drift: {_signed(drift.slope)} a run from {first} until {end}, {_signed(total)} in "
            "all; no run of it is a change"
        )
    if past.two_modes is not None:
        low, high, share = past.two_modes
        yield (
            f"two modes: {value_text(low, past.unit)}, and {value_text(high, past.unit)} in "
            f"{percent(share)} of the runs; neither is a change"
        )
    last = past.newest
    if last is None:
        more = max(LEAST_RUNS + 1 - len(values), 1)
        yield f"too few runs to tell whether the newest is outside: needs {more} more"
    elif last.outside:
        yield (
            f"the newest {counted(last.runs, 'run')} {'is' if last.runs == 1 else 'are'} outside "
            f"the history: {_signed(last.change)}, expected {value_text(last.expected, past.unit)}"
        )
    if not past.changes and (last is None or not last.outside):
        yield "no change"


def change_lines(each: HistoryChange, unit: str) -> Iterator[str]:
    """A change: by how much, between which runs, and whether it is an alarm."""
    change = each.change
    state = "accepted" if each.because is not None else "alarm" if each.is_open else ""
    before, after = value_text(change.before, unit), value_text(change.after, unit)
    yield (
        f"{each.name}: {_signed(change.change)}, {before} → {after}"
        + (f", {state}" if state else "")
    )
    yield f"  last good run {_run_text(each.good)}"
    yield f"  first bad run {_run_text(each.bad)}"
    if each.because is not None:
        yield f"  accepted: {clean(each.because)}"


def changes_frame(past: MetricHistory) -> pl.DataFrame:
    """The changes of a metric: one row a change."""
    rows = [
        {
            "metric": past.metric,
            "change": each.name,
            "by": each.change.change,
            "before": each.change.before,
            "after": each.change.after,
            "unit": past.unit,
            "last_good": each.good["run_id"],
            "good_commit": each.good["commit"],
            "first_bad": each.bad["run_id"],
            "bad_commit": each.bad["commit"],
            "alarm": each.is_open,
            "accepted": each.because,
        }
        for each in past.changes
    ]
    texts = ("last_good", "good_commit", "first_bad", "bad_commit")
    schema: dict[str, pl.DataType] = {
        **dict.fromkeys(("metric", "change"), pl.String()),
        **dict.fromkeys(("by", "before", "after"), pl.Float64()),
        **dict.fromkeys(("unit", *texts), pl.String()),
        "alarm": pl.Boolean(),
        "accepted": pl.String(),
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def history_document(past: MetricHistory) -> dict[str, Any]:
    """The history of a metric as JSON."""
    last = past.newest
    return {
        "metric": past.metric,
        "unit": past.unit,
        "level": past.level,
        "now": past.now,
        "runs": past.frame.select("run", "run_id", "time_ns", "commit", "value").to_dicts(),
        "changes": changes_frame(past).to_dicts(),
        "drifts": [
            {"first": each.first, "end": each.end, "slope": each.slope} for each in past.drifts
        ],
        "two_modes": past.two_modes,
        "newest": None
        if last is None
        else {"outside": last.outside, "runs": last.runs, "change": last.change, "p": last.p},
    }


_SAID = {
    Outcome.WITHIN: "within its history",
    Outcome.WITHIN_LIMIT: "slower than its history, by no more than the limit",
    Outcome.FASTER: "faster than its history",
    Outcome.SLOWER: "slower than its history",
    Outcome.ALARM: "still slower than before a change that nobody has accepted",
}


def gate_line(each: GateVerdict, limit: float) -> str:
    """What the gate says of a metric, and why, in a sentence."""
    last = each.newest
    low, high = value_text(last.low, each.unit), value_text(last.high, each.unit)
    text = (
        f"{'FAILED' if each.failed else 'passed'}: {each.metric} is {_SAID[each.outcome]}: "
        f"{value_text(each.value, each.unit)}, {_signed(each.change)}; expected "
        f"{value_text(last.expected, each.unit)} ({low} to {high}, {counted(each.runs, 'run')})"
    )
    if each.outcome is Outcome.SLOWER and last.runs > 1:
        text += f", told by the newest {last.runs} runs together"
    alarm = each.history.alarm
    if each.outcome is Outcome.ALARM and alarm is not None:
        text += (
            f"; {alarm.name} began with {_run_text(alarm.bad)}: fix it, or end it with "
            f"`profile-sd3 fleet accept DATASET '{alarm.name}' --because …`"
        )
    elif not each.failed and each.sees > limit:
        more = history_needed(each.history.values[:-1], limit)
        hint = f"needs {more} more" if more > 0 else "no number of runs changes that"
        text += f"; in one run it sees no less than {_signed(each.sees)} ({hint})"
    return text


def gate_markdown(found: Gate) -> str:
    """The gate for a GitHub step summary; names of runs and metrics become no markup."""
    state = "failed" if found.failed else "passed"
    run = escaped(str(found.run["run_id"]))
    lines = [f"### Gate {state}: {run}", "", "| metric | value | change | expected | verdict |"]
    lines.append("|---|---|---|---|---|")
    for each in found.verdicts:
        last = each.newest
        low, high = value_text(last.low, each.unit), value_text(last.high, each.unit)
        cells = (
            each.metric,
            value_text(each.value, each.unit),
            _signed(each.change),
            f"{low} to {high} ({counted(each.runs, 'run')})",
            _SAID[each.outcome],
        )
        lines.append("| " + " | ".join(map(escaped, cells)) + " |")
    lines += ["", *(f"- {escaped(gate_line(each, found.limit))}" for each in found.verdicts)]
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ") + "\n"


def gate_document(found: Gate) -> dict[str, Any]:
    """The gate as JSON."""
    return {
        "run": found.run["run"],
        "run_id": found.run["run_id"],
        "fail_over": found.limit,
        "failed": found.failed,
        "metrics": [
            {
                "metric": each.metric,
                "unit": each.unit,
                "value": each.value,
                "change": each.change,
                "expected": each.newest.expected,
                "low": each.newest.low,
                "high": each.newest.high,
                "p": each.newest.p,
                "newest_runs": each.newest.runs,
                "history": each.runs,
                "outcome": each.outcome.value,
                "failed": each.failed,
                "alarm": None if each.history.alarm is None else each.history.alarm.name,
            }
            for each in found.verdicts
        ],
    }


def bmf(rows: Iterable[tuple[str, float, float | None, float | None, str]]) -> dict[str, Any]:
    """Bencher's metric format of rows of name, value, low, high, unit: a benchmark a metric, whose
    measure is `latency` (ns), `memory` (bytes), `utilization` or `count`
    (https://bencher.dev/docs/reference/bencher-metric-format)."""
    found: dict[str, Any] = {}
    for name, value, low, high, unit in rows:
        measure = {"value": value}
        if low is not None and high is not None:
            measure |= {"lower_value": low, "upper_value": high}
        found.setdefault(name[:_BMF_NAME], {})[_BMF_UNITS.get(unit, unit)] = measure
    return found
