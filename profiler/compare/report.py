"""The comparison report of two runs: times, verdicts, changed operations.

    print_report(Console(highlight=False), comparison_report(comparison, gates, top=15))

Terminal and page show the same rows. The page's tables have numbers that can be sorted; the
terminal has a unit for each value. Rows that exceed noise are highlighted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from msgspec.structs import replace

from profiler.analysis.document import TOP, Fact, Part, Report, Section, Summary, TableView
from profiler.analysis.table_text import inwards, label, renamed, table, worded_note
from profiler.compare import text as words
from profiler.compare.align import aligned_calls
from profiler.compare.compare import Comparison, Gate
from profiler.compare.tables import (
    KERNELS,
    METRICS,
    NODES,
    PAIRED_CALLS,
    RUNS,
    SHAPES,
    TABLES,
    TREE,
    Side,
    Step,
    TreeNode,
)
from profiler.run.columns import LAYER, MINOR, STRING, Column, col
from profiler.text import Said, counted, duration, said, sentence
from profiler.trace.bootstrap import CONFIDENCE, Resampled

# --- Tables of a comparison: lines that add up, and times by shape, kernel or node.


Line = tuple[str, str, str, str]
"""Name, base time, new time, and difference or change, as text."""

Difference = tuple[str, int, int, int]
"""Name, base time, new time and difference, ns."""

_CHANGED_TIMES = ("base_ns", "new_ns", "difference_ns")
_PARTS = (Step.ROLE.value, Step.IDLE.value)
_FIGURES = (
    col("base", STRING, "its time in the baseline", kind="figure"),
    col("new", STRING, "its time in the new runs", kind="figure"),
    col("change", STRING, "how much that differs", kind="figure"),
)
_CHANGED_RATES = col("rates", STRING, "FLOPs / time of both", label="TFLOP/s", kind="figure")
_CHANGED_KERNELS = col("kernels", STRING, "how often it ran if that differs, and its kernels")
_INDENT = "  "


def what(name: str) -> Column:
    """The first column of a table, which names each row."""
    return col(name, LAYER, "what the times are of")


def lines_view(key: str, lines: Sequence[Line], *, totals: Sequence[Line] = ()) -> TableView | None:
    """Return `lines` as a table, with `totals` below."""
    names = ("what", "base", "new", "change")
    schema = dict.fromkeys(names, STRING)
    frame, sums = (pl.DataFrame(some, schema=schema, orient="row") for some in (lines, totals))
    columns, below, shown = (what("what"), *_FIGURES), sums if len(sums) else None, len(frame)
    return table(key, "lines", columns, _FIGURES, frame, shown=max(shown, 1), totals=below)


def waterfall_view(waterfall: pl.DataFrame, shown: int | None = None) -> TableView | None:
    """Return the lines that add up to the end-to-end difference: the parts of the only submodule,
    or submodules with their parts below each. At most `shown` lines and the total: the smallest are
    then merged into one, and only the submodule that differs most has parts."""
    found = waterfall.filter(pl.any_horizontal(pl.col(_CHANGED_TIMES) != 0))
    if found.is_empty():
        return None
    level = pl.col("level")
    submodules = found.filter(level == Step.SUBMODULE.value)
    parts = found.filter(level.is_in(_PARTS))
    between = found.filter(level == Step.BETWEEN.value)
    whole = found.filter(level == Step.END_TO_END.value)
    room = len(found) if shown is None else shown - len(between)
    if len(submodules) == 1 and len(parts):
        lines = _lines(parts, room)
    else:
        lines = _of_submodules(submodules, parts, room, every=shown is None)
    lines += [_line(_name(row), row) for row in between.iter_rows(named=True)]
    totals = [_line(label(Step.END_TO_END), row) for row in whole.iter_rows(named=True)]
    return lines_view("waterfall", lines, totals=totals)


def waterfall_steps(waterfall: pl.DataFrame, shown: int) -> list[Difference]:
    """Split the end-to-end difference into at most `shown` steps that add up: each part of each
    submodule, largest first, then the merged rest, and the time between calls."""
    level = pl.col("level")
    parts = waterfall.filter(level.is_in(_PARTS))
    known = parts["submodule"].unique().to_list()
    bare = waterfall.filter((level == Step.SUBMODULE.value) & ~pl.col("submodule").is_in(known))
    between = waterfall.filter((level == Step.BETWEEN.value) & (pl.col("difference_ns") != 0))
    rows = pl.concat([parts, bare, between]).filter(pl.col("difference_ns") != 0)
    ranked = rows.sort(pl.col("difference_ns").abs(), descending=True, maintain_order=True)
    kept = ranked if len(ranked) <= shown else ranked.head(shown - 1)
    several = waterfall.filter(level == Step.SUBMODULE.value).height > 1
    found = [
        (_of_several(row) if several else _name(row), *(row[time] for time in _CHANGED_TIMES))
        for row in kept.iter_rows(named=True)
    ]
    rest = ranked.slice(len(kept))
    if len(rest):
        sums = (int(rest[time].sum()) for time in _CHANGED_TIMES)
        found.append((counted(len(rest), "other"), *sums))
    return found


def _of_several(row: dict[str, Any]) -> str:
    """The name of a step, with its submodule if the step is a part of one."""
    name = _name(row)
    if row["submodule"] is None or row["level"] == Step.SUBMODULE.value:
        return name
    return said("{submodule}: {part}", submodule=row["submodule"], part=name)


def _of_submodules(
    submodules: pl.DataFrame, parts: pl.DataFrame, room: int, *, every: bool
) -> list[Line]:
    """Submodules by difference, largest first, with parts below each, or below the first."""
    heads = _lines(submodules, room)
    left = room - len(heads)
    found = []
    for number, head in enumerate(heads):
        found.append(head)
        if number and not every:
            continue
        if number < len(submodules):
            own = parts.filter(pl.col("submodule") == submodules["submodule"][number])
            inside = _lines(own, left, _INDENT) if left > 1 and len(own) else []
            found += inside
    return found


def _lines(rows: pl.DataFrame, shown: int, indent: str = "") -> list[Line]:
    """The lines of the largest rows, and one line for all others."""
    ranked = rows.sort(pl.col("difference_ns").abs(), descending=True, maintain_order=True)
    kept = ranked if len(ranked) <= shown else ranked.head(max(shown - 1, 1))
    found = [_line(f"{indent}{_name(row)}", row) for row in kept.iter_rows(named=True)]
    rest = ranked.slice(len(kept))
    if len(rest):
        name = f"{indent}{counted(len(rest), 'other')}"
        found.append(_line(name, {time: int(rest[time].sum()) for time in _CHANGED_TIMES}))
    return found


def _line(name: str, row: dict[str, Any]) -> Line:
    base, new, difference = (row[time] for time in _CHANGED_TIMES)
    return name, duration(base), duration(new), words.difference_text(difference)


def _name(row: dict[str, Any]) -> str:
    """The name of a line; a remainder below 0 is work that overlapped."""
    overlap = min(row["base_ns"], row["new_ns"]) < 0
    if row["level"] == Step.IDLE.value:
        return said("not executing, less overlap") if overlap else label(Step.IDLE)
    if row["level"] == Step.BETWEEN.value:
        return said("between calls, less overlap") if overlap else label(Step.BETWEEN)
    return str(row["role"] or row["submodule"])


def operations_view(key: str, rows: pl.DataFrame, shown: int) -> TableView | None:
    """Return shapes (with rates and kernels of both sides), kernels or groups of nodes as a table;
    rows of only one side are last."""
    texts: dict[str, list[Any]] = {
        "what": rows["what"].to_list(),
        "base": durations(rows["base_ns"]),
        "new": durations(rows["new_ns"]),
        "change": [None if one is None else words.change_text(one) for one in rows["change"]],
    }
    shapes = "base_kernel" in rows.columns
    if shapes:
        both = [*rows.iter_rows(named=True)]
        texts |= {"rates": [*map(words.rates, both)], "kernels": [*map(words.why, both)]}
    frame = pl.DataFrame(texts, schema=dict.fromkeys(texts, STRING))
    columns = (what("what"), *_FIGURES, *((_CHANGED_RATES,) if shapes else ()))
    below = _CHANGED_KERNELS if shapes else None
    return table(key, "operations", columns, columns, frame, shown=shown, below=below)


def durations(values: pl.Series) -> list[str | None]:
    """Format times in ns, None if there is none."""
    return [None if ns is None else duration(ns) for ns in values]


# --- Parts of a page's report of a comparison: their tables have numbers, so that they can be
# sorted.
#
# In a terminal each value has a unit instead (`comparing`); both show the same rows.


_Columns = tuple[str | Column, ...]
_ROWS = 200  # rows of a table


def _times_of(declared: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns for base time, new time, difference and change."""
    return (
        renamed(declared, "base_ns", label="baseline"),
        renamed(declared, "new_ns", label="new"),
        renamed(declared, "difference_ns", label="difference"),
        renamed(declared, "change", kind="change"),
    )


