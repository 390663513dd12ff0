"""Outlier steps and their causes: warm-up, first calls, drift, overlapping work.

The first cause that applies is reported. Overlap counts only above what is usual: with w the
time of the part, o the time in it in which a track was busy, and f the median of o / w in
reference steps, `o - f w` must be at least half of the excess. A track that is always busy
explains nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.commands import CommandArrays, Kinds, rows_by_call
from profiler.analysis.compilation import compiled_in
from profiler.analysis.context import Inputs
from profiler.analysis.critical_path import (
    BusySource,
    BusyTracks,
    Place,
    Tracks,
    Window,
    rows_by_place,
    rows_in,
)
from profiler.analysis.finding_text import (
    UNLABELLED,
    Rule,
    Words,
    calls_of,
    end_to_end_ns,
    extended,
    number,
    share,
    texts,
)
from profiler.analysis.host_activity import stalls_of
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, Finding
from profiler.analysis.step_matrix import _PART, _STEP, StepMatrix, medians, steps_matrix
from profiler.analysis.table_text import Sentences
from profiler.run.columns import DATA_ONLY, LAYER, NS, STRING, Column, col, empty, schema, typed
from profiler.run.intervals import Codes, Stretches, Times, ends, order_by, positions
from profiler.text import Said, Value, filled, said

# --- Words of the tables about denoising steps: closed sets.


class OutlierCause(StrEnum):
    """Why a part of a step took longer than usual."""

    WARM_UP = "warm_up"
    FIRST_STEP = "first_step"
    COMMANDS = "commands"
    OVERLAP = "overlap"
    HOST_WORK = "host_work"
    IDLE = "idle"
    CALLS = "calls"


# --- The columns of what is found about denoising steps: the step matrix, guidance, redundancy.


STEP_OUTLIERS: tuple[Column, ...] = (
    *_PART,
    *_STEP,
    col("total_ns", NS, "its time in the step", label="time", importance=2),
    col("excess_ns", NS, "time beyond its median_ns", label="too long"),
    col(
        "cause",
        STRING,
        ", ".join(OutlierCause) + "; null: nothing explains it",
        True,
        codes=OutlierCause,
    ),
    col(
        "cause_ns",
        NS,
        "how much longer the cause took than in usual steps",
        True,
        label="of it",
        importance=1,
    ),
    col("cause_device", STRING, "device of the work that overlapped", True, importance=DATA_ONLY),
    col("cause_track", STRING, "track of the work that overlapped", True, importance=DATA_ONLY),
    col(
        "cause_layer",
        LAYER,
        "layer that ran longest there at that time",
        True,
        label="running",
        importance=1,
    ),
)


# --- Why a part of a step took longer than usual, as far as the rest of the trace explains it.
#
# The first of these that holds: it is in the warm-up; it ran other commands than usual; other work
# ran at the same time on another track or device, or in another pipeline call; it is the first step
# of its pipeline call; of whole steps also, which of their parts grew. Overlap counts beyond what
# is usual: with w the time in which the part ran, o that of it in which a track was busy, and f the
# median of o / w in reference steps, `o - f w` must be at least half of what the part took too
# long. A track that is always busy explains nothing.


_LEAST = 0.001  # of a step, for a row
_ROWS = 50
_EXPLAINS = 0.5  # of what was too long
_REFERENCES = 3  # steps
_BUDGET = 5_000_000  # commands that are looked at
_NONE = np.zeros(0, dtype=np.int64)


class _Cause(Struct, frozen=True):
    """What explains an outlier; columns of the table."""

    cause: OutlierCause | None = None
    cause_ns: int | None = None
    cause_device: str | None = None
    cause_track: str | None = None
    cause_layer: str | None = None


def _outliers(of: Inputs) -> pl.DataFrame:
    """Return one row per outlier (`STEP_OUTLIERS`), most time beyond the usual first. Outliers of
    less than a thousandth of a step are left out, and all but the first 50."""
    matrix = steps_matrix(of)
    median = medians(matrix.usual)
    excess = matrix.time - median[:, None]
    least = _LEAST * median[0] if len(matrix.steps) else 0.0
    row, column = np.nonzero(matrix.outlier & (excess >= least))
    order = np.argsort(-excess[row, column], kind="stable")[:_ROWS]
    row, column = row[order], column[order]
    if not len(row):
        return empty(STEP_OUTLIERS)
    tracks, source = Tracks.of(of.frame["track"]), BusySource.of(of.run, of.everything)
    looked = _Looked(matrix, of.calls, of.commands, tracks, of.kinds, source)
    causes = [
        looked.cause(part, step, int(excess[part, step]))
        for part, step in zip(row.tolist(), column.tolist(), strict=True)
    ]
    found = pl.concat(
        [matrix.parts[row], matrix.steps.select("pipeline", "step")[column]], how="horizontal"
    ).with_columns(
        total_ns=pl.Series(matrix.time[row, column]),
        excess_ns=pl.Series(np.rint(excess[row, column])),
        **{
            name: pl.Series([getattr(cause, name) for cause in causes], dtype=dtype)
            for name, dtype in schema(STEP_OUTLIERS).items()
            if name in _Cause.__struct_fields__
        },
    )
    return found.select(typed(STEP_OUTLIERS))


@dataclass(slots=True)
class _Looked:
    """Finds the causes of outliers, and keeps what it has looked at. `commands` are the selected
    ones, with their `tracks` and `kinds`; `source` has all commands of the run."""

    matrix: StepMatrix
    calls: pl.DataFrame
    commands: CommandArrays
    tracks: Tracks
    kinds: Kinds
    source: BusySource
    _in_run: Codes = field(init=False)
    _rows: dict[int, slice | Times] = field(init=False)
    _by_part: dict[int, tuple[Times, Times]] = field(default_factory=dict)
    _busy: dict[int, BusyTracks | None] = field(default_factory=dict)
    _left: int = _BUDGET

    def __post_init__(self) -> None:
        of_run = self.source.run.calls["call"].to_numpy()
        self._in_run = positions(self.calls["call"].to_numpy(), of_run)
        self._rows = dict(rows_by_call(self.commands.call, len(self.calls)))

    def cause(self, part: int, step: int, excess: int) -> _Cause:
        """Return why `part` took `excess` ns longer than usual in the step of a column."""
        matrix = self.matrix
        first_of_run = matrix.steps["pipeline"][step] == matrix.steps["pipeline"][0]
        if first_of_run and step < matrix.warm[part]:
            return _Cause(OutlierCause.WARM_UP)
        if part and np.isnan(matrix.usual[part, step]):
            return _Cause(OutlierCause.COMMANDS)
        found = self._overlap(part, step, excess)
        if found is not None:
            return found
        steps = matrix.steps["pipeline"].to_numpy()
        if step == int(np.argmax(steps == steps[step])):
            return _Cause(OutlierCause.FIRST_STEP)
        return self._parts(step, excess) if part == 0 else _Cause()

    def _overlap(self, part: int, step: int, excess: int) -> _Cause | None:
        """The track whose work overlapped most, beyond what is usual; None if that is too
        little."""
        here = self._window(part, step)
        least = _EXPLAINS * excess
        if here is None or max(here.overlaps().values(), default=0) < least:
            return None
        usual: dict[Place, list[float]] = {}
        references = [*self._references(part)]
        for other in references:
            window = self._window(part, other)
            if window is not None:
                for track, overlap in window.overlaps().items():
                    usual.setdefault(track, []).append(overlap / max(window.times.length, 1))
        if not references:
            return None
        best, most = None, least
        for track, overlap in here.overlaps().items():
            shares = usual.get(track, [])
            shares = shares + [0.0] * (len(references) - len(shares))
            beyond = overlap - float(np.median(shares)) * here.times.length
            if beyond >= most:
                best, most = track, beyond
        if best is None:
            return None
        return _Cause(OutlierCause.OVERLAP, int(most), best[0] or None, best[1], here.longest(best))

    def _references(self, part: int) -> Iterator[int]:
        """Usual steps of a part: nearest to the median step."""
        time = self.matrix.time[0]
        usual = ~self.matrix.outlier[0] & ~self.matrix.outlier[part]
        usual &= ~np.isnan(self.matrix.usual[part])
        usual[: self.matrix.warm[part]] = False
        order = np.argsort(np.abs(time - np.median(time)), kind="stable")
        yield from order[usual[order]][:_REFERENCES].tolist()

    def _window(self, part: int, step: int) -> Window | None:
        """Return when a part ran in a step, and what else did; None if that is too much to look
        at."""
        calls = np.flatnonzero(self.matrix.step_of_call == step)
        busy = self._busy_tracks(calls, step)
        if busy is None:
            return None
        if part == 0:
            rows = np.concatenate([_NONE, *(rows_in(self._rows, c) for c in calls.tolist())])
            start, end = self.calls["start_ns"].to_numpy()[calls], ends(self.calls)[calls]
        else:
            rows = np.concatenate([_NONE, *(self._of_part(part, c) for c in calls.tolist())])
            start, end = self.commands.start[rows], self.commands.end[rows]
        own = {place for place, _ in rows_by_place(self.commands, self.tracks, rows)}
        return Window(busy, Stretches.union(start, end), own)

    def _busy_tracks(self, calls: Times, step: int) -> BusyTracks | None:
        """Every track while the calls of a step ran."""
        if step not in self._busy and len(calls):
            own = self._in_run[calls]
            start, end = int(self.source.first[own].min()), int(self.source.last[own].max())
            self._busy[step], looked_at = self.source.between(
                start, end, {*own.tolist()}, self._left
            )
            self._left -= looked_at
        return self._busy.get(step)

    def _of_part(self, part: int, call: int) -> Times:
        """The rows of a part's commands in a call."""
        if call not in self._by_part:
            rows = rows_in(self._rows, call)
            parts = len(self.matrix.parts)
            code = self.matrix.part_of_kind[self.kinds.of_command[rows]] + 1  # 0: of none
            bounds = np.append(0, np.cumsum(np.bincount(code, minlength=parts + 1)))
            self._by_part[call] = rows[order_by(code, parts + 1)], bounds
        rows, bounds = self._by_part[call]
        some = [rows[bounds[p + 1] : bounds[p + 2]] for p in self._operators(part)]
        return np.concatenate([_NONE, *some])

    def _operators(self, part: int) -> list[int]:
        """The parts of operators: of a submodule all in it, else `part` itself."""
        parts = self.matrix.parts
        if parts["level"][part] != "submodule":
            return [part]
        inside = (parts["submodule"] == parts["submodule"][part]).fill_null(value=False)
        return np.flatnonzero(inside.to_numpy()).tolist()

    def _parts(self, step: int, excess: int) -> _Cause:
        """Return which part of a whole step grew by at least half of its excess."""
        parts = (
            (OutlierCause.HOST_WORK, "host_ns"),
            (OutlierCause.IDLE, "idle_ns"),
            (OutlierCause.CALLS, "calls_ns"),
        )
        for name, column in parts:
            values = self.matrix.steps[column]
            more = int(values[step] - np.median(values.to_numpy()))
            if more >= _EXPLAINS * excess:
                return _Cause(name, more)
        return _Cause()


