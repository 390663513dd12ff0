"""Denoising steps: duration, launch-bound time and outliers of each step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from msgspec.structs import replace

from profiler.analysis.commands import CommandArrays
from profiler.analysis.context import Inputs, shared, steps_of
from profiler.analysis.document import Bars, Figure, Part
from profiler.analysis.host_bound import launch_bound_steps
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, ReportInput, StepSource, StepSummary
from profiler.analysis.step_matrix import (
    DEVIATIONS,
    ENOUGH_VALUES,
    LEAST_RATIO,
    SCALE,
    STEP_OPERATORS,
    Matrix,
    matrix_of,
    outlying,
)
from profiler.analysis.step_outliers import STEP_OUTLIERS
from profiler.analysis.table_text import (
    Sentences,
    changing_parts,
    columns_of,
    explained_outliers,
    label,
    table,
    worded_note,
)
from profiler.analysis.timeline import ON_AXIS, Axis, PipelineCalls, extent, step_keys
from profiler.run.columns import (
    BOOL,
    DATA_ONLY,
    FLOAT64,
    INT64,
    LAYER,
    NS,
    SHARE,
    STRING,
    Column,
    col,
    column_of,
    schema,
    typed,
)
from profiler.run.intervals import Codes, Times, ends, positions, union_by
from profiler.run.launches import device_work
from profiler.run.run import Run
from profiler.text import Note, NoteCode, Said, count, counted, duration, filled, joined, said
from profiler.trace.events import NO_STEP


class OutlierRule(NoteCode):
    """When a step stands out."""

    MEDIAN_DEVIATION = "median_deviation"


# --- The columns of denoising steps.


STEPS: tuple[Column, ...] = (
    column_of(ON_AXIS, "pipeline"),
    column_of(ON_AXIS, "step"),
    col("start_ns", NS, "start of its first call", importance=4),
    col(
        "elapsed_ns",
        NS,
        "from there to the end of its last call, minus time that was not recorded",
    ),
    col(
        "between_ns",
        NS,
        "from the end of the steps before to its start, minus time that was not recorded and the "
        "profiler's own work; 0 if it began before that, null for the first step of a pipeline "
        "call",
        True,
        label="after the step before",
        importance=5,
    ),
    col(
        "between_host_ns",
        NS,
        "part of between_ns in which the host worked, without its waits for devices",
        True,
        label="host work before",
        importance=DATA_ONLY,
    ),
    col(
        "duration_ns",
        NS,
        "length of its span on the host, as recorded; null without one",
        True,
        label="host range",
        importance=16,
    ),
    col("calls", INT64, "calls in the step"),
    col("branches", STRING, 'branches of these calls in order of time: "cond, uncond"'),
    col(
        "skipped_share",
        SHARE,
        "share of the blocks that a step cache may skip in these calls which it did skip; null "
        "without a step cache",
        True,
        label="skipped blocks",
        importance=1,
    ),
    column_of(ON_AXIS, "calls_ns", importance=1),
    column_of(ON_AXIS, "host_ns", importance=2),
    column_of(ON_AXIS, "idle_ns", importance=2),
    col(
        "busy_ns",
        NS,
        "union of its kernels and copies: commands of every category except host and sync",
        label="device time",
        importance=3,
    ),
    col(
        "span_ns",
        NS,
        "from the start of its first call or work to the end of the last",
        label="begin to end",
        importance=16,
    ),
    col(
        "hidden_ns",
        NS,
        "part of busy_ns before or behind elapsed_ns, beneath calls of other steps",
        label="hidden",
        importance=16,
        hide_if_zero=True,
    ),
    col("outlier", BOOL, "whether it is an outlier by the rule in the summary"),
)


# --- Statistics over the denoising steps of a run, and which of them stand out.


_Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]

OUTLIER_RULE = Note.of(
    OutlierRule.MEDIAN_DEVIATION,
    deviations=DEVIATIONS,
    scale=SCALE,
    excess_share=round(LEAST_RATIO - 1, 6),
    fewest=ENOUGH_VALUES,
)
"""When a step stands out (Leys et al. 2013, J. Exp. Soc. Psychol. 49(4), 764-766)."""


@shared
def summary(of: Inputs) -> StepSummary:
    """Statistics over the selected steps; outliers are those that the table marks."""
    run, steps = of.run, of.table("steps")
    from_spans = bool((run.spans["kind"] == "step").any())
    measured_by = StepSource.STEP_SPANS if from_spans else StepSource.CALLS
    if steps.is_empty():
        return StepSummary(0, 0, 0, 0, 0, (), OUTLIER_RULE, measured_by)
    rows = run.calls["call"].is_in(of.unsteady.implode())
    pipelines = of.pipelines.number_of(run.calls)[rows]
    unsteady = {*zip(pipelines, run.calls["step"].filter(rows), strict=True)}
    durations, keys = steps["elapsed_ns"].to_numpy(), steps.select("pipeline", "step").rows()
    steady = np.array([key not in unsteady for key in keys])
    several = steps["pipeline"].n_unique() > 1
    found = steps.filter("outlier").select("pipeline", "step").iter_rows()
    return StepSummary(
        count=len(durations),
        min_ns=int(durations.min()),
        median_ns=_median(durations, steady),
        max_ns=int(durations.max()),
        mean_ns=round(float(durations.mean())),
        outliers=tuple(f"{pipeline}:{step}" if several else str(step) for pipeline, step in found),
        rule=OUTLIER_RULE,
        measured_by=measured_by,
        **_by_cache(steps["skipped_share"], durations, steady),
    )


def _median(durations: Times, steady: _Flags) -> int:
    """Return the median of the steady durations, or of all if fewer than two are steady."""
    return int(np.median(durations[steady] if np.count_nonzero(steady) > 1 else durations))


def _by_cache(shares: pl.Series, durations: Times, steady: _Flags) -> dict[str, int]:
    """How many steps a step cache left full and in how many it skipped something, with their
    medians; nothing if none was on."""
    found: dict[str, int] = {}
    if shares.is_null().all():
        return found
    skips = skipping(shares)
    for kind, rows in (("full", ~skips), ("skipping", skips)):
        found[f"{kind}_steps"] = int(rows.sum())
        if rows.any():
            found[f"{kind}_median_ns"] = _median(durations[rows], steady[rows])
    return found


def skipping(shares: pl.Series) -> _Flags:
    """In which steps a cache skipped anything, bool [n], by the share of blocks that it skipped."""
    return (shares.fill_null(0.0) > 0).to_numpy()


def outliers(durations: Times, skips: _Flags | None = None) -> _Flags:
    """Which durations stand out by `OUTLIER_RULE` among those of their kind, bool [n]: full steps
    among full ones, those in which a cache skipped something (`skips`) among such."""
    found = np.zeros(len(durations), dtype=np.bool_)
    skips = np.zeros(len(durations), dtype=np.bool_) if skips is None else skips
    for rows in (skips, ~skips):
        own = durations[rows].astype(np.float64)[None]
        found[rows] = outlying(own, own)[0]
    return found


# --- Denoising steps: how long each took, on what, and which stand out.


def step_table(
    run: Run, commands: CommandArrays, pipelines: PipelineCalls, axis: Axis
) -> pl.DataFrame:
    """Return one row per step of each pipeline call (`STEPS`), in order of time.

    `commands` are those of the whole run, `pipelines` its pipeline calls, `axis` is its own. A step
    without a call lasts as its span does; in a run without step spans every step has calls.
    """
    spans = run.spans.filter(pl.col("kind") == "step")
    recorded = len(spans) > 0
    if not recorded:
        spans = _spans_of_calls(run.calls, pipelines)
    if spans.is_empty():
        return pl.DataFrame(schema=schema(STEPS))
    values, call_groups, span_groups, begin, end = _placed(run, spans, pipelines)
    groups, number = len(values), (values >> 32).astype(np.int32)
    recorded_ns = union_by(spans["start_ns"].to_numpy(), ends(spans), span_groups, groups)
    elapsed, in_calls, host, idle = _times(axis, pipelines, number, begin, end)
    skipped = _skipped_shares(run, call_groups, groups)
    before = pl.col("end_ns").cum_max().shift().over("pipeline")
    table = pl.DataFrame(
        {
            "pipeline": number,
            "step": (values & 0xFFFFFFFF).astype(np.int32),
            "start_ns": begin,
            "end_ns": end,
            "elapsed_ns": elapsed,
            "duration_ns": recorded_ns if recorded else None,
            "calls": np.bincount(call_groups[call_groups >= 0], minlength=groups),
            "branches": _branches(run.calls, call_groups, groups),
            "skipped_share": skipped,
            "calls_ns": in_calls,
            "host_ns": host,
            "idle_ns": idle,
            **_work(run, commands, call_groups, pipelines, values, (begin, end)),
            "outlier": outliers(elapsed, skipping(skipped)),
        }
    )
    ordered = table.sort("start_ns", "pipeline", "step").with_columns(before=before)
    return _with_time_between(ordered, axis, pipelines).select(typed(STEPS))


def step_spans(run: Run, pipelines: PipelineCalls) -> pl.DataFrame:
    """When each step was, as the table of steps has it: columns `pipeline`, `step`, `start_ns`,
    `end_ns`, in order of time."""
    spans = run.spans.filter(pl.col("kind") == "step")
    if spans.is_empty():
        spans = _spans_of_calls(run.calls, pipelines)
    values, _, _, begin, end = _placed(run, spans, pipelines)
    columns = {"pipeline": values >> 32, "step": values & 0xFFFFFFFF}
    found = pl.DataFrame({**columns, "start_ns": begin, "end_ns": end})
    return found.sort("start_ns", "pipeline", "step")


def _placed(
    run: Run, spans: pl.DataFrame, pipelines: PipelineCalls
) -> tuple[Times, Codes, Codes, Times, Times]:
    """The keys of the steps that have `spans`, the place among these of each call (-1 for none) and
    of the spans, and start and end of each step: of its tiles, of its spans without any."""
    keys = _keys(spans, pipelines)
    values = np.unique(keys)
    of_call, of_span = positions(_keys(run.calls, pipelines), values), positions(keys, values)
    first, last = (run.tiles.calls[name].to_numpy() for name in ("begin_ns", "end_ns"))
    kept = (of_call >= 0) & (last > first)
    begin, end = extent(first[kept], last[kept], of_call[kept], len(values))
    spanned = extent(spans["start_ns"].to_numpy(), ends(spans), of_span, len(values))
    begin, end = (np.where(end < begin, *pair) for pair in zip(spanned, (begin, end), strict=True))
    return values, of_call, of_span, begin, end


def _with_time_between(steps: pl.DataFrame, axis: Axis, pipelines: PipelineCalls) -> pl.DataFrame:
    """`steps` with the counted time since the end of the steps before, and the host's work in
    it."""
    begin = steps["start_ns"].to_numpy()
    before = steps.select(pl.min_horizontal("before", "start_ns")).to_series().to_numpy()
    number = steps["pipeline"].to_numpy()
    between, _, host, _ = _times(axis, pipelines, number, before, begin)
    known = pl.col("before").is_not_null()
    return steps.with_columns(
        between_ns=pl.when(known).then(pl.Series(between)),
        between_host_ns=pl.when(known).then(pl.Series(host)),
    )


def _skipped_shares(run: Run, call_groups: Codes, groups: int) -> pl.Series:
    """The share of the blocks that step caches skipped in each step, null if none was on."""
    cached = run.info.cached_calls
    numbers = np.array([one.call for one in cached], dtype=np.int32)
    rows = positions(numbers, run.calls["call"].to_numpy())
    skipped, blocks = np.zeros(groups), np.zeros(groups)
    for row, one in zip(rows.tolist(), cached, strict=True):
        if row >= 0 and call_groups[row] >= 0:
            skipped[call_groups[row]] += len(one.skipped)
            blocks[call_groups[row]] += one.blocks
    return pl.Series(skipped / np.where(blocks > 0, blocks, np.nan)).fill_nan(None)


def _times(
    axis: Axis, pipelines: PipelineCalls, number: Codes, begin: Times, end: Times
) -> tuple[Times, Times, Times, Times]:
    """Return elapsed time, time in calls, host work and idle time of each step: within its pipeline
    call, if it is known which work belongs to which."""
    if not pipelines.apart:
        return axis.of_all().times(begin, end)
    elapsed, calls, host, idle = np.zeros((4, len(begin)), dtype=np.int64)
    code = positions(number, pipelines.numbers)
    for own in np.unique(code).tolist():
        rows = np.flatnonzero(code == own)
        group = axis.of_pipeline(own) if own >= 0 else axis.of_all()
        times = group.times(begin[rows], end[rows])
        elapsed[rows], calls[rows], host[rows], idle[rows] = times
    return elapsed, calls, host, idle


def _keys(frame: pl.DataFrame, pipelines: PipelineCalls) -> Times:
    return step_keys(pipelines.number_of(frame), frame["step"].to_numpy())


def _branches(calls: pl.DataFrame, call_groups: Codes, groups: int) -> pl.Series:
    """The branches of each step's calls in order of time, joined with commas."""
    named = calls.select(
        "start_ns", group=pl.Series(call_groups), branch=pl.col("branch").cast(pl.String)
    )
    texts = dict(
        named.drop_nulls("branch")
        .sort("start_ns", maintain_order=True)
        .group_by("group")
        .agg(pl.col("branch").unique(maintain_order=True).str.join(", "))
        .iter_rows()
    )
    return pl.Series([texts.get(group, "") for group in range(groups)], dtype=pl.String)


