"""Collectives of ranks: how often, how long and how fast they are, and who came last to each.

    transfer = last end - latest start      wait of a rank = latest start - its own start

A rank is the last to arrive only if the lead of the rank before it exceeds the clock
uncertainty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from profiler.analysis.commands import times_recorded
from profiler.analysis.context import Inputs, shared
from profiler.analysis.document import Part
from profiler.analysis.finding_text import (
    Rule,
    Words,
    is_no_gain,
    named_devices,
    number,
    on_several,
    texts,
    value_range,
)
from profiler.analysis.gains import gain_without_collectives
from profiler.analysis.health import busy_unknown
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, Finding, ReportInput, Where
from profiler.analysis.table_text import renamed, table
from profiler.grammars.names import CollectiveKind, bus_factor, collective_kind
from profiler.run.columns import (
    BYTES,
    GIGABYTES,
    INT64,
    NS,
    STEP,
    STRING,
    Column,
    col,
    empty,
    schema,
    typed,
)
from profiler.run.intervals import Stretches
from profiler.run.run import Run
from profiler.text import Said, Value, duration, filled, joined, said
from profiler.trace.events import rank_of_device
from profiler.trace.manifest_fields import Collective, Job

# --- Rule: collectives that do not overlap with compute.


_EXPOSED = 0.10  # of end to end


def exposed_collectives(analysis: Analysis) -> Iterator[Finding]:
    """Collectives run on a device while it computes nothing. Silent if busy times, or times of
    commands, are unknown."""
    of = analysis.inputs
    if not times_recorded(of.run.info):
        return
    waited = dict(analysis.ranks.select("rank", "waited_ns").iter_rows())
    unknown, gain = busy_unknown(of.run.info.health), None
    shares = exposed_shares(of)
    if max(shares.values(), default=0.0) >= _EXPOSED:
        gain = gain_without_collectives(of)
    for device, part in shares.items():
        if part < _EXPOSED or device in unknown:
            continue
        exposed = round(part * of.axis.counted.length)
        own = stretches_of(members(of).filter(pl.col("device") == device)).both(of.axis.counted)
        left = computed_on(of.run, device).both(of.axis.counted).minus(own).length
        evidence: dict[str, Value] = {
            "exposed_ns": exposed,
            "exposed_share": part,
            "collective_ns": own.length,
        }
        late = waited.get(rank_of_device(device))
        evidence |= {} if late is None else {"waited_ns": late}
        if gain is not None and gain < _MOSTLY * exposed:
            evidence["without_them_ns"] = gain
        elif left < exposed:
            evidence["to_overlap_ns"] = left
        cost = exposed if gain is None else min(gain, exposed)
        yield Finding("exposed_collectives", evidence, Where(device=device), cost_ns=cost)


def _exposed_collectives(found: Finding) -> Words:
    title = said(
        "Collectives on {device} are exposed for {exposed_share} of the run: it computes nothing "
        "meanwhile"
    )
    late, little = "without_them_ns" in found.evidence, _has_little_to_overlap(found)
    if late:
        title = said(
            "Collectives on {device} are exposed for {exposed_share} of the run; without them "
            "launches would be just as late"
        )
    if little:
        title = said(
            "Collectives on {device} are exposed for {exposed_share} of the run, and hardly any "
            "computation is left to overlap with them"
        )
    if on_several(found):
        many = {"devices": named_devices(found), "share": value_range(found, "exposed_share")}
        title = said(
            "Collectives on {devices} are exposed for {share} of the run: they compute nothing "
            "meanwhile",
            **many,
        )
        if late:
            title = said(
                "Collectives on {devices} are exposed for {share} of the run; without them "
                "launches would be just as late",
                **many,
            )
        if little:
            title = said(
                "Collectives on {devices} are exposed for {share} of the run, and hardly any "
                "computation is left to overlap with them",
                **many,
            )
    caveat = _WAITED if "waited_ns" in found.evidence else _MAY_WAIT
    if late:  # `words` fills a template, not one within another text
        given = texts(found)
        most = said("at most {without_them_ns}", without_them_ns=given["without_them_ns"])
        given["gain"] = said("nothing") if is_no_gain(found, "without_them_ns") else most
        caveat = joined(" ", [filled(one, given) for one in (_HOST_IS_LATE, caveat)])
    return Words(title=title, caveat=caveat, recommendation=_recommendation(found))


def _has_little_to_overlap(found: Finding) -> bool:
    """Whether a device computes too little outside of collectives to hide a quarter of the exposed
    time."""
    left = number(found, "to_overlap_ns")
    return "to_overlap_ns" in found.evidence and left < _LITTLE * number(found, "exposed_ns")


def _recommendation(found: Finding) -> Said:
    if "to_overlap_ns" not in found.evidence:
        return _OVERLAP
    if not _has_little_to_overlap(found):  # `words` fills a template, not one within another text
        return joined(" ", [_OVERLAP, filled(_AT_MOST, {"left": texts(found)["to_overlap_ns"]})])
    return _SEND_LESS if "waited_ns" in found.evidence else _FIND_LATE_RANK


def _change(found: Finding) -> Said:
    if not _has_little_to_overlap(found):
        if "to_overlap_ns" in found.evidence:
            left = texts(found)["to_overlap_ns"]
            return said(
                "Overlap collectives with computation (at most {left}), or send less", left=left
            )
        return said("Overlap collectives with computation, or send less")
    if "waited_ns" in found.evidence:
        return said("Send less, or divide the model: little is left to overlap")
    return said("Find which rank is late, or send less: little is left to overlap")


_MOSTLY = 0.5  # of the exposed time
_LITTLE = 0.25  # of the exposed time
_AT_MOST = said("Overlapping gains at most {left}, the computation outside of collectives.")
_OVERLAP = said(
    "Overlap collectives with computation (buckets, async_op=True, a stream of their own), send "
    "less (fewer bits, fewer and larger messages), or divide the model so that ranks exchange less."
)
_SEND_LESS = said(
    "Send less (fewer bits, fewer and larger messages), or divide the model so that ranks exchange "
    "less. Waiting for the last rank took {waited_ns}."
)
_FIND_LATE_RANK = said(
    "Record all ranks and find which one is late: kernels of collectives also wait for the last "
    "rank, and may do little else. Else send less (fewer bits, fewer and larger messages), or "
    "divide the model so that ranks exchange less."
)
_HOST_IS_LATE = said(
    "The run is bound by its host: by replay it gains {gain} if they take no time, until launching "
    "is cheaper."
)
_WAITED = said(
    "The time of a collective includes waiting for the rank that is last, {waited_ns} here: faster "
    "links do not gain that."
)
_MAY_WAIT = said(
    "The time of a collective includes waiting for the rank that is last, which only a recording "
    "of all ranks shows: faster links do not gain that."
)


RULES = (
    Rule(
        exposed_collectives,
        _exposed_collectives,
        _change,
        section="ranks",
        merged_by="exposed_share",
        needs=("timeline",),
    ),
)


# --- The columns of collectives and of who came last to them.


LATE = "if begins are closer together than the accuracy of the clocks"
_BYTES = (
    "bytes of the message: what a rank receives in an all_gather or scatter, else what it sends; "
    "the largest of several ranks"
)

COLLECTIVES: tuple[Column, ...] = (
    col("kind", STRING, "what it does: all_reduce, all_gather, send_recv, …"),
    col("group", STRING, "process group, if known", True, importance=6),
    col("size", INT64, "ranks in that group, if known", True, label="ranks", importance=2),
    col("message_bytes", BYTES, f"{_BYTES}; null if unknown", True),
    col("commands", INT64, "how often a rank executed it, over all ranks", importance=1),
    col("total_ns", NS, "sum of their durations, including the wait for the last rank"),
    col(
        "exposed_ns",
        NS,
        "part of total_ns in which that device computed nothing",
        hide_if_zero=True,
    ),
    col(
        "waited_ns",
        NS,
        "part of total_ns before the last rank started; null if no other rank was recorded",
        True,
        label="waited for others",
        importance=3,
        hide_if_zero=True,
    ),
    col("median_ns", NS, "median of its commands", importance=4),
    col(
        "transfer_ns",
        NS,
        "median from the last recorded start to the end; null if no other rank was recorded",
        True,
        importance=1,
        hide_if_zero=True,
    ),
    col(
        "bus_gigabytes_per_s",
        GIGABYTES,
        "bytes over the slowest link (bus factor of nccl-tests) / transfer_ns, or / median_ns "
        "if that is null: a lower bound of the achieved rate; null if bytes or group are "
        "unknown",
        True,
        label="bus, median",
    ),
)

COLLECTIVE_ARRIVALS: tuple[Column, ...] = (
    Column("begin_ns", INT64, "ns", "begin on the first rank, on the run's clock", kind="instant"),
    col("kind", STRING, "what it does"),
    col("group", STRING, "process group, if known", True, importance=5),
    col("message_bytes", BYTES, f"{_BYTES}; null if unknown", True, importance=2),
    col("ranks", INT64, "ranks that recorded it"),
    col("last_rank", STEP, f"rank that started last; null {LATE}", True),
    col("launch_delay_ns", NS, "from the second-latest start to the latest", label="late by"),
    col("spread_ns", NS, "from the first start to the last: the longest wait"),
    col("waited_ns", NS, "time that all ranks together waited for the last one", hide_if_zero=True),
    col("transfer_ns", NS, "from the last start to the last end", hide_if_zero=True),
    col(
        "end_skew_ns",
        NS,
        "from the first end to the last; the ends are really one moment, so this is the error of "
        "the clocks",
        importance=4,
    ),
)


# --- Who came last to each collective, and how long the others waited.
#
#     transfer = last end - latest begin      wait of a rank = latest begin - its own
#
# A rank is the last only if the one before it started earlier by more than the clock uncertainty.


def matched(members: pl.DataFrame, job: Job | None) -> pl.DataFrame:
    """The `members` of collectives that several ranks recorded on one clock, with `latest_ns`, the
    last start, and `known_ns`, the clock uncertainty of their rank."""
    ranks = job.ranks if job is not None else ()
    known = {one.rank: one.residual_ns or 0 for one in ranks if one.aligned is not False}
    clocks = pl.DataFrame(
        list(known.items()), schema={"rank": pl.Int32, "known_ns": pl.Int64}, orient="row"
    )
    own = members.drop_nulls("number").join(clocks, on="rank", maintain_order="left")
    several = pl.col("rank").n_unique().over("number") > 1
    return own.filter(several).with_columns(latest_ns=pl.col("start_ns").max().over("number"))


def arrivals(own: pl.DataFrame) -> pl.DataFrame:
    """One row per collective of `matched`, in order of start: its `number`, and the columns
    `COLLECTIVE_ARRIVALS`."""
    start, end = pl.col("start_ns"), pl.col("end_ns")
    late = start.max() - start.sort().slice(pl.len() - 2, 1).first()
    known = pl.col("known_ns").max()
    found = own.group_by("number", maintain_order=True).agg(
        pl.col("kind", "group").first(),
        pl.col("message_bytes").max(),
        begin_ns=start.min(),
        ranks=pl.col("rank").n_unique(),
        last_rank=pl.when(late > known).then(pl.col("rank").sort_by("start_ns").last()),
        launch_delay_ns=late,
        spread_ns=start.max() - start.min(),
        waited_ns=(start.max() - start).sum(),
        transfer_ns=end.max() - start.max(),
        end_skew_ns=end.max() - end.min(),
    )
    types = schema(COLLECTIVE_ARRIVALS)
    return found.select("number", *(pl.col(name).cast(dtype) for name, dtype in types.items()))


# --- Collectives by what they are: how often, how long, how fast.


_KEYS = ("kind", "group", "size", "message_bytes")


def collective_table(
    members: pl.DataFrame, own: pl.DataFrame, arrived: pl.DataFrame
) -> pl.DataFrame:
    """One row per kind, group and message size (`COLLECTIVES`). `members` are the commands of all
    collectives, `own` those that several ranks recorded, `arrived` their `arrivals`."""
    if members.is_empty():
        return empty(COLLECTIVES)
    took = pl.col("end_ns") - pl.col("start_ns")
    found = members.group_by(_KEYS, maintain_order=True).agg(
        commands=pl.len(),
        total_ns=took.sum(),
        exposed_ns=pl.col("exposed_ns").sum(),
        median_ns=took.median().round(),
    )
    waits = own.group_by(_KEYS).agg(waited_ns=(pl.col("latest_ns") - pl.col("start_ns")).sum())
    transfers = (
        own.unique("number", keep="first", maintain_order=True)
        .select("number", *_KEYS)
        .join(arrived.select("number", "transfer_ns"), on="number", maintain_order="left")
        .group_by(_KEYS)
        .agg(transfer_ns=pl.col("transfer_ns").median().round())
    )
    for more in (waits, transfers):
        found = found.join(more, on=_KEYS, how="left", maintain_order="left", nulls_equal=True)
    return found.with_columns(bus_gigabytes_per_s=_rates(found)).select(typed(COLLECTIVES))


def _rates(found: pl.DataFrame) -> pl.Series:
    """GB/s over the slowest link, of each row; null if bytes, ranks or time are unknown."""
    columns = (
        found[name] for name in ("kind", "size", "message_bytes", "transfer_ns", "median_ns")
    )
    rates = [
        size_bytes * bus_factor(CollectiveKind(kind), ranks) / (transfer or median)
        if size_bytes is not None and ranks is not None and (transfer or median)
        else None
        for kind, ranks, size_bytes, transfer, median in zip(*columns, strict=True)
    ]
    return pl.Series(rates, dtype=pl.Float64)


# --- The collectives that ranks executed: each command, with what is known of the collective.


COMPUTES = ("compute", "other")
_TRANSFERS = ("dma", "copy")
_NOTICEABLE = 0.01  # of end to end: transfers alone
_GOT = (CollectiveKind.ALL_GATHER, CollectiveKind.SCATTER)
_RECORDED = {
    "rank": pl.Int32,
    "start_ns": pl.Int64,
    "number": pl.Int64,
    "told_kind": pl.String,
    "group": pl.String,
    "size": pl.Int64,
    "message_bytes": pl.Int64,
}


@shared
def members(of: Inputs) -> pl.DataFrame:
    """One row per command of a collective, in order of start: `rank`, `device`, `start_ns`,
    `end_ns`, `exposed_ns`, `kind`, and, if recorded, `group`, `size`, `message_bytes` and `number`,
    the collective's, which is the same on all ranks."""
    run = of.run
    rows = run.commands.lazy().filter(pl.col("category") == "collective")
    rows = rows.filter(pl.col("device").is_not_null() & (pl.col("duration_ns") >= 0))
    found = rows.select(
        "rank",
        pl.col("device").cast(pl.String),
        "start_ns",
        pl.col("op_type", "kernel", "layer").cast(pl.String),
        end_ns=pl.col("start_ns") + pl.col("duration_ns"),
    ).collect()
    names = found.select("op_type", "kernel", "layer").rows()
    kinds = {each: _kind(*each) for each in set(names)}
    found = found.drop("op_type", "kernel", "layer").with_columns(
        kind=pl.Series([kinds[each] for each in names], dtype=pl.String),
        exposed_ns=_exposed(run, found),
    )
    return (
        found.sort("start_ns", "rank")
        .join(_recorded_times(run), on=["rank", "start_ns"], how="left", maintain_order="left")
        .with_columns(kind=pl.coalesce("told_kind", "kind"))
        .drop("told_kind")
    )


