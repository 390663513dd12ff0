"""The report section on operators, with those that were split and those that only move data.

Rows with the same label are distinguished by the template arguments of their kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from profiler.analysis.commands import LAYER, SUBMODULE, queue_codes, ratio
from profiler.analysis.context import Inputs
from profiler.analysis.document import TOP, Figure, Opens, Part, TableView
from profiler.analysis.finding_text import Rule, Words, calls_of, on_gpus, scaled, share, whole_of
from profiler.analysis.operators import (
    _IMBALANCE,
    _PARALLELISM,
    _UTILIZATION,
    OPERATORS,
    SUMS,
    Folds,
    SplitPart,
    fold_by,
    folds,
)
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, Effect, Finding, ReportInput
from profiler.analysis.step_outliers import cold_calls
from profiler.analysis.table_text import Sentences, by_pattern, renamed, split_operators, table
from profiler.grammars.names import telling_apart
from profiler.run.columns import FACTOR, INT64, NS, RATIO, STRING, Adds, Column, col, typed
from profiler.run.intervals import Codes, batches
from profiler.text import Said, Value, count, counted, duration, joined, said
from profiler.trace.events import CATEGORIES

# --- The columns of folded operators, and of the parts of those that were split.


PARTITIONING: tuple[Column, ...] = (
    replace(SUBMODULE, importance=3, key=False),
    replace(LAYER, label="operator", key=False),
    col(
        "part",
        STRING,
        "whole, compute, movement (dma and copy), or device: on one device",
        codes=SplitPart,
    ),
    col("device", STRING, "the device, for a part on one device", True),
    col("calls", INT64, "calls it ran in", importance=15),
    col("commands", INT64, "its commands over all calls", importance=4),
    col("tracks", INT64, "most tracks it ran on in a call"),
    renamed(OPERATORS, "wall_ns", label="wall"),
    col("total_ns", NS, "sum of its commands' durations"),
    col(
        "gap_ns",
        NS,
        "time between its commands of a call in which none ran",
        label="gaps",
        importance=1,
    ),
    col("parallelism", FACTOR, _PARALLELISM, True, importance=5),
    col("parallel_utilization", RATIO, _UTILIZATION, True, label="parallel utilization"),
    col("imbalance", FACTOR, _IMBALANCE, True),
    col(
        "device_imbalance",
        FACTOR,
        "for the whole: busiest device / mean of the devices",
        True,
        label="of devices",
        importance=2,
    ),
)


# --- Operators that were split: over tracks, over devices, into computing and moving data.
#
# Each is shown as a whole, then its computing and its data movement (categories dma and copy) by
# themselves, then its part on each device. Numbers are those of `operators`, of the commands of the
# part; `gap_ns` is the time between a part's first command in a call and its last in which none of
# it ran. A stream of a GPU does one thing after the other, kernels, copies and fills: an operator
# that has all of its commands on one is not split.


_MOVES = np.isin(CATEGORIES, ("dma", "copy", "collective"))
_PARTS = tuple(part.value for part in SplitPart)
_Flags = npt.NDArray[np.bool_]


def _partitioning(of: Inputs) -> pl.DataFrame:
    """One row per operator that was split, and per part of it; operators are in order of their
    total, longest first."""
    found, commands = folds(of), of.commands
    moves, device = _MOVES[commands.category], commands.device
    devices = len(commands.devices) + 1
    moving = _varies(found, 2, lambda rows: moves[rows])
    several = _varies(found, devices, lambda rows: device[rows])
    split = moving.copy()
    split[found.key[found.tracks > 1]] = True
    if split.any():
        queue, queues = queue_codes(of.frame["track"])
        split &= _varies(
            found, devices * queues, lambda rows: device[rows] * np.int64(queues) + queue[rows]
        )
        moving &= split
    split |= several
    on_device = ~found.operators["host"].to_numpy()
    whole = pl.DataFrame({name: getattr(found, name) for name in SUMS})
    kept = whole.filter(pl.Series((split & on_device)[found.key]))
    by_device = _refolded(of, several & on_device, device)
    by_category = _refolded(of, moving & on_device, moves.view(np.int8))
    parts = [
        _row_of(kept.with_columns(pl.lit(-1, pl.Int64).alias("code")), pl.lit(0, pl.Int64)),
        _row_of(by_category, pl.col("code") + 1),
        _row_of(by_device, pl.lit(3, pl.Int64)),
    ]
    return _table(pl.concat(parts), by_device, found.operators, commands.devices)


def _varies(folds: Folds, width: int, codes: Callable[[slice], Codes | _Flags]) -> _Flags:
    """Return which operators have commands with different codes; `codes` returns the codes, below
    `width`, of some rows."""
    found = np.zeros(len(folds.operators) * width, dtype=np.bool_)
    for rows in batches(len(folds.of_command)):
        found[folds.of_command[rows] * np.int64(width) + codes(rows)] = True
    several: _Flags = found.reshape(len(folds.operators), width).sum(axis=1) > 1
    return several


def _refolded(of: Inputs, marked: _Flags, codes: Codes) -> pl.DataFrame:
    """Fold the `marked` operators of single calls by code: the sums of `Folds` and `code`."""
    width = int(codes.max(initial=0)) + 1
    limit = len(marked) * width
    columns, key, commands = of.frame.select("pipeline", "track"), folds(of).of_command, of.commands
    if not marked.all():
        rows = np.flatnonzero(marked[key]) if marked.any() else np.zeros(0, dtype=np.int64)
        names = ("call", "step", "start", "end", "device", "category")
        commands = replace(commands, **{name: getattr(commands, name)[rows] for name in names})
        columns, key, codes = columns[rows], key[rows], codes[rows]
    dtype = np.dtype(np.int32 if limit < 1 << 31 else np.int64)
    key = key.astype(dtype) * dtype.type(width) + codes
    sums: dict[str, Any] = fold_by(key, limit, of.calls, columns, commands)
    found = pl.DataFrame({name: sums[name].astype(np.int64) for name in SUMS})
    return found.with_columns(key=pl.col("key") // width, code=pl.col("key") % width)


def _row_of(folded: pl.DataFrame, part: pl.Expr) -> pl.DataFrame:
    """Sum the folds of single calls: one row per key and code, numbered as a `part`."""
    even = pl.col("working_busy") / pl.col("working_tracks")
    possible = (pl.col("wall") * pl.col("working_tracks")).sum()
    return (
        folded.with_columns(pl.col(name).cast(pl.Int64) for name in SUMS)
        .group_by("key", "code")
        .agg(
            calls=pl.len().cast(pl.Int64),
            commands=pl.col("commands").sum(),
            tracks=pl.col("tracks").max(),
            wall_ns=pl.col("wall").sum(),
            total_ns=pl.col("busy").sum(),
            gap_ns=(pl.col("extent") - pl.col("wall")).sum(),
            parallelism=ratio(pl.col("busy").sum(), pl.col("wall").sum()),
            parallel_utilization=ratio(pl.col("working_busy").sum(), possible),
            imbalance=ratio(pl.col("busiest").sum(), even.sum()),
        )
        .with_columns(part=part)
    )


def _table(
    parts: pl.DataFrame, by_device: pl.DataFrame, operators: pl.DataFrame, devices: tuple[str, ...]
) -> pl.DataFrame:
    """Return the table, with names for keys and codes, in order."""
    most = pl.col("busy").max().over("key", "call")
    mean = pl.col("busy").mean().over("key", "call")
    uneven = (
        by_device.with_columns(most=most, mean=mean)
        .group_by("key")
        .agg(device_imbalance=ratio(pl.col("most").sum(), pl.col("mean").sum()))
    )
    keys = operators.select("submodule", "layer", key=pl.col("key").cast(pl.Int64))
    names = dict(enumerate(devices))
    of_device = pl.when(pl.col("part") == 3).then(pl.col("code"))
    whole = pl.col("total_ns").filter(pl.col("part") == 0).sum().over("key")
    part = pl.col("part")
    table = (
        parts.join(keys, on="key")
        .join(uneven, on="key", how="left")
        .with_columns(
            whole=whole,
            device=of_device.replace_strict(names, default=None, return_dtype=pl.String),
            device_imbalance=pl.when(part == 0).then(pl.col("device_imbalance")),
        )
        .sort(
            ["whole", "submodule", "layer", "part", "device"],
            descending=[True, False, False, False, False],
        )
        .with_columns(part.replace_strict(dict(enumerate(_PARTS)), return_dtype=pl.String))
    )
    return table.select(typed(PARTITIONING))


# --- The table of the parts of split operators.


TABLES = (
    Table(
        name="partitioning",
        row="one part of a split operator",
        section="roofline",
        columns=PARTITIONING,
        make=_partitioning,
        title="Split operators",
        about="The table lists operators that were split over tracks or devices, or that both "
        "compute and move data, longest first. Each has rows for the whole, for its computing "
        "and its data movement, and for its part on each device. [operators.md](operators.md) "
        "has details.",
    ),
)


# --- Operators of devices, and those that were split.


_SPLIT = 50  # operators that a page holds
LAYERS = Column(
    "layers",
    pl.UInt32(),
    "",
    "layers of repeated blocks that this row stands for",
    label="layers",
    kind="count",
)
_OPERATORS = (
    "layer",
    renamed(OPERATORS, "submodule", importance=1),
    "op_types",
    LAYERS,
    renamed(OPERATORS, "commands", importance=3),
    "calls total_ns",
    renamed(OPERATORS, "share", label="of total", adds=Adds("total_ns", within=())),
    renamed(OPERATORS, "wall_ns", importance=2),
    renamed(OPERATORS, "parallel_utilization", importance=4),
    renamed(OPERATORS, "imbalance", label="imbal."),
    "devices corrected_ns median_ns tracks",
)
_SPLIT_PARTS = (
    "layer part submodule device calls commands tracks wall_ns total_ns gap_ns parallelism",
    "parallel_utilization",
    renamed(PARTITIONING, "imbalance", label="imbal."),
    "device_imbalance",
)


def operators_figure(analysis: Analysis, top: int = TOP, *, patterns: bool = True) -> Figure:
    """The `top` operators by time; with `patterns`, equal layers of repeated blocks are one."""
    rows = by_pattern(analysis.operators) if patterns else analysis.operators
    names = [part.submodule for part in analysis.accounting.submodules]
    return Figure("operators", "operators", (rows, names, top))


def operator_parts(of: ReportInput) -> Iterator[Part]:
    """All operators of devices, folded and one by one, and how the split ones were cut."""
    analysis = of.analysis
    operators = analysis.operators.filter(~pl.col("host"))
    if operators.is_empty():
        return
    number = counted(len(operators), "operator")
    lead = said("{operators}, by the sum of their commands' time on devices.", operators=number)
    if on_gpus(analysis):
        lead = said("{operators}, by the sum of their kernels' time.", operators=number)
    if waits := int(operators["waited_ns"].sum()):
        waiting = said(
            "{waits} of it is waiting or copies in flight, in which no device is busy.",
            waits=duration(waits),
        )
        lead = joined(" ", [lead, waiting])
    if (operators["corrected_ns"] != operators["total_ns"]).any():
        corrected = said("Corrected: scaled to calls that ran without tracing operators.")
        lead = joined(" ", [lead, corrected])
    yield Part(
        said("Operators"),
        lead=lead,
        figure=operators_figure(analysis),
        table=_operators(operators, of.rows(TOP)),
        anchor="operators",
    )
    yield _split(of)


def _operators(operators: pl.DataFrame, top: int) -> TableView | None:
    """Operators folded by pattern, and one by one, for the reader to choose."""
    single = operators.with_columns(layers=pl.lit(1, dtype=pl.UInt32))
    folded = by_pattern(operators)
    every = (said("operator"), single)
    together = len(folded) < len(single)
    return table(
        "operators",
        "operators",
        [column for column in _OPERATORS if together or column is not LAYERS],
        OPERATORS,
        folded,
        shown=top,
        search=True,
        sort="total_ns",
        label=said("operation, blocks aggregated"),
        variants=(every,) if together else (),
        opens=Opens.LAYERS,
    )


def _split(of: ReportInput) -> Part:
    rows, number = split_operators(of.analysis.partitioning, _SPLIT)
    left = said(
        "The {shown} of {total} split operators with the most total time.",
        shown=count(_SPLIT),
        total=count(number),
    )
    return Part(
        said("Split operators, by total time"),
        said("Operators that ran on several tracks or devices, or moved data beside computing."),
        table=table(
            "split",
            "split operators",
            _SPLIT_PARTS,
            PARTITIONING,
            rows,
            shown=of.rows(10),
            search=True,
        ),
        notes=(left,) if number > _SPLIT else (),
    )


# --- Rows of one label, distinguished by the template arguments of their kernels.


_ALIKE = ("label", "submodule", "device")


def with_template_arguments(rows: pl.DataFrame) -> pl.DataFrame:
    """Add template arguments to labels that several rows of a submodule and device share:
    `mul_mat_vec_q<13>`, as few as distinguish them."""
    labels = rows["label"].to_list()
    numbered = rows.with_row_index("row").filter(pl.col("kernel").is_not_null())
    for _, alike in numbered.group_by(_ALIKE, maintain_order=True):
        if len(alike) > 1:
            kernels = [kernel.rpartition(" +")[0] or kernel for kernel in alike["kernel"]]
            for row, arguments in zip(alike["row"], telling_apart(kernels), strict=True):
                labels[row] += f"<{arguments}>" if arguments else ""
    return rows.with_columns(pl.Series("label", labels, dtype=pl.String))


# --- A rule about operators that only move data.


_MOVED = 0.10  # of the time of the submodule's computing commands
_MOVED_OF_RUN = 0.02
_MOVING = pl.col("role") == "data_movement"
_NAMED = 3
_ENGINES = ("onnxruntime", "tensorrt", "openvino", "qnn")


class Framework(StrEnum):
    """What compiles the operators of a run, if that is not torch."""

    XLA = "xla"
    GRAPH = "graph"  # an exported graph: ONNX, TensorRT, OpenVINO


def data_movement(analysis: Analysis) -> Iterator[Finding]:
    """Casts, transposes and concatenations take a large part of the time in which a submodule's
    devices compute. Transfers (dma, copy) do not count: they run beside, `transfers_exposed` says
    where not."""
    kinds = _without_cold_calls(analysis)
    rows = kinds.group_by("submodule", maintain_order=True).agg(
        pl.col("commands", "total_ns").filter(_MOVING).sum(),
        share=pl.col("total_ns").filter(_MOVING).sum() / pl.col("total_ns").sum(),
    )
    rows = rows.filter(pl.col("share") >= _MOVED)
    for row in scaled(analysis, rows, "total_ns", "commands").to_dicts():
        submodule, total_ns = row["submodule"], row["total_ns"]
        part = share(total_ns, whole_of(analysis, submodule))
        if part < _MOVED_OF_RUN:
            continue
        moves = kinds.filter(_MOVING, submodule=submodule)
        layer = next(iter(_longest(moves, "layer")), "")
        yield Finding(
            rule="data_movement",
            evidence={
                "total_ns": round(total_ns),
                "compute_time_share": row["share"],
                "run_share": part,
                "commands": round(row["commands"]),
                "op_types": ", ".join(_longest(moves, "op_type")),
                "longest_layer": layer,
                **_framework(analysis, submodule),
            },
            where=calls_of(analysis, submodule, layer=layer or None),
            cost_ns=round(total_ns),
            effect=Effect((submodule,), total_ns, launches_of=_commands(analysis, moves)),
        )


def _framework(analysis: Analysis, submodule: str) -> dict[str, Value]:
    """What compiled the operators of a submodule; nothing if torch ran them."""
    known = analysis.run.submodules.get(submodule)
    if analysis.run.producer == "xplane":
        return {"framework": Framework.XLA}
    if analysis.run.producer in _ENGINES or (known and known.model.endswith(".onnx")):
        return {"framework": Framework.GRAPH}
    return {}


def computing(analysis: Analysis) -> pl.DataFrame:
    """The kinds of the submodules' commands of category compute and other, with their roles."""
    roles = analysis.kind_roles["role"].cast(pl.String)
    computes = pl.col("category").cast(pl.String).is_in(["compute", "other"])
    kinds = analysis.kinds.table.with_columns(role=roles)
    return kinds.filter(computes & pl.col("submodule").is_not_null())


