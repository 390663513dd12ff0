"""Copies and provider switches: bandwidth, time overlapped with compute, CPU fallback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.collectives import computed_on, stretches_of
from profiler.analysis.commands import COMPUTES, MOVES, CommandArrays
from profiler.analysis.context import Inputs, shared
from profiler.analysis.finding_text import (
    MATERIAL,
    Rule,
    Words,
    calls_of,
    end_to_end_ns,
    idle_for_host,
    number,
    scaled,
    share,
    texts,
)
from profiler.analysis.gains import replay_gains
from profiler.analysis.idle import gaps_of
from profiler.analysis.idle_causes import PARTS, WaitCause
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, Finding, Where
from profiler.analysis.table_text import Sentences
from profiler.run.columns import (
    BYTES,
    GIGABYTES,
    INT64,
    LAYER,
    NS,
    SHARE,
    STRING,
    Column,
    col,
    empty,
    schema,
    typed,
)
from profiler.run.intervals import (
    Codes,
    InOrder,
    Times,
    batches,
    physical_codes,
    text_codes,
    union_and_shared,
)
from profiler.run.run import Run
from profiler.text import Value, filled, said
from profiler.trace.events import CATEGORIES

# --- Rules about copies that hold the host, and about sessions on several execution providers.


_SWITCHES = 8  # a call: in and out of the host once or twice is usual at either end of a graph
_NAMED_LAYERS = 3


def cpu_fallback(analysis: Analysis) -> Iterator[Finding]:
    """Nodes ran on the host between copies, while the session has a device."""
    if analysis.cpu_fallback.is_empty():
        return
    total = end_to_end_ns(analysis)
    crossings = scaled(analysis, _crossings(analysis), "cost_ns")
    rows = scaled(analysis, analysis.cpu_fallback, "total_ns")
    for (submodule,), nodes in rows.group_by("submodule", maintain_order=True):
        crossing = float(crossings.filter(submodule=submodule)["cost_ns"].sum())
        cost = float(nodes["total_ns"].sum()) + crossing
        if share(cost, total) < MATERIAL:
            continue
        types = nodes["op_type"].drop_nulls().unique(maintain_order=True)
        yield Finding(
            "cpu_fallback",
            {
                "layers": len(nodes),
                "nodes": int(nodes["nodes"].sum()),
                "nodes_ns": int(nodes["total_ns"].sum()),
                "copies_and_gaps_ns": round(crossing),
                "op_types": ", ".join(types.head(_NAMED_LAYERS)),
                "longest_layer": nodes["layer"][0],
            },
            where=calls_of(analysis, str(submodule), layer=nodes["layer"][0]),
            cost_ns=round(cost),
        )


def provider_switches(analysis: Analysis) -> Iterator[Finding]:
    """Execution goes back and forth between providers."""
    if analysis.device_transitions.is_empty():
        return
    total = end_to_end_ns(analysis)
    for row in scaled(analysis, _crossings(analysis), "cost_ns").to_dicts():
        each = row["switches"] / max(row["calls"], 1)
        if each < _SWITCHES or share(row["cost_ns"], total) < MATERIAL:
            continue
        evidence: dict[str, Value] = {
            "switches": row["switches"],
            "switches_per_call": round(each, 1),
            **{name: row[name] for name in ("copies", "copy_ns", "gap_ns", "providers")},
            **({"copied_bytes": row["bytes"]} if row["bytes"] else {}),
        }
        where, cost = calls_of(analysis, row["submodule"]), round(row["cost_ns"])
        yield Finding("provider_switches", evidence, where, cost_ns=cost)


def _crossings(analysis: Analysis) -> pl.DataFrame:
    """One row per submodule: its switches in both directions, and what they cost."""
    return (
        analysis.device_transitions.group_by("submodule", maintain_order=True)
        .agg(
            pl.col("switches", "copies", "copy_ns", "gap_ns", "bytes").sum(),
            calls=pl.col("calls").max(),
            providers=pl.col("source").unique().sort().str.join(", "),
        )
        .with_columns(cost_ns=pl.col("copy_ns") + pl.col("gap_ns"))
    )


_TO_PAGEABLE = "Device -> Pageable"  # as Kineto and nsys say


def blocking_copies(analysis: Analysis) -> Iterator[Finding]:
    """Copies to pageable memory hold the host until they have ended, and then the device until the
    host launches again. Silent if the launches of copies were not recorded."""
    run, total = analysis.inputs.run, end_to_end_ns(analysis)
    name = pl.coalesce("kernel", "op_type", "layer").cast(pl.String)
    end = pl.col("start_ns") + pl.col("duration_ns").clip(0)
    rows = run.commands["category"].is_in(["dma", "copy"]).arg_true()
    copies = run.commands[rows].with_columns(end_ns=end, row=rows.cast(pl.Int64))
    copies = copies.filter(name.str.contains(_TO_PAGEABLE, literal=True))
    launched = run.flows.filter(pl.col("target").is_in(copies["row"].implode()))
    copies = copies.join(
        launched.select(row=pl.col("target").cast(pl.Int64), by="source"), on="row"
    ).sort("duration_ns", descending=True)
    for gaps in gaps_of(analysis.inputs) if len(copies) else ():
        own = copies.filter(pl.col("device").cast(pl.String) == gaps.device)
        calls = run.commands[own["by"]].with_columns(end_ns=end)
        exposed = stretches_of(own).minus(computed_on(run, gaps.device)).both(gaps.counted).length
        ends = own["end_ns"].unique().sort().to_numpy()
        behind = np.flatnonzero(np.isin(gaps.busy.gaps.start, ends))
        idle = int(gaps.parts(behind)[PARTS.index(WaitCause.SYNC)].sum())
        waited = stretches_of(calls).length
        gain = gain_without(analysis, own["row"].to_numpy())
        if share(exposed + idle if gain is None else gain, total) < MATERIAL:
            continue
        if gain is None:
            gain = exposed + min(waited, idle_for_host(analysis, gaps.device))
        longest = own.row(0, named=True)
        submodules = analysis.calls.filter(pl.col("call") == longest["call"])["submodule"]
        size = None if own["bytes_written"].null_count() else int(own["bytes_written"].sum())
        evidence: dict[str, Value] = {
            "copies": len(own),
            "copy_ns": exposed,
            "idle_behind_ns": idle,
            "stopped_ns": exposed + idle,
            "host_wait_ns": waited,
            **({} if size is None else {"copied_bytes": size}),
        }
        submodule = str(submodules[0]) if len(submodules) else None
        where = Where(device=gaps.device, layer=str(longest["layer"]), submodule=submodule)
        yield Finding("blocking_copies", evidence, where, cost_ns=gain)


def gain_without(analysis: Analysis, copies: Times) -> int | None:
    """Return by how much the run becomes shorter, by replay, without the copies in these rows and
    the host's waits for them, in ns: the host launches ahead, and the device waits less for what
    follows. None if it cannot be replayed."""
    gains = replay_gains(analysis.inputs)
    if gains is None:
        return None
    works = gains.whole.recording.works
    return max(gains.without_waits(gains.waits_for(copies), np.isin(works.row, copies)), 0)


def _provider_switches(found: Finding) -> Words:
    switches = said(
        "{submodule} switches providers {each} times a call: {cost_share} of the run for copies "
        "and gaps"
    )
    each = f"{number(found, 'switches_per_call'):.0f}"
    return Words(
        title=filled(switches, {**texts(found), "each": each}),
        caveat="On an asynchronous provider the time of a node is that of its launch: the wait is "
        "part of the copy after it.",
        recommendation="Give the second provider larger pieces: fewer unsupported operators, a "
        "minimum size of subgraphs, or the whole submodule on one provider.",
    )


def _blocking_copies(found: Finding) -> Words:
    title = said(
        "Copying to pageable memory ({layer} in {submodule}) holds the host for {host_wait_ns} and "
        "stops {device} for {stopped_ns}"
    )
    if found.where.submodule is None:
        title = said(
            "Copying to pageable memory ({layer} between calls) holds the host for {host_wait_ns} "
            "and stops {device} for {stopped_ns}"
        )
    return Words(
        title=title,
        caveat="The rest of the host's wait is for work that was launched before, which goes on. "
        "Pinned memory is slow to allocate: keep the buffer. Wait for the copy (an event) before "
        "you read it.",
        recommendation="Copy into pinned memory that is kept (pin_memory=True, "
        "copy_(non_blocking=True)) and wait where the values are read; copy less (images as "
        "uint8), once at the end, or keep the values on the device.",
    )


RULES = (
    Rule(
        blocking_copies,
        _blocking_copies,
        "Copy into pinned memory, non_blocking=True; keep values on the device",
        section="idle",
        needs=("launches",),
    ),
    Rule(
        cpu_fallback,
        Words(
            title="Nodes of {submodule} fall back to the CPU: with their copies they take "
            "{cost_share} of the run",
            caveat="Moving one of several consecutive nodes changes nothing: the copies stay until "
            "all have moved. Arithmetic on shapes belongs on the host.",
            recommendation="Find why the provider refuses them (verbose session log): opset, type, "
            "dynamic shape; export with another opset, replace the operator, or fold it away.",
        ),
        "Export with another opset or type, so that the provider takes them",
        section="idle",
        needs=("timeline",),
    ),
    Rule(
        provider_switches,
        _provider_switches,
        "Give the second provider larger pieces, or the whole submodule",
    ),
)


class CopyDirection(StrEnum):
    """From where to where something is copied."""

    HOST_TO_DEVICE = "host_to_device"
    DEVICE_TO_HOST = "device_to_host"
    HOST_AND_DEVICE = "host_and_device"  # the producer does not say which of these
    DEVICE_TO_DEVICE = "device_to_device"  # or on one device
    HOST_TO_HOST = "host_to_host"


# --- The columns of switches between providers, and of what fell back to the CPU.


DEVICE_TRANSITIONS: tuple[Column, ...] = (
    col("submodule", STRING, "submodule whose session has several providers"),
    col("source", STRING, "provider of the node before the switch", label="from provider"),
    col("target", STRING, "provider of the node after the switch", label="to provider"),
    col("calls", INT64, "traced calls with such a switch", importance=2),
    col("switches", INT64, "how often execution went from source to target"),
    col("copies", INT64, "Memcpy nodes in this direction", importance=1),
    col("bytes", BYTES, "bytes that these copied; null if the trace does not say", True),
    col("copy_ns", NS, "sum of the durations of these", label="copying", hide_if_zero=True),
    col("gap_ns", NS, "time at the switches in which no node ran", label="gaps"),
)

CPU_FALLBACK: tuple[Column, ...] = (
    col("submodule", STRING, "submodule whose session has several providers"),
    col("layer", LAYER, "tensor-level operation: module path or node name"),
    col("op_type", STRING, "ONNX op type", True),
    col("provider", STRING, "provider that ran it, on the host", importance=8),
    col("nodes", INT64, "executions, over all traced calls"),
    col("total_ns", NS, "sum of their durations"),
)


# --- Where execution goes from one provider of an ONNX Runtime session to another, and its cost.
#
# A session runs each node on one execution provider: the track of the node's command is named after
# it. In a call, the nodes in order of their start switch providers if two neighbours have different
# ones. `Memcpy` nodes, which ONNX Runtime puts between providers that do not share memory, are
# passed: one to the host goes from the provider of its device to the CPU's, one from the host back.
#
#     gap = start of the next node - end of the node before - copies between them     (at least 0)
#
# Where nodes of several threads overlap there is no gap. Bytes are what the copies wrote, by shapes
# and types; providers that share memory switch without copies.
#
# *CPU fallback*: nodes that ran on the CPU's provider while the session has another one, in an
# uninterrupted row of such nodes that a copy enters or leaves: data went to the host for them, or
# came back. Nodes that ONNX Runtime keeps on the CPU on purpose (arithmetic on shapes) need no
# copy, and are not.


_CPU = "CPUExecutionProvider"
_PROVIDER = r"^(\w+ExecutionProvider)(?: launches)?(?: thread \d+)?$"
_COPIES = r"^Memcpy(?: thread \d+)?$"
_TO_HOST, _FROM_HOST = "MemcpyToHost", "MemcpyFromHost"


def transition_tables(
    calls: pl.DataFrame, frame: pl.DataFrame, commands: CommandArrays
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One row a submodule and direction (`DEVICE_TRANSITIONS`), longest copies and gaps first, and
    one a layer that fell back (`CPU_FALLBACK`), longest first; none for one provider.

    `commands` are the arrays of `frame`, in order of call and start; `calls` are their calls.
    """
    nodes = _Nodes.of(frame, commands)
    if nodes is None:
        return empty(DEVICE_TRANSITIONS), empty(CPU_FALLBACK)
    submodule = calls["submodule"].cast(pl.String)
    fallback = _cpu_fallback_rows(nodes, frame, submodule)
    return _transitions(nodes, frame, commands, submodule), fallback


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
        """The nodes of a frame of commands; None if no session has several providers."""
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
        launched = frame["op_type"].cast(pl.String).is_in((_TO_HOST, _FROM_HOST)).fill_null(False)
        provider[launched.to_numpy() & (provider >= 0)] = -1  # a GPU's copies
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
    switched, known = pl.col("switch").is_not_null(), pl.col("bytes").is_not_null().any()
    providers = pl.Series(nodes.providers, dtype=pl.String)
    table = (
        both.with_columns(
            submodule=submodule.gather(both["call"]),
            source=providers.gather(both["source"]),
            target=providers.gather(both["target"]),
        )
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
    return table.select(typed(DEVICE_TRANSITIONS))


def _copies(nodes: _Nodes, frame: pl.DataFrame, took: Times) -> pl.DataFrame:
    """The copies between the CPU's provider and another one that the call has."""
    place = np.flatnonzero(nodes.provider < 0)
    copied = frame.select("op_type", "bytes_read", "bytes_written")[nodes.rows[place]]
    to_host = (copied["op_type"].cast(pl.String) == _TO_HOST).fill_null(value=False).to_numpy()
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
    """Return for each place the provider of the last node up to it, and of the first from it on,
    that is not the CPU's and in the same call; -1 if there is none."""
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


def _cpu_fallback_rows(nodes: _Nodes, frame: pl.DataFrame, submodule: pl.Series) -> pl.DataFrame:
    """Return the nodes that fell back to the CPU, by layer. All nodes and copies between two nodes
    of other providers are one group."""
    if _CPU not in nodes.providers:
        return empty(CPU_FALLBACK)
    on_cpu = nodes.provider == nodes.providers.index(_CPU)
    new_call = np.append(True, nodes.call[1:] != nodes.call[:-1])
    found = frame.select("layer", "op_type", "duration_ns")[nodes.rows].with_columns(
        pl.col("layer", "op_type").cast(pl.String),
        call=nodes.call,
        place=pl.int_range(pl.len()),
        row=np.cumsum(new_call | ((nodes.provider >= 0) & ~on_cpu)),
        on_cpu=on_cpu,
        copy=nodes.provider < 0,
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
            submodule=submodule.gather(cpu_fallback["call"]), provider=pl.lit(_CPU)
        )
        .group_by("submodule", "layer", "op_type", "provider")
        .agg(nodes=pl.len(), total_ns=pl.col("duration_ns").clip(0).sum())
        .sort(["total_ns", "submodule", "layer", "op_type"], descending=[True, False, False, False])
    )
    return table.select(typed(CPU_FALLBACK))


