"""Table contents as text: labels of codes, ranked rows, folded layers, sentences.

    label(Bound.COMPUTE)                                  == "compute-bound"
    worded(Note.of(RedundancyEvidence.PATH, name="rope"))  == "path rope"

A module declares its wording as `SENTENCES` (a template per code), `FACTORS` (a template for a
`share` of two or more) and `NULLS` (the text for a missing code). A table with its own text or
its own JSON form is declared as `WORDED`. Equal blocks are folded: `transformer_blocks.*.ff`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.commands import times_recorded
from profiler.analysis.device_profiles import DeviceProfile
from profiler.analysis.document import Bars, Figure, Opens, TableView
from profiler.analysis.question import Table, question_modules
from profiler.analysis.result import Analysis, RunSummary
from profiler.run.columns import DATA_ONLY, Column, column_of
from profiler.text import (
    Note,
    NoteCode,
    Said,
    Value,
    count,
    counted,
    duration,
    joined,
    notes_from,
    number,
    percent,
    said,
    size,
)
from profiler.trace.events import RUN_STAGE
from profiler.trace.manifest import RunInfo

# --- Words of the module tree: closed sets.


class Node(StrEnum):
    """What a node of the tree is."""

    RUN = "run"
    STAGE = "stage"
    SUBMODULE = "submodule"
    MODULE = "module"
    ROLE = "role"
    OPERATOR = "operator"
    UNTRACED = "untraced"


# --- What reports show of the larger tables of an analysis, and the sentences that they say about
# them: the same in the terminal and in the page.


_LEAST_SHARE = 0.005  # of the time of all, for a row that is shown


def changing_parts(parts: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `step_operators` of some size whose time changes: by a warm-up, a drift
    that is significant, or outliers. `part` is the row's name; `drift`, `drift_low` and
    `drift_high` are the drift from the first step to the last against the median, and the ends of
    its 95 % interval."""
    drifts = (pl.col("drift_low_ns") > 0) | (pl.col("drift_high_ns") < 0)
    whole = int(parts.filter(pl.col("level") == "step")["total_ns"].sum())
    found = parts.filter(
        pl.col("total_ns") >= _LEAST_SHARE * whole,
        (pl.col("warmup_steps") > 0) | drifts.fill_null(value=False) | (pl.col("outliers") > 0),
    )
    later = (pl.col("steps") - 1) / pl.col("median_ns")
    names = ("drift", "drift_low", "drift_high")
    return found.with_columns(
        pl.Series("part", _part_names(found), dtype=pl.String),
        *((pl.col(f"{name}_ns") * later).alias(name) for name in names),
    )


def explained_outliers(rows: pl.DataFrame) -> pl.DataFrame:
    """`step_outliers` with the name of the row as `part`, and device and track of what overlapped
    it as `place` ("" if nothing did)."""
    return rows.with_columns(
        pl.Series("part", _part_names(rows), dtype=pl.String),
        pl.Series("place", _places(rows), dtype=pl.String),
    )


def _part_names(rows: pl.DataFrame) -> list[str]:
    """Return the names of parts of steps: layer and role, submodule, or `step`."""
    names = []
    for level, submodule, layer, role in rows.select(
        "level", "submodule", "layer", "role"
    ).iter_rows():
        parts = [part for part in (layer, role) if part]
        names.append(" ".join(parts) or submodule or level)
    return names


def _places(rows: pl.DataFrame) -> list[str]:
    pairs = zip(rows["cause_device"], rows["cause_track"], strict=True)
    return [" ".join(part for part in pair if part) for pair in pairs]


def roofline_sentence(
    rows: pl.DataFrame, roles: pl.DataFrame, profiles: Mapping[str, DeviceProfile]
) -> Said:
    """Return the sentence about where the rooflines of the operators `rows` come from, how much of
    the time has none, and which `roles` are above theirs."""
    devices = sorted(set(rows["device"].drop_nulls()))
    lines = [_source(device, profiles[device]) for device in devices if device in profiles]
    missing = [device for device in devices if device not in profiles]
    if missing:
        names = ", ".join(missing)
        lines.append(
            said("no profile of {names}: `profile-sd3 benchmark-device` measures one", names=names)
        )
    busy, unknown = int(rows["total_ns"].sum()), int(rows["unknown_ns"].sum())
    if unknown and busy:
        share = percent(unknown / busy)
        lines.append(said("FLOPs or bytes not known for {share} of the total time", share=share))
    lines += _refuted(roles, busy)
    return joined("; ", lines)


