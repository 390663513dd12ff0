"""Roofline bounds of operators and roles: compute-, memory-, launch- or host-bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from profiler.analysis.commands import (
    LAYER,
    OP_TYPES,
    SUBMODULE,
    CommandArrays,
    Kinds,
    host_unseen,
    is_accelerator,
    kind_times,
)
from profiler.analysis.context import Inputs, shared
from profiler.analysis.device_profiles import DeviceProfile, profiles_of
from profiler.analysis.flop_shapes import Family
from profiler.analysis.flops import UNRATED, KindWork, kind_work
from profiler.analysis.question import Table
from profiler.analysis.roles import kind_roles, texts_by_time
from profiler.run.columns import (
    BYTES,
    DATA_ONLY,
    FLOAT64,
    INT64,
    NS,
    SHARE,
    STRING,
    Column,
    col,
    schema,
)

# --- What a run's own products reached, if that is more than was measured.
#
# How fast a device multiplies depends on the data (of random numbers it draws more power than of
# equal ones) and on what it did before: between kernels that wait for memory products run at higher
# clocks than one after another. A profile that was measured with products alone is therefore
# exceeded by some, and its peak is then what the run shows that the device can do: never more than
# is published, for a rate beyond that is a mistake of a formula.


_MORE = 1 + 1e-9  # so that rounding makes nothing faster than its peak
_LEAST_NS = 1_000_000  # of a shape in all: single kernels are timed too coarsely


def with_attained(
    profiles: Mapping[str, DeviceProfile],
    published: Mapping[str, DeviceProfile],
    operations: pl.DataFrame,
) -> dict[str, DeviceProfile]:
    """Return `profiles` in which peaks of measured ones are raised to what products of the run
    reached, at most to those of `published`. `operations` has one row per operation and device
    (device, family, dtype, flops, total_ns; sums over its executions)."""
    fastest = (
        operations.filter(family=Family.MATMUL.value)
        .filter(pl.col("total_ns") >= _LEAST_NS)
        .group_by("device", "dtype")
        .agg(rate=(pl.col("flops") / pl.col("total_ns")).max() * 1e9)
        .drop_nulls()
        .sort("device", "dtype")
    )
    found = dict(profiles)
    for device, dtype, rate in fastest.iter_rows():
        profile, limit = found.get(device), published.get(device)
        own = profile.peak_flops.get(dtype) if profile is not None else None
        most = limit.peak_flops.get(dtype) if limit is not None else None
        if profile is None or not profile.measured or own is None or most is None:
            continue
        if own < rate <= most:
            peaks = {**profile.peak_flops, dtype: min(rate * _MORE, most)}
            attained = (*profile.attained, dtype)
            found[device] = dataclasses.replace(profile, peak_flops=peaks, attained=attained)
    return found


SHORT_NS, NOTHING = 10_000, 0.01  # of a command, and of that: no term is what it takes


class Bound(StrEnum):
    """What the time of commands is bound by."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LAUNCH = "launch"
    OVERHEAD = "overhead"  # what a CPU's runtime takes for each command: no host launches these
    HOST = "host"


# --- The columns of operators against the roofline of their devices.


_WORK: tuple[Column, ...] = (
    col("device", STRING, "device that ran it", True, importance=5, key=True),
    col(
        "commands",
        INT64,
        "its commands there, except host, sync, dma and collective",
        importance=15,
    ),
    col("total_ns", NS, "sum of their durations"),
    col(
        "wait_ns",
        NS,
        "idle time of the device directly before them, within calls",
        label="waited",
        importance=2,
    ),
    col(
        "flops",
        INT64,
        "floating-point operations of those that are known",
        True,
        importance=DATA_ONLY,
    ),
    col(
        "bytes", BYTES, "bytes read and written of those that are known", True, importance=DATA_ONLY
    ),
    col(
        "flops_ns", NS, "sum of the durations of those whose FLOPs are known", importance=DATA_ONLY
    ),
    col(
        "bytes_ns", NS, "sum of the durations of those whose bytes are known", importance=DATA_ONLY
    ),
    Column(
        "flops_per_byte",
        FLOAT64,
        "FLOPs/byte",
        "FLOPs / bytes of the commands for which both are known",
        True,
        label="FLOPs/byte",
        importance=4,
    ),
    col(
        "unknown_commands",
        INT64,
        "commands whose FLOPs or bytes are not known",
        importance=DATA_ONLY,
    ),
    col("unknown_ns", NS, "sum of the durations of these", importance=15, hide_if_zero=True),
    col(
        "not_explained_ns",
        NS,
        "sum of the durations of commands that were faster than their roofline, which is then "
        "taken as unknown",
        importance=DATA_ONLY,
    ),
    col("roofline_ns", NS, "shortest time by the device's profile, of the known work", True),
    col(
        "excess_ns",
        NS,
        "time above the roofline: total_ns - roofline_ns, of the known work",
        True,
        label="above roofline",
        importance=2,
    ),
    col(
        "of_roofline",
        SHARE,
        "roofline_ns / total_ns, of the known work, if that is half or more",
        True,
    ),
    col("bound", STRING, "what bounds it: " + ", ".join(Bound), True, codes=Bound),
)

