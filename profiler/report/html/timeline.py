"""The timeline of the HTML page: lanes of devices, modules and steps, as integer columns.

Times are ns from the run's first event, so a browser's doubles are exact. Stages and steps are
on the devices' axis, as in the tables; the host's own ranges are in separate lanes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.commands import has_accelerators, host_categories, places_by_layer
from profiler.analysis.overview import extent
from profiler.analysis.provenance import Table
from profiler.analysis.roofline import Bound
from profiler.analysis.steps import step_spans
from profiler.analysis.timeline import Axis, PipelineCalls, calls_on_axis, stage_parts
from profiler.run.columns import TEXT
from profiler.run.intervals import (
    Codes,
    Times,
    group_heads,
    is_sorted,
    order_by,
    rows_of_calls,
    text_codes,
)
from profiler.run.launches import device_work
from profiler.run.run import Run
from profiler.text import said
from profiler.trace.events import CALLS_TRACK, CATEGORIES, HOST_TRACK, NO_STEP

# --- The bound of each command in the page's timeline.


_KEYS = ("submodule", "layer", "device")
_MOST = 1 << 24  # combinations of keys: a lookup table of one byte each


def bound_codes(
    commands: pl.DataFrame, calls: pl.DataFrame, bounds: pl.DataFrame | None
) -> npt.NDArray[np.int64]:
    """Return the index in `Bound` of each command's operator, -1 if not known: int64 [commands].
    `bounds` is the table `roofline`."""
    unknown = np.full(len(commands), -1, dtype=np.int64)
    if bounds is None or bounds.is_empty():
        return unknown
    rows = rows_of_calls(commands["call"], calls["call"])
    of_call, submodules = text_codes(calls["submodule"])
    layer, layers = text_codes(commands["layer"])
    device, devices = text_codes(commands["device"])
    submodule = np.append(of_call, len(submodules))[rows]  # index -1 is for no call
    names = (submodules, layers, devices)
    size = (len(submodules) + 1, len(layers) + 1, len(devices) + 1)
    if np.prod(size) > _MOST:
        return unknown
    table = np.full(size, -1, dtype=np.int8)
    places = [{name: place for place, name in enumerate(each)} for each in names]
    known = {str(bound): code for code, bound in enumerate(Bound)}
    for *key, bound in bounds.select(*_KEYS, "bound").iter_rows():
        at = [place.get(name) for place, name in zip(places, key, strict=True)]
        if bound in known and None not in at:
            table[tuple(at)] = known[bound]
    codes: npt.NDArray[np.int64] = table[submodule, layer, device].astype(np.int64)
    return codes


# --- Events of a run as integer columns for the page: texts become codes, calls become rows.


class Strings:
    """The strings of all text columns, without duplicates."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._index: dict[str, int] = {}

    def codes(self, column: pl.Series) -> npt.NDArray[np.int64]:
        """Index of each value, -1 for null."""
        if column.dtype == pl.String:
            column = column.cast(pl.Categorical())
        codes, names = text_codes(column)
        return np.array([*map(self._intern, names), -1], dtype=np.int64)[codes]

    def _intern(self, text: str) -> int:
        index = self._index.setdefault(text, len(self.values))
        if index == len(self.values):
            self.values.append(text)
        return index


def call_columns(calls: pl.DataFrame, begin: int, strings: Strings) -> Table:
    """Return the calls as columns, in the order of `calls`, which have `host_ns` beside a run's
    columns."""
    text = ("stage", "submodule", "branch", "input_shapes")
    return {
        "call": calls["call"].to_numpy().astype(np.int64),
        "start": calls["start_ns"].to_numpy() - begin,
        "duration": calls["duration_ns"].to_numpy(),
        "host": calls["host_ns"].to_numpy(),
        "step": calls["step"].to_numpy().astype(np.int64),
        "traced": calls["ops_traced"].to_numpy().astype(np.int64),
        **{name: strings.codes(calls[name]) for name in text},
    }


