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
from profiler.report.files import escaped
from profiler.report.terminal_layout import clean
from profiler.text import Said, counted, duration, percent, said, size

__all__ = [
    "bmf",
    "change_lines",
    "changes_frame",
    "gate_document",
    "gate_line",
    "gate_markdown",
    "history_document",
    "history_lines",
    "signed",
    "value_text",
    "when",
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


def signed(change: float) -> str:
    """A ratio less 1 with its sign."""
    if not math.isfinite(change):
        return said("from nothing")
    return ("+" if change > 0 else "") + percent(change)


def when(time_ns: int) -> str:
    """Minutes of a time since 1970, in UTC."""
    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M")


def _run_text(row: Mapping[str, Any]) -> Said:
    name, key = clean(row["run_id"]), row["run"][:8]
    if not row["commit"]:
        return said("{run} ({key}, {time})", run=name, key=key, time=when(row["time_ns"]))
    return said(
        "{run} ({key}, {time}, commit {commit})",
        run=name,
        key=key,
        time=when(row["time_ns"]),
        commit=clean(row["commit"][:12]),
    )


def history_lines(past: MetricHistory) -> Iterator[Said]:
    """What the history of a metric shows, in sentences."""
    yield _now_line(past)
    for drift in past.drifts:
        total = math.expm1(math.log1p(drift.slope) * (drift.end - drift.first - 1))
        yield said(
            "drift: {slope} a run from {first} until {end}, {total} in all; no run of it is a "
            "change",
            slope=signed(drift.slope),
            first=clean(past.frame["run_id"][drift.first]),
            end=said("now")
            if drift.end == len(past.values)
            else clean(past.frame["run_id"][drift.end - 1]),
            total=signed(total),
        )
    if past.two_modes is not None:
        low, high, share = past.two_modes
        yield said(
            "two modes: {low}, and {high} in {share} of the runs; neither is a change",
            low=value_text(low, past.unit),
            high=value_text(high, past.unit),
            share=percent(share),
        )
    yield from _newest_lines(past)


def _now_line(past: MetricHistory) -> Said:
    told = {
        "metric": clean(past.metric),
        "runs": counted(len(past.values), "run"),
        "now": value_text(past.now, past.unit),
        "newest": value_text(float(past.values[-1]), past.unit),
    }
    if len(past.values) == 1:
        return said("{metric}: {runs}, {newest}", **told)
    if not past.changes:
        return said("{metric}: {runs}, median {now}, newest {newest}", **told)
    if not past.has_alarm:
        return said("{metric}: {runs}, median {now} since the last change, newest {newest}", **told)
    return said(
        "{metric}: {runs}, median {now} since the last change, newest {newest}; compared with "
        "{level}",
        **told,
        level=value_text(past.level, past.unit),
    )


def _newest_lines(past: MetricHistory) -> Iterator[Said]:
    last = past.newest
    if last is None:
        more = max(LEAST_RUNS + 1 - len(past.values), 1)
        yield said(
            "too few runs to tell whether the newest is outside: {runs} more needed",
            runs=counted(more, "run"),
        )
    elif last.outside:
        told = {"change": signed(last.change), "expected": value_text(last.expected, past.unit)}
        if last.runs == 1:
            yield said(
                "the newest run is outside the history: {change}, expected {expected}", **told
            )
        else:
            yield said(
                "the newest {runs} runs are outside the history: {change}, expected {expected}",
                runs=last.runs,
                **told,
            )
    said_so = bool(past.changes or past.drifts or past.two_modes)  # what is a change, and what not
    if not said_so and (last is None or not last.outside):
        yield said("no change found")


def change_lines(each: HistoryChange, unit: str) -> Iterator[Said]:
    """A change: by how much, between which runs, and whether it is an alarm."""
    change = each.change
    told = {
        "name": clean(each.name),
        "by": signed(change.change),
        "before": value_text(change.before, unit),
        "after": value_text(change.after, unit),
    }
    if each.because is not None:
        yield said("{name}: {by}, {before} → {after}, accepted", **told)
    elif each.is_open:
        yield said("{name}: {by}, {before} → {after}, alarm", **told)
    else:
        yield said("{name}: {by}, {before} → {after}", **told)
    yield said("  last good run {run}", run=_run_text(each.good))
    yield said("  first bad run {run}", run=_run_text(each.bad))
    if each.because is not None:
        yield said("  accepted: {reason}", reason=clean(each.because))


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
        f"{value_text(each.value, each.unit)}, {signed(each.change)}; expected "
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
        text += f"; in one run it sees no less than {signed(each.sees)} ({hint})"
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
            signed(each.change),
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
