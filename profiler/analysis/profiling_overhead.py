"""Profiling overhead: what recording cost, how it is known, what the trace lacks.

It has the rules about the trace itself (incomplete trace, graph capture, uncaptured modules,
unaccounted time), their wording, and the section of the report. All text is plain; each
renderer escapes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from profiler.analysis.document import Fact, Part, SectionGroup, SectionKind
from profiler.analysis.end_to_end import asynchronous
from profiler.analysis.finding_text import (
    Rule,
    Words,
    accelerators,
    captures_and_replays,
    end_to_end_ns,
    grouped,
    grouped_by_name,
    has_queues,
    noun_of,
    number,
    of_devices,
    only_captures,
    share,
)
from profiler.analysis.result import Analysis, Finding, ReportInput
from profiler.analysis.table_text import Sentences
from profiler.text import Said, Value, count, counted, duration, joined, percent, said
from profiler.trace.events import DropKind
from profiler.trace.manifest_fields import (
    AttributedTo,
    Attribution,
    Coverage,
    Overhead,
    Recording,
    ShareOf,
    UnknownCost,
    WhyUnknown,
    stated,
)


class TimedBy(StrEnum):
    """Whose clock times operators."""

    DEVICE = "device"


# --- Rules about the trace itself: whether its numbers can be believed.


_OVERHEAD = 0.10  # of end to end: beyond it shares of small operators are off by more than a tenth
_OVERHEAD_LOW = 0.05  # its lower bound: an estimate that may be half of that proves nothing
_OVERHEAD_HIGH = 0.25
_UNCAPTURED = 0.01  # of the modules' time
_UNCAPTURED_HIGH = 0.10
_NAMED_MODULES = 5  # modules
_RESIDUAL = 0.01  # what the accounting identity promises at most
_RESIDUAL_MEDIUM = 0.05


def incomplete_trace(analysis: Analysis) -> Finding | None:
    """Something was executed that is not in the trace. Formats with averages only are reported in
    its head."""
    drops = [drop for drop in analysis.drops if drop.kind != DropKind.ESTIMATED_TIMES]
    if not drops:
        return None
    kinds = tuple(dict.fromkeys(drop.kind for drop in drops))
    known = [drop for drop in drops if drop.count >= 0]
    worst = next((drop for drop in drops if drop.kind.has_missing_time), drops[0])
    evidence: dict[str, Value] = {
        "drops": len(drops),
        "kinds": ", ".join(kinds),
        "worst_kind": worst.kind,
        "worst_in": worst.where,
        "worst": worst.detail,
    }
    for unit in dict.fromkeys(drop.unit for drop in known):
        name = f"lost_{unit}".rstrip("_").replace(" ", "_")
        evidence[name] = sum(drop.count for drop in known if drop.unit == unit)
    return Finding(
        rule="incomplete_trace",
        evidence=evidence,
        severity="high" if worst.kind.has_missing_time else "medium",
    )


def _incomplete_trace(found: Finding) -> Words:
    if not DropKind(str(found.evidence["worst_kind"])).has_missing_time:
        return Words(
            title="Part of the trace is doubtful or not broken down: {worst_kind} in {worst_in}",
            caveat="All sums include its time.",
            recommendation="Read what is missing at the top of the report.",
        )
    recommendation = said(
        "Read what is missing at the top of the report. Copy truncated or missing files again. "
        "If events were dropped, record again with fewer pipeline calls, or with the "
        "operators of fewer calls."
    )
    if found.evidence["worst_kind"] == DropKind.MISSING_RANK:
        recommendation = said(
            "To compare all ranks put their files into one folder. Figures of the ranks that are "
            "there stay as they are; which of all ranks is the slowest is not known."
        )
    return Words(
        title="The trace lacks part of what ran: {worst_kind} in {worst_in}",
        caveat="Sums and shares cover what was recorded; idle time may be unrecorded work.",
        recommendation=recommendation,
    )


def graph_capture(analysis: Analysis) -> Finding | None:
    """Graphs were captured: the calls ran nothing on their device if none was replayed, else the
    run holds warm-ups and captures beside replays."""
    recording = analysis.run.recording
    wall_ns = sum(part.wall_ns for part in analysis.accounting.submodules)
    evidence: dict[str, Value] = {"calls": analysis.run.calls, "wall_ns": wall_ns}
    if recording and recording.graphs and captures_and_replays(analysis):
        evidence |= {"captured": recording.graphs.captured, "replays": recording.graphs.replays}
    elif not only_captures(analysis):
        return None
    return Finding(rule="graph_capture", evidence=evidence, severity="high")


_REPLAY = said("Record a replay: profile requests after the engine has captured its graphs.")


def _graph_capture(found: Finding) -> Words:
    if "replays" in found.evidence:
        return Words(
            title=said(
                "Graphs were captured in this run: only their {replays} show what serving runs",
                replays=counted(round(number(found, "replays")), "replay"),
            ),
            caveat="Calls that warm up for a capture have names of their own; the host's work for "
            "the capture lies between calls and counts in the time of stages and steps.",
            recommendation=_REPLAY,
        )
    return Words(
        title="A graph capture was recorded, not serving: {wall_ns} of the host building graphs",
        caveat="During a capture, launches become nodes of a graph and run nothing: calls have "
        "host time and hardly any kernels. These are not the times of a replay.",
        recommendation=_REPLAY,
    )


def tracing_overhead(analysis: Analysis) -> Finding | None:
    """Recording took so much of the run that operator times are in doubt; those of kernels, which
    the host launched and their device timed, are not: their device waits longer for the host."""
    overhead, total = analysis.run.overhead, end_to_end_ns(analysis)
    found, untraced = overhead.share, {}
    if overhead.untraced_ns is not None and overhead.operators_ns is not None:
        untraced = {"untraced_ns": round(overhead.untraced_ns)}
        total = overhead.untraced_ns + overhead.operators_ns  # without the time between calls
        found = share(overhead.operators_ns, total)
    if found is None or found < _OVERHEAD:
        return None
    low = found - share(_doubtful_ns(overhead), total)
    if low < _OVERHEAD_LOW:
        return None
    evidence: dict[str, Value] = {
        "overhead_share": found,
        "overhead_low_share": low,
        "operators_ns": round(overhead.operators_ns or 0),
        "hooks_ns": overhead.hooks_ns or 0,
        "operator_events": overhead.operator_events or 0,
        **untraced,
    }
    if len(accelerators(analysis)) and len(analysis.inputs.run.flows):
        evidence["timed_by"] = TimedBy.DEVICE
    return Finding(
        rule="tracing_overhead",
        evidence=evidence,
        severity="high" if found >= _OVERHEAD_HIGH else "medium",
    )


def _doubtful_ns(overhead: Overhead) -> float:
    """Return by how much the cost of recording operators may be lower, in ns: down to the end of
    its interval, or of its estimate."""
    cost, low = overhead.operators_ns or 0.0, overhead.operators_low_ns
    if low is not None:
        return max(cost - low, 0.0)
    each, least = overhead.operator_event_ns, overhead.operator_event_low_ns
    if each is None or least is None:
        return 0.0
    return max(each - least, 0.0) * (overhead.estimated_events or 0)


_SLOWER_HOST = Words(  # devices time their kernels themselves
    title="Recording operators took {overhead_share} of the time in calls: devices wait longer for "
    "the host than without it",
    caveat="Each recorded operator costs the host about the same. Where it is late anyway, calls, "
    "steps and waiting are longer by that; times of kernels are their device's own.",
    recommendation="Trust the times of kernels, and of calls that the device bounds; of waiting "
    "for the host believe less. Trace fewer calls (--ops every:4), or leave some untraced "
    "(--measure-overhead) and compare the untraced column.",
)


def _tracing_overhead(found: Finding) -> Words:
    if found.evidence.get("timed_by") == TimedBy.DEVICE:
        return _SLOWER_HOST
    title = said("Tracing took {overhead_share} of the run: do not trust operator times")
    if "untraced_ns" in found.evidence:  # else it is of all that tracing took
        title = said(
            "Recording operators took {overhead_share} of the time in calls: do not trust "
            "operator times"
        )
    if number(found, "overhead_share") >= 1:
        title = said(
            "The estimated profiling overhead exceeds the run itself: do not trust operator times"
        )
    return Words(
        title=title,
        caveat="Each recorded operator costs about the same, so short ones look longer than they "
        "are, and a device may wait for a host that is busy recording.",
        recommendation="Trust the times of calls and steps more than those of operators. Trace "
        "fewer calls (--ops every:4), or leave some untraced (--measure-overhead) and compare the "
        "untraced column.",
    )


def uncaptured_modules(analysis: Analysis) -> Finding | None:
    """Modules or sessions were executed outside captured calls."""
    coverage = analysis.run.coverage
    if coverage is None or coverage.share is None or coverage.share > 1 - _UNCAPTURED:
        return None
    uncaptured = 1 - coverage.share
    return Finding(
        rule="uncaptured_modules",
        evidence={
            "uncaptured_share": uncaptured,
            "uncaptured_ns": coverage.uncaptured_ns,
            "uncaptured_calls": sum(one.calls for one in coverage.uncaptured),
            "uncaptured": ", ".join(one.name for one in coverage.uncaptured[:_NAMED_MODULES]),
        },
        severity="high" if uncaptured >= _UNCAPTURED_HIGH else "medium",
    )


_UNCAPTURED_MODULES = Rule(
    uncaptured_modules,
    Words(
        title="{uncaptured_share} of the modules' time is in no captured call: {uncaptured}",
        caveat="That time counts as host work between the calls. It was measured in the first "
        "pipeline call and in those whose operators are traced.",
        recommendation="Name what is missing with profiler.submodule(), and record again.",
    ),
    "Name what is not captured: profiler.submodule()",
)


def unaccounted_time(analysis: Analysis) -> Finding | None:
    """The stages do not add up to the end-to-end time."""
    account = analysis.accounting
    if not account.possible or account.residual_share <= _RESIDUAL:
        return None
    return Finding(
        rule="unaccounted_time",
        evidence={
            "residual_share": account.residual_share,
            "unaccounted_ns": account.unaccounted_ns,
            "outside_pipeline_ns": account.before_after_ns,
        },
        severity="medium" if account.residual_share >= _RESIDUAL_MEDIUM else "low",
    )


_UNACCOUNTED_TIME = Rule(
    unaccounted_time,
    Words(
        title="{residual_share} of the run is in no stage, or in several",
        caveat="Shares of stages are off by as much. The gaps may hold work of the pipeline that "
        "no hook sees.",
        recommendation="Look at the timeline between the stages. Give own submodules and host work "
        "to profile(submodules=…), or record overlapping pipeline calls one after the other.",
    ),
    "Record the pipeline's stages, or name what runs between them",
)
RULES = (
    Rule(
        graph_capture,
        _graph_capture,
        "Record a replay: profile after the engine has captured its graphs",
    ),
    Rule(
        incomplete_trace,
        _incomplete_trace,
        "Record again with fewer calls traced; copy truncated files again",
    ),
    Rule(
        tracing_overhead,
        _tracing_overhead,
        "Record with fewer calls traced: --ops every:4, or call spans only",
    ),
    _UNACCOUNTED_TIME,
    _UNCAPTURED_MODULES,
)
RECORDING_RULES = frozenset(rule.name for rule in RULES)
"""The rules whose findings are about the recording, not about the run."""


_TARGETS = {AttributedTo.MODULES: said("module paths"), AttributedTo.CALLS: said("calls")}


def attributed_to(attribution: Mapping[str, Attribution]) -> Said:
    """What operators were attributed to: module paths by capture, calls by importers."""
    return joined(", ", [_TARGETS[to] for to in sorted({p.to for p in attribution.values()})])


SENTENCES: Sentences = {TimedBy: {TimedBy.DEVICE: "the device"}}


# --- How the profiling overhead is known, in words.


_WHOLES = {
    ShareOf.END_TO_END: said("pipeline calls' time"),
    ShareOf.BOTH: said("the time of pipeline and other calls"),
    ShareOf.CALLS: said("calls' time"),
}
_ESTIMATED = {
    "onnxruntime": said(
        "estimated: the gaps between the run's own nodes, times how much more recording a node "
        "cost ONNX Runtime than the gap it left, measured on this machine on a chain of "
        "elementwise nodes, with and without profiling in turn (median and quartiles of pairs), "
        "times the operator events"
    ),
    "torch": said(
        "estimated: torch.profiler's cost per recorded event, with our hooks, measured on this "
        "machine on a chain of transformer blocks, with and without in turn (median of pairs, CPU "
        "time), times the operator events, those of host work included"
    ),
}


def share_of(overhead: Overhead) -> Said:
    """Return what the profiling overhead is a share of: `"pipeline calls' time"`."""
    return _WHOLES[overhead.share_of or ShareOf.END_TO_END]


def unmeasured(recording: Recording | None) -> Said:
    """Return that the profiling overhead was not measured, and whether what slows the host most was
    recorded."""
    if recording is not None and recording.with_stack:
        return said("not measured (Python stacks slow the host)")
    if recording is not None and recording.record_shapes:
        return said("not measured (recording operators slows the host)")
    return said("not measured")


def untraced(overhead: Overhead) -> Said | None:
    """Return how long the run would have taken without tracing: `"1.20 s without tracing (1.10 s to
    1.25 s) in place of 1.50 s"`; None if unknown."""
    if overhead.traced_ns is None or overhead.untraced_ns is None:
        return None
    return said(
        "{untraced} without tracing{interval} in place of {traced}",
        untraced=duration(overhead.untraced_ns),
        interval=_interval(overhead.untraced_low_ns, overhead.untraced_high_ns),
        traced=duration(overhead.traced_ns),
    )


def method(overhead: Overhead) -> Said:
    """Return how the stated costs were measured or estimated, and why others are not known."""
    parts: list[str] = []
    if overhead.measured:
        parts.append(
            said(
                "measured: median duration of traced less untraced calls of the same submodule and "
                "input shapes, the first of either kind apart, times its traced calls; 95 % "
                "bootstrap intervals"
            )
        )
    for backend in overhead.estimated_by:
        anyone = said("estimated: cost per recorded event times the operator events")
        parts.append(_ESTIMATED.get(backend, anyone))
    if overhead.new_sessions_ns:
        parts.append(
            said(
                "new sessions: how much longer the first two calls on a session opened for "
                "profiling took than later calls of the same input shapes, if the program's own "
                "session had run before (ONNX Runtime); memory touched for the first time to "
                "record events (torch)"
            )
        )
    if overhead.hooks_ns is not None:
        parts.append(said("hooks: time in the profiler's own code, in and around calls"))
    return joined("; ", [*parts, *map(_why_unknown, overhead.unknown)])


def _why_unknown(cost: UnknownCost) -> Said:
    if cost.why == WhyUnknown.NOT_TOLD:
        return said("not measured: the trace does not say what recording it cost")
    if cost.why == WhyUnknown.IMPLAUSIBLE:
        return said(
            "what recording operators cost is not known: the estimate, {event} an event, is more "
            "than all that ran took, so the machine was too busy for it",
            event=duration(cost.event_ns or 0),
        )
    template = said(
        "what recording the operators of {backend} cost was not measured: trace some calls only "
        "(measure-overhead), and the run measures it"
    )
    if cost.why == WhyUnknown.TOO_BUSY:
        template = said(
            "what recording the operators of {backend} cost could not be measured, the machine was "
            "too busy: trace some calls only (measure-overhead), and the run measures it"
        )
    return said(template.template, backend=cost.backend)


def how_known(overhead: Overhead, *, stated: bool = True, brief: bool = False) -> Said:
    """Return how the profiling overhead is known: `"estimated"`, or `"measured: transformer 5.2 ms
    a call (4.9 ms to 5.6 ms), else estimated"`, with 95 % intervals if there are. Unless it is
    `brief`, it also says if too few calls could be compared. `stated`: a cost is stated."""
    found = [
        said(
            "{name} {cost} a call{interval}",
            name=name,
            cost=duration(known.call_ns),
            interval=_interval(known.call_low_ns, known.call_high_ns),
        )
        for name, known in overhead.measured.items()
        if known.call_ns is not None
    ]
    parts = [said("measured: {costs}", costs=joined(", ", found))] if found else []
    if stated and (not found or overhead.estimated_events):
        estimated = said("else estimated") if found else said("estimated")
        parts.append(joined("", [estimated, _spread(overhead)]))
    return joined(", ", [*parts, *(() if brief else _too_few(overhead))])


def _spread(overhead: Overhead) -> str:
    """Return the range of the estimates if the machine was noisy, else ""."""
    low, high = overhead.operator_event_low_ns, overhead.operator_event_high_ns
    if low is None or high is None or not overhead.noisy:
        return ""
    return said(" (noisy: {low} to {high} an event)", low=duration(low), high=duration(high))


def _too_few(overhead: Overhead) -> Iterator[str]:
    counts = [
        said(
            "{name} {traced} traced and {untraced} untraced",
            name=name,
            traced=count(of.traced_calls),
            untraced=count(of.untraced_calls),
        )
        for name, of in overhead.too_few.items()
    ]
    if counts:
        yield said("too few calls to measure it ({calls})", calls=joined(", ", counts))


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return said(" ({low} to {high})", low=duration(low), high=duration(high))


# --- Key figures: what tracing cost, what was captured, what operators were attributed to.


_DISTORTING = 0.25  # of what callers waited, a third more than the run alone: colder caches and a
# later host, which taking the hooks' time out does not undo
_WIDE = 0.1  # of what callers waited: an interval wider than that is shown in place of a figure
_MOST_UNCAPTURED = 3  # that are named


def coverage_facts(coverage: Coverage | None) -> Iterator[Fact]:
    """How much of the modules' time is in captured calls, and what is not; nothing if nobody
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