# --- The table of parts of steps that stand out.


TABLES = (
    Table(
        name="step_outliers",
        row="one part in one step that stands out",
        section="time",
        columns=STEP_OUTLIERS,
        make=_outliers,
        title="Outliers and what explains them",
        about="The table lists outliers of at least a thousandth of a step, largest `excess_ns` "
        "first, 50 at most. `step_outliers_total` in JSON is the number of all outliers.",
        reads=("steps",),
        rank=("-excess_ns",),
    ),
)


# --- Words of the evidence of findings: closed sets.


class OutlierPattern(StrEnum):
    """Which steps stand out."""

    EACH_FIRST_STEP = "each_first_step"
    SINGLE_STEPS = "single_steps"


# --- Rules about how times change in the course of a run: first calls, drift, outliers.


_FIRST_RATIO = 2.0  # first call / median of the others: less is within what caches explain
_FIRST_SHARE = 0.05  # of end to end
_SLOW_START_STEPS = 2  # one slow step is the first call
_SLOW_START_SHARE = 0.02
_DRIFT = 0.05  # from first to last step, of the median: boost clocks vary by less
_DRIFT_LOW = 0.02  # by the lower end of its interval: one that nearly holds 0 proves little
_OUTLIER_SHARE = 0.02
_PROMPTS = ("prompt", "negative_prompt")
_NAMED_STEPS = 8