_ONLY = tuple(side.alone.value for side in Side)
_TIME_COLUMNS = (
    renamed(METRICS, "base_ns", label="baseline"),
    renamed(METRICS, "new_ns", label="new"),
    renamed(METRICS, "difference_ns", importance=MINOR),
    renamed(METRICS, "change", kind="change"),
    renamed(METRICS, "low", label="from", kind="change", importance=MINOR),
    renamed(METRICS, "high", label="to", kind="change", importance=MINOR),
    "verdict",
)
_WHOLE = (
    renamed(METRICS, "metric", label="part", kind="layer"),
    *_TIME_COLUMNS,
    renamed(METRICS, "calls", importance=MINOR),
)
_STEPS = (renamed(METRICS, "step", kind="step"), *_TIME_COLUMNS)
_ROLES = ("submodule", "role", *_TIME_COLUMNS)
_MODULES = (renamed(METRICS, "module", kind="layer"), "submodule", "role", *_TIME_COLUMNS)
_RUNS = (
    "side",
    renamed(RUNS, "run_id", label="run"),
    "pipeline",
    renamed(RUNS, "devices", kind="list"),
    renamed(RUNS, "pipelines", label="pipeline calls"),
    "steps",
    "calls",
    renamed(RUNS, "traced_calls", label="traced"),
)
_RATE_COLUMNS = (
    renamed(SHAPES, "base_teraflops_per_s", label="rate, baseline", kind="flop_rate"),
    renamed(SHAPES, "new_teraflops_per_s", label="rate, new", kind="flop_rate"),
)
_SHAPE_KERNELS: _Columns = (
    renamed(SHAPES, "base_kernel", label="kernel, baseline", kind="text"),
    renamed(SHAPES, "new_kernel", label="kernel, new", kind="text"),
)
_EXECUTIONS = (
    renamed(SHAPES, "base_executions", label="executions, baseline", kind="number"),
    renamed(SHAPES, "new_executions", label="executions, new", kind="number", importance=MINOR),
)
_SHAPES: _Columns = (
    renamed(SHAPES, "what", kind="layer"),
    *_times_of(SHAPES),
    *_RATE_COLUMNS,
    *_SHAPE_KERNELS,
    *_EXECUTIONS,
    "submodule",
)
_KERNELS: _Columns = (
    renamed(KERNELS, "what", kind="layer"),
    *_times_of(KERNELS),
    *_EXECUTIONS,
    "submodule",
)
_NODES: _Columns = ("what", *_times_of(NODES), "base_count", "new_count", "submodule")
_LABEL = col("label", LAYER, "submodule, module or role", label="node")
_TREE: _Columns = (_LABEL, *_times_of(TREE), "role", "kind")
_CALLS = (
    "submodule",
    "stage",
    "branch",
    "step",
    renamed(PAIRED_CALLS, "base_ns", label="baseline"),
    renamed(PAIRED_CALLS, "new_ns", label="new"),
    renamed(PAIRED_CALLS, "difference_ns", label="difference"),
)