def _refuted(roles: pl.DataFrame, busy: int) -> list[Said]:
    """Return the sentence that commands were faster than their roofline, which is impossible, if
    some were."""
    wrong = roles.filter(pl.col("not_explained_ns") > 0).sort("not_explained_ns", descending=True)
    if wrong.is_empty() or not busy:
        return []
    most = wrong.row(0, named=True)
    role = most["role"]
    if most["submodule"]:
        role = said("{role} of {submodule}", role=role, submodule=most["submodule"])
    if len(wrong) > 1:
        role = said("{role} and {more}", role=role, more=counted(len(wrong) - 1, "other role"))
    sentence = said(
        "{share} of the total time was faster than its roofline, which is then not known ({role}): "
        "data stays in a cache whose rate is not known, or the profile is too low "
        "(benchmark-device on a machine at rest measures it again)",
        share=percent(int(wrong["not_explained_ns"].sum()) / busy),
        role=role,
    )
    return [sentence]


def _source(device: str, profile: DeviceProfile) -> str:
    source = said(
        "roofline of {device}: {how}, {source}",
        device=device,
        how=said("measured") if profile.measured else said("published"),
        source=profile.source or said("source unknown"),
    )
    if profile.attained:
        source = said(
            "{roofline}, of {peaks} what products of this run reached beyond it",
            roofline=source,
            peaks=", ".join(profile.attained),
        )
    if profile.memory_bandwidth is None:
        return said(
            "{roofline}, without a memory bandwidth: nothing there has a bound other than "
            "host-bound",
            roofline=source,
        )
    return source


def why_no_waits(idle: pl.DataFrame, run: RunSummary) -> str:
    """Return why it is unknown what devices waited for, "" if it is known, or nothing executed."""
    traced, calls = run.traced_calls, run.calls
    if len(idle) or traced == calls or not traced:
        return ""
    return said(
        "unknown: the operators of {untraced} of {calls} were not recorded, and neither was what "
        "a device did in them; --ops all records them",
        untraced=count(calls - traced),
        calls=counted(calls, "call"),
    )


def path_wall_ns(rows: pl.DataFrame) -> int:
    """The sum of the times of the pipeline calls in `critical_path`, in ns."""
    return int(rows.unique("pipeline")["wall_ns"].sum())


def path_sentence(rows: pl.DataFrame) -> str:
    """Return the sentence about how much of the pipeline calls' time is on their critical paths."""
    paths = rows["pipeline"].n_unique()
    path, wall = int(rows["path_ns"].sum()), path_wall_ns(rows)
    share = f", {percent(path / wall)}" if wall else ""
    times = {"path": duration(path), "wall": duration(wall), "share": share}
    if paths == 1:
        return said("Critical path: {path} of {wall}{share}", **times)
    calls = counted(paths, "pipeline call")
    return said("Critical path of {calls}: {path} of {wall}{share}", calls=calls, **times)


def path_by_part(rows: pl.DataFrame, shown: int) -> pl.DataFrame:
    """Sum `critical_path` over all pipeline calls: submodule, part, device, pieces, path_ns,
    guessed_ns (null for none) and share.

    At most `shown` rows, longest first; the rest of them is one row more, whose part is null.
    """
    keys = ["submodule", "part", "device"]
    summed = (
        rows.group_by(keys)
        .agg(pl.col("pieces", "path_ns").sum(), _guessed())
        .sort(["path_ns", *keys], descending=[True, False, False, False], nulls_last=True)
    )
    kept = summed.head(shown)
    if len(summed) > shown:
        left = summed.slice(shown).select(pl.col("pieces", "path_ns").sum(), _guessed())
        kept = pl.concat([kept, left], how="diagonal")
    return kept.with_columns(share=pl.col("path_ns") / max(path_wall_ns(rows), 1))


