"""What a rule says of several ranks or devices alike, said once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from profiler.analysis.findings.finding import Finding
from profiler.text import Value
from profiler.trace.events import NO_RANK, device_kind, rank_of_device

__all__ = ["once_for_all_devices", "once_for_all_ranks"]

_SHARES = {
    "host_bound": "host_wait_share",
    "idle_gaps": "gap_share",
    "transfers_exposed": "data_wait_share",
}
"""Rules that look at one device after the other, with the evidence that says how bad it is."""
_RANGES = ("gaps", *_SHARES.values())


def once_for_all_ranks(found: Sequence[Finding]) -> list[Finding]:
    """What a rule says of the devices of several ranks, of the one where it costs most; its
    evidence `ranks` is of how many it says so."""
    return _once(found, _of_ranks, _for_ranks)


def once_for_all_devices(found: Sequence[Finding]) -> list[Finding]:
    """What a rule says of several devices of one kind for one reason, of the one where it costs
    most: its evidence `on_devices` names them, `least_…` and `most_…` are how far they differ."""
    return _once(found, _of_devices, _for_devices)


def _once(
    found: Sequence[Finding],
    key: Callable[[Finding], Hashable],
    together: Callable[[Finding, Sequence[Finding]], Finding],
) -> list[Finding]:
    """The findings; those of one `key` that is not None as one."""
    alike: dict[Hashable, list[Finding]] = {}
    for number, finding in enumerate(found):
        own = key(finding)
        alike.setdefault((number,) if own is None else own, []).append(finding)
    return [
        together(max(several, key=lambda one: one.cost_ns or 0), several)
        for several in alike.values()
    ]


def _of_ranks(finding: Finding) -> Hashable:
    where = finding.where
    if rank_of_device(where.device or "") == NO_RANK or "ranks" in finding.evidence:
        return None
    return finding.rule, where.submodule, where.layer, where.step


def _for_ranks(worst: Finding, several: Sequence[Finding]) -> Finding:
    ranks = {rank_of_device(one.where.device or "") for one in several}
    if len(ranks) < 2:
        return worst
    return replace(worst, evidence={**worst.evidence, "ranks": len(ranks)})


def _of_devices(finding: Finding) -> Hashable:
    if finding.rule not in _SHARES or finding.where.device is None:
        return None
    reasons = [name for name in ("cause", "recorded", "data_loader_ns") if name in finding.evidence]
    told = (finding.evidence[name] for name in reasons if not name.endswith("_ns"))
    kind = device_kind(finding.where.device)
    return finding.rule, kind, *reasons, *told


def _for_devices(worst: Finding, several: Sequence[Finding]) -> Finding:
    if len(several) < 2:
        return worst
    extremes: dict[str, Value] = {}
    for name in _RANGES:
        values = [v for one in several if isinstance(v := one.evidence.get(name), int | float)]
        if len(values) == len(several):
            extremes |= {f"least_{name}": min(values), f"most_{name}": max(values)}
    names = tuple(one.where.device or "" for one in several)
    return replace(worst, evidence={**worst.evidence, "on_devices": names, **extremes})
