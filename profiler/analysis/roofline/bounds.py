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
  than they ran: `wait_ns > total_ns`. Nothing on the device makes that faster. Where nothing of the
  host was recorded nobody knows what the device waited for, and no row is host-bound.
- none (null) where of more than half of its time the roofline time is not known.
- else compute-bound, memory-bound or launch-bound: the term that has most of the roofline
  time of its commands.

Commands of categories host, sync, dma and collective are left out: links have rooflines of their
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
from profiler.analysis.roofline.terms import TERMS, roofline_terms
from profiler.analysis.work.of_kinds import UNRATED, KindWork
from profiler.run.columns import Column, schema

__all__ = [
    "as_declared",
    "kind_roofline",
    "operations_of",
    "operator_roofline",
    "role_roofline",
]

_COMPUTED = frozenset(("flops", "bytes", "roofline_ns", "beyond_ns", "saved_bytes", "saved_ns"))
_LARGEST = 1 << 62  # fits an int64 after it was a float


def kind_roofline(
    kinds: Kinds,
    work: KindWork,
    commands: CommandArrays,
    profiles: Mapping[str, DeviceProfile],
    *,
    host_seen: bool = True,
) -> pl.DataFrame:
    """One row a kind and device: times in ns summed over its commands, float64 for those that
    are computed.

    Columns: kind, device, commands, total_ns, wait_ns, blamed_ns (of wait_ns what the host is to
    blame for: nothing where it was not recorded, `host_seen`), flops, bytes, compute_ns, memory_ns,
    launch_ns, roofline_ns (null: not known), bound (index in Bound of the longest term), refuted
    (they were faster than the longest term, which is not their roofline then).
    """
    cells = _cells(kinds, work, commands, host_seen=host_seen)
    return _with_terms(cells, profiles).drop("submodule", "operation")


def operations_of(kinds: Kinds, work: KindWork, commands: CommandArrays) -> pl.DataFrame:
    """What operations computed, one row an operation on a device: device, family, dtype, flops,
    total_ns, sums over its executions."""
    return (
        _cells(kinds, work, commands)
        .group_by("operation", "device", maintain_order=True)
        .agg(
            pl.col("family", "dtype").first(),
            flops=(pl.col("flops") * pl.col("part")).sum(),
            total_ns=pl.col("total_ns").sum(),
        )
    )


def _cells(
    kinds: Kinds, work: KindWork, commands: CommandArrays, *, host_seen: bool = True
) -> pl.DataFrame:
    """The times of each kind on each device, with its work and its operation."""
    kept = np.isin(kinds.table["category"], UNRATED, invert=True)
    times = kind_times(kinds, commands, kept)
    names = [*commands.devices, None]
    frame = pl.DataFrame(
        {
            "kind": times.kind.astype(np.int32),
            "device": pl.Series([names[i] for i in times.device.tolist()], dtype=pl.String),
            "commands": times.commands,
            "total_ns": times.total_ns,
            "wait_ns": times.wait_ns,
            "blamed_ns": times.wait_ns if host_seen else np.zeros_like(times.wait_ns),
            "part": times.commands / kinds.table["commands"].to_numpy()[times.kind],
        }
    )
    return frame.join(work.table, on="kind", maintain_order="left").join(
        _operations(kinds), on="kind", maintain_order="left"
    )


def _operations(kinds: Kinds) -> pl.DataFrame:
    """The submodule of each kind, and the number of its `operation`: commands that an operator
    launched together (` part 2/5`) are one."""
    place = ["submodule", "layer", "op_type"]
    whole = pl.col("shapes").str.replace(r" part \d+/\d+$", "")
    table = kinds.table.select("kind", *place, "shapes", whole=whole)
    first = pl.col("kind").first().over(*place, "whole")
    return table.select(
        "kind",
        "submodule",
        operation=pl.when(pl.col("shapes").ne_missing(pl.col("whole")))
        .then(first)
        .otherwise(pl.col("kind")),
    )


def _with_terms(frame: pl.DataFrame, profiles: Mapping[str, DeviceProfile]) -> pl.DataFrame:
    """Add FLOPs, bytes and the terms of the roofline of each row's commands together.

    How an operation's work is shared among the commands that it launched is not known: its roofline
    is that of all of them, and they have of it as of the time that they took.
    """
    part = pl.col("part")
    rows = frame.with_columns(
        flops=pl.col("flops") * part,
        bytes=(pl.col("bytes_read") + pl.col("bytes_written")) * part,
    )
    keys = ["operation", "device"]
    sums = {name: pl.col(name).sum() for name in ("total_ns", "commands")}
    works = {
        name: pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum())
        for name in ("flops", "bytes")
    }
    wholes = rows.group_by(keys, maintain_order=True).agg(
        pl.col("submodule", "dtype").first(),
        executions=pl.col("commands").max(),
        **sums,
        **works,
    )
    found = roofline_terms(wholes, profiles)
    added = found.select(
        *keys, *TERMS, "roofline_ns", "bound", "refuted", whole_ns="total_ns", all="commands"
    )
    of_whole = (
        pl.when(pl.col("whole_ns") > 0)
        .then(pl.col("total_ns") / pl.col("whole_ns"))
        .otherwise(pl.col("commands") / pl.col("all"))
    )
    return (
        rows.join(added, on=keys, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(pl.col(*TERMS, "roofline_ns") * of_whole)
        .drop("whole_ns", "all")
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
        f"bound_{i}": attained.filter(pl.col("bound") == i).sum() for i in range(len(TERMS))
    }
    sums = frame.group_by(keys).agg(
        pl.col("commands", "total_ns", "wait_ns", "blamed_ns").sum(),
        flops=_sum_or_null("flops"),
        bytes=_sum_or_null("bytes"),
        flops_ns=pl.col("total_ns").filter(pl.col("flops").is_not_null()).sum(),
        bytes_ns=pl.col("total_ns").filter(pl.col("bytes").is_not_null()).sum(),
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
        bound=pl.when(pl.col("blamed_ns") > pl.col("total_ns"))
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
