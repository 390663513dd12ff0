"""The icicle on the page's first screen: the module tree as rectangles as wide as their time."""

from __future__ import annotations

from typing import Any

import polars as pl

from profiler.analysis.module_tree.columns import MODULE_TREE
from profiler.messages import said
from profiler.report.html.table_json import described, plain_values
from profiler.report.views import columns_of, renamed, worded

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
    "path",
)


def icicle_json(tree: pl.DataFrame) -> dict[str, Any] | None:
    """The nodes of the labelled module tree with the most time, by column: `parent` is the place of
    the node that each is in, -1 of the run, and `codes` are those of columns of words. None where
    nothing took any time."""
    kept = _largest(tree).with_columns(name="label")
    if kept.is_empty():
        return None
    place = {node: number for number, node in enumerate(kept["node"])}
    columns = columns_of(_COLUMNS, MODULE_TREE)
    coded = [column for column in columns if column.codes is not None]
    words = {word for column in coded for word in worded(column, kept[column.name].unique())}
    return {
        "columns": described(columns),
        "values": {column.name: plain_values(column, kept[column.name]) for column in columns},
        "codes": {column.name: kept[column.name].to_list() for column in coded},
        "parent": [place.get(node, -1) for node in kept["parent"]],
        "left_out": len(tree) - len(kept),
        "words": [said(word) for word in sorted(word for word in words if word)],
    }


def _largest(tree: pl.DataFrame) -> pl.DataFrame:
    """At most `_MOST` nodes, in the order of the tree. No node has more time than the one that it
    is in and stands behind it, so that this is there too."""
    timed = tree.filter(pl.col("elapsed_ns") > 0)
    ranked = timed.sort("elapsed_ns", descending=True, maintain_order=True)
    return ranked.head(_MOST).sort("node")