_ASKED = re.compile(r"(nccl|hccl|xccl|gloo):|_?c10d")  # operators and ranges of torch.distributed


def _kind(op_type: str | None, kernel: str | None, layer: str | None) -> str:
    """Return the kind of a collective: that of the operator that asked for it, since one kernel may
    execute several kinds; else the first that its kernel, its layer or its operator names."""
    asked = op_type if op_type and _ASKED.match(op_type) else None
    last = layer.rpartition("/")[2] if layer else None
    kinds = (collective_kind(name) for name in (asked, kernel, last, op_type) if name)
    return next((kind for kind in kinds if kind is not CollectiveKind.OTHER), CollectiveKind.OTHER)


def stretches_of(frame: pl.DataFrame) -> Stretches:
    """Return the union of the times of some commands."""
    return Stretches.union(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())


def _exposed(run: Run, found: pl.DataFrame) -> pl.Series:
    """Return for how long the device computed nothing during each collective, in ns."""
    exposed = np.zeros(len(found), dtype=np.int64)
    devices = found["device"]
    for device in devices.unique(maintain_order=True).to_list():
        own = (devices == device).to_numpy()
        start, end = (found[name].to_numpy()[own] for name in ("start_ns", "end_ns"))
        exposed[own] = end - start - computed_on(run, device).within(start, end)
    return pl.Series(exposed)