def cost_fact(analysis: Analysis) -> Fact:
    """What tracing took of the run, how that is known, and whether figures are distorted by it."""
    overhead = analysis.run.overhead
    share, name = overhead.share, said("Profiling overhead")
    if share is None:
        if overhead.hooks_ns is None:
            note = said("by the producer of this run")
            return Fact(name, unmeasured(analysis.run.recording), note)
        return Fact(name, said("not known"), how_known(overhead, stated=False))
    fired = {finding.rule for finding in analysis.findings}
    distorts = share >= _DISTORTING or tracing_overhead.__name__ in fired
    notes = [said("of {whole}", whole=share_of(overhead)), how_known(overhead, brief=True)]
    notes += [_distorted(overhead, behind=has_queues(analysis))] if distorts else []
    return Fact(name, _share_or_interval(overhead, share), joined(", ", notes), remark=distorts)


def _share_or_interval(overhead: Overhead, share: float) -> str:
    """What tracing took of the run; an interval if one figure would say more than is known."""
    traced = overhead.traced_ns
    low_ns, high_ns = overhead.untraced_low_ns, overhead.untraced_high_ns
    if not traced or low_ns is None or high_ns is None or high_ns - low_ns <= _WIDE * traced:
        return percent(share)
    low, high = 1 - high_ns / traced, 1 - low_ns / traced
    if low <= 0:
        return said("up to {high}", high=percent(high))
    return said("{low} to {high}", low=percent(low), high=percent(high))


