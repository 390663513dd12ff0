"""The overview of a report: headline, key figures, missing data, accounting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
from msgspec.structs import replace

from profiler.analysis.commands import timelines_of, times_recorded
from profiler.analysis.devices import device_facts
from profiler.analysis.document import (
    Advice,
    Fact,
    Opening,
    SectionGroup,
    SectionKind,
    Summary,
    TableView,
)
from profiler.analysis.dropped_data import (
    calls_from_facts,
    drops_fact,
    missing_lines,
    unchecked_lines,
    worst_drop_fact,
)
from profiler.analysis.end_to_end import (
    RESIDUAL_LIMIT,
    asynchronous_facts,
    at_once,
    carried_over_facts,
    end_to_end_fact,
    iteration_notes,
    residual_fact,
    unrecorded_facts,
    work_in_no_call,
)
from profiler.analysis.finding_text import (
    all_events,
    change,
    is_nothing,
    noun_of,
    rules,
    words,
    works_behind,
)
from profiler.analysis.findings import none_applies
from profiler.analysis.flop_shapes import Family
from profiler.analysis.health import (
    as_recorded_facts,
    busy_unknown,
    calls_unknown,
    health_facts,
    is_host_only,
    is_sound,
    lacks_work,
)
from profiler.analysis.operators_section import with_template_arguments
from profiler.analysis.profiling_overhead import (
    RECORDING_RULES,
    attributed_facts,
    cost_fact,
    coverage_facts,
    graph_capture,
    uncaptured_modules,
)
from profiler.analysis.requests import of_requests, request_facts
from profiler.analysis.result import Analysis, Finding, ReportInput, RunSummary, StepSummary
from profiler.analysis.roofline_section import peak_facts
from profiler.analysis.run_headline import events_fact, headline, replay_facts
from profiler.analysis.self_check import contradiction_facts
from profiler.analysis.shapes import OF_PEAK, SHAPES, costliest_shapes, once, with_of_peak
from profiler.analysis.stages import calls_overlap
from profiler.analysis.steps import by_cache, step_bars
from profiler.analysis.submodules import SUBMODULES, are_hidden
from profiler.analysis.table_text import renamed, table, why_not, with_known_idle, with_known_work
from profiler.run.columns import Column
from profiler.run.intervals import batches
from profiler.run.run import Run
from profiler.text import (
    Noun,
    Said,
    count,
    counted,
    duration,
    filled,
    joined,
    of_all,
    percent,
    said,
    sentence,
)
from profiler.trace.events import NO_RANK, device_kind, rank_of_device
from profiler.trace.manifest_fields import AttributedTo, Device, HealthRule

# --- From when to when a run lasted.


def extent(run: Run) -> tuple[int, int]:
    """First and last instant of the run, ns on its clock; (0, 0) if it holds nothing."""
    starts, ends = [], []
    for frame in (run.spans, run.calls, run.commands):
        if len(frame):
            start, duration = frame["start_ns"].to_numpy(), frame["duration_ns"].to_numpy()
            starts.append(int(start.min()))
            ends += [
                int((start[rows] + np.maximum(duration[rows], 0)).max())
                for rows in batches(len(frame))
            ]
    if len(run.counters):
        first, last = run.counters.select(
            pl.col("time_ns").min(), pl.col("time_ns").max().alias("end")
        ).row(0)
        starts.append(first)
        ends.append(last)
    return min(starts, default=0), max(ends, default=0)


# --- What every report says before its tables: key figures, and what ran.
#
# Plain text throughout; each renderer escapes it.


def key_facts(analysis: Analysis, span_ns: int) -> tuple[Fact, ...]:
    """The figures that qualify everything else in the report."""
    return (
        end_to_end_fact(analysis, span_ns),
        *calls_from_facts(analysis),
        *host_times_facts(analysis),
        *noted_times_facts(analysis),
        *replay_facts(analysis),
        *unrecorded_facts(analysis),
        *carried_over_facts(analysis),
        *_median_step(analysis),
        events_fact(analysis),
        cost_fact(analysis),
        *coverage_facts(analysis.run.coverage),
        *attributed_facts(analysis.run.attribution),
        *asynchronous_facts(analysis),
        residual_fact(analysis),
        *recording_facts(analysis),
    )


def host_times_facts(analysis: Analysis) -> Iterator[Fact]:
    """Yield that times of captured calls are the host's, if a device works after they return."""
    behind = works_behind(analysis)
    if behind:
        note = said(
            "{device} works behind them: a call returns once its work is launched, so that times "
            "of calls are not the device's; --ops first,last records these",
            device=behind,
        )
        yield Fact(said("Calls"), said("the host's times"), note, remark=True)