def computed_on(run: Run, device: str) -> Stretches:
    """Return when a device computed."""
    return worked_on(run, device, COMPUTES)


def worked_on(run: Run, device: str, categories: Sequence[str]) -> Stretches:
    """Return when commands of some categories ran on a device."""
    here = (pl.col("device") == device) & pl.col("category").is_in(categories)
    rows = run.commands.filter(here)
    start = rows["start_ns"].to_numpy()
    return Stretches.union(start, start + rows["duration_ns"].to_numpy())


@shared
def work_shares(of: Inputs) -> dict[str, tuple[float, float]]:
    """Return two shares of the end-to-end time for each device with collectives: when it computed,
    and when a collective ran and it computed nothing. Empty if there is no such time."""
    counted, found = of.axis.counted, {}
    for (device,), rows in members(of).group_by("device", maintain_order=True):
        computed = computed_on(of.run, device)
        exposed = stretches_of(rows).minus(computed)
        if total := counted.length:
            found[device] = (
                computed.both(counted).length / total,
                exposed.both(counted).length / total,
            )
    return found


def exposed_shares(of: Inputs) -> dict[str, float]:
    """Return the share of the end-to-end time in which a collective ran and the device computed
    nothing, by device with collectives. Empty if there is no such time."""
    return {device: exposed for device, (_, exposed) in work_shares(of).items()}


