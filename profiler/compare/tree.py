"""The difference of two runs by module and role: tree, waterfall, timeline, and why.

    end_to_end                  35.1 → 33.7 ms   -1.4 ms
      Qwen2Model                35.1 → 33.7      -1.4
        rope                     6.97 →  4.58    -2.4
        idle                     3.24 →  3.98    +0.7     elapsed time less that of its commands
      between                    0    →  0        0       in no call

Times are means over the samples of a side, because means add up and medians do not. First calls
are left out if both sides have steady ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from profiler.analysis.commands import Kinds
from profiler.compare.tables import (
    REST,
    STRETCHES,
    TIMED_CALLS,
    TREE,
    WATERFALL,
    DifferenceReason,
    Step,
    TreeNode,
    pattern,
)
from profiler.run.columns import empty, schema, typed
from profiler.run.intervals import Codes
from profiler.run.run import Run
from profiler.text import Note, Value

# --- The timeline of one run as it is drawn beside another's: calls, and intervals of work by role.
#
# found = timeline_of(run, roles)
# found.calls        # `columns.TIMED_CALLS`, of the pipeline call that represents the run
# found.stretches    # `columns.STRETCHES`, at most some thousands however long the run is


_STRETCHES = 1500  # per pipeline call: closer work is merged
_WAITS = ("host", "sync")


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """One pipeline call of a run, in ns from its start: the calls on their devices' axis, and the
    work that the devices executed in them. `pipeline` is its number in the run, below 0 if there is
    none; `span_ns` is its duration."""

    run_id: str
    pipeline: int
    span_ns: int
    calls: pl.DataFrame
    stretches: pl.DataFrame


def timeline_of(
    run: Run, placed: pl.DataFrame, kinds: Kinds, roles: pl.Series, rows: Codes
) -> Timeline:
    """Return the timeline of the steady pipeline call whose duration is nearest to the median.

    `placed` are the run's calls as they are compared (`measure.CALL`), `roles` has the role of each
    kind, `rows` the row of each command in the calls.
    """
    tiles = run.tiles.calls.select("begin_ns", "end_ns")
    timed = pl.concat(
        [
            placed.select("call", "stage", "submodule", "branch", "step", "pipeline", "first"),
            run.calls.select(device=pl.col("device").cast(pl.String)),
            tiles.with_columns(pl.col("end_ns").clip(lower_bound=pl.col("begin_ns"))),
        ],
        how="horizontal",
    ).with_row_index("row")
    number = _representative(timed)
    kept = timed if number is None else timed.filter(pl.col("pipeline") == number)
    kept = kept.drop_nulls(["begin_ns", "end_ns"]).sort("begin_ns", "row", maintain_order=True)
    begin, end = kept["begin_ns"].min(), kept["end_ns"].max()
    if not isinstance(begin, int) or not isinstance(end, int):
        return Timeline(run.run_id, -1, 0, empty(TIMED_CALLS), empty(STRETCHES))
    calls = kept.with_columns(
        start_ns=pl.col("begin_ns") - begin, elapsed_ns=pl.col("end_ns") - pl.col("begin_ns")
    )
    stretches = _stretches(run, kinds, roles, rows, kept, begin, max(end - begin, 1))
    return Timeline(
        run.run_id,
        -1 if number is None else number,
        end - begin,
        calls.select(typed(TIMED_CALLS)),
        stretches,
    )


def _representative(timed: pl.DataFrame) -> int | None:
    """The number of the median pipeline call by duration, among steady ones if any; None without
    calls."""
    inside = timed.filter(pl.col("pipeline") >= 0)
    each = inside.group_by("pipeline").agg(
        pl.col("first").any(), ns=pl.col("end_ns").max() - pl.col("begin_ns").min()
    )
    steady = each.filter(~pl.col("first"))
    ranked = (steady if len(steady) else each).sort("ns", "pipeline")
    return int(ranked["pipeline"][(len(ranked) - 1) // 2]) if len(ranked) else None


def _stretches(
    run: Run,
    kinds: Kinds,
    roles: pl.Series,
    rows: Codes,
    calls: pl.DataFrame,
    begin: int,
    span: int,
) -> pl.DataFrame:
    """Merge the devices' work in `calls` into intervals: pieces of one role that are closer than
    the resolution are one interval; if several roles are within it, the longest gives the role."""
    place = np.full(len(run.calls) + 1, -1, dtype=np.int64)
    place[calls["row"].to_numpy()] = np.arange(len(calls))
    waits = kinds.table["host"] | kinds.table["category"].cast(pl.String).is_in(_WAITS)
    worked = ~waits.to_numpy() & roles.is_not_null().to_numpy()
    chosen = np.flatnonzero((place[rows] >= 0) & worked[kinds.of_command])
    commands = run.commands[chosen] if len(chosen) < len(rows) else run.commands
    apart = max(span // _STRETCHES, 1)
    start = commands["start_ns"].to_numpy() - begin
    pieces = pl.DataFrame(
        {
            "call": place[rows[chosen]],
            "device": commands["device"].cast(pl.String),
            "role": roles.cast(pl.String).gather(kinds.of_command[chosen]),
            "window": start // apart,
            "start_ns": start,
            "end_ns": start + np.maximum(commands["duration_ns"].to_numpy(), 0),
        }
    )
    keys = ["call", "device", "window"]
    lengths = pl.col("end_ns") - pl.col("start_ns")
    windows = (
        pieces.group_by(*keys, "role")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), ns=lengths.sum())
        .sort(*keys, "ns", "role", descending=[False, False, False, True, False])
        .group_by(keys, maintain_order=True)
        .agg(pl.col("role").first(), pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort("device", "call", "start_ns")
    )
    reached = pl.col("end_ns").cum_max().over("device", "call")
    same = pl.all_horizontal(
        pl.col(name) == pl.col(name).shift() for name in ("device", "call", "role")
    )
    joined = same & (pl.col("start_ns") - reached.shift() <= apart)
    found = (
        windows.with_columns(number=(~joined.fill_null(value=False)).cum_sum())
        .group_by("number", maintain_order=True)
        .agg(
            pl.col("device", "call", "role").first(),
            pl.col("start_ns").min(),
            duration_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
        )
    )
    return found.select(typed(STRETCHES))


# --- The tree of differences: submodules, the modules in them, and roles of work.
#
# Times are means over the samples of a side, as in the waterfall, and a node's time includes
# all within it, so that its parts add up to it. Equal blocks are one node, `*`.


_Times = tuple[float, float]  # base, new


@dataclass(slots=True)
class _Node:
    """One module: the times of its own work by role, and its inner modules by name."""

    roles: dict[str, _Times] = field(default_factory=dict)
    inner: dict[str, _Node] = field(default_factory=dict)

    @property
    def times(self) -> _Times:
        found = [*self.roles.values(), *(node.times for node in self.inner.values())]
        return sum(base for base, _ in found), sum(new for _, new in found)


def difference_tree(waterfall: pl.DataFrame, base: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """The tree (`columns.TREE`), depth first, of the submodules of the `waterfall` and the samples
    of both sides (`samples.SAMPLE`). Roles without modules are nodes of their submodule."""
    sides = [dict(_modules(samples)) for samples in (base, new)]
    rows: list[tuple[object, ...]] = []
    submodules = waterfall.filter(pl.col("level") == Step.SUBMODULE.value)
    for whole in submodules.iter_rows(named=True):
        name = whole["submodule"]
        own = waterfall.filter(pl.col("submodule") == name)
        root = _rooted(name, own.filter(pl.col("level") == Step.ROLE.value), sides)
        times = (whole["base_ns"], whole["new_ns"])
        rows.append(_row(times, 0, TreeNode.SUBMODULE, name, name, None, None))
        rows += _below(root, name, "", 1)
        idle = own.filter(pl.col("level") == Step.IDLE.value)
        for between in idle.select("base_ns", "new_ns").iter_rows():
            rows.append(_row(between, 1, TreeNode.IDLE, "", name, None, None))
    return pl.DataFrame(rows, schema=schema(TREE), orient="row")


def _rooted(
    submodule: str, parts: pl.DataFrame, sides: list[dict[tuple[str, str, str], float]]
) -> _Node:
    """Build the modules of a submodule; those of a role are scaled to add up to its time in the
    waterfall."""
    root = _Node()
    for part in parts.iter_rows(named=True):
        role, whole = part["role"], (part["base_ns"], part["new_ns"])
        keys = {key for side in sides for key in side if key[:2] == (submodule, role)}
        sums = [sum(side.get(key, 0.0) for key in keys) for side in sides]
        if not any(sums):
            root.roles[role] = whole
            continue
        for key in sorted(keys):
            times = [
                side.get(key, 0.0) / total * time if total else 0.0
                for side, total, time in zip(sides, sums, whole, strict=True)
            ]
            node = root
            for segment in key[2].split(".") if key[2] else ():
                node = node.inner.setdefault(segment, _Node())
            before = node.roles.get(role, (0.0, 0.0))
            node.roles[role] = (before[0] + times[0], before[1] + times[1])
        for at, total in enumerate(sums):
            if not total and whole[at]:  # only the other side has modules of the role
                before = root.roles.get(role, (0.0, 0.0))
                root.roles[role] = (before[0] + whole[0] * (not at), before[1] + whole[1] * at)
    return root


def _modules(samples: pl.DataFrame) -> Iterator[tuple[tuple[str, str, str], float]]:
    """The mean time of each submodule, role and module, equal blocks together."""
    rows = samples.filter(pl.col("level") == "module")
    means = rows.group_by("submodule", "role", "module", maintain_order=True).agg(
        pl.col("value_ns").mean()
    )
    found: dict[tuple[str, str, str], float] = {}
    for submodule, role, module, value in means.iter_rows():
        key = (submodule, role, "" if module == REST else pattern(module))
        found[key] = found.get(key, 0.0) + value
    yield from found.items()


def _below(node: _Node, submodule: str, path: str, depth: int) -> Iterator[tuple[object, ...]]:
    """Yield the rows below a node by difference; roles only if several, or beside modules."""
    found: list[tuple[_Times, TreeNode, str]] = [
        *((inner.times, TreeNode.MODULE, name) for name, inner in node.inner.items()),
        *((times, TreeNode.ROLE, role) for role, times in node.roles.items()),
    ]
    if len(found) == 1 and found[0][1] is TreeNode.ROLE and path:
        return
    found.sort(key=lambda one: (-abs(one[0][1] - one[0][0]), one[2]))
    for times, kind, name in found:
        inner = node.inner[name] if kind is TreeNode.MODULE else None
        if inner is None:
            yield _row(times, depth, kind, name, submodule, path or None, name)
            continue
        own = f"{path}.{name}" if path else name
        role = next(iter(inner.roles)) if len(inner.roles) == 1 and not inner.inner else None
        yield _row(times, depth, kind, name, submodule, own, role)
        yield from _below(inner, submodule, own, depth + 1)


def _row(times: _Times, depth: int, kind: TreeNode, *place: str | None) -> tuple[object, ...]:
    """A row of the tree; `place` is its name, submodule, module and role."""
    base, new = round(times[0]), round(times[1])
    change = (new - base) / base if base else None
    return (depth, kind.value, *place, base, new, new - base, change)


# --- The waterfall from one end-to-end time to the other: lines whose differences add up.
#
#     end_to_end                  35.1 → 33.7 ms   -1.4 ms
#       Qwen2Model                35.1 → 33.7      -1.4
#         rope                     6.97 →  4.58    -2.4
#         mlp                      7.98 →  9.37    +1.4
#         idle                     3.24 →  3.98    +0.7     elapsed time less that of its commands
#       between                    0    →  0        0       in no call
#
# Submodules and the time between them add up to the end-to-end time, roles and idle time to a
# submodule. Times are means over the runs and pipeline calls of a side, because medians do not add
# up. First ones are left out if both sides have steady ones, as in the metric `end_to_end`.


_Line = tuple[str, str | None, str | None, str | None]  # level, stage, submodule, role
_UNIT = ["run", "pipeline"]


def waterfall(base: pl.DataFrame, new: pl.DataFrame, calls: str | None) -> pl.DataFrame:
    """Return the lines (`columns.WATERFALL`) from the samples of both sides (`samples.SAMPLE`, and
    `run`), by difference within what they are parts of. `calls` says by which calls end-to-end
    times are compared; without it there are no lines."""
    found: list[tuple[object, ...]] = []
    if calls is not None:
        sides = [dict(_lines(samples, calls)) for samples in (base, new)]
        stages = {line[2]: line[1] for line in sides[0]}
        sides[1] = {  # one side may not know stages: a submodule is one line all the same
            (level, stages.get(name, stage), name, role): ns
            for (level, stage, name, role), ns in sides[1].items()
        }
        bare = _submodules(sides[0]) ^ _submodules(sides[1])
        for line in dict.fromkeys([*sides[0], *sides[1]]):
            if line[2] in bare and line[0] in (Step.ROLE.value, Step.IDLE.value):
                continue
            times = [side.get(line, 0) for side in sides]
            found.append((*line, *times, times[1] - times[0]))
    frame = pl.DataFrame(found, schema=schema(WATERFALL), orient="row")
    return _in_order(frame)


def _submodules(lines: dict[_Line, int]) -> set[str | None]:
    """The submodules whose parts are known."""
    return {line[2] for line in lines if line[0] == Step.IDLE.value}


def _in_order(lines: pl.DataFrame) -> pl.DataFrame:
    """Sort lines: the total, submodules by difference with their parts, then between calls."""
    level, size = pl.col("level"), pl.col("difference_ns").abs()
    own = pl.when(level == Step.SUBMODULE.value).then(size).max().over("submodule", "stage")
    rank = {Step.END_TO_END.value: 0, Step.BETWEEN.value: 2}
    part = level.is_in([Step.ROLE.value, Step.IDLE.value])
    return lines.sort(
        level.replace_strict(rank, default=1, return_dtype=pl.Int64),
        own.fill_null(0),
        "submodule",
        part,
        size,
        descending=[False, True, False, False, True],
        maintain_order=True,
    )


def _lines(samples: pl.DataFrame, calls: str) -> Iterator[tuple[_Line, int]]:
    """The lines of a side, in whole nanoseconds that add up."""
    whole = samples.filter(pl.col("level") == "end_to_end")
    if calls != "all":
        whole = whole.filter(pl.col("first") == (calls == "first"))
    units = whole.select(_UNIT).unique()
    left = total = round(float(whole["value_ns"].sum()) / max(len(units), 1))
    yield (Step.END_TO_END.value, None, None, None), total
    submodules = samples.filter(pl.col("level") == "submodule")
    for (name,), own in submodules.group_by("submodule", maintain_order=True):
        inside = _of_units(own, units)
        place = (str(own["stage"][0]), str(name))
        elapsed = round(float(inside["value_ns"].sum()) / max(len(units), 1))
        yield (Step.SUBMODULE.value, *place, None), elapsed
        left -= elapsed
        idle = elapsed
        roles = samples.filter((pl.col("level") == "role") & (pl.col("submodule") == name))
        for role, mean in _means(roles, units):
            part = round(mean * len(inside) / max(len(units), 1))
            idle -= part
            yield (Step.ROLE.value, *place, role), part
        if len(roles):
            yield (Step.IDLE.value, *place, None), idle
    yield (Step.BETWEEN.value, None, None, None), left


def _of_units(samples: pl.DataFrame, units: pl.DataFrame) -> pl.DataFrame:
    """Select the samples within the counted executions (`units`). Calls outside pipeline calls
    belong to their run's only execution."""
    inside = samples.join(units, on=_UNIT, how="semi")
    if len(inside) or units["run"].n_unique() < len(units):
        return inside
    return samples.join(units, on="run", how="semi")