def times_table(comparison: Comparison) -> TableView | None:
    """The table of the total, stages, steps and submodules, with noise intervals."""
    metrics, single = comparison.metrics, pl.col("step").is_not_null()
    work = pl.col("level").is_in(("role", "modules", "module")).fill_null(value=False)
    return table(
        "comparison", "parts", _WHOLE, METRICS, metrics.filter(~single & ~work), search=True
    )


def rule() -> Said:
    """Say when a change is called slower or faster."""
    return said(
        "A change is called slower or faster where its {confidence} interval excludes zero.",
        confidence=f"{CONFIDENCE:.0%}",
    )


def metric_parts(comparison: Comparison, shown: int) -> Iterator[Part]:
    """Yield the parts for single steps in order, and roles and modules by difference."""
    metrics = comparison.metrics
    named = pl.col("module").is_not_null() & (pl.col("module") != "")
    modules = words.with_blocks_together(metrics.filter(named), pl.col("verdict").is_in(_ONLY))
    steps = metrics.filter(pl.col("step").is_not_null())
    roles = metrics.filter(pl.col("level") == "role")
    for title, name, rows, columns in (
        ("Steps", said("steps"), steps, _STEPS),
        ("Roles, by difference", said("roles"), _by_difference(roles), _ROLES),
        ("Operators by module, by difference", said("modules"), _by_difference(modules), _MODULES),
    ):
        yield _ranked_part(title, name, columns, METRICS, rows, shown, search=len(rows) > 10)


def _by_difference(rows: pl.DataFrame) -> pl.DataFrame:
    size = pl.col("difference_ns").abs().fill_null(-1)
    return rows.sort(size, descending=True, maintain_order=True)


