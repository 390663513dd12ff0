"""Align two runs: match their submodules, modules and calls, and pick a common level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import polars as pl

from profiler.compare.measure import AVERAGED, KEYS, PARTS, Measurement, names_of_parts
from profiler.compare.operations import by_kernel, by_node, by_shape, sums_of
from profiler.compare.tables import (
    PAIRED_CALLS,
    REST,
    ComparisonNote,
    Level,
    Side,
    class_paths,
    nearest_common,
    pattern,
)
from profiler.compare.tree import Timeline
from profiler.run.columns import schema
from profiler.text import Note
from profiler.trace.bootstrap import Resampled
from profiler.trace.events import NO_STEP, RUN_STAGE

# --- The name under which each module is compared: the nearest module that both sides have.


_ALIGNED = dict.fromkeys(("submodule", "role", "module", "as", "level"), pl.String())  # names
_Places = dict[tuple[str, str], set[str]]  # module paths by submodule and role
_Translation = dict[str, dict[str, str]]  # by submodule: its paths in the words of the other side


def align_modules(
    base: Sequence[Measurement], new: Sequence[Measurement]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the compared name of each module, one frame per side: `submodule`, `role`, `module`,
    the name `as` which it is compared and the `level` of that name, for `samples_of`.

    Within each role of a submodule a module is compared as the nearest module that lies on a path
    of both sides. If the other side has nothing there it keeps its own name, and is then only in
    one side. Roles of which only the submodule itself is common have no modules. Modules that
    differ in numbers alone are also compared together, as `modules`.
    """
    sides = (base, new)
    words = _translations(sides)
    places = [_places(side, translated) for side, translated in zip(sides, words, strict=True)]
    names = {
        key: _names_by_path(places[0][key], places[1][key]) for key in places[0].keys() & places[1]
    }
    tables = []
    for side, translated in zip(sides, words, strict=True):
        rows = [
            (submodule, role, path, name, level)
            for (submodule, role), paths in sorted(_own_places(side).items())
            for path in sorted(paths)
            for level, name in names.get((submodule, role), {}).get(
                translated.get(submodule, {}).get(path, path), ()
            )
        ]
        tables.append(pl.DataFrame(rows, schema=_ALIGNED, orient="row"))
    return tables[0], tables[1]