def _means(roles: pl.DataFrame, units: pl.DataFrame) -> list[tuple[str, float]]:
    """The mean of each role over its submodule's traced samples, in counted executions if any."""
    inside = _of_units(roles, units)
    known = inside if len(inside) else roles
    means = known.group_by("role", maintain_order=True).agg(pl.col("value_ns").mean())
    return [(role, float(mean)) for role, mean in means.iter_rows()]


# --- Why one end-to-end time is not the other: the largest differences, each with what it consists
# of.
#
# +1.19 ms  attention B16 H16 S559 D64 bf16: 1.44 times as long at 559 tokens, another kernel
# +754 µs   Qwen2Model: nothing executes for 3.99 ms, 3.24 ms in the baseline


_MOST = 6
LEAST = 0.02  # of the larger end-to-end time: smaller differences are no reason
AS_OFTEN = 0.01  # of how often something ran
_TOKENS = re.compile(r"^attention\b.* S([0-9,]+)")
_Found = tuple[int, Note]  # the difference, ns
Repeats = Mapping[str, tuple[float, float]]
"""By submodule how many samples (steps, or single calls) a pipeline call of each side has."""


def reasons(
    waterfall: pl.DataFrame, shapes: pl.DataFrame, kernels: pl.DataFrame, repeats: Repeats
) -> list[Note]:
    """The differences of at least 2 % of the end-to-end time, largest first: of shapes (of kernels
    if the sides share no shapes), of the time in which nothing executes, and between calls; all
    of a pipeline call."""
    whole = waterfall.filter(pl.col("level") == Step.END_TO_END.value)
    if whole.is_empty():
        return []
    longest = max(whole["base_ns"][0], whole["new_ns"][0])
    operations = of_pipeline_calls(shapes if len(shapes) else kernels, repeats)
    found = [*_waiting(waterfall), *_of_operations(operations)]
    large = [one for one in found if abs(one[0]) >= max(LEAST * longest, 1)]
    large.sort(key=lambda one: -abs(one[0]))
    return [note for _, note in large[:_MOST]]