def _without_cold_calls(analysis: Analysis) -> pl.DataFrame:
    """`computing`; of a submodule whose first call is cold, what its later traced calls say, for
    all of these calls: a first cast may load a library or start threads, which moves no data, and
    `first_call` counts it."""
    kinds, frame = computing(analysis), analysis.inputs.frame
    cold = cold_calls(analysis)
    traced = analysis.inputs.calls.filter("ops_traced").select(
        pl.col("submodule").cast(pl.String), cold=pl.col("call").is_in(cold.implode())
    )
    scale = traced.group_by("submodule").agg(scale=pl.len() / (~pl.col("cold")).sum())
    scale = scale.filter(pl.col("scale").is_finite())  # some later call is traced
    inside = np.flatnonzero(frame["call"].is_in(cold.implode()).to_numpy())
    codes, duration = analysis.kinds.of_command[inside], frame["duration_ns"].to_numpy()[inside]
    groups = len(analysis.kinds)
    taken = np.bincount(codes, np.maximum(duration, 0), groups).astype(np.int64)
    first = pl.DataFrame({"first": np.bincount(codes, minlength=groups), "first_ns": taken})
    steady = pl.col("scale").is_not_null()
    return (
        pl.concat([kinds, first[kinds["kind"].to_numpy()]], how="horizontal")
        .join(scale, on="submodule", how="left", maintain_order="left")
        .with_columns(
            pl.when(steady)
            .then((pl.col(name) - pl.col(part)) * pl.col("scale"))
            .otherwise(name)
            .alias(name)
            for name, part in (("commands", "first"), ("total_ns", "first_ns"))
        )
    )