@shared
def exposed_transfers(of: Inputs) -> dict[str, float]:
    """Return the share of the end-to-end time in which a device did nothing but transfer, by device
    that did so for a noticeable time. What it did for launches from before the recording does not
    count: it is outside of the end-to-end time."""
    counted = of.axis.counted
    if not counted.length:
        return {}
    waited = of.table("idle").filter(pl.col("data_ns") > _NOTICEABLE * counted.length)["device"]
    others = (*COMPUTES, "collective")
    alone = (
        worked_on(of.run, one, _TRANSFERS).minus(worked_on(of.run, one, others)) for one in waited
    )
    return {
        one: found.both(counted).length / counted.length
        for one, found in zip(waited, alone, strict=True)
    }


def _recorded_times(run: Run) -> pl.DataFrame:
    """Return what the manifest has of collectives, by rank and start."""
    job = run.info.job
    rows = [
        (rank, start, number, one.kind, one.group or None, one.size, _message(one))
        for number, one in enumerate(job.collectives if job is not None else ())
        for rank, start in one.members
    ]
    times = pl.DataFrame(rows, schema=_RECORDED, orient="row")
    return times.unique(["rank", "start_ns"], keep="first", maintain_order=True)


def _message(one: Collective) -> int | None:
    """The message size from which rates are computed, in bytes."""
    first, other = one.sent_bytes, one.received_bytes
    if one.kind in _GOT:
        first, other = other, first
    return first if first is not None else other


