"""What devices did in each stage and step: the work of each role, and what they waited for.

    analyze(run).activity      # pipeline, stage, step, what, role, elapsed_ns
    waits_of(analysis.inputs)  # device, stage, submodule, cause, wait_ns

Each moment of a call's tile counts for one command, as in the module tree. In the rest of the tile
the device waited, or worked for other calls. Between calls the host works, or all is idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from profiler.analysis.commands import times_recorded
from profiler.analysis.context import Inputs, shared
from profiler.analysis.health import busy_unknown, is_host_only
from profiler.analysis.idle import gaps_of
from profiler.analysis.idle_causes import (
    OUTSIDE,
    PARTS,
    UNKNOWN_CAUSE,
    DeviceGaps,
    WaitCause,
    cause_on,
)
from profiler.analysis.module_paths import own_times
from profiler.analysis.question import Table
from profiler.analysis.roles import kind_roles
from profiler.analysis.table_text import Sentences, label
from profiler.analysis.timeline import ON_AXIS, stage_parts
from profiler.run.columns import NS, STRING, Column, col, column_of, schema
from profiler.run.intervals import Stretches
from profiler.text import Said, said
from profiler.trace.events import NO_STEP
from profiler.trace.manifest import RunInfo


class OfDevice(StrEnum):
    """What else a device's time in a stage was, if several devices ran its calls at once."""

    UNRECORDED = "unrecorded"
    UNALLOCATED = "unallocated"


class Activity(StrEnum):
    """What the time of a stage or step was spent on, in the order of charts."""

    WORK = "work"
    OTHER_WORK = "other_work"
    UNTRACED = "untraced"
    NO_OPERATOR = "no_operator"
    LAUNCH_BOUND = "launch_bound"
    WAIT = "wait"
    HOST_WORK = "host_work"
    IDLE = "idle"


ACTIVITY: tuple[Column, ...] = (
    column_of(ON_AXIS, "pipeline"),
    col("stage", STRING, "phase of the pipeline"),
    col("step", column_of(ON_AXIS, "step").dtype, "denoising step; -1 outside of all steps"),
    col("what", STRING, "what it was spent on: " + ", ".join(Activity), codes=Activity),
    col("role", STRING, "role of the work; null if it is none", True),
    col("elapsed_ns", NS, "how long"),
)
_PLACE = ("pipeline", "stage", "step")


def _activity(of: Inputs) -> pl.DataFrame:
    rows = [*_in_calls(of), *([] if of.selection else _between_calls(of))]
    found = pl.DataFrame(rows, schema=schema(ACTIVITY), orient="row")
    order = {what: number for number, what in enumerate(Activity)}
    return (
        found.filter(pl.col("elapsed_ns") > 0)
        .group_by(*_PLACE, "what", "role", maintain_order=True)
        .agg(pl.col("elapsed_ns").sum())
        .sort(
            pl.col("pipeline"),
            pl.col("step"),
            pl.col("what").replace_strict(order, return_dtype=pl.Int64),
            maintain_order=True,
        )
        .select(*schema(ACTIVITY))
    )


def _in_calls(of: Inputs) -> Iterator[tuple[Any, ...]]:
    """Yield the rows for time inside the tiles of calls."""
    calls = of.table("calls").with_columns(pl.col("stage").cast(pl.String))
    if calls.is_empty():
        return
    calls = calls.with_columns(pipeline=pl.Series(of.pipelines.number_of(of.calls)))
    places = calls.select(_PLACE).unique(maintain_order=True).with_row_index("place")
    place = calls.join(places, on=_PLACE, how="left", maintain_order="left")["place"].to_numpy()
    roles, own = _role_times(of, calls, place, len(places))
    traced = pl.col("ops_traced")
    sums = (
        calls.with_columns(place=pl.Series(place))
        .group_by("place")
        .agg(
            elapsed=pl.col("elapsed_ns").filter(traced).sum(),
            idle=pl.col("idle_inside_ns").filter(traced).sum(),
            bound=pl.col("launch_bound_ns").filter(traced).sum(),
            untraced=pl.col("elapsed_ns").filter(~traced).sum(),
        )
        .sort("place")
    )
    keys, known = places.drop("place").rows(), waits_known(of.run.info)
    for at, elapsed, idle, bound, untraced in sums.iter_rows():
        rest = max(elapsed - int(own[at].sum()), 0)
        waits = min(idle, rest) if known else 0  # another device may work meanwhile
        launch = min(bound, waits)
        for role, length in zip(roles, own[at].tolist(), strict=True):
            yield *keys[at], Activity.WORK, role, length
        yield *keys[at], Activity.OTHER_WORK if known else Activity.NO_OPERATOR, None, rest - waits
        yield *keys[at], Activity.LAUNCH_BOUND, None, launch
        yield *keys[at], Activity.WAIT, None, waits - launch
        yield *keys[at], Activity.UNTRACED, None, untraced