def _names_by_path(base: set[str], new: set[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the levels and names as which each path is compared; empty if the sides have only the
    submodule itself in common."""
    nearest = nearest_common(base, new)
    both = {nearest[path] for path in base} & {nearest[path] for path in new}
    if not both - {""}:
        return {}
    alike = Counter(map(pattern, both))
    found = {}
    for path in base | new:
        name = nearest[path]
        found[path] = [("module", (name or REST) if name in both else path)]
        if name in both and alike[pattern(name)] > 1:
            found[path].append(("modules", pattern(name)))
    return found


def _own_places(side: Sequence[Measurement]) -> _Places:
    """The module paths of each submodule and role, as this side names them."""
    found: _Places = {}
    for measured in side:
        rows = measured.work.select("submodule", "role", "module").unique().iter_rows()
        for submodule, role, path in rows:
            found.setdefault((submodule, role), set()).add(path)
    return found


def _places(side: Sequence[Measurement], translated: _Translation) -> _Places:
    """The module paths of each submodule and role, in the names under which they are compared."""
    return {
        (submodule, role): {translated.get(submodule, {}).get(path, path) for path in paths}
        for (submodule, role), paths in _own_places(side).items()
    }


def _translations(
    sides: tuple[Sequence[Measurement], Sequence[Measurement]],
) -> tuple[_Translation, _Translation]:
    """Map paths of one side to class paths if the other side names classes, by submodule.

    Importers of torch traces know modules by their classes. If a run of one side has the class of
    each module, and more of its paths then match the other side, they are translated.
    """
    known: tuple[dict[str, set[str]], dict[str, set[str]]] = ({}, {})
    for paths_of, side in zip(known, sides, strict=True):
        for (submodule, _), own in _own_places(side).items():
            paths_of.setdefault(submodule, set()).update(own)
    found: tuple[_Translation, _Translation] = ({}, {})
    for submodule in known[0].keys() & known[1].keys():
        paths = [known[0][submodule], known[1][submodule]]
        most = len((paths[0] & paths[1]) - {""})
        for at in (0, 1):
            classes = next(filter(None, (run.modules.get(submodule) for run in sides[at])), None)
            if classes is None:
                continue
            by_class = class_paths(classes)
            translated = {path: _in_classes(path, by_class) for path in paths[at]}
            common = len((set(translated.values()) & paths[1 - at]) - {""})
            if common > most:
                most = common
                found[1 - at].pop(submodule, None)
                found[at][submodule] = translated
    return found


def _in_classes(path: str, by_class: dict[str, str]) -> str:
    """Translate `path` into classes; modules deeper than the known ones are cut off."""
    while path not in by_class and path:
        path = path.rpartition(".")[0]
    return by_class.get(path, path)


# --- Align two timelines call by call: which call of one is which of the other, and where both
# start if the calls are drawn below each other.
#
#     base   | encode |  step 0  |      | step 1 |
#     new    | encode |  step 0         | step 1    |
#                                       ^ at_ns
#
# A call is found by its submodule, branch and step, and by its place among those that share all
# three. Branches and steps count if both sides recorded some. Sides without a common submodule
# pair their submodules in the order of calls, or else calls by step and place alone.


def aligned_calls(base: Timeline, new: Timeline) -> pl.DataFrame:
    """The calls of both sides (`columns.PAIRED_CALLS`), in their order. `base_call` and `new_call`
    are rows of the timelines' calls, null if a side has none."""
    calls = (base.calls, new.calls)
    names = _names_in_order(*([*side["submodule"]] for side in calls)) or names_of_parts(*calls)
    common = {*base.calls["submodule"]} & {*new.calls["submodule"]}
    by = ["submodule"] if common or names else []
    if by and all(side["branch"].count() for side in calls):
        by.append("branch")
    if not by or all((side["step"] > NO_STEP).any() for side in calls):
        by.append("step")
    renamed = new.calls.with_columns(pl.col("submodule").replace(names))
    sides = [_keyed(side, by) for side in (base.calls, renamed)]
    of_base, of_new = ({key: at for at, key in enumerate(keys)} for keys in sides)
    rows, at, starts = [], 0, (base.calls["start_ns"], new.calls["start_ns"])
    last = [(0, 0), (0, 0)]  # of each side's last call: its start, and its place
    for key in _merged(*sides):
        found = (of_base.get(key), of_new.get(key))
        begins = {n: starts[n][call] for n, call in enumerate(found) if call is not None}
        at = max(at, *(last[n][1] + begin - last[n][0] for n, begin in begins.items()))
        for n, begin in begins.items():
            last[n] = (begin, at)
        rows.append(_row(base, new, *found, at))
    return pl.DataFrame(rows, schema=schema(PAIRED_CALLS), orient="row")


def _keyed(calls: pl.DataFrame, by: Sequence[str]) -> list[tuple[object, ...]]:
    """Return the key by which each call is matched, in order."""
    numbered = calls.with_columns(nth=pl.int_range(pl.len()).over(*by))
    return [*numbered.select(*by, "nth").iter_rows()]


def _merged(
    base: list[tuple[object, ...]], new: list[tuple[object, ...]]
) -> Iterator[tuple[object, ...]]:
    """Merge the keys of both sides in the base's order; keys that only the new side has come before
    the next common one."""
    known, passed = {*base}, set[object]()
    left = iter(base)
    for key in new:
        if key not in known:
            yield key
        if key not in known or key in passed:  # or the sides execute it in another order
            continue
        for other in left:
            passed.add(other)
            yield other
            if other == key:
                break
    yield from left


def _row(  # what a number may be of
    base: Timeline, new: Timeline, left: int | None, right: int | None, at: int
) -> tuple[object, ...]:
    sides = ((base.calls, left), (new.calls, right))
    calls, row = next((calls, row) for calls, row in sides if row is not None)
    times = [
        (None, None) if row is None else (calls["start_ns"][row], calls["elapsed_ns"][row])
        for calls, row in sides
    ]
    (base_start, base_ns), (new_start, new_ns) = times
    difference = None if base_ns is None or new_ns is None else new_ns - base_ns
    names = (calls[name][row] for name in ("stage", "submodule", "branch", "step"))
    return (*names, left, right, base_start, base_ns, new_start, new_ns, difference, at)


# --- The finest level at which two sides can be compared: that where most of both has a
# counterpart.
#
# Producers know different things of a model: some its modules, some its operators, some the names
# of kernels alone. A level is used if at least half of either side's time lies in what both sides
# have there; below it all would be "only in one side".


Sides = tuple[Sequence[Measurement], Sequence[Measurement]]
_ENOUGH = 0.5  # of the time of either side
_MORE = 0.05  # of the time: if what commands do has this much more in common, roles are not used
_LAST = Level.SUBMODULE
_OTHER = "other"
_IN_MODULE = r"[./]"  # of a path that names a module around the operation


@dataclass(frozen=True, slots=True)
class Common:
    """The share of each side's time that lies in what both sides have at a level; None for a side
    that knows nothing there."""

    base: float | None
    new: float | None

    @property
    def least(self) -> float:
        """The smaller share of the two sides."""
        return min(self.base or 0.0, self.new or 0.0)

    @property
    def enough(self) -> bool:
        """Whether the sides have enough in common to be compared at this level."""
        return self.least >= _ENOUGH

    @property
    def lacking(self) -> tuple[Side, ...]:
        """The sides that know nothing at this level."""
        shares = ((Side.BASE, self.base), (Side.NEW, self.new))
        return tuple(side for side, share in shares if share is None)


def common_levels(
    sides: Sides,
    modules: tuple[pl.DataFrame, pl.DataFrame],
    tables: Mapping[Level, pl.DataFrame],
    totals: tuple[float, float],
) -> dict[Level, Common]:
    """Measure how much the sides have in common at each level, finest first. `modules` are the
    results of `align_modules`; `tables` have a row per shape, kernel or node, of sides whose
    operations take the `totals` in ns."""
    work = [_work(side) for side in sides]
    paths = [
        own.join(names.filter(pl.col("level") == "module"), on=["submodule", "role", "module"])
        .filter(~pl.col("as").is_in(["", REST]))
        .filter(pl.col("module").str.contains(_IN_MODULE))
        for own, names in zip(work, modules, strict=True)
    ]
    named = [own.filter(pl.col("role") != _OTHER) for own in work]
    found = {
        Level.MODULE: _joined(paths, ("submodule", "role", "as")),
        Level.ROLE: _joined(named, ("submodule", "role")),
        Level.SORT: _joined(work, ("submodule", _sort(work))),
        Level.SUBMODULE: _joined(work, ("submodule",)),
        **tables,
    }
    of_work = tuple(float(own["total_ns"].sum()) for own in work)
    shares = {
        level: _common(table, totals if level in tables else of_work)
        for level, table in found.items()
    }
    found_modules = shares[Level.MODULE]
    base, new = (
        (share or 0.0) if own["module"].str.contains(_IN_MODULE).any() else None
        for own, share in zip(work, (found_modules.base, found_modules.new), strict=True)
    )
    shares[Level.MODULE] = Common(base, new)
    engine = any(run.info.producer == AVERAGED for side in sides for run in side)
    return {one: shares[one] for one in Level if one in shares and (one != Level.NODE or engine)}


def finest(levels: Mapping[Level, Common]) -> Level:
    """The finest level at which most of the time of both sides is in common, roles aside if what
    commands do has far more in common."""
    known = (one for one, common in levels.items() if common.enough)
    return next((one for one in known if one is not Level.ROLE or _of_model(levels)), _LAST)


def compared_by(levels: Mapping[Level, Common]) -> Note:
    """Return the note that says at which level sides are compared, and why not at a finer one."""
    level = finest(levels)
    why = tuple(_why(levels, level))
    if not why:
        return Note.of(ComparisonNote.COMPARED_BY_FINEST, level=level)
    return Note.of(ComparisonNote.COMPARED_BY, level=level, why=why)


def by_sorts(sides: Sides) -> Sides:
    """The sides with roles replaced by what commands do according to their kernels or operators."""
    sort = _sort([_work(side) for side in sides])
    base, new = (
        [replace(run, work=run.work.with_columns(role=pl.col(sort))) for run in side]
        for side in sides
    )
    return base, new


def _work(side: Sequence[Measurement]) -> pl.DataFrame:
    return pl.concat([run.work for run in side])


def _sort(work: Sequence[pl.DataFrame]) -> str:
    """The column that says what commands do: by kernel if most of both sides has one, else by
    operator."""
    kernel_ns = [float(own.filter(pl.col("by_kernel") != "")["total_ns"].sum()) for own in work]
    enough = [
        some >= _ENOUGH * float(own["total_ns"].sum())
        for some, own in zip(kernel_ns, work, strict=True)
    ]
    return "by_kernel" if all(enough) else "by_operator"


def _joined(work: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """Sum the times of both sides by `keys`; null if a side has none."""
    base, new = (own.group_by(keys).agg(pl.col("total_ns").sum()) for own in work)
    both = base.join(new, on=keys, how="full", coalesce=True, suffix="_of_new")
    return both.select(base_ns="total_ns", new_ns="total_ns_of_new")


def _common(table: pl.DataFrame, totals: Sequence[float]) -> Common:
    both = table.drop_nulls(["base_ns", "new_ns"])
    shares = [
        None if not table[name].count() else float(both[name].sum()) / total if total else 0.0
        for name, total in zip(("base_ns", "new_ns"), totals, strict=True)
    ]
    return Common(*shares)


def _why(levels: Mapping[Level, Common], chosen: Level) -> Iterator[Note]:
    """Say why each level finer than `chosen` is not used."""
    for level, common in levels.items():
        if level is chosen:
            return
        lacking = common.lacking
        if len(lacking) > 1:
            yield Note.of(ComparisonNote.NEITHER, level=level)
        elif lacking:
            yield Note.of(ComparisonNote.NOT_IN, level=level, side=lacking[0])
        elif not common.base and not common.new:
            yield Note.of(ComparisonNote.NONE_IN_COMMON, level=level)
        else:
            yield Note.of(
                ComparisonNote.FEW_IN_COMMON,
                level=level,
                base_share=common.base or 0.0,
                new_share=common.new or 0.0,
            )


# --- Submodules of two sides under one name, if no name is on both: producers call them after
# classes, files or nothing at all.


def _paired(
    base: Sequence[Measurement], new: Sequence[Measurement]
) -> tuple[Sequence[Measurement], Sequence[Measurement], Note | None]:
    """Rename submodules so that both sides share names, and return the note on it: the only
    submodule of one side becomes the only one of the other; several become each other in the order
    of their calls if that is the same on both sides, else all of a side become one. Sides that
    share a name keep all but `names_of_parts`. A submodule of which one side has steps and the
    other has pipeline calls alone is compared by pipeline call."""
    names = [_submodule_names(side) for side in (base, new)]
    if {*names[0]} & {*names[1]}:
        parts = names_of_parts(*(pl.concat(run.calls for run in side) for side in (base, new)))
        new = [_renamed(run, parts) for run in new]
        shared = {*names[0]} & {*_submodule_names(new)}
        apart = shared & _stepping_on_one_side(base, new) if _in_pipelines(base, new) else set()
        note = Note.of(ComparisonNote.PAIRED, left=(*parts.values(),), right=(*parts,))
        return *_by_pipeline_calls(base, new, apart), note if parts else None
    if not names[0] or not names[1]:
        return base, new, None
    if len(names[0]) == len(names[1]) == 1:
        left, right = names[0][0], names[1][0]
        note = Note.of(ComparisonNote.PAIRED, left=left, right=right)
        return base, [_renamed(run, {right: left}) for run in new], note
    if in_order := _names_in_order(*(_sequence(side) for side in (base, new))):
        pairs = {"left": tuple(in_order.values()), "right": tuple(in_order)}
        note = Note.of(ComparisonNote.IN_ORDER, **pairs)
        new = [_renamed(run, in_order) for run in new]
        placed = _in_pipelines(base, new)
        apart = _stepping_on_one_side(base, new) if placed else {*in_order.values()}
        return *_by_pipeline_calls(base, new, apart), note
    note = Note.of(ComparisonNote.TOGETHER, left=tuple(names[0]), right=tuple(names[1]))
    return [*map(_as_one, base)], [*map(_as_one, new)], note


def _submodule_names(side: Sequence[Measurement]) -> list[str]:
    return [*dict.fromkeys(name for run in side for name in run.calls["submodule"])]


def _sequence(side: Sequence[Measurement]) -> list[str]:
    """The submodules of the first pipeline call in the order of calls, or of the whole run if its
    calls lie in none; empty if the runs of a side differ."""
    found = []
    for run in side:
        inside = run.calls.filter(pl.col("pipeline") >= 0)
        calls = inside.filter(pl.col("pipeline") == pl.col("pipeline").min())
        found.append([*(calls if len(calls) else run.calls)["submodule"]])
    return found[0] if all(one == found[0] for one in found) else []


def _names_in_order(base: Sequence[str], new: Sequence[str]) -> dict[str, str]:
    """Map each name of `new` to the name of `base` that is called at the same places, repeated
    calls counted once; empty if the orders differ, or if a name is on both sides."""
    left, right = ([name for name, _ in groupby(names)] for names in (base, new))
    if len(left) != len(right) or {*left} & {*right}:
        return {}
    pairs = dict(zip(right, left, strict=True))
    same = [pairs[name] for name in right] == left and len({*pairs.values()}) == len(pairs)
    return pairs if same else {}


def _in_pipelines(base: Sequence[Measurement], new: Sequence[Measurement]) -> bool:
    """Whether every run has pipeline calls."""
    return all((run.calls["pipeline"] >= 0).any() for run in (*base, *new))


def _stepping_on_one_side(base: Sequence[Measurement], new: Sequence[Measurement]) -> set[str]:
    """The submodules of which only one side recorded steps."""
    stepping = [
        {name for run in side for name in run.calls.filter(pl.col("step") > NO_STEP)["submodule"]}
        for side in (base, new)
    ]
    return stepping[0] ^ stepping[1]


def _by_pipeline_calls(
    base: Sequence[Measurement], new: Sequence[Measurement], names: Collection[str]
) -> tuple[Sequence[Measurement], Sequence[Measurement]]:
    """Both sides with pipeline calls as the samples of the submodules `names`."""
    if not names:
        return base, new
    left, right = ([_by_pipeline_call(run, names) for run in side] for side in (base, new))
    return left, right


def _by_pipeline_call(run: Measurement, names: Collection[str]) -> Measurement:
    """Make a pipeline call, instead of a step, the sample of the submodules `names`. A run without
    pipeline calls is one."""
    own = pl.col("submodule").is_in(list(names))
    place = {"step": pl.when(own).then(pl.lit(NO_STEP, pl.Int32())).otherwise("step")}
    if not (run.calls["pipeline"] >= 0).any():
        place["pipeline"] = pl.when(own).then(pl.lit(0, pl.Int64())).otherwise("pipeline")
    calls, work = (frame.with_columns(**place) for frame in (run.calls, run.work))
    steps, whole = (_sample_counts(frame.filter(own)) for frame in (run.calls, calls))
    counted = run.details.samples
    # first steps are not in the sums: scale them to all steps of the pipeline calls
    factors = {name: steps.get(name, 0) / counted[name] for name in counted if name in names}
    factor = pl.col("submodule").replace_strict(factors, default=1.0, return_dtype=pl.Float64)

    def scaled(frame: pl.DataFrame, *sums: str) -> pl.DataFrame:
        return frame.with_columns((pl.col(*sums) * factor).round().cast(pl.Int64))

    details = replace(
        run.details,
        layers=scaled(run.details.layers, "total_ns"),
        operations=scaled(run.details.operations, "executions", "total_ns", "flops", "rated_ns"),
        samples={**counted, **{name: whole[name] for name in factors}},
    )
    return replace(run, calls=calls, work=work, details=details)


def _sample_counts(calls: pl.DataFrame) -> dict[str, int]:
    """The number of samples of each submodule that have traced calls."""
    samples = calls.filter("traced").select("submodule", "pipeline", "step").unique()
    return dict(samples.group_by("submodule").len().iter_rows())


def _as_one(run: Measurement) -> Measurement:
    """Merge all submodules of a run into one whose samples are pipeline calls."""
    names = _submodule_names([run])
    return _renamed(_by_pipeline_call(run, names), dict.fromkeys(names, RUN_STAGE))


def _renamed(run: Measurement, names: Mapping[str, str]) -> Measurement:
    def under(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.col("submodule").replace(names))

    samples: dict[str, int] = {}
    for name, count in run.details.samples.items():
        renamed = names.get(name, name)
        samples[renamed] = max(samples.get(renamed, 0), count)
    return replace(
        run,
        calls=under(run.calls),
        work=under(run.work),
        overhead_ratio={names.get(name, name): own for name, own in run.overhead_ratio.items()},
        modules={names.get(name, name): own for name, own in run.modules.items()},
        details=replace(
            run.details,
            layers=under(run.details.layers),
            operations=under(run.details.operations),
            samples=samples,
        ),
    )


# --- Bring two sides together: the names and the level of their comparison, and what they share.


@dataclass(frozen=True, slots=True)
class Meeting:
    """Both sides as they are compared: `modules` is for `samples_of`; `tables` are by their name in
    a `Comparison`, `shapes` has all shapes, however few are common; `renamed` if submodules had no
    names in common."""

    base: Sequence[Measurement]
    new: Sequence[Measurement]
    modules: tuple[pl.DataFrame, pl.DataFrame]
    tables: Mapping[str, pl.DataFrame]
    shapes: pl.DataFrame
    level: Level
    notes: tuple[Note, ...]
    renamed: bool


def meeting(base: Sequence[Measurement], new: Sequence[Measurement]) -> Meeting:
    """Align two sides and choose the level of their comparison, with a note unless it is
    modules."""
    base, new, note = _paired(base, new)
    sides: Sides = (base, new)
    modules = align_modules(base, new)
    sums = (sums_of(base), sums_of(new))
    tables = {
        Level.SHAPE: by_shape(*sums),
        Level.KERNEL: by_kernel(*sums),
        Level.NODE: by_node(*sides),
    }
    totals = tuple(float(one["total_ns"].sum()) for one in sums)
    levels = common_levels(sides, modules, tables, (totals[0], totals[1]))
    of_model = _of_model(levels)
    sides = sides if of_model else by_sorts(sides)
    if not of_model or (not levels[Level.MODULE].enough and note is not None):
        modules = (modules[0].clear(), modules[1].clear())
    shown = {
        f"{level}s": table if level in levels and levels[level].enough else table.clear()
        for level, table in tables.items()
    }
    level = finest(levels)
    producers = {run.info.producer for side in sides for run in side}
    said = level is not Level.MODULE or len(producers) > 1
    notes = [note, compared_by(levels) if said else None]
    why = tuple(filter(None, notes))
    return Meeting(*sides, modules, shown, tables[Level.SHAPE], level, why, note is not None)


def _of_model(levels: Mapping[Level, Common]) -> bool:
    """Whether both sides use the roles of the model, so that roles can be compared. A side that
    knows only kernels has products (`matmul`) instead of `mlp` and `qkv_projection`."""
    if levels[Level.MODULE].enough:
        return True
    least = 0.0 if not levels[Level.ROLE].enough else _MORE
    return levels[Level.SORT].least <= levels[Level.ROLE].least + least


# --- What intervals are drawn from, by metric: runs, pipeline calls or steps.


_APART = ("end_to_end", "stage", "step", "submodule", "branch")  # have a metric of first calls
_FEW = 3  # pipeline calls of one run: of fewer, steps say more
_UNIT = ("run", "pipeline", "step")


def units_of(base: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Collect the values of each metric on both sides, one row per metric: its keys, the `calls`
    that it is compared by, what is `resampled`, and the lists `base` and `new`, null if a side has
    none."""
    chosen = _chosen(base, new)
    return _units([_of_chosen(side, chosen) for side in (base, new)])


def _chosen(base: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Choose the `calls` by which each metric is compared, and the name `as` which.

    Steady samples if both sides have them, with first ones as a metric of their own; else first
    ones; else all.
    """
    first = pl.col("first")
    has = {"steady": (~first).any(), "first": first.any()}
    both = [
        side.group_by("metric", "level").agg(**{f"{name}_{at}": e for name, e in has.items()})
        for at, side in enumerate((base, new))
    ]
    joined = both[0].join(both[1], on=["metric", "level"], how="full", coalesce=True)
    steady, firsts = (
        pl.all_horizontal(pl.col(f"{name}_{at}").fill_null(value=True) for at in (0, 1))
        for name in has
    )
    calls = pl.when(steady).then(pl.lit("steady")).when(firsts).then(pl.lit("first"))
    main = joined.select("metric", calls=calls.otherwise(pl.lit("all")), **{"as": "metric"})
    known = pl.all_horizontal(pl.col("steady_0", "steady_1").is_not_null())
    part = pl.col("metric").is_in(PARTS)
    of_level = pl.col("level").is_in(_APART) & ~part
    apart = joined.filter(known & steady & firsts & of_level).select(
        "metric", calls=pl.lit("first"), **{"as": pl.col("metric") + ".first"}
    )
    return pl.concat([main, apart])


def _of_chosen(samples: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
    """Select the samples by which each metric is compared, under the metric's chosen name."""
    joined = samples.join(chosen, on="metric")
    wanted = (pl.col("calls") == "all") | (pl.col("first") == (pl.col("calls") == "first"))
    return joined.filter(wanted).drop("metric").rename({"as": "metric"})


def _units(sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Do the work of `units_of` on samples that are already chosen."""
    counted = []
    for at, side in enumerate(sides):
        pipelines = side.select("metric", "run", "pipeline").unique().group_by("metric")
        counted.append(
            side.group_by("metric")
            .agg(
                pl.col("run").n_unique().alias(f"runs_{at}"),
                pl.len().alias(f"samples_{at}"),
                (pl.col("pipeline") < 0).any().alias(f"alone_{at}"),
                (pl.col("step") > NO_STEP).any().alias(f"stepping_{at}"),
            )
            .join(pipelines.agg(pl.len().alias(f"pipelines_{at}")), on="metric")
        )
    joined = counted[0].join(counted[1], on="metric", how="full", coalesce=True)

    level = joined.select("metric", resampled=_resampled())
    values = [_values(side.join(level, on="metric")) for side in sides]
    keys = pl.concat([side.select(*KEYS, "calls") for side in sides]).unique(
        "metric", keep="first", maintain_order=True
    )
    return (
        keys.join(level, on="metric", how="left", maintain_order="left")
        .join(values[0].rename({"values": "base"}), on="metric", how="left", maintain_order="left")
        .join(values[1].rename({"values": "new"}), on="metric", how="left", maintain_order="left")
    )


def _resampled() -> pl.Expr:
    """The resampled unit of a metric (runs, calls or steps), from the counts of `_units`."""

    def at_least(number: int, name: str) -> pl.Expr:
        return pl.max_horizontal(f"{name}_0", f"{name}_1") >= number

    call = pl.when(pl.any_horizontal("alone_0", "alone_1")).then(pl.lit(Resampled.CALLS.value))
    of_call = call.otherwise(pl.lit(Resampled.PIPELINE_CALLS.value))
    stepping = pl.any_horizontal("stepping_0", "stepping_1")
    return (
        pl.when(at_least(2, "runs"))
        .then(pl.lit(Resampled.RUNS.value))
        .when(at_least(_FEW, "pipelines"))
        .then(of_call)
        .when(at_least(2, "samples"))
        .then(pl.when(stepping).then(pl.lit(Resampled.STEPS.value)).otherwise(of_call))
    )


def _values(samples: pl.DataFrame) -> pl.DataFrame:
    """The median of the samples in each run, pipeline call or step, as one list per metric."""
    of_run = (pl.col("resampled") == Resampled.RUNS.value).fill_null(value=False)
    calls = (Resampled.CALLS.value, Resampled.PIPELINE_CALLS.value)
    of_call = of_run | pl.col("resampled").is_in(calls).fill_null(value=False)
    return (
        samples.with_columns(
            pipeline=pl.when(of_run).then(0).otherwise("pipeline"),
            step=pl.when(of_call).then(0).otherwise("step"),
        )
        .group_by("metric", *_UNIT)
        .agg(pl.col("value_ns").median())
        .sort("metric", *_UNIT)
        .group_by("metric", maintain_order=True)
        .agg(values=pl.col("value_ns"))
    )
