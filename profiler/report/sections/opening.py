"""What a reader with thirty seconds needs of a run: the 40 lines of a terminal, a page's first
screen.

    opening_of(ReportInput(analysis, begin_ns, end_ns)).facts[0]  # end to end

Both render the same values, so that their figures are equal.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from msgspec.structs import replace

from profiler.analysis.findings import trust
from profiler.analysis.findings.finding import Finding
from profiler.analysis.result import Analysis
from profiler.analysis.shapes.columns import SHAPES
from profiler.analysis.shapes.costliest import costliest_shapes
from profiler.analysis.submodules.columns import SUBMODULES
from profiler.analysis.timelines import timelines_of
from profiler.analysis.work.registry import Family
from profiler.report.facts import (
    calls_from_facts,
    cost_fact,
    coverage_facts,
    drops_fact,
    end_to_end_fact,
    host_times_facts,
    residual_fact,
    unrecorded_facts,
)
from profiler.report.known_work import with_known_work
from profiler.report.model import Advice, Fact, Opening, ReportInput, Summary, TableView
from profiler.report.peaks import OF_PEAK, with_of_peak
from profiler.report.sections.device_use import device_facts
from profiler.report.sections.requests import of_requests, request_facts
from profiler.report.sections.step_bars import step_bars
from profiler.report.sections.time import calls_overlap
from profiler.report.sentences.findings.changes import change
from profiler.report.sentences.findings.words import words
from profiler.report.sentences.worded import label
from profiler.report.step_kinds import by_cache
from profiler.report.told_apart import with_template_arguments
from profiler.report.views import renamed, table
from profiler.run.columns import Column
from profiler.text import count, counted, duration, joined, of_all, said

__all__ = ["opening_of"]

_LARGEST = 3  # submodules
_AT_ONCE = 1.05  # times what a device was busy
_FINDINGS = 3
_COSTLIEST = 5  # shapes
_SUBMODULES = (
    "submodule",
    "elapsed_ns",
    "share",
    "calls",
    "median_ns",
    "busy_ns",
    "launch_bound_ns",
    "device",
)
_SHAPES = (
    "label",
    "total_ns",
    "share",
    OF_PEAK,
    "bound",
    "executions",
)
_READ_NEXT = {  # sections, by rule
    "compilation": "time",
    "cpu_fallback": "idle",
    "data_movement": "roofline",
    "decode_peak": "memory",
    "encoder_dominates": "time",
    "known_ahead": "guidance",
    "little_headroom": "memory",
    "negative_prompt": "guidance",
    "outlier_steps": "time",
    "outside_nodes": "calls",
    "recomputed": "guidance",
    "separate_guidance": "guidance",
    "slow_products": "roofline",
    "step_cache": "guidance",
    "step_drift": "time",
    "straggler": "ranks",
    "host_bound": "idle",
    "idle_gaps": "idle",
    "idle_device": "idle",
    "transfers_exposed": "idle",
    "host_between_steps": "idle",
    "scheduler_sync": "idle",
}
_ELSE_NEXT = ("idle", "roofline", "shapes", "time")
_MOST_NEXT = 2


def opening_of(of: ReportInput, summary: Summary) -> Opening:
    """The opening of the report, below what its `summary` begins with."""
    analysis = of.analysis
    selected = bool(analysis.run.selection)
    bars = step_bars(analysis.steps, analysis.calls) if analysis.step_summary.count > 1 else ()
    advised = _advised(analysis.findings)[: of.most(_FINDINGS)]
    return Opening(
        headline=summary.headline,
        subject=summary.subject,
        selection=summary.selection,
        against=summary.against,
        facts=(
            end_to_end_fact(analysis, of.span_ns),
            *(() if selected else device_facts(analysis)),
            *_steps(analysis),
            *request_facts(analysis),
        ),
        checks=tuple(_checks(analysis)),
        bars=bars[:1],
        submodules=_submodules(of),
        advice=tuple(_advice(finding) for finding in advised),
        advice_title=_advice_title(analysis.findings, advised),
        shapes=_shapes(of),
        sections=_next(advised, served=of_requests(analysis)),
    )


def _steps(analysis: Analysis) -> Iterator[Fact]:
    steps, account = analysis.step_summary, analysis.accounting
    if steps.count == 1:
        yield Fact(said("Steps"), count(steps.count), duration(steps.median_ns))
    elif steps.count:
        low, high = duration(steps.min_ns), duration(steps.max_ns)
        notes = [
            by_cache(steps) or said("median {median}", median=duration(steps.median_ns)),
            said("{low} to {high}", low=low, high=high),
        ]
        notes += [counted(len(steps.outliers), "outlier")] if steps.outliers else []
        yield Fact(said("Steps"), count(steps.count), joined(", ", notes))
    elif account.in_iterations:
        mean = duration(account.end_to_end_ns / account.iterations)
        yield Fact(said("Iterations"), count(account.iterations), said("mean {time}", time=mean))


def _checks(analysis: Analysis) -> Iterator[Fact]:
    """What the recording left out, added or did not tell, and whether that is bad news."""
    fired = {finding.rule for finding in analysis.findings}
    yield _dropped(analysis)
    yield cost_fact(analysis)
    yield residual_fact(analysis)
    for fact in coverage_facts(analysis.run.coverage):
        yield replace(fact, alert=trust.uncaptured_modules.__name__ in fired)
    for fact in unrecorded_facts(analysis):
        yield replace(fact, note=said("neither idle nor end to end"), alert=True)
    yield from host_times_facts(analysis)
    recording = analysis.run.recording
    if recording is not None and recording.calls_from is not None and recording.calls_from.guessed:
        for fact in calls_from_facts(analysis):
            yield replace(fact, alert=True)


def _dropped(analysis: Analysis) -> Fact:
    """How many drops there are, the worst of them, and whether time is missing."""
    fact, drops = drops_fact(analysis), analysis.drops
    if not drops:
        return fact
    worst = next((drop for drop in drops if drop.kind.time_missing), drops[0])
    note = said("{kind} in {where}", kind=label(worst.kind), where=worst.where)
    if len(drops) > 1:
        note = said("{first} and {more} more", first=note, more=count(len(drops) - 1))
    if worst.kind.time_missing:
        note = said("{what}; not everything that ran is in the figures", what=note)
    return replace(fact, note=note)


def _submodules(of: ReportInput) -> TableView | None:
    """The largest submodules by elapsed time."""
    rows = of.analysis.submodules.filter(pl.col("calls") > 0)
    rows = with_known_work(rows, of.analysis.calls, "submodule")
    shown = min(of.most(_LARGEST), len(rows))
    title = said("Submodules by elapsed time")
    if shown < len(rows):
        title = joined(", ", [title, of_all(shown, len(rows))])
    if calls_overlap(of.analysis):
        title = said("{title}; share counts overlapping calls once", title=title)
    return table(
        "opening_submodules",
        title,
        [name for name in _SUBMODULES if name != "busy_ns" or rows[name].sum()],
        SUBMODULES,
        rows,
        shown=shown,
        held=shown,
        sort="elapsed_ns",
    )


def _shapes(of: ReportInput) -> TableView | None:
    """The costliest shapes, or what ran where no shapes are known. The costliest matrix product
    is among them: below the others, where it is none of them."""
    timelines = timelines_of(of.analysis.calls, of.analysis.drops)
    rows = costliest_shapes(of.analysis.shapes, timelines).pipe(with_of_peak)
    shown = min(of.most(_COSTLIEST), len(rows))
    known = rows["shapes"].null_count() < len(rows)
    products = rows.with_row_index("row").filter(pl.col("family") == Family.MATMUL)
    which = of_all(shown, len(rows))
    title = said("Costliest shapes, {which}", which=which)
    columns: list[str | Column] = [*_SHAPES]
    if not known:
        columns[0] = renamed(SHAPES, "label", label=said("operator"))
        title = said("Costliest operators, {which}: no shapes were recorded", which=which)
    elif shown == _COSTLIEST and len(products) and products["row"][0] >= shown:
        title = said("Costliest shapes, {which}, and the costliest matrix product", which=which)
        rows = pl.concat([rows.head(shown), rows[products["row"][0]]])
        shown += 1
    if _adds_up_tracks(of.analysis):
        title = said("{title}; tracks add up", title=title)
    rows = with_template_arguments(rows.head(shown))
    columns[1:1] = _apart(rows)
    return table("opening_shapes", title, columns, SHAPES, rows, shown=shown, held=shown)


def _adds_up_tracks(analysis: Analysis) -> bool:
    """Whether what a device ran at the same time makes sums longer than it was busy."""
    sums = analysis.shapes.group_by("device").agg(pl.col("total_ns").sum())
    both = sums.join(analysis.devices, on="device")
    return not both.filter(pl.col("total_ns") > _AT_ONCE * pl.col("busy_ns")).is_empty()


def _apart(rows: pl.DataFrame) -> list[str | Column]:
    """The columns that it takes to tell rows of one label apart, and of which device's time each
    share is; they stay where the table is narrow. Where some rows are of no call, the submodule
    says which."""
    some = 0 < rows["submodule"].null_count() < len(rows)
    several = rows.group_by("label").agg(pl.col("submodule").n_unique() > 1)["submodule"].any()
    found = ["submodule"] if some or several else []
    devices = rows.select("device", *found).unique()
    if len(devices) > (devices["submodule"].n_unique() if found else 1):
        found.append("device")
    return [renamed(SHAPES, name, importance=0) for name in found]


def _advised(findings: tuple[Finding, ...]) -> list[Finding]:
    """Findings of the run, those whose gain is known first; what is wrong with the trace itself is
    among the checks."""
    checks = trust.RECORDING_RULES - {trust.graph_capture.__name__}
    of_run = [finding for finding in findings if finding.rule not in checks]
    gaining = [finding for finding in of_run if finding.cost_ns]
    return gaining + [finding for finding in of_run if not finding.cost_ns]


def _advice(finding: Finding) -> Advice:
    return Advice(finding, words(finding).title, _gain(finding), change(finding))


def _gain(finding: Finding) -> str:
    """What following it saves at most: `"450 ms"`, `"0 to 160 ms"` where that depends on the
    host's being late."""
    if finding.cost_ns is None:
        return said("not known")
    high = finding.evidence.get("gain_high_ns")
    if not finding.cost_ns and isinstance(high, int | float) and high > 0:
        return said("0 to {high}", high=duration(high))
    return duration(finding.cost_ns)


def _advice_title(findings: tuple[Finding, ...], shown: list[Finding]) -> str:
    if not findings:
        return said("Findings: none")
    if not shown:
        return said("Findings: none of the run, {count} of its trace", count=len(findings))
    return said(
        "Findings, {which}, by maximum gain; gains do not add up",
        which=of_all(len(shown), len(findings)),
    )


def _next(advised: list[Finding], *, served: bool) -> tuple[str, ...]:
    """The sections to read next: those of requests and of the findings, else what most readers look
    at."""
    found = ["requests"] * served + [
        _READ_NEXT[finding.rule] for finding in advised if finding.rule in _READ_NEXT
    ]
    return tuple(dict.fromkeys([*found, *_ELSE_NEXT]))[:_MOST_NEXT]