# --- The columns of copies.


COPIES: tuple[Column, ...] = (
    col("device", STRING, "a place that executes commands"),
    col("direction", STRING, ", ".join(CopyDirection), codes=CopyDirection),
    col("copies", INT64, "commands of that direction"),
    col("bytes", BYTES, "bytes that these moved; null if no producer recorded them", True),
    col("total_ns", NS, "sum of their durations", importance=5),
    col("wall_ns", NS, "union of them"),
    col(
        "gigabytes_per_s",
        GIGABYTES,
        "bytes / time of the copies whose bytes are known, 10⁹ bytes a second",
        True,
        label="rate",
    ),
    col(
        "hidden_ns",
        NS,
        "part of wall_ns in which the device also computed",
        label="overlapped",
        importance=5,
        hide_if_zero=True,
    ),
    col("hidden_share", SHARE, "hidden_ns / wall_ns", label="overlapped"),
)


# --- Copies by direction: how fast they were, and how much of their time computation hid.
# Collectives and fills (memset) are no copies.


_DMA = CATEGORIES.index("dma")
_NONE = len(CopyDirection)
_NO_COPY = re.compile(r"memset|fill|nccl|rccl|collective", re.IGNORECASE)
_DIRECTION_NAMES = (
    (re.compile(r"HtoD|HostToDevice|FromHost", re.IGNORECASE), CopyDirection.HOST_TO_DEVICE),
    (re.compile(r"DtoH|DeviceToHost|ToHost", re.IGNORECASE), CopyDirection.DEVICE_TO_HOST),
    (re.compile(r"HtoH|HostToHost", re.IGNORECASE), CopyDirection.HOST_TO_HOST),
)


