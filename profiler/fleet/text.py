"""Histories and gates as text, tables and documents, for terminals and CI."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from profiler.fleet.compare import Gate, GateVerdict, Outcome, Verdict
from profiler.fleet.dataset import Why, short
from profiler.fleet.history import (
    LEAST_RUNS,
    ChangeState,
    HistoryChange,
    MetricHistory,
    RunVerdict,
    State,
    history_needed,
)
from profiler.report.files import escaped
from profiler.report.terminal_layout import clean
from profiler.text import Said, count, counted, duration, joined, percent, said, size

if TYPE_CHECKING:
    from profiler.fleet.dataset import Apart, Difference


# --- Sentences, tables and documents about histories and gates: for terminals, CI and programs.


def value_text(value: float | None, unit: str) -> str:
    """Format a value in the unit that reads best: `68.4 ms`."""
    if value is None:
        return ""
    if unit == "ns":
        return duration(value)
    if unit == "bytes":
        return size(value)
    return percent(value) if unit == "ratio" else f"{value:,.6g}"


def signed(change: float) -> str:
    """Format a relative change with its sign."""
    if not math.isfinite(change):
        return said("from nothing")
    return ("+" if change > 0 else "") + percent(change)


def when(time_ns: int) -> str:
    """Format a time since 1970, in minutes, UTC."""
    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M")


def _run_text(row: Mapping[str, Any]) -> Said:
    values = {"run": clean(row["run_id"]), "key": row["run"][:8], "time": when(row["time_ns"])}
    if not row["commit"]:
        return said("{run} ({key}, {time})", **values)
    return said(
        "{run} ({key}, {time}, commit {commit})", **values, commit=clean(row["commit"][:12])
    )


def history_lines(past: MetricHistory) -> Iterator[Said]:
    """Yield sentences on the history of a metric."""
    yield _now_line(past)
    names = past.frame["run_id"]
    for drift in past.drifts:
        total = math.expm1(math.log1p(drift.slope) * (drift.end - drift.first - 1))
        yield said(
            "drift: {slope} a run from {first} until {end}, {total} in all; no run of it is a "
            "change",
            slope=signed(drift.slope),
            first=clean(names[drift.first]),
            end=said("now") if drift.end == len(names) else clean(names[drift.end - 1]),
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
    values = {
        "metric": clean(past.metric),
        "runs": counted(len(past.values), "run"),
        "now": value_text(past.now, past.unit),
        "newest": value_text(float(past.values[-1]), past.unit),
    }
    if len(past.values) == 1:
        return said("{metric}: {runs}, {newest}", **values)
    if not past.changes:
        return said("{metric}: {runs}, median {now}, newest {newest}", **values)
    if not past.has_alarm:
        return said(
            "{metric}: {runs}, median {now} since the last change, newest {newest}", **values
        )
    return said(
        "{metric}: {runs}, median {now} since the last change, newest {newest}; compared with "
        "{level}",
        **values,
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
        values = {"change": signed(last.change), "expected": value_text(last.expected, past.unit)}
        one = "the newest run is outside the history: {change}, expected {expected}"
        some = "the newest {runs} runs are outside the history: {change}, expected {expected}"
        yield said(one, **values) if last.runs == 1 else said(some, runs=last.runs, **values)
    said_so = bool(past.changes or past.drifts or past.two_modes)  # what is a change, and what not
    if not said_so and (last is None or not last.outside):
        yield said("no change found")


def change_lines(each: HistoryChange, unit: str) -> Iterator[Said]:
    """A change: by how much, between which runs, and whether it is an alarm."""
    change = each.change
    values = {
        "name": clean(each.name),
        "by": signed(change.change),
        "before": value_text(change.before, unit),
        "after": value_text(change.after, unit),
    }
    state = ", accepted" if each.because is not None else ", alarm" if each.is_open else ""
    yield said("{name}: {by}, {before} → {after}" + state, **values)
    yield said("  last good run {run}", run=_run_text(each.good))
    yield said("  first bad run {run}", run=_run_text(each.bad))
    if each.because is not None:
        yield said("  accepted: {reason}", reason=clean(each.because))


def history_document(past: MetricHistory) -> dict[str, Any]:
    """Return the history of a metric as JSON values."""
    last = past.newest
    return {
        "metric": past.metric,
        "unit": past.unit,
        "level": past.level,
        "now": past.now,
        "runs": past.frame.select("run", "run_id", "time_ns", "commit", "value").to_dicts(),
        "changes": [
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
        ],
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
    """Say in a sentence what the gate's result for a metric is, and why."""
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
    """Format the gate as a GitHub step summary; names of runs and metrics are escaped."""
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
    """Return the gate as JSON values."""
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


# --- The codes of `profiler.fleet` in words.