def first_call(analysis: Analysis) -> Iterator[Finding]:
    """The first call of a submodule took several times as long as the later ones."""
    total = end_to_end_ns(analysis)
    slow = _warmup_steps(analysis) >= _SLOW_START_STEPS
    for row in _with_later_calls(analysis).to_dicts():
        excess = row["first_ns"] - row["median_ns"]
        if row["first_ns"] < _FIRST_RATIO * row["median_ns"]:
            continue
        if share(excess, total) < _FIRST_SHARE or (slow and row["denoises"]):
            continue
        if compiled_in(analysis, row["first"]) > excess / 2:
            continue  # `compilation` says so
        yield Finding(
            "first_call",
            {
                "first_ns": row["first_ns"],
                "later_median_ns": row["median_ns"],
                "excess_ns": excess,
                "excess_share": share(excess, total),
                "later_calls": row["calls"] - 1,
                **_stall_evidence(analysis, row["first"], excess),
            },
            where=calls_of(analysis, row["submodule"]),
            cost_ns=excess,
        )


def _stall_evidence(analysis: Analysis, call: int, excess_ns: int) -> dict[str, Value]:
    """Return how long the host stalled in a call, and in what; empty if that is not most of its
    excess."""
    stalls = stalls_of(analysis, call=call)
    if stalls is None or 2 * stalls.length_ns < excess_ns:
        return {}
    doing: dict[str, Value] = {"host_in": stalls.host_in} if stalls.host_in else {}
    return {"stalls_ns": stalls.length_ns, **doing}