def _distorted(overhead: Overhead, *, behind: bool) -> Said:
    """What a cost that distorts the figures leaves to do: to record calls alone, if operators
    were recorded; their times are not those of devices that work `behind` them."""
    if overhead.operator_events and behind:
        return said("may distort figures (undistorted end to end: --ops none)")
    if overhead.operator_events:
        return said("may distort figures (undistorted calls: --ops none)")
    return said("may distort figures")


def attributed_facts(attribution: Mapping[str, Attribution]) -> Iterator[Fact]:
    """How much of the operators' time is attributed to modules or calls; nothing without any."""
    total = sum(part.total_ns for part in attribution.values())
    if total:
        share = sum(part.attributed_ns for part in attribution.values()) / total
        note = said("of operator time, to {targets}", targets=attributed_to(attribution))
        yield Fact(said("Attributed"), percent(share), note)


# --- What tracing cost, how that is known, and what operators were attributed to.


def _parts(of: ReportInput) -> tuple[Part, ...]:
    run = of.analysis.run
    groups = (
        grouped(said("Profiling overhead"), _plain_values(run.overhead)),
        grouped_by_name(said("Attribution"), run.attribution, of_devices(noun_of(of.analysis))),
        grouped(said("Warm-up, not in this run"), stated(run.warmup)),
    )
    lead = joined(" ", _sentences(of.analysis))
    known = tuple(group for group in groups if group.rows)
    return (Part(lead=lead, groups=known, always=True),) if run.calls or run.commands else ()