def _role_times(
    of: Inputs, calls: pl.DataFrame, place: np.ndarray[Any, Any], places: int
) -> tuple[list[str], np.ndarray[Any, Any]]:
    """The roles, and the tile time of their commands by place, ns [places, roles]."""
    kinds = of.kinds.table
    works = ~pl.col("host") & (pl.col("category") != "sync") & pl.col("submodule").is_not_null()
    role = pl.when(works).then(kind_roles(of)["role"].cast(pl.String).fill_null("other"))
    of_kind = kinds.select(role=role)["role"]
    roles = of_kind.drop_nulls().unique().sort().to_list()
    number = {name: at for at, name in enumerate(roles)}
    code = np.array([number.get(name, len(roles)) for name in of_kind], dtype=np.int64)
    begin = calls["begin_ns"].fill_null(0).to_numpy()
    length = calls["end_ns"].fill_null(0).to_numpy() - begin
    kept = np.arange(len(roles) + 1) < len(roles)
    own = own_times(
        of.commands,
        code[of.kinds.of_command],
        kept,
        (begin, length),
        place.astype(np.int64),
        places,
    )
    return roles, own[:, :-1]


def _between_calls(of: Inputs) -> Iterator[tuple[Any, ...]]:
    """Yield the rows for time between calls: those of each step, and the rest of its stage."""
    steps, stages = of.table("steps"), of.table("stages")
    for row in steps.iter_rows(named=True):
        key = (row["pipeline"], "denoise", row["step"])
        yield *key, Activity.HOST_WORK, None, row["host_ns"]
        yield *key, Activity.IDLE, None, row["idle_ns"]
    for row in stages.drop_nulls("host_ns").iter_rows(named=True):
        inner = steps if row["stage"] == "denoise" else steps.clear()
        # The parts of a stage add up to it, even if the times of commands are unknown.
        row["idle_ns"] = row["elapsed_ns"] - row["calls_ns"] - row["host_ns"]
        for what, name in ((Activity.HOST_WORK, "host_ns"), (Activity.IDLE, "idle_ns")):
            yield -1, row["stage"], NO_STEP, what, None, row[name] - int(inner[name].sum())


TABLES = (
    Table(
        name="activity",
        row="what devices spent time on in a step, or in a stage outside of its steps",
        section="time",
        columns=ACTIVITY,
        make=_activity,
        title="Activity",
        about="The rows of a stage add up to its `elapsed_ns`, and those of a step to that of the "
        "step, unless calls ran at the same time on several devices. Each moment of a call's tile "
        "is work of the command that started first. In a tile, `launch_bound` is time in which the "
        "device waited for the host to launch, `wait` any other wait, and `other_work` the "
        "device's work for other calls; `untraced` is the time of calls whose operators were not "
        "recorded. If it is not known when commands ran, what is in none of them is `no_operator`. "
        "`host_work` and `idle` lie between calls; outside of steps, their pipeline call "
        "is -1.",
        reads=("calls", "steps", "stages"),
    ),
)

