"""How the cost of tracing is known, in words."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.text import Said, count, duration, joined, said
from profiler.trace.manifest_fields import (
    MeasuredCost,
    Overhead,
    Recording,
    ShareOf,
    UnknownCost,
    WhyUnknown,
)

__all__ = ["how_known", "method", "share_of", "unmeasured", "untraced"]

_WHOLES = {
    ShareOf.END_TO_END: said("the time that pipeline calls took"),
    ShareOf.BOTH: said("the time that pipeline calls and other calls took"),
    ShareOf.CALLS: said("the time that calls took"),
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
    """What the share of tracing is of: `"the time that pipeline calls took"`."""
    return _WHOLES[overhead.share_of or ShareOf.END_TO_END]


def unmeasured(recording: Recording | None) -> Said:
    """That nobody measured what tracing cost, and whether it recorded what slows the host most."""
    if recording is not None and recording.with_stack:
        return said("not measured (Python stacks slow the host)")
    if recording is not None and recording.record_shapes:
        return said("not measured (recording operators slows the host)")
    return said("not measured")


def untraced(overhead: Overhead) -> Said | None:
    """What it would have taken without: `"1.20 s without tracing (1.10 s to 1.25 s) in place of
    1.50 s"`; None where nobody knows."""
    if overhead.traced_ns is None or overhead.untraced_ns is None:
        return None
    low, high = overhead.untraced_low_ns, overhead.untraced_high_ns
    interval = ""
    if low is not None and high is not None:
        interval = said(" ({low} to {high})", low=duration(low), high=duration(high))
    return said(
        "{untraced} without tracing{interval} in place of {traced}",
        untraced=duration(overhead.untraced_ns),
        interval=interval,
        traced=duration(overhead.traced_ns),
    )


def method(overhead: Overhead) -> Said:
    """How all that is stated was found, and why the rest is not known."""
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
                "profiling took than later calls of the same input shapes, where the program's own "
                "session had run before"
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
    if cost.why == WhyUnknown.TOO_BUSY:
        return said(
            "what recording the operators of {backend} cost could not be measured, the machine was "
            "too busy: trace some calls only (measure-overhead), and the run measures it",
            backend=cost.backend,
        )
    return said(
        "what recording the operators of {backend} cost was not measured: trace some calls only "
        "(measure-overhead), and the run measures it",
        backend=cost.backend,
    )


def how_known(overhead: Overhead, *, stated: bool = True, brief: bool = False) -> Said:
    """How the cost of tracing is known: `"estimated"`, or `"measured: transformer 5.2 ms a call
    (4.9 ms to 5.6 ms), else estimated"`, with 95 % intervals where there are, and where too few
    calls could be compared, unless it has to be `brief`. `stated`: a cost is stated."""
    found = [
        said(
            "{name} {cost} a call{interval}",
            name=name,
            cost=duration(known.call_ns),
            interval=_interval(known),
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
    """How far apart the estimates of a noisy machine lie."""
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


def _interval(known: MeasuredCost) -> str:
    low, high = known.call_low_ns, known.call_high_ns
    if low is None or high is None:
        return ""
    return said(" ({low} to {high})", low=duration(low), high=duration(high))