def _guessed() -> pl.Expr:
    """The sum of `guessed_ns`, null if nothing was guessed."""
    return pl.col("guessed_ns").sum().replace(0, None)


def guessed_waits(rows: pl.DataFrame) -> str:
    """Return the sentence about how much of `critical_path` is on a device for waits that were not
    recorded, "" for nothing."""
    guessed = int(rows["guessed_ns"].sum())
    if not guessed:
        return ""
    return said(
        "{guessed} of the path, {share}, is guessed: nothing was recorded of the host while a "
        "device worked, and it launched as soon as that was done, so it is assumed to have waited",
        guessed=duration(guessed),
        share=percent(guessed / int(rows["path_ns"].sum())),
    )


def split_operators(partitioning: pl.DataFrame, shown: int) -> tuple[pl.DataFrame, int]:
    """The parts of the `shown` longest split operators of submodules, and how many there are."""
    split = partitioning.drop_nulls("submodule")
    whole = split.filter(pl.col("part") == "whole").select("submodule", "layer")
    kept = split.join(whole.head(shown), on=["submodule", "layer"], maintain_order="left")
    return kept, len(whole)


def with_rates(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of a roofline with `rate` (TFLOP/s) of the time of commands whose FLOPs are known, and
    `bandwidth` (GB/s) of those whose bytes are, as shapes have them; null if there are none."""
    of_flops, of_bytes = (
        pl.col(name) / pl.when(pl.col(f"{name}_ns") > 0).then(pl.col(f"{name}_ns"))
        for name in ("flops", "bytes")
    )
    return rows.with_columns(rate=of_flops / 1e3, bandwidth=of_bytes)


# --- What is known of devices' work: nothing of calls whose operators were not traced; and of their
# idle time: nothing if it was not recorded when commands ran.
#
# The tables of an analysis have 0 there, for what was recorded adds up to that; a reader takes it
# for a device that did nothing, or was never idle.


_OF_IDLE = ("idle_inside_ns", "launch_bound_ns", "before_kernel_ns")
_OF_WORK = ("busy_ns", "idle_inside_ns", "launch_bound_ns", "before_kernel_ns", "hidden_ns")


def with_known_work(frame: pl.DataFrame, calls: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Calls, or groups of calls that have the columns `by` in common, in their order, without
    device time and what derives from it (null) if some of them were not traced. `calls` is the
    analysis' table of all calls."""
    untraced = calls.filter((pl.col("commands") == 0) & ~pl.col("ops_traced"))
    if untraced.is_empty():
        return frame
    keys = untraced.select(*by, untraced=pl.lit(value=True)).unique()
    found = frame.join(keys, on=by, how="left", nulls_equal=True, maintain_order="left")
    known = pl.col("untraced").is_null()
    columns = [name for name in _OF_WORK if name in frame.columns]
    shown = found.with_columns(pl.when(known).then(pl.col(name)).alias(name) for name in columns)
    return shown.drop("untraced")


def with_known_idle(frame: pl.DataFrame, info: RunInfo) -> pl.DataFrame:
    """Calls, or groups of calls, without idle time (null) if it was not recorded when the commands
    of that run ran."""
    columns = [name for name in _OF_IDLE if name in frame.columns]
    return frame if times_recorded(info) else frame.with_columns(**dict.fromkeys(columns))


# --- Operators of repeated blocks, folded: `transformer_blocks.7.ff` → `transformer_blocks.*.ff`.
#
# A transformer of 24 equal blocks fills the top of an operator table with 24 equal rows. Folding
# the numbers in layer names shows the operation once, with how many layers it stands for.


_INDEX = r"(^|[^0-9A-Za-z])[0-9]+($|[^0-9A-Za-z])"


def _sum(name: str) -> pl.Expr:
    """The sum of a column, null if one of its values is."""
    return pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum())


def _mean(name: str) -> pl.Expr:
    """The mean of a column, weighed by the wall time."""
    weight = pl.col("wall_ns")
    return pl.when(weight.sum() > 0).then((pl.col(name) * weight).sum() / weight.sum())


