"""Ranks of a distributed job: collectives, stragglers, and the wait for each other.

    transfer = last end - latest start      wait of a rank = latest start - its own start

A rank is the last to arrive only if the lead of the rank before it exceeds the clock
uncertainty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import mean
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.commands import times_recorded
from profiler.analysis.context import Inputs, shared
from profiler.analysis.document import Part, SectionGroup, SectionKind
from profiler.analysis.finding_text import (
    MATERIAL,
    Rule,
    Words,
    end_to_end_ns,
    named_devices,
    on_several,
    share,
    texts,
    value_range,
)
from profiler.analysis.health import busy_unknown
from profiler.analysis.question import Table
from profiler.analysis.replay import replay_gains
from profiler.analysis.result import Analysis, Finding, ReportInput, Where
from profiler.analysis.table_text import renamed, table
from profiler.grammars.names import CollectiveKind, bus_factor, collective_kind
from profiler.run.columns import (
    BOOL,
    BYTES,
    FACTOR,
    FLOAT64,
    GIGABYTES,
    INT64,
    NS,
    SHARE,
    STEP,
    STRING,
    Column,
    col,
    empty,
    schema,
)
from profiler.run.intervals import Stretches
from profiler.run.run import Run
from profiler.text import Value, count, counted, duration, filled, joined, said, sentence
from profiler.trace.events import NO_RANK, rank_of_device
from profiler.trace.manifest_fields import Collective, Job, Rank

# --- Rules about ranks of a job: one keeps the others waiting, nothing hides their collectives.


_EXPOSED = 0.10  # of end to end
_FEWEST = 5  # collectives that have a last rank: fewer tell nothing of a habit


def straggler(analysis: Analysis) -> Finding | None:
    """One rank is the last to start most of its collectives, and the others wait for it.

    Of n ranks each is the last in 1/n of them by chance: it must be so in half of what is between
    that and all (0.75 of two ranks, 0.56 of eight), and late by 1 % of end to end in all.
    """
    rows = analysis.ranks
    compared = rows.filter(pl.col("compared") >= _FEWEST)
    if len(rows) < 2 or compared.is_empty():
        return None
    worst = compared.sort("launch_delay_ns", "rank", descending=[True, False]).row(0, named=True)
    often = (1 + 1 / len(rows)) / 2
    total = end_to_end_ns(analysis)
    if worst["last_share"] < often or share(worst["launch_delay_ns"], total) < MATERIAL:
        return None
    slowest = slowest_rank(analysis.inputs)
    if slowest is not None and slowest.rank != worst["rank"]:
        return None
    waited = int(rows.filter(pl.col("rank") != worst["rank"])["waited_ns"].sum())
    return Finding(
        "straggler",
        {
            "rank": worst["rank"],
            "ranks": len(rows),
            "last": worst["last"],
            "compared": worst["compared"],
            "last_share": worst["last_share"],
            "launch_delay_ns": worst["launch_delay_ns"],
            "others_waited_ns": waited,
        },
        where=Where(device=worst["devices"].partition(", ")[0] or None),
        cost_ns=worst["launch_delay_ns"],
    )


def exposed_collectives(analysis: Analysis) -> Iterator[Finding]:
    """Collectives run on a device while it computes nothing. Silent where busy time is not known,
    and if the recording has no times."""
    of = analysis.inputs
    if not times_recorded(of.run.info):
        return
    waited = dict(analysis.ranks.select("rank", "waited_ns").iter_rows())
    unknown, gain = busy_unknown(of.run.info.health), None
    shares = exposed_shares(of)
    if max(shares.values(), default=0.0) >= _EXPOSED:
        gain = _gain_without_collectives(of)
    for device, part in shares.items():
        if part < _EXPOSED or device in unknown:
            continue
        exposed = round(part * of.axis.counted.length)
        own = members(of).filter(pl.col("device") == device)
        evidence: dict[str, Value] = {
            "exposed_ns": exposed,
            "exposed_share": part,
            "collective_ns": stretches_of(own).both(of.axis.counted).length,
        }
        late = waited.get(rank_of_device(device))
        evidence |= {} if late is None else {"waited_ns": late}
        if gain is not None and gain < _MOSTLY * exposed:
            evidence["without_them_ns"] = gain
        cost = exposed if gain is None else min(gain, exposed)
        yield Finding("exposed_collectives", evidence, Where(device=device), cost_ns=cost)


def _gain_without_collectives(of: Inputs) -> int | None:
    """By how much the run becomes shorter, by replay, if collectives take no time; None if it
    cannot be replayed."""
    gains = replay_gains(of)
    if gains is None:
        return None
    works = gains.whole.recording.works
    collective = (of.run.commands["category"] == "collective").to_numpy()
    zero = collective[works.row] & (works.row >= 0)
    return max(gains.whole.gain_ns(np.where(zero, 0, works.length)), 0)


def _exposed_collectives(found: Finding) -> Words:
    title = said(
        "Collectives on {device} are exposed for {exposed_share} of the run: it computes nothing "
        "meanwhile"
    )
    late = "without_them_ns" in found.evidence
    if late:
        title = said(
            "Collectives on {device} are exposed for {exposed_share} of the run; without them "
            "launches would come as late"
        )
    if on_several(found):
        many = {
            "devices": named_devices(found),
            "share": value_range(found, "exposed_share"),
        }
        title = said(
            "Collectives on {devices} are exposed for {share} of the run: they compute nothing "
            "meanwhile",
            **many,
        )
        if late:
            title = said(
                "Collectives on {devices} are exposed for {share} of the run; without them "
                "launches would come as late",
                **many,
            )
    caveat = _WAITED if "waited_ns" in found.evidence else _MAY_WAIT
    if late:  # `words` fills a template, not one within another text
        caveat = joined(" ", [filled(one, texts(found)) for one in (_HOST_IS_LATE, caveat)])
    return Words(
        title=title,
        caveat=caveat,
        recommendation=said(
            "Overlap collectives with computation (buckets, async_op=True, a stream of their own), "
            "send less (fewer bits, fewer and larger messages), or divide the model so that ranks "
            "exchange less."
        ),
    )


_MOSTLY = 0.5  # of the exposed time
_HOST_IS_LATE = said(
    "The run is bound by its host: by replay it gains no more than {without_them_ns} if they take "
    "no time, until launching is cheaper."
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
        said("Overlap collectives with computation, or send less"),
    ),
    Rule(
        straggler,
        Words(
            title=said(
                "Rank {rank} is the last to begin {last} of {compared} collectives, "
                "{launch_delay_ns} in all: the others wait for it"
            ),
            caveat=said(
                "Were it on time, the second latest rank would be the last: the gain is at most "
                "the time by which it is late. Ranks that were not recorded may be later still."
            ),
            recommendation=said(
                "Find what this rank does beyond the others (imbalance between ranks). Check its "
                "clocks, its neighbours on the machine and its input pipeline. Give all ranks the "
                "same amount of work."
            ),
        ),
        said("Find what this rank does beyond the others; check its clocks"),
    ),
)


# --- The columns of ranks, of their collectives and of what they wait for each other.


_LATE = "where begins are closer together than the accuracy of the clocks"
_BYTES = (
    "bytes of the message: what a rank receives in an all_gather or scatter, else what it sends; "
    "the largest of several ranks"
)

RANKS: tuple[Column, ...] = (
    col("rank", STEP, "process of the job, from 0"),
    col("devices", STRING, "devices on which it worked, joined with commas", importance=2),
    col("calls", INT64, "calls of its submodules", importance=8),
    col(
        "span_ns",
        NS,
        "from the start of its first device work to the end of the last",
        importance=6,
    ),
    col(
        "busy_ns",
        NS,
        "part of the end-to-end time in which something ran on its devices, summed over them",
        importance=3,
    ),
    col(
        "collective_ns",
        NS,
        "union of its collectives in the end-to-end time, including the wait for the last rank",
        hide_if_zero=True,
    ),
    col(
        "exposed_ns",
        NS,
        "part of collective_ns in which that device computed nothing",
        hide_if_zero=True,
    ),
    col(
        "exposed_share",
        SHARE,
        "share of the end-to-end time in which a collective was exposed, the mean of its devices; "
        "null if nothing ran",
        True,
        label="exposed of end to end",
        importance=5,
    ),
    col(
        "waited_ns",
        NS,
        "time in its collectives before the last rank started; null if no other rank was recorded",
        True,
        label="waited for others",
        hide_if_zero=True,
    ),
    col(
        "compared",
        INT64,
        f"its collectives with a known last rank: there is none {_LATE}",
        importance=7,
    ),
    col("last", INT64, "those of them in which it was the last", importance=7),
    col("last_share", SHARE, "last / compared", True, label="was last"),
    col(
        "launch_delay_ns",
        NS,
        "in these, time from the previous rank's start to its own: what the others would wait "
        "less if it were on time",
        label="late by",
        hide_if_zero=True,
    ),
    col(
        "offset_ns",
        NS,
        "offset that was added to its times to get the job's clock; null of a rank given alone",
        True,
        importance=4,
        signed=True,
    ),
    col(
        "drift_ppm",
        FLOAT64,
        "added to offset_ns per second of its recording, in µs",
        True,
        importance=8,
    ),
    col(
        "residual_ns",
        NS,
        "median distance of the ends of its collectives after that",
        True,
        label="clock within",
        importance=4,
    ),
    col(
        "aligned",
        BOOL,
        "whether collectives relate its clock to others; null for the job's own clock",
        True,
        importance=9,
    ),
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
    col("last_rank", STEP, f"rank that started last; null {_LATE}", True),
    col("launch_delay_ns", NS, "from the second-latest start to the latest"),
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

RANK_IMBALANCE: tuple[Column, ...] = (
    col("submodule", STRING, "submodule of the calls; null for work outside of calls", True),
    col("module", STRING, "path of the module, if known", True),
    col("ranks", INT64, "ranks that executed it"),
    col("mean_ns", NS, "mean over these ranks of the time of its commands, without collectives"),
    col("max_ns", NS, "largest time of a rank"),
    col("slowest_rank", STEP, "the rank with that time", label="longest on rank"),
    col("imbalance", FACTOR, "max_ns / mean_ns: 1 is even"),
    col("above_mean_ns", NS, "max_ns - mean_ns"),
)


# --- Who came last to each collective, and how long the others waited.
#
#     transfer = last end - latest begin      wait of a rank = latest begin - its own
#
# A rank is the last if the one before it started earlier by more than the clocks are known.


def matched(members: pl.DataFrame, job: Job | None) -> pl.DataFrame:
    """The `members` of collectives that several ranks on one clock recorded, with `latest_ns`, the
    last start, and `known_ns`, how well the clock of their rank is known."""
    ranks = job.ranks if job is not None else ()
    known = {one.rank: one.residual_ns or 0 for one in ranks if one.aligned is not False}
    clocks = pl.DataFrame(
        list(known.items()), schema={"rank": pl.Int32, "known_ns": pl.Int64}, orient="row"
    )
    own = members.drop_nulls("number").join(clocks, on="rank", maintain_order="left")
    several = pl.col("rank").n_unique().over("number") > 1
    return own.filter(several).with_columns(latest_ns=pl.col("start_ns").max().over("number"))


def arrivals(own: pl.DataFrame) -> pl.DataFrame:
    """One row a collective of `matched`, in order of its start: its `number`, and the columns
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
    """One row a kind, group and size of message (`COLLECTIVES`). `members` are the commands of all
    collectives, `own` those that several ranks recorded, `arrived` when these did."""
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
    return found.with_columns(bus_gigabytes_per_s=_rates(found)).select(
        pl.col(name).cast(dtype) for name, dtype in schema(COLLECTIVES).items()
    )


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


