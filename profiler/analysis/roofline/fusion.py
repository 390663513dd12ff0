"""What fusing would save: the chains of `fusible_chains`, in bytes and time.

One traced call of each submodule is looked at, the second where there are several, and stands for
all of them. `saved_ns` is what the chain takes beyond the roofline of one command in its place,
which computes as much and does not move `saved_bytes`: fusing saves no more than that. Where the
chain was faster than that roofline already, it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.roofline.bounds import as_declared
from profiler.analysis.roofline.codes import FusionKind
from profiler.analysis.roofline.columns import FUSIONS
from profiler.analysis.roofline.device_profile import DeviceProfile
from profiler.analysis.roofline.fusible_chains import Chain, find_chains
from profiler.analysis.work.of_kinds import KindWork
from profiler.analysis.work.registry import Family, Work
from profiler.run.columns import schema
from profiler.trace.events import CATEGORIES

__all__ = ["fusion_table"]

_MOST = 20_000  # commands of a call that are looked at
_ROOTS = ("sqrt", "rsqrt", "Sqrt", "Rsqrt", "Reciprocal", "reciprocal")


def fusion_table(
    calls: pl.DataFrame,
    kinds: Kinds,
    work: KindWork,
    commands: CommandArrays,
    profiles: Mapping[str, DeviceProfile],
    roles: pl.Series | None = None,
) -> pl.DataFrame:
    """The chains of each submodule (`columns.FUSIONS`), equal ones added up, most bytes first.

    `roles`, one a kind, say what chains are for; without them, their operations do.
    """
    facts = kinds.table.select(
        "layer",
        pl.col("op_type").fill_null(""),
        total_ns=pl.col("total_ns") / pl.col("commands"),
        role=pl.lit(None, pl.String) if roles is None else roles.cast(pl.String),
    ).rows()
    found = []
    for submodule, call, number in _representatives(calls):
        for device, sequence in _sequences(kinds, commands, call):
            for chain in find_chains([work.works[kind] for kind in sequence]):
                members = [sequence[i] for i in chain.members]
                works = [work.works[kind] for kind in members]
                own = [facts[kind] for kind in members]
                row = _row(chain, works, own, profiles.get(device))
                found.append((submodule, device, number, *row))
    keys = ["submodule", "device", "what", "op_types"]
    times = ["total_ns", "saved_bytes", "saved_ns"]
    columns = ["submodule", "device", "chains", "what", "op_types", "layer", *times]
    types = schema(FUSIONS)
    frame = pl.DataFrame(
        found,
        schema={n: pl.Float64() if n in times else types[n] for n in columns},
        orient="row",
    )
    return (
        frame.group_by(keys, maintain_order=True)
        .agg(
            pl.col("layer").first(),
            (pl.col("total_ns", "saved_bytes") * pl.col("chains")).sum(),
            saved_ns=pl.when(pl.col("saved_ns").is_not_null().all()).then(
                (pl.col("saved_ns") * pl.col("chains")).sum()
            ),
            chains=pl.col("chains").sum(),
        )
        .with_columns(pl.col("total_ns").round())
        .sort(["saved_bytes", *keys], descending=[True, *(False for _ in keys)])
        .select(as_declared(name, dtype) for name, dtype in types.items())
    )


_Fact = tuple[str, str, float, str | None]  # layer, op type, mean ns and role of a command's kind


def _row(
    chain: Chain,
    works: Sequence[Work | None],
    facts: Sequence[_Fact],
    profile: DeviceProfile | None,
) -> tuple[str, str, str, float, int, float | None]:
    """What one chain is, its op types, first layer, busy time, saved bytes and time."""
    pairs = zip(works, facts, strict=True)
    names = [fact[1] for work, fact in pairs if work is not None and work.part == 1]
    what = _what(chain, {fact[3] for fact in facts}) or _what_by_hand(chain, works, names)
    busy = sum(fact[2] for fact in facts)
    saved_ns = _saved_ns(chain, works, busy, profile)
    return what.value, " → ".join(names), facts[0][0], busy, chain.saved_bytes, saved_ns


def _representatives(calls: pl.DataFrame) -> list[tuple[str, int, int]]:
    """Of each submodule its second traced call, or its only one, as a row of `calls`, and how
    many traced calls it has."""
    traced = calls.with_row_index("row").filter("ops_traced")
    grouped = traced.group_by("submodule", maintain_order=True).agg("row")
    return [
        (str(name), rows[min(1, len(rows) - 1)], len(rows)) for name, rows in grouped.iter_rows()
    ]


def _sequences(kinds: Kinds, commands: CommandArrays, call: int) -> list[tuple[str, list[int]]]:
    """The kinds of the device work of a call on each device, by start."""
    rows = np.flatnonzero(commands.call == call)
    compute = commands.category[rows] == CATEGORIES.index("compute")
    rows = rows[compute][:_MOST]
    rows = rows[np.argsort(commands.start[rows], kind="stable")]
    device = commands.device[rows]
    return [
        (commands.devices[place], kinds.of_command[rows[device == place]].tolist())
        for place in np.unique(device).tolist()
        if place < len(commands.devices)
    ]


def _what(chain: Chain, roles: set[str | None]) -> FusionKind | None:
    """What a chain is by the roles of its commands, None where these do not tell."""
    if chain.is_attention:
        return FusionKind.ATTENTION
    if {"norm", "modulation"} <= roles:
        return FusionKind.NORM_AND_MODULATION
    of_role = (FusionKind.NORM, FusionKind.MODULATION, FusionKind.ROPE)
    return next((kind for kind in of_role if kind.value in roles), None)


def _what_by_hand(chain: Chain, members: Sequence[Work | None], names: Sequence[str]) -> FusionKind:
    """What a chain is by its operations."""
    by_hand = Family.REDUCTION in chain.families and any(
        name.removeprefix("aten::") in _ROOTS for name in names
    )
    is_norm = Family.NORM in chain.families or by_hand
    modulates = any(_modulates(work) for work in members if work is not None)
    if is_norm:
        return FusionKind.NORM_AND_MODULATION if modulates else FusionKind.NORM
    if modulates:
        return FusionKind.MODULATION
    softmax = Family.SOFTMAX in chain.families
    return FusionKind.SOFTMAX if softmax else FusionKind.ELEMENTWISE


def _modulates(work: Work) -> bool:
    """Whether a [batch, 1, width] is applied to [batch, tokens, width]."""
    if work.family != Family.ELEMENTWISE or not work.writes or len(work.writes[0].dims) != 3:
        return False
    _, tokens, width = work.writes[0].dims
    read = (read.dims for read in work.reads if len(read.dims) == 3)
    return tokens > 1 < width and any(dims[1:] == (1, width) for dims in read)


def _saved_ns(
    chain: Chain, members: Sequence[Work | None], busy: float, profile: DeviceProfile | None
) -> float | None:
    """What fusing one chain saves at most, None where its roofline is not known: without a profile
    that has the bandwidth, or where the chain was faster."""
    if profile is None or profile.memory_bandwidth is None:
        return None
    whole = [w for w in members if w is not None and w.part == 1]
    moved = sum((w.bytes_read or 0) + (w.bytes_written or 0) for w in whole)
    left = max(moved - chain.saved_bytes, 0) / profile.memory_bandwidth * 1e9
    computed = sum((w.flops or 0) / (profile.peak(w.dtype) or float("inf")) * 1e9 for w in whole)
    saved = busy - max(left, computed, profile.launch_ns or 0.0)
    return saved if saved >= 0 else None