def noted_times_facts(analysis: Analysis) -> Iterator[Fact]:
    """Yield that calls whose operators were not traced were timed on the device."""
    calls = analysis.inputs.run.calls
    noted = calls.filter(pl.col("device_duration_ns").is_not_null())
    if len(noted):
        names = joined(", ", sorted(set(noted["device"].cast(pl.String))))
        note = said(
            "{number} of {calls}, by events ahead of each and behind it on {device}; what it did "
            "in them was not recorded",
            number=count(len(noted)),
            calls=count(len(calls)),
            device=names,
        )
        yield Fact(said("Timed"), said("on the device"), note)


def _median_step(analysis: Analysis) -> Iterator[Fact]:
    steps = analysis.step_summary
    if steps.count:
        notes = filter(None, (by_cache(steps), *_spread(steps)))
        yield Fact(said("Median step"), duration(steps.median_ns), joined(", ", notes))


def _spread(steps: StepSummary) -> Iterator[str]:
    """The shortest and the longest step, and how many outliers there are."""
    yield said("{low} to {high}", low=duration(steps.min_ns), high=duration(steps.max_ns))
    if steps.outliers:
        yield counted(len(steps.outliers), "outlier")


def recording_facts(
    analysis: Analysis, dropped: Callable[[Analysis], Fact] = drops_fact
) -> Iterator[Fact]:
    """Figures that contradict each other, what the recording lacks, and what a check of it counted
    and corrected."""
    yield from contradiction_facts(analysis)
    yield from as_recorded_facts(analysis.inputs.run)
    health = analysis.inputs.run.info.health
    if analysis.drops or is_sound(health):
        yield dropped(analysis)
    yield from _outside_calls(analysis)
    yield from health_facts(health)


_OUTSIDE = 0.1  # of a device's work: from here on, work in no call is reported


def _outside_calls(analysis: Analysis) -> Iterator[Fact]:
    """How much of a device's work belongs to no call, and so to no submodule and no step, unless a
    check says already that it was launched before the recording."""
    before = {
        note.device for note in analysis.inputs.run.info.health if note.rule is HealthRule.BEFORE
    }
    for device, part in analysis.run.attribution.items():
        if part.to is not AttributedTo.CALLS or not part.total_ns or device in before:
            continue
        outside_ns = part.total_ns - part.attributed_ns
        if outside_ns >= _OUTSIDE * part.total_ns:
            yield Fact(
                said("Outside calls"),
                said(
                    "{share} of the work of {device}",
                    share=percent(outside_ns / part.total_ns),
                    device=device,
                ),
                said("{time}, in no submodule and no step", time=duration(outside_ns)),
                remark=True,
            )


def _copied(analysis: Analysis) -> Iterator[Fact]:
    """The files that are copies: all their device work is in other files of the same producer
    too."""
    parts = analysis.inputs.run.info.parts
    every = parts.parts if parts is not None else ()
    producers = Counter(part.producer for part in every)
    for part in every:
        if part.commands and part.twice == part.commands and producers[part.producer] > 1:
            note = said("all its work is in another file, too, and counts once")
            yield Fact(said("Given twice"), joined(", ", part.files), note, remark=True)


# --- What stands above everything: one sentence, what ran and is missing, key figures, accounting.


_DEVICES = 12  # that are named
_MEASURED_AS = ("runtime", "precision")  # settings of a table of measurements (AI Hub)


def summary_of(of: ReportInput) -> Summary:
    """The summary of the run, whatever is selected of it."""
    analysis = of.analysis
    return Summary(
        headline=headline(analysis, of.span_ns),
        subject=_subject(analysis),
        facts=key_facts(analysis, of.span_ns),
        accounting=joined(" ", _accounting(analysis)),
        selection=_selection(analysis.run, noun_of(analysis)),
        missing=tuple(missing_lines(analysis.drops)),
        lost=any(drop.kind.has_missing_time for drop in analysis.drops),
    )