def of_pipeline_calls(frame: pl.DataFrame, repeats: Repeats) -> pl.DataFrame:
    """The rows with times and difference of a pipeline call, whose steps may be more on one
    side."""
    factors = [repeats.get(name, (1.0, 1.0)) for name in frame["submodule"]]
    base, new = (pl.Series([each[at] for each in factors], dtype=pl.Float64) for at in (0, 1))
    return frame.with_columns(
        pl.Series(name, side).round().cast(pl.Int64)
        for name, side in (
            ("base_of_call_ns", frame["base_ns"] * base),
            ("new_of_call_ns", frame["new_ns"] * new),
            ("difference_ns", frame["new_ns"] * new - frame["base_ns"] * base),
        )
    )


def _waiting(waterfall: pl.DataFrame) -> Iterator[_Found]:
    """Time in which devices execute nothing, in calls and between them."""
    codes = {
        Step.IDLE.value: (DifferenceReason.FEWER_GAPS, DifferenceReason.MORE_GAPS),
        Step.BETWEEN.value: (DifferenceReason.LESS_BETWEEN, DifferenceReason.MORE_BETWEEN),
    }
    for row in waterfall.filter(pl.col("level").is_in([*codes])).iter_rows(named=True):
        if min(row["base_ns"], row["new_ns"]) < 0:
            continue  # work overlaps: the remainder is no time of its own
        difference = row["difference_ns"]
        code = codes[row["level"]][difference > 0]
        values = {name: row[name] for name in ("difference_ns", "base_ns", "new_ns")}
        if row["submodule"]:
            values["submodule"] = row["submodule"]
        yield difference, Note.of(code, **values)


