"""The ladder of outcomes as text: the section *What to do first*, its brief form, its JSON.

ladder_report(ladder_of(run, analysis))  # what `predict` prints without a scenario
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
from msgspec.structs import replace

from profiler.analysis.document import (
    Advice,
    Opening,
    Part,
    Report,
    Section,
    SectionKind,
    Summary,
    TableView,
)
from profiler.analysis.finding_text import MATERIAL
from profiler.analysis.replay import Refusal
from profiler.analysis.result import ReportInput
from profiler.analysis.table_text import Sentences, add_sentences, table, worded_note
from profiler.prediction.ladder import MOST, Kind, Ladder, Outcome, Rung, ladder_of_analysis
from profiler.run.columns import FLOAT64, NS, STRING, Column, col, schema
from profiler.text import Said, duration, durations, joined, percent, said, sentence

KEY = "ladder"
TITLE = said("What to do first")
_FINE = 1.2  # smaller factors have two decimals
_MOST_SHOWN = 999
_PLUS = "\N{NO-BREAK SPACE}+\N{NO-BREAK SPACE}"
_ALIKE = 1.02  # within 2 %: not shown as a range
_MARKS = {Kind.AT_BEST: said("at best"), Kind.OTHER_IMAGE: said("other result")}
_LEFT_OUT = {  # kinds that the total leaves out, in the order of rungs
    Kind.AT_BEST: said("{numbers} (at best)"),
    Kind.OTHER_IMAGE: said("{numbers} (other result)"),
}
_FACTOR = Column("factor", FLOAT64, "ratio", "time now / alone_ns", True, kind="number")
_COLUMNS: tuple[Column, ...] = (
    col("change", STRING, "what to do", kind="word"),
    col("alone_ns", NS, "what the run takes with this change alone", True, label="alone"),
    _FACTOR,
    col(
        "after_ns",
        NS,
        "what it takes with this change and those above that keep the result",
        True,
        label="combined",
    ),
    Column(
        "after_factor", FLOAT64, "ratio", "time now / after_ns", True, "its factor", kind="number"
    ),
)
_IN_RANGES: tuple[Column, ...] = (  # if recording may have added much
    _COLUMNS[0],
    col("alone", STRING, "what the run takes with this change alone", True, kind="figure"),
    col("factor", STRING, "time now / alone", True, kind="figure"),
    col(
        "combined",
        STRING,
        "what it takes with this change and those above that keep the result",
        True,
        kind="figure",
    ),
    col("its_factor", STRING, "time now / combined", True, kind="figure", importance=1),
)
_NOTE = col(
    "note", STRING, "what to know before doing it, and the options of `predict`", True, kind="word"
)


def factor(before_ns: float, ns: float, *, fine: bool = False) -> str:
    """Format a speed-up: `"1.6×"`, `"1.05×"`, `">999×"` for what is too large to show; large ones
    with two decimals, too, if `fine`."""
    if before_ns > _MOST_SHOWN * ns:
        return f">{_MOST_SHOWN}×"
    ratio = before_ns / ns if ns > 0 else 1.0
    return f"{ratio:.2f}×" if fine or _is_fine(ratio) else f"{ratio:.1f}×"


def _is_fine(ratio: float) -> bool:
    return ratio < _FINE


# ns without the most that recording may have added; without the least, both ends of the interval
_Bounds = tuple[float, float, float]


def outcome_text(ladder: Ladder, found: Outcome) -> Said:
    """Format an outcome relative to the recorded run: `"1.19 s → 736 ms, 1.6×"`; with ranges,
    `"737 ms to 1.19 s → 726 to 851 ms, 1.00× to 1.64×"`, of all that is not known."""
    now, then = _bounds(ladder, None), _bounds(ladder, found)
    return said(
        "{before} → {after}, {factor}",
        before=_times(now),
        after=_times(then),
        factor=_factors(now, then),
    )


def _times(bounds: _Bounds) -> str:
    return durations(min(bounds), max(bounds))


def _bounds(ladder: Ladder, found: Outcome | None) -> _Bounds:
    """The bounds of an outcome, or of the run as it is; all the same if recording added little and
    the interval is narrow."""
    if found is None:
        least_ns, most_ns, low, high = ladder.least_ns, ladder.most_ns, None, None
        ns = ladder.before_ns
    else:
        least_ns, most_ns, low, high = found.least_ns, found.most_ns, found.low, found.high
        ns = found.ns
    if least_ns is None or most_ns is None or not _slowed(ladder):
        least_ns = most_ns = ns
    least_ns = min(least_ns, most_ns)
    if low is None or high is None or (ns < _ALIKE * low and high < _ALIKE * ns):
        return least_ns, most_ns, most_ns
    ratio = most_ns / ns if ns else 1.0  # the interval is that of the time as recorded
    return least_ns, low * ratio, high * ratio


def _now(ladder: Ladder) -> str:
    return _times(_bounds(ladder, None))


def _slowed(ladder: Ladder) -> bool:
    """Whether recording may have added much to the run."""
    return (ladder.recording_ns or 0.0) >= MATERIAL * max(ladder.before_ns, 1.0)


def _factors(now: _Bounds, then: _Bounds) -> str:
    """Format the factors from `now` to `then`, lowest to highest; one if they are the same."""
    pairs = [(max(before, after), after) for before, after in zip(now, then, strict=True)]
    least, *_, most = sorted(pairs, key=lambda pair: pair[0] / max(pair[1], 1.0))
    fine = _is_fine(least[0] / max(least[1], 1.0))  # both ends alike
    if not fine and most[0] * least[1] < _ALIKE * least[0] * most[1]:
        return factor(*least)
    low, high = factor(*least, fine=fine), factor(*most, fine=fine)
    return low if low == high else said("{low} to {high}", low=low, high=high)


def all_together(ladder: Ladder) -> Said | None:
    """Say what all changes that keep the result add up to; None without rungs, or if those that
    keep it are bounds."""
    if not ladder.rungs or (ladder.total is None and _best(ladder) is not None):
        return None
    if ladder.total is None:
        return said(
            "no change that keeps the result gains {least} of {now} or more",
            least=percent(MATERIAL),
            now=_now(ladder),
        )
    return said(
        "{all_together}: {outcome}",
        all_together=_all(ladder),
        outcome=outcome_text(ladder, ladder.total),
    )


def _gain(ladder: Ladder, found: Outcome, before: Outcome | None = None) -> Said:
    """Format an outcome below a title that has the run's time: `"→ 736 ms, 1.6×"`."""
    now, then = _bounds(ladder, before), _bounds(ladder, found)
    return said("→ {after}, {factor}", after=_times(then), factor=_factors(now, then))