def _spans_of_calls(calls: pl.DataFrame, pipelines: PipelineCalls) -> pl.DataFrame:
    """One span per step of each pipeline call, from its first call's start to its last call's
    end."""
    calls = calls.filter(pl.col("step") > NO_STEP)
    keys, last = pl.Series(_keys(calls, pipelines)), pl.Series(ends(calls))
    windows = calls.select("pipeline", "step", "start_ns", key=keys, end=last)
    start = pl.col("start_ns").min()
    spans = windows.group_by("key", "pipeline", "step").agg(
        start, duration_ns=pl.col("end").max() - start
    )
    return spans.drop("key")


def _work(
    run: Run,
    commands: CommandArrays,
    call_groups: Codes,
    pipelines: PipelineCalls,
    values: Times,
    times: tuple[Times, Times],
) -> dict[str, Times]:
    """Union of each step's commands of every category but host and sync (what devices worked), the
    part of it that is outside of `times`, begin and end of the step, and how long both took.

    A command is in the step of its call, `call_groups` by row of `run.calls`, or in its own.
    """
    groups = np.append(call_groups, np.int32(-1))[commands.call]
    free = np.flatnonzero(commands.call < 0)
    of_pipeline = pipelines.number_of(run.commands, free)
    groups[free] = positions(step_keys(of_pipeline, commands.step[free]), values)
    groups[(commands.step <= NO_STEP) | ~device_work(commands.category)] = -1
    start, end, steps = commands.start, commands.end, len(values)
    busy, hidden = union_by(start, end, groups, steps), np.zeros(steps, dtype=np.int64)
    first, last = (time.copy() for time in times)
    of = np.flatnonzero(groups >= 0)
    code = groups[of]
    sticks = (start[of] < first[code]) | (end[of] > last[code])
    if sticks.any():
        begun, ended = np.maximum(start[of], first[code]), np.minimum(end[of], last[code])
        kept = ended > begun
        hidden = busy - union_by(begun[kept], ended[kept], code[kept], steps)
        np.minimum.at(first, code, start[of])
        np.maximum.at(last, code, end[of])
    return {"busy_ns": busy, "hidden_ns": hidden, "span_ns": last - first}


