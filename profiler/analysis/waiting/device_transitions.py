"""Where execution goes from one provider of an ONNX Runtime session to another, and its cost.

A session runs each node on one execution provider: the track of the node's command is called so.
In a call, the nodes in order of their begin switch providers where two neighbours have different
ones. `Memcpy` nodes, which ONNX Runtime puts between providers that do not share memory, are
passed: one to the host goes from the provider of its device to the CPU's, one from the host back.

    gap = begin of the node behind - end of the node before - copies between them     (at least 0)

Where nodes of several threads overlap there is no gap. Bytes are what the copies wrote, as shapes
and types tell; providers that share memory switch without copies.

*CPU fallback*: nodes that ran on the CPU's provider while the session has another one, in an
uninterrupted row of such nodes that a copy enters or leaves: data went to the host for them, or
came back. Nodes that ONNX Runtime keeps on the CPU on purpose (arithmetic on shapes) need no copy,
and are not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.waiting.columns import CPU_FALLBACK, DEVICE_TRANSITIONS
from profiler.run.columns import schema
from profiler.run.intervals import Codes, Times, text_codes

__all__ = ["transition_tables"]

_CPU = "CPUExecutionProvider"
_PROVIDER = r"^(\w+ExecutionProvider)(?: thread \d+)?$"
_COPIES = r"^Memcpy(?: thread \d+)?$"
_TO_HOST, _FROM_HOST = "MemcpyToHost", "MemcpyFromHost"


def transition_tables(
    calls: pl.DataFrame, frame: pl.DataFrame, commands: CommandArrays
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One row a submodule and direction (`columns.DEVICE_TRANSITIONS`), longest copies and gaps
    first, and one a layer that fell back (`columns.CPU_FALLBACK`), longest first; empty for
    sessions with one provider.

    `commands` are the arrays of `frame`, in order of call and start; `calls` are their calls.
    """
    nodes = _Nodes.of(frame, commands)
    if nodes is None:
        return pl.DataFrame(schema=schema(DEVICE_TRANSITIONS)), pl.DataFrame(
            schema=schema(CPU_FALLBACK)
        )
    submodule = calls["submodule"].cast(pl.String)
    return _transitions(nodes, frame, commands, submodule), _cpu_fallback(nodes, frame, submodule)


class _Nodes(Struct, frozen=True, eq=False):
    """Nodes and copies of calls with several providers, in order of call and begin.

    `rows` are rows of commands, `call` rows of calls, `provider` indexes `providers`, -1 for
    copies; all int64 [n]. `switches` are the places at which a node has another provider than the
    node before it (in `before`) in the same call.
    """

    rows: Times
    call: Codes
    provider: Times
    providers: list[str]
    switches: Times
    before: Times

    @classmethod
    def of(cls, frame: pl.DataFrame, commands: CommandArrays) -> _Nodes | None:
        """The nodes of a frame of commands; None where no session has several providers."""
        track, tracks = text_codes(frame["track"])
        named = pl.Series(tracks, dtype=pl.String)
        of_track = named.str.extract(_PROVIDER)
        providers = of_track.drop_nulls().unique().sort().to_list()
        if len(providers) < 2:
            return None
        copies = named.str.contains(_COPIES).to_list()
        codes = [
            providers.index(name) if name else -1 if copied else -2
            for name, copied in zip(of_track, copies, strict=True)
        ]
        provider = np.array([*codes, -2])[track]
        rows = np.flatnonzero((provider > -2) & (commands.call >= 0))
        several = _with_several(commands.call[rows], provider[rows], len(providers))
        rows = rows[several[commands.call[rows]]]
        rows = rows[np.lexsort((commands.start[rows], commands.call[rows]))]
        if not len(rows):
            return None
        call, provider = commands.call[rows], provider[rows]
        node = np.flatnonzero(provider >= 0)
        changed = np.flatnonzero(
            (provider[node][1:] != provider[node][:-1]) & (call[node][1:] == call[node][:-1])
        )
        return cls(rows, call, provider, providers, node[changed + 1], node[changed])


def _with_several(call: Codes, provider: Times, providers: int) -> npt.NDArray[np.bool_]:
    """Whether each call has nodes of several providers, bool [calls]."""
    calls = int(call.max(initial=-1)) + 1
    there = np.zeros(calls * providers, dtype=np.bool_)
    node = provider >= 0
    there[call[node] * np.int64(providers) + provider[node]] = True
    several: npt.NDArray[np.bool_] = there.reshape(calls, providers).sum(axis=1) > 1
    return several