def runs_part(comparison: Comparison) -> Part:
    """The table of the runs of both sides."""
    runs = table("comparison_runs", "runs", _RUNS, RUNS, comparison.runs, shown=20)
    return Part(said("Runs"), table=runs)


def tree_part(comparison: Comparison, shown: int) -> Part:
    """The tree of submodules, modules and roles, each with the time of all within it."""
    tree = comparison.tree
    if tree.filter(pl.col("depth") > 0).is_empty():
        return Part()
    idle = pl.col("kind") == TreeNode.IDLE.value
    named = tree.with_columns(
        label=pl.when(idle).then(pl.lit(str(label(TreeNode.IDLE)))).otherwise("name")
    )
    paper = named.with_columns(label=inwards(pl.col("depth")) + pl.col("label"))
    rows = named.with_columns(name=pl.lit(None, pl.String))
    key, noun = "comparison_tree", "module tree"
    view = table(key, noun, _TREE, TREE, rows, shown=shown, search=True, nested=True, paper=paper)
    return Part(said("Module tree: where the difference lies"), table=view)


def operation_parts(comparison: Comparison, shown: int) -> Iterator[Part]:
    """Yield the parts for shapes (with rates and kernels), kernels and ONNX nodes, largest
    difference first."""
    for name, columns in (("shapes", _SHAPES), ("kernels", _KERNELS), ("nodes", _NODES)):
        rows = getattr(comparison, name)
        yield _ranked_part(TITLES[name], name, columns, TABLES[name], rows, shown, search=True)


def _ranked_part(
    title: str,
    name: str,
    columns: _Columns,
    declared: tuple[Column, ...],
    rows: pl.DataFrame,
    shown: int,
    *,
    search: bool,
) -> Part:
    """A table of which a page contains only the first rows."""
    key, held = f"comparison_{name}", _ROWS
    made = table(key, name, columns, declared, rows, shown=shown, held=held, search=search)
    return Part(said(title), table=made)


def calls_part(comparison: Comparison, shown: int) -> Part:
    """The calls of both timelines, largest difference first; empty without timelines."""
    if comparison.timelines is None:
        return Part()
    rows = _by_difference(aligned_calls(*comparison.timelines))
    title = "Calls, by difference"
    return _ranked_part(title, "calls", _CALLS, PAIRED_CALLS, rows, shown, search=False)


# --- The report of a comparison: what was compared, times from the whole to single modules, and
# what only one side has.
#
# Rows that exceed noise stand out.


_CHANGES = (
    renamed(METRICS, "base_ns", kind="figure"),
    renamed(METRICS, "new_ns", kind="figure"),
    renamed(METRICS, "change", kind="figure"),
    col("interval", STRING, "the interval of the change", kind="figure", importance=2),
    "verdict",
    renamed(METRICS, "resampled", kind="text", codes=None, importance=3),
    renamed(METRICS, "calls", importance=4),
)
_ALONE = (
    col("what", LAYER, "submodule, role and module, or the metric"),
    col("blocks", STRING, "which blocks it stands for, and which the other side has"),
    col("ns", STRING, "its time", label="time", kind="figure"),
)


TITLES: Mapping[str, str] = {
    "notes": "What else differs, and what intervals do not know",
    "waterfall": "From one end-to-end time to the other",
    "times": f"Times, and {CONFIDENCE:.0%} intervals of the change",
    "steps": "Single steps beyond noise, by difference",
    "roles": "Roles, by difference",
    "modules": "Modules, by difference",
    "nodes": "ONNX nodes, by difference",
    "shapes": "Shapes, by difference",
    "kernels": "Kernels, by difference",
    "alone": "What only one side has",
}
"""The sections of a comparison, in their order."""


def comparison_report(
    comparison: Comparison, gates: Sequence[Gate] = (), *, top: int = TOP
) -> Report:
    """Report how the new runs differ from the base: the `top` roles and modules, and the gates."""
    lines = (*map(worded_note, words.notes_beside(comparison)), words.sample_line(comparison))
    return _report(
        comparison,
        gates,
        Section("notes", parts=(Part(notes=lines, always=True),)),
        titled_section("waterfall", waterfall_view(comparison.waterfall)),
        *_changed(comparison.metrics, top),
        *(
            titled_section(key, operations_view(key, getattr(comparison, key), top))
            for key in ("nodes", "shapes", "kernels")
        ),
        Section("alone", parts=tuple(_alone(comparison.metrics, top))),
    )


def titled_section(key: str, view: TableView | None) -> Section:
    """The section `key` of `TITLES`, of one table."""
    return Section(key, parts=(Part(TITLES[key], table=view),))


