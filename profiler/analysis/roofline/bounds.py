"""How fast could it be: each operator and role against the roofline of the device that ran it.

For a command with F FLOPs of a type, B bytes, on a device with peak P of that type, bandwidth W
and least time between commands L:

    compute = F / P     memory = B / W     roofline = max(compute, memory, L)

Bytes and bandwidth must be known, and so must the type's peak where there are FLOPs: else the term
that is known need not be the longer one, and there is no roofline time. Where no formula gives
FLOPs (a fused elementwise or reduction kernel; products, convolutions and attention all have one)
the memory term stands alone. A launch cost that is not known is left out.

W is the memory's, but that of the last-level cache where all that the submodule's calls touch is
known and fits into it, and of commands that were faster than memory: what they read was in the
cache. Of these what does not fit into the cache comes from memory all the same.

The roofline is a bound. Commands that were faster still (a cache whose rate is not known, a profile
that is too low, more FLOPs or bytes in the formula than were needed) show that the roofline is not
theirs: it is not known, and `refuted_ns` counts their time. `of_roofline` is roofline / total over
what is known, where that is half of its time: 1 is as fast as the device can be. `beyond_ns` is
total - roofline over what is known: what better kernels could save at most.

Verdict, for a row (an operator or a role on one device):

- host-bound: the device stood idle directly before its commands, within their calls, for longer
  than they ran: `wait_ns > total_ns`. Nothing on the device makes that faster.
- none (null) where of more than half of its time the roofline time is not known.
- else compute-bound, memory-bound or launch-bound: the term that has most of the roofline
  time of its commands.

Commands of categories host, sync and dma are left out: links to the host have rooflines of their
own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.kind_times import kind_times
from profiler.analysis.roofline.codes import Bound
from profiler.analysis.roofline.columns import ROOFLINE, ROOFLINE_ROLES
from profiler.analysis.roofline.device_profile import DeviceProfile
from profiler.analysis.work.of_kinds import KindWork
from profiler.table.columns import Column, schema

__all__ = [
    "as_declared",
    "kind_roofline",
    "operator_roofline",
    "role_roofline",
]

_LEFT_OUT = ("host", "sync", "dma")
_COMPUTED = frozenset(("flops", "bytes", "roofline_ns", "beyond_ns", "saved_bytes", "saved_ns"))
_LARGEST = 1 << 62  # fits an int64 after it was a float
_TERMS = ("compute_ns", "memory_ns", "launch_ns")


def kind_roofline(
    kinds: Kinds,
    work: KindWork,
    commands: CommandArrays,
    profiles: Mapping[str, DeviceProfile],
) -> pl.DataFrame:
    """One row a kind and device: times in ns summed over its commands, float64 for those that
    are computed.

    Columns: kind, device, commands, total_ns, wait_ns, flops, bytes, compute_ns, memory_ns,
    launch_ns, roofline_ns (null: not known), bound (index in Bound of the longest term), refuted
    (they were faster than the longest term, which is not their roofline then).
    """
    kept = np.isin(kinds.table["category"], _LEFT_OUT, invert=True)
    times = kind_times(kinds, commands, kept)
    names = [*commands.devices, None]
    frame = pl.DataFrame(
        {
            "kind": times.kind.astype(np.int32),
            "device": pl.Series([names[i] for i in times.device.tolist()], dtype=pl.String),
            "commands": times.commands,
            "total_ns": times.total_ns,
            "wait_ns": times.wait_ns,
            "part": times.commands / kinds.table["commands"].to_numpy()[times.kind],
        }
    )
    submodules = kinds.table.select("kind", "submodule")
    joined = frame.join(work.table, on="kind", maintain_order="left").join(
        submodules, on="kind", maintain_order="left"
    )
    return _with_terms(joined, profiles)


def _with_terms(frame: pl.DataFrame, profiles: Mapping[str, DeviceProfile]) -> pl.DataFrame:
    """Add FLOPs, bytes and the terms of the roofline of each row's commands together."""
    part = pl.col("part")
    terms = (
        frame.hstack(_rates(frame, profiles))
        .with_columns(
            flops=pl.col("flops") * part,
            bytes=(pl.col("bytes_read") + pl.col("bytes_written")) * part,
        )
        .with_columns(
            compute_ns=pl.when(pl.col("flops") == 0)
            .then(0.0)
            .otherwise(pl.col("flops") / pl.col("peak") * 1e9),
            memory_ns=_memory_ns(),
            launch_ns=pl.col("launch") * pl.col("commands"),
        )
    )
    computes = pl.col("flops").fill_null(0) > 0
    longest = pl.max_horizontal(*_TERMS)
    known = pl.col("memory_ns").is_not_null() & (pl.col("compute_ns").is_not_null() | ~computes)
    known &= longest > 0
    refuted = known & (longest > pl.col("total_ns"))
    bound = (
        pl.when(pl.col("launch_ns") == longest)
        .then(2)
        .when(pl.col("memory_ns") == longest)
        .then(1)
        .otherwise(0)
    )
    return terms.with_columns(
        roofline_ns=pl.when(known & ~refuted).then(longest),
        bound=pl.when(known & ~refuted).then(bound),
        refuted=refuted.fill_null(value=False) | _evidently_cached(),
    ).drop("submodule")