def copy_table(run: Run, commands: CommandArrays) -> pl.DataFrame:
    """One row per device and direction (`COPIES`), the longest of each device first; `commands` are
    those of `run`."""
    found: list[tuple[object, ...]] = []
    if (direction := _directions(run, commands)) is not None:
        for device, name in enumerate(commands.devices):
            found += _copies_of_device(run, commands, device, name, direction)
    table = pl.DataFrame(found, schema=schema(COPIES), orient="row")
    return table.sort("device", "wall_ns", descending=[False, True], maintain_order=True)


def _directions(run: Run, commands: CommandArrays) -> npt.NDArray[np.uint8] | None:
    """The direction of each command as its place in `CopyDirection`, `_NONE` for what is no copy or
    takes no time, uint8 [n]; None if there are no copies."""
    rows = len(commands.start)
    if not any(MOVES[commands.category[part]].any() for part in batches(rows)):
        return None
    names = [_NameMarks.of(run.commands[column]) for column in ("op_type", "kernel", "track")]
    found = np.full(rows, _NONE, dtype=np.uint8)
    for part in batches(rows):
        moves = MOVES[commands.category[part]] & (commands.end[part] > commands.start[part])
        if moves.any():
            marks = names[0].marks(part) | names[1].marks(part) | names[2].marks(part)
            marks |= np.where(commands.category[part] == _DMA, _IS_DMA, np.uint8(0))
            found[part] = np.where(moves, _MEANING[marks], _NONE)
    return found


