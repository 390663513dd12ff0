"""The tables of the HTML page: which columns of an analysis, under which heading, in which order.

The explanation of a column is the meaning that its declaration gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from profiler.analysis import columns
from profiler.analysis.operators.columns import OPERATORS
from profiler.analysis.result import Analysis
from profiler.report.patterns import by_pattern
from profiler.table.columns import Column

__all__ = ["call_columns", "page_tables"]


@dataclass(frozen=True, slots=True)
class _Shown:
    """A column as the page shows it: `kind` says how `templates/tables.js` writes its values
    (`text`, `list` of names, `layer`, `ns`, `count`, `ratio`, `share`, `factor`, `flag`, `step`).
    `minor` ones stay away from paper."""

    name: str
    label: str
    kind: str
    minor: bool = False


_PIPELINES = (
    _Shown("pipeline", "pipeline call", "count"),
    _Shown("name", "pipeline", "text"),
    _Shown("start_ns", "start", "ns"),
    _Shown("duration_ns", "duration", "ns"),
    _Shown("overlapping", "at once", "flag"),
    _Shown("steps", "steps", "count"),
    _Shown("calls", "calls", "count"),
    _Shown("calls_ns", "in calls", "ns"),
    _Shown("host_ns", "host work", "ns"),
    _Shown("idle_ns", "idle", "ns"),
    _Shown("residual_share", "unaccounted", "share"),
)
_STAGES = (
    _Shown("stage", "stage", "text"),
    _Shown("duration_ns", "duration", "ns"),
    _Shown("share", "share", "share"),
    _Shown("calls", "calls", "count"),
    _Shown("calls_ns", "in calls", "ns"),
    _Shown("host_ns", "host work", "ns"),
    _Shown("idle_ns", "idle", "ns"),
)
_DEVICES = (
    _Shown("device", "device", "text"),
    _Shown("hardware", "hardware", "text"),
    _Shown("utilization", "busy", "share"),
    _Shown("busy_ns", "busy", "ns"),
    _Shown("idle_ns", "idle", "ns"),
    _Shown("compute_ns", "compute", "ns"),
    _Shown("dma_ns", "dma", "ns"),
    _Shown("copy_ns", "copy", "ns"),
    _Shown("sync_ns", "sync", "ns"),
    _Shown("other_ns", "other", "ns", minor=True),
    _Shown("host_ns", "host", "ns"),
    _Shown("calls", "calls", "count"),
    _Shown("commands", "commands", "count"),
)
_SUBMODULES = (
    _Shown("submodule", "submodule", "text"),
    _Shown("stage", "stage", "text", minor=True),
    _Shown("device", "device", "text"),
    _Shown("calls", "calls", "count"),
    _Shown("total_ns", "total", "ns"),
    _Shown("share", "share", "share"),
    _Shown("first_ns", "first call", "ns"),
    _Shown("min_ns", "shortest", "ns", minor=True),
    _Shown("median_ns", "median", "ns"),
    _Shown("max_ns", "longest", "ns"),
    _Shown("busy_ns", "device time", "ns"),
    _Shown("commands", "commands", "count"),
    _Shown("operators", "operators", "count", minor=True),
    _Shown("calibration", "calibration", "factor", minor=True),
)
_BRANCHES = (
    _Shown("submodule", "submodule", "text"),
    _Shown("branch", "branch", "text"),
    _Shown("calls", "calls", "count"),
    _Shown("total_ns", "total", "ns"),
    _Shown("share", "share", "share"),
    _Shown("first_ns", "first call", "ns"),
    _Shown("min_ns", "shortest", "ns", minor=True),
    _Shown("median_ns", "median", "ns"),
    _Shown("max_ns", "longest", "ns"),
    _Shown("busy_ns", "device time", "ns"),
)
_OPERATORS = (
    _Shown("layer", "layer", "layer"),
    _Shown("submodule", "submodule", "text"),
    _Shown("op_types", "op types", "list"),
    _Shown("layers", "layers", "count"),
    _Shown("commands", "commands", "count"),
    _Shown("calls", "calls", "count"),
    _Shown("busy_sum_ns", "busy sum", "ns"),
    _Shown("share", "share", "share"),
    _Shown("wall_union_ns", "wall union", "ns"),
    _Shown("parallel_efficiency", "par. eff.", "ratio"),
    _Shown("imbalance", "imbal.", "factor", minor=True),
    _Shown("devices", "devices", "list"),
    _Shown("calibrated_ns", "calibrated", "ns"),
    _Shown("median_ns", "median a call", "ns", minor=True),
    _Shown("tracks", "tracks", "count", minor=True),
)
_HOST_WORK = (
    _Shown("layer", "work", "layer"),
    _Shown("submodule", "submodule", "text"),
    _Shown("commands", "times", "count"),
    _Shown("busy_sum_ns", "busy sum", "ns"),
    _Shown("share", "share of host work", "share"),
    _Shown("wall_union_ns", "wall union", "ns"),
    _Shown("median_ns", "median", "ns"),
)
_CALLS = (
    _Shown("call", "call", "count"),
    _Shown("pipeline", "pipeline call", "step"),
    _Shown("submodule", "submodule", "text"),
    _Shown("stage", "stage", "text"),
    _Shown("branch", "branch", "text"),
    _Shown("step", "step", "step"),
    _Shown("device", "device", "text"),
    _Shown("start_ns", "start", "ns"),
    _Shown("duration_ns", "duration", "ns"),
    _Shown("busy_ns", "device time", "ns"),
    _Shown("commands", "commands", "count"),
    _Shown("operators", "operators", "count"),
    _Shown("first", "first", "flag", minor=True),
    _Shown("ops_traced", "traced", "flag", minor=True),
)
_IN_CALL = (
    _Shown("layer", "layer", "layer"),
    _Shown("op_types", "op types", "list"),
    _Shown("role", "role", "text"),
    _Shown("layers", "layers", "count"),
    _Shown("tracks", "tracks", "list"),
    _Shown("commands", "commands", "count"),
    _Shown("wall_union_ns", "wall union", "ns"),
    _Shown("busy_sum_ns", "busy sum", "ns"),
    _Shown("share", "share of the call", "share"),
)
_ADDED = {
    "layers": "layers of repeated blocks that this row stands for",
    "role": "what the operator is for in a diffusion model",
}
_MAY_BE_ALL_NULL = frozenset({"calibrated_ns", "calibration", "hardware", "branch", "submodule"})
_MAY_BE_ALL_ZERO = frozenset({"dma_ns", "copy_ns", "sync_ns", "other_ns", "host_ns"})


def page_tables(analysis: Analysis, begin_ns: int) -> dict[str, dict[str, Any]]:
    """Every table of the page as JSON; starts become relative to `begin_ns`."""
    relative = pl.col("start_ns") - begin_ns
    calls = analysis.calls.with_columns(relative)
    pipelines = analysis.pipelines.with_columns(relative)
    branches = analysis.branches.filter(pl.len().over("submodule") > 1)
    several = len(pipelines) > 1
    shown_calls = _CALLS if several else [c for c in _CALLS if c.name != "pipeline"]
    return {
        "pipelines": _table(
            "pipeline calls",
            _PIPELINES,
            columns.PIPELINES,
            pipelines if several else pipelines.clear(),
            shown=20,
        ),
        "stages": _table("stages", _STAGES, columns.STAGES, analysis.stages, shown=20),
        "devices": _table("devices", _DEVICES, columns.DEVICES, analysis.devices, shown=20),
        "submodules": _table(
            "submodules", _SUBMODULES, columns.SUBMODULES, analysis.submodules, shown=20
        ),
        "branches": _table("branches", _BRANCHES, columns.BRANCHES, branches, shown=20),
        "operators": _operators(analysis.operators.filter(~pl.col("host"))),
        "host": _host_work(analysis.operators.filter(pl.col("host"))),
        "calls": _table("calls", shown_calls, columns.CALLS, calls, shown=40, search=True),
    }


def call_columns() -> list[dict[str, Any]]:
    """Columns of the table of one call's operators, which the page itself fills."""
    return _described(_IN_CALL, OPERATORS)