def _rates(frame: pl.DataFrame, profiles: Mapping[str, DeviceProfile]) -> pl.DataFrame:
    """The rates of each row's device, null where not known."""
    pairs = list(zip(frame["device"], frame["dtype"], strict=True))
    found = [profiles.get(device) if device else None for device, _ in pairs]
    rates = {
        "peak": [p.peak(d) if p and d else None for p, (_, d) in zip(found, pairs, strict=True)],
        "bandwidth": [p.memory_bandwidth if p else None for p in found],
        "launch": [p.launch_ns if p else None for p in found],
        "cache_bytes": [p.cache_bytes if p else None for p in found],
        "cache_bandwidth": [p.cache_bandwidth if p else None for p in found],
    }
    return pl.DataFrame(rates, schema=dict.fromkeys(rates, pl.Float64()))


def _memory_ns() -> pl.Expr:
    """The memory term: by the cache's rate where the submodule's data fits or the commands were
    faster than memory, which is null where that is not known."""
    nbytes, commands = pl.col("bytes"), pl.col("commands")
    from_memory = nbytes / pl.col("bandwidth") * 1e9
    beyond_cache = nbytes - pl.col("cache_bytes") * commands
    cached = pl.when(
        pl.col("cache_bandwidth").is_not_null() & pl.col("bandwidth").is_not_null()
    ).then(
        pl.max_horizontal(
            nbytes / pl.col("cache_bandwidth") * 1e9,
            beyond_cache / pl.col("bandwidth") * 1e9,
        )
    )
    each = nbytes / commands
    places = ["submodule", "device"]
    touched = pl.when(each.is_not_null().all().over(places)).then(each.sum().over(places))
    fits = (touched <= pl.col("cache_bytes")).fill_null(value=False)
    return (
        pl.when(nbytes == 0)
        .then(0.0)
        .when(fits | (from_memory > pl.col("total_ns")))
        .then(cached)
        .otherwise(from_memory)
    )


def _evidently_cached() -> pl.Expr:
    """Whether commands were faster than memory, and the rate of the cache is not known."""
    from_memory = pl.col("bytes") / pl.col("bandwidth") * 1e9
    return (pl.col("memory_ns").is_null() & (from_memory > pl.col("total_ns"))).fill_null(
        value=False
    )


def operator_roofline(roofline: pl.DataFrame, kinds: Kinds) -> pl.DataFrame:
    """One row an operator (submodule and layer) on one device, longest total time first."""
    keyed = roofline.join(kinds.table.select("kind", "submodule", "layer", "op_type"), on="kind")
    table = _summed(keyed, ["submodule", "layer", "device"])
    types = (
        keyed.drop_nulls("op_type")
        .group_by("submodule", "layer", "device", "op_type")
        .agg(pl.col("total_ns").sum())
        .sort(["total_ns", "op_type"], descending=[True, False])
        .group_by("submodule", "layer", "device", maintain_order=True)
        .agg(op_types=pl.col("op_type").str.join(", "))
    )
    joined = table.join(
        types, on=["submodule", "layer", "device"], how="left", nulls_equal=True
    ).with_columns(pl.col("op_types").fill_null(""))
    return _declared(joined, ROOFLINE, ["submodule", "layer", "device"])