def _plain_values(overhead: Overhead) -> Mapping[str, Any]:
    """Return the known values of the profiling overhead, with their method as text in place of
    codes."""
    codes = ("estimated_by", "method", "unknown")
    values = {k: v for k, v in stated(overhead).items() if k not in codes}
    how = method(overhead)
    return {**values, "method": how} if how else values


def _sentences(analysis: Analysis) -> Iterator[str]:
    run = analysis.run
    yield said("Profiling overhead: {cost}.", cost=_cost(run.overhead) or unmeasured(run.recording))
    if run.attribution:
        yield _attribution(run.attribution)
    for name, duration_ns, busy_ns in asynchronous(analysis):
        yield said(
            "{name} returns before its device is done: {calls} in calls, {device} of device time.",
            name=name,
            calls=duration(duration_ns),
            device=duration(busy_ns),
        )


def _cost(overhead: Overhead) -> str:
    """Return the profiling overhead as far as the producer measured it; "" if it did not."""
    parts = [*_share(overhead), *filter(None, (untraced(overhead),))]
    if overhead.hooks_ns is not None:
        parts.append(said("hooks {time}", time=duration(overhead.hooks_ns)))
    parts += _events(overhead)
    if longer := overhead.new_sessions_ns:
        parts.append(said("new sessions {time} longer", time=duration(longer)))
    if not parts:
        return ""
    if waited := overhead.backpressure_ns:
        parts.append(said("pipelines waited {time} for files to be written", time=duration(waited)))
    if overhead.conversion_ns is not None:
        took = duration(overhead.conversion_ns)
        parts.append(said("{time} after the run to write it", time=took))
    return joined(", ", parts)


