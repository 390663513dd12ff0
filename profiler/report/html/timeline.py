"""What the page's timeline draws: lanes of a run, and its events as integer columns.

Times become ns from the first event of the run, so that a browser's doubles hold them exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.axis import Axis
from profiler.analysis.host_side import has_accelerators, host_categories
from profiler.analysis.roofline.codes import Bound
from profiler.report.extent import extent
from profiler.report.html.timeline_bounds import bound_codes
from profiler.report.html.timeline_columns import (
    Strings,
    call_columns,
    command_columns,
    flow_columns,
)
from profiler.report.html.timeline_modules import module_stretches
from profiler.report.html.timeline_spans import LANES, SpanLane, drawn_spans
from profiler.report.pack import Table
from profiler.run.intervals import is_sorted, order_by, text_codes
from profiler.run.run import Run
from profiler.text import said
from profiler.trace.events import CALLS_TRACK, CATEGORIES, HOST_TRACK

__all__ = ["COMMAND_LIMIT", "Timeline", "timeline_of"]

COMMAND_LIMIT = 1_000_000  # commands in one page; of more, the longest are kept and it says so


class Timeline(Struct, frozen=True, eq=False):
    """`document` goes into the page as JSON, `tables` as packed columns.

    A lane in `document["lanes"]` holds `count` rows from `first` of the table `kind`; the category
    of a lane of commands names all that its commands have, `host` holds the places in `categories`
    of those whose commands on its device are the host's. Text columns hold indices into
    `document["strings"]`, -1 for null; those of categories into `document["categories"]`.
    `strings` adds others to the same list.
    """

    document: dict[str, Any]
    tables: dict[str, Table]
    strings: Strings


def timeline_of(
    run: Run,
    limit: int = COMMAND_LIMIT,
    axis: Axis | None = None,
    bounds: pl.DataFrame | None = None,
) -> Timeline:
    """The timeline of `run` with at most `limit` commands, the longest of them; `axis` is the
    run's, where it is there already, `bounds` the table `roofline`, which tells what commands are
    bound by."""
    begin, end = extent(run)
    strings = Strings()
    commands = _longest(run.commands, limit)
    tables: dict[str, Table] = {}
    lanes = [
        *_span_lanes(run, axis, begin, strings, tables),
        *_device_lanes(run, commands, begin, strings, tables, bounds),
    ]
    lanes = _with_counters(lanes, run.counters, begin, tables)
    document = {
        "span": end - begin,
        "commands": len(run.commands),
        "devices": {
            name: _hardware(run, name) for name in sorted({lane["device"] for lane in lanes})
        },
        "lanes": lanes,
        "tables": [*tables],
        "strings": strings.values,
        "categories": [*CATEGORIES],
        "bounds": [*Bound],
    }
    return Timeline(document, tables, strings)


def _longest(commands: pl.DataFrame, limit: int) -> pl.DataFrame:
    """The `limit` longest commands, of equally long ones the first; `_row_of_run` are their rows.

    Nothing of the others is copied but their duration.
    """
    dropped = len(commands) - limit
    if dropped <= 0:
        return commands.with_columns(_row_of_run=pl.int_range(pl.len(), dtype=pl.Int32))
    duration = commands["duration_ns"].to_numpy()
    shortest = np.partition(duration, dropped)[dropped]
    kept = duration > shortest
    kept[np.flatnonzero(duration == shortest)[: limit - np.count_nonzero(kept)]] = True
    rows = pl.Series(np.flatnonzero(kept).astype(np.int32))
    return commands.filter(pl.Series(kept)).with_columns(_row_of_run=rows)


def _span_lanes(
    run: Run, axis: Axis | None, begin: int, strings: Strings, tables: dict[str, Table]
) -> Iterator[dict[str, Any]]:
    """A lane for each kind of span that the run has, above all devices; for each pipeline call,
    where stages of several would lie on each other."""
    spans = drawn_spans(run, axis)
    several = _overlap(spans.filter(pl.col("lane") == SpanLane.STAGES))
    pipeline = pl.col("pipeline").clip(0) * several
    lane_of = pipeline * len(SpanLane) + pl.col("lane")
    ordered = spans.with_columns(_lane=lane_of).sort("_lane", "start_ns")
    tables["spans"] = {
        "start": ordered["start_ns"].to_numpy() - begin,
        "duration": ordered["duration_ns"].to_numpy(),
        "name": strings.codes(ordered["name"]),
        "stage": strings.codes(ordered["stage"]),
        "step": ordered["step"].to_numpy(),
    }
    for lane, first, count in _runs(ordered["_lane"].to_numpy()):
        name = LANES[SpanLane(lane % len(SpanLane))]
        if several:
            name = said("{lane} of call {call}", lane=name, call=lane // len(SpanLane))
        yield _lane("", name, "spans", "", first, count)


def _overlap(stages: pl.DataFrame) -> bool:
    """Whether stages of different pipeline calls ran at the same time."""
    windows = (
        stages.filter(pl.col("pipeline") >= 0)
        .group_by("pipeline")
        .agg(pl.col("start_ns").min(), end=(pl.col("start_ns") + pl.col("duration_ns")).max())
        .sort("start_ns")
    )
    return bool((windows["end"].shift(1).cum_max() > windows["start_ns"]).any())


def _device_lanes(
    run: Run,
    commands: pl.DataFrame,
    begin: int,
    strings: Strings,
    tables: dict[str, Table],
    bounds: pl.DataFrame | None,
) -> Iterator[dict[str, Any]]:
    """For each device its calls, its host track, its other tracks; fills `tables`."""
    calls = _on_axis(run).sort(pl.col("device").cast(pl.String), "start_ns")
    places, modules = _places(commands), module_stretches(commands, calls)
    lane = _lane_of(commands, places)
    order = _in_lanes(commands, lane, len(places))
    if order is not None:
        lane, commands = lane[order], commands[order]
    tables["calls"] = call_columns(calls, begin, strings)
    columns = command_columns(commands, calls, begin, strings)
    tables["commands"] = {**columns, "bound": bound_codes(commands, calls, bounds)}
    tables["flows"] = flow_columns(run, commands)
    accelerated = has_accelerators(run.commands["device"].unique())
    tracks: dict[str, list[dict[str, Any]]] = {}
    for name, first, count in _named_runs(calls["device"]):
        tracks[name] = [_lane(name, said(CALLS_TRACK), "calls", "", first, count)]
    tables["modules"] = {
        "start": modules["start"].to_numpy() - begin,
        "duration": (modules["end"] - modules["start"]).to_numpy(),
        "name": strings.codes(modules["module"]),
        "call": modules["row"].to_numpy(),
    }
    rows = places.rows(named=True)
    for number, first, count in _runs(lane):
        row = rows[number]
        device = row["device"] or ""
        kinds = ", ".join(row["categories"])
        drawn = _lane(device, row["track"], "commands", kinds, first, count)
        drawn["host"] = [*map(CATEGORIES.index, host_categories(device, accelerated=accelerated))]
        tracks.setdefault(device, []).append(drawn)
    for name, first, count in _named_runs(modules["device"]):
        above = sum(lane["track"] in (CALLS_TRACK, HOST_TRACK) for lane in tracks[name])
        tracks[name].insert(above, _lane(name, said("Modules"), "modules", "", first, count))
    for device in sorted(tracks, key=_natural):
        yield from tracks[device]


def _with_counters(
    lanes: list[dict[str, Any]], counters: pl.DataFrame, begin: int, tables: dict[str, Table]
) -> list[dict[str, Any]]:
    """`lanes` with a lane for each counter below those of its device; fills `tables`."""
    ordered = counters.with_columns(
        _lane=pl.concat_str(
            pl.col("device", "name", "unit").cast(pl.String), separator="\0", ignore_nulls=True
        ),
        device=pl.col("device").cast(pl.String).fill_null(""),
    ).sort("device", "_lane", "time_ns")
    tables["counters"] = {
        "start": ordered["time_ns"].to_numpy() - begin,
        "value": ordered["value"].fill_nan(0).clip(-(2.0**62), 2.0**62).cast(pl.Int64).to_numpy(),
    }
    found: dict[str, list[dict[str, Any]]] = {}
    for _, first, count in _runs(ordered["_lane"].rle_id().to_numpy()):
        device, name, unit = ordered.select("device", "name", "unit").row(first)
        lane = _lane(device, name, "counters", unit or "", first, count)
        found.setdefault(device, []).append(lane)
    last = {lane["device"]: position for position, lane in enumerate(lanes)}
    with_counters = []
    for position, lane in enumerate(lanes):
        with_counters.append(lane)
        if last[lane["device"]] == position and lane["device"]:
            with_counters.extend(found.pop(lane["device"], []))
    return [*with_counters, *(lane for device in sorted(found) for lane in found[device])]


def _on_axis(run: Run) -> pl.DataFrame:
    """The calls, on devices with recorded launches, and on those that noted calls, with begin and
    length of their tiles, so that they lie above their kernels; `host_ns` is how long the host's
    range is."""
    tiles = run.tiles.calls.select("call", "tile_device", "begin_ns", "end_ns", "lead_ns")
    calls = run.calls.with_columns(host_ns=pl.col("duration_ns")).join(
        tiles, on="call", how="left", maintain_order="left"
    )
    device = pl.col("device").cast(pl.String)
    told = pl.col("lead_ns").is_not_null() | pl.col("device_duration_ns").is_not_null()
    launched = told.any().over("tile_device")
    there = launched & (device == pl.col("tile_device"))
    return calls.with_columns(
        start_ns=pl.when(there).then("begin_ns").otherwise("start_ns"),
        duration_ns=pl.when(there)
        .then(pl.col("end_ns") - pl.col("begin_ns"))
        .otherwise("duration_ns"),
    )


def _lane_of(commands: pl.DataFrame, places: pl.DataFrame) -> npt.NDArray[np.int64]:
    """The lane of each command: the row of its place."""
    device, devices = text_codes(commands["device"])
    track, tracks = text_codes(commands["track"])
    table = np.zeros((len(devices) + 1, len(tracks)), dtype=np.int64)
    numbers = {name: number for number, name in enumerate(devices)}
    columns = {name: number for number, name in enumerate(tracks)}
    for lane, (device_name, track_name) in enumerate(places.select("device", "track").rows()):
        table[numbers.get(device_name, len(devices)), columns[track_name]] = lane
    return table[device, track]


def _in_lanes(
    commands: pl.DataFrame, lane: npt.NDArray[np.int64], lanes: int
) -> npt.NDArray[np.int64] | None:
    """The order of commands by lane, start and length, the longest first; None where they are in
    it."""
    start = commands["start_ns"].to_numpy()
    length = np.maximum(commands["duration_ns"].to_numpy(), 0)
    later, longer = start[1:] > start[:-1], length[1:] > length[:-1]
    in_time = bool((later | ((start[1:] == start[:-1]) & ~longer)).all())
    if in_time:
        return None if is_sorted(lane) else order_by(lane, lanes)
    order = np.lexsort((-length, start))
    return order[order_by(lane[order], lanes)]


def _places(commands: pl.DataFrame) -> pl.DataFrame:
    """Device, track and categories of each lane, in the order of display."""
    categories = pl.col("category").unique().sort()  # in the order of `CATEGORIES`
    found = commands.group_by("device", "track").agg(categories=categories)
    rows = found.rows(named=True)
    rows.sort(key=lambda row: (_natural(row["device"] or ""), _track_order(row)))
    return pl.DataFrame(rows, schema=found.schema)


def _track_order(row: dict[str, Any]) -> tuple[Any, ...]:
    """A device's host track first, then tracks by the first category of work on the device."""
    host, categories = row["track"] == HOST_TRACK, row["categories"]
    kind = next((name for name in categories if name != "host"), categories[0])
    return (not host, CATEGORIES.index(kind), _natural(row["track"]))