_VERDICTS = {
    Verdict.BASE: "the others are compared with this",
    Verdict.SLOWER: "slower",
    Verdict.FASTER: "faster",
    Verdict.NO_DIFFERENCE: "no difference seen",
    Verdict.ALONE: "nothing to compare with",
}
_NAMES = {"batch_size": "batch"}


def verdict_text(verdict: str, needs: int) -> str:
    """Say the verdict of a comparison: `slower`, `needs 4 more`."""
    if verdict == Verdict.NEEDS_MORE:
        return f"needs {needs} more runs" if needs else "needs more runs to compare with"
    text = _VERDICTS[Verdict(verdict)]
    decided = verdict in (Verdict.SLOWER, Verdict.FASTER, Verdict.ALONE)
    return f"{text}; needs {needs} more runs" if needs and not decided else text


def difference_text(one: Difference) -> Said:
    """Why two runs are not comparable: `steps 28 ≠ 20`."""
    name = _NAMES.get(one.field, one.field)
    return said("{field} {one} ≠ {other}", field=name, one=short(one.one), other=short(one.other))


def _reasons(why: Sequence[Difference]) -> Said:
    """Say why runs are comparable with none: what differs and what was not recorded."""
    unknown = [_NAMES.get(one.field, one.field) for one in why if one.why is Why.UNKNOWN]
    reasons = [difference_text(one) for one in why if one.why is not Why.UNKNOWN]
    if unknown:
        reasons.append(said("not recorded: {fields}", fields=", ".join(unknown)))
    return joined("; ", reasons)


def apart_line(apart: Apart) -> Said:
    """Say which runs are compared with none, and what to do about it."""
    values: dict[str, Any] = {"runs": counted(apart.runs, "run"), "example": clean(apart.example)}
    if apart.bad_quality:
        text = "left out: {runs} of bad quality, such as {example}: --bad-quality takes them"
    elif apart.without:
        values["field"] = apart.without
        text = (
            "left out: {runs}, such as {example}, of which nobody recorded {field}: compare them "
            "by another field (--by)"
        )
    elif not apart.why:
        text = (
            "not comparable: {runs}, such as {example}: other runs have several values of a field "
            "that nobody recorded of these"
        )
    else:
        values |= {"why": _reasons(apart.why), "fields": ",".join(one.field for one in apart.why)}
        text = (
            "not comparable: {runs}, such as {example}; {why}; --assume-same {fields} treats these "
            "as equal"
        )
    return said(text, **values)


# --- Words for states and verdicts on the pages of many runs.


STATES = {  # the others are named like their codes
    **{state: said(state.replace("_", " ")) for state in State},
    State.CHANGE: said("slower, not accepted"),
    State.OUTSIDE: said("newest outside"),
    State.FEW: said("too few runs"),
}
_COUNTED = {  # each alone within a list, so without commas
    State.CHANGE: said("{n} slower (not accepted)"),
    State.OUTSIDE: said("{n} with its newest run outside its history"),
    State.DRIFT: said("{n} drifting"),
    State.TWO_MODES: said("{n} with two modes"),
    State.ACCEPTED: said("{n} at an accepted level"),
    State.FEW: said("{n} with too few runs"),
    State.STEADY: said("{n} steady"),
}
VERDICTS = {
    RunVerdict.ON_LEVEL: said("on its level"),
    RunVerdict.FIRST_BAD: said("first bad run"),
    RunVerdict.FIRST_FASTER: said("first faster run"),
    RunVerdict.FIRST_ACCEPTED: said("first run of an accepted change"),
    RunVerdict.NOT_ACCEPTED: said("on a level not accepted"),
    RunVerdict.DRIFT: said("in a drift"),
    RunVerdict.OUTSIDE: said("outside its history"),
}
CHANGE_STATES = {
    **{state: said(state.value) for state in ChangeState},
    ChangeState.GONE: said("gone again"),
}
_QUALITY = {
    "drops": said("drops"),
    "residual": said("residual"),
    "tracing_cost": said("tracing cost"),
    "damaged": said("damaged"),
    "contradiction": said("figures contradict each other"),
}


def counted_state(state: State, number: int) -> Said:
    """Say how many histories are in a state: `"1 slower (not accepted)"`."""
    return said(_COUNTED[state].template, n=count(number))


def quality_word(quality: str) -> Said:
    """Say why a run is of bad quality, from its column `quality`."""
    return joined(", ", [_QUALITY.get(part, part) for part in quality.split(",")])


def spoken_words(qualities: frozenset[str]) -> dict[str, Said]:
    """Return all words by their English text, including those of these `quality` texts."""
    known = (*STATES.values(), *VERDICTS.values(), *CHANGE_STATES.values())
    return {str(one): one for one in (*known, *map(quality_word, sorted(qualities)))}