def cold_calls(analysis: Analysis) -> pl.Series:
    """Numbers of the first calls that took several times as long as the later ones."""
    cold = pl.col("first_ns") >= _FIRST_RATIO * pl.col("median_ns")
    return _with_later_calls(analysis).filter(cold)["first"]


def slow_start(analysis: Analysis) -> Finding | None:
    """Several steps at the beginning took longer than the later ones."""
    row = _step_row(analysis)
    total = end_to_end_ns(analysis)
    if row is None or row["warmup_steps"] < _SLOW_START_STEPS:
        return None
    if share(row["warmup_ns"], total) < _SLOW_START_SHARE:
        return None
    return Finding(
        "slow_start",
        {
            "warmup_steps": row["warmup_steps"],
            "warmup_ns": row["warmup_ns"],
            "warmup_share": share(row["warmup_ns"], total),
            "later_median_ns": row["median_ns"],
        },
        where=calls_of(analysis, step=0),
        cost_ns=row["warmup_ns"],
    )


def step_drift(analysis: Analysis) -> Finding | None:
    """Steps become slower and slower."""
    row = _step_row(analysis)
    if row is None or row["drift_low_ns"] is None:
        return None
    later = row["steps"] - 1
    over_run, least = row["drift_ns"] * later, row["drift_low_ns"] * later
    median = row["median_ns"]
    if share(over_run, median) < _DRIFT or share(least, median) < _DRIFT_LOW:
        return None
    return Finding(
        "step_drift",
        {
            "drift_per_step_ns": row["drift_ns"],
            "drift_low_ns": row["drift_low_ns"],
            "drift_high_ns": row["drift_high_ns"],
            "steps": row["steps"],
            "median_ns": median,
            "drift_share": share(over_run, median),
        },
        where=calls_of(analysis, step=int(analysis.steps["step"].max() or 0)),  # type: ignore[arg-type]
        cost_ns=round(over_run * row["steps"] / 2),
    )


def outlier_steps(analysis: Analysis) -> Finding | None:
    """Single steps took much longer than the median, beside warm-up."""
    rows = analysis.step_outliers.filter(
        pl.col("level") == "step",
        ~pl.col("cause").is_in([OutlierCause.WARM_UP.value]).fill_null(value=False),
    ).sort("excess_ns", descending=True)
    total = end_to_end_ns(analysis)
    excess = int(rows["excess_ns"].sum())
    if rows.is_empty() or share(excess, total) < _OUTLIER_SHARE:
        return None
    worst = rows.row(0, named=True)
    several = analysis.steps["pipeline"].n_unique() > 1
    first = rows.head(_NAMED_STEPS).select("pipeline", "step").iter_rows()
    named = [f"{pipeline}:{step}" if several else str(step) for pipeline, step in first]
    evidence: dict[str, Value] = {
        "outliers": len(rows),
        "steps": ", ".join(named),
        "excess_ns": excess,
        "excess_share": share(excess, total),
        "longest_ns": worst["total_ns"],
        "median_ns": worst["total_ns"] - worst["excess_ns"],
        "pipeline_calls": analysis.steps["pipeline"].n_unique(),
        "pattern": _pattern(analysis),
        **_cause(worst),
    }
    return Finding(
        "outlier_steps",
        evidence,
        where=calls_of(analysis, pipeline=worst["pipeline"], step=worst["step"]),
        cost_ns=excess,
    )