ROOFLINE: tuple[Column, ...] = (
    replace(SUBMODULE, importance=1),
    LAYER,
    replace(OP_TYPES, importance=15),
    *_WORK,
)

ROOFLINE_ROLES: tuple[Column, ...] = (
    replace(SUBMODULE, importance=1),
    col("role", STRING, "what the commands are for in a diffusion model", key=True),
    *_WORK,
)


# --- The terms of the roofline: how long computing, moving data and launching take at least.
#
# `kind_roofline` has the rules.


TERMS = ("compute_ns", "memory_ns", "launch_ns")


def roofline_terms(wholes: pl.DataFrame, profiles: Mapping[str, DeviceProfile]) -> pl.DataFrame:
    """Return `wholes` with the terms of the roofline, `roofline_ns`, the longest term, its index as
    `bound`, and `refuted`: whether the operation was faster. `wholes` has one row per operation and
    device (columns device, submodule, dtype, commands, executions, total_ns, flops, bytes: sums
    over its executions)."""
    terms = wholes.hstack(_rates(wholes, profiles)).with_columns(
        compute_ns=pl.when(pl.col("flops") == 0)
        .then(0.0)
        .otherwise(pl.col("flops") / pl.col("peak") * 1e9),
        memory_ns=_memory_ns(),
        launch_ns=pl.col("launch") * pl.col("commands"),
    )
    computes = pl.col("flops").fill_null(0) > 0
    longest = pl.max_horizontal(*TERMS)
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
    cached = pl.col("memory_ns").is_null() & (_from_memory() > pl.col("total_ns"))
    return terms.with_columns(
        roofline_ns=pl.when(known & ~refuted).then(longest),
        bound=pl.when(known & ~refuted).then(bound),
        refuted=(refuted | cached).fill_null(value=False),
    )


def _rates(frame: pl.DataFrame, profiles: Mapping[str, DeviceProfile]) -> pl.DataFrame:
    """The rates of each row's device, null if not known."""
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


def _from_memory() -> pl.Expr:
    return pl.col("bytes") / pl.col("bandwidth") * 1e9


def _memory_ns() -> pl.Expr:
    """The memory term: by the cache's rate if the submodule's data fits or the commands were faster
    than memory; null if that rate is needed and not known."""
    nbytes, executions = pl.col("bytes"), pl.col("executions")
    beyond_cache = nbytes - pl.col("cache_bytes") * executions
    rates = pl.col("cache_bandwidth").is_not_null() & pl.col("bandwidth").is_not_null()
    cached = pl.when(rates).then(
        pl.max_horizontal(
            nbytes / pl.col("cache_bandwidth") * 1e9, beyond_cache / pl.col("bandwidth") * 1e9
        )
    )
    each = nbytes / executions
    places = ["submodule", "device"]
    touched = pl.when(each.is_not_null().all().over(places)).then(each.sum().over(places))
    fits = (touched <= pl.col("cache_bytes")).fill_null(value=False)
    return (
        pl.when(nbytes == 0)
        .then(0.0)
        .when(fits | (_from_memory() > pl.col("total_ns")))
        .then(cached)
        .otherwise(_from_memory())
    )