def command_columns(
    commands: pl.DataFrame, calls: pl.DataFrame, begin: int, strings: Strings
) -> Table:
    """`call` becomes the row of the call in the table of calls, -1 for none; `category` its place
    in `CATEGORIES`."""
    numbers = ("bytes_read", "bytes_written", "flops")
    text = ("layer", "op_type", "kernel", "role", "shapes", "stage")
    return {
        "start": commands["start_ns"].to_numpy() - begin,
        "duration": commands["duration_ns"].to_numpy(),
        "call": rows_of_calls(commands["call"], calls["call"]).astype(np.int64),
        "index": commands["command_index"].to_numpy().astype(np.int64),
        "step": commands["step"].to_numpy().astype(np.int64),
        "category": _category_codes(commands["category"]),
        **{name: commands[name].fill_null(-1).to_numpy() for name in numbers},
        **{name: strings.codes(commands[name]) for name in text},
    }


def _category_codes(column: pl.Series) -> npt.NDArray[np.int64]:
    """The place of each category in `CATEGORIES`."""
    codes, names = text_codes(column)
    return np.array([*map(CATEGORIES.index, names), -1], dtype=np.int64)[codes]


def flow_columns(run: Run, commands: pl.DataFrame) -> Table:
    """The dependencies between rows of the table of commands, without those of omitted rows."""
    rows = len(run.commands) if len(run.flows) else 0
    position = np.full(rows, -1, dtype=np.int32)
    if rows:
        position[commands["_row_of_run"].to_numpy()] = np.arange(len(commands))
    source, target = (position[run.flows[name].to_numpy()] for name in ("source", "target"))
    kept = (source >= 0) & (target >= 0)
    return {"source": source[kept].astype(np.int64), "target": target[kept].astype(np.int64)}


# --- The lanes of modules in the page's timeline: when the model's blocks ran.


# "transformer_blocks.7" of "transformer_blocks.7.ff.net.0"
_MODULE = r"^(.*?[./_\[][0-9]+)(?:[./\]]|$)"
_WORTH = 4  # average commands per module, below which its lane is useless
_COMPUTE = CATEGORIES.index("compute")
_STRETCHES: Mapping[str, pl.DataType] = {
    "device": TEXT,
    "module": pl.String(),
    "row": pl.Int64(),
    "start": pl.Int64(),
    "end": pl.Int64(),
}


