"""`compare`: how much each part of a run changed, why, and whether noise explains it.

    comparison = compare([measure(load(a))], [measure(load(b))])
    comparison.metrics      # one row per metric, from end_to_end to single modules

A side may have several runs. Intervals are drawn from runs if either side has several, else
from pipeline calls (three or more), else from steps. The gate for CI fails if a metric has
slowed down by more than the limit.
"""

from __future__ import annotations

import difflib
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from profiler.analysis.health import notes_of, sentence_of, worst_damage
from profiler.analysis.idle import DATA_LOADER
from profiler.analysis.provenance import ARGUMENTS, generation_pairs, setting_pairs
from profiler.compare.align import meeting, units_of
from profiler.compare.measure import KEYS, Measurement, measure, samples_of
from profiler.compare.tables import (
    LEVELS,
    METRICS,
    RUNS,
    TABLES,
    ComparisonNote,
    Level,
    RunTrait,
    Side,
    Step,
    Verdict,
)
from profiler.compare.tree import (
    AS_OFTEN,
    LEAST,
    Repeats,
    Timeline,
    difference_tree,
    of_pipeline_calls,
    reasons,
    waterfall,
)
from profiler.errors import InputError
from profiler.run.columns import checked, schema
from profiler.run.run import Run
from profiler.text import Note
from profiler.trace.bootstrap import Bootstrap, Interval
from profiler.trace.events import device_kind
from profiler.trace.manifest_fields import stated

# --- Notes on what else differs between two sides, and on what intervals do not cover.


_LONGEST = 60  # characters of a value
_OTHER_SHAPES = 0.2  # of the time: below, shapes of one side explain little
_MOST_SHAPES = 3
_MUCH_ALIKE = 0.2  # of the time: below, the rest may explain the change
_OTHER_SPEED = 0.03  # runs of one device at one clock differ by 1 % at the median
_FEWEST = 3  # runs that tell noise from difference
_BESIDE_TIMES = ("profile-sd3", "python", "source")  # versions and files, which decide no time
_LATE = 1.5  # busy time over time in calls: the calls return before their device is done

_Side = Sequence[Measurement]
_Of = Callable[[Measurement], Any]


def notes_on(
    base: _Side, new: _Side, corrected: Sequence[str], within_noise: Sequence[str]
) -> Iterator[Note]:
    """Yield notes on what else differs between two sides. `corrected` are the submodules whose
    traced calls are scaled to untraced ones, `within_noise` those whose profiling overhead some run
    cannot distinguish from noise."""
    yield from _same(base, new)
    yield from _damaged(base, new)
    yield from _repetition(base, new)
    yield from _tracing(base, new, corrected, within_noise)
    yield from _asynchronous(base, new)
    named = all(_models(run) for run in (*base, *new))
    identity: tuple[tuple[RunTrait, _Of], ...] = (
        (RunTrait.PIPELINE, lambda run: run.info.pipeline),
        (RunTrait.MODEL, lambda run: run.info.model),
        (RunTrait.DEVICES, lambda run: _hardware(run, named=named)),
        (RunTrait.CPU, lambda run: run.info.hardware.cpu),
    )
    for noun, of in identity:
        left, right = _joined_text(base, of), _joined_text(new, of)
        if left and right and left != right:
            yield Note.of(ComparisonNote.OTHER_TRAIT, what=noun, left=left, right=right)
    yield from _mappings(ComparisonNote.SETTINGS_DIFFER, base, new, _settings)
    yield from _mappings(ComparisonNote.VERSIONS_DIFFER, base, new, lambda run: run.info.versions)


def _same(base: _Side, new: _Side) -> Iterator[Note]:
    """Note runs that are on both sides: same run ID and equal calls."""
    both = [
        run.run_id
        for run in base
        if run.run_id
        and any(run.run_id == other.run_id and run.calls.equals(other.calls) for other in new)
    ]
    if both:
        yield Note.of(ComparisonNote.SAME_RUN, runs=tuple(dict.fromkeys(both)))