def role_roofline(roofline: pl.DataFrame, kinds: Kinds, roles: pl.Series | None) -> pl.DataFrame:
    """One row a role of a submodule on one device; none without `roles`, one a kind."""
    if roles is None:
        return pl.DataFrame(schema=schema(ROOFLINE_ROLES))
    role = pl.DataFrame(
        {
            "kind": kinds.table["kind"],
            "submodule": kinds.table["submodule"],
            "role": roles.cast(pl.String).fill_null("other"),
        }
    )
    keyed = roofline.join(role, on="kind")
    table = _summed(keyed, ["submodule", "role", "device"])
    return _declared(table, ROOFLINE_ROLES, ["submodule", "role", "device"])


def _declared(table: pl.DataFrame, columns: tuple[Column, ...], keys: list[str]) -> pl.DataFrame:
    by = ["total_ns", *keys]
    ordered = table.sort(by, descending=[True, *(False for _ in keys)])
    return ordered.select(as_declared(name, dtype) for name, dtype in schema(columns).items())


def as_declared(name: str, dtype: pl.DataType) -> pl.Expr:
    """A column in its declared type; what was computed as a float and is an integer, rounded."""
    column = pl.col(name)
    return column.round().clip(0, _LARGEST).cast(dtype) if name in _COMPUTED else column.cast(dtype)


def _summed(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Rows of `kind_roofline` added up by `keys`, with what follows from the sums."""
    attained = pl.col("roofline_ns")
    known = attained.is_not_null()
    whole = pl.col("flops").is_not_null() & pl.col("bytes").is_not_null()
    by_bound = {
        f"bound_{i}": attained.filter(pl.col("bound") == i).sum() for i in range(len(_TERMS))
    }
    sums = frame.group_by(keys).agg(
        pl.col("commands", "total_ns", "wait_ns").sum(),
        flops=_sum_or_null("flops"),
        bytes=_sum_or_null("bytes"),
        unknown_commands=pl.col("commands").filter(~whole).sum(),
        unknown_ns=pl.col("total_ns").filter(~whole).sum(),
        roofline_ns=_sum_or_null("roofline_ns"),
        known_ns=pl.col("total_ns").filter(known).sum(),
        refuted_ns=pl.col("total_ns").filter(pl.col("refuted")).sum(),
        both_flops=pl.col("flops").filter(pl.col("bytes").is_not_null()).sum(),
        both_bytes=pl.col("bytes").filter(pl.col("flops").is_not_null()).sum(),
        **by_bound,
    )
    most = pl.max_horizontal(*by_bound)
    too_little = 2 * pl.col("known_ns") < pl.col("total_ns")
    return sums.with_columns(
        intensity=pl.when(pl.col("both_bytes") > 0).then(
            pl.col("both_flops") / pl.col("both_bytes")
        ),
        of_roofline=pl.when((pl.col("known_ns") > 0) & ~too_little).then(
            pl.col("roofline_ns") / pl.col("known_ns")
        ),
        beyond_ns=pl.col("known_ns") - pl.col("roofline_ns").round(),
        bound=pl.when(pl.col("wait_ns") > pl.col("total_ns"))
        .then(pl.lit(Bound.HOST.value))
        .when(pl.col("roofline_ns").is_null() | (most <= 0) | too_little)
        .then(None)
        .when(pl.col("bound_0") == most)
        .then(pl.lit(Bound.COMPUTE.value))
        .when(pl.col("bound_1") == most)
        .then(pl.lit(Bound.MEMORY.value))
        .otherwise(pl.lit(Bound.LAUNCH.value)),
    )


def _sum_or_null(name: str) -> pl.Expr:
    """The sum of what is known, null where nothing is."""
    column = pl.col(name)
    return pl.when(column.is_not_null().any()).then(column.sum())
