"""The collectives that ranks executed: each command, with what is known of the collective."""

from __future__ import annotations

import numpy as np
import polars as pl

from profiler.analysis.inputs import Inputs, shared
from profiler.grammars.names import CollectiveKind, collective_kind
from profiler.run.device_timeline import device_work
from profiler.run.intervals import Stretches
from profiler.run.run import Run
from profiler.trace.events import CATEGORIES
from profiler.trace.manifest_fields import Collective

__all__ = ["members", "stretches_of"]

_COLLECTIVE = CATEGORIES.index("collective")
_GOT = (CollectiveKind.ALL_GATHER, CollectiveKind.SCATTER)
_TOLD = {
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
    """One row a command of a collective, in order of begin: `rank`, `device`, `start_ns`, `end_ns`,
    `exposed_ns`, `kind`, and where the producer tells `group`, `size`, `message_bytes`, `number`:
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
        _told(run), on=["rank", "start_ns"], how="left", maintain_order="left"
    ).select(pl.exclude("name", "told_kind"), kind=kind if len(found) else pl.lit("", pl.String))


def stretches_of(frame: pl.DataFrame) -> Stretches:
    """When any of some commands ran."""
    return Stretches.union(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())


def _exposed(run: Run, found: pl.DataFrame) -> pl.Series:
    """How long nothing else ran on its device while each ran."""
    exposed = np.zeros(len(found), dtype=np.int64)
    devices = found["device"]
    for device in devices.unique(maintain_order=True).to_list():
        own = (devices == device).to_numpy()
        start, end = (found[name].to_numpy()[own] for name in ("start_ns", "end_ns"))
        exposed[own] = end - start - _others(run, device).within(start, end)
    return pl.Series(exposed)


def _others(run: Run, device: str) -> Stretches:
    """When a device did anything but collectives."""
    rows = run.commands.filter(pl.col("device") == device)
    category = rows["category"].to_physical().to_numpy()
    kept = device_work(category) & (category != _COLLECTIVE)
    start = rows["start_ns"].to_numpy()[kept]
    return Stretches.union(start, start + rows["duration_ns"].to_numpy()[kept])


def _told(run: Run) -> pl.DataFrame:
    """What the manifest tells of collectives, by rank and begin."""
    job = run.info.job
    rows = [
        (rank, start, number, one.kind, one.group or None, one.size, _message(one))
        for number, one in enumerate(job.collectives if job is not None else ())
        for rank, start in one.members
    ]
    told = pl.DataFrame(rows, schema=_TOLD, orient="row")
    return told.unique(["rank", "start_ns"], keep="first", maintain_order=True)


def _message(one: Collective) -> int | None:
    """The bytes by which rates of a collective are reckoned."""
    first, other = one.sent_bytes, one.received_bytes
    if one.kind in _GOT:
        first, other = other, first
    return first if first is not None else other