def _best(ladder: Ladder) -> Rung | None:
    """The first rung that is a bound of a gain; None if there is none."""
    bounds = (rung for rung in ladder.rungs if rung.change.kind is Kind.AT_BEST)
    return next(bounds, None)


def _all(ladder: Ladder) -> Said:
    """Name the sum of the changes: `"all together (1 + 2)"`, if it leaves out others."""
    kept = {
        str(n): one for n, one in enumerate(ladder.rungs, 1) if one.change.kind is Kind.SAME_IMAGE
    }
    if len(kept) == len(ladder.rungs):
        return said("all together")
    return said("all together ({numbers})", numbers=joined(_PLUS, kept))


def _left_out(ladder: Ladder) -> Said | str:
    """Name the omitted rungs: `"without 3 (at best), 4, 5 (other result)"`, or ""."""
    left = []
    for kind, group in _LEFT_OUT.items():
        rungs = enumerate(ladder.rungs, 1)
        numbers = joined(", ", (str(n) for n, rung in rungs if rung.change.kind is kind))
        if numbers:
            left.append(said(group.template, numbers=numbers))
    return said("without {numbers}", numbers=joined(", ", left)) if left else ""


def recording_note(ladder: Ladder) -> Said | None:
    """Say how much of the time may be profiling overhead, which the ranges leave open; None if
    little is, or it is corrected."""
    if not _slowed(ladder):
        return None
    most = duration(ladder.recording_ns or 0)
    if not ladder.replayed:
        return said(
            "ranges: recording costs {cost} of {all}; --ops none: calls alone",
            cost=durations(ladder.recording_least_ns, ladder.recording_ns or 0)
            if ladder.recording_least_ns
            else said("at most {time}", time=most),
            all=duration(ladder.before_ns),
        )
    if ladder.data_loader_ns:
        return said(
            "ranges: recording costs at most {most}, with loading that could run beside the "
            "device; predict --untraced MS takes it out",
            most=most,
        )
    if ladder.stacks:
        return said(
            "ranges: Python stacks cost 0 to {most} before and after; or --untraced MS", most=most
        )
    return said("ranges: recording costs 0 to {most} before and after; or --untraced MS", most=most)


