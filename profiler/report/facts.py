"""What every report says before its tables: key figures, and what ran.

Plain text throughout; whoever shows it escapes it for where it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import polars as pl

from profiler.analysis.findings import trust
from profiler.analysis.findings.measures import has_queues, works_behind
from profiler.analysis.result import Analysis
from profiler.analysis.timelines import are_apart
from profiler.report.event_counts import events_fact
from profiler.report.model import Fact
from profiler.report.replay_facts import replay_facts
from profiler.report.sections.headline import asynchronous, carried_over, measured_apart
from profiler.report.sentences.worded import label, why_not, worded
from profiler.report.step_kinds import by_cache
from profiler.report.tracing_cost import how_known, share_of, unmeasured
from profiler.text import Said, count, counted, duration, joined, percent, said
from profiler.trace.events import Drop
from profiler.trace.manifest_fields import AttributedTo, Attribution, CallsFrom, Coverage, Overhead

__all__ = [
    "attributed_to",
    "calls_from_facts",
    "cost_fact",
    "coverage_facts",
    "drops_fact",
    "end_to_end_fact",
    "host_times_facts",
    "key_facts",
    "missing_lines",
    "missing_rows",
    "noted_times_facts",
    "residual_fact",
    "uncaptured_text",
    "unrecorded_facts",
]

_RESIDUAL_LIMIT = 0.01
_DISTORTING = 0.25  # of what callers waited, a third more than the run alone: colder caches and a
# later host, which taking the hooks' time out does not undo
_MOST_UNCAPTURED = 3  # that are named


def key_facts(analysis: Analysis, span_ns: int) -> tuple[Fact, ...]:
    """The figures that qualify everything else in the report."""
    return (
        end_to_end_fact(analysis, span_ns),
        *calls_from_facts(analysis),
        *host_times_facts(analysis),
        *noted_times_facts(analysis),
        *replay_facts(analysis),
        *unrecorded_facts(analysis),
        *_carried_over(analysis),
        *_steps(analysis),
        events_fact(analysis),
        cost_fact(analysis),
        *coverage_facts(analysis.run.coverage),
        *_attributed(analysis.run.attribution),
        *_asynchronous(analysis),
        residual_fact(analysis),
        drops_fact(analysis),
    )


def end_to_end_fact(analysis: Analysis, span_ns: int) -> Fact:
    """How long the pipeline calls took, else the run's extent `span_ns`; of components that were
    measured one by one, their sum."""
    account = analysis.accounting
    if measured_apart(analysis):
        note = said("one execution of each component; what a pipeline takes is not recorded")
        return Fact(said("Together"), duration(account.end_to_end_ns or span_ns), note)
    if account.end_to_end_ns and are_apart(analysis.drops):
        note = said("{count} recordings, one after another", count=count(account.pipelines))
        return Fact(said("Together"), duration(account.end_to_end_ns), note)
    if account.end_to_end_ns:
        noun, number = ("pipeline call", account.pipelines)
        if account.in_iterations:
            noun, number = ("iteration", account.iterations)
        pipelines = counted(number, noun)
        if account.overlapping and account.told_apart:
            pipelines = said(
                "{pipelines}, {overlapping} at the same time: {wall} passed",
                pipelines=pipelines,
                overlapping=count(account.overlapping),
                wall=duration(account.wall_ns),
            )
        return Fact(said("End to end"), duration(account.end_to_end_ns), pipelines)
    note = said("the run has no pipeline span")
    return Fact(said("First to last event"), duration(span_ns), note)


def calls_from_facts(analysis: Analysis) -> Iterator[Fact]:
    """What tells the calls of an import whose trace has no modules; nothing where modules do."""
    recording = analysis.run.recording
    source = recording.calls_from if recording else None
    if source is None:
        return
    value = said("named")
    if source.guessed:
        value = said("guessed")
    elif source is CallsFrom.NOTHING:
        value = said("none")
    yield Fact(said("Calls"), value, label(source))


def host_times_facts(analysis: Analysis) -> Iterator[Fact]:
    """That times of captured calls are the host's, where a device works behind them."""
    behind = works_behind(analysis)
    if behind:
        note = said(
            "{device} works behind them: a call returns once its work is launched, so that times "
            "of calls are not the device's; --ops first,last records these",
            device=behind,
        )
        yield Fact(said("Calls"), said("the host's times"), note, alert=True)