# --- How fast could it be: each operator and role against the roofline of the device that ran it.
#
# For a command with F FLOPs of a type, B bytes, on a device with peak P of that type, bandwidth W
# and least time between commands L:
#
#     compute = F / P     memory = B / W     roofline = max(compute, memory, L)
#
# Bytes and bandwidth must be known, and so must the type's peak if there are FLOPs: else the term
# that is known need not be the longer one, and there is no roofline time. If no formula gives FLOPs
# (a fused elementwise or reduction kernel; products, convolutions and attention all have one), the
# memory term stands alone. A launch cost that is not known is left out.
#
# W is the memory's, but that of the last-level cache if all that the submodule's calls touch is
# known and fits into it, and of commands that were faster than memory: what they read was in the
# cache. Of these what does not fit into the cache comes from memory all the same.
#
# The roofline is a bound. Commands that were faster still (a cache whose rate is not known, a
# profile that is too low, more FLOPs or bytes in the formula than were needed) show that the
# roofline is not theirs: it is not known, and `not_explained_ns` counts their time. `of_roofline`
# is roofline / total over what is known, if that is half of its time: 1 is as fast as the device
# can be. `excess_ns` is total - roofline over what is known: at most that much could better kernels
# save.
#
# Verdict, for a row (an operator or a role on one device):
#
# - host-bound: the device stood idle directly before its commands, within their calls, for longer
#   than they ran: `wait_ns > total_ns`. Nothing on the device makes that faster. If nothing of the
#   host was recorded, the cause of waits is unknown, and no row is host-bound.
# - none (null) if of more than half of its time the roofline time is not known.
# - launch-bound if its commands take 10 µs or less each, and the roofline is less than 1 % of that:
#   what they compute and move is not what they take, also if a launch cost is not known; none if
#   graphs launched most of them: one launch runs them all;
# - else compute-bound, memory-bound or launch-bound: the term that has most of the roofline
#   time of its commands.
#
# Commands of categories host, sync, dma and collective are left out: links have rooflines of their
# own.


_COMPUTED = frozenset(("flops", "bytes", "roofline_ns", "excess_ns", "saved_bytes", "saved_ns"))
_LARGEST = 1 << 62  # fits an int64 after it was a float


def kind_roofline(
    kinds: Kinds,
    work: KindWork,
    commands: CommandArrays,
    profiles: Mapping[str, DeviceProfile],
    *,
    host_seen: bool = True,
) -> pl.DataFrame:
    """Return one row per kind and device: times in ns summed over its commands, float64 if
    computed.

    Columns: kind, device, commands, total_ns, wait_ns, blamed_ns (the part of wait_ns due to the
    host: 0 if it was not recorded, `host_seen`), flops, bytes, compute_ns, memory_ns, launch_ns,
    roofline_ns (null: not known), bound (index in Bound of the longest term), refuted (they were
    faster than the longest term, which is not their roofline then).
    """
    cells = _cells(kinds, work, commands, host_seen=host_seen)
    return _with_terms(cells, profiles).drop("submodule", "operation")