_COMPUTES = ("compute", "other")
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
    """One row a command of a collective, in order of start: `rank`, `device`, `start_ns`, `end_ns`,
    `exposed_ns`, `kind`, and if the producer tells `group`, `size`, `message_bytes`, `number`:
    that of the collective, which those of other ranks share."""
    run = of.run
    rows = run.commands.lazy().filter(pl.col("category") == "collective")
    rows = rows.filter(pl.col("device").is_not_null() & (pl.col("duration_ns") >= 0))
    found = rows.select(
        "rank",
        pl.col("device").cast(pl.String),
        "start_ns",
        end_ns=pl.col("start_ns") + pl.col("duration_ns"),
        name=pl.coalesce("kernel", "op_type", "layer").cast(pl.String),
    ).collect()
    named = {name: collective_kind(name).value for name in found["name"].unique()}
    kind = pl.coalesce("told_kind", pl.col("name").replace_strict(named, return_dtype=pl.String))
    found = found.with_columns(exposed_ns=_exposed(run, found)).sort("start_ns", "rank")
    return found.join(
        _recorded_times(run), on=["rank", "start_ns"], how="left", maintain_order="left"
    ).select(pl.exclude("name", "told_kind"), kind=kind if len(found) else pl.lit("", pl.String))


def stretches_of(frame: pl.DataFrame) -> Stretches:
    """When any of some commands ran."""
    return Stretches.union(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())