def _commands(analysis: Analysis, kinds: pl.DataFrame) -> dict[str, float]:
    """How many commands of these kinds of a submodule there are, by op type."""
    op_type = pl.col("op_type").cast(pl.String).fill_null("")
    rows = kinds.group_by("submodule", op_type).agg(pl.col("commands").sum())
    return dict(scaled(analysis, rows, "commands").select("op_type", "commands").iter_rows())


def _longest(kinds: pl.DataFrame, name: str) -> list[str]:
    """The op types or layers that take most of the time of these kinds."""
    by = kinds.drop_nulls(name).group_by(name).agg(pl.col("total_ns").sum())
    return by.sort(["total_ns", name], descending=[True, False])[name].head(_NAMED).to_list()


_ONE_LAYOUT: Mapping[object, str] = {
    None: "Keep one type and layout from end to end (no casts around norms, channels-last for "
    "convolutions), avoid .contiguous(), concatenate less, export with fixed shapes.",
    Framework.XLA: "Keep one type and layout from end to end: pass arrays in the order of "
    "dimensions that the compiler chooses (NHWC for convolutions), transpose weights once, outside "
    "of the jitted function.",
    Framework.GRAPH: "Keep one type and layout from end to end: no Cast, Transpose and Reorder "
    "between operators, export in the layout that the provider prefers, with fixed shapes; fold "
    "what is constant.",
}
_LAYOUT_CHANGES: Mapping[object, Said] = {
    None: said("Keep one type and layout from end to end; avoid .contiguous()"),
    Framework.XLA: said("Keep one type and layout; transpose weights outside of jit"),
    Framework.GRAPH: said("Keep one type and layout; export in that of the provider"),
}


def _data_movement(found: Finding) -> Words:
    return Words(
        title="{submodule} spends {compute_time_share} of its computing time on moving data",
        caveat="The cost is an upper bound, as if all of it could go. Some is needed: a transpose "
        "may be what makes the product behind it fast.",
        recommendation=_ONE_LAYOUT[found.evidence.get("framework")],
    )


SENTENCES: Sentences = {Framework: {Framework.XLA: "XLA", Framework.GRAPH: "an exported graph"}}
RULES = (
    Rule(
        data_movement,
        _data_movement,
        lambda found: _LAYOUT_CHANGES[found.evidence.get("framework")],
        section="roofline",
    ),
)
