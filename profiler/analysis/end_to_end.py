"""End-to-end time: stages, pipeline calls and the accounting identity between them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.commands import are_apart, are_single, times_recorded
from profiler.analysis.context import Inputs, shared
from profiler.analysis.document import Fact
from profiler.analysis.question import Table
from profiler.analysis.result import Accounting, Analysis, StageAccount, SubmoduleTime
from profiler.analysis.table_text import Sentences, why_not
from profiler.analysis.timeline import (
    ON_AXIS,
    Axis,
    GroupAxis,
    IterationTimes,
    PipelineCalls,
    StageRows,
    stage_starts,
)
from profiler.run.columns import (
    BOOL,
    DATA_ONLY,
    INT64,
    NS,
    SHARE,
    STRING,
    Column,
    col,
    column_of,
    empty,
    schema,
    typed,
)
from profiler.run.intervals import Codes, Stretches, Times, ends, text_codes, union_length
from profiler.run.launches import device_work
from profiler.run.run import Run
from profiler.text import Note, NoteCode, Said, count, counted, duration, filled, percent, said
from profiler.trace.events import DropKind, device_kind

# --- Words of the accounting: closed sets.


class NoAccount(NoteCode):
    """Why the whole time cannot be accounted for."""

    NO_SPAN = "no_span"
    NO_SPANS = "no_spans"
    HOST_FILE_MISSING = "host_file_missing"


# --- The columns of stages and pipeline calls.


_IDLE = column_of(
    ON_AXIS,
    "idle_ns",
    nullable=True,
    meaning="elapsed_ns - calls_ns - host_ns; null if it was not recorded when commands ran",
)

PIPELINES: tuple[Column, ...] = (
    column_of(ON_AXIS, "pipeline"),
    col("name", STRING, "class of the pipeline", label="pipeline"),
    col("start_ns", NS, "begin, on the run's clock", importance=2),
    col(
        "elapsed_ns",
        NS,
        "from its start to its end, or to the end of the last command launched for it, minus "
        "unrecorded_ns and what only work from before the recording took",
    ),
    col(
        "duration_ns",
        NS,
        "length of its span on the host, as recorded",
        label="host range",
        importance=16,
    ),
    col(
        "concurrent",
        BOOL,
        "whether another pipeline call ran at the same time",
        label="at once",
        importance=8,
    ),
    col("steps", INT64, "its denoising steps", importance=4),
    col("calls", INT64, "its submodule calls", importance=3),
    column_of(ON_AXIS, "calls_ns", nullable=True, meaning="union of its calls"),
    column_of(ON_AXIS, "host_ns", nullable=True),
    _IDLE,
    col(
        "unrecorded_ns",
        NS,
        "time in which work waited but nothing was recorded",
        True,
        label="not recorded",
        importance=9,
        hide_if_zero=True,
    ),
    col(
        "unaccounted_ns",
        NS,
        "elapsed_ns - calls_ns - host_ns - idle_ns",
        True,
        importance=DATA_ONLY,
    ),
    col(
        "residual_share",
        SHARE,
        "(unaccounted_ns and calls outside of the pipeline call) / elapsed_ns",
        True,
        label="unaccounted",
        importance=1,
    ),
)

STAGES: tuple[Column, ...] = (
    col("stage", STRING, "phase of the pipeline, in order of its first start"),
    col(
        "start_ns",
        NS,
        "begin of the first span of the stage, or of its first call if it has no span",
        importance=DATA_ONLY,
    ),
    col(
        "elapsed_ns",
        NS,
        "from the end of the previous stage to the end of its last call; the stages add up to "
        "the end-to-end time",
        True,
    ),
    col(
        "duration_ns",
        NS,
        "union of the stage's spans on the host, as recorded",
        True,
        label="host range",
        importance=16,
    ),
    col("calls", INT64, "calls in the stage", importance=1),
    column_of(ON_AXIS, "calls_ns"),
    column_of(ON_AXIS, "host_ns", nullable=True),
    _IDLE,
    col("share", SHARE, "elapsed_ns / end-to-end time", True, importance=2),
)


# --- The accounting identity: end-to-end time = stages = calls + host work between them + idle.
#
# It holds for each pipeline call by itself, on the devices' axis (`analysis.axis`). Stages
# partition its time: a stage lasts from the end of the one before, or the start of the pipeline
# call, to the end of its last tile, the last one to the end of the pipeline call. If stages take
# turns, each has several such parts. Within a stage, with |T| the length of the tiles in it and H
# the times at which the host worked,
#
#     calls = |T|     host = |H+T| - |T|     idle = elapsed - calls - host
#
# Waiting for a device is no host work. Time that was not recorded or carried over does not count,
# nor does the profiler's own work, except during a tile. Tiles outside of their pipeline call are
# in no stage and show in the residual's share. The account of the run is the sum over its pipeline
# calls. If it is unknown which work belongs to which pipeline call, all are accounted for as one.


class _Balance(Struct, frozen=True, eq=False):
    """Times of pipeline calls and of their stages, in ns: `elapsed`, `calls`, `host` and `idle` are
    int64 [pipeline calls, stages], the others are per pipeline call, int64 [p]."""

    elapsed: Times
    calls: Times
    host: Times
    idle: Times
    end_to_end: Times
    unrecorded: Times
    carried: Times
    own: Times
    outside: Times

    @property
    def accounted(self) -> Times:
        """Time that the stages of each pipeline call account for, int64 [p]."""
        sums: Times = (self.calls + self.host + self.idle).sum(axis=1)
        return sums

    @property
    def unexplained(self) -> Times:
        """Unaccounted time of each pipeline call, plus its tiles outside of it, int64 [p]."""
        return self.end_to_end - self.accounted + self.outside

    def of_stages(self) -> list[tuple[int, int, int, int]]:
        """Elapsed, calls, host and idle of each stage, summed over the pipeline calls."""
        columns = (self.elapsed, self.calls, self.host, self.idle)
        sums = (column.sum(axis=0).tolist() for column in columns)
        return list(zip(*sums, strict=True))


def _balance(rows: StageRows, *, apart: bool) -> _Balance:
    """The balance of each pipeline call, or of all as one if not `apart`."""
    axis, count = rows.axis, len(rows.axis.pipelines.numbers)
    groups = [axis.of_pipeline(code) for code in range(count)] if apart else [axis.of_all()]
    in_span = axis.pipelines.code_of(rows.stage_spans)
    spans = [np.flatnonzero(in_span == code) for code in range(count)]
    if not apart:
        spans = [np.arange(len(rows.stage_spans))]
    times = np.zeros((4, len(groups), len(rows.names)), dtype=np.int64)
    for number, group in enumerate(groups):
        begins, stages = rows.borders(group, spans[number])
        if len(begins):
            lasts = np.append(begins[1:], np.iinfo(np.int64).max // 2)
            for kind, column in enumerate(group.times(begins, lasts)):
                np.add.at(times[kind, number], stages, column)
    elapsed, calls, host, idle = times
    return _Balance(
        elapsed=elapsed,
        calls=calls,
        host=host,
        idle=idle,
        end_to_end=np.array([group.counted.length for group in groups], dtype=np.int64),
        unrecorded=np.array(
            [group.lost.minus(axis.carried).length for group in groups], dtype=np.int64
        ),
        carried=np.array(
            [group.lost.both(axis.carried).length for group in groups], dtype=np.int64
        ),
        own=np.array([group.own.length for group in groups], dtype=np.int64),
        outside=np.array([_outside(group) for group in groups], dtype=np.int64),
    )


def _outside(group: GroupAxis) -> int:
    """Return how long tiles lie outside of their pipeline call, in ns."""
    return Stretches.union(group.begin, group.end).minus(group.windows).length


def account(
    run: Run, pipelines: PipelineCalls | None = None, axis: Axis | None = None
) -> tuple[Accounting, pl.DataFrame, pl.DataFrame]:
    """The accounting of the whole run, its tables of stages and of pipeline calls
    (`STAGES`, `PIPELINES`)."""
    pipelines = PipelineCalls.of(run) if pipelines is None else pipelines
    rows = StageRows.of(run, pipelines, Axis.of(run, pipelines) if axis is None else axis)
    groups = len(pipelines.numbers)
    separate = pipelines.apart
    balance = _balance(rows, apart=separate)
    apart = balance if separate or groups <= 1 else _balance(rows, apart=True)
    missing = [
        kind
        for kind, found in (("pipeline", pipelines.spans), ("stage", rows.stage_spans))
        if found.is_empty()
    ]
    end_to_end = int(balance.end_to_end.sum())
    outside = run.calls.join(rows.calls, on="call", how="anti")
    accounting = Accounting(
        end_to_end_ns=end_to_end,
        pipelines=groups,
        steps=_step_count(run, pipelines),
        iterations=_number(run, pipelines, "iteration"),
        stages=(),
        unaccounted_ns=0,
        residual_share=0.0,
        before_after_ns=0,
        unrecorded_ns=int(balance.unrecorded.sum()),
        carried_over_ns=int(balance.carried.sum()),
        profiler_ns=int(balance.own.sum()),
        submodules=_submodule_times(run.calls, rows.axis, end_to_end, separate=separate),
        possible=not missing,
        why_not=_why_not(run, missing),
        wall_ns=rows.axis.of_all().counted.length,
        overlapping=int(pipelines.overlapping().sum()),
        told_apart=pipelines.known,
        calls_outside=len(outside),
        calls_outside_ns=union_length(outside["start_ns"].to_numpy(), ends(outside)),
    )
    known = times_recorded(run.info)
    if not missing:
        accounting = replace(
            accounting,
            stages=tuple(
                StageAccount(name, elapsed, calls, host, idle if known else None)
                for name, (elapsed, calls, host, idle) in zip(
                    rows.names, balance.of_stages(), strict=True
                )
            ),
            unaccounted_ns=end_to_end - int(balance.accounted.sum()),
            residual_share=int(balance.unexplained.sum()) / end_to_end if end_to_end else 0.0,
            before_after_ns=int(balance.outside.sum()),
        )
    return (
        accounting,
        _stage_table(rows, balance, accounting, known=known),
        _pipeline_table(run, rows, pipelines, apart, accounting, known=known),
    )


def stage_times(run: Run, pipelines: PipelineCalls, axis: Axis) -> pl.DataFrame:
    """How long each stage of each pipeline call lasted: columns `pipeline`, `stage`,
    `elapsed_ns`."""
    rows = StageRows.of(run, pipelines, axis)
    count = len(pipelines.numbers)
    elapsed = _balance(rows, apart=True).elapsed
    return pl.DataFrame(
        {
            "pipeline": np.repeat(pipelines.numbers, len(rows.names)),
            "stage": pl.Series(rows.names * count, dtype=pl.String),
            "elapsed_ns": elapsed.ravel(),
        }
    )


def _stage_table(
    rows: StageRows, balance: _Balance, accounting: Accounting, *, known: bool
) -> pl.DataFrame:
    """The table of stages, including those without a span; nulls if the accounting is not possible.
    `known` says whether the times of commands were recorded."""
    possible, end_to_end = accounting.possible, accounting.end_to_end_ns
    begun = pl.concat([stage_starts(rows.stage_spans), stage_starts(rows.calls)])
    count = dict(rows.calls.group_by(pl.col("stage").cast(pl.String)).len().iter_rows())
    starts = {**dict(begun.iter_rows()), **dict(stage_starts(rows.stage_spans).iter_rows())}
    recorded = _recorded(rows)
    table = [
        (
            name,
            starts[name],
            elapsed if possible else None,
            recorded.get(name),
            count.get(name, 0),
            in_calls,
            host if possible else None,
            idle if possible and known else None,
            elapsed / end_to_end if possible and end_to_end else None,
        )
        for name, (elapsed, in_calls, host, idle) in zip(
            rows.names, balance.of_stages(), strict=True
        )
    ]
    return pl.DataFrame(table, schema=schema(STAGES), orient="row")


def _recorded(rows: StageRows) -> dict[str, int]:
    """Return the union of the spans of each stage, in ns."""
    spans = rows.stage_spans.with_columns(pl.col("stage").cast(pl.String))
    return {
        str(name): union_length(some["start_ns"].to_numpy(), ends(some))
        for (name,), some in spans.group_by("stage")
    }


def _pipeline_table(
    run: Run,
    rows: StageRows,
    pipelines: PipelineCalls,
    balance: _Balance,
    accounting: Accounting,
    *,
    known: bool,
) -> pl.DataFrame:
    """The pipeline calls that have a span, each accounted for by itself; nulls if that is not
    possible. `known` says whether the times of commands were recorded."""
    groups = len(pipelines.numbers)
    if not groups:
        return empty(PIPELINES)
    steps = run.spans.filter(pl.col("kind") == "step")
    counted = {
        "steps": _counts(pipelines.code_of(steps), groups),
        "calls": _counts(pipelines.code_of(rows.calls), groups),
    }
    first = pipelines.spans.sort("pipeline", "start_ns").unique("pipeline", keep="first")
    total = balance.end_to_end
    table = (
        first.sort("pipeline")
        .select("pipeline", "start_ns", "duration_ns", name=pl.col("name").cast(pl.String))
        .with_columns(
            elapsed_ns=total,
            concurrent=pipelines.overlapping(),
            **counted,
            calls_ns=balance.calls.sum(axis=1),
            host_ns=balance.host.sum(axis=1),
            idle_ns=balance.idle.sum(axis=1),
            unrecorded_ns=balance.unrecorded,
            unaccounted_ns=total - balance.accounted,
            residual_share=balance.unexplained / np.maximum(total, 1),
        )
    )
    if not accounting.possible:
        unknown = [column.name for column in PIPELINES if column.nullable]
        table = table.with_columns(pl.lit(None).alias(name) for name in unknown)
    if not known:
        table = table.with_columns(idle_ns=None)
    ordered = table.sort("start_ns", "pipeline")
    return ordered.select(typed(PIPELINES))


def _counts(codes: Codes, groups: int) -> Times:
    return np.bincount(codes[codes >= 0], minlength=groups)


def _submodule_times(
    calls: pl.DataFrame, axis: Axis, end_to_end: int, *, separate: bool
) -> tuple[SubmoduleTime, ...]:
    codes, names = text_codes(calls["submodule"])
    walls = [
        axis.taken(np.flatnonzero(codes == code), separate=separate) for code in range(len(names))
    ]
    times = [
        SubmoduleTime(name, wall, wall / end_to_end if end_to_end else 0.0)
        for name, wall in zip(names, walls, strict=True)
    ]
    return tuple(sorted(times, key=lambda time: (-time.wall_ns, time.submodule)))


def _step_count(run: Run, pipelines: PipelineCalls) -> int:
    spans = run.spans.filter(pl.col("kind") == "step")
    if len(spans):
        return len(spans)
    return _number(run, pipelines, "step")


def _number(run: Run, pipelines: PipelineCalls, kind: str) -> int:
    """How many steps or iterations the pipeline calls have in sum."""
    of = pl.Series(pipelines.number_of(run.calls))
    return run.calls.select(kind, of=of).filter(pl.col(kind) >= 0).n_unique()


def _why_not(run: Run, missing: list[str]) -> Note | None:
    if not missing:
        return None
    if len(missing) > 1:
        reason = Note.of(NoAccount.NO_SPANS, one=missing[0], other=missing[1])
    else:
        reason = Note.of(NoAccount.NO_SPAN, kind=missing[0])
    lost = any(drop.kind == DropKind.MISSING_FILE and drop.where == "host.pb" for drop in run.drops)
    return Note.of(NoAccount.HOST_FILE_MISSING, reason=reason) if lost else reason


# --- The tables of stages and of pipeline calls, and the accounting that they are a part of.


@shared
def _account(of: Inputs) -> tuple[Accounting, pl.DataFrame, pl.DataFrame]:
    return account(of.run, of.pipelines, of.axis)


def accounting(of: Inputs) -> Accounting:
    """The accounting of the whole run."""
    return _account(of)[0]


@shared
def work_in_no_call(of: Inputs) -> int:
    """Return how long accelerators worked outside of tiles while the host did not, in ns. It is in
    `idle_ns` although they were not idle."""
    commands, group = of.everything, of.axis.of_all()
    on_cpu = np.array([*(device_kind(name) == "cpu" for name in commands.devices), True])
    works = (commands.call < 0) & ~on_cpu[commands.device] & device_work(commands.category)
    worked = Stretches.union(commands.start[works], commands.end[works]).both(group.counted)
    return worked.minus(group.tiles).minus(group.host).length


TABLES = (
    Table(
        name="pipelines",
        row="one pipeline call",
        section="time",
        columns=PIPELINES,
        make=lambda of: _account(of)[2],
        title="Pipeline calls",
        about="Rows cover the whole run, in order of their begin. Each pipeline call is "
        "accounted for separately. `calls_ns` and the columns derived from it are null if "
        "`accounting.possible` is false. If `accounting.told_apart` is false, the order in "
        "which pipeline calls started decides which work belongs to which call, so the assignment "
        "is a guess.",
    ),
    Table(
        name="stages",
        row="one stage",
        section="time",
        columns=STAGES,
        make=lambda of: _account(of)[1],
        title="Stages",
        about="Rows cover the whole run, in order of time. `duration_ns`, `host_ns`, `idle_ns` "
        "and `share` are null if `accounting.possible` is false; `idle_ns` is null also if it was "
        "not recorded when commands ran.",
    ),
)


# --- What reports say of the account.


def measured_apart(analysis: Analysis) -> bool:
    """Whether components were measured one by one and how often a pipeline calls them is unknown.
    Their sum is then no end-to-end time."""
    return are_single(analysis.drops)


def at_once(account: Accounting) -> str:
    """Return how many pipeline calls ran concurrently with another, and what times refer to."""
    calls = counted(account.pipelines, "pipeline call")
    number = count(account.overlapping)
    together = said(
        "{number} of {calls} ran at the same time as another; the run does not say what belongs "
        "to which, so they count as one"
    )
    if account.told_apart:
        together = said(
            "{number} of {calls} ran at the same time as another: {wall} of wall time, {sum} in "
            "sum, to which times and shares refer"
        )
    times = {"wall": duration(account.wall_ns), "sum": duration(account.end_to_end_ns)}
    return filled(together, {"number": number, "calls": calls, **times})


def asynchronous(analysis: Analysis) -> list[tuple[str, int, int]]:
    """Submodules whose calls return before their device is done: name, time in calls, device
    time, in ns. For these the wall time of a call says little."""
    rows = analysis.submodules.select("submodule", "duration_ns", "busy_ns").rows()
    return [row for row in rows if row[2] > 1.02 * row[1]]


def carried_over(analysis: Analysis) -> list[tuple[str, int]]:
    """Devices that worked on commands launched before the recording, and how long, in ns."""
    rows = analysis.devices.select("device", "carried_over_ns").rows()
    return [row for row in rows if row[1]]


# --- Sentences about the accounting.


SENTENCES: Sentences = {
    NoAccount: {
        NoAccount.NO_SPAN: "the trace holds no {kind} span",
        NoAccount.NO_SPANS: "the trace holds no {one} and no {other} span",
        NoAccount.HOST_FILE_MISSING: "{reason}, host.pb is missing",
    }
}


# --- What the first screen says of iterations.


_BESIDE = 0.005  # of the time that it is a part of: less is not shown beside iterations


def iteration_notes(analysis: Analysis) -> Iterator[Said]:
    """Yield the mean time of an iteration, of those whose calls all have their work, and the run's
    time before the first, between them and after the last."""
    account, run = analysis.accounting, analysis.inputs.run
    place = pl.struct("pipeline", "iteration")
    lost = run.calls.filter(pl.col("call").is_in(run.info.workless), pl.col("iteration") >= 0)
    without = lost.select(place.unique()).to_series()
    lacking = run.calls.select(place.is_in(without.implode())).to_series().to_numpy()
    times = IterationTimes.of(run, analysis.inputs.axis, lacking)
    whole = account.iterations - len(without)
    counted_ns, missing_ns = times.inside
    if not len(without) or not whole:
        mean_ns = (counted_ns + missing_ns) / account.iterations
        mean = said("mean {time}", time=duration(mean_ns))
        yield _with_missing(mean, mean_ns, missing_ns / account.iterations)
    else:
        yield said(
            "{without} without the work of some calls, mean of the others {time}",
            without=count(len(without)),
            time=duration(times.whole[0] / whole),
        )
    total = account.end_to_end_ns + account.unrecorded_ns
    for where, (counted_ns, missing_ns) in (
        (said("{time} before the first"), times.before),
        (said("{time} between them"), times.between),
        (said("{time} after the last"), times.after),
    ):
        whole_ns = counted_ns + missing_ns
        if whole_ns >= _BESIDE * total:
            outside = said(where.template, time=duration(whole_ns))
            yield _with_missing(outside, whole_ns, missing_ns)


def _with_missing(what: Said, whole_ns: float, missing_ns: float) -> Said:
    """Append to `what`, which lasted `whole_ns`, how much was not recorded, unless it is
    negligible."""
    if missing_ns < _BESIDE * whole_ns or not missing_ns:
        return what
    return said("{what}, {missing} of it not recorded", what=what, missing=duration(missing_ns))


# --- Key figures: how long the run took, and what of it was not recorded or is in no stage.


RESIDUAL_LIMIT = 0.01


def end_to_end_fact(analysis: Analysis, span_ns: int) -> Fact:
    """How long the pipeline calls took, else the run's extent `span_ns`; of components that were
    measured one by one, their sum."""
    account = analysis.accounting
    if measured_apart(analysis):
        note = said("one execution of each component; what a pipeline takes is not recorded")
        return Fact(said("Together"), duration(account.end_to_end_ns or span_ns), note)
    if account.end_to_end_ns and are_apart(analysis.drops):
        note = said("{count} recordings, one after another", count=count(account.pipelines))
        return Fact(said("Together"), duration(account.end_to_end_ns), note)
    if account.end_to_end_ns:
        noun, number = ("pipeline call", account.pipelines)
        if account.in_iterations:
            noun, number = ("iteration", account.iterations)
        pipelines = counted(number, noun) if number else said("from the first call to the last")
        if account.overlapping and account.told_apart:
            pipelines = said(
                "{pipelines}, {overlapping} at the same time: {wall} passed",
                pipelines=pipelines,
                overlapping=count(account.overlapping),
                wall=duration(account.wall_ns),
            )
        return Fact(said("End to end"), duration(account.end_to_end_ns), pipelines)
    note = said("the run has no pipeline span")
    return Fact(said("Span of events"), duration(span_ns), note)


def unrecorded_facts(analysis: Analysis) -> Iterator[Fact]:
    """What of the pipeline calls' time counts nowhere; nothing if all of it does."""
    lost = analysis.accounting.unrecorded_ns
    if lost:
        note = said(
            "not in the end-to-end time: work or the host waited for something that was not "
            "recorded"
        )
        yield Fact(said("Not recorded"), duration(lost), note)


def carried_over_facts(analysis: Analysis) -> Iterator[Fact]:
    """How long devices worked on what had been launched before the recording began."""
    for device, carried_ns in carried_over(analysis):
        note = said(
            "{device} worked on what had been launched before the recording began: outside of end "
            "to end and of all calls",
            device=device,
        )
        yield Fact(said("Carried over"), duration(carried_ns), note)


def asynchronous_facts(analysis: Analysis) -> Iterator[Fact]:
    """The submodules whose calls return before their device is done."""
    for name, duration_ns, busy_ns in asynchronous(analysis):
        note = said(
            "of device time, {time} in its calls: they return before it is done",
            time=duration(duration_ns),
        )
        yield Fact(name, duration(busy_ns), note)


def residual_fact(analysis: Analysis) -> Fact:
    """How much of the end-to-end time no stage accounts for."""
    account = analysis.accounting
    if not account.possible:
        return Fact(said("Unaccounted"), said("unknown"), why_not(account.why_not))
    bad = account.residual_share > RESIDUAL_LIMIT
    note = (
        said("of end to end is in no stage, more than 1 %")
        if bad
        else said("of end to end is in no stage")
    )
    return Fact(said("Unaccounted"), percent(account.residual_share), note, alert=bad)
