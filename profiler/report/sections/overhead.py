"""What tracing cost, how that is known, and what operators were attributed to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from profiler.analysis.manifest_numbers import finite_number
from profiler.analysis.result import Analysis
from profiler.messages import joined, said
from profiler.report.facts import attributed_to, grouped, grouped_by_name
from profiler.report.headline import asynchronous
from profiler.report.model import Part, ReportInput, SectionKind
from profiler.report.tracing_cost import how_known, share_of
from profiler.report.units import count, duration, percent

__all__ = ["SECTION"]


def _parts(of: ReportInput) -> tuple[Part, ...]:
    run = of.analysis.run
    groups = (
        grouped(said("Cost of tracing"), run.overhead),
        grouped_by_name(said("Attribution"), run.attribution),
        grouped(said("Warm-up, not in this run"), run.warmup),
    )
    lead = joined(" ", _sentences(of.analysis))
    known = tuple(group for group in groups if group.rows)
    return (Part(lead=lead, groups=known, always=True),) if run.calls or run.commands else ()


def _sentences(analysis: Analysis) -> Iterator[str]:
    run = analysis.run
    yield said("Cost of tracing: {cost}.", cost=_cost(run.overhead))
    if run.attribution:
        yield _attribution(run.attribution)
    for name, total_ns, busy_ns in asynchronous(analysis):
        yield said(
            "{name} returns before its device is done: {calls} in calls, {device} of device time.",
            name=name,
            calls=duration(total_ns),
            device=duration(busy_ns),
        )


def _cost(overhead: Mapping[str, Any]) -> str:
    """What tracing cost, as far as the producer measured it."""
    parts = [*_share(overhead)]
    hooks = finite_number(overhead, "hooks_ns")
    if hooks is not None:
        parts.append(said("hooks {time}", time=duration(hooks)))
    parts += _events(overhead)
    if not parts:
        return said("not measured")
    if waited := finite_number(overhead, "backpressure_ns"):
        parts.append(said("pipelines waited {time} for files to be written", time=duration(waited)))
    conversion = finite_number(overhead, "conversion_ns")
    if conversion is not None:
        parts.append(said("after the run {time} to write it", time=duration(conversion)))
    return joined(", ", parts)


def _share(overhead: Mapping[str, Any]) -> Iterator[str]:
    share = finite_number(overhead, "share")
    if share is not None:
        of_whole = said("{share} of {whole}", share=percent(share), whole=share_of(overhead))
        yield joined(", ", [of_whole, how_known(overhead)])
    elif finite_number(overhead, "hooks_ns") is not None:
        known = how_known(overhead, stated=False)
        yield joined(", ", filter(None, (said("share not known"), known)))


def _events(overhead: Mapping[str, Any]) -> Iterator[str]:
    """How many events of operators were recorded, and what they cost together."""
    events, each = (
        finite_number(overhead, "operator_events"),
        finite_number(overhead, "operator_event_ns"),
    )
    total = finite_number(overhead, "operators_ns")
    if events and total is not None and overhead.get("measured"):
        yield said(
            "{number} operator events: {time}", number=count(int(events)), time=duration(total)
        )
    elif events and each is not None:
        yield said(
            "{number} operator events at {each}: {time}",
            number=count(int(events)),
            each=duration(each),
            time=duration(events * each if total is None else total),
        )


def _attribution(attribution: Mapping[str, Any]) -> str:
    shares = {
        name: share
        for name, part in attribution.items()
        if isinstance(part, Mapping) and (share := finite_number(part, "share")) is not None
    }
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


SECTION = SectionKind("overhead", 120, said("Cost of tracing"), _parts, contents=said("Overhead"))