# --- The tables of collectives, and their part of the section on ranks.


@shared
def matched_of(of: Inputs) -> pl.DataFrame:
    """The run's collectives that several ranks on one clock recorded, see `matched`."""
    return matched(members(of), of.run.info.job)


@shared
def arrived_of(of: Inputs) -> pl.DataFrame:
    """Return when ranks arrived at the run's collectives, see `arrivals`."""
    return arrivals(matched_of(of))


TABLES = (
    Table(
        name="collectives",
        row="the collectives of a kind, process group and size of message",
        section="ranks",
        columns=COLLECTIVES,
        make=lambda of: collective_table(members(of), matched_of(of), arrived_of(of)),
        rank=("-total_ns",),
        title="Collectives",
        about="Rows cover the whole run, whatever is selected. Times are sums over all ranks. "
        "The exposed time of a single rank, in which overlapping collectives count once, is in "
        "`ranks`.",
    ),
    Table(
        name="collective_arrivals",
        row="one collective that several ranks recorded on one clock",
        section="ranks",
        columns=COLLECTIVE_ARRIVALS,
        make=lambda of: arrived_of(of).drop("number"),
        rank=("-launch_delay_ns",),
        title="Who came last",
        about="Rows cover the whole run, whatever is selected.",
    ),
)


def collective_parts(of: ReportInput) -> Iterator[Part]:
    """Yield what the section on ranks shows of collectives."""
    yield from _collectives(of)
    yield from _arrivals(of)


def _collectives(of: ReportInput) -> Iterator[Part]:
    frame, ranks = of.analysis.collectives, of.analysis.ranks
    all_of = frame if ranks.is_empty() else ranks  # overlapping ones count once in `ranks`
    total = int(all_of["total_ns" if ranks.is_empty() else "collective_ns"].sum())
    exposed = int(all_of["exposed_ns"].sum())
    lead = said("{exposed} of {total} in collectives are exposed: the device computed nothing.")
    if len(ranks) > 1:
        lead = said(
            "{exposed} of {total} in collectives are exposed, over all ranks: the device computed "
            "nothing."
        )
    yield Part(
        said("Collectives, by total time"),
        lead=filled(lead, {"exposed": duration(exposed), "total": duration(total)}),
        table=table(
            "collectives", "collectives", COLLECTIVES, COLLECTIVES, frame, shown=of.rows(10)
        ),
    )


def _arrivals(of: ReportInput) -> Iterator[Part]:
    frame = of.analysis.collective_arrivals
    names = [column.name for column in COLLECTIVE_ARRIVALS if column.name != "begin_ns"]
    begin = renamed(COLLECTIVE_ARRIVALS, "begin_ns", meaning="from the start of the run")
    yield Part(
        said("Which rank came last, and by how much"),
        table=table(
            "collective_arrivals",
            "arrivals at collectives",
            (begin, *names),
            COLLECTIVE_ARRIVALS,
            frame.with_columns(pl.col("begin_ns") - of.begin_ns),
            shown=of.rows(10),
        ),
    )