SENTENCES: Sentences = {
    Activity: {
        Activity.OTHER_WORK: "work of other calls",
        Activity.UNTRACED: "calls without operators",
        Activity.NO_OPERATOR: "outside of operators",
        Activity.LAUNCH_BOUND: "waits for the host",
        Activity.WAIT: "other waits",
        Activity.HOST_WORK: "host work",
        Activity.IDLE: "between calls",
    },
    OfDevice: {
        OfDevice.UNRECORDED: "not recorded",
        OfDevice.UNALLOCATED: "before and after its work",
    },
}


# --- Waiting of devices by call: how long each stage and submodule waited, and for what.
#
# Within calls, the rows are the idle time of the idle table by cause, attributed to the call in
# whose tile it lies: over all calls of a device they add up to its `idle_inside_ns`. Between calls
# (`submodule` null), they are the time of a stage in which no call's tile ran on any device and no
# device worked.


WAITS: tuple[Column, ...] = (
    col("device", STRING, "the device that waited; null between calls", True),
    col("stage", STRING, "stage in which it waited"),
    col("submodule", STRING, "submodule in whose calls it waited; null between calls", True),
    col("cause", STRING, "what it waited for"),
    col("wait_ns", NS, "how long"),
)

_Row = tuple[str | None, str, str | None, str, int]
_WAIT_NAMES: dict[str, Said] = {
    WaitCause.LAUNCH: said("waits for the host"),
    WaitCause.OPERATORS: said("between operators"),
    UNKNOWN_CAUSE: said("waits, cause not recorded"),
    WaitCause.SYNC: said("waits for the host after a sync"),
    WaitCause.QUEUE: said("waits in the queue"),
    WaitCause.COPY: said("waits for copies"),
    WaitCause.OTHER_DEVICE: said("waits for another device"),
    WaitCause.HOST: said("between calls"),
    OUTSIDE: said("waits outside of end to end"),
}


def wait_name(cause: str) -> Said:
    """Return what charts call waiting for `cause`."""
    return _WAIT_NAMES[cause]


def activity_name(what: str) -> Said:
    """Return what charts call an `Activity`, an `OfDevice`, or waiting for a cause."""
    return label(what) if isinstance(what, Activity | OfDevice) else wait_name(what)


def waits_known(info: RunInfo) -> bool:
    """Whether the times of commands were recorded, so that the rest of a call is waiting."""
    return times_recorded(info) and not is_host_only(info.health)


@shared
def waits_of(of: Inputs) -> pl.DataFrame:
    """One row per device, stage, submodule and cause (`WAITS`), of the selected calls; between
    calls, one per stage of a whole run. Empty if it was not recorded when commands ran."""
    if not waits_known(of.run.info):
        return pl.DataFrame(schema=schema(WAITS))
    damaged = busy_unknown(of.run.info.health)
    devices = [gaps for gaps in gaps_of(of) if gaps.device not in damaged]
    rows = [row for gaps in devices for row in _waits_in_calls(of, gaps)]
    if devices and not of.selection:
        rows += _waits_between_calls(of, devices)
    return pl.DataFrame(rows, schema=schema(WAITS), orient="row")


def _waits_in_calls(of: Inputs, gaps: DeviceGaps) -> Iterator[_Row]:
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
                named = str(cause_on(gaps.device, cause))
                yield gaps.device, stage, submodule, named, parts[cause]


def _waits_between_calls(of: Inputs, devices: Sequence[DeviceGaps]) -> Iterator[_Row]:
    """Yield a row per stage: its time outside of all tiles while every device was idle."""
    tiles = of.run.tiles.calls
    in_tiles = Stretches.union(tiles["begin_ns"].to_numpy(), tiles["end_ns"].to_numpy())
    dry = reduce(Stretches.both, (gaps.busy.gaps for gaps in devices))
    free = devices[0].counted.both(dry).minus(in_tiles)
    parts = stage_parts(of.run, of.pipelines, of.axis)
    for stage, rows in parts.group_by("stage", maintain_order=True):
        own = Stretches.union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
        if length := free.both(own).length:
            yield None, str(stage[0]), None, str(WaitCause.HOST), length