def _share(overhead: Overhead) -> Iterator[str]:
    if overhead.share is not None:
        share = percent(overhead.share)
        of_whole = said("{share} of {whole}", share=share, whole=share_of(overhead))
        yield joined(", ", [of_whole, how_known(overhead)])
    elif overhead.hooks_ns is not None:
        known = how_known(overhead, stated=False)
        yield joined(", ", filter(None, (said("share not known"), known)))


def _events(overhead: Overhead) -> Iterator[str]:
    """Yield how many operator events were recorded, and their total cost."""
    events, each = overhead.operator_events, overhead.operator_event_ns
    total: float | None = overhead.operators_ns
    if events and total is not None and overhead.measured:
        yield said("{number} operator events: {time}", number=count(events), time=duration(total))
    elif events and each is not None:
        yield said(
            "{number} operator events at {each}: {time}",
            number=count(events),
            each=duration(each),
            time=duration(events * each if total is None else total),
        )


def _attribution(attribution: Mapping[str, Attribution]) -> str:
    shares = {name: part.share for name, part in attribution.items() if part.share is not None}
    if not shares:
        return said("Attribution not measured.")
    each: str = joined(
        ", ",
        [said("{name} {share}", name=name, share=percent(share)) for name, share in shares.items()],
    )
    if len({percent(share) for share in shares.values()}) == 1 and len(shares) > 1:
        same = percent(next(iter(shares.values())))
        each = said("{share} in each submodule", share=same)
    return said(
        "Attributed to {targets}, of operator time: {shares}.",
        targets=attributed_to(attribution),
        shares=each,
    )


SECTION = SectionKind("overhead", 90, said("Profiling overhead"), _parts, group=SectionGroup.RUN)