_SUMMED = (
    *("commands", "wall_ns", "total_ns", "self_ns", "waited_ns", "gap_ns"),
    *("share", "first_ns", "median_ns", "corrected_ns"),
)
_FOLDS: Mapping[str, Callable[[str], pl.Expr]] = {  # column → how several operators are aggregated
    **dict.fromkeys(_SUMMED, _sum),
    **dict.fromkeys(("tracks", "calls"), lambda name: pl.col(name).max()),
    # of the one with the most time:
    **dict.fromkeys(("op_types", "role", "track_names"), lambda name: pl.col(name).first()),
    "devices": lambda name: pl.col(name).str.split(", ").explode().unique().sort().str.join(", "),
    **dict.fromkeys(("parallelism", "parallel_utilization"), _mean),
    # does not add up, so only of a single one:
    "imbalance": lambda name: pl.when(pl.len() == 1).then(pl.col(name).first()),
}


def pattern(layer: pl.Expr) -> pl.Expr:
    """Layer names with every number that stands alone replaced by `*`; `conv1` stays."""
    replaced = layer.str.replace_all(_INDEX, "${1}*${2}")
    return replaced.str.replace_all(_INDEX, "${1}*${2}")  # "0.1": neighbours share a separator


def by_pattern(operators: pl.DataFrame) -> pl.DataFrame:
    """Return `Analysis.operators` with one row per submodule, pattern and host.

    Adds `layers`, how many layers a row stands for; the other columns as `_FOLDS` says. A row that
    stands for one layer keeps its name.
    """
    folds = (_FOLDS[name](name).alias(name) for name in operators.columns if name in _FOLDS)
    folded = (
        operators.with_columns(_pattern=pattern(pl.col("layer")))
        .group_by("submodule", "_pattern", "host", maintain_order=True)
        .agg(
            pl.len().alias("layers"),
            *folds,
            layer=pl.when(pl.len() == 1)
            .then(pl.col("layer").first())
            .otherwise(pl.col("_pattern").first()),
        )
        .with_columns(commands_per_call=pl.col("commands") / pl.col("calls"))
    )
    ordered = folded.sort("total_ns", descending=True, maintain_order=True)
    return ordered.select(*operators.columns, "layers")


# --- Labels of codes and sentences of notes: what every report says of the values of an analysis.
#
# Modules of this package declare it. `SENTENCES` has, by enum and code, a template with a place for
# each value of the note; `FACTORS` another one for a `share` of two or more, which reads better as
# a factor; `NULLS` the text for a missing code in a column of an enum.


Sentences = Mapping[type[StrEnum], Mapping[Any, str]]
_NONE: Sentences = MappingProxyType({})
_ADDED: dict[str, dict[type[StrEnum], Any]] = {"SENTENCES": {}, "FACTORS": {}}
_Units = tuple[tuple[str, Callable[[Any], str]], ...]

_OF_UNIT: _Units = (
    ("_ns", duration),
    ("_bytes", size),
    ("share", percent),
    ("ratio", "{:.2f}".format),
)
_AS_FACTORS: _Units = (("share", number), *_OF_UNIT)
_TWICE = 1.995  # what reads as 200 %


def all_sentences() -> Sentences:
    """Return the `SENTENCES` of all modules, by enum."""
    return _of_modules("SENTENCES")


def all_factors() -> Sentences:
    """Return the `FACTORS` of all modules, by enum: sentences for shares of two or more."""
    return _of_modules("FACTORS")


def add_sentences(sentences: Sentences, factors: Sentences = _NONE) -> None:
    """Add the sentences of a module outside of this package, about its own codes."""
    _ADDED["SENTENCES"].update(sentences)
    _ADDED["FACTORS"].update(factors)
    _of_modules.cache_clear()


@lru_cache
def _of_modules(name: str) -> dict[type[StrEnum], Any]:
    """Return the mappings of that name of all modules, and what was added to them, by enum."""
    found: dict[type[StrEnum], Any] = {**_ADDED.get(name, {})}
    for module in question_modules():
        found |= getattr(module, name, {})
    return found


def label(code: StrEnum) -> Said:
    """Return the label of a code; its own words if no module has one."""
    return Said(all_sentences().get(type(code), {}).get(code) or code.replace("_", " "))