def _pattern(analysis: Analysis) -> OutlierPattern:
    """Whether the first step of every pipeline call stands out, and no other does."""
    first = analysis.steps.group_by("pipeline").agg(pl.col("step").first())
    found = analysis.step_outliers.filter(pl.col("level") == "step")
    same = set(first.iter_rows()) == set(found.select("pipeline", "step").iter_rows())
    return OutlierPattern.EACH_FIRST_STEP if same else OutlierPattern.SINGLE_STEPS


def _cause(row: dict[str, Any]) -> dict[str, Value]:
    """Return what explains the worst outlier; empty if nothing does."""
    if row["cause"] is None:
        return {}
    where = ("cause_device", "cause_track", "cause_layer")
    known = {name: row[name] for name in where if row[name]}
    return {"cause": OutlierCause(row["cause"]), **known}


def _step_row(analysis: Analysis) -> dict[str, Any] | None:
    rows = analysis.step_operators.filter(pl.col("level") == "step")
    return rows.row(0, named=True) if len(rows) else None


def _warmup_steps(analysis: Analysis) -> int:
    row = _step_row(analysis)
    if row is None or share(row["warmup_ns"], end_to_end_ns(analysis)) < _SLOW_START_SHARE:
        return 0
    return int(row["warmup_steps"])


def _with_later_calls(analysis: Analysis) -> pl.DataFrame:
    """First and median later calls of what does the same each time: an encoder for both prompts, a
    denoiser for one branch. Branches without the submodule's first call are left out, and calls
    without a label, which may be of any submodule."""
    of_prompts = pl.col("branch").is_in(_PROMPTS).fill_null(value=False)
    groups = (
        analysis.calls.filter(pl.col("submodule") != UNLABELLED)
        .sort("start_ns", "call")
        .with_columns(group=pl.when(of_prompts).then(pl.lit("prompts")).otherwise("branch"))
        .group_by("submodule", "group", maintain_order=True)
        .agg(
            first_ns=pl.when(pl.col("first").first()).then(pl.col("elapsed_ns").first()),
            first=pl.col("call").first(),
            median_ns=pl.col("elapsed_ns").filter(~pl.col("first")).median().cast(pl.Int64),
            calls=pl.len(),
            denoises=(pl.col("step") >= 0).any(),
        )
    )
    return groups.drop_nulls(["first_ns", "median_ns"]).filter(pl.col("median_ns") > 0)


_RECOMMENDATIONS: Mapping[object, str] = {
    OutlierCause.OVERLAP: "Keep what overlaps off this device (other requests, saving of images), "
    "or off these steps.",
    OutlierCause.HOST_WORK: "Look at the host work of this step in the timeline: move it out of "
    "the loop.",
    OutlierCause.IDLE: "Nothing was recorded in the extra time: look for garbage collection, I/O "
    "and other threads.",
    OutlierCause.COMMANDS: "It runs different commands from the other steps: look for changed "
    "shapes or guidance.",
    OutlierCause.FIRST_STEP: "It is the first step of its pipeline call: look at what that call "
    "loads or allocates before it, and record again to see whether it does so each time.",
}
_FIRST_STEPS = said(
    "The first step of each pipeline call does one-time work: do it before the loop."
)
_AGAIN = said(
    "Record again on a quiet machine; if the same steps stand out, look at them in the timeline."
)


def _first_call(found: Finding) -> Words:
    ratio = number(found, "first_ns") / number(found, "later_median_ns")
    first = said(
        "The first call of {submodule} takes {ratio} times as long as a later one: {excess_share} "
        "of the run is that excess"
    )
    title = filled(first, {**texts(found), "ratio": f"{ratio:.1f}"})
    if "stalls_ns" in found.evidence:
        return _stall_words(title, found)
    return Words(
        title=title,
        caveat="Means and totals of this submodule include its initialization (allocations, kernel "
        "selection, compilation), so they say little about a warm process. A first call on larger "
        "inputs takes longer as well.",
        recommendation="Warm up before recording (run.warmup(), profile-sd3 run --warmup 2) with "
        "the same shapes, and keep the process alive between requests.",
    )


