"""The columns of ranks, of their collectives and of what they wait for each other."""

from __future__ import annotations

import polars as pl

from profiler.run.columns import FLOAT64, INT32, INT64, STRING, Column

__all__ = ["COLLECTIVES", "COLLECTIVE_ARRIVALS", "RANKS", "RANK_IMBALANCE"]

_LATE = "where begins are closer together than the accuracy of the clocks"
_BYTES = (
    "bytes of the message: what a rank receives in an all_gather or scatter, else what it sends; "
    "the largest of several ranks"
)

RANKS: tuple[Column, ...] = (
    Column("rank", INT32, "", "process of the job, from 0", kind="step"),
    Column("devices", STRING, "", "devices on which it worked, joined with commas", importance=2),
    Column("calls", INT64, "", "calls of its submodules", importance=8),
    Column(
        "span_ns",
        INT64,
        "ns",
        "from the begin of its first device work to the end of the last",
        importance=6,
    ),
    Column(
        "busy_ns",
        INT64,
        "ns",
        "time in which something ran on its devices, summed over the devices",
        importance=3,
    ),
    Column(
        "collective_ns",
        INT64,
        "ns",
        "union of its collectives, including the wait for the last rank",
    ),
    Column(
        "exposed_ns", INT64, "ns", "part of collective_ns in which nothing else ran on that device"
    ),
    Column(
        "exposed_share",
        FLOAT64,
        "ratio",
        "exposed_ns / span_ns; null where nothing ran",
        True,
        label="exposed of its span",
        importance=5,
        kind="share",
    ),
    Column(
        "waited_ns",
        INT64,
        "ns",
        "time in its collectives before the last rank began; null where no other rank was recorded",
        True,
        label="waited for others",
    ),
    Column(
        "compared",
        INT64,
        "",
        f"its collectives with a known last rank: there is none {_LATE}",
        importance=7,
    ),
    Column("last", INT64, "", "those of them in which it was the last", importance=7),
    Column("last_share", FLOAT64, "ratio", "last / compared", True, label="was last", kind="share"),
    Column(
        "late_ns",
        INT64,
        "ns",
        "in these, time from the previous rank's begin to its own: what the others would wait "
        "less if it were on time",
        label="late by",
    ),
    Column(
        "offset_ns",
        INT64,
        "ns",
        "offset that was added to its times to get the job's clock",
        True,
        importance=4,
    ),
    Column(
        "drift_ppm",
        FLOAT64,
        "",
        "added to offset_ns per second of its recording, in µs",
        True,
        importance=8,
    ),
    Column(
        "residual_ns",
        INT64,
        "ns",
        "median distance of the ends of its collectives after that",
        True,
        label="clock within",
        importance=4,
    ),
    Column(
        "aligned",
        pl.Boolean(),
        "",
        "whether collectives relate its clock to others; null for the job's own clock",
        True,
        importance=9,
    ),
)

COLLECTIVES: tuple[Column, ...] = (
    Column("kind", STRING, "", "what it does: all_reduce, all_gather, send_recv, …"),
    Column("group", STRING, "", "process group, where known", True, importance=6),
    Column(
        "size", INT64, "", "ranks in that group, where known", True, label="ranks", importance=2
    ),
    Column("message_bytes", INT64, "bytes", f"{_BYTES}; null where unknown", True),
    Column("commands", INT64, "", "how often a rank executed it, over all ranks", importance=1),
    Column("total_ns", INT64, "ns", "sum of their durations, including the wait for the last rank"),
    Column("exposed_ns", INT64, "ns", "part of total_ns in which nothing else ran on that device"),
    Column(
        "waited_ns",
        INT64,
        "ns",
        "part of total_ns before the last rank began; null where no other rank was recorded",
        True,
        label="waited for others",
        importance=3,
    ),
    Column("median_ns", INT64, "ns", "median of its commands", importance=4),
    Column(
        "transfer_ns",
        INT64,
        "ns",
        "median from the last recorded begin to the end; null where no other rank was recorded",
        True,
        importance=1,
    ),
    Column(
        "bus_rate",
        FLOAT64,
        "GB/s",
        "bytes over the slowest link (bus factor of nccl-tests) / transfer_ns, or / median_ns "
        "where that is null: a lower bound of the achieved rate; null where bytes or group are "
        "unknown",
        True,
        label="bus at least",
    ),
)

COLLECTIVE_ARRIVALS: tuple[Column, ...] = (
    Column("begin_ns", INT64, "ns", "begin on the first rank, on the run's clock", kind="instant"),
    Column("kind", STRING, "", "what it does"),
    Column("group", STRING, "", "process group, where known", True, importance=5),
    Column("message_bytes", INT64, "bytes", f"{_BYTES}; null where unknown", True, importance=2),
    Column("ranks", INT64, "", "ranks that recorded it"),
    Column("last_rank", INT32, "", f"rank that began last; null {_LATE}", True, kind="step"),
    Column("late_ns", INT64, "ns", "from the second-latest begin to the latest"),
    Column("spread_ns", INT64, "ns", "from the first begin to the last: the longest wait"),
    Column("waited_ns", INT64, "ns", "time that all ranks together waited for the last one"),
    Column("transfer_ns", INT64, "ns", "from the last begin to the last end"),
    Column(
        "ends_apart_ns",
        INT64,
        "ns",
        "from the first end to the last; the ends are really one moment, so this is the error of "
        "the clocks",
        importance=4,
    ),
)

RANK_IMBALANCE: tuple[Column, ...] = (
    Column("submodule", STRING, "", "submodule of the calls; null for work outside of calls", True),
    Column("module", STRING, "", "path of the module, where known", True),
    Column("ranks", INT64, "", "ranks that executed it"),
    Column(
        "mean_ns",
        INT64,
        "ns",
        "mean over these ranks of the time of its commands, without collectives",
    ),
    Column("max_ns", INT64, "ns", "largest time of a rank"),
    Column("slowest_rank", INT32, "", "the rank with that time", kind="step"),
    Column("imbalance", FLOAT64, "ratio", "max_ns / mean_ns: 1 is even", kind="factor"),
    Column("above_mean_ns", INT64, "ns", "max_ns - mean_ns"),
)