def _exposed(run: Run, found: pl.DataFrame) -> pl.Series:
    """How long its device computed nothing while each ran."""
    exposed = np.zeros(len(found), dtype=np.int64)
    devices = found["device"]
    for device in devices.unique(maintain_order=True).to_list():
        own = (devices == device).to_numpy()
        start, end = (found[name].to_numpy()[own] for name in ("start_ns", "end_ns"))
        exposed[own] = end - start - computed_on(run, device).within(start, end)
    return pl.Series(exposed)


def computed_on(run: Run, device: str) -> Stretches:
    """When a device computed."""
    here = (pl.col("device") == device) & pl.col("category").is_in(_COMPUTES)
    rows = run.commands.filter(here)
    start = rows["start_ns"].to_numpy()
    return Stretches.union(start, start + rows["duration_ns"].to_numpy())


@shared
def exposed_shares(of: Inputs) -> dict[str, float]:
    """By device with collectives, the share of the end-to-end time in which one ran on it and it
    computed nothing; empty if there is no such time."""
    counted, found = of.axis.counted, {}
    for (device,), rows in members(of).group_by("device", maintain_order=True):
        exposed = stretches_of(rows).minus(computed_on(of.run, device))
        if counted.length:
            found[device] = exposed.both(counted).length / counted.length
    return found


