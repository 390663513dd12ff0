"""Rules about the trace itself: whether its numbers can be believed."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.measures import as_percent, share, total_ns
from profiler.analysis.result import Analysis
from profiler.messages import said
from profiler.trace.manifest_fields import Overhead

__all__ = ["incomplete_trace", "tracing_overhead", "unaccounted_time"]

_OVERHEAD = 0.10  # of end to end: beyond it shares of small operators are off by more than a tenth
_OVERHEAD_LOW = 0.05  # its lower bound: an estimate that may be half of that proves nothing
_OVERHEAD_HIGH = 0.25
_RESIDUAL = 0.01  # what the accounting identity promises at most
_RESIDUAL_MEDIUM = 0.05


def incomplete_trace(analysis: Analysis) -> Finding | None:
    """Something was executed that is not in the trace."""
    losses = analysis.losses
    if not losses:
        return None
    kinds = tuple(dict.fromkeys(loss.kind for loss in losses))
    known = [loss for loss in losses if loss.count >= 0]
    worst = next((loss for loss in losses if loss.kind.time_missing), losses[0])
    evidence: dict[str, int | float | str] = {
        "losses": len(losses),
        "kinds": ", ".join(kinds),
        "worst": worst.detail,
    }
    for unit in dict.fromkeys(loss.unit for loss in known):
        name = f"lost_{unit}".rstrip("_").replace(" ", "_")
        evidence[name] = sum(loss.count for loss in known if loss.unit == unit)
    return Finding(
        rule="incomplete_trace",
        title=said(
            "The trace lacks part of what ran: {kind} in {where}",
            kind=worst.kind.replace("_", " "),
            where=worst.where,
        ),
        evidence=evidence,
        hazard=said("Sums and shares are of what is left; idle time may be work not recorded."),
        remedy=said(
            "Read the losses in the head of the report. Copy cut or missing files again, else "
            "record again: fewer calls with operators, or fewer pipeline calls, where events "
            "dropped."
        ),
        severity="high" if worst.kind.time_missing else "medium",
    )


def tracing_overhead(analysis: Analysis) -> Finding | None:
    """Recording took so much of the run that operator times are in doubt."""
    overhead, total = analysis.run.overhead, total_ns(analysis)
    found = overhead.share
    if found is None or found < _OVERHEAD:
        return None
    low = found - share(_doubtful_ns(overhead), total)
    if low < _OVERHEAD_LOW:
        return None
    title = (
        said(
            "Tracing took {share} of the run: operator times are not to be trusted",
            share=as_percent(found),
        )
        if found < 1
        else said(
            "What tracing took is estimated at more than the run itself: operator times are not "
            "to be trusted"
        )
    )
    return Finding(
        rule="tracing_overhead",
        title=title,
        evidence={
            "overhead_share": found,
            "overhead_low_share": low,
            "operators_ns": round(overhead.operators_ns or 0),
            "hooks_ns": overhead.hooks_ns or 0,
            "operator_events": overhead.operator_events or 0,
        },
        hazard=said(
            "Each recorded operator costs about the same, so short ones look longer than they "
            "are, and a device may wait for a host that is busy recording."
        ),
        remedy=said(
            "Believe calls and steps before operators. Trace fewer calls (--ops every:4), "
            "leave some untraced (--calibrate) and compare the untraced column."
        ),
        severity="high" if found >= _OVERHEAD_HIGH else "medium",
    )


def unaccounted_time(analysis: Analysis) -> Finding | None:
    """The stages do not add up to the end-to-end time."""
    account = analysis.accounting
    if not account.possible or account.residual_share <= _RESIDUAL:
        return None
    return Finding(
        rule="unaccounted_time",
        title=said(
            "{share} of the run is in no stage, or in several",
            share=as_percent(account.residual_share),
        ),
        evidence={
            "residual_share": account.residual_share,
            "between_stages_ns": account.gap_ns,
            "outside_its_stage_ns": account.outside_ns,
            "in_several_stages_ns": account.overlap_ns,
        },
        hazard=said(
            "Shares of stages are off by as much; work of the pipeline's own that no hook sees "
            "hides in the gaps."
        ),
        remedy=said(
            "Look at the timeline between the stages. Give own submodules and host work to "
            "profile(submodules=…), or record overlapping pipeline calls one after the other."
        ),
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