def order_note(ladder: Ladder) -> Said | None:
    """Say which rungs would be in another order if the profiling overhead were more or less than
    half of its upper bound; None if there are none."""
    if not ladder.unsure or not _slowed(ladder):
        return None
    *first, last = map(str, ladder.unsure)
    return said(
        "the order of {numbers} and {last} depends on how much recording costs",
        numbers=joined(", ", first),
        last=last,
    )


def cold_note(ladder: Ladder) -> Said | None:
    """Say that host gains are those of first calls; None if the run is not cold."""
    if not ladder.cold or not any(rung.change.on_host for rung in ladder.rungs):
        return None
    return said("first calls load and compile: gains on the host are those of a cold run")


def loader_note(ladder: Ladder) -> Said | None:
    """Say how long a device waits for the DataLoader; None if it does not."""
    if not ladder.data_loader_ns:
        return None
    loading = duration(ladder.data_loader_ns)
    return said("at least {loading} of this is waiting for the DataLoader", loading=loading)


def _notes(ladder: Ladder) -> Iterator[Said]:
    """Yield the notes on the whole ladder."""
    notes = (cold_note, loader_note, recording_note, order_note)
    for note in (make(ladder) for make in notes):
        if note is not None:
            yield note


def _marks_of(ladder: Ladder, rung: Rung) -> Iterator[Said]:
    """Yield the marks of a rung: its kind, the rung that it needs, and what no graph contains."""
    if rung.change.kind in _MARKS:
        yield _MARKS[rung.change.kind]
    if rung.pays_after is not None:
        yield said("pays only after {rung}", rung=rung.pays_after)
    if rung.change.cuda_graph and ladder.data_loader_ns:
        yield said("the DataLoader and its copies cannot be captured")


# --- The brief form, for the first screen and the 40 lines of a terminal.


def with_ladder(opening: Opening, of: ReportInput) -> Opening:
    """Put the ladder in place of the gains in the opening; unchanged if nothing was replayed, with
    the reason if launches could not be."""
    ladder = ladder_of_analysis(of.analysis)
    shown = of.most(MOST)
    if ladder is None or not shown:
        return opening
    if not ladder.rungs:
        if ladder.refused is None or not opening.advice:
            return opening
        why = said("not replayed, so no outcomes: {why}", why=worded_note(ladder.refused))
        return replace(opening, advice_notes=(*opening.advice_notes, why))
    keeping = sum(rung.change.kind is Kind.SAME_IMAGE for rung in ladder.rungs)
    together = None
    if ladder.total is not None and keeping > 1:
        together = Advice(None, _all(ladder), _gain(ladder, ladder.total), "", outcome=True)
    elif ladder.total is None and (none := all_together(ladder)) is not None:
        together = Advice(None, none, "", "", outcome=True)
    notes = list(_notes(ladder))
    if ladder.left:
        some = joined("; ", (action for action, _ in ladder.left))
        notes.append(said("not replayed, so without a number: {changes}", changes=some))
    return replace(
        opening,
        advice=tuple(_advice(ladder, number) for number in range(min(shown, len(ladder.rungs)))),
        advice_title=_record_again(ladder) or _title(ladder),
        advice_total=together,
        advice_notes=tuple(notes),
    )


def _title(ladder: Ladder) -> Said:
    now = _now(ladder)
    if ladder.replayed and ladder.pipelines > 1:
        return said(
            "What to do first, from {now} a pipeline call, by replay: each alone, then together",
            now=now,
        )
    if ladder.replayed:
        return said("What to do first, from {now}, by replay: each alone, then together", now=now)
    return said("What to do first, from {now}, by call times: each alone, then together", now=now)


def _record_again(ladder: Ladder) -> Said | None:
    """Advise to record again if first calls are much of the run, or if most of the first rung's
    gain may be the overhead of Python stacks."""
    slowed = ladder.stacks and any(
        _slowed(ladder) and (rung.certain_ns or 0.0) < (ladder.before_ns - rung.alone.ns) / 2
        for rung in ladder.rungs[:1]
    )
    now = _now(ladder)
    if ladder.cold and slowed:
        return said(
            "What to do first: warm up, record without Python stacks; then, from {now}",
            now=now,
        )
    if ladder.cold:
        return said("What to do first: warm up and record again; then, from {now}", now=now)
    if not slowed:
        return None
    return said("What to do first: record without Python stacks; then, from {now}", now=now)