def _recorded_times(run: Run) -> pl.DataFrame:
    """What the manifest tells of collectives, by rank and begin."""
    job = run.info.job
    rows = [
        (rank, start, number, one.kind, one.group or None, one.size, _message(one))
        for number, one in enumerate(job.collectives if job is not None else ())
        for rank, start in one.members
    ]
    times = pl.DataFrame(rows, schema=_RECORDED, orient="row")
    return times.unique(["rank", "start_ns"], keep="first", maintain_order=True)


def _message(one: Collective) -> int | None:
    """The bytes by which rates of a collective are reckoned."""
    first, other = one.sent_bytes, one.received_bytes
    if one.kind in _GOT:
        first, other = other, first
    return first if first is not None else other


# --- One row a rank: what it did, what its collectives cost it, and whom it kept waiting.


def rank_table(
    run: Run,
    members: pl.DataFrame,
    own: pl.DataFrame,
    arrived: pl.DataFrame,
    shares: Mapping[str, float],
    counted: Stretches,
) -> pl.DataFrame:
    """One row a rank (`RANKS`); none of a run of one process. `members` are the commands of all
    collectives, `own` those that several ranks recorded, `arrived` who was last in these, `shares`
    are `exposed_shares`, `counted` is the end-to-end time."""
    clocks = {one.rank: one for one in run.info.job.ranks} if run.info.job is not None else {}
    calls = dict(run.calls.group_by("rank").len().iter_rows())
    if not {*clocks, *calls} - {NO_RANK} and _highest(run.commands["rank"]) == NO_RANK:
        return empty(RANKS)
    work = _work(run)
    ranks = sorted({*clocks, *calls, *work["rank"].unique()} - {NO_RANK})
    if not ranks:
        return empty(RANKS)
    rows = []
    for rank in ranks:
        of_rank = pl.col("rank") == rank
        rows.append(
            {
                "rank": rank,
                "calls": calls.get(rank, 0),
                **_device_work(work.filter(of_rank), members.filter(of_rank), shares, counted),
                **_lateness(rank, own.filter(of_rank), arrived),
                **_clock(clocks, rank),
            }
        )
    return pl.DataFrame(rows, schema=schema(RANKS))


def _highest(ranks: pl.Series) -> int:
    """The highest rank of commands, `NO_RANK` if none is known."""
    found = ranks.max()
    return found if isinstance(found, int) else NO_RANK


def imbalance_table(run: Run) -> pl.DataFrame:
    """One row a module of a submodule that several ranks executed (`RANK_IMBALANCE`): the work of
    its commands but collectives, which are as long as the slowest rank makes them."""
    if run.info.job is None or len(run.info.job.ranks) < 2:
        return empty(RANK_IMBALANCE)
    work = _work(run).filter((pl.col("category") != "collective") & (pl.col("rank") != NO_RANK))
    calls = run.calls.select("call", pl.col("submodule").cast(pl.String))
    named = work.join(calls, on="call", how="left").with_columns(pl.col("module").cast(pl.String))
    took = (pl.col("end_ns") - pl.col("start_ns")).sum()
    by_rank = named.group_by("submodule", "module", "rank").agg(took_ns=took)
    by_rank = by_rank.sort("submodule", "module", "rank")
    found = by_rank.group_by("submodule", "module", maintain_order=True).agg(
        ranks=pl.len(),
        mean_ns=pl.col("took_ns").mean().round(),
        max_ns=pl.col("took_ns").max(),
        slowest_rank=pl.col("rank").sort_by("took_ns").last(),
    )
    above = pl.col("max_ns") - pl.col("mean_ns")
    found = found.filter((pl.col("ranks") > 1) & (pl.col("mean_ns") > 0)).with_columns(
        imbalance=pl.col("max_ns") / pl.col("mean_ns"), above_mean_ns=above
    )
    return found.select(pl.col(name).cast(dtype) for name, dtype in schema(RANK_IMBALANCE).items())


