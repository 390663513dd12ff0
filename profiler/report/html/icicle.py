"""The icicle on the page's first screen: the module tree as rectangles as wide as their time."""

from __future__ import annotations

from typing import Any

import polars as pl

from profiler.analysis.module_tree.columns import MODULE_TREE
from profiler.analysis.result import Analysis
from profiler.report.html.table_json import described, plain_values
from profiler.report.sections.modules import nodes_of
from profiler.report.views import columns_of, renamed, worded
from profiler.text import said

__all__ = ["icicle_json"]

_MOST = 600  # nodes that the page holds: the first screen stays small, whatever the model
_COLUMNS = (
    renamed(MODULE_TREE, "name", label="node"),
    "kind",
    "elapsed_ns",
    "self_ns",
    "share",
    "executions",
    "role",
    "flops_of_peak",
    "bound",
)


def icicle_json(analysis: Analysis) -> dict[str, Any] | None:
    """The nodes of the module tree with the most time, by column: `parent` is the place of the node
    that each is in, -1 of the run, and `codes` are those of columns of words. None where nothing
    took any time."""
    tree = nodes_of(analysis, _MOST).filter(pl.col("elapsed_ns") > 0)
    if tree.is_empty():
        return None
    kept = tree.with_columns(own="name", name="label")
    place = {node: number for number, node in enumerate(kept["node"])}
    above_each = [place.get(node, -1) for node in kept["parent"]]
    columns = columns_of(_COLUMNS, MODULE_TREE)
    coded = [column for column in columns if column.codes is not None]
    words = {word for column in coded for word in worded(column, kept[column.name].unique())}
    return {
        "columns": described(columns),
        "values": {column.name: plain_values(column, kept[column.name]) for column in columns},
        "codes": {column.name: kept[column.name].to_list() for column in coded},
        "own": kept.select(own=pl.when(pl.col("own") != pl.col("name")).then("own"))[
            "own"
        ].to_list(),
        "depth": kept["depth"].to_list(),
        "parent": [above if above < at else -1 for at, above in enumerate(above_each)],
        "words": [said(word) for word in sorted(word for word in words if word)],
    }