# --- The table of denoising steps.


def _steps(of: Inputs) -> pl.DataFrame:
    """The steps that were selected, as they were in the whole run."""
    steps = step_table(of.run, of.everything, of.pipelines, of.axis)
    if of.selection.stage and "denoise" not in of.selection.stage:
        return steps.clear()
    if of.selection.step:
        kept = sorted(steps_of(of.run, of.selection.step))
        return steps.filter(pl.col("step").is_in(kept))
    return steps


TABLES = (
    Table(
        name="steps",
        row="one denoising step",
        section="time",
        columns=STEPS,
        make=_steps,
        title="Steps",
        about="There is a row for each step of each pipeline call, in order of time. In a run "
        "without pipeline calls, `pipeline` is the number of a pass through the steps: one begins "
        "where a submodule falls back to a smaller step. A row describes the step in the whole "
        "run, whatever is selected.",
    ),
)


def step_bars(steps: pl.DataFrame, calls: pl.DataFrame) -> tuple[Bars, ...]:
    """A bar a step; if several submodules run in steps, those of each of the first of them too,
    below those of the steps: the time in its calls in each step, 0 if it was not called."""
    found = {"step": steps["elapsed_ns"].to_list()}
    calls = calls.filter(pl.col("step") >= 0).with_columns(pl.col("submodule").cast(pl.String))
    names = calls["submodule"].unique(maintain_order=True).to_list()
    end = pl.col("start_ns") + pl.col("elapsed_ns")
    windows = steps.select("step", begin=pl.col("start_ns"), end=end).with_row_index("row")
    inside = (
        calls.select("submodule", "step", "begin_ns", "elapsed_ns")
        .sort("begin_ns")
        .join_asof(
            windows.sort("begin"),
            left_on="begin_ns",
            right_on="begin",
            by="step",
            check_sortedness=False,  # both are sorted; polars would warn that it cannot tell
        )
        .filter(pl.col("begin_ns") <= pl.col("end"))
    )
    for name in names[:_SUBMODULES] if len(names) > 1 else ():
        own = inside.filter(submodule=name)
        found[name] = [0] * len(steps)
        for row, elapsed_ns in own.select("row", "elapsed_ns").iter_rows():
            found[name][row] += elapsed_ns
    return tuple(Bars(name, values) for name, values in found.items())