def _work(run: Run) -> pl.DataFrame:
    """What devices did, with `end_ns`."""
    columns = ("call", "rank", "device", "category", "module", "start_ns", "duration_ns")
    works = ~pl.col("category").is_in(["host", "sync"]) & pl.col("device").is_not_null()
    rows = run.commands.lazy().select(columns).filter(works & (pl.col("duration_ns") > 0))
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    return rows.with_columns(end, pl.col("device").cast(pl.String)).collect()


def _device_work(
    work: pl.DataFrame, members: pl.DataFrame, shares: Mapping[str, float], counted: Stretches
) -> dict[str, Any]:
    """What the devices of a rank did, and how much of its collectives nothing hides: in the
    end-to-end time, if there is one."""
    busy = collective = exposed = 0
    devices = work["device"].unique().sort().to_list()
    for device in devices:
        own = work.filter(pl.col("device") == device)
        ran, together = map(stretches_of, (own, members.filter(pl.col("device") == device)))
        if counted.length:
            ran, together = ran.both(counted), together.both(counted)
        computed = stretches_of(own.filter(pl.col("category").is_in(_COMPUTES)))
        busy += ran.length
        collective += together.length
        exposed += together.minus(computed).length
    first, last = work["start_ns"].min(), work["end_ns"].max()
    span = last - first if isinstance(first, int) and isinstance(last, int) else 0
    return {
        "devices": ", ".join(devices),
        "span_ns": span,
        "busy_ns": busy,
        "collective_ns": collective,
        "exposed_ns": exposed,
        "exposed_share": mean([shares.get(name, 0.0) for name in devices]) if devices else None,
    }


def _lateness(rank: int, own: pl.DataFrame, arrived: pl.DataFrame) -> dict[str, Any]:
    """How long a rank waited for others in its collectives, `own`, and they for it."""
    late_ranks = arrived.filter(
        pl.col("last_rank").is_not_null() & pl.col("number").is_in(own["number"].implode())
    )
    last = late_ranks.filter(pl.col("last_rank") == rank)
    return {
        "waited_ns": int((own["latest_ns"] - own["start_ns"]).sum()) if len(own) else None,
        "compared": len(late_ranks),
        "last": len(last),
        "last_share": len(last) / len(late_ranks) if len(late_ranks) else None,
        "launch_delay_ns": int(last["launch_delay_ns"].sum()),
    }


def _clock(clocks: Mapping[int, Rank], rank: int) -> dict[str, Any]:
    """How the clock of a rank was laid onto the job's: that of one alone was not."""
    clock = clocks.get(rank) if len(clocks) > 1 else None
    names = ("offset_ns", "drift_ppm", "residual_ns", "aligned")
    return {name: getattr(clock, name) if clock is not None else None for name in names}


# --- The tables of ranks and of their collectives.


@shared
def _matched(of: Inputs) -> pl.DataFrame:
    return matched(members(of), of.run.info.job)


@shared
def _arrived(of: Inputs) -> pl.DataFrame:
    return arrivals(_matched(of))


class Slowest(Struct, frozen=True):
    """The rank that waits least in the collectives in which all ranks are, `number` of these: by
    `less_ns` less than any other."""

    rank: int
    less_ns: int
    number: int


@shared
def slowest_rank(of: Inputs) -> Slowest | None:
    """The rank whose own work before collectives ends last; None if no two ranks have collectives
    on one clock, or if the clocks are not known so well."""
    own, job = _matched(of), of.run.info.job
    every = pl.col("rank").n_unique().over("number") == own["rank"].n_unique()
    own = own.filter(every)
    waits = own.group_by("rank").agg(ns=(pl.col("latest_ns") - pl.col("start_ns")).sum())
    waits = waits.sort("ns", "rank")
    if job is None or len(waits) < 2:
        return None
    less_ns, number = int(waits["ns"][1] - waits["ns"][0]), own["number"].n_unique()
    if less_ns <= number * max(one.residual_ns or 0 for one in job.ranks):
        return None
    return Slowest(int(waits["rank"][0]), less_ns, number)