def _advice(ladder: Ladder, number: int) -> Advice:
    """Write a rung as one line: what to do, its outcome alone, and its outcome after those that
    keep the result. If it gains nothing alone, the outcome starts from the rung that it needs, else
    from the run's time, which the title has."""
    rung = ladder.rungs[number]
    notes = list(_marks_of(ladder, rung))
    gain = _gain(ladder, rung.alone)
    if rung.after is not None:
        above = {
            str(place): one
            for place, one in enumerate(ladder.rungs[:number], 1)
            if one.change.kind is Kind.SAME_IMAGE
        }
        numbers = joined(_PLUS, above)
        if rung.pays_after is not None:
            last = [*above.values()][-1]
            base = last.after or last.alone
            gain = _gain(ladder, rung.after, base)
            times = _times(_bounds(ladder, base))
            notes.append(said("from {time} after {numbers}", time=times, numbers=numbers))
        else:
            now, then = _bounds(ladder, None), _bounds(ladder, rung.after)
            after = said(
                "after\N{NO-BREAK SPACE}{numbers}: {time}", numbers=numbers, time=_times(then)
            )
            if not _slowed(ladder):
                after = said(
                    "after\N{NO-BREAK SPACE}{numbers}: {time}, {factor}",
                    numbers=numbers,
                    time=_times(then),
                    factor=_factors(now, then),
                )
            notes.append(after)
    findings = rung.change.findings
    return Advice(
        finding=findings[0] if findings else None,
        title=rung.change.action,
        gain=gain,
        change=joined("; ", notes) if notes else "",
        outcome=True,
    )


# --- The section of a report.


def _parts(of: ReportInput) -> tuple[Part, ...]:
    ladder = ladder_of_analysis(of.analysis)
    return () if ladder is None or not ladder.rungs else tuple(ladder_parts(ladder))


def ladder_parts(ladder: Ladder) -> Iterator[Part]:
    """Yield the table of rungs with its notes, then the changes without a number."""
    if ladder.rungs:
        notes = [sentence(note) for note in _notes(ladder)]
        notes.append(_what_they_are(ladder))
        now, lead = _now(ladder), said("The run takes {now}.")
        if ladder.pipelines > 1:
            lead = said("A pipeline call takes {now}.")
        yield Part(lead=said(lead.template, now=now), table=_table(ladder), notes=tuple(notes))
    if ladder.left:
        why: str = ""
        if ladder.refused is not None:
            why = said("This run is not replayed: {why}.", why=worded_note(ladder.refused))
        yield Part(
            said("Without a number: not replayed"),
            lead=why,
            notes=tuple(
                said("- {change}: {why}", change=change, why=why) for change, why in ladder.left
            ),
            always=True,
        )


def _what_they_are(ladder: Ladder) -> Said:
    """Say what the table's figures are, and how `predict` gives them."""
    if not _slowed(ladder):
        return said(
            "Outcomes are of this run, with a 90 % interval if enough of it repeats, and the "
            "options of profile-sd3 predict that give the same figures."
        )
    return said(
        "Each range is from the most to the least that recording may have added, with the "
        "outcome's 90 % interval if that is wider than 2 %; a factor compares two times to which "
        "it added the same. profile-sd3 predict with a row's options starts from the time as "
        "recorded, {recorded}.",
        recorded=duration(ladder.before_ns),
    )


def _table(ladder: Ladder) -> TableView | None:
    rows = [_row(ladder, number, rung) for number, rung in enumerate(ladder.rungs, 1)]
    shown = _IN_RANGES if _slowed(ladder) else _COLUMNS
    total, columns = None, (*shown, _NOTE)
    if ladder.total is not None:
        last = (said("all together"), *_cells(ladder, ladder.total))
        total = pl.DataFrame(
            [(*last, None, None, _left_out(ladder) or None)], schema=schema(columns), orient="row"
        )
    frame = pl.DataFrame(rows, schema=schema(columns), orient="row")
    return table(*(KEY, "changes", shown, shown, frame), shown=len(rows), totals=total, below=_NOTE)


def _row(ladder: Ladder, number: int, rung: Rung) -> tuple[object, ...]:
    interval = () if _slowed(ladder) else _interval(rung.alone)
    return (
        f"{number} {rung.change.action}",
        *_cells(ladder, rung.alone),
        *_cells(ladder, rung.after),
        "; ".join((*interval, *rung.change.options, *_marks_of(ladder, rung))),
    )