class _NameMarks(Struct, frozen=True, eq=False):
    """Which of `_PATTERNS` the names in a categorical column match, one bit each. `table` has the
    bits by the column's code, 0 for null."""

    column: pl.Series
    table: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, column: pl.Series) -> _NameMarks:
        present = column.unique().drop_nulls()
        codes = present.to_physical().to_numpy()
        table = np.zeros(int(codes.max(initial=0)) + 2, dtype=np.uint8)
        table[codes] = [
            sum(1 << bit for bit, pattern in enumerate(_PATTERNS) if pattern.search(name))
            for name in present.cast(pl.String)
        ]
        return cls(column, table)

    def marks(self, rows: slice) -> npt.NDArray[np.uint8]:
        return self.table[physical_codes(self.column, rows, len(self.table) - 1)]


def _meaning(marks: int) -> int:
    """The place in `CopyDirection` of a copy whose names and category have these marks."""
    no_copy, *named = (bool(marks >> bit & 1) for bit in range(len(_PATTERNS)))
    if no_copy:
        return _NONE
    dma = bool(marks & _IS_DMA)
    otherwise = CopyDirection.HOST_AND_DEVICE if dma else CopyDirection.DEVICE_TO_DEVICE
    directions = (code for there, (_, code) in zip(named, _DIRECTION_NAMES, strict=True) if there)
    return [*CopyDirection].index(next(directions, otherwise))