def _damaged(base: _Side, new: _Side) -> Iterator[Note]:
    """Note runs whose recording is damaged, because the damage may be the difference."""
    for side, runs in ((Side.BASE, base), (Side.NEW, new)):
        for run in runs:
            note = worst_damage(notes_of(run.info))
            if note is not None:
                damage = str(sentence_of(note))
                yield Note.of(ComparisonNote.DAMAGED, run=run.run_id, side=side, damage=damage)


def _repetition(base: _Side, new: _Side) -> Iterator[Note]:
    fewest, most = sorted((len(base), len(new)))
    if most == 1:
        yield Note.of(ComparisonNote.ONE_RUN_EACH, fewest=_FEWEST)
    elif fewest == 1:
        side = Side.BASE if len(base) == 1 else Side.NEW
        yield Note.of(ComparisonNote.ONE_RUN, side=side)
    if 1 < most < _FEWEST:
        yield Note.of(ComparisonNote.FEW_RUNS, runs=most, fewest=_FEWEST)


def _tracing(
    base: _Side, new: _Side, corrected: Sequence[str], within_noise: Sequence[str]
) -> Iterator[Note]:
    if corrected:
        yield Note.of(ComparisonNote.CORRECTED, submodules=tuple(corrected))
    if within_noise:
        yield Note.of(ComparisonNote.COST_WITHIN_NOISE, submodules=tuple(within_noise))
    traced = [_traced(side) for side in (base, new)]
    names = [*dict.fromkeys([*traced[0], *traced[1]])]
    raw = [name for name in names if name not in (*corrected, *within_noise)]
    for at, side in enumerate(Side):
        alone = [name for name in raw if traced[at].get(name, 0) and traced[1 - at].get(name) == 0]
        if alone:
            yield Note.of(ComparisonNote.TRACED_ON_ONE_SIDE, side=side, submodules=tuple(alone))
    both = [name for name in raw if all(side.get(name, 0) for side in traced)]
    if both:
        yield Note.of(ComparisonNote.AS_TRACED, submodules=tuple(both))


def _traced(side: _Side) -> Counter[str]:
    """Traced calls by submodule."""
    found: Counter[str] = Counter()
    for run in side:
        counted = run.calls.group_by("submodule", maintain_order=True).agg(pl.col("traced").sum())
        found.update(dict(counted.iter_rows()))
    return found


def _asynchronous(base: _Side, new: _Side) -> Iterator[Note]:
    """Submodules whose calls return before their device is done."""
    for name, side in ((Side.BASE, base), (Side.NEW, new)):
        late: dict[str, None] = {}
        for run in side:
            timed = run.calls.drop_nulls("value_ns")
            traced = timed.filter("traced").group_by("submodule", maintain_order=True)
            sums = traced.agg(pl.col("total_ns", "value_ns").sum())
            rows = sums.filter(pl.col("total_ns") > _LATE * pl.col("value_ns"))
            late |= dict.fromkeys(rows["submodule"])
        if late:
            yield Note.of(ComparisonNote.ASYNCHRONOUS, submodules=tuple(late), side=name)


def _settings(run: Measurement) -> Mapping[str, Any]:
    """The settings of a run: arguments of its pipeline calls first, because they decide how much
    work it has, then its set-up and recording."""
    made = generation_pairs(run.info.generations)
    given = {
        key: value
        for key, value in run.info.settings.items()
        if ARGUMENTS.get(key) not in made  # the objects' own settings replace it
    }
    set_up = setting_pairs(run.info.submodule_settings, without="none")
    return {**made, **set_up, **given, **stated(run.info.recording)}


def _models(run: Measurement) -> dict[str, str]:
    """The hardware model of each device except CPUs; empty if any is not known."""
    known = run.info.devices
    found = {name: known[name].hardware for name in run.devices if name in known}
    found = {name: model for name, model in found.items() if device_kind(name) != "cpu"}
    others = [name for name in run.devices if device_kind(name) != "cpu"]
    return found if len(found) == len(others) and all(found.values()) else {}


def _hardware(run: Measurement, *, named: bool) -> str:
    """Count the devices by model, or by kind if not `named`: `"2 × H100"`. Which of several equal
    devices a run had does not matter."""
    models = _models(run) if named else {}
    counted = Counter(models.get(name, device_kind(name)) for name in run.devices)
    return ", ".join(f"{times} × {one}" if times > 1 else one for one, times in counted.items())