def noted_times_facts(analysis: Analysis) -> Iterator[Fact]:
    """That devices themselves told when they were on calls whose operators were not traced."""
    calls = analysis.inputs.run.calls
    noted = calls.filter(pl.col("device_duration_ns").is_not_null())
    if len(noted):
        names = joined(", ", sorted(set(noted["device"].cast(pl.String))))
        note = said(
            "{number} of {calls}, by events ahead of each and behind it on {device}; what it did "
            "in them was not recorded",
            number=count(len(noted)),
            calls=count(len(calls)),
            device=names,
        )
        yield Fact(said("Timed"), said("on the device"), note)


def coverage_facts(coverage: Coverage | None) -> Iterator[Fact]:
    """How much of the modules' time is in captured calls, and what is not; nothing where nobody
    measured that."""
    if coverage is None or coverage.share is None:
        return
    note = said("of the modules' time")
    if coverage.uncaptured:
        note = said("{note}; not captured: {what}", note=note, what=uncaptured_text(coverage))
    yield Fact(said("Captured"), percent(coverage.share), note)


def uncaptured_text(coverage: Coverage) -> Said | str:
    """`image_encoder (2 calls, 41 ms)`, the longest first."""
    shown = coverage.uncaptured[:_MOST_UNCAPTURED]
    parts = [
        said(
            "{name} ({calls}, {took})",
            name=one.name,
            calls=counted(one.calls, "call"),
            took=duration(one.duration_ns),
        )
        for one in shown
    ]
    more = len(coverage.uncaptured) - len(shown)
    parts += [said("{count} more", count=count(more))] if more else []
    return joined(", ", parts)


def unrecorded_facts(analysis: Analysis) -> Iterator[Fact]:
    """What of the pipeline calls' time counts nowhere; nothing where all of it does."""
    lost = analysis.accounting.unrecorded_ns
    if lost:
        note = said(
            "not in the end-to-end time: work or the host waited for something that was not "
            "recorded, or work launched before the recording ran"
        )
        yield Fact(said("Not recorded"), duration(lost), note)


def _carried_over(analysis: Analysis) -> Iterator[Fact]:
    """How long devices worked on what had been launched before the recording began."""
    for device, carried_ns in carried_over(analysis):
        note = said(
            "{device} worked on what had been launched before the recording began: outside of end "
            "to end and of all calls",
            device=device,
        )
        yield Fact(said("Carried over"), duration(carried_ns), note)


def _steps(analysis: Analysis) -> Iterator[Fact]:
    steps = analysis.step_summary
    if steps.count:
        low, high = duration(steps.min_ns), duration(steps.max_ns)
        notes = [*filter(None, (by_cache(steps),)), said("{low} to {high}", low=low, high=high)]
        notes += [counted(len(steps.outliers), "outlier")] if steps.outliers else []
        yield Fact(said("Median step"), duration(steps.median_ns), joined(", ", notes))


def cost_fact(analysis: Analysis) -> Fact:
    """What tracing took of the run, how that is known, and whether figures are distorted by it."""
    overhead = analysis.run.overhead
    share, name = overhead.share, said("Cost of tracing")
    if share is None:
        if overhead.hooks_ns is None:
            return Fact(
                name, unmeasured(analysis.run.recording), said("by the producer of this run")
            )
        return Fact(name, said("not known"), how_known(overhead, stated=False))
    fired = {finding.rule for finding in analysis.findings}
    alert = share >= _DISTORTING or trust.tracing_overhead.__name__ in fired
    event = overhead.operator_event_ns
    notes = [said("of {whole}", whole=share_of(overhead))]
    notes += [_distorted(overhead, behind=has_queues(analysis))] if alert else []
    notes += [how_known(overhead, brief=True)]
    notes += [said("{time} a recorded operator", time=duration(event))] if event else []
    return Fact(name, percent(share), joined(", ", notes), alert=alert)