def adds_up(activity: pl.DataFrame, bars: pl.DataFrame, keys: Sequence[str]) -> bool:
    """Whether `activity` explains each of `bars` (`keys` and elapsed_ns): the rows add up to its
    length, and at least some are work with a role."""
    if activity.is_empty() or bars["elapsed_ns"].has_nulls():
        return False
    if not (activity["what"] == Activity.WORK.value).any():
        return False
    sums = activity.group_by(keys).agg(together=pl.col("elapsed_ns").sum())
    found = bars.select(*keys, "elapsed_ns").join(sums, on=keys, how="left")
    return bool((found["elapsed_ns"] == found["together"].fill_null(0)).all())


# --- What devices did in a stage, if calls ran on several at the same time: the work and the waits
# of each device, as in the tables of devices and of idle time.


_OTHER_WAITS = (
    *(UNKNOWN_CAUSE, WaitCause.SYNC, WaitCause.QUEUE, WaitCause.COPY, WaitCause.OTHER_DEVICE),
)
_SUMS = ("stage", "what", "role")


def activity_of_devices(of: Inputs) -> tuple[pl.DataFrame, int]:
    """Return what devices with calls did in each stage (`stage`, `what` (an `Activity`, an
    `OfDevice` or a cause of waiting), `role`, `elapsed_ns` in ns), and the number of devices. The
    rows of a stage add up to its time multiplied by that number. Empty, and 0, for a single device
    or if the busy times of any are unknown."""
    typed = {**dict.fromkeys(_SUMS, pl.String()), "elapsed_ns": pl.Int64()}
    devices = [gaps for gaps in gaps_of(of) if len(gaps.in_tiles)]
    known = {gaps.device for gaps in devices} - busy_unknown(of.run.info.health)
    tiled = of.run.tiles.calls["tile_device"].cast(pl.String).drop_nulls().unique()
    if of.selection or not waits_known(of.run.info) or known != {*tiled} or len(known) < 2:
        return pl.DataFrame(schema=typed), 0
    stages = _counted_stages(of)
    rows = pl.DataFrame(
        [row for gaps in devices for row in _of_device(gaps, stages)], schema=typed, orient="row"
    )
    work = of.table("activity").filter(pl.col("what") == Activity.WORK.value).select(*typed)
    in_others = {"what": pl.lit(Activity.OTHER_WORK.value), "role": pl.lit(None, pl.String)}
    moved = work.with_columns(-pl.col("elapsed_ns"), **in_others)
    sums = pl.concat([rows, moved, work]).group_by(_SUMS, maintain_order=True)
    found = sums.agg(pl.col("elapsed_ns").sum()).filter(pl.col("elapsed_ns") != 0)
    # Below zero if roles have time that does not count, such as what was not recorded.
    return found, 0 if (found["elapsed_ns"] < 0).any() else len(devices)


def _counted_stages(of: Inputs) -> dict[str, Stretches]:
    """Return the times of each stage, without times that count nowhere."""
    counted = of.axis.of_all().counted
    parts = stage_parts(of.run, of.pipelines, of.axis)
    return {
        str(stage): Stretches.union(*(rows[at].to_numpy() for at in ("start_ns", "end_ns"))).both(
            counted
        )
        for (stage,), rows in parts.group_by("stage", maintain_order=True)
    }


def _of_device(
    gaps: DeviceGaps, stages: Mapping[str, Stretches]
) -> Iterator[tuple[str, str, None, int]]:
    """Yield the rows of a device; all of its work is counted as `OTHER_WORK`."""
    parts_of = gaps.parts_in([*stages.values()])
    for (stage, own), parts in zip(stages.items(), parts_of, strict=True):
        idle = own.both(gaps.busy.gaps).length
        waits: dict[str, int] = {
            Activity.LAUNCH_BOUND: parts[WaitCause.LAUNCH],
            **{cause: parts[cause] for cause in _OTHER_WAITS},
            Activity.IDLE: parts[WaitCause.HOST],
            OfDevice.UNRECORDED: parts[WaitCause.UNRECORDED],
        }
        rest = {
            OfDevice.UNALLOCATED: idle - sum(waits.values()),
            Activity.OTHER_WORK: own.length - idle,
        }
        for what, length in (waits | rest).items():
            yield stage, what, None, length