def _transitions(
    nodes: _Nodes, frame: pl.DataFrame, commands: CommandArrays, submodule: pl.Series
) -> pl.DataFrame:
    start, end = commands.start[nodes.rows], commands.end[nodes.rows]
    copied = np.append(0, np.cumsum(np.where(nodes.provider < 0, end - start, 0)))
    between = copied[nodes.switches] - copied[nodes.before + 1]
    gap = np.maximum(start[nodes.switches] - end[nodes.before] - between, 0)
    switches = pl.DataFrame(
        {
            "call": nodes.call[nodes.switches],
            "source": nodes.provider[nodes.before],
            "target": nodes.provider[nodes.switches],
            "switch": np.ones(len(gap), dtype=np.int64),
            "gap_ns": gap,
        }
    )
    both = pl.concat([switches, _copies(nodes, frame, end - start)], how="diagonal")
    switched = pl.col("switch").is_not_null()
    known = pl.col("bytes").is_not_null().any()
    table = (
        _with_names(both, nodes, submodule)
        .group_by("submodule", "source", "target")
        .agg(
            calls=pl.col("call").filter(switched).n_unique(),
            switches=pl.col("switch").sum(),
            copies=(~switched).sum(),
            bytes=pl.when(known).then(pl.col("bytes").sum()),
            copy_ns=pl.col("copy_ns").sum(),
            gap_ns=pl.col("gap_ns").sum(),
        )
        .with_columns(cost=pl.col("copy_ns") + pl.col("gap_ns"))
        .sort(["cost", "submodule", "source", "target"], descending=[True, False, False, False])
    )
    return table.select(
        pl.col(name).cast(dtype) for name, dtype in schema(DEVICE_TRANSITIONS).items()
    )


def _copies(nodes: _Nodes, frame: pl.DataFrame, took: Times) -> pl.DataFrame:
    """The copies whose other side is a provider that the call has beside the CPU's."""
    place = np.flatnonzero(nodes.provider < 0)
    copied = frame.select("op_type", "bytes_read", "bytes_written")[nodes.rows[place]]
    op_type = copied["op_type"].cast(pl.String)
    to_host = (op_type == _TO_HOST).fill_null(value=False).to_numpy()
    cpu = nodes.providers.index(_CPU) if _CPU in nodes.providers else -1
    before, behind = _neighbours(nodes, cpu)
    other = np.where(
        to_host,
        np.where(before[place] >= 0, before[place], behind[place]),
        np.where(behind[place] >= 0, behind[place], before[place]),
    )
    table = pl.DataFrame(
        {
            "call": nodes.call[place],
            "source": np.where(to_host, other, cpu),
            "target": np.where(to_host, cpu, other),
            "bytes": copied.select(pl.coalesce("bytes_written", "bytes_read")).to_series(),
            "copy_ns": took[place],
        }
    )
    return table.filter((pl.col("source") >= 0) & (pl.col("target") >= 0))


def _neighbours(nodes: _Nodes, cpu: int) -> tuple[Times, Times]:
    """The provider of the last node up to each place, and of the first from it on, that is not the
    CPU's and of the same call; -1 where there is none."""
    count = len(nodes.rows)
    places = np.arange(count)
    elsewhere = (nodes.provider >= 0) & (nodes.provider != cpu)
    last = np.maximum.accumulate(np.where(elsewhere, places, -1))
    first = np.minimum.accumulate(np.where(elsewhere, places, count)[::-1])[::-1]
    found = []
    for place in (last, np.where(first < count, first, -1)):
        same = (place >= 0) & (nodes.call[place] == nodes.call)
        found.append(np.where(same, nodes.provider[place], -1))
    return found[0], found[1]


def _with_names(table: pl.DataFrame, nodes: _Nodes, submodule: pl.Series) -> pl.DataFrame:
    """With the submodule of each call, and the names of providers for their numbers."""
    providers = pl.Series(nodes.providers, dtype=pl.String)
    return table.with_columns(
        submodule=submodule.gather(table["call"]),
        source=providers.gather(table["source"]),
        target=providers.gather(table["target"]),
    )


def _cpu_fallback(nodes: _Nodes, frame: pl.DataFrame, submodule: pl.Series) -> pl.DataFrame:
    """What stands between two nodes of other providers is one row of nodes and copies."""
    if _CPU not in nodes.providers:
        return pl.DataFrame(schema=schema(CPU_FALLBACK))
    on_cpu = nodes.provider == nodes.providers.index(_CPU)
    new_call = np.append(True, nodes.call[1:] != nodes.call[:-1])
    columns = ("layer", "op_type", "duration_ns")
    found = (
        frame.select(*columns)[nodes.rows]
        .with_columns(pl.col("layer", "op_type").cast(pl.String))
        .with_columns(
            call=nodes.call,
            place=pl.int_range(pl.len()),
            row=np.cumsum(new_call | ((nodes.provider >= 0) & ~on_cpu)),
            on_cpu=on_cpu,
            copy=nodes.provider < 0,
        )
    )
    place, to_host = pl.col("place"), pl.col("op_type") == _TO_HOST
    node, copy = pl.col("on_cpu"), pl.col("copy")
    entered = place.filter(copy & to_host).min() < place.filter(node).max()
    left = place.filter(copy & (pl.col("op_type") == _FROM_HOST)).max() > place.filter(node).min()
    copied = found.group_by("row").agg(
        cpu_fallback=entered.fill_null(value=False) | left.fill_null(value=False)
    )
    cpu_fallback = found.filter("on_cpu").join(copied.filter("cpu_fallback"), on="row", how="semi")
    table = (
        cpu_fallback.with_columns(
            submodule=submodule.gather(cpu_fallback["call"]),
            provider=pl.lit(_CPU),
            total_ns=pl.col("duration_ns").clip(0),
        )
        .group_by("submodule", "layer", "op_type", "provider")
        .agg(nodes=pl.len(), total_ns=pl.col("total_ns").sum())
        .sort(["total_ns", "submodule", "layer", "op_type"], descending=[True, False, False, False])
    )
    return table.select(pl.col(name).cast(dtype) for name, dtype in schema(CPU_FALLBACK).items())