_PATTERNS = (_NO_COPY, *(pattern for pattern, _ in _DIRECTION_NAMES))
_IS_DMA = np.uint8(1 << len(_PATTERNS))
_MEANING = np.array([_meaning(marks) for marks in range(2 * int(_IS_DMA))], dtype=np.uint8)


def _copies_of_device(
    run: Run, commands: CommandArrays, device: int, name: str, direction: npt.NDArray[np.uint8]
) -> Iterator[tuple[object, ...]]:
    here = commands.device == device
    directions = np.bincount(direction[here], minlength=_NONE + 1)[:_NONE]
    if not directions.any():
        return
    work = InOrder.of(commands.start, commands.end, here & COMPUTES[commands.category])
    for place, code in enumerate(CopyDirection):
        if not directions[place]:
            continue
        copies = InOrder.of(commands.start, commands.end, here & (direction == place))
        wall, hidden = union_and_shared(copies, work)
        total, took, size = _sums(run, copies)
        rate = size / took if size is not None and took else None
        yield name, code.value, len(copies), size, total, wall, rate, hidden, hidden / wall


def _sums(run: Run, copies: InOrder) -> tuple[int, int, int | None]:
    """Return the total time of copies, the time of those whose size is known, and that size; None
    if none is known."""
    total, took, size, known = 0, 0, 0, 0
    moved = run.commands.select("bytes_read", "bytes_written")
    size_known = any(column.null_count() < len(column) for column in moved)
    for places in batches(len(copies)):
        length = copies.ends(places) - copies.starts(places)
        total += int(length.sum())
        if size_known:
            rows = places if copies.rows is None else copies.rows[places]
            own = moved[rows].select(pl.max_horizontal(pl.all())).to_series()
            there = own.is_not_null().to_numpy()
            took += int(length[there].sum())
            size += int(own.sum())
            known += int(np.count_nonzero(there))
    return total, took, size if known else None