def operations_of(kinds: Kinds, work: KindWork, commands: CommandArrays) -> pl.DataFrame:
    """Return what operations computed, one row per operation and device: device, family, dtype,
    flops, total_ns, sums over its executions."""
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
    cpu = np.array([device is not None and not is_accelerator(device) for device in names])
    frame = pl.DataFrame(
        {
            "kind": times.kind.astype(np.int32),
            "device": pl.Series([names[i] for i in times.device.tolist()], dtype=pl.String),
            "commands": times.commands,
            "total_ns": times.total_ns,
            "wait_ns": times.wait_ns,
            "blamed_ns": times.wait_ns if host_seen else np.zeros_like(times.wait_ns),
            "graph_ns": np.zeros(len(times.kind)),
            "cpu_ns": np.where(cpu[times.device], times.total_ns, 0),
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
    """Add FLOPs, bytes and the terms of the roofline, each summed over a row's commands.

    How the work of an operation is divided among its commands is not known: the roofline is that of
    all of them, and they share it in proportion to their time.
    """
    part = pl.col("part")
    rows = frame.with_columns(
        flops=pl.col("flops") * part, bytes=(pl.col("bytes_read") + pl.col("bytes_written")) * part
    )
    keys = ["operation", "device"]
    sums = {name: pl.col(name).sum() for name in ("total_ns", "commands")}
    works = {
        name: pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum())
        for name in ("flops", "bytes")
    }
    wholes = rows.group_by(keys, maintain_order=True).agg(
        pl.col("submodule", "dtype").first(), executions=pl.col("commands").max(), **sums, **works
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
    """One row per operator (submodule and layer) and device, longest total time first."""
    keyed = roofline.join(kinds.table.select("kind", "submodule", "layer", "op_type"), on="kind")
    keys = ["submodule", "layer", "device"]
    types = texts_by_time(keyed, keys, "op_type", "op_types")
    table = _summed(keyed, keys).join(types, on=keys, how="left", nulls_equal=True)
    return _declared(table.with_columns(pl.col("op_types").fill_null("")), ROOFLINE, keys)


def role_roofline(roofline: pl.DataFrame, kinds: Kinds, roles: pl.Series | None) -> pl.DataFrame:
    """One row per role of a submodule and device; none without `roles`, one per kind."""
    if roles is None:
        return pl.DataFrame(schema=schema(ROOFLINE_ROLES))
    role = kinds.table.select("kind", "submodule", role=roles.cast(pl.String).fill_null("other"))
    keyed = roofline.join(role, on="kind")
    table = _summed(keyed, ["submodule", "role", "device"])
    return _declared(table, ROOFLINE_ROLES, ["submodule", "role", "device"])


def _declared(table: pl.DataFrame, columns: tuple[Column, ...], keys: list[str]) -> pl.DataFrame:
    by = ["total_ns", *keys]
    ordered = table.sort(by, descending=[True, *(False for _ in keys)])
    return ordered.select(as_declared(name, dtype) for name, dtype in schema(columns).items())


def as_declared(name: str, dtype: pl.DataType) -> pl.Expr:
    """A column in its declared type; if it was computed as a float and is an integer, rounded."""
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
        pl.col("commands", "total_ns", "wait_ns", "blamed_ns", "graph_ns", "cpu_ns").sum(),
        flops=_sum_or_null("flops"),
        bytes=_sum_or_null("bytes"),
        flops_ns=pl.col("total_ns").filter(pl.col("flops").is_not_null()).sum(),
        bytes_ns=pl.col("total_ns").filter(pl.col("bytes").is_not_null()).sum(),
        unknown_commands=pl.col("commands").filter(~whole).sum(),
        unknown_ns=pl.col("total_ns").filter(~whole).sum(),
        roofline_ns=_sum_or_null("roofline_ns"),
        known_ns=pl.col("total_ns").filter(known).sum(),
        not_explained_ns=pl.col("total_ns").filter(pl.col("refuted")).sum(),
        both_flops=pl.col("flops").filter(pl.col("bytes").is_not_null()).sum(),
        both_bytes=pl.col("bytes").filter(pl.col("flops").is_not_null()).sum(),
        **by_bound,
    )
    too_little = 2 * pl.col("known_ns") < pl.col("total_ns")
    return sums.with_columns(
        flops_per_byte=pl.when(pl.col("both_bytes") > 0).then(
            pl.col("both_flops") / pl.col("both_bytes")
        ),
        of_roofline=pl.when((pl.col("known_ns") > 0) & ~too_little).then(
            pl.col("roofline_ns") / pl.col("known_ns")
        ),
        excess_ns=pl.col("known_ns") - pl.col("roofline_ns").round(),
        bound=bound_by(
            dict(zip((Bound.COMPUTE, Bound.MEMORY, Bound.LAUNCH), by_bound, strict=True)),
            known=pl.col("roofline_ns").is_not_null() & ~too_little,
            host=pl.col("blamed_ns") > pl.col("total_ns"),
            took=pl.col("known_ns"),
        ),
    )


def bound_by(
    terms: Mapping[Bound, str], *, known: pl.Expr, host: pl.Expr, took: pl.Expr
) -> pl.Expr:
    """Return what bounds rows: the host if it is to blame, else the first one of the longest
    `terms`, if these are `known`. If the terms are next to nothing of what short commands `took`,
    it is launching (on CPUs the overhead of the runtime), or null if graphs launched most of
    them."""
    longest = pl.max_horizontal(*terms.values())
    short = (took <= SHORT_NS * pl.col("commands")) & (longest < NOTHING * took)
    on_cpu = 2 * pl.col("cpu_ns") > took
    kinds = (pl.lit(Bound.OVERHEAD.value), pl.lit(Bound.LAUNCH.value))
    launch = pl.when(on_cpu).then(kinds[0]).otherwise(kinds[1])
    named = {of: launch if of is Bound.LAUNCH else pl.lit(of.value) for of in terms}
    codes = (pl.when(pl.col(at) == longest).then(named[of]) for of, at in terms.items())
    launched = pl.when(2 * pl.col("graph_ns") <= took).then(launch)
    term = pl.when(short).then(launched).otherwise(pl.coalesce(*codes))
    of_term = pl.when(known & (longest > 0)).then(term)
    return pl.when(host).then(pl.lit(Bound.HOST.value)).otherwise(of_term)


def _sum_or_null(name: str) -> pl.Expr:
    """The sum of what is known, null if nothing is."""
    column = pl.col(name)
    return pl.when(column.is_not_null().any()).then(column.sum())


# --- The tables of operators and roles against the roofline of their device.


@shared
def profiles(of: Inputs) -> dict[str, DeviceProfile]:
    """The profile of each device that has one; measured ones are raised to what this run
    reached."""
    devices = dict.fromkeys(of.commands.devices) | dict(of.run.info.devices)
    found = profiles_of(devices, of.measured)
    measured = {device for device, profile in found.items() if profile.measured}
    limits = profiles_of({device: devices[device] for device in measured})
    if not limits:
        return found
    return with_attained(found, limits, operations_of(of.kinds, works(of), of.commands))


@shared
def works(of: Inputs) -> KindWork:
    """The work of the kinds of the selected commands."""
    return kind_work(of.kinds, of.frame)


@shared
def kind_bounds(of: Inputs) -> pl.DataFrame:
    """The selected commands against the roofline, one row per kind and device."""
    seen = not host_unseen(of.run)
    found = kind_roofline(of.kinds, works(of), of.commands, profiles(of), host_seen=seen)
    part = _in_graphs(of)
    return found.with_columns(graph_ns=pl.col("total_ns") * part[found["kind"].to_numpy()])


def _in_graphs(of: Inputs) -> npt.NDArray[np.float64]:
    """The share of each kind's commands in calls whose work is mostly launched by graphs, float64
    [k]."""
    run, kinds = of.run, of.kinds
    source, target = (run.flows[name].to_numpy() for name in ("source", "target"))
    names = run.commands["layer"].gather(source).cast(pl.String)
    by_graph = names.str.contains("(?i)graph_?launch").fill_null(value=False).to_numpy()
    call = run.commands["call"].to_numpy()[target] + 1  # 0 is of no call
    calls = int(run.calls["call"].max() or 0) + 2  # type: ignore[arg-type]
    graphs = np.bincount(call, by_graph, calls) > np.bincount(call, minlength=calls) / 2
    own = np.append(graphs[of.calls["call"].to_numpy() + 1], False)
    inside = np.bincount(kinds.of_command, own[of.commands.call], len(kinds))
    part: npt.NDArray[np.float64] = inside / np.maximum(kinds.table["commands"].to_numpy(), 1)
    return part


TABLES = (
    Table(
        name="roofline",
        row="one operator on a device, against its roofline",
        section="roofline",
        columns=ROOFLINE,
        make=lambda of: operator_roofline(kind_bounds(of), of.kinds),
        title="Operators against the roofline",
        about="Rows are in order of `total_ns`, longest first. [roofline.md](roofline.md) has the "
        "formulas and the rule for the bound.",
        rank=("-total_ns",),
    ),
    Table(
        name="roofline_roles",
        row="one role on a device, against its roofline",
        section="roofline",
        columns=ROOFLINE_ROLES,
        make=lambda of: role_roofline(kind_bounds(of), of.kinds, kind_roles(of)["role"]),
        title="Roles against the roofline",
        about="The table is empty if no roles are known.",
        rank=("-total_ns",),
    ),
)
