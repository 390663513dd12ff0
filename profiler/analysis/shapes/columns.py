"""The columns of operators by shape."""

from __future__ import annotations

from dataclasses import replace

from profiler.analysis.command_columns import SUBMODULE
from profiler.analysis.roofline.codes import Bound
from profiler.analysis.work.registry import Family
from profiler.run.columns import DATA_ONLY, FLOAT64, INT64, STRING, Column

__all__ = ["SHAPES"]


SHAPES: tuple[Column, ...] = (
    Column(
        "label",
        STRING,
        "",
        "operation, its dims and type: M×K×N of products, B H S D of attention",
        label="shape",
        kind="layer",
    ),
    replace(SUBMODULE, importance=3, combine=None),
    Column("device", STRING, "", "device that ran it", True, importance=7),
    Column(
        "kernel",
        STRING,
        "",
        "full name of its kernel; of several, the one with the longest time, and the number of "
        "the others",
        True,
        importance=8,
    ),
    Column("layers", INT64, "", "layers that have it, where known", True, importance=4),
    Column(
        "executions",
        INT64,
        "",
        "how often it ran; an execution of several kernels counts once",
        label="executed",
        importance=1,
    ),
    Column("total_ns", INT64, "ns", "sum of the durations of its commands"),
    Column(
        "share",
        FLOAT64,
        "ratio",
        "total_ns / total_ns of all work of its device in calls, except waits; where parts were "
        "recorded one by one, only of its own parts",
        True,
        kind="share",
    ),
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
        "rate / the device's peak for its data type; null above the peak",
        True,
        label="of peak FLOP/s",
        kind="share",
        importance=3,
    ),
    Column(
        "gigabytes_per_s",
        FLOAT64,
        "GB/s",
        "bytes / time, of commands whose bytes are known",
        True,
        label="memory",
        importance=5,
    ),
    Column(
        "bandwidth_of_peak",
        FLOAT64,
        "ratio",
        "bytes per second / memory bandwidth of the device; null above that bandwidth",
        True,
        label="of bandwidth",
        kind="share",
        importance=3,
    ),
    Column(
        "above_roofline_ns",
        INT64,
        "ns",
        "total_ns - roofline time, where known: most time that could be saved",
        True,
        label="above roofline",
        importance=2,
    ),
    Column("bound", STRING, "", "what bounds it: " + ", ".join(Bound), True, codes=Bound),
    Column("op_type", STRING, "", "type of the operation, else the kernel's name", importance=16),
    Column("family", STRING, "", "kind of work: " + ", ".join(Family), True, importance=DATA_ONLY),
    Column(
        "dtype", STRING, "", "type of the arithmetic, else of the first input", True, "", "", 17
    ),
    Column("shapes", STRING, "", "shapes and types as recorded", True, importance=18),
    Column("kernels", INT64, "", "different kernels that it ran", importance=15),
    Column("commands", INT64, "", "its commands: kernels of devices, nodes", importance=16),
    Column("flops", INT64, "", "sum of the FLOPs that are known", True, importance=DATA_ONLY),
    Column("bytes", INT64, "bytes", "read and written, where known", True, importance=DATA_ONLY),
)