def _report(comparison: Comparison, gates: Sequence[Gate], *sections: Section) -> Report:
    """Assemble a report from `sections`, without those that show nothing."""
    shown = [
        replace(section, parts=tuple(part for part in section.parts if part.shows_something))
        for section in sections
    ]
    summary = Summary(words.headline(comparison), facts=side_facts(comparison))
    return Report(summary, tuple(section for section in shown if section.parts), verdicts(gates))


def side_facts(comparison: Comparison) -> tuple[Fact, ...]:
    """The facts on top: the runs of each side, and the settings that differ."""
    settings = words.settings_text(comparison)
    sides = tuple(Fact(label(side), words.side_text(comparison, side)) for side in Side)
    return sides if settings is None else (*sides, Fact(said("settings"), settings))


def verdicts(gates: Sequence[Gate], of: str = "") -> tuple[Fact, ...]:
    """The result of each gate; `of` is the run's name if there are several."""
    head = f"{of}: " if of else ""
    return tuple(
        Fact(f"{head}{words.gate_words(gate)}", words.gate_text(gate), alert=gate.failed)
        for gate in gates
    )


def _changed(metrics: pl.DataFrame, top: int) -> Iterator[Section]:
    """Yield the sections on metrics that both sides have."""
    both = metrics.filter(~pl.col("verdict").is_in([side.alone.value for side in Side]))
    whole = both.filter(words.of_whole())
    yield titled_section(
        "times", _changes_view(whole, whole["metric"].to_list(), "metric", len(whole))
    )
    for key, found in words.parts_of(both, pl.col("verdict").is_in(words.CALLED)).items():
        rows = words.largest(found)
        names = [*map(words.row_name, rows.iter_rows(named=True))]
        yield titled_section(key, _changes_view(rows, names, "what", top))


def _changes_view(
    rows: pl.DataFrame, names: Sequence[str], name: str, shown: int
) -> TableView | None:
    frame = _written(rows).with_columns(pl.Series(name, names, dtype=STRING))
    columns, key = (what(name), *_CHANGES), f"comparison_{name}"
    return table(key, name, columns, METRICS, frame, shown=shown, strong="called")


def _written(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with values as text, each in its own unit, and whether the change exceeds noise."""
    intervals = [
        None if low is None else words.interval_text(low, high, change)
        for low, high, change in rows.select("low", "high", "change").iter_rows()
    ]
    counts = [
        None if unit is None else f"{base} and {new} {label(Resampled(unit))}"
        for unit, base, new in rows.select("resampled", "base_count", "new_count").iter_rows()
    ]
    changes = [None if change is None else words.change_text(change) for change in rows["change"]]
    texts = {name: durations(rows[name]) for name in ("base_ns", "new_ns")}
    texts |= {"change": changes, "interval": intervals, "resampled": counts}
    return rows.with_columns(
        *(pl.Series(name, values, dtype=STRING) for name, values in texts.items()),
        called=pl.col("verdict").is_in(words.CALLED),
    )


def _alone(metrics: pl.DataFrame, top: int) -> Iterator[Part]:
    """Yield a table of what only one side has, for each side."""
    for side in Side:
        rows = words.only_in(metrics, side)
        frame = rows.with_columns(ns=pl.Series(durations(rows["ns"]), dtype=STRING))
        made = table(f"only_in_{side}", "parts", _ALONE, _ALONE, frame, shown=top)
        yield Part(f"{label(side.alone)}, by time".capitalize(), table=made)


# --- The page's report of two sides: the sections below its first screen, which have tables.


def two_runs_report(comparison: Comparison, gates: Sequence[Gate] = ()) -> Report:
    """Report how the new runs differ from the base, from the module tree to single calls."""
    tree, calls = tree_part(comparison, 2 * TOP), calls_part(comparison, TOP)
    sample = Part(notes=(sentence(words.sample_line(comparison)),))
    times = Part(table=times_table(comparison), notes=(rule(),))
    notes = tuple(sentence(worded_note(note)) for note in comparison.notes)
    runs = replace(runs_part(comparison), title="", notes=notes)
    return _report(
        comparison,
        gates,
        Section("tree", said("Module tree"), (replace(tree, title=""),)),
        Section(
            "operations", said("Shapes and kernels"), (*operation_parts(comparison, TOP), sample)
        ),
        Section("calls", said("Calls"), (replace(calls, title=""),)),
        Section("times", said("Times"), (times, *metric_parts(comparison, TOP))),
        Section("runs", said("Runs"), (runs,)),
    )