def labels(values: Iterable[str | None], codes: type[StrEnum]) -> list[str]:
    """The labels of a column of codes; for nulls the text in `NULLS`, or nothing. Values that are
    not in `codes` stay as they are."""
    known = {code.value: label(code) for code in codes}
    none = _of_modules("NULLS").get(codes, "")
    return [none if value is None else known.get(value, value) for value in values]


def worded_note(note: Note, template: Said | None = None) -> Said:
    """A note as a sentence, or a part of one, without a full stop; with `template` in place of that
    of its code if one is given."""
    units, share = _OF_UNIT, note.values.get("share")
    if template is None and isinstance(share, float) and share >= _TWICE:
        factor = all_factors().get(type(note.code), {}).get(note.code)
        if factor:
            template, units = Said(factor), _AS_FACTORS
    values = {name: value_text(name, value, units) for name, value in note.values.items()}
    return said((template or label(note.code)).template, **values)


def why_not(note: Note | None) -> str:
    """The reason that a note gives; "" if there is none."""
    return "" if note is None else worded_note(note)


def worded_cell(text: str, codes: type[NoteCode]) -> str:
    """The notes in a cell of a table (`notes_text`), joined with commas."""
    return joined(", ", map(worded_note, notes_from(text, codes)))


def value_text(name: str, value: Value, units: _Units = _OF_UNIT) -> str:
    """A value as people read it: the end of its `name` is its unit, one of `units`."""
    if isinstance(value, Note):
        return worded_note(value)
    if isinstance(value, tuple):
        return joined(", ", [value_text(name, part, units) for part in value])
    if isinstance(value, StrEnum):
        return label(value)
    if isinstance(value, str):
        return value
    for suffix, text in units:
        if name.endswith(suffix):
            return text(value)
    return count(value) if isinstance(value, int) else f"{value:g}"


# --- What a node of the module tree is called: `24 × JointTransformerBlock` of equal blocks.


def stage_names(stages: Iterable[str]) -> dict[str, str]:
    """Return what reports call the stage of calls that have none: the whole run, if no call has."""
    only = {*stages} == {RUN_STAGE}
    return {RUN_STAGE: said("whole run") if only else said("no stage")}


def labelled(tree: pl.DataFrame) -> pl.DataFrame:
    """The tree with a column `label`."""
    stages = pl.col("kind") == Node.STAGE
    names = stage_names(tree.filter(stages)["name"])
    several = (pl.col("count") > 1) & (pl.col("kind") == Node.MODULE)
    blocks = several & pl.col("name").str.contains(r"[*\]]$")
    text = (
        pl.when(blocks)
        .then(pl.format("{} × {}", "count", pl.coalesce("class", "name")))
        .when(pl.col("kind") == Node.UNTRACED)
        .then(pl.lit(str(label(Node.UNTRACED))))
        .when((pl.col("name") == "") & (pl.col("kind") == Node.RUN))
        .then(pl.lit(str(label(Node.RUN))))
        .when(stages)
        .then(pl.col("name").replace(names))
        .otherwise("name")
    )
    return tree.with_columns(label=text)


# --- Tables that have more to say than their columns: with sentences for people, or another form in
# JSON.
#
# A module of this package, or of a package in it, declares one as `WORDED`. Callers get it by the
# table's name.


class WordedTable(Struct, frozen=True):
    """A table of the analysis as files and SQL have it: its `columns`, its `frame` with these, and
    its `rows` as JSON has them."""

    table: str
    columns: tuple[Column, ...]
    frame: Callable[[Analysis], pl.DataFrame]
    rows: Callable[[Analysis], list[dict[str, Any]]]


@lru_cache
def worded_tables_by_name() -> Mapping[str, WordedTable]:
    """Return the `WORDED` tables of the modules of this package, by table."""
    found: dict[str, WordedTable] = {}
    for module in question_modules():
        declared = getattr(module, "WORDED", None)
        if declared is not None:
            found[declared.table] = declared
    return found


# --- Frames of an analysis as tables that are shown: columns that say something, rows ranked.


_INWARDS = "\N{NO-BREAK SPACE}" * 2