def _subject(analysis: Analysis) -> tuple[str, ...]:
    """Model, pipeline, devices, runtime and precision, time and name of the run, as far as they are
    known."""
    run = analysis.run
    started = run.started.replace("T", " ").replace("+00:00", " UTC")
    names = [*run.devices] or analysis.devices["device"].to_list()
    devices = joined(", ", (_device(name, run.devices.get(name)) for name in names[:_DEVICES]))
    if len(names) > _DEVICES:
        devices = said("{devices} and {more} more", devices=devices, more=len(names) - _DEVICES)
    measured = [str(run.settings.get(name) or "") for name in _MEASURED_AS]
    parts = (run.model, run.pipeline, devices, *measured, started, run.run_id)
    return tuple(part for part in parts if part)


def _device(name: str, known: Device | None) -> str:
    """`rbln:0 (RBLN-CA22)`, `cpu:0 (AMD EPYC 9554, 4 cores)`, or its name."""
    if known is None:
        return name
    found = [known.hardware] if known.hardware else []
    if known.cores:
        found.append(counted(len(known.cores), "core"))
    return said("{name} ({parts})", name=name, parts=joined(", ", found)) if found else name


def _selection(run: RunSummary, noun: Noun) -> str:
    """Return the sentence that tables and figures show a part of the run; "" if they show all of
    it."""
    if not run.selection:
        return ""
    kept = [
        said("{name} {values}", name=said(name), values=", ".join(values))
        for name in ("stage", "submodule", "device", "step")
        if (values := getattr(run.selection, name))
    ]
    return said(
        "The tables and the figures show {kept}: {calls} of {all_calls} calls and {commands} of "
        "{all_commands} {events}. The timeline, the stages and the accounting are those of the "
        "whole run.",
        kept=joined(", ", kept),
        calls=count(run.selected_calls),
        all_calls=count(run.calls),
        commands=count(run.selected_commands),
        all_commands=count(run.commands),
        events=all_events(noun),
    )


def _accounting(analysis: Analysis) -> Iterator[str]:
    """The accounting identity, its residual with the causes, and which time it includes."""
    account = analysis.accounting
    if not account.possible:
        yield said("No accounting of the whole time: {why}.", why=why_not(account.why_not))
    else:
        yield from _identity(analysis)
    if account.profiler_ns:
        took = duration(account.profiler_ns)
        yield said("This leaves out {took} spent waiting for the profiler.", took=took)
    if account.overlapping:
        yield sentence(at_once(account))
    if account.calls_outside:
        yield said(
            "Not in it: {calls} in no pipeline call, {took}.",
            calls=counted(account.calls_outside, "call"),
            took=duration(account.calls_outside_ns),
        )


def _identity(analysis: Analysis) -> Iterator[str]:
    account = analysis.accounting
    names = ("elapsed", "calls", "host")
    sums = {n: sum(getattr(stage, f"{n}_ns") for stage in account.stages) for n in names}
    sums["idle"] = sums["elapsed"] - sums["calls"] - sums["host"]
    worked_ns = min(work_in_no_call(analysis.inputs), sums["idle"])
    template = said(
        "End to end {total} = calls {calls} + host work between them {host} + no call "
        "running {idle} + unaccounted {residual} ({share})."
    )
    if not times_recorded(analysis.inputs.run.info):
        template = said(
            "End to end {total} = calls {calls} + time between them {between} + unaccounted "
            "{residual} ({share}); idle time is not known."
        )
    elif worked_ns:
        template = said(
            "End to end {total} = calls {calls} + host work between them {host} + work of devices "
            "in no call {worked} + no call running {idle} + unaccounted {residual} ({share})."
        )
    values = {
        "total": duration(account.end_to_end_ns),
        "share": percent(account.residual_share),
        "residual": duration(account.unaccounted_ns),
        "worked": duration(worked_ns),
        "between": duration(sums["host"] + sums["idle"]),
        **{name: duration(ns) for name, ns in (sums | {"idle": sums["idle"] - worked_ns}).items()},
    }
    yield filled(template, values)
    causes = [
        said(template, time=duration(ns))
        for template, ns in (
            (said("{time} in no stage"), account.unaccounted_ns),
            (said("{time} outside of the pipeline call"), account.before_after_ns),
        )
        if ns
    ]
    if causes and account.residual_share > RESIDUAL_LIMIT:
        yield said(
            "Unaccounted: {parts}, more than {limit} of end to end.",
            parts=joined(", ", causes),
            limit=percent(RESIDUAL_LIMIT),
        )
    elif causes:
        yield said("Unaccounted: {parts}.", parts=joined(", ", causes))