def module_stretches(commands: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Find intervals of one call's compute commands whose places start alike: the model's blocks.

    Columns `device, module, start, end` and `row`, that of the call in `calls`, by device and
    start. Empty if places contain no numbered modules, or a module has hardly more than one
    command.
    """
    module, modules = _modules(commands)
    row = rows_of_calls(commands["call"], calls["call"])
    compute = commands["category"].to_physical().to_numpy() == _COMPUTE
    rows = np.flatnonzero(compute & (row >= 0))
    if not modules or not len(rows):
        return pl.DataFrame(schema=_STRETCHES)
    rows = rows[_by_call(row[rows], commands["start_ns"].to_numpy()[rows], len(calls))]
    start, length = (commands[name].to_numpy()[rows] for name in ("start_ns", "duration_ns"))
    heads = group_heads(row[rows], module[rows])
    ends = np.maximum.reduceat(start + np.maximum(length, 0), heads)
    kept = np.flatnonzero(module[rows][heads] >= 0)
    counts = np.diff(heads, append=len(rows))[kept]
    if counts.sum() < _WORTH * len(kept):
        return pl.DataFrame(schema=_STRETCHES)
    first = rows[heads[kept]]
    return pl.DataFrame(
        {
            "device": commands["device"].gather(first),
            "module": pl.Series(modules, dtype=pl.String).gather(module[first]),
            "row": row[first],
            "start": start[heads[kept]],
            "end": ends[kept],
        },
        schema=_STRETCHES,
    ).sort(pl.col("device").cast(pl.String), "start", maintain_order=True)


def _modules(commands: pl.DataFrame) -> tuple[Codes, list[str]]:
    """Return the module number of each command, -1 for none, and the modules' names. An operator
    without a module has none even if its name ends in a number: `triton_poi_fused_add_8`."""
    codes, layers = text_codes(commands["layer"])
    places = places_by_layer(commands)
    pairs = commands.select(pl.col("layer", "op_type").cast(pl.String)).unique()
    alone = {*pairs.filter(pl.col("layer") == pl.col("op_type"))["layer"]}
    found = pl.Series(
        [None if layer in alone else places[layer] for layer in layers], dtype=pl.String
    )
    named = found.str.extract(_MODULE).to_list()
    modules = [*dict.fromkeys(name for name in named if name is not None)]
    number = {name: place for place, name in enumerate(modules)}
    table = np.array([*(number.get(name, -1) for name in named), -1], dtype=np.int64)
    return table[codes], modules


def _by_call(row: Codes, start: Times, calls: int) -> Times:
    """Sort commands by the row of their call, then start."""
    order = order_by(row, calls)
    ordered, begins = row[order], start[order]
    if bool(((begins[1:] >= begins[:-1]) | (ordered[1:] != ordered[:-1])).all()):
        return order
    return np.lexsort((start, row))


# --- The stages and steps of the timeline: on the devices' axis, as in the tables.
#
# If devices work behind the host, its own ranges lie elsewhere; they are drawn below, in lanes
# that say so. What the profiler did is the host's everywhere.


class SpanLane(IntEnum):
    """The lanes of spans, in drawing order."""

    STAGES = 0
    STEPS = 1
    HOST_STAGES = 2
    HOST_STEPS = 3
    PROFILER = 4
    HOST_ACTIVITY = 5


LANES = {
    SpanLane.STAGES: said("Stages"),
    SpanLane.STEPS: said("Steps"),
    SpanLane.HOST_STAGES: said("Stages (host)"),
    SpanLane.HOST_STEPS: said("Steps (host)"),
    SpanLane.PROFILER: said("Profiler"),
    SpanLane.HOST_ACTIVITY: said("Host in long gaps"),
}
_COLUMNS = ("lane", "pipeline", "name", "stage", "step", "start_ns", "duration_ns")


def drawn_spans(run: Run, axis: Axis | None = None) -> pl.DataFrame:
    """The spans of all lanes, in any order: `lane`, `pipeline`, `name`, `stage`, `step`,
    `start_ns`, `duration_ns`. `axis` is the run's."""
    pipelines = PipelineCalls.of(run) if axis is None else axis.pipelines
    axis = Axis.of(run, pipelines) if axis is None else axis
    noted = run.calls["device_duration_ns"].is_not_null()
    behind = bool((run.tiles.calls["queue_lead_ns"].is_not_null() | noted).any())
    stages = _recorded(run, "stage", SpanLane.HOST_STAGES)
    parts = pl.DataFrame(schema=stages.schema)
    if len(stages) and len(pipelines.spans):  # else how long a stage lasted is not known
        parts = _stages(stage_parts(run, pipelines, axis))
    steps = _recorded(run, "step", SpanLane.HOST_STEPS)
    return pl.concat(
        [
            *_both(parts, stages, behind=behind),
            *_both(_steps(step_spans(run, pipelines), run), steps, behind=behind),
            _recorded(run, "profiler", SpanLane.PROFILER),
            _host_activities(run),
        ]
    )


def _host_activities(run: Run) -> pl.DataFrame:
    """The host activities during the longest gaps of devices: Python functions, if stacks were
    recorded, else operators and runtime calls. Of overlapping ones the first is shown: importers
    keep a bounded number, since a trace with stacks has hundreds of thousands of frames."""
    shown, end = [], 0
    for one in sorted(run.info.host_activities, key=lambda one: one.start_ns):
        if one.start_ns >= end:
            shown.append((one.name, one.start_ns, one.duration_ns))
            end = one.start_ns + one.duration_ns
    frame = pl.DataFrame(shown, ("name", "start_ns", "duration_ns"), orient="row")
    none = pl.lit(None, dtype=pl.String)
    return _typed(
        frame.with_columns(pipeline=pl.lit(NO_STEP), step=pl.lit(NO_STEP), stage=none),
        SpanLane.HOST_ACTIVITY,
    )


def _both(drawn: pl.DataFrame, recorded: pl.DataFrame, *, behind: bool) -> list[pl.DataFrame]:
    """Return the spans on the devices' axis, and the recorded ones if these differ."""
    if drawn.is_empty():
        on_axis = int(recorded["lane"][0]) - SpanLane.HOST_STAGES if len(recorded) else 0
        lane = pl.lit(on_axis, dtype=pl.Int64)
        return [recorded if behind else recorded.with_columns(lane=lane)]
    times = ("start_ns", "duration_ns")
    alike = drawn.select(times).sort(times).equals(recorded.select(times).sort(times))
    return [drawn, recorded] if behind and not alike else [drawn]


def _stages(parts: pl.DataFrame) -> pl.DataFrame:
    return _of_lane(parts.with_columns(name="stage", step=pl.lit(NO_STEP)), SpanLane.STAGES)


def _steps(parts: pl.DataFrame, run: Run) -> pl.DataFrame:
    """Steps with the stage of their calls, or of their recorded spans."""
    text = pl.col("stage").cast(pl.String)
    labelled = pl.concat(
        frame.filter(pl.col("step") > NO_STEP).select("step", stage=text)
        for frame in (run.calls, run.spans)
    )
    stages = labelled.drop_nulls().unique("step", keep="first", maintain_order=True)
    named = parts.join(stages, on="step", how="left", maintain_order="left")
    return _of_lane(named.with_columns(name=pl.format("step {}", "step")), SpanLane.STEPS)


def _of_lane(parts: pl.DataFrame, lane: SpanLane) -> pl.DataFrame:
    length = pl.col("end_ns") - pl.col("start_ns")
    return _typed(parts.with_columns(duration_ns=length), lane)


def _recorded(run: Run, kind: str, lane: SpanLane) -> pl.DataFrame:
    return _typed(run.spans.filter(pl.col("kind").cast(pl.String) == kind), lane)


def _typed(frame: pl.DataFrame, lane: SpanLane) -> pl.DataFrame:
    return frame.select(
        pl.lit(int(lane), dtype=pl.Int64).alias("lane"),
        pl.col("pipeline", "step", "start_ns", "duration_ns").cast(pl.Int64),
        pl.col("name", "stage").cast(pl.String),
    ).select(_COLUMNS)


# --- The timeline of the page: lanes of a run, and its events as integer columns.
#
# Times become ns from the first event of the run, so that a browser's doubles are exact.


_PARTS = 1000  # resolution of counters with fractions: 1 / 1000
COMMAND_LIMIT = 1_000_000  # commands in one page; above, the longest are kept and it says so


class Timeline(Struct, frozen=True, eq=False):
    """The timeline of a page: `document` is JSON, `tables` are packed columns.

    A lane in `document["lanes"]` is `count` rows from `first` of the table `kind`. The category of
    a lane of commands names all categories of its commands; `host` has the indices in `categories`
    of those that are the host's on its device. `document["work"]` has the indices of the categories
    that make a device busy. Values of a counter are multiples of 1 / `parts` of its lane. Text
    columns are indices into `document["strings"]`, -1 for null; categories into
    `document["categories"]`. `strings` adds others to the same list.
    """

    document: dict[str, Any]
    tables: dict[str, Table]
    strings: Strings


def timeline_of(
    run: Run,
    limit: int = COMMAND_LIMIT,
    axis: Axis | None = None,
    bounds: pl.DataFrame | None = None,
    roles: pl.Series | None = None,
) -> Timeline:
    """Make the timeline of `run` with its `limit` longest commands; `axis` is the run's, if it
    exists already, `bounds` the table `roofline`, which has the bounds of commands, `roles` the
    role of each command."""
    begin, end = extent(run)
    strings = Strings()
    commands = _longest(run.commands, limit)
    if roles is not None:
        commands = commands.with_columns(role=roles.gather(commands["_row_of_run"]))
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
            name: known.hardware if (known := run.info.devices.get(name)) else ""
            for name in sorted({lane["device"] for lane in lanes})
        },
        "lanes": lanes,
        "tables": [*tables],
        "strings": strings.values,
        "categories": [*CATEGORIES],
        "work": np.flatnonzero(device_work(np.arange(len(CATEGORIES)))).tolist(),
        "bounds": [*Bound],
    }
    return Timeline(document, tables, strings)