TABLES = (
    Table(
        name="ranks",
        row="one rank of a job",
        section="ranks",
        columns=RANKS,
        make=lambda of: rank_table(
            of.run, members(of), _matched(of), _arrived(of), exposed_shares(of), of.axis.counted
        ),
        title="Ranks",
        about="Rows cover the whole run, whatever is selected. The table is empty if the run "
        "has a single process.",
    ),
    Table(
        name="collectives",
        row="the collectives of a kind, process group and size of message",
        section="ranks",
        columns=COLLECTIVES,
        make=lambda of: collective_table(members(of), _matched(of), _arrived(of)),
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
        make=lambda of: _arrived(of).drop("number"),
        rank=("-launch_delay_ns",),
        title="Who came last",
        about="Rows cover the whole run, whatever is selected.",
    ),
    Table(
        name="rank_imbalance",
        row="one module of a submodule that several ranks executed",
        section="ranks",
        columns=RANK_IMBALANCE,
        make=lambda of: imbalance_table(of.run),
        rank=("-above_mean_ns",),
        title="Imbalance between ranks",
        about="Rows cover the whole run, whatever is selected. Collectives are left out, because "
        "each lasts as long as the slowest rank makes it.",
    ),
)


# --- Ranks of a job: how their clocks were related, what they wait for each other, what their
# collectives cost.


def _parts(of: ReportInput) -> tuple[Part, ...]:
    return (*_ranks(of), *_collectives(of), *_arrivals(of), *_imbalance(of))


def _ranks(of: ReportInput) -> Iterator[Part]:
    job, frame = of.analysis.inputs.run.info.job, of.analysis.ranks
    if job is None or frame.is_empty():
        return
    yield Part(
        said("Ranks, whole run"),
        lead=sentence(_alone(job) if len(job.ranks) == 1 else _clocks(job)),
        table=table("ranks", "ranks", RANKS, RANKS, frame, shown=20),
        notes=tuple(_notes(job)),
    )


def _alone(job: Job) -> str:
    return said(
        "this is rank {rank} of {size}: give the traces of all ranks to see whom it waits for",
        rank=count(job.ranks[0].rank),
        size=count(job.world_size),
    )


def _clocks(job: Job) -> str:
    """How the clocks of the ranks are related."""
    aligned = [one for one in job.ranks if one.aligned]
    if not aligned:
        return said("no clock of a rank is related to another's: each has a timeline of its own")
    pairs = [one.pairs for one in aligned]
    residual = [one.residual_ns or 0 for one in aligned]
    return said(
        "the clocks of {ranks} are aligned by the ends of {pairs} collectives or more each: these "
        "are then {residual} apart in the median of the worst rank, {worst} at most",
        ranks=counted(len(aligned) + 1, "rank"),
        pairs=count(min(pairs)),
        residual=duration(max(residual)),
        worst=duration(max(one.worst_ns or 0 for one in aligned)),
    )


def _notes(job: Job) -> Iterator[str]:
    missing = job.world_size - len(job.ranks)
    if missing and len(job.ranks) > 1:
        yield said(
            "{missing} of {size} ranks were not given: who is last among all is not known.",
            missing=count(missing),
            size=count(job.world_size),
        )
    lost = [str(one.rank) for one in job.ranks if one.aligned is False]
    if lost:
        yield said(
            "Ranks with a timeline of their own, since fewer than three collectives relate them to "
            "others: {ranks}.",
            ranks=", ".join(lost),
        )


def _collectives(of: ReportInput) -> Iterator[Part]:
    frame, ranks = of.analysis.collectives, of.analysis.ranks
    all_of = frame if ranks.is_empty() else ranks  # in which those that overlap count once
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


def _imbalance(of: ReportInput) -> Iterator[Part]:
    yield Part(
        said("Imbalance between ranks, by module"),
        table=table(
            "rank_imbalance",
            "imbalance between ranks",
            RANK_IMBALANCE,
            RANK_IMBALANCE,
            of.analysis.rank_imbalance,
            shown=of.rows(10),
        ),
    )


SECTION = SectionKind(
    "ranks",
    70,
    said("Ranks and collectives"),
    _parts,
    tables=("ranks", "collectives", "collective_arrivals", "rank_imbalance"),
    group=SectionGroup.DEVICE,
)