SENTENCES: Sentences = {
    OutlierRule: {
        OutlierRule.MEDIAN_DEVIATION: "longer than the median by more than {deviations} scaled "
        "median absolute deviations ({scale} MAD; Leys et al. 2013, J. Exp. Soc. Psychol. 49(4), "
        "764-766) and by more than {excess_share}; of at least {fewest} steps"
    }
}


def by_cache(steps: StepSummary) -> Said | None:
    """How many steps of either kind there are, and their medians: `"2 full, median 1.20 s; 6 with
    skipped blocks, median 0.31 s"`; None if no step cache was on, or skipped nothing."""
    if not steps.skipping_steps:
        return None
    parts = []
    if steps.full_steps and steps.full_median_ns is not None:
        number, time = count(steps.full_steps), duration(steps.full_median_ns)
        parts.append(said("{number} full, median {time}", number=number, time=time))
    if steps.skipping_median_ns is not None:
        number, time = count(steps.skipping_steps), duration(steps.skipping_median_ns)
        parts.append(said("{number} with skipped blocks, median {time}", number=number, time=time))
    return joined("; ", parts)


# --- Steps: how long each took, how their parts change, why some stand out.


_WORTH = 0.05  # of a step
_HELD = 100  # rows of a table
_SUBMODULES = 8  # that have bars of their own
_PART = col("part", LAYER, "layer and role, submodule, or step")
_CHANGES = (
    _PART,
    "submodule steps total_ns median_ns spread warmup_steps warmup_ns",
    col("drift", FLOAT64, "drift_ns from the first step to the last / median", kind="ratio"),
    col(
        "drift_low",
        FLOAT64,
        "lower end of its 95 % interval",
        label="from",
        kind="ratio",
        importance=15,
    ),
    col(
        "drift_high",
        FLOAT64,
        "upper end of its 95 % interval",
        label="to",
        kind="ratio",
        importance=15,
    ),
    "outliers outlier_ns",
)
_OUTLIERS = (
    _PART,
    "pipeline step submodule total_ns excess_ns cause cause_ns",
    col(
        "place",
        STRING,
        "device and track of the work that overlapped",
        label="on",
        kind="text",
        importance=1,
    ),
    "cause_layer",
)


