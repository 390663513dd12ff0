"""Rules about the trace itself: whether its numbers can be believed."""

from __future__ import annotations

from profiler.analysis.findings.codes import TimedBy
from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.measures import (
    accelerators,
    captures_and_replays,
    end_to_end_ns,
    share,
)
from profiler.analysis.result import Analysis
from profiler.text import Value
from profiler.trace.events import GRAPH_CAPTURE, DropKind
from profiler.trace.manifest_fields import Overhead

__all__ = [
    "RECORDING_RULES",
    "graph_capture",
    "incomplete_trace",
    "tracing_overhead",
    "unaccounted_time",
    "uncaptured_modules",
]

_OVERHEAD = 0.10  # of end to end: beyond it shares of small operators are off by more than a tenth
_OVERHEAD_LOW = 0.05  # its lower bound: an estimate that may be half of that proves nothing
_OVERHEAD_HIGH = 0.25
_UNCAPTURED = 0.01  # of the modules' time
_UNCAPTURED_HIGH = 0.10
_NAMED = 5  # modules
_RESIDUAL = 0.01  # what the accounting identity promises at most
_RESIDUAL_MEDIUM = 0.05


def incomplete_trace(analysis: Analysis) -> Finding | None:
    """Something was executed that is not in the trace. That a format has averages alone is in the
    head of the report."""
    drops = [drop for drop in analysis.drops if drop.kind != DropKind.ESTIMATED_TIMES]
    if not drops:
        return None
    kinds = tuple(dict.fromkeys(drop.kind for drop in drops))
    known = [drop for drop in drops if drop.count >= 0]
    worst = next((drop for drop in drops if drop.kind.time_missing), drops[0])
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
        severity="high" if worst.kind.time_missing else "medium",
    )


def graph_capture(analysis: Analysis) -> Finding | None:
    """Graphs were captured: the calls ran nothing on their device where none was replayed, else the
    run holds warm-ups and captures beside replays."""
    recording = analysis.run.recording
    wall_ns = sum(part.wall_ns for part in analysis.accounting.submodules)
    evidence: dict[str, Value] = {"calls": analysis.run.calls, "wall_ns": wall_ns}
    if recording and recording.graphs and captures_and_replays(analysis):
        evidence |= {"captured": recording.graphs.captured, "replays": recording.graphs.replays}
    elif GRAPH_CAPTURE not in analysis.inputs.run.info.capabilities:
        return None
    return Finding(rule="graph_capture", evidence=evidence, severity="high")


def tracing_overhead(analysis: Analysis) -> Finding | None:
    """Recording took so much of the run that operator times are in doubt; those of kernels, which
    the host launched and their device timed, are not: their device waits longer for the host."""
    overhead, total = analysis.run.overhead, end_to_end_ns(analysis)
    found = overhead.share
    if overhead.untraced_ns is not None and overhead.operators_ns is not None:
        total = overhead.untraced_ns + overhead.operators_ns  # what lies between calls is in no one
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
    }
    if len(accelerators(analysis)) and len(analysis.inputs.run.flows):
        evidence["timed_by"] = TimedBy.DEVICE
    return Finding(
        rule="tracing_overhead",
        evidence=evidence,
        severity="high" if found >= _OVERHEAD_HIGH else "medium",
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
            "uncaptured": ", ".join(one.name for one in coverage.uncaptured[:_NAMED]),
        },
        severity="high" if uncaptured >= _UNCAPTURED_HIGH else "medium",
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
            "residual_ns": account.residual_ns,
            "outside_pipeline_ns": account.outside_ns,
        },
        severity="medium" if account.residual_share >= _RESIDUAL_MEDIUM else "low",
    )


def _doubtful_ns(overhead: Overhead) -> float:
    """What recording operators cost beyond the lower end of its interval, or of its estimate."""
    cost, low = overhead.operators_ns or 0.0, overhead.operators_low_ns
    if low is not None:
        return max(cost - low, 0.0)
    each, least = overhead.operator_event_ns, overhead.operator_event_low_ns
    if each is None or least is None:
        return 0.0
    return max(each - least, 0.0) * (overhead.estimated_events or 0)


RECORDING_RULES = frozenset(
    rule.__name__
    for rule in (
        graph_capture,
        incomplete_trace,
        tracing_overhead,
        unaccounted_time,
        uncaptured_modules,
    )
)
"""The rules whose findings are about the recording, not about the run."""