SECTION = SectionKind("summary", 10, said("Summary"), lambda _: (), group=SectionGroup.SUMMARY)


# --- What a reader with thirty seconds needs of a run: the 40 lines of a terminal, a page's first
# screen.
#
#     opening_of(ReportInput(analysis, begin_ns, end_ns)).facts[0]  # end to end
#
# Both render the same values, so that their figures are equal.


_LARGEST = 3  # submodules
_AT_ONCE = 1.05  # times what a device was busy
_FINDINGS = 3
_COSTLIEST = 5  # shapes
_BASE = 0.01  # of the work in no call: from here on, shares say what they refer to
_LISTED_DEVICES = 3  # as many are counted by kind instead
_SUBMODULES = (
    "submodule",
    "elapsed_ns",
    "span_ns",
    "hidden_ns",
    "share",
    "calls",
    "median_ns",
    "busy_ns",
    "launch_bound_ns",
    "device",
)
_SHAPES = (
    *("label", "total_ns", "share", OF_PEAK),
    renamed(SHAPES, "bound", importance=2),  # phones hide these two
    renamed(SHAPES, "executions", importance=3),
)
_ELSE_NEXT = ("idle", "roofline", "shapes", "time")
_MOST_NEXT = 2


def opening_of(of: ReportInput, summary: Summary) -> Opening:
    """The opening of the report, below what its `summary` starts with."""
    analysis = of.analysis
    selected = bool(analysis.run.selection)
    bars = step_bars(analysis.steps, analysis.calls) if analysis.step_summary.count > 1 else ()
    best = advised(analysis.findings)[: of.most(_FINDINGS)]
    return Opening(
        headline=summary.headline,
        subject=summary.subject,
        selection=summary.selection,
        against=summary.against,
        facts=(
            end_to_end_fact(analysis, of.span_ns),
            *(() if selected else device_facts(analysis)),
            *peak_facts(analysis),
            *_step_facts(analysis),
            *request_facts(analysis),
        ),
        checks=tuple(_checks(analysis)),
        bars=bars[:1],
        submodules=_submodules(of),
        advice=tuple(_advice(finding) for finding in best),
        advice_title=_advice_title(analysis, best),
        advice_notes=() if best else tuple(unchecked_lines(analysis)),
        shapes=_shapes(of),
        sections=_next(best, served=of_requests(analysis)),
    )


def _step_facts(analysis: Analysis) -> Iterator[Fact]:
    steps, account = analysis.step_summary, analysis.accounting
    if steps.count == 1:
        yield Fact(said("Steps"), count(steps.count), duration(steps.median_ns))
    elif steps.count:
        first = by_cache(steps) or said("median {median}", median=duration(steps.median_ns))
        yield Fact(said("Steps"), count(steps.count), joined(", ", (first, *_spread(steps))))
    elif account.in_iterations:
        notes = joined("; ", iteration_notes(analysis))
        yield Fact(said("Iterations"), count(account.iterations), notes)


def _checks(analysis: Analysis) -> Iterator[Fact]:
    """What the recording left out, added or did not tell, and whether that is bad news."""
    yield from recording_facts(analysis, worst_drop_fact)
    yield from _copied(analysis)
    yield residual_fact(analysis)
    yield cost_fact(analysis)
    fired = {finding.rule for finding in analysis.findings}
    for fact in coverage_facts(analysis.run.coverage):
        yield replace(fact, alert=uncaptured_modules.__name__ in fired)
    several = analysis.devices["idle_share"].count() > 1
    for fact in unrecorded_facts(analysis):
        time, note = fact.value, said("not in idle or end to end")
        if several:
            time = said("{time} of the run", time=time)
            note = said("on all devices, not in idle or end to end")
        yield replace(fact, value=time, note=note, remark=True)
    yield from host_times_facts(analysis)
    recording = analysis.run.recording
    if recording is not None and recording.calls_from is not None and recording.calls_from.guessed:
        for fact in calls_from_facts(analysis):
            yield replace(fact, remark=True)