class _Options(TypedDict, total=False):
    shown: int
    held: int
    search: bool
    sort: str
    label: str
    variants: tuple[tuple[str, pl.DataFrame], ...]
    totals: pl.DataFrame | None
    opens: Opens | None
    strong: str
    nested: bool
    paper: pl.DataFrame | None
    below: Column | None


def table(
    key: str,
    name: str,
    columns: str | Sequence[str | Column],
    declared: Sequence[Column],
    frame: pl.DataFrame,
    **options: Unpack[_Options],
) -> TableView | None:
    """`frame` as a table of these `columns`, by name as they are `declared`; None without rows, or
    if none of them would be shown. The options are those of `TableView`."""
    if frame.is_empty() or not options.get("shown", 1):
        return None
    first, *others = columns_of(columns, declared)
    kept = (first, *(column for column in others if _says_something(column, frame[column.name])))
    view = TableView(key, name, kept, frame, **options)
    sort = view.sort
    variants = tuple((label, ranked(rows, sort)) for label, rows in view.variants)
    return replace(view, frame=ranked(frame, sort), variants=variants)


def ranked(frame: pl.DataFrame, sort: str) -> pl.DataFrame:
    """Sort rows by a column, largest first and nulls last; unchanged for ""."""
    if not sort:
        return frame
    return frame.sort(sort, descending=True, nulls_last=True, maintain_order=True)


def inwards(depth: pl.Expr) -> pl.Expr:
    """Return the indentation of a name that is `depth` levels in."""
    return pl.lit(_INWARDS).repeat_by(depth).list.join("")


def columns_of(
    columns: str | Sequence[str | Column], declared: Sequence[Column]
) -> tuple[Column, ...]:
    """The columns; those given by name (several with spaces between) as they are `declared`."""
    known = {column.name: column for column in declared}
    given = [columns] if isinstance(columns, str) else columns
    split = (one.split() if isinstance(one, str) else [one] for one in given)
    return tuple(known[one] if isinstance(one, str) else one for some in split for one in some)


renamed = column_of  # of a table, with changes: `label`, `kind`, `meaning`, `importance`


def on_devices(
    columns: Sequence[str | Column], declared: Sequence[Column], frame: pl.DataFrame, name: str = ""
) -> list[Column]:
    """The columns; `device` stays in a narrow terminal if rows of one `name`, or any without one,
    are of several devices, which nothing else distinguishes."""
    rows = frame.group_by(name or pl.lit(0))
    several = rows.agg(pl.col("device").n_unique() > 1)["device"].any()
    return [
        column_of(declared, one.name, importance=0) if several and one.name == "device" else one
        for one in columns_of(columns, declared)
    ]


def worded_column(column: Column, values: pl.Series) -> list[Any]:
    """Return the values of a column as reports show them: labels of codes and sentences of notes,
    all other values as they are."""
    codes = column.codes
    if codes is None:
        return values.to_list()
    if issubclass(codes, NoteCode):
        return [None if text is None else worded_cell(text, codes) for text in values]
    return [text or None for text in labels(values, codes)]


def registered_view(table: Table, frame: pl.DataFrame) -> TableView | None:
    """A table of the analysis as it is declared; None without rows or columns to show."""
    columns = [column for column in table.columns if column.importance != DATA_ONLY]
    if not columns or frame.is_empty():
        return None
    kept = tuple(c for c in columns if c is columns[0] or _says_something(c, frame[c.name]))
    title = table.title or table.name.replace("_", " ").capitalize()
    return TableView(table.name, title, kept, frame, table.shown)


def _says_something(column: Column, values: pl.Series) -> bool:
    """Whether a column has a value to show."""
    if values.null_count() == len(values):
        return False
    if values.dtype == pl.String:
        return bool((values != "").any())
    return not column.hide_if_zero or bool((values != 0).any())


def declared_drawing(
    table: Table, frame: pl.DataFrame, bars: tuple[Bars, ...] = ()
) -> Figure | None:
    """The figure that a table declares; None if it declares none. `bars` are what a terminal shows
    of it."""
    spec = table.figure
    return None if spec is None else Figure(table.name, spec.kind, (spec.columns, frame), bars)