def step_section_parts(of: ReportInput) -> Iterator[Part]:
    """Each step, the matrix of its parts, those that change, and outliers with their causes;
    nothing if the run has no steps."""
    if of.analysis.step_summary.count:
        yield _durations(of.analysis)
        yield from _matrix(of.analysis)
        yield _changes(of)
        yield _outlier_part(of)


def outlier_count(analysis: Analysis) -> int:
    """How many outliers there are; `step_outliers` holds those that cost most."""
    return max(int(analysis.step_operators["outliers"].sum()), len(analysis.step_outliers))


def _durations(analysis: Analysis) -> Part:
    summary = analysis.step_summary
    if summary.outliers:
        found = said("Outliers: {steps}", steps=", ".join(summary.outliers))
    elif summary.count < ENOUGH_VALUES:
        found = said("Too few steps to look for outliers")
    else:
        found = said("No outliers")
    lead = said(
        "{steps}, median {median}, mean {mean}, {low} to {high}. {outliers}.",
        steps=counted(summary.count, "step"),
        median=duration(summary.median_ns),
        mean=duration(summary.mean_ns),
        low=duration(summary.min_ns),
        high=duration(summary.max_ns),
        outliers=found,
    )
    if kinds := by_cache(summary):
        lead = joined(" ", [lead, said("With a step cache: {kinds}.", kinds=kinds)])
    rule = said(
        "A step lasts from the start of its first call to the end of its last; {measured_by} "
        "define the steps. The median is that of steady steps, in which no submodule is called for "
        "the first time or compiles, of all if fewer than two are. An outlier is {rule}.",
        measured_by=label(summary.measured_by),
        rule=worded_note(summary.rule),
    )
    bars = step_bars(analysis.steps, analysis.calls)
    figure, notes = replace(steps_figure(analysis), bars=bars), (*_launch_bound(analysis), rule)
    return Part(said("Steps"), lead=lead, figure=figure, notes=notes, anchor="steps")