def _submodules(of: ReportInput) -> TableView | None:
    """The largest submodules by elapsed time."""
    rows = of.analysis.submodules.filter(pl.col("calls") > 0)
    rows = with_known_work(rows, of.analysis.calls, "submodule")
    rows = with_known_idle(rows, of.analysis.inputs.run.info)
    shown = min(of.most(_LARGEST), len(rows))
    title = said("Submodules by elapsed time")
    if shown < len(rows):
        title = joined(", ", [title, of_all(shown, len(rows))])
    if calls_overlap(of.analysis):
        title = said("{title}; times add up over devices, shares do not", title=title)
    title, rows = _as_known(of.analysis, title, rows, "share", "busy_ns", "launch_bound_ns")
    devices = [text and _few_devices(text) for text in rows["device"]]
    rows = rows.with_columns(device=pl.Series(devices, dtype=pl.String))
    first = rows.sort("elapsed_ns", descending=True).head(shown)
    columns_shown = {
        "busy_ns": rows["busy_ns"].sum() > 0,
        "span_ns": bool(((first["elapsed_ns"] == 0) & (first["span_ns"] > 0)).any()),
        "hidden_ns": are_hidden(first),
    }
    return table(
        "opening_submodules",
        title,
        [name for name in _SUBMODULES if columns_shown.get(name, True)],
        SUBMODULES,
        rows,
        shown=shown,
        held=shown,
        sort="elapsed_ns",
    )


def _as_known(
    analysis: Analysis, title: Said, rows: pl.DataFrame, *columns: str
) -> tuple[Said, pl.DataFrame]:
    """A table and its title; some columns are null for devices whose busy time is unknown, or for
    all if work may be in others' calls, and the title says so."""
    health = analysis.inputs.run.info.health
    unknown, misplaced = busy_unknown(health), calls_unknown(health)
    if is_host_only(health):
        return title, rows
    if lacks_work(health):
        title = said("{title}; times of devices are lower bounds", title=title)
    elif unknown or misplaced:
        title = said("{title}; times of devices are doubtful", title=title)
    known = [unknown.isdisjoint((devices or "").split(", ")) for devices in rows["device"]]
    every = pl.Series(known, dtype=pl.Boolean) & (not misplaced)
    return title, rows.with_columns(pl.when(every).then(pl.col(name)) for name in columns)


def _few_devices(devices: str) -> str:
    """Shorten a list of devices that would not fit: `rocm:0, rocm:1, rocm:2` → `3 × rocm`. Names of
    ranks are long: two are shortened."""
    names = devices.split(", ")
    of_ranks = len(names) > 1 and rank_of_device(names[0]) != NO_RANK
    if len(names) < _LISTED_DEVICES and not of_ranks:
        return devices
    kinds = Counter(device_kind(name) for name in names)
    return ", ".join(f"{number} × {kind}" for kind, number in kinds.items())


def _shapes(of: ReportInput) -> TableView | None:
    """The costliest shapes, or what ran if no shapes are known. The costliest matrix product
    is among them: below the others, if it is none of them."""
    timelines = timelines_of(of.analysis.calls, of.analysis.drops)
    rows = once(costliest_shapes(of.analysis.shapes, timelines).pipe(with_of_peak))
    shown = min(of.most(_COSTLIEST), len(rows))
    known = rows["shapes"].null_count() < len(rows)
    products = rows.with_row_index("row").filter(pl.col("family") == Family.MATMUL)
    which = of_all(shown, len(rows))
    title = said("Costliest shapes, {which}", which=which)
    columns: list[str | Column] = [*_SHAPES]
    if not known:
        columns[0] = renamed(SHAPES, "label", label=said("op type"))
        if noun_of(of.analysis) == Noun.KERNELS:  # which of them are one execution is not known
            columns[-1] = renamed(SHAPES, "executions", label=said("kernels"), importance=3)
        title = said("Costliest op types, {which}: no shapes were recorded", which=which)
    elif shown == _COSTLIEST and len(products) and products["row"][0] >= shown:
        title = said("Costliest shapes, {which}, and a matrix product", which=which)
        rows = pl.concat([rows.head(shown), rows[products["row"][0]]])
        shown += 1
    if _works_outside(of.analysis.shapes):
        base = renamed(SHAPES, "share", label=said("of work in calls"))
        columns[columns.index("share")] = base
    if _adds_up_tracks(of.analysis):
        title = said("{title}; tracks add up", title=title)
    if rows["several"].head(shown).any():
        title = said("{title}; slowest device", title=title)
    title, rows = _as_known(of.analysis, title, rows, "share", "bound")
    rows = with_template_arguments(rows.head(shown))
    columns[1:1] = _apart(rows)
    return table("opening_shapes", title, columns, SHAPES, rows, shown=shown, held=shown)