def _operators(operators: pl.DataFrame) -> dict[str, Any]:
    """Operators folded by pattern, and one by one, for the reader to choose."""
    single = operators.with_columns(layers=pl.lit(1, dtype=pl.UInt32))
    folded = by_pattern(operators)
    table = _table("operators", _OPERATORS, OPERATORS, folded, shown=25, search=True)
    names = [column["name"] for column in table["columns"]]
    if len(folded) == len(single):
        return table | {"sort": "busy_sum_ns"}
    variants = (
        ("operation, blocks folded", table["values"]),
        ("operator", {name: single[name].to_list() for name in names}),
    )
    return table | {
        "sort": "busy_sum_ns",
        "variants": [{"label": label, "values": values} for label, values in variants],
    }


def _host_work(operators: pl.DataFrame) -> dict[str, Any]:
    return _table(
        "host work", _HOST_WORK, OPERATORS, by_pattern(operators), shown=10, search=True
    ) | {"sort": "busy_sum_ns"}


def _table(
    name: str,
    shown_columns: Sequence[_Shown],
    declared: Sequence[Column],
    frame: pl.DataFrame,
    *,
    shown: int,
    search: bool = False,
) -> dict[str, Any]:
    kept = [column for column in shown_columns if _says_something(frame[column.name])]
    return {
        "name": name,
        "columns": _described(kept, declared),
        "values": {column.name: frame[column.name].to_list() for column in kept},
        "shown": shown,
        "search": search,
    }


def _says_something(column: pl.Series) -> bool:
    """Whether a column that may be empty is not."""
    if column.name in _MAY_BE_ALL_NULL:
        return bool(column.is_not_null().any())
    return column.name not in _MAY_BE_ALL_ZERO or bool((column != 0).any())


def _described(shown: Sequence[_Shown], declared: Sequence[Column]) -> list[dict[str, Any]]:
    meanings = {column.name: column.meaning for column in declared} | _ADDED
    return [
        {
            "name": column.name,
            "label": column.label,
            "kind": column.kind,
            "meaning": meanings[column.name],
            "minor": column.minor,
        }
        for column in shown
    ]
