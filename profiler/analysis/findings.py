"""Findings: ask every rule, group equal results, and rank them by severity.

    for finding in find(analysis):
        print(finding.severity, finding.rule, finding.evidence)

On a device with a queue, the gain of a finding comes from a replay of the run's launches. The
device time of the removed work alone would overstate it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from profiler.analysis.document import Part, SectionKind
from profiler.analysis.dropped_data import unchecked, unchecked_text
from profiler.analysis.finding_text import (
    end_to_end_ns,
    has_other_advice,
    rules,
    scaled,
    share,
    words,
)
from profiler.analysis.profiling_overhead import (
    RECORDING_RULES,
)
from profiler.analysis.replay import Gains
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
from profiler.text import Said, Value, counted, joined, plain_value, said
from profiler.trace.events import NO_RANK, device_kind, rank_of_device

# --- What a rule says of several ranks or devices alike, said once.


_SHARES = {
    "exposed_collectives": "exposed_share",
    "host_bound": "host_wait_share",
    "idle_gaps": "gap_share",
    "transfers_exposed": "data_wait_share",
}
"""Rules that look at one device after the other, with the evidence that says how bad it is."""
_RANGES = ("gaps", *_SHARES.values())


def once_for_all_ranks(found: Sequence[Finding]) -> list[Finding]:
    """What a rule says of the devices of several ranks, of the one if it costs most; its
    evidence `ranks` is of how many it says so."""
    return _once(found, _of_ranks, _for_ranks)


def once_for_all_devices(found: Sequence[Finding]) -> list[Finding]:
    """What a rule says of several devices of one kind for one reason, of the one if it costs
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
    names = (finding.evidence[name] for name in reasons if not name.endswith("_ns"))
    kind = device_kind(finding.where.device)
    return finding.rule, kind, *reasons, *names


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


# --- What findings gain on a device with a queue: not the time of the work that goes, but what a
# replay of the run's launches says.


_NEAR = 0.01  # above the time of the work that goes: what is more is the host's


def replayed(finding: Finding, gains: Gains, total_ns: int) -> Finding:
    """`finding` with what following it gains; as it is where a replay says nothing of it.

    `cost_ns` is what is gained with the host as it was recorded; of a gain that is more than the
    work itself takes, `launching_ns` is how long the host took at most to launch that.
    """
    effect = finding.effect
    if effect is None or not all(map(gains.covers, effect.submodules)):
        return finding
    own = np.isin(gains.names, effect.submodules)
    launches = effect.launches + gains.in_mean_launches(own, effect.launches_of)
    if effect.without_branch is None:
        gain = gains.of_work(own, effect.less_ns, launches)
    else:
        left = own & (gains.branches == effect.without_branch)
        gain = gains.without(left, own & ~left, effect.grown)
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
    if launches and gain.recorded > (1 + _NEAR) * effect.less_ns:
        evidence["launching_ns"] = round(gains.host_ns(own, launches))
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
    """What the rules find in `analysis`, worst first; `gains` makes the replays of its run.

    What a rule says of several ranks or devices alike is said once. In order of severity; within
    one, what the trace itself lacks comes before what has a cost, the highest first, and before
    what has none that is known.
    """
    total = end_to_end_ns(analysis)
    found = [each for rule in rules().values() for each in _several(rule.find(analysis))]
    found = once_for_all_devices(once_for_all_ranks(found))
    known = gains() if any(each.effect is not None for each in found) else None
    if known is not None:
        # What a replay says may lose time is no advice.
        found = [replayed(each, known, total) for each in found]
        found = [each for each in found if _least_gain(each) >= 0]
    busy = _busy_of_submodules(analysis)
    found = [_of_runtime(_weighed(_within(each, busy), total), analysis) for each in found]
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
    """How long any device worked for each submodule, in all of its calls."""
    rows = scaled(analysis, analysis.submodules.drop_nulls("submodule"), "busy_ns")
    return dict(rows.select("submodule", "busy_ns").iter_rows())