def _distorted(overhead: Overhead, *, behind: bool) -> Said:
    """What a cost that distorts the figures leaves to do: to record calls alone, where operators
    were recorded; their times are not those of devices that work `behind` them."""
    if overhead.operator_events and behind:
        return said("which may distort the figures (--ops none: undistorted end to end)")
    if overhead.operator_events:
        return said("which may distort the figures (--ops none: undistorted times of calls)")
    return said("which may distort the figures")


def _asynchronous(analysis: Analysis) -> Iterator[Fact]:
    for name, duration_ns, busy_ns in asynchronous(analysis):
        note = said(
            "of device time, {time} in its calls: they return before it is done",
            time=duration(duration_ns),
        )
        yield Fact(name, duration(busy_ns), note)


def _attributed(attribution: Mapping[str, Attribution]) -> Iterator[Fact]:
    total = sum(part.total_ns for part in attribution.values())
    if total:
        share = sum(part.attributed_ns for part in attribution.values()) / total
        note = said("of operator time, to {targets}", targets=attributed_to(attribution))
        yield Fact(said("Attributed"), percent(share), note)


_TARGETS = {AttributedTo.MODULES: said("module paths"), AttributedTo.CALLS: said("calls")}


def attributed_to(attribution: Mapping[str, Attribution]) -> Said:
    """What operators were attributed to: module paths by capture, calls by importers."""
    return joined(", ", [_TARGETS[to] for to in sorted({p.to for p in attribution.values()})])


def residual_fact(analysis: Analysis) -> Fact:
    """How much of the end-to-end time no stage accounts for."""
    account = analysis.accounting
    if not account.possible:
        return Fact(said("Unaccounted"), said("unknown"), why_not(account.why_not))
    bad = account.residual_share > _RESIDUAL_LIMIT
    note = (
        said("of end to end is in no stage, more than 1 %")
        if bad
        else said("of end to end is in no stage")
    )
    return Fact(said("Unaccounted"), percent(account.residual_share), note, alert=bad)


def drops_fact(analysis: Analysis) -> Fact:
    """How much that was executed is not in the trace; "Doubtful" where all of it is, but not
    surely."""
    if not analysis.drops:
        return Fact(said("Dropped"), said("nothing"), said("everything that was executed is here"))
    kinds = joined(", ", map(label, sorted({drop.kind for drop in analysis.drops})))
    missing = any(drop.kind.time_missing for drop in analysis.drops)
    name = said("Dropped") if missing else said("Doubtful")
    return Fact(name, counted(len(analysis.drops), "record"), kinds, alert=True)


def missing_lines(drops: Iterable[Drop]) -> Iterator[str]:
    """What was executed and is not in the trace, or not surely: a sentence that says which of the
    two, then one a drop; nothing without drops."""
    drops = list(drops)
    if any(drop.kind.time_missing for drop in drops):
        yield said("This report does not cover everything that was executed.")
    elif drops:
        yield said(
            "Everything that was executed is here, but some of it is doubtful or not broken down."
        )
    for drop in drops:
        yield said(
            "{kind} in {where}: {number} {unit}. {detail}", kind=label(drop.kind), **_extent(drop)
        )


def missing_rows(drops: Iterable[Drop]) -> Iterator[tuple[str, str]]:
    """The kind of each drop, and where it is, how much and why."""
    for drop in drops:
        yield label(drop.kind), said("{where}: {number} {unit}. {detail}", **_extent(drop))


def _extent(drop: Drop) -> dict[str, str]:
    number = count(drop.count) if drop.count >= 0 else said("unknown")
    detail = worded(drop.detail)
    return {"where": drop.where, "number": number, "unit": drop.unit, "detail": detail}