def other_shapes(shapes: pl.DataFrame) -> Iterator[Note]:
    """Note operations that both sides ran with different shapes, if shapes of only one side take a
    good part of the time: different work explains different times."""
    own, op = pl.col("base_ns").is_null() != pl.col("new_ns").is_null(), pl.col("what")
    took = shapes.with_columns(
        own=own, op=op.str.split(" ").list.first(), took=pl.max_horizontal("base_ns", "new_ns")
    )
    alone = took.filter("own")
    if not len(alone) or float(alone["took"].sum()) < _OTHER_SHAPES * float(took["took"].sum()):
        return
    pairs = []
    for _, rows in alone.sort("took", descending=True).group_by(
        "submodule", "op", maintain_order=True
    ):
        sides = [rows.filter(pl.col(name).is_not_null()) for name in ("base_ns", "new_ns")]
        if all(len(side) for side in sides):
            left, right = (str(side["what"][0]) for side in sides)
            name, _, left = left.partition(" ")
            given = {"name": name, "left": left, "right": right.partition(" ")[2]}
            pairs.append(Note.of(ComparisonNote.CHANGED_VALUE, **given))
    if pairs:
        yield Note.of(ComparisonNote.SHAPES_DIFFER, pairs=tuple(pairs[:_MOST_SHAPES]))


def other_speed(shapes: pl.DataFrame, repeats: Repeats) -> Iterator[Note]:
    """What both sides ran as often with the same kernels at the same shapes, if its median ratio of
    times, by time, is not 1: neither other work nor another program explains that, but the clock of
    the device does, under more load, a limit of its power or heat."""
    same = of_pipeline_calls(
        shapes.filter(
            pl.col("base_kernel") == pl.col("new_kernel"),
            pl.col("base_kernels") == pl.col("new_kernels"),
            (pl.col("new_executions") - pl.col("base_executions")).abs()
            <= AS_OFTEN * pl.col("base_executions"),
            pl.col("base_ns") > 0,
        ),
        repeats,
    ).sort(pl.col("new_ns") / pl.col("base_ns"))
    took = int(same["base_ns"].sum())
    if not took or took < _MUCH_ALIKE * int(shapes["base_ns"].sum()):
        return
    middle = same.filter(2 * pl.col("base_ns").cum_sum() >= took).row(0, named=True)
    ratio = middle["new_ns"] / middle["base_ns"]
    if abs(ratio - 1) >= _OTHER_SPEED:
        sums = {f"{side}_ns": int(same[f"{side}_of_call_ns"].sum()) for side in Side}
        yield Note.of(ComparisonNote.OTHER_SPEED, shapes=len(same), time_ratio=ratio, **sums)


def other_loading(base: _Side, new: _Side, waterfall: pl.DataFrame) -> Iterator[Note]:
    """Note a change of the host's time in a PyTorch DataLoader, within the longest gaps of a
    pipeline call, if it is at least 2 % of the end-to-end time. Yields nothing if the sides have
    different producers."""
    whole = waterfall.filter(pl.col("level") == Step.END_TO_END.value)
    if whole.is_empty() or len({run.info.producer for run in (*base, *new)}) > 1:
        return
    times = []
    for side in (base, new):
        calls = sum(max(run.calls["pipeline"].n_unique(), 1) for run in side)
        doing = (one for run in side for one in run.info.host_activities)
        loads = sum(one.duration_ns for one in doing if re.search(DATA_LOADER, one.name))
        times.append(round(loads / calls))
    longest = max(whole["base_ns"][0], whole["new_ns"][0])
    if abs(times[1] - times[0]) >= max(LEAST * longest, 1):
        yield Note.of(ComparisonNote.OTHER_LOADING, base_ns=times[0], new_ns=times[1])


def _joined_text(side: _Side, of: _Of) -> str:
    """Return a value of the runs of a side as text, joined by "or" if they differ."""
    values = dict.fromkeys(_text(of(run)) for run in side)
    return " or ".join(value for value in values if value)


