"""`compare`: a baseline and new runs → how much each part changed, and whether noise explains it.

    found = compare([measure(load(a))], [measure(load(b))])
    found.metrics      # one row a metric, from end_to_end to single modules

A side may have several runs. What is drawn for the intervals is the largest thing that
either side has several of: runs, else pipeline calls of one run, from three on, else its steps. The
value of one is the median of the samples in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from profiler.analysis.comparison.codes import Level, Side, Verdict
from profiler.analysis.comparison.columns import LEVELS, METRICS, RUNS, TABLES
from profiler.analysis.comparison.measure import Measurement, measure
from profiler.analysis.comparison.meeting import meeting
from profiler.analysis.comparison.notes import notes_on
from profiler.analysis.comparison.reasons import reasons, repeats_of
from profiler.analysis.comparison.samples import KEYS, samples_of
from profiler.analysis.comparison.timeline import Timeline
from profiler.analysis.comparison.tree import difference_tree
from profiler.analysis.comparison.units import units_of
from profiler.analysis.comparison.waterfall import waterfall
from profiler.bootstrap import Bootstrap, Interval
from profiler.errors import InputError
from profiler.run.columns import checked, schema
from profiler.run.run import Run
from profiler.text import Note

__all__ = ["Comparison", "compare", "compare_runs"]


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What differs between a baseline and new runs.

    `runs` has a row a run, `metrics` a row a metric, from the whole to the finest
    (`columns.LEVELS`), submodules in the order of their calls, roles and modules longest first.
    `level` is the finest that both sides know: roles are what kernels do where it is `SORT`, and
    there are modules only where it is `MODULE`. `shapes`, `kernels` and `nodes` are empty where
    the sides have too little in common there. `waterfall` leads from one end-to-end time to the
    other, and `tree` has the same by module; `reasons` say what the largest differences consist
    of. `timelines` are those of the run in the middle of each side, where they were measured.
    `corrected` are the submodules whose traced calls are scaled to untraced ones. `notes` say what
    else differs.
    """

    runs: pl.DataFrame
    metrics: pl.DataFrame
    shapes: pl.DataFrame
    kernels: pl.DataFrame
    nodes: pl.DataFrame
    waterfall: pl.DataFrame
    tree: pl.DataFrame
    reasons: tuple[Note, ...]
    level: Level
    corrected: tuple[str, ...]
    notes: tuple[Note, ...]
    timelines: tuple[Timeline, Timeline] | None = None

    def __post_init__(self) -> None:
        for name, columns in TABLES.items():
            object.__setattr__(self, name, checked(getattr(self, name), columns))


def compare_runs(base: Iterable[Run], new: Iterable[Run]) -> Comparison:
    """Compare runs that are at hand; large ones are better measured one after the other."""
    return compare([*map(measure, base)], [*map(measure, new)])


def compare(
    base: Sequence[Measurement],
    new: Sequence[Measurement],
    *,
    among: Sequence[Measurement] = (),
) -> Comparison:
    """Compare a baseline with new runs. Raises InputError where a side has no run.

    Of comparisons that stand side by side, `among` are the runs of all: times are scaled to
    untraced calls where they can be in each of these.
    """
    if not base or not new:
        raise InputError("a comparison needs a run on each side: give at least one of each")
    met = meeting(base, new)
    base, new = met.base, met.new
    corrected, within_noise = _corrected((not met.renamed and among) or [*base, *new])
    sides = []
    for side, modules in zip((base, new), met.modules, strict=True):
        samples = [
            samples_of(measured, corrected, modules).with_columns(run=pl.lit(number))
            for number, measured in enumerate(side)
        ]
        sides.append(pl.concat(samples))
    rows = _rows(
        units_of(sides[0], sides[1]), _corrected_stages([*base, *new], corrected), corrected
    )
    metrics = pl.DataFrame(rows, schema=schema(METRICS), orient="row")
    whole = metrics.filter(pl.col("metric") == "end_to_end").drop_nulls(["base_ns", "new_ns"])
    lines = waterfall(sides[0], sides[1], whole["calls"][0] if len(whole) else None)
    return Comparison(
        runs=_runs(base, new),
        metrics=_in_order(_without_lone_branches(metrics), [*base, *new]),
        **met.tables,
        waterfall=lines,
        tree=difference_tree(lines, sides[0], sides[1]),
        reasons=(
            *reasons(lines, met.tables["shapes"], met.tables["kernels"], repeats_of(base, new)),
        ),
        level=met.level,
        corrected=corrected,
        notes=(*met.notes, *notes_on(base, new, corrected, within_noise)),
        timelines=_timelines(base, new),
    )


