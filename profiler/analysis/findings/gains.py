"""What findings gain on a device with a queue: not the time of the work that goes, but what a
replay of the run's launches says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profiler.analysis.findings.finding import Effect, Finding
from profiler.analysis.findings.measures import share
from profiler.analysis.replay.gains import Gain, Gains

__all__ = ["replayed"]


def replayed(finding: Finding, gains: Gains, total_ns: int) -> Finding:
    """`finding` with what following it gains; as it is where a replay says nothing of it.

    `cost_ns` is what is gained with the host as it was recorded.
    """
    effect = finding.effect
    if effect is None or not all(map(gains.covers, effect.submodules)):
        return finding
    gain = _gain(effect, gains)
    evidence = dict(finding.evidence)
    if "saved_ns" in evidence:
        evidence["saved_ns"] = gain.recorded
    if "saved_share" in evidence:
        evidence["saved_share"] = share(gain.recorded, total_ns)
    evidence |= {
        "gain_ns": gain.recorded,
        "gain_low_ns": gain.low,
        "gain_high_ns": gain.high,
    }
    return replace(finding, evidence=evidence, cost_ns=gain.recorded)


def _gain(effect: Effect, gains: Gains) -> Gain:
    own = np.isin(gains.names, effect.submodules)
    if effect.without_branch is None:
        launches = effect.launches + gains.in_mean_launches(own, effect.launches_of)
        return gains.of_work(own, effect.less_ns, launches)
    left = own & (gains.branches == effect.without_branch)
    return gains.without(left, own & ~left, effect.grown)