def _mappings(code: ComparisonNote, base: _Side, new: _Side, of: _Of) -> Iterator[Note]:
    """The keys that both sides have with different values."""
    left, right = _merged(base, of), _merged(new, of)
    differing = [
        Note.of(ComparisonNote.CHANGED_VALUE, name=key, left=left[key], right=right[key])
        for key in left
        if key in right and left[key] != right[key] and key not in _BESIDE_TIMES
    ]
    if differing:
        yield Note.of(code, pairs=tuple(differing))


def _merged(side: _Side, of: _Of) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for run in side:
        known = of(run)
        for key, value in known.items():
            found.setdefault(key, {})[_text(value)] = None
    return {key: " or ".join(values) for key, values in found.items()}


def _text(value: Any) -> str:
    values = value if isinstance(value, tuple) else () if value is None else (value,)
    text = " ".join(", ".join(map(str, values)).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def repeats_of(base: Sequence[Measurement], new: Sequence[Measurement]) -> Repeats:
    """Count the samples of each submodule per pipeline call on both sides, 1 if calls lie in none.
    Times by shape and kernel are per sample."""
    found = [_samples_a_pipeline(side) for side in (base, new)]
    names = dict.fromkeys((*found[0], *found[1]))
    return {name: (found[0].get(name, 1.0), found[1].get(name, 1.0)) for name in names}


def _samples_a_pipeline(side: Sequence[Measurement]) -> dict[str, float]:
    samples: Counter[str] = Counter()
    pipelines = 0
    for run in side:
        calls = run.calls.filter(pl.col("pipeline") >= 0)
        pipelines += calls["pipeline"].n_unique()
        counted = calls.group_by("submodule").agg(n=pl.struct("pipeline", "step").n_unique())
        samples.update(dict(counted.iter_rows()))
    return {name: number / pipelines for name, number in samples.items()}


# --- `compare`: a baseline and new runs → how much each part changed, and whether noise explains
# it. The value of a run, pipeline call or step is the median of the samples in it.


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What differs between a baseline and new runs.

    `runs` has a row per run, `metrics` a row per metric, from the whole to the finest
    (`columns.LEVELS`), submodules in the order of their calls, roles and modules longest first.
    `level` is the finest that both sides know: roles are what kernels do if it is `SORT`, and there
    are modules only if it is `MODULE`. `shapes`, `kernels` and `nodes` are empty if the sides have
    too little in common there. `waterfall` leads from one end-to-end time to the other, and `tree`
    has the same by module; `reasons` say what the largest differences consist of. `timelines` are
    those of the median run of each side, if they were measured. `corrected` are the submodules
    whose traced calls are scaled to untraced ones. `notes` say what else differs.
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
    """Compare loaded runs; measure large ones one after the other instead (`compare`)."""
    return compare([*map(measure, base)], [*map(measure, new)])


def compare(
    base: Sequence[Measurement], new: Sequence[Measurement], *, among: Sequence[Measurement] = ()
) -> Comparison:
    """Compare a baseline with new runs. Raises InputError if a side has no run.

    For comparisons shown side by side, `among` are the runs of all of them: times are scaled to
    untraced calls only if every one of these runs allows it.
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
    scaled = pl.col("submodule").is_in(corrected)
    stages = {one for run in (*base, *new) for one in run.calls.filter(scaled)["stage"]}
    rows = _rows(units_of(sides[0], sides[1]), stages, corrected)
    metrics = pl.DataFrame(rows, schema=schema(METRICS), orient="row")
    whole = metrics.filter(pl.col("metric") == "end_to_end").drop_nulls(["base_ns", "new_ns"])
    lines = waterfall(sides[0], sides[1], whole["calls"][0] if len(whole) else None)
    repeats, named = repeats_of(base, new), all(map(_models, (*base, *new)))
    alike = len({_hardware(run, named=named) for run in (*base, *new)}) == 1
    return Comparison(
        runs=_runs(base, new),
        metrics=_in_order(metrics, [*base, *new]),
        **met.tables,
        waterfall=lines,
        tree=difference_tree(lines, sides[0], sides[1]),
        reasons=(*reasons(lines, met.tables["shapes"], met.tables["kernels"], repeats),),
        level=met.level,
        corrected=corrected,
        notes=(
            *met.notes,
            *other_shapes(met.shapes),
            *(other_speed(met.tables["shapes"], repeats) if alike else ()),
            *other_loading(base, new, lines),
            *notes_on(base, new, corrected, within_noise),
        ),
        timelines=_timelines(base, new),
    )


def _timelines(
    base: Sequence[Measurement], new: Sequence[Measurement]
) -> tuple[Timeline, Timeline] | None:
    """The timeline of the median run of each side, by duration; None if a side has none."""
    found = []
    for side in (base, new):
        timelines = [run.timeline for run in side if run.timeline is not None]
        ranked = sorted(timelines, key=lambda timeline: timeline.span_ns)
        found += ranked[(len(ranked) - 1) // 2 :][:1]
    known = len(found) == 2 and all(len(one.calls) for one in found)
    return (found[0], found[1]) if known else None


def _corrected(measured: Sequence[Measurement]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The submodules whose profiling overhead every run with traced calls knows: those whose times
    are scaled by it, and those where some run cannot distinguish it from noise. Scaling only some
    runs would show the overhead as a difference."""
    known: dict[str, list[float | None]] = {}
    for run in measured:
        for name in run.calls.filter("traced")["submodule"].unique(maintain_order=True):
            known.setdefault(name, []).append(run.overhead_ratio.get(name))
    corrected = [(name, factors) for name, factors in known.items() if None not in factors]
    return (
        tuple(name for name, factors in corrected if 1.0 not in factors),
        tuple(name for name, factors in corrected if 1.0 in factors),
    )


def _rows(
    units: pl.DataFrame, stages: set[str], corrected: tuple[str, ...]
) -> list[tuple[object, ...]]:
    """The rows of `METRICS`; `stages` are those with calls of corrected submodules."""
    bootstrap = Bootstrap()
    rows = []
    for key in units.iter_rows(named=True):
        base, new = key["base"], key["new"]
        if key["submodule"] is not None:
            scaled = key["submodule"] in corrected
        else:
            scaled = key["stage"] in stages if key["stage"] else bool(stages)
        resampled = key["resampled"]
        changes: tuple[object, ...] = (None,) * 6
        if base is not None and new is not None:
            found = bootstrap.compare(base, new)
            verdict, changes = _verdict(found), _changes(found)
        elif base is None:
            verdict, resampled = Side.NEW.alone, None
            changes = (None, round(statistics.median(new)), *changes[2:])
        else:
            verdict, resampled = Side.BASE.alone, None
            changes = (round(statistics.median(base)), *changes[1:])
        counts = (len(base or ()), len(new or ()), scaled)
        places = (key[name] for name in (*KEYS, "calls"))
        rows.append((*places, *changes, resampled, *counts, verdict.value))
    return rows


def _changes(found: Interval) -> tuple[object, ...]:
    """base_ns, new_ns, difference_ns, change, low, high; null if they are not known."""
    base, new = round(found.base), round(found.new)
    if not found.base:
        return base, new, new - base, None, None, None
    low, high = (
        None if end is None else max(end / found.base, -1.0) for end in (found.low, found.high)
    )  # a time can shrink by 100 % at most
    return base, new, new - base, (found.new - found.base) / found.base, low, high


def _verdict(found: Interval) -> Verdict:
    """Classify a change: unclear if a side's spread had to be assumed and would explain it, because
    then it is not known whether noise does."""
    if found.exceeds_noise:
        return Verdict.SLOWER if found.new > found.base else Verdict.FASTER
    if found.assumed and found.new != found.base:
        return Verdict.UNCLEAR
    return Verdict.MEASURED_ONCE if found.low is None else Verdict.WITHIN_NOISE


def _in_order(metrics: pl.DataFrame, measured: Sequence[Measurement]) -> pl.DataFrame:
    """Sort metrics from the whole to the finest (see `Comparison`). Drops the branches of
    submodules with a single branch, which would repeat the submodule."""
    several = pl.col("branch").n_unique().over("level", "submodule") > 1
    metrics = metrics.filter((pl.col("level") != "branch") | several)
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
    """Return one row per run (`RUNS`)."""
    rows = []
    for side, measured in ((Side.BASE, base), (Side.NEW, new)):
        for run in measured:
            whole = run.spans.filter(pl.col("level") == "end_to_end")
            steps = run.spans.filter((pl.col("level") == "step") & (pl.col("part") == ""))
            info, devices = run.info, ", ".join(sorted(run.devices))
            counts = (len(whole), len(steps), len(run.calls), int(run.calls["traced"].sum()))
            rows.append((side.value, run.run_id, info.pipeline, info.producer, devices, *counts))
    return pl.DataFrame(rows, schema=schema(RUNS), orient="row")


# --- The gate for CI: whether a metric became slower by more than is allowed.


_LIMIT = re.compile(r"\s*\+?(\d{1,6}(?:\.\d{1,6})?)\s*%\s*")
_NAMED = 4  # metrics that an error suggests


@dataclass(frozen=True, slots=True)
class Gate:
    """One metric against the `limit`, a ratio: `failed` if it is slower by more, and noise does
    not explain that it is slower."""

    metric: str
    limit: float
    change: float
    low: float
    high: float
    verdict: Verdict
    failed: bool


def parse_limit(text: str) -> float:
    """Parse a limit in per cent: `"5%"` → 0.05. Raises InputError for anything else."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise InputError(f"{text!r:.40} is no limit: give per cent, as in --fail-over 5%")
    return float(match[1]) / 100


def find_metric(comparison: Comparison, name: str) -> dict[str, object]:
    """Return the row of a metric. Raises InputError with similar names if there is none."""
    rows = comparison.metrics.filter(pl.col("metric") == name)
    if rows.is_empty():
        names = comparison.metrics["metric"].to_list()
        alike = difflib.get_close_matches(name, names, _NAMED, 0.5) or names[:_NAMED]
        raise InputError(
            f"there is no metric {name!r:.80} in these runs: give one such as {', '.join(alike)}"
        )
    return rows.row(0, named=True)


def check_gate(comparison: Comparison, name: str, limit: float) -> Gate:
    """Check a metric against `limit`.

    Raises InputError if it cannot be checked: the metric is unknown, only in one side, was measured
    once on each, or is slower by more than the limit without a known noise (`Verdict.UNCLEAR`).
    """
    row = find_metric(comparison, name)
    change, low, high = (row[key] for key in ("change", "low", "high"))
    verdict = Verdict(str(row["verdict"]))
    for side in Side:
        if verdict is side.alone:
            raise InputError(f"{name} is only in {side}: compare runs that both have it")
    if not isinstance(change, float):
        raise InputError(f"{name} took no time in base: give another metric")
    if not isinstance(low, float) or not isinstance(high, float):
        raise InputError(
            f"{name} was measured once on each side, so its noise is not known: give several runs "
            "a side, or a metric that repeats, as denoise.step does"
        )
    if verdict is Verdict.UNCLEAR and change > limit:
        raise InputError(
            f"{name} is slower by {change:.1%}, but its values are too few, or equal, so its noise "
            "is not known: give three or more runs a side"
        )
    failed = verdict is Verdict.SLOWER and change > limit
    return Gate(name, limit, change, low, high, verdict, failed)


# --- Several runs beside a first one, each compared with it alone.


@dataclass(frozen=True, slots=True)
class Compared:
    """One named side, its comparison with the first side, and the gates it was checked against."""

    name: str
    comparison: Comparison
    gates: Sequence[Gate] = ()


def compare_each(sides: Sequence[Sequence[Measurement]]) -> tuple[Comparison, ...]:
    """Compare each of `sides` but the first with the first, in order.

    Times are scaled to untraced calls if that can be done in all of them, so that the first side
    has the same times in every comparison. Raises InputError for less than two sides, or one
    without a run.
    """
    if len(sides) < 2:
        raise InputError("a comparison needs two sides: give at least two runs")
    base, *others = sides
    among = [run for side in sides for run in side]
    return tuple(compare(base, new, among=among) for new in others)
