"""Findings: ask every rule, group equal results, and rank them by severity.

    for finding in find(analysis):
        print(finding.severity, finding.rule, finding.evidence)

On a device with a queue, the gain of a finding comes from a replay of the run's launches. The
device time of the removed work alone would overstate it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec.structs import replace

from profiler.analysis.document import Part, SectionKind
from profiler.analysis.dropped_data import unchecked, unchecked_text
from profiler.analysis.finding_text import (
    end_to_end_ns,
    has_other_advice,
    rules,
    scaled,
    share,
    whole_of,
    words,
)
from profiler.analysis.gains import Gain, Gains
from profiler.analysis.profiling_overhead import RECORDING_RULES
from profiler.analysis.result import (
    FINDINGS,
    SEVERITIES,
    Analysis,
    Finding,
    Recorded,
    ReportInput,
    Severity,
)
from profiler.analysis.runtime import Runtime, runtime_of
from profiler.analysis.table_text import Sentences, WordedTable
from profiler.files import plain
from profiler.run.columns import STRING, Column, col, schema
from profiler.text import Said, Value, count, counted, joined, plain_value, said
from profiler.trace.events import NO_RANK, device_kind, rank_of_device

# --- Findings of a rule that are alike on several ranks or devices, merged into one.


def once_for_all_ranks(found: Sequence[Finding]) -> list[Finding]:
    """Merge a rule's findings about several ranks into the one that costs most; its evidence
    `ranks` is the number of ranks."""
    return _once(found, _of_ranks, _for_ranks)


def once_for_all_devices(found: Sequence[Finding]) -> list[Finding]:
    """Merge a rule's findings about several devices of one kind, for one reason, into the one that
    costs most. Its evidence `on_devices` names them, `least_…` and `most_…` are the range of
    values."""
    return _once(found, _of_devices, _for_devices)


def _once(
    found: Sequence[Finding],
    key: Callable[[Finding], Hashable],
    together: Callable[[Finding, Sequence[Finding]], Finding],
) -> list[Finding]:
    """The findings, with those of the same `key`, if it is not None, merged by `together`."""
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
    if not rules()[finding.rule].merged_by or finding.where.device is None:
        return None
    reasons = [name for name in ("cause", "recorded", "data_loader_ns") if name in finding.evidence]
    names = (finding.evidence[name] for name in reasons if not name.endswith("_ns"))
    kind = device_kind(finding.where.device)
    return finding.rule, kind, *reasons, *names


def _for_devices(worst: Finding, several: Sequence[Finding]) -> Finding:
    if len(several) < 2:
        return worst
    extremes: dict[str, Value] = {}
    for name in ("gaps", rules()[worst.rule].merged_by):
        values = [v for one in several if isinstance(v := one.evidence.get(name), int | float)]
        if len(values) == len(several):
            extremes |= {f"least_{name}": min(values), f"most_{name}": max(values)}
    names = tuple(one.where.device or "" for one in several)
    return replace(worst, evidence={**worst.evidence, "on_devices": names, **extremes})


# --- Gains of findings on a device with a queue: by a replay of the run's launches, not the time of
# the removed work.


_NEAR = 0.01  # above the time of the removed work: more than that is gained on the host


def replayed(finding: Finding, gains: Gains, total_ns: int, at_once: float = 1.0) -> Finding:
    """Return `finding` with its gain by replay; unchanged if the replay does not cover it.

    `cost_ns` is the gain with the host as recorded, at most the time of the removed work and of its
    launches; `at_once` is the part of this time that passes if several devices work at once. If it
    exceeds the time of the removed work, `launching_ns` is how long the host took at most to launch
    that work.
    """
    effect = finding.effect
    if effect is None or not all(map(gains.covers, effect.submodules)):
        return finding
    own = np.isin(gains.names, effect.submodules)
    launches = effect.launches + gains.in_mean_launches(own, effect.launches_of)
    less_ns, launching_ns = at_once * effect.less_ns, at_once * gains.host_ns(own, launches)
    if effect.without_branch is None:
        gain = gains.of_work(own, effect.less_ns, launches)
        gain = Gain(
            min(gain.recorded, round(less_ns + launching_ns)), min(gain.never_late, round(less_ns))
        )
    else:
        left = own & (gains.branches == effect.without_branch)
        gain = gains.without(left, own & ~left, effect.grown)
    evidence = dict(finding.evidence)
    if "saved_ns" in evidence:
        evidence["saved_ns"] = gain.recorded
    if "saved_share" in evidence:
        evidence["saved_share"] = share(gain.recorded, total_ns)
    evidence |= {"gain_ns": gain.recorded, "gain_low_ns": gain.low, "gain_high_ns": gain.high}
    if launches and gain.recorded > (1 + _NEAR) * less_ns:
        evidence["launching_ns"] = round(launching_ns)
    return replace(finding, evidence=evidence, cost_ns=gain.recorded)


# --- Every rule, and `find`, which asks them all.
#
# for finding in find(analysis):
#     print(finding.severity, finding.rule, finding.evidence)


_HIGH = 0.20  # of end to end
_MEDIUM = 0.05


def find(
    analysis: Analysis, gains: Callable[[], Gains | None] = lambda: None
) -> tuple[Finding, ...]:
    """Return what the rules find in `analysis`, worst first; `gains` makes the replays of its run.

    Like findings about several ranks or devices are merged. The order is by severity; within one,
    findings about the recording come first, then the highest cost, then unknown costs.
    """
    total = end_to_end_ns(analysis)
    found = [each for rule in rules().values() for each in _several(rule.find(analysis))]
    found = once_for_all_devices(once_for_all_ranks(found))
    known = gains() if any(each.effect is not None for each in found) else None
    if known is not None:
        # Drop advice that may lose time, by replay.
        found = [replayed(each, known, total, _at_once(analysis, each)) for each in found]
        found = [each for each in found if _least_gain(each) >= 0]
    busy = _busy_of_submodules(analysis)
    found = [_within(each, busy, _at_once(analysis, each)) for each in found]
    found = [_of_runtime(_weighed(each, total), analysis) for each in found]
    order = {name: number for number, name in enumerate(rules())}

    def rank(finding: Finding) -> tuple[int, bool, int, int]:
        return (
            SEVERITIES.index(finding.severity),
            finding.rule not in RECORDING_RULES,
            -(finding.cost_ns or 0),
            order[finding.rule],
        )

    return tuple(sorted(found, key=rank))


def _busy_of_submodules(analysis: Analysis) -> dict[str, float]:
    """Return how long any device worked for each submodule, in all of its calls, in ns."""
    rows = scaled(analysis, analysis.submodules.drop_nulls("submodule"), "busy_ns")
    return dict(rows.select("submodule", "busy_ns").iter_rows())


def _at_once(analysis: Analysis, finding: Finding) -> float:
    """Return what part passes of the time that a finding's submodules take on all devices: less
    than 1 if several devices make their calls at once."""
    names = finding.effect.submodules if finding.effect is not None else ()
    total = end_to_end_ns(analysis)
    return max((share(total, whole_of(analysis, name)) for name in names), default=0.0) or 1.0


def _within(finding: Finding, busy: Mapping[str, float], at_once: float) -> Finding:
    """Limit the cost of a finding without a replay to the busy time of its submodules, and to the
    part that passes: what several devices do concurrently is gained once."""
    effect = finding.effect
    if effect is None or not effect.less_ns or "gain_ns" in finding.evidence:
        return finding
    if finding.cost_ns is None:
        return finding
    most = sum(busy[name] for name in effect.submodules if name in busy) or finding.cost_ns
    return replace(finding, cost_ns=round(min(finding.cost_ns * at_once, most)))


def _least_gain(finding: Finding) -> float:
    gain = finding.evidence.get("gain_low_ns", 0)
    return gain if isinstance(gain, int | float) else 0


def _of_runtime(finding: Finding, analysis: Analysis) -> Finding:
    """Add to `finding` the runtime of its submodule, or of the run, if the rule has other advice
    for it."""
    runtime = runtime_of(analysis, finding.where.submodule)
    if runtime is Runtime.TORCH or not has_other_advice(finding, runtime):
        return finding
    return replace(finding, evidence={**finding.evidence, "runtime": runtime})


def _several(found: Finding | Iterable[Finding] | None) -> Iterable[Finding]:
    if found is None:
        return ()
    return (found,) if isinstance(found, Finding) else found


def _weighed(finding: Finding, total: int) -> Finding:
    """`finding` with its severity and its cost as a share of the run; unchanged if its cost is
    unknown."""
    if finding.cost_ns is None:
        return finding
    part = share(finding.cost_ns, total)
    severity: Severity = "high" if part >= _HIGH else "medium" if part >= _MEDIUM else "low"
    return replace(finding, cost_share=part, severity=severity)


# --- Findings as a frame, one row each.


def evidence_text(finding: Finding) -> str:
    """The evidence as a JSON object."""
    values = {name: plain_value(value) for name, value in finding.evidence.items()}
    return json.dumps(values, ensure_ascii=False)


def findings_table(findings: Sequence[Finding]) -> pl.DataFrame:
    """One row per finding (`FINDINGS`), in their order."""
    rows = [
        (
            finding.rule,
            finding.severity,
            finding.cost_ns,
            finding.cost_share,
            evidence_text(finding),
            finding.where.submodule,
            finding.where.layer,
            finding.where.device,
            finding.where.pipeline,
            finding.where.step,
            ", ".join(map(str, finding.where.calls)),
        )
        for finding in findings
    ]
    return pl.DataFrame(rows, schema=schema(FINDINGS), orient="row")


# --- What stands out: findings with their evidence, worst first.


def _parts(of: ReportInput) -> tuple[Part, ...]:
    """Return the part that shows all findings, or that there are none."""
    return (findings_part(of.analysis),)


def findings_part(analysis: Analysis) -> Part:
    """The findings, worst first, and their number; if there are none, how many rules were checked
    and what to record for the others."""
    found = analysis.findings
    lead = said("{findings}.", findings=counted(len(found), "finding"))
    if len(found) > 1:
        lead = said(
            "{findings}, worst first. Gains may overlap and do not add up.",
            findings=counted(len(found), "finding"),
        )
    elif not found:
        lead = said("{checked}.", checked=checked_text(analysis))
    return Part(lead=lead, findings=found, always=True)


def checked_text(analysis: Analysis) -> Said:
    """Return what a run without findings says: `"14 of 17 rules checked, none applies; 3 need
    shapes: Record with record_shapes=True"`."""
    checked, rest = none_applies(analysis), unchecked_text(analysis)
    return checked if rest is None else joined("; ", [checked, rest])


def none_applies(analysis: Analysis) -> Said:
    """`"14 of 17 rules checked, none applies"`, or `"17 rules checked, none applies"`."""
    left = sum(len(some) for some, _ in unchecked(analysis).values())
    known = counted(len(rules()), "rule")
    if not left:
        return said("{rules} checked, none applies", rules=known)
    checked = count(len(rules()) - left)
    return said("{checked} of {rules} checked, none applies", checked=checked, rules=known)


SECTION = SectionKind("findings", 20, said("Findings"), _parts, tables=("findings",))


# --- Findings with their sentences, as files, SQL and JSON have them.


_WORDS: tuple[Column, ...] = (
    col("title", STRING, "what was found, in one sentence"),
    col("caveat", STRING, "what misleads, or breaks, when one follows it blindly"),
    col("recommendation", STRING, "what to do"),
)


def findings_frame(findings: Sequence[Finding]) -> pl.DataFrame:
    """One row per finding (the columns of `WORDED`), in their order."""
    said = [words(finding) for finding in findings]
    return findings_table(findings).with_columns(
        pl.Series(column.name, [str(getattr(each, column.name)) for each in said], column.dtype)
        for column in _WORDS
    )


def _row(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON has it: codes and values, and the sentences that people read."""
    said = plain(words(finding))
    values = plain(replace(finding, evidence={}, effect=None))
    values.pop("effect")  # replayed by now: `evidence` and `cost_ns` have what it comes to
    return {
        "rule": finding.rule,
        **said,
        **values,
        "evidence": {n: plain_value(value) for n, value in finding.evidence.items()},
    }


WORDED = WordedTable(
    table="findings",
    columns=(*FINDINGS, *_WORDS),
    frame=lambda analysis: findings_frame(analysis.findings),
    rows=lambda analysis: [_row(each) for each in analysis.findings],
)


# --- Sentences about codes in the evidence of findings.


SENTENCES: Sentences = {
    Recorded: {
        Recorded.PYTHON_STACKS: "with Python stacks, which slow the host",
        Recorded.OPERATORS: "with each operator, which slows the host",
    },
    Runtime: {
        Runtime.TORCH: "torch",
        Runtime.COMPILED: "torch.compile",
        Runtime.ONNXRUNTIME: "ONNX Runtime",
        Runtime.XLA: "XLA",
        Runtime.OTHER: "another runtime than torch",
    },
}
