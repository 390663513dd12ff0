"""What a rule found, as data.

Finding("unfused_attention", {"saved_ns": 160_000_000}, Where("transformer"))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from profiler.text import Value

__all__ = ["SEVERITIES", "Effect", "Evidence", "Finding", "Severity", "Where"]

Severity = Literal["high", "medium", "low"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low")

Evidence = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Where:
    """What a finding is about; None and empty for what does not apply.

    `calls` are numbers of calls (a few of them), in order of time.
    """

    submodule: str | None = None
    layer: str | None = None
    device: str | None = None
    pipeline: int | None = None
    step: int | None = None
    calls: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Effect:
    """What following a finding takes off the device of submodules: `less_ns` of work, and
    `launches` with the host's time for them, a mean one, or `launches_of` operators, by op type,
    with the host's time for theirs; or all calls of a branch, while the others have `grown` times
    the work."""

    submodules: tuple[str, ...]
    less_ns: float = 0.0
    launches: float = 0.0
    launches_of: Mapping[str, float] = field(default_factory=dict)
    without_branch: str | None = None
    grown: float = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of one rule, in codes and numbers; `report.sentences.findings` has its words.

    `evidence` maps names to numbers, whose unit ends the name (`_ns`, `_bytes`, `_share`: 1.0 is
    all; none: a count or ratio), and to names, codes and notes. `cost_ns` is what following it
    saves at most of the run's end-to-end time, None where nobody can tell, and `cost_share` its
    share of that time; costs of several findings may be the same time, they do not add up.
    `severity` follows from `cost_ns` where that is known. Where launches were recorded `effect` is
    replayed: `cost_ns` is what is gained with the host as it was recorded.
    """

    rule: str
    evidence: Evidence
    where: Where = field(default_factory=Where)
    cost_ns: int | None = None
    cost_share: float | None = None
    severity: Severity = "low"
    effect: Effect | None = None