# --- The tables of copies and of switches between providers.


@shared
def _transition_frames(of: Inputs) -> tuple[pl.DataFrame, pl.DataFrame]:
    return transition_tables(of.calls, of.frame, of.commands)


TABLES = (
    Table(
        name="copies",
        row="the copies of one direction on a device",
        section="idle",
        columns=COPIES,
        make=lambda of: copy_table(of.run, of.everything),
        title="Copies, whole run",
        about="Copies are the commands of category dma and copy, except collectives and fills.",
    ),
    Table(
        name="device_transitions",
        row="one pair of providers that a session switches between",
        section="idle",
        columns=DEVICE_TRANSITIONS,
        make=lambda of: _transition_frames(of)[0],
        title="Switches between providers",
        about="Providers are those of ONNX Runtime. Rows with the longest copies and gaps come "
        "first. [idle.md](idle.md) has details.",
    ),
    Table(
        name="cpu_fallback",
        row="one layer that fell back to another provider",
        section="idle",
        columns=CPU_FALLBACK,
        make=lambda of: _transition_frames(of)[1],
        title="CPU fallback between copies",
        about="The nodes of the layer ran on the host, between copies from and to a device. The "
        "longest come first. [idle.md](idle.md) has details.",
        rank=("-total_ns",),
    ),
)


SENTENCES: Sentences = {CopyDirection: {CopyDirection.HOST_AND_DEVICE: "between host and device"}}
