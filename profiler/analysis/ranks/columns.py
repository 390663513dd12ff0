"""The columns of ranks, of their collectives and of what they wait for each other."""

from __future__ import annotations

import polars as pl

from profiler.table.columns import Column

__all__ = ["COLLECTIVES", "COLLECTIVE_ARRIVALS", "RANKS", "RANK_IMBALANCE"]

_TEXT = pl.String()
_INT32, _INT64, _REAL = pl.Int32(), pl.Int64(), pl.Float64()
_LATE = "where begins are closer together than the accuracy of the clocks"
_BYTES = (
    "bytes of the message: what a rank receives in an all_gather or scatter, else what it sends; "
    "the largest of several ranks"
)

RANKS: tuple[Column, ...] = (
    Column("rank", _INT32, "", "process of the job, from 0", kind="step"),
    Column("devices", _TEXT, "", "devices on which it worked, joined with commas", importance=2),
    Column("calls", _INT64, "", "calls of its submodules", importance=8),
    Column(
        "span_ns",
        _INT64,
        "ns",
        "from the begin of its first device work to the end of the last",
        importance=6,
    ),
    Column(
        "busy_ns",
        _INT64,
        "ns",
        "time in which something ran on its devices, summed over the devices",
        importance=3,
    ),
    Column(
        "collective_ns",
        _INT64,
        "ns",
        "union of its collectives, including the wait for the last rank",
    ),
    Column(
        "exposed_ns", _INT64, "ns", "part of collective_ns in which nothing else ran on that device"
    ),
    Column(
        "exposed_share",
        _REAL,
        "ratio",
        "exposed_ns / span_ns; null where nothing ran",
        True,
        label="exposed of its span",
        importance=5,
        kind="share",
    ),
    Column(
        "waited_ns",
        _INT64,
        "ns",
        "time in its collectives before the last rank began; null where no other rank was recorded",
        True,
        label="waited for others",
    ),
    Column(
        "compared",
        _INT64,
        "",
        f"its collectives with a known last rank: there is none {_LATE}",
        importance=7,
    ),
    Column("last", _INT64, "", "those of them in which it was the last", importance=7),
    Column("last_share", _REAL, "ratio", "last / compared", True, label="was last", kind="share"),
    Column(
        "late_ns",
        _INT64,
        "ns",
        "in these, time from the previous rank's begin to its own: what the others would wait "
        "less if it were on time",
        label="late by",
    ),
    Column(
        "offset_ns",
        _INT64,
        "ns",
        "offset that was added to its times to get the job's clock",
        True,
        importance=4,
    ),
    Column(
        "drift_ppm",
        _REAL,
        "",
        "added to offset_ns per second of its recording, in µs",
        True,
        importance=8,
    ),
    Column(
        "residual_ns",
        _INT64,
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
    Column("kind", _TEXT, "", "what it does: all_reduce, all_gather, send_recv, …"),
    Column("group", _TEXT, "", "process group, where known", True, importance=6),
    Column(
        "size", _INT64, "", "ranks in that group, where known", True, label="ranks", importance=2
    ),
    Column("message_bytes", _INT64, "bytes", f"{_BYTES}; null where unknown", True),
    Column("commands", _INT64, "", "how often a rank executed it, over all ranks", importance=1),
    Column(
        "total_ns", _INT64, "ns", "sum of their durations, including the wait for the last rank"
    ),
    Column("exposed_ns", _INT64, "ns", "part of total_ns in which nothing else ran on that device"),
    Column(
        "waited_ns",
        _INT64,
        "ns",
        "part of total_ns before the last rank began; null where no other rank was recorded",
        True,
        label="waited for others",
        importance=3,
    ),
    Column("median_ns", _INT64, "ns", "median of its commands", importance=4),
    Column(
        "transfer_ns",
        _INT64,
        "ns",
        "median from the last recorded begin to the end; null where no other rank was recorded",
        True,
        importance=1,
    ),
    Column(
        "bus_rate",
        _REAL,
        "GB/s",
        "bytes over the slowest link (bus factor of nccl-tests) / transfer_ns, or / median_ns "
        "where that is null: a lower bound of the achieved rate; null where bytes or group are "
        "unknown",
        True,
        label="bus at least",
    ),
)

COLLECTIVE_ARRIVALS: tuple[Column, ...] = (
    Column("begin_ns", _INT64, "ns", "begin on the first rank, on the run's clock", kind="instant"),
    Column("kind", _TEXT, "", "what it does"),
    Column("group", _TEXT, "", "process group, where known", True, importance=5),
    Column("message_bytes", _INT64, "bytes", f"{_BYTES}; null where unknown", True, importance=2),
    Column("ranks", _INT64, "", "ranks that recorded it"),
    Column("last_rank", _INT32, "", f"rank that began last; null {_LATE}", True, kind="step"),
    Column("late_ns", _INT64, "ns", "from the second-latest begin to the latest"),
    Column("spread_ns", _INT64, "ns", "from the first begin to the last: the longest wait"),
    Column("waited_ns", _INT64, "ns", "time that all ranks together waited for the last one"),
    Column("transfer_ns", _INT64, "ns", "from the last begin to the last end"),
    Column(
        "ends_apart_ns",
        _INT64,
        "ns",
        "from the first end to the last; the ends are really one moment, so this is the error of "
        "the clocks",
        importance=4,
    ),
)

RANK_IMBALANCE: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule of the calls; null for work outside of calls", True),
    Column("module", _TEXT, "", "path of the module, where known", True),
    Column("ranks", _INT64, "", "ranks that executed it"),
    Column(
        "mean_ns",
        _INT64,
        "ns",
        "mean over these ranks of the time of its commands, without collectives",
    ),
    Column("max_ns", _INT64, "ns", "largest time of a rank"),
    Column("slowest_rank", _INT32, "", "the rank with that time", kind="step"),
    Column("imbalance", _REAL, "ratio", "max_ns / mean_ns: 1 is even", kind="factor"),
    Column("above_mean_ns", _INT64, "ns", "max_ns - mean_ns"),
)