def _launch_bound(analysis: Analysis) -> tuple[str, ...]:
    """How much of each step the device waited for launches; nothing if that is little."""
    found = launch_bound_steps(analysis.calls)
    if found is None or found.high_ns < _WORTH * analysis.step_summary.median_ns:
        return ()
    template = said(
        "{low} to {high} of each step are launch-bound: the device waits for the host to launch."
    )
    ends = {"low": found.low_ns, "high": found.high_ns}
    if found.before_low_ns is not None and found.before_high_ns is not None:
        template = said(
            "{low} to {high} of each step are launch-bound: the device waits for the host to "
            "launch. {least} to {most} of that lie before the first kernel of its calls."
        )
        ends |= {"least": found.before_low_ns, "most": found.before_high_ns}
    return (filled(template, {name: duration(ns) for name, ns in ends.items()}),)


def steps_figure(analysis: Analysis) -> Figure:
    """Return the figure of how long each step took, and on what."""
    data = (analysis.steps, analysis.step_summary, analysis.activity)
    return Figure("steps", "steps", data)


def step_operators_figure(analysis: Analysis) -> Figure:
    """The step matrix as a heat map: the time of operators in each step against their median.

    Bounded: what has no row of its own shares the last one, and of many steps a column is the
    longest of several. Empty if operators of fewer than two steps were traced.
    """
    return Figure("matrix", "step_matrix", (step_matrix(analysis),))


def step_matrix(analysis: Analysis) -> Matrix | None:
    """The time of parts in each step; None if fewer than two steps have operators."""
    return matrix_of(analysis.steps, analysis.step_times)


def _matrix(analysis: Analysis) -> Iterator[Part]:
    matrix, title = step_matrix(analysis), said("Operators by step")
    if matrix is not None:
        yield Part(title, matrix.sentence, figure=Figure("matrix", "step_matrix", (matrix,)))
    elif len(analysis.steps) > 1:
        why = said("Nothing to compare: operators were traced in fewer than two of the steps.")
        yield Part(title, lead=why, always=True)


def _changes(of: ReportInput) -> Part:
    return Part(
        said("What changes: parts with a warm-up, a drift beyond noise or outliers"),
        table=table(
            "changes",
            "parts that change",
            _CHANGES,
            STEP_OPERATORS,
            changing_parts(of.analysis.step_operators),
            shown=of.rows(10),
            held=_HELD,
        ),
    )


def _outlier_part(of: ReportInput) -> Part:
    """The outliers that cost most; the table of the analysis may hold fewer than there are."""
    found, total = of.analysis.step_outliers, outlier_count(of.analysis)
    several = found["pipeline"].n_unique() > 1
    columns = columns_of(_OUTLIERS, STEP_OUTLIERS)
    left = said(
        "The {shown} of {total} outliers that cost most.",
        shown=count(len(found)),
        total=count(total),
    )
    return Part(
        said("Outliers and what explains them"),
        table=table(
            "outliers",
            "outliers",
            [column for column in columns if several or column.name != "pipeline"],
            STEP_OUTLIERS,
            explained_outliers(found),
            shown=of.rows(10),
            held=_HELD,
        ),
        notes=(left,) if total > len(found) else (),
        folded=True,
    )