def _cells(ladder: Ladder, found: Outcome | None) -> tuple[object, object]:
    """The time of an outcome and its factor: ranges if recording may have added much."""
    if found is None:
        return None, None
    if not _slowed(ladder):
        return round(found.ns), ladder.before_ns / found.ns if found.ns else None
    then = _bounds(ladder, found)
    times = _times(then).replace("\N{NO-BREAK SPACE}", " ")  # the terminal shows none
    return times, _factors(_bounds(ladder, None), then)


def _interval(found: Outcome) -> Iterator[str]:
    if found.low is not None and found.high is not None:
        yield f"90 % interval {durations(found.low, found.high)}"


SECTION = SectionKind("ladder", 15, TITLE, _parts)


def ladder_report(ladder: Ladder) -> Report:
    """The report that `predict` prints without a scenario: the ladder of the run."""
    now = _now(ladder)
    headline = said("{now} now", now=now)
    together = all_together(ladder)
    if together is not None:
        headline = said("{together}", together=sentence(together))
    elif (best := _best(ladder)) is not None:
        outcome = outcome_text(ladder, best.alone)
        headline = said("At best {outcome}: {change}", outcome=outcome, change=best.change.action)
    elif ladder.refused is not None:
        headline = said("{now} now: no change can be replayed", now=now)
    elif not ladder.rungs:
        headline = said(
            "{now} now: no change that can be replayed gains {least} of it",
            least=percent(MATERIAL),
            now=now,
        )
    asked = said(
        "Ask for more with --steps, --guidance, --drop, --place, --precision, --batch, --size, "
        "--concurrency (profile-sd3 predict --help)."
    )
    more = () if ladder.refused is not None else (Part(notes=(asked,), always=True),)
    parts = (*ladder_parts(ladder), *more)
    return Report(Summary(headline), (Section(KEY, TITLE, parts),))


# --- Sentences on runs whose launches cannot be replayed.


SENTENCES: Sentences = {
    Refusal: {
        Refusal.REPLAY_OFF: "its replay has a device span of {replayed_ns} where {recorded_ns} "
        "were recorded ({off_share} off)",
        Refusal.PARTLY_TRACED: "some calls of {submodule} were recorded without launches",
        Refusal.LAUNCHES_MISSING: "the launches of {missing_share} of the device's work are not in "
        "the trace",
        Refusal.SEVERAL_AT_ONCE: "calls of {devices} run at the same time",
        Refusal.MANY_CALLS: "its {calls} calls take long (profile-sd3 predict replays them)",
        Refusal.COLLECTIVES: "devices wait for one another in collectives",
    }
}
add_sentences(SENTENCES)


# --- As JSON.


def ladder_document(ladder: Ladder | None) -> dict[str, Any] | None:
    """The ladder as plain values, None if there is no ladder."""
    if ladder is None:
        return None
    return {
        "before_ns": round(ladder.before_ns),
        "before_least_ns": None if ladder.least_ns is None else round(ladder.least_ns),
        "before_most_ns": None if ladder.most_ns is None else round(ladder.most_ns),
        "why_not": ladder.why_not or None,
        "rungs": [
            {
                "change": str(rung.change.action),
                "kind": str(rung.change.kind),
                "options": list(rung.change.options),
                "findings": list(dict.fromkeys(one.rule for one in rung.change.findings)),
                "alone": _outcome(rung.alone),
                "after_those_above": _outcome(rung.after),
                "pays_after": rung.pays_after,
                "certain_gain_ns": None if rung.certain_ns is None else round(rung.certain_ns),
            }
            for rung in ladder.rungs
        ],
        "all_together": _outcome(ladder.total),
        "options": list(ladder.options),
        "without_a_number": [
            {"change": str(change), "why": str(why)} for change, why in ladder.left
        ],
        "recording_at_least_ns": round(ladder.recording_least_ns),
        "recording_at_most_ns": None if ladder.recording_ns is None else round(ladder.recording_ns),
        "data_loader_ns": ladder.data_loader_ns,
        "order_unsure": list(ladder.unsure),
        "python_stacks": ladder.stacks,
        "cold": ladder.cold,
    }


def _outcome(found: Outcome | None) -> dict[str, int | None] | None:
    if found is None:
        return None
    bounds = {
        "low_ns": found.low,
        "high_ns": found.high,
        "least_ns": found.least_ns,
        "most_ns": found.most_ns,
    }
    return {
        "ns": round(found.ns),
        **{name: None if value is None else round(value) for name, value in bounds.items()},
    }
