"""Every rule, and `find`, which asks them all.

for finding in find(analysis):
    print(finding.severity, finding.rule, finding.evidence)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from profiler.analysis.findings import (
    between_calls,
    compilation,
    fusing,
    memory,
    outside_nodes,
    over_time,
    providers,
    ranks,
    redundancy,
    roofline,
    splits,
    step_caches,
    submodules,
    trust,
    waiting,
)
from profiler.analysis.findings.alike import once_for_all_devices, once_for_all_ranks
from profiler.analysis.findings.finding import SEVERITIES, Finding, Severity
from profiler.analysis.findings.gains import replayed
from profiler.analysis.findings.measures import end_to_end_ns, share
from profiler.analysis.replay.gains import Gains
from profiler.analysis.result import Analysis

__all__ = ["RULES", "Rule", "find"]

Rule = Callable[[Analysis], Finding | tuple[Finding, ...] | None]

_HIGH = 0.20  # of end to end
_MEDIUM = 0.05

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        rule.__name__: rule
        for rule in (
            trust.incomplete_trace,
            trust.graph_capture,
            trust.tracing_overhead,
            trust.uncaptured_modules,
            trust.unaccounted_time,
            compilation.compilation,
            step_caches.step_cache,
            over_time.first_call,
            over_time.slow_start,
            over_time.step_drift,
            over_time.outlier_steps,
            waiting.host_bound,
            waiting.idle_gaps,
            between_calls.host_between_steps,
            between_calls.scheduler_sync,
            waiting.transfers_exposed,
            waiting.idle_device,
            outside_nodes.outside_nodes,
            ranks.straggler,
            submodules.encoder_dominates,
            submodules.negative_prompt,
            submodules.separate_guidance,
            splits.track_imbalance,
            splits.device_imbalance,
            fusing.unfused_attention,
            fusing.norm_chains,
            fusing.elementwise_chains,
            fusing.data_movement,
            roofline.launch_bound,
            roofline.slow_products,
            roofline.single_precision,
            redundancy.recomputed,
            redundancy.known_ahead,
            memory.little_headroom,
            memory.decode_peak,
            providers.cpu_fallback,
            providers.provider_switches,
        )
    }
)


def find(
    analysis: Analysis, gains: Callable[[], Gains | None] = lambda: None
) -> tuple[Finding, ...]:
    """What the rules find in `analysis`, worst first; `gains` makes the replays of its run.

    What a rule says of several ranks or devices alike is said once. In order of severity; within
    one, what the trace itself lacks comes before what has a cost, the highest first, and before
    what has none that is known.
    """
    total = end_to_end_ns(analysis)
    found = [each for rule in RULES.values() for each in _several(rule(analysis))]
    found = once_for_all_devices(once_for_all_ranks(found))
    known = gains() if any(each.effect is not None for each in found) else None
    if known is not None:
        found = [replayed(each, known, total) for each in found]
    found = [_weighed(each, total) for each in found]
    order = {name: number for number, name in enumerate(RULES)}

    def rank(finding: Finding) -> tuple[int, bool, int, int]:
        return (
            SEVERITIES.index(finding.severity),
            finding.rule not in trust.RECORDING_RULES,
            -(finding.cost_ns or 0),
            order[finding.rule],
        )

    return tuple(sorted(found, key=rank))


def _several(found: Finding | tuple[Finding, ...] | None) -> tuple[Finding, ...]:
    if found is None:
        return ()
    return (found,) if isinstance(found, Finding) else found


def _weighed(finding: Finding, total: int) -> Finding:
    """`finding` with the share of the run that its cost is, and its severity; as it is where
    that is unknown."""
    if finding.cost_ns is None:
        return finding
    part = share(finding.cost_ns, total)
    severity: Severity = "high" if part >= _HIGH else "medium" if part >= _MEDIUM else "low"
    return replace(finding, cost_share=part, severity=severity)
