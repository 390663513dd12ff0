"""What tracing cost, how that is known, and what operators were attributed to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from profiler.analysis.result import Analysis
from profiler.report.facts import attributed_to
from profiler.report.model import Part, ReportInput, SectionKind
from profiler.report.named_values import grouped, grouped_by_name
from profiler.report.nouns import noun_of, of_devices
from profiler.report.sections.headline import asynchronous
from profiler.report.tracing_cost import (
    how_known,
    method,
    share_of,
    unmeasured,
    untraced,
)
from profiler.text import count, duration, joined, percent, said
from profiler.trace.manifest_fields import Attribution, Overhead, stated

__all__ = ["SECTION"]


def _parts(of: ReportInput) -> tuple[Part, ...]:
    run = of.analysis.run
    groups = (
        grouped(said("Cost of tracing"), _told(run.overhead)),
        grouped_by_name(said("Attribution"), run.attribution, of_devices(noun_of(of.analysis))),
        grouped(said("Warm-up, not in this run"), stated(run.warmup)),
    )
    lead = joined(" ", _sentences(of.analysis))
    known = tuple(group for group in groups if group.rows)
    return (Part(lead=lead, groups=known, always=True),) if run.calls or run.commands else ()


def _told(overhead: Overhead) -> Mapping[str, Any]:
    """What is told of the cost of tracing, with how it was found in place of its codes."""
    codes = ("estimated_by", "method", "unknown")
    told = {k: v for k, v in stated(overhead).items() if k not in codes}
    how = method(overhead)
    return {**told, "method": how} if how else told


def _sentences(analysis: Analysis) -> Iterator[str]:
    run = analysis.run
    yield said("Cost of tracing: {cost}.", cost=_cost(run.overhead) or unmeasured(run.recording))
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
    """What tracing cost, as far as the producer measured it; "" where it did not."""
    parts = [*_share(overhead), *filter(None, (untraced(overhead),))]
    if overhead.hooks_ns is not None:
        parts.append(said("hooks {time}", time=duration(overhead.hooks_ns)))
    parts += _events(overhead)
    if longer := overhead.new_sessions_ns:
        parts.append(said("first calls on new sessions {time} longer", time=duration(longer)))
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
    """How many events of operators were recorded, and what they cost together."""
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


SECTION = SectionKind("overhead", 120, said("Cost of tracing"), _parts)