def _longest(commands: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Select the `limit` longest commands, the first of equally long ones; `_row_of_run` are their
    rows.

    Copies only the duration of the others.
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
    """Yield a lane above all devices for each kind of span that the run has; one per pipeline call,
    if their stages would overlap."""
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
    calls = calls_on_axis(run).sort(pl.col("device").cast(pl.String), "start_ns")
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
    value = pl.col("value").fill_nan(0).clip(-(2.0**62), 2.0**62)
    small = value.abs().max() < 2**40
    parts = pl.when((value != value.floor()).any() & small).then(_PARTS).otherwise(1).over("_lane")
    ordered = ordered.with_columns(value=(value * parts).cast(pl.Int64), _parts=parts)
    tables["counters"] = {
        "start": ordered["time_ns"].to_numpy() - begin,
        "value": ordered["value"].to_numpy(),
    }
    found: dict[str, list[dict[str, Any]]] = {}
    for _, first, count in _runs(ordered["_lane"].rle_id().to_numpy()):
        device, name, unit, parts_of = ordered.select("device", "name", "unit", "_parts").row(first)
        unit = unit if unit == "bytes" else ""  # other units are in the name
        lane = _lane(device, name, "counters", unit, first, count) | {"parts": parts_of}
        found.setdefault(device, []).append(lane)
    last = {lane["device"]: position for position, lane in enumerate(lanes)}
    with_counters = []
    for position, lane in enumerate(lanes):
        with_counters.append(lane)
        if last[lane["device"]] == position and lane["device"]:
            with_counters.extend(found.pop(lane["device"], []))
    return [*with_counters, *(lane for device in sorted(found) for lane in found[device])]


def _lane_of(commands: pl.DataFrame, places: pl.DataFrame) -> npt.NDArray[np.int64]:
    """The lane of each command: the row of its device and track in `places`."""
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
    """The order of commands by lane, start and length, longest first; None if sorted."""
    start = commands["start_ns"].to_numpy()
    length = np.maximum(commands["duration_ns"].to_numpy(), 0)
    later, longer = start[1:] > start[:-1], length[1:] > length[:-1]
    in_time = bool((later | ((start[1:] == start[:-1]) & ~longer)).all())
    if in_time:
        return None if is_sorted(lane) else order_by(lane, lanes)
    order = np.lexsort((-length, start))
    return order[order_by(lane[order], lanes)]


def _places(commands: pl.DataFrame) -> pl.DataFrame:
    """Device, track and categories of each lane, in display order."""
    categories = pl.col("category").unique().sort()  # in the order of `CATEGORIES`
    found = commands.group_by("device", "track").agg(categories=categories)
    rows = found.rows(named=True)
    rows.sort(key=lambda row: (_natural(row["device"] or ""), _track_order(row)))
    return pl.DataFrame(rows, schema=found.schema)


def _track_order(row: dict[str, Any]) -> tuple[Any, ...]:
    """The sort key of a track: the host's first, then by the first category of device work."""
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


def _natural(name: str) -> tuple[bool, list[tuple[int, str]]]:
    """The natural sort key: `stream 7` before `stream 13`, and no name last."""
    parts = re.split(r"(\d+)", name)
    return (not name, [(int(part), "") if part.isdigit() else (-1, part) for part in parts])
