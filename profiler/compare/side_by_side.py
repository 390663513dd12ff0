"""The brief comparison, and the side-by-side report of three or more runs.

    print_brief(Console(highlight=False), brief_report(comparison, gates, rows))
    print_report(Console(highlight=False), columns_report("main", columns, top=15))

The lines of the brief report add up to the end-to-end difference. In the side-by-side report
each run is compared with the first. A change that exceeds noise has a star.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from profiler.analysis.document import TOP, Fact, Part, Report, Section, Summary, TableView
from profiler.analysis.table_text import label, worded_note
from profiler.compare import text as words
from profiler.compare.compare import Compared, Comparison, Gate
from profiler.compare.report import (
    lines_view,
    operations_view,
    side_facts,
    titled_section,
    verdicts,
    waterfall_view,
    what,
)
from profiler.compare.tables import METRICS, ComparisonNote, Level, Side
from profiler.run.columns import STRING, Column, col, schema
from profiler.text import counted, duration, said

# --- The brief comparison: the end-to-end difference and where it comes from, on one screen.
#
#     print_brief(Console(highlight=False), brief_report(comparison, gates, rows))
#
# Lines that add up to the total difference say where the time went. The modules and shapes that
# differ most, with rates and kernels of both sides, say why; nodes or kernels if the sides know no
# more.


_FIRST = (  # these decide how to read the rest
    ComparisonNote.SAME_RUN,
    ComparisonNote.COMPARED_BY,
    ComparisonNote.COMPARED_BY_FINEST,
    ComparisonNote.TOGETHER,
    ComparisonNote.PAIRED,
    ComparisonNote.OTHER_TRAIT,
    ComparisonNote.SHAPES_DIFFER,
    ComparisonNote.OTHER_LOADING,
    ComparisonNote.OTHER_SPEED,
    ComparisonNote.TRACED_ON_ONE_SIDE,
    ComparisonNote.ASYNCHRONOUS,
)
ONE_RUN = said("One run each: that cannot tell noise from change, so read what follows as a hint.")
FIVE_RUNS = said(
    "Record five of each: for i in 1 2 3 4 5; do profile-sd3 record --out new/ -- COMMAND; done; "
    "then: profile-sd3 diff base/ new/"
)
_OF_ONE = 2  # rows of modules, and of operations
_TRIFLE = 0.01  # of a step
_MORE = said("--full prints everything, --section NAME some of it, --list-sections the names")


@dataclass(frozen=True, slots=True)
class Room:
    """The number of lines for notes, waterfall, modules, and operations (shapes, kernels or
    nodes)."""

    notes: int = 4
    lines: int = 10
    modules: int = 5
    operations: int = 4


ROOMS = (
    Room(),
    Room(notes=3, lines=9, modules=4),
    Room(notes=3, lines=8, modules=3, operations=3),
    Room(notes=2, lines=7, modules=2, operations=2),
    Room(notes=1, lines=5, modules=1, operations=1),
    Room(notes=1, lines=3, modules=0, operations=0),
)
"""Line budgets from the largest; a terminal takes the first that fits."""


def brief_report(
    comparison: Comparison, gates: Sequence[Gate] = (), room: Room = ROOMS[0], *, hints: bool = True
) -> Report:
    """Report the most important differences within `room`; with `hints` at the options of `diff`
    that print the rest."""
    facts = side_facts(comparison)
    more = (_MORE,) if hints else ()
    where = said("Where the difference is: means, in lines that add up")
    several = comparison.metrics.filter(pl.col("level") == "submodule")["submodule"].n_unique() > 1
    once = one_run_each(comparison)
    if once:
        room = _for_one_run(room)
    first = (ONE_RUN, *((FIVE_RUNS,) if hints else ())) if once else ()
    parts = (
        Part(notes=(*first, *_first_notes(comparison, room.notes, hints=hints)), always=True),
        Part(where, table=waterfall_view(comparison.waterfall, room.lines)),
        _modules(comparison, room.modules, several=several, once=once),
        _changed_operations(comparison, room.operations, once=once),
        Part(notes=(*_alone(comparison), *more), always=True),
    )
    shown = tuple(part for part in parts if part.shows_something and (part.notes or part.table))
    return Report(
        Summary(words.headline(comparison), facts=facts),
        (Section("brief", parts=shown),),
        verdicts(gates),
    )


def one_run_each(comparison: Comparison) -> bool:
    """Whether each side has a single run, so that the variation between runs is not known."""
    sides = comparison.runs.group_by("side").len()
    return len(sides) == len(Side) and bool((sides["len"] == 1).all())


def _for_one_run(room: Room) -> Room:
    """Reduce the lines for parts: with single runs only the total is decisive."""
    return dataclasses.replace(
        room, modules=min(room.modules, _OF_ONE), operations=min(room.operations, _OF_ONE)
    )


def _matters(comparison: Comparison) -> pl.Expr:
    """Whether a row differs by at least 1 % of a step (a pipeline call without steps)."""
    whole = comparison.metrics.filter(pl.col("metric").is_in(["denoise.step", "end_to_end"]))
    least = _TRIFLE * min(whole["base_ns"].drop_nulls().to_list(), default=0)
    return pl.col("difference_ns").abs() >= least


def _first_notes(comparison: Comparison, shown: int, *, hints: bool) -> Iterator[str]:
    first = [note for code in _FIRST for note in comparison.notes if note.code is code]
    yield from map(worded_note, first[:shown])
    left = len(words.notes_beside(comparison)) - len(first[:shown])
    if left:
        yield said("{n} more notes: --full", n=left) if hints else said("{n} more notes", n=left)


def _modules(comparison: Comparison, shown: int, *, several: bool, once: bool) -> Part:
    """The modules that differ most, equal blocks merged; without trifles if `once` (one run
    each)."""
    metrics = comparison.metrics.drop_nulls(["base_ns", "new_ns"])
    modules = words.with_blocks_together(metrics)
    if modules.is_empty() or not shown or comparison.level is not Level.MODULE:
        return Part()
    modules = modules.filter(_matters(comparison)) if once else modules
    rows = words.largest(modules).head(shown)
    found = [
        (
            words.row_name(row if several else {**row, "submodule": None}),
            duration(row["base_ns"]),
            duration(row["new_ns"]),
            "" if row["change"] is None else words.change_text(row["change"]),
        )
        for row in rows.iter_rows(named=True)
    ]
    title = said("Modules that differ most: medians {sample}", sample=words.sample_text(comparison))
    return Part(title, table=lines_view("brief_modules", found), quiet=once)


def _changed_operations(comparison: Comparison, shown: int, *, once: bool) -> Part:
    """The nodes, else shapes, else kernels that differ most, with reasons."""
    for title, frame in (
        ("ONNX nodes that differ most: means {sample}", comparison.nodes),
        ("Shapes that differ most, with kernels: means {sample}", comparison.shapes),
        ("Kernels that differ most: means {sample}", comparison.kernels),
    ):
        both = frame.drop_nulls("difference_ns")
        if len(both):
            rows = both.filter(_matters(comparison)) if once else both
            table = operations_view("brief_operations", rows, shown)
            return Part(said(title, sample=words.sample_text(comparison)), table=table, quiet=once)
    return Part()


def _alone(comparison: Comparison) -> Iterator[str]:
    """Yield a line on what only one side has, for each side: its largest part with its time. Others
    may contain it (a stage, its steps), so times are not added up."""
    for side in Side:
        rows = words.only_in(comparison.metrics, side)
        nodes = comparison.nodes.filter(pl.col(f"{side.other}_ns").is_null())
        if len(nodes):
            rows = nodes.select(what=pl.col(f"{side}_layers"), ns=pl.col(f"{side}_ns")).sort(
                "ns", descending=True, maintain_order=True
            )
        if not rows["ns"].sum():
            continue
        first, others = rows["what"][0], len(rows) - 1
        more = said(" and {others}", others=counted(others, "other")) if others else ""
        yield said(
            "{only}: {name}, {time}{more}",
            only=label(side.alone),
            name=first,
            more=more,
            time=duration(int(rows["ns"][0])),
        )


# --- The report of three or more runs: one column per run, with differences to the first.
#
#     print_report(Console(highlight=False), columns_report("main", columns, top=15))
#
# A change that exceeds noise has a star, and its row stands out.


_KERNELS = col("kernels", STRING, "the kernel of each run with most of its time")
_PLACES = ("metric", "level", "submodule", "branch", "step", "role", "module")


def columns_report(base: str, columns: Sequence[Compared], *, top: int = TOP) -> Report:
    """The runs side by side, the `top` roles and modules, and the gates."""
    facts = (
        *(Fact(column.name, words.headline(column.comparison)) for column in columns),
        Fact(base, words.side_text(columns[0].comparison, Side.BASE)),
        *(Fact(column.name, words.side_text(column.comparison, Side.NEW)) for column in columns),
        *_settings(columns),
    )
    legend = f"Changes are relative to {base}; * beyond noise."
    said_of_all = (*_shared_notes(columns), words.sample_line(columns[0].comparison), legend)
    notes = Section("notes", parts=(Part(notes=said_of_all, always=True),))
    tables = (one for one in _sections(base, columns, top) if one.parts[0].shows_something)
    found = tuple(one for column in columns for one in verdicts(column.gates, column.name))
    summary = Summary(f"{counted(len(columns), 'run')} against {base}", facts=facts)
    return Report(summary, (notes, *tables), found)


def _settings(columns: Sequence[Compared]) -> Iterator[Fact]:
    """The settings in which each differs from the first."""
    for column in columns:
        differing = words.settings_text(column.comparison)
        if differing is not None:
            yield Fact(said("settings of {run}", run=column.name), differing)


def _shared_notes(columns: Sequence[Compared]) -> Iterator[str]:
    """Yield the notes that all comparisons share, then those of each comparison by itself."""
    notes = [[*map(worded_note, words.notes_beside(column.comparison))] for column in columns]
    shared = [note for note in notes[0] if all(note in others for others in notes)]
    yield from shared
    for column, codes in zip(columns, notes, strict=True):
        yield from (f"{column.name}: {note}" for note in codes if note not in shared)


def _sections(base: str, columns: Sequence[Compared], top: int) -> Iterator[Section]:
    metrics = _metrics(columns)
    whole = metrics.filter(words.of_whole())
    names = [base, *(column.name for column in columns)]
    times = _table(names, whole, whole["metric"].to_list(), "metric", len(whole))
    yield titled_section("times", times)
    for key, found in words.parts_of(metrics, pl.col("beyond")).items():
        rows = found.sort(("beyond", "apart_ns"), descending=True, maintain_order=True)
        named = [*map(words.row_name, rows.iter_rows(named=True))]
        yield titled_section(key, _table(names, rows, named, "what", top))
    for key in ("nodes", "shapes", "kernels"):
        yield titled_section(key, _operations(names, columns, key, top))


def _operations(
    names: Sequence[str], columns: Sequence[Compared], key: str, shown: int
) -> TableView | None:
    """Compare the runs by shape, kernel or node, largest difference first; below a shape the
    kernels of all runs."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for number, column in enumerate(columns, 1):
        for row in getattr(column.comparison, key).iter_rows(named=True):
            nothing = {"what": row["what"], "apart_ns": 0, "kernels": [None] * len(names)}
            entry = found.setdefault((row["submodule"], row["what"]), nothing)
            entry["apart_ns"] = max(entry["apart_ns"], _apart(row))
            for at, side in ((0, "base"), (number, "new")):
                if row[f"{side}_ns"] is not None:
                    entry[f"run{at}"] = _operation(row, side)
                    entry["kernels"][at] = row.get(f"{side}_kernel")
    rows = sorted(found.values(), key=lambda entry: -entry["apart_ns"])
    for row in rows:
        row["kernels"] = words.kernels_text(row["kernels"])
    if not rows or not shown:
        return None
    schema = dict.fromkeys(("what", *(f"run{at}" for at in range(len(names))), "kernels"), STRING)
    frame = pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)
    below = _KERNELS if frame["kernels"].null_count() < len(frame) else None
    key, shows = f"side_by_side_{key}", (what("what"), *_runs(names))
    return TableView(key, "operations", shows, frame, shown, repeated=1, below=below)