def _works_outside(shapes: pl.DataFrame) -> bool:
    """Whether work in no call, which is in no share, is at least 1 % of the work of some device."""
    outside = pl.col("total_ns").filter(pl.col("submodule").is_null()).sum()
    parts = shapes.group_by("device").agg(part=outside / pl.col("total_ns").sum())["part"]
    return shapes["submodule"].is_not_null().any() and bool((parts >= _BASE).any())


def _adds_up_tracks(analysis: Analysis) -> bool:
    """Whether a device's concurrent work makes sums longer than its busy time."""
    sums = analysis.shapes.group_by("device").agg(pl.col("total_ns").sum())
    both = sums.join(analysis.devices, on="device")
    return not both.filter(pl.col("total_ns") > _AT_ONCE * pl.col("busy_ns")).is_empty()


def _apart(rows: pl.DataFrame) -> list[str | Column]:
    """The columns that distinguish rows of one label, and the device that each share refers to;
    narrow tables keep them. If some rows are of no call, the submodule says which."""
    some = 0 < rows["submodule"].null_count() < len(rows)
    several = rows.group_by("label").agg(pl.col("submodule").n_unique() > 1)["submodule"].any()
    found = ["submodule"] if some or several else []
    devices = rows.select("device", *found).unique()
    if rows["several"].any() or len(devices) > (devices["submodule"].n_unique() if found else 1):
        found.append("device")
    return [renamed(SHAPES, name, importance=0) for name in found]


def advised(findings: tuple[Finding, ...]) -> list[Finding]:
    """Return the findings about the run, those whose gain is known first. Findings about the trace
    itself are among the checks."""
    checks = RECORDING_RULES - {graph_capture.__name__}
    of_run = [finding for finding in findings if finding.rule not in checks]
    gaining = [finding for finding in of_run if finding.cost_ns]
    return gaining + [finding for finding in of_run if not finding.cost_ns]


def _advice(finding: Finding) -> Advice:
    return Advice(finding, words(finding).title, _gain(finding), change(finding))


def _gain(finding: Finding) -> str:
    """Return the most that following a finding saves: `"450 ms"`, `"0 to 160 ms"` if that depends
    on how late the host is, "" if it is nothing."""
    if finding.cost_ns is None:
        return said("not known")
    if not finding.cost_share or is_nothing(finding.cost_share, 1.0):
        high = finding.evidence.get("gain_high_ns")
        if isinstance(high, int | float) and high > 0:
            return said("0 to {high}", high=duration(high))
        return ""
    return duration(finding.cost_ns)


def _advice_title(analysis: Analysis, shown: list[Finding]) -> str:
    findings = analysis.findings
    if not findings:
        return said("Findings: {checked}", checked=none_applies(analysis))
    if not shown:
        return said("Findings: none of the run, {count} of its trace", count=len(findings))
    title = said("What to do first: 1 finding; its gain is an upper bound")
    if len(findings) > 1:
        which = of_all(len(shown), len(findings))
        title = said(
            "What to do first: findings, {which}; gains are upper bounds, do not add up",
            which=which,
        )
    if busy_unknown(analysis.inputs.run.info.health):
        title = said("{title}; doubtful, as the recording is", title=title)
    return title


def _next(advised: list[Finding], *, served: bool) -> tuple[str, ...]:
    """The sections to read next: those of requests and of the findings, else what most readers look
    at."""
    found = ["requests"] * served
    found += [rules()[one.rule].section for one in advised if one.rule in rules()]
    return tuple(dict.fromkeys(filter(None, [*found, *_ELSE_NEXT])))[:_MOST_NEXT]