def _of_operations(rows: pl.DataFrame) -> Iterator[_Found]:
    """Differences of shapes, with their rates and kernels, or of kernels."""
    for row in rows.drop_nulls("difference_ns").iter_rows(named=True):
        code, values = DifferenceReason.KERNEL, {"what": row["what"]}
        values["difference_ns"] = row["difference_ns"]
        values["time_ratio"] = row["new_ns"] / row["base_ns"] if row["base_ns"] else 0.0
        if "base_kernel" in row:
            code, shown = _kind_of(row)
            values |= {"rates": _rates(row), "at": _tokens(row["what"])}
            values |= {name: row[name] for name in shown}
        yield row["difference_ns"], Note.of(code, **values)


def _kind_of(row: Mapping[str, Any]) -> tuple[DifferenceReason, tuple[str, ...]]:
    """What the difference of a shape is, and the columns that tell it."""
    base, new = row["base_executions"], row["new_executions"]
    if base and new and abs(new - base) > AS_OFTEN * base:
        more = new > base
        code = DifferenceReason.MORE_EXECUTIONS if more else DifferenceReason.FEWER_EXECUTIONS
        return code, ("base_executions", "new_executions")
    if row["base_kernel"] is None or row["new_kernel"] is None:
        return DifferenceReason.UNNAMED_KERNEL, ()
    same = row["base_kernel"] == row["new_kernel"]
    code = DifferenceReason.SAME_KERNEL if same else DifferenceReason.OTHER_KERNEL
    return code, ("base_kernel", "new_kernel")


def _rates(row: Mapping[str, Any]) -> Value:
    base, new = (row[f"{side}_teraflops_per_s"] for side in ("base", "new"))
    if base is None or new is None or max(base, new) < 1:
        return ""
    return Note.of(DifferenceReason.RATES, base=float(f"{base:.3g}"), new=float(f"{new:.3g}"))


def _tokens(what: str) -> Value:
    """How many tokens attention was over, those of the queries."""
    found = _TOKENS.match(what)
    return Note.of(DifferenceReason.TOKENS, tokens=int(found[1].replace(",", ""))) if found else ""