def _timelines(
    base: Sequence[Measurement], new: Sequence[Measurement]
) -> tuple[Timeline, Timeline] | None:
    """Of each side that of the run in the middle, by how long it took; None where a side has
    none."""
    found = []
    for side in (base, new):
        known = [run.timeline for run in side if run.timeline is not None]
        ranked = sorted(known, key=lambda timeline: timeline.span_ns)
        if not ranked or not len(ranked[(len(ranked) - 1) // 2].calls):
            return None
        found.append(ranked[(len(ranked) - 1) // 2])
    return found[0], found[1]


def _corrected(measured: Sequence[Measurement]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The submodules of which every run with traced calls knows what tracing costs: those that
    are scaled by it, and those where some run could not tell it from noise. To scale the other
    runs alone would make a difference of what tracing costs them."""
    known: dict[str, list[float | None]] = {}
    for run in measured:
        for name in run.calls.filter("traced")["submodule"].unique(maintain_order=True):
            known.setdefault(name, []).append(run.overhead_ratio.get(name))
    told = [(name, factors) for name, factors in known.items() if None not in factors]
    return (
        tuple(name for name, factors in told if 1.0 not in factors),
        tuple(name for name, factors in told if 1.0 in factors),
    )


def _corrected_stages(
    measured: Sequence[Measurement], corrected: tuple[str, ...]
) -> frozenset[str]:
    """The stages with calls of corrected submodules."""
    found: set[str] = set()
    for run in measured:
        found.update(run.calls.filter(pl.col("submodule").is_in(corrected))["stage"])
    return frozenset(found)


def _rows(
    units: pl.DataFrame, stages: frozenset[str], corrected: tuple[str, ...]
) -> list[tuple[object, ...]]:
    """The rows of `METRICS`."""
    bootstrap = Bootstrap()
    rows = []
    for key in units.iter_rows(named=True):
        base, new = key["base"], key["new"]
        if key["submodule"] is not None:
            scaled = key["submodule"] in corrected
        else:
            scaled = key["stage"] in stages if key["stage"] else bool(stages)
        places = tuple(key[name] for name in KEYS)
        counts = (len(base or ()), len(new or ()), scaled)
        if base is None or new is None:
            side, values = (Side.NEW, new) if base is None else (Side.BASE, base)
            median = round(_median(values))
            times = (None, median) if base is None else (median, None)
            nothing = (None, None, None, None)
            rows.append((*places, key["calls"], *times, *nothing, None, *counts, side.alone.value))
            continue
        found = bootstrap.compare(base, new)
        rows.append(
            (
                *places,
                key["calls"],
                *_changes(found),
                key["resampled"],
                *counts,
                _verdict(found).value,
            )
        )
    return rows


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[-1 - middle]) / 2


def _changes(found: Interval) -> tuple[object, ...]:
    """base_ns, new_ns, difference_ns, change, low, high; null where they are not known."""
    base, new = round(found.base), round(found.new)
    if not found.base:
        return base, new, new - base, None, None, None
    low, high = (
        None if end is None else max(end / found.base, -1.0) for end in (found.low, found.high)
    )  # a time may vanish, no more
    return base, new, new - base, (found.new - found.base) / found.base, low, high


def _verdict(found: Interval) -> Verdict:
    """What an interval tells: unclear where a side's spread had to be assumed and would explain
    the difference, for then nobody knows whether noise does."""
    if found.exceeds_noise:
        return Verdict.SLOWER if found.new > found.base else Verdict.FASTER
    if found.assumed and found.new != found.base:
        return Verdict.UNCLEAR
    return Verdict.MEASURED_ONCE if found.low is None else Verdict.WITHIN_NOISE


def _without_lone_branches(metrics: pl.DataFrame) -> pl.DataFrame:
    """Without branches of submodules that have one alone: these are the submodule itself."""
    several = pl.col("branch").n_unique().over("level", "submodule") > 1
    return metrics.filter((pl.col("level") != "branch") | several)


def _in_order(metrics: pl.DataFrame, measured: Sequence[Measurement]) -> pl.DataFrame:
    """From the whole to the finest, as `Comparison` describes it."""
    calls = pl.concat([run.calls.select("stage", "submodule") for run in measured])
    spans = pl.concat([run.spans.select("stage") for run in measured])
    stages = _ranks([*spans["stage"].drop_nulls().unique(maintain_order=True), *calls["stage"]])
    submodules = _ranks(calls["submodule"].unique(maintain_order=True))
    longest = pl.max_horizontal("base_ns", "new_ns")
    return (
        metrics.with_columns(
            _level=pl.col("level").replace_strict(_ranks(LEVELS), return_dtype=pl.Int64),
            _stage=pl.col("stage").replace_strict(stages, default=-1, return_dtype=pl.Int64),
            _submodule=pl.col("submodule").replace_strict(
                submodules, default=-1, return_dtype=pl.Int64
            ),
            _longest=pl.when(pl.col("role").is_not_null()).then(-longest),
        )
        .sort(
            "_level",
            pl.when(pl.col("submodule").is_null()).then("_stage"),
            "_submodule",
            "branch",
            "_longest",
            "step",
            "metric",
            nulls_last=False,
        )
        .select(metrics.columns)
    )


def _ranks(names: Iterable[str]) -> Mapping[str, int]:
    return {name: rank for rank, name in enumerate(dict.fromkeys(names))}


def _runs(base: Sequence[Measurement], new: Sequence[Measurement]) -> pl.DataFrame:
    """One row a run (`RUNS`)."""
    rows = []
    for side, measured in ((Side.BASE, base), (Side.NEW, new)):
        for run in measured:
            whole = run.spans.filter(pl.col("level") == "end_to_end")
            steps = run.spans.filter((pl.col("level") == "step") & (pl.col("part") == ""))
            rows.append(
                (
                    side.value,
                    run.run_id,
                    run.info.pipeline,
                    run.info.producer,
                    ", ".join(sorted(run.devices)),
                    len(whole),
                    len(steps),
                    len(run.calls),
                    int(run.calls["traced"].sum()),
                )
            )
    return pl.DataFrame(rows, schema=schema(RUNS), orient="row")