def _within(finding: Finding, busy: Mapping[str, float]) -> Finding:
    """`finding`, of which no replay tells the gain, with no higher cost than that any device works
    for its submodules: what several do at once is gained once."""
    effect = finding.effect
    if effect is None or not effect.less_ns or "gain_ns" in finding.evidence:
        return finding
    most = sum(busy[name] for name in effect.submodules if name in busy)
    if finding.cost_ns is None or not most or finding.cost_ns <= most:
        return finding
    return replace(finding, cost_ns=round(most))


def _least_gain(finding: Finding) -> float:
    gain = finding.evidence.get("gain_low_ns", 0)
    return gain if isinstance(gain, int | float) else 0


def _of_runtime(finding: Finding, analysis: Analysis) -> Finding:
    """`finding` with what executed the run, or the submodule that it is about, if the rule has
    other advice for that."""
    runtime = runtime_of(analysis, finding.where.submodule)
    if runtime is Runtime.TORCH or not has_other_advice(finding, runtime):
        return finding
    return replace(finding, evidence={**finding.evidence, "runtime": runtime})


def _several(found: Finding | Iterable[Finding] | None) -> Iterable[Finding]:
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


# --- Findings as a frame, one row each.


def evidence_text(finding: Finding) -> str:
    """The evidence as a JSON object."""
    values = {name: plain_value(value) for name, value in finding.evidence.items()}
    return json.dumps(values, ensure_ascii=False)


def findings_table(findings: Sequence[Finding]) -> pl.DataFrame:
    """One row a finding (`FINDINGS`), in their order."""
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
    """All findings, or that no rule has evidence."""
    return (findings_part(of.analysis),)


def findings_part(analysis: Analysis) -> Part:
    """The findings, worst first, and how many there are; of none how many rules were checked, and
    what to record for the others."""
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
    """`"14 rules checked, none applies; 3 need shapes: Record with record_shapes=True"`, of a run
    without findings."""
    checked, rest = none_applies(analysis), unchecked_text(analysis)
    return checked if rest is None else joined("; ", [checked, rest])


def none_applies(analysis: Analysis) -> Said:
    """`"14 rules checked, none applies"`."""
    left = sum(len(some) for some, _ in unchecked(analysis).values())
    return said("{rules} checked, none applies", rules=counted(len(rules()) - left, "rule"))


SECTION = SectionKind(
    "findings",
    20,
    said("Findings"),
    _parts,
    tables=("findings",),
)


# --- Findings with their sentences, as files, SQL and JSON have them.


_WORDS: tuple[Column, ...] = (
    col("title", STRING, "what was found, in one sentence"),
    col("caveat", STRING, "what misleads, or breaks, when one follows it blindly"),
    col("recommendation", STRING, "what to do"),
)


def findings_frame(findings: Sequence[Finding]) -> pl.DataFrame:
    """One row a finding (the columns of `WORDED`), in their order."""
    said = [words(finding) for finding in findings]
    return findings_table(findings).with_columns(
        pl.Series(column.name, [str(getattr(each, column.name)) for each in said], column.dtype)
        for column in _WORDS
    )


def _row(finding: Finding) -> dict[str, Any]:
    """Codes and values, and the sentences that people read."""
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


# --- What is said of the codes in the evidence of findings.


SENTENCES: Sentences = {
    Recorded: {
        Recorded.PYTHON_STACKS: said("with Python stacks, which slow the host"),
        Recorded.OPERATORS: said("with each operator, which slows the host"),
    },
    Runtime: {
        Runtime.TORCH: said("torch"),
        Runtime.COMPILED: said("torch.compile"),
        Runtime.ONNXRUNTIME: said("ONNX Runtime"),
        Runtime.XLA: said("XLA"),
        Runtime.OTHER: said("another runtime than torch"),
    },
}