def _apart(row: Mapping[str, Any]) -> int:
    """The difference of both sides in ns; the full time if one side has none."""
    base, new = (int(row[name] or 0) for name in ("base_ns", "new_ns"))
    return abs(new - base)


def _operation(row: Mapping[str, Any], side: str) -> str:
    """Format as `"5.31 ms, +32.2 %, 466 TFLOP/s"`; without a change for the first run."""
    parts = [duration(row[f"{side}_ns"])]
    if side == "new" and row["change"] is not None:
        parts.append(words.change_text(row["change"]))
    rate = row.get(f"{side}_teraflops_per_s")
    if rate is not None and rate >= 1:
        parts.append(f"{rate:.3g} TFLOP/s")
    return ", ".join(parts)


def _metrics(columns: Sequence[Compared]) -> pl.DataFrame:
    """One row per metric of any comparison: its keys, whether any change exceeds noise, the largest
    difference, and the times as text: `run0` of the first run, `run1` and on of the columns."""
    found: dict[str, dict[str, Any]] = {}
    for number, column in enumerate(columns, 1):
        for row in column.comparison.metrics.iter_rows(named=True):
            places = {name: row[name] for name in _PLACES}
            nothing = {"beyond": False, "apart_ns": 0}
            entry = found.setdefault(row["metric"], {**places, **nothing})
            entry[f"run{number}"] = _cell(row)
            entry["beyond"] |= row["verdict"] in words.CALLED
            entry["apart_ns"] = max(entry["apart_ns"], abs(row["difference_ns"] or 0))
            if row["base_ns"] is not None:
                entry["run0"] = duration(row["base_ns"])
    declared = schema(METRICS)
    dtypes: dict[str, Any] = {name: declared[name] for name in _PLACES}
    dtypes |= {"beyond": pl.Boolean(), "apart_ns": pl.Int64()}
    dtypes |= {f"run{number}": STRING for number in range(len(columns) + 1)}
    return pl.DataFrame(list(found.values()), schema=dtypes)


def _cell(row: Mapping[str, Any]) -> str | None:
    """Format as `"70.1 ms, +3.1 %*"`; only the time if the first run has none."""
    if row["new_ns"] is None:
        return None
    time = duration(row["new_ns"])
    if row["change"] is None:
        return time
    star = "*" if row["verdict"] in words.CALLED else ""
    return f"{time}, {words.change_text(row['change'])}{star}"


def _table(
    names: Sequence[str], rows: pl.DataFrame, named: Sequence[str], name: str, shown: int
) -> TableView | None:
    """A table with one column per run, even if a run has no value in any row."""
    if rows.is_empty() or not shown:
        return None
    frame = rows.with_columns(pl.Series(name, named, dtype=STRING))
    return TableView(
        f"side_by_side_{name}",
        name,
        (what(name), *_runs(names)),
        frame,
        shown,
        strong="beyond",
        repeated=2,
    )


def _runs(names: Sequence[str]) -> Iterator[Column]:
    for at, run in enumerate(names):
        yield col(f"run{at}", STRING, f"times of {run}", label=run, kind="figure")
