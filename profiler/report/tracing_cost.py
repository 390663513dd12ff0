"""How the cost of tracing is known, in words. Taken from a manifest: a wrong type is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from profiler.analysis.manifest_numbers import finite_number
from profiler.messages import Said, joined, said
from profiler.report.units import count, duration

__all__ = ["how_known", "share_of"]

_WHOLES = {
    str(each): each
    for each in (
        said("end to end"),
        said("end to end and other calls"),
        said("the time in calls"),
    )
}


def share_of(overhead: Mapping[str, Any]) -> str:
    """What the share of tracing is of: `"end to end"`, or `"the time in calls"`."""
    given = str(overhead.get("share_of") or "end to end")
    return _WHOLES.get(given, given)


def how_known(overhead: Mapping[str, Any], *, stated: bool = True, brief: bool = False) -> Said:
    """How the cost of tracing is known: `"estimated"`, or `"measured: transformer 5.2 ms a call
    (4.9 ms to 5.6 ms), else estimated"`, with 95 % intervals where there are, and where too few
    calls could be compared, unless it has to be `brief`. `stated`: a cost is stated."""
    measured = overhead.get("measured")
    found = [
        said(
            "{name} {cost} a call{interval}",
            name=name,
            cost=duration(cost),
            interval=_interval(known),
        )
        for name, known in (measured.items() if isinstance(measured, Mapping) else ())
        if isinstance(known, Mapping) and (cost := finite_number(known, "call_ns")) is not None
    ]
    parts = [said("measured: {costs}", costs=joined(", ", found))] if found else []
    if stated and (not found or finite_number(overhead, "estimated_events")):
        estimated = said("else estimated") if found else said("estimated")
        parts.append(joined("", [estimated, _spread(overhead)]))
    return joined(", ", [*parts, *(() if brief else _too_few(overhead))])


def _spread(overhead: Mapping[str, Any]) -> str:
    """How far apart the estimates of a noisy machine lie."""
    low, high = (
        finite_number(overhead, "operator_event_low_ns"),
        finite_number(overhead, "operator_event_high_ns"),
    )
    if low is None or high is None or overhead.get("noisy") is not True:
        return ""
    return said(" (noisy: {low} to {high} an event)", low=duration(low), high=duration(high))


def _too_few(overhead: Mapping[str, Any]) -> Iterator[str]:
    few = overhead.get("too_few")
    counts = [
        said(
            "{name} {traced} traced and {untraced} untraced",
            name=name,
            traced=count(int(finite_number(of, "traced_calls") or 0)),
            untraced=count(int(finite_number(of, "untraced_calls") or 0)),
        )
        for name, of in (few.items() if isinstance(few, Mapping) else ())
        if isinstance(of, Mapping)
    ]
    if counts:
        yield said("too few calls to measure it ({calls})", calls=joined(", ", counts))


def _interval(known: Mapping[str, Any]) -> str:
    low, high = finite_number(known, "call_low_ns"), finite_number(known, "call_high_ns")
    if low is None or high is None:
        return ""
    return said(" ({low} to {high})", low=duration(low), high=duration(high))
