"""The columns of the module tree."""

from __future__ import annotations

from profiler.analysis.module_tree.codes import Node
from profiler.analysis.roofline.codes import Bound
from profiler.run.columns import DATA_ONLY, FLOAT64, INT32, INT64, STRING, Column

__all__ = ["MODULE_TREE"]


MODULE_TREE: tuple[Column, ...] = (
    Column("node", INT32, "", "number of the node: its row", importance=DATA_ONLY),
    Column("parent", INT32, "", "parent node; -1 for the run", importance=DATA_ONLY),
    Column("depth", INT32, "", "depth in the tree; 0 for the run", importance=DATA_ONLY),
    Column(
        "name",
        STRING,
        "",
        "its own name: part of a path, with `*` for the numbers of equal blocks; op type for an "
        "operator",
        kind="layer",
    ),
    Column("kind", STRING, "", "kind of node: " + ", ".join(Node), importance=16, codes=Node),
    Column("class", STRING, "", "class of the module, where known", True, importance=8),
    Column("count", INT64, "", "how many equal blocks or operators it stands for", importance=5),
    Column(
        "elapsed_ns",
        INT64,
        "ns",
        "inclusive time on the devices' axis: self_ns plus elapsed_ns of the nodes in it",
    ),
    Column(
        "self_ns",
        INT64,
        "ns",
        "part of elapsed_ns that belongs to no node in it",
        label="self",
        importance=2,
    ),
    Column("share", FLOAT64, "ratio", "elapsed_ns / elapsed_ns of the run", True, kind="share"),
    Column(
        "executions",
        INT64,
        "",
        "calls of a submodule; calls in which a module ran, counted separately for each of "
        "several equal blocks; executions of an operator, counted once where it has several "
        "kernels",
        True,
        label="executed",
        importance=1,
    ),
    Column(
        "min_ns",
        INT64,
        "ns",
        "smallest elapsed_ns among those that it stands for",
        True,
        label="shortest",
        importance=11,
    ),
    Column(
        "median_ns",
        INT64,
        "ns",
        "median elapsed_ns of those that it stands for",
        True,
        importance=6,
    ),
    Column(
        "max_ns",
        INT64,
        "ns",
        "largest elapsed_ns among those that it stands for",
        True,
        label="longest",
        importance=11,
    ),
    Column(
        "total_ns",
        INT64,
        "ns",
        "sum of the durations of its device commands, whether or not they overlap",
        importance=14,
    ),
    Column("commands", INT64, "", "its device commands", importance=15),
    Column(
        "teraflops_per_s",
        FLOAT64,
        "TFLOP/s",
        "FLOPs / time, of commands whose FLOPs are known",
        True,
        label="compute",
        importance=3,
    ),
    Column(
        "flops_of_peak",
        FLOAT64,
        "ratio",
        "that rate / the device's peak for its data type; null above the peak",
        True,
        label="of peak",
        kind="share",
        importance=4,
    ),
    Column(
        "bound",
        STRING,
        "",
        "what bounds it: " + ", ".join(Bound) + "; null where that is known for less than half",
        True,
        codes=Bound,
        importance=4,
    ),
    Column("role", STRING, "", "role of more than half of its total_ns", True, importance=10),
    Column("flops", INT64, "", "sum of the FLOPs that are known", True, importance=DATA_ONLY),
    Column("stage", STRING, "", "stage that it lies in", True, importance=DATA_ONLY),
    Column("submodule", STRING, "", "submodule that it lies in", True, importance=DATA_ONLY),
    Column(
        "path",
        STRING,
        "",
        "path of its module in the submodule: `*` stands for any number, `[0-22]` for one of these",
        True,
        importance=DATA_ONLY,
    ),
)
