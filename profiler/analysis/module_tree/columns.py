"""The columns of the module tree."""

from __future__ import annotations

import polars as pl

from profiler.analysis.module_tree.codes import Node
from profiler.analysis.roofline.codes import Bound
from profiler.table.columns import DATA_ONLY, Column

__all__ = ["MODULE_TREE"]

_TEXT, _INT32, _INT64, _REAL = pl.String(), pl.Int32(), pl.Int64(), pl.Float64()

MODULE_TREE: tuple[Column, ...] = (
    Column("node", _INT32, "", "number of the node: its row", importance=DATA_ONLY),
    Column("parent", _INT32, "", "node that it is in; -1 of the run", importance=DATA_ONLY),
    Column("depth", _INT32, "", "how deep it lies: 0 of the run", importance=DATA_ONLY),
    Column(
        "name",
        _TEXT,
        "",
        "its own name: part of a path, `*` for the numbers of equal blocks; op type of an operator",
        kind="layer",
    ),
    Column("kind", _TEXT, "", "what it is: " + ", ".join(Node), importance=16, codes=Node),
    Column("class", _TEXT, "", "class of the module, where known", True, importance=8),
    Column("count", _INT64, "", "how many equal blocks or operators it stands for", importance=5),
    Column(
        "elapsed_ns",
        _INT64,
        "ns",
        "inclusive: self_ns and elapsed_ns of the nodes in it, on the devices' axis",
    ),
    Column(
        "self_ns",
        _INT64,
        "ns",
        "part of elapsed_ns that no node in it has",
        label="self",
        importance=2,
    ),
    Column("share", _REAL, "ratio", "elapsed_ns / that of the run", True, kind="share"),
    Column(
        "executions",
        _INT64,
        "",
        "calls of a submodule; calls in which a module ran, each of equal blocks by itself; how "
        "often an operator ran, of several kernels once",
        True,
        label="executed",
        importance=1,
    ),
    Column(
        "min_ns",
        _INT64,
        "ns",
        "least elapsed_ns of one of those that it stands for",
        True,
        label="shortest",
        importance=11,
    ),
    Column(
        "median_ns",
        _INT64,
        "ns",
        "median elapsed_ns of those that it stands for",
        True,
        importance=6,
    ),
    Column(
        "max_ns",
        _INT64,
        "ns",
        "most elapsed_ns of one of those that it stands for",
        True,
        label="longest",
        importance=11,
    ),
    Column(
        "total_ns",
        _INT64,
        "ns",
        "sum of the durations of its device commands, side by side or not",
        importance=14,
    ),
    Column("commands", _INT64, "", "its device commands", importance=15),
    Column(
        "teraflops_per_s",
        _REAL,
        "TFLOP/s",
        "FLOPs / time, of commands whose FLOPs are known",
        True,
        label="compute",
        importance=3,
    ),
    Column(
        "flops_of_peak",
        _REAL,
        "ratio",
        "that rate / peak of the device for its type; null above it",
        True,
        label="of peak",
        kind="share",
        importance=4,
    ),
    Column(
        "bound",
        _TEXT,
        "",
        "what bounds it: " + ", ".join(Bound) + "; null where that is known of less than half",
        True,
        codes=Bound,
        importance=4,
    ),
    Column("role", _TEXT, "", "role of more than half of its total_ns", True, importance=10),
    Column("flops", _INT64, "", "FLOPs of those that are known", True, importance=DATA_ONLY),
    Column("stage", _TEXT, "", "stage that it lies in", True, importance=DATA_ONLY),
    Column("submodule", _TEXT, "", "submodule that it lies in", True, importance=DATA_ONLY),
    Column(
        "path",
        _TEXT,
        "",
        "path of its module in the submodule: `*` is any number, `[0-22]` one of these",
        True,
        importance=DATA_ONLY,
    ),
)