def _lane(
    device: str, track: str, kind: str, category: str, first: int, count: int
) -> dict[str, Any]:
    return {
        "device": device,
        "track": track,
        "kind": kind,
        "category": category,
        "first": first,
        "count": count,
    }


def _runs(values: npt.NDArray[Any]) -> Iterator[tuple[int, int, int]]:
    """`(value, first, count)` of each run of equal values."""
    if not len(values):
        return
    heads = np.concatenate(([0], np.flatnonzero(values[1:] != values[:-1]) + 1))
    for head, count in zip(heads, np.diff(heads, append=len(values)), strict=True):
        yield int(values[head]), int(head), int(count)


def _named_runs(column: pl.Series) -> Iterator[tuple[str, int, int]]:
    """`(text, first, count)` of each run of equal texts."""
    codes, names = text_codes(column)
    for code, first, count in _runs(codes):
        yield names[code], first, count


def _hardware(run: Run, device: str) -> str:
    known = run.info.devices.get(device)
    return known.hardware if known else ""


def _natural(name: str) -> tuple[bool, list[tuple[int, str]]]:
    """Sort key by which `stream 7` comes before `stream 13`, and no name comes last."""
    parts = re.split(r"(\d+)", name)
    return (not name, [(int(part), "") if part.isdigit() else (-1, part) for part in parts])
