"""Waiting of devices by call: how long each stage and submodule waited, and for what.

    waits_of(analysis.inputs)  # device, stage, submodule, cause, wait_ns

Within calls, the rows are the idle time of the idle table by cause, attributed to the call in whose
tile it lies: over all calls of a device they add up to its `idle_inside_ns`. Between calls
(`submodule` null), they are the time of a stage in which no call's tile ran on any device and no
device worked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import polars as pl

from profiler.analysis.commands import times_recorded
from profiler.analysis.context import Inputs, shared
from profiler.analysis.health import busy_unknown, is_host_only
from profiler.analysis.idle import gaps_of
from profiler.analysis.idle_causes import OUTSIDE, PARTS, UNKNOWN_CAUSE, DeviceGaps, WaitCause
from profiler.analysis.timeline import stage_parts
from profiler.run.columns import NS, STRING, Column, col, schema
from profiler.run.intervals import Stretches
from profiler.text import Said, said
from profiler.trace.manifest import RunInfo

WAITS: tuple[Column, ...] = (
    col("device", STRING, "the device that waited; null between calls", True),
    col("stage", STRING, "stage in which it waited"),
    col("submodule", STRING, "submodule in whose calls it waited; null between calls", True),
    col("cause", STRING, "what it waited for"),
    col("wait_ns", NS, "how long"),
)

_Row = tuple[str | None, str, str | None, str, int]
_NAMES: dict[str, Said] = {
    WaitCause.LAUNCH: said("waits for the host"),
    UNKNOWN_CAUSE: said("waits, cause not recorded"),
    WaitCause.SYNC: said("waits for the host after a sync"),
    WaitCause.QUEUE: said("waits in the queue"),
    WaitCause.COPY: said("waits for copies"),
    WaitCause.OTHER_DEVICE: said("waits for another device"),
    WaitCause.HOST: said("between calls"),
    OUTSIDE: said("waits outside of end to end"),
}


def wait_name(cause: str) -> Said:
    """What charts call waiting for `cause`."""
    return _NAMES[cause]


def waits_known(info: RunInfo) -> bool:
    """Whether it was recorded when commands ran, so that the rest of a call is waiting."""
    return times_recorded(info) and not is_host_only(info.health)


@shared
def waits_of(of: Inputs) -> pl.DataFrame:
    """One row per device, stage, submodule and cause (`WAITS`), of the selected calls; between
    calls, one per stage of a whole run. Empty if it was not recorded when commands ran."""
    if not waits_known(of.run.info):
        return pl.DataFrame(schema=schema(WAITS))
    damaged = busy_unknown(of.run.info.health)
    devices = [gaps for gaps in gaps_of(of) if gaps.device not in damaged]
    rows = [row for gaps in devices for row in _in_calls(of, gaps)]
    if devices and not of.selection:
        rows += _between_calls(of, devices)
    return pl.DataFrame(rows, schema=schema(WAITS), orient="row")


def _in_calls(of: Inputs, gaps: DeviceGaps) -> Iterator[_Row]:
    """The rows of a device within the tiles of its calls; calls whose operators were not traced
    are left out."""
    tiles = of.run.tiles.calls.select("call", "tile_device", "begin_ns", "end_ns")
    calls = of.calls.select("call", "stage", "submodule", "ops_traced").join(tiles, on="call")
    traced = pl.col("ops_traced") & (pl.col("tile_device").cast(pl.String) == gaps.device)
    groups = [
        (key, Stretches.union(rows["begin_ns"].to_numpy(), rows["end_ns"].to_numpy()))
        for key, rows in calls.filter(traced).group_by("stage", "submodule", maintain_order=True)
    ]
    for (key, _), parts in zip(groups, gaps.parts_in([each for _, each in groups]), strict=True):
        stage, submodule = map(str, key)
        for cause in PARTS:
            if cause != WaitCause.UNRECORDED and parts[cause] > 0:
                yield gaps.device, stage, submodule, str(cause), parts[cause]


def _between_calls(of: Inputs, devices: Sequence[DeviceGaps]) -> Iterator[_Row]:
    """The rows of stages: what of each lies in no tile while every device was idle."""
    tiles = of.run.tiles.calls
    in_tiles = Stretches.union(tiles["begin_ns"].to_numpy(), tiles["end_ns"].to_numpy())
    dry = reduce(Stretches.both, (gaps.busy.gaps for gaps in devices))
    free = devices[0].counted.both(dry).minus(in_tiles)
    parts = stage_parts(of.run, of.pipelines, of.axis)
    for stage, rows in parts.group_by("stage", maintain_order=True):
        own = Stretches.union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
        if length := free.both(own).length:
            yield None, str(stage[0]), None, str(WaitCause.HOST), length