def _stall_words(title: str, found: Finding) -> Words:
    title = extended(title, said("{what}; the host launched nothing for {stalls_ns}"), found)
    if "host_in" in found.evidence:
        title = extended(title, said("{what}, in {host_in}"), found)
    return Words(
        title=title,
        caveat="This happened once. It is work that may fall into any call (a garbage collection "
        "of Python, a library that is loaded or set up), not work that a call launches.",
        recommendation="Warm up with the same shapes and record again: a stall that comes back is "
        "not caused by recording. To prevent collections, call gc.collect() and gc.freeze() before "
        "the run.",
    )


def _outlier_steps(found: Finding) -> Words:
    cause, pattern = found.evidence.get("cause"), found.evidence["pattern"]
    of_first = pattern == OutlierPattern.EACH_FIRST_STEP
    return Words(
        title=_longer(found),
        caveat="An outlier that other programs cause is not the pipeline's; work that overlaps it "
        "need not be its cause.",
        recommendation=_FIRST_STEPS if of_first else _RECOMMENDATIONS.get(cause, _AGAIN),
    )


def _longer(found: Finding) -> Said:
    """The title: one step by its name, or how many there are."""
    if number(found, "outliers") > 1:
        return said(
            "{outliers} steps take longer than the median step, by {excess_share} of the run"
        )
    if number(found, "pipeline_calls") > 1:
        return said(
            "Step {step} of pipeline call {pipeline} takes longer than the median step, by "
            "{excess_share} of the run"
        )
    return said("Step {step} takes longer than the median step, by {excess_share} of the run")


_OUTLIER_CHANGES: Mapping[object, Said] = {
    OutlierCause.OVERLAP: said("Keep what overlaps off this device, or off these steps"),
    OutlierCause.HOST_WORK: said("Move the host work of this step out of the loop"),
    OutlierCause.IDLE: said("Look for garbage collection, I/O and other threads in this step"),
    OutlierCause.COMMANDS: said("Look for changed shapes or guidance in this step"),
    OutlierCause.FIRST_STEP: said("Look at what the pipeline call loads or allocates before it"),
}


def _first_call_change(found: Finding) -> Said:
    if "stalls_ns" in found.evidence:
        return said("Warm up and record again; gc.freeze() before the run prevents collections")
    return said("Warm up with the same shapes, and keep the process alive")


def _outlier_change(found: Finding) -> Said:
    cause = _OUTLIER_CHANGES.get(found.evidence.get("cause"))
    return cause or said("Record again on a quiet machine; look at these steps in the timeline")


RULES = (
    Rule(first_call, _first_call, _first_call_change),
    Rule(
        slow_start,
        Words(
            title="The first {warmup_steps} steps are slower than the later ones by {warmup_share} "
            "of the run",
            caveat="The mean describes neither the first steps nor the later ones. Comparing short "
            "runs compares their warm-up.",
            recommendation="Run at least as many steps before recording (--warmup), compare "
            "medians; look for compilation or allocation in the first steps.",
        ),
        "Run at least as many steps before recording (--warmup)",
    ),
    Rule(
        step_drift,
        Words(
            title="Steps slow down: from the first to the last by {drift_share} of a median step",
            caveat="A short run looks faster than a service that runs for hours.",
            recommendation="Watch clocks, temperature and power while it runs (throttling), memory "
            "that grows, and what else the machine does; measure again when it is warm.",
        ),
        "Watch clocks, temperature and memory; measure again when it is warm",
        section="time",
    ),
    Rule(outlier_steps, _outlier_steps, _outlier_change, section="time"),
)


# --- Sentences about outliers of steps.


NULLS = {OutlierCause: said("no other track explains it")}

SENTENCES: Sentences = {
    OutlierPattern: {OutlierPattern.EACH_FIRST_STEP: "the first step of each pipeline call"},
    OutlierCause: {OutlierCause.WARM_UP: "warm-up"},
}
