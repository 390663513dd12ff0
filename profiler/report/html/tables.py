"""Tables of the HTML page as JSON: sortable tables, device overview.

`templates/tables.js` reads them. Many short calls in a row become
one rectangle, so the first screen has the same size for a million commands as for a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import to_builtins
from msgspec.structs import replace

from profiler.analysis.activity import wait_name, waits_of
from profiler.analysis.document import TableView
from profiler.analysis.idle import busy_timeline, gaps_of
from profiler.analysis.module_tree import MODULE_TREE, nodes_of
from profiler.analysis.operators import OPERATORS
from profiler.analysis.operators_section import LAYERS
from profiler.analysis.provenance import Table
from profiler.analysis.result import Analysis
from profiler.analysis.table_text import (
    Node,
    columns_of,
    renamed,
    worded_column,
)
from profiler.compare.report import Difference
from profiler.compare.text import difference_text
from profiler.report.html.timeline import LANES, SpanLane, Timeline
from profiler.report.language import spoken
from profiler.run.columns import (
    CALLS,
    COMMANDS,
    FLOAT64,
    INT64,
    MINOR,
    NS,
    STRING,
    Column,
    col,
)
from profiler.text import duration, said
from profiler.trace.events import CATEGORIES, RUN_STAGE

# --- Tables of a report as JSON, as `templates/tables.js` takes them.


# Columns by which the page's selection filters rows, shown or not (`templates/selection.js`), of
# tables that do not declare which columns are keys.
_DIMENSIONS = {
    "stage": "stage",
    "submodule": "submodule",
    "branch": "branch",
    "step": "step",
    "device": "device",
    "role": "role",
    "layer": "operator",
    "call": "call",
}


def table_json(view: TableView) -> dict[str, Any]:
    """Return a table as JSON: columns with their meanings, values by column, and options of the
    page. A text that a terminal has below a row is a column."""
    if view.below is not None:
        totals = view.totals
        if totals is not None and view.below.name not in totals.columns:
            totals = totals.with_columns(pl.lit(None, pl.String).alias(view.below.name))
        view = replace(view, columns=(*view.columns, view.below), totals=totals, below=None)
    frame, names = view.rows, {column.name for column in view.columns}
    declared = any(column.key for column in view.columns)
    keys = {
        dimension: frame[name].to_list()
        for name, dimension in _DIMENSIONS.items()
        if name in frame.columns and name not in names and not declared
    }
    document: dict[str, Any] = {
        "name": said(view.name),
        "columns": described(view.columns),
        "values": _values(view, frame),
        "shown": view.shown,
        "search": view.search,
        "keys": keys,
    }
    words = _words(view, frame)
    if view.sort:
        document["sort"] = view.sort
    if len(frame) < len(view.frame):
        document["total"] = len(view.frame)
    if view.totals is not None:
        document["totals"] = _values(view, view.totals)
        words += map(said, view.totals[view.columns[0].name])
    if words:
        document["words"] = words
    if view.opens:
        document["opens"] = view.opens.value
    if "host" in frame.columns and frame["host"].n_unique() == 1:
        document["host"] = frame["host"][0]
    if view.nested:
        document["nested"] = True
        document["values"] |= {name: frame[name].to_list() for name in ("depth", "name")}
    if view.variants:
        document["variants"] = [
            {"label": said(label), "values": _values(view, rows)}
            for label, rows in ((view.label, frame), *view.variants)
        ]
    return document


def described(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Return the columns in the form that the page's scripts read."""
    return [
        {
            "name": column.name,
            "label": said(column.label),
            "kind": column.kind,
            "meaning": said(column.meaning),
            "minor": column.importance >= MINOR,
            "rank": column.importance,
            "key": column.key,
            "adds": None if column.adds is None else to_builtins(column.adds),
        }
        for column in columns
    ]


def _values(view: TableView, frame: pl.DataFrame) -> dict[str, list[Any]]:
    return {column.name: plain_values(column, frame[column.name]) for column in view.columns}


def _words(view: TableView, frame: pl.DataFrame) -> list[str]:
    """The distinct texts in columns of words, for which the page gets translations."""
    columns = [column for column in view.columns if column.kind == "word"]
    said_once = {
        text for column in columns for text in worded_column(column, frame[column.name].unique())
    }
    return sorted(text for text in said_once if text)


def plain_values(column: Column, values: pl.Series) -> list[Any]:
    """Return values as JSON values: not-a-number is null; reals have five digits."""
    if values.dtype.is_nested():
        return [_listed(value) for value in values.to_list()]
    if not values.dtype.is_float():
        return worded_column(column, values)
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
        for value in values.to_list()
    ]


def _listed(values: Any) -> str | None:
    """Join the values of a list into one text."""
    return None if values is None else ", ".join(map(str, values))


# --- Columns of the tables that the page itself fills: layers and commands of a call or of a row of
# operators, and lanes in view.


_OF_LAYERS = (
    "layer",
    "op_types",
    col("role", STRING, "what the operator is for in a diffusion model", kind="text"),
    LAYERS,
    "devices",
    "commands",
    "calls",
    "total_ns",
    renamed(OPERATORS, "share", label="share of these"),
)
_LANES = (
    col("device", STRING, said("device whose lane it is"), True, kind="text"),
    col("track", STRING, said("track, or what the lane shows"), kind="text"),
    col("events", INT64, said("events that lie in the window"), True),
    col("time", NS, said("time in the window in which any of them ran")),
    col("share", FLOAT64, said("part of the window in which any of them ran"), kind="share"),
)
_COMMANDS = (
    renamed(COMMANDS, "start_ns", kind="instant"),
    "duration_ns",
    renamed(COMMANDS, "call", kind="step"),
    renamed(COMMANDS, "step", kind="step"),
    renamed(COMMANDS, "command_index", label="index"),
    "device",
    "track",
    "op_type",
    renamed(COMMANDS, "bytes_read", label="read"),
    renamed(COMMANDS, "bytes_written", label="written"),
)


def filled_columns() -> dict[str, list[dict[str, Any]]]:
    """Columns of layers of a call or of a row of operators, of the commands of a layer, and of what
    each lane of the timeline shows of its window."""
    return {
        "layer_columns": described(columns_of(_OF_LAYERS, OPERATORS)),
        "command_columns": described(columns_of(_COMMANDS, COMMANDS)),
        "lane_columns": described(_LANES),
    }


# --- The device overview on the page's first screen: what ran when, by submodule and step.
#
# Made of the timeline's lanes: the calls of each device, and what it executed before, between and
# after them; of devices without calls the stretches of calls whose commands they executed.


_MAX_RECTANGLES = 1500  # rectangles of a device that are drawn separately
_APART = 1000  # above that, rectangles closer than this part of the run are merged
_MAX_INTERVALS = 600  # of a device's utilization curve
_ALL_INTERVALS = 9600  # of all devices
_HOST, _SYNC = CATEGORIES.index("host"), CATEGORIES.index("sync")
_Ints = npt.NDArray[np.int64]
_CALL_COLUMNS = (
    "device",
    "submodule",
    "stage",
    renamed(CALLS, "step", kind="step"),
    renamed(CALLS, "start_ns", kind="instant"),
    "duration_ns",
)


_LATE = 0.5  # of the run: the axis starts with the drawing if that starts later
_ALL_INSIDE = 0.99  # of the calls of a device: operators with more count as all


def strip_json(timeline: Timeline, busy: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return the device overview as JSON: the rectangles of each device and its utilization over
    time (`busy`, from `busy_json`), the steps above them, and the columns of their table. Times are
    ns from the run's start, `submodule` and `stage` are indices of the timeline's strings. The axis
    goes from `begin` to `span`. It starts with the run, or with the first rectangle if that is much
    later: a model was loaded, and `before` is the longest host activity until then. For a device of
    unknown utilization, `inside` is the share of each rectangle that operators take, None if that
    is all of it, or not known."""
    devices, steps = [*_devices(timeline)], _steps(timeline)
    drawn: list[Mapping[str, Any]] = [*(found for _, found, _ in devices), steps]
    some = [one for one in drawn if len(one["start"])]
    span = int(max((np.add(one["start"], one["duration"]).max() for one in some), default=1))
    first = int(min((np.min(one["start"]) for one in some), default=0))
    begin = first if first > _LATE * span else 0
    return {
        "begin": begin,
        "before": _longest_before(timeline, begin),
        "span": span,
        "devices": [
            {"device": device, "busy": busy.get(device)}
            | {"inside": None if device in busy else inside}
            | {name: values.tolist() for name, values in found.items()}
            for device, found, inside in devices
        ],
        "steps": steps,
        "columns": described(columns_of(_CALL_COLUMNS, CALLS)),
    }


def busy_json(analysis: Analysis, begin_ns: int) -> dict[str, dict[str, Any]]:
    """Return the utilization over time by device: `start` and `step` of intervals of equal length,
    the `busy` part of each in thousandths, and the part in which nothing was recorded (`lost`);
    `share` is that of the end-to-end time, `of_ns`. Devices of unknown utilization are left out."""
    shares = dict(analysis.devices.select("device", "utilization").iter_rows())
    if not any(share is not None for share in shares.values()):
        return {}
    of, found = analysis.inputs, {}
    known = [gaps for gaps in gaps_of(of) if shares.get(gaps.device) is not None]
    intervals = min(_MAX_INTERVALS, _ALL_INTERVALS // max(len(known), 1))
    for (device,), rows in busy_timeline(known, of.axis, intervals).group_by(
        "device", maintain_order=True
    ):
        first, last = rows["begin_ns"][0], rows["end_ns"][-1]
        found[str(device)] = {
            "start": first - begin_ns,
            "step": (last - first) / len(rows),
            "share": shares[str(device)],
            "of_ns": analysis.accounting.end_to_end_ns,
            "busy": (1000 * rows["busy_share"]).round().cast(pl.Int64).to_list(),
            "lost": (1000 * rows["unrecorded_share"]).round().cast(pl.Int64).to_list(),
        }
    return found


def _longest_before(timeline: Timeline, moment: int) -> dict[str, Any] | None:
    """Name and duration of the longest host activity outside calls before `moment`, if it takes
    most of that time; else None."""
    commands = timeline.tables["commands"]
    start, length = (commands[name].astype(np.int64) for name in ("start", "duration"))
    there = (commands["call"] < 0) & (commands["category"] == _HOST) & (start + length <= moment)
    rows = np.flatnonzero(there)
    longest = rows[length[rows].argmax()] if len(rows) else -1
    if longest < 0 or length[longest] <= _LATE * moment:
        return None
    name = timeline.document["strings"][int(commands["layer"][longest])]
    return {"name": name, "duration": int(length[longest])}


def _devices(timeline: Timeline) -> Iterator[tuple[str, dict[str, _Ints], list[float] | None]]:
    span = max(int(timeline.document["span"]), 1)
    lanes: dict[str, list[dict[str, Any]]] = {}
    for lane in timeline.document["lanes"]:
        if lane["device"] and lane["kind"] in ("calls", "commands"):
            lanes.setdefault(lane["device"], []).append(lane)
    for device, found in lanes.items():
        calls = next((lane for lane in found if lane["kind"] == "calls"), None)
        work = _work(timeline, [lane for lane in found if lane["kind"] == "commands"])
        if calls:
            place = slice(calls["first"], calls["first"] + calls["count"])
            rows = _calls(timeline.tables["calls"], place)
            rows = _with_rest(rows, *_outside(timeline, work, rows, span // _APART))
        else:
            rows = _stretches(timeline, work)
        if len(rows["start"]):
            drawn = _merged(rows, span // _APART)
            yield device, drawn, _inside(timeline, work, drawn)


def _inside(timeline: Timeline, work: _Ints, drawn: Mapping[str, _Ints]) -> list[float] | None:
    """The share of each rectangle that operators take, from their durations alone. None if some
    have no operators, or if they take all of it, or more because they overlapped."""
    commands = timeline.tables["commands"]
    rows = work[commands["category"][work] != _SYNC]
    rows = rows[np.argsort(commands["start"][rows], kind="stable")]
    start = commands["start"][rows].astype(np.int64)
    total = np.append(0, np.cumsum(np.maximum(commands["duration"][rows], 0).astype(np.int64)))
    end = drawn["start"] + drawn["duration"]
    first, last = (np.searchsorted(start, at) for at in (drawn["start"], end))
    taken, whole = total[last] - total[first], np.maximum(drawn["duration"], 1)
    if not taken.all() or (taken > whole).any() or taken.sum() > _ALL_INSIDE * whole.sum():
        return None
    shares: list[float] = (taken / whole).round(4).tolist()
    return shares


def _calls(calls: Table, rows: slice) -> dict[str, _Ints]:
    names = ("start", "duration", "submodule", "stage", "step")
    return {name: calls[name][rows].astype(np.int64) for name in names}


def _work(timeline: Timeline, lanes: list[dict[str, Any]]) -> _Ints:
    """Rows of the commands on these lanes, without the host's."""
    rows = [np.arange(one["first"], one["first"] + one["count"]) for one in lanes]
    found = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
    host = {place for lane in lanes for place in lane["host"]} | {_HOST}
    return found[~np.isin(timeline.tables["commands"]["category"][found], [*host])]


def _outside(
    timeline: Timeline, work: _Ints, calls: Mapping[str, _Ints], apart: int
) -> tuple[_Ints, _Ints]:
    """Starts and lengths of intervals before, between and after a device's calls in which it worked
    for none of them, such as on work launched before the recording. Gaps shorter than `apart` are
    closed, and intervals shorter than `apart` are left out."""
    commands = timeline.tables["commands"]
    rows = work[commands["call"][work] < 0]
    rows = rows[np.argsort(commands["start"][rows], kind="stable")]
    start = commands["start"][rows].astype(np.int64)
    end = start + np.maximum(commands["duration"][rows], 0).astype(np.int64)
    order = np.argsort(calls["start"], kind="stable")
    begins = np.concatenate((calls["start"][order], [np.iinfo(np.int64).max]))
    ends = np.maximum.accumulate((calls["start"] + np.maximum(calls["duration"], 0))[order])
    after = np.searchsorted(begins[:-1], start, side="right")  # the next call
    start = np.maximum(start, np.concatenate(([0], ends))[after])
    end = np.minimum(end, begins[after])
    free = end > start
    start, end, after = start[free], end[free], after[free]
    if not len(start):
        return start, start
    apart_from = np.diff(after, prepend=-1) != 0
    apart_from[1:] |= start[1:] - np.maximum.accumulate(end)[:-1] > apart
    heads = np.flatnonzero(apart_from)
    length = np.maximum.reduceat(end, heads) - start[heads]
    long = length > apart
    return start[heads][long], length[long]


def _with_rest(rows: Mapping[str, _Ints], start: _Ints, length: _Ints) -> dict[str, _Ints]:
    """Merge a device's calls with its work outside of calls, by time."""
    none = np.full(len(start), -1, dtype=np.int64)
    rest = {"start": start, "duration": length}
    found = {name: np.concatenate((of, rest.get(name, none))) for name, of in rows.items()}
    if not len(start):
        return found
    order = np.argsort(found["start"], kind="stable")
    return {name: values[order] for name, values in found.items()}


def _stretches(timeline: Timeline, rows: _Ints) -> dict[str, _Ints]:
    """The interval of each call on a device, from its first to its last command."""
    commands, calls = timeline.tables["commands"], timeline.tables["calls"]
    call = commands["call"][rows].astype(np.int64)
    order = np.lexsort((commands["start"][rows], call))
    rows, call = rows[order], call[order]
    if not len(rows):
        return dict.fromkeys(("start", "duration", "submodule", "stage", "step"), rows)
    heads = np.flatnonzero(np.diff(call, prepend=call[0] - 1))
    start = commands["start"][rows].astype(np.int64)
    end = start + np.maximum(commands["duration"][rows], 0).astype(np.int64)
    begin, known = start[heads], call[heads] >= 0
    found: dict[str, _Ints] = {"start": begin, "duration": np.maximum.reduceat(end, heads) - begin}
    for name in ("submodule", "stage", "step"):
        values = np.full(len(heads), -1, dtype=np.int64)
        values[known] = calls[name][call[heads][known]]
        found[name] = values
    by_time = np.argsort(found["start"], kind="stable")
    return {name: values[by_time] for name, values in found.items()}


def _merged(rows: Mapping[str, _Ints], apart: int) -> dict[str, _Ints]:
    """Merge adjacent rectangles of one submodule and stage, if there are many; `step` is -1 if they
    have several."""
    if len(rows["start"]) <= _MAX_RECTANGLES:
        return dict(rows)
    start, end = rows["start"], rows["start"] + np.maximum(rows["duration"], 0)
    reached = np.maximum.accumulate(end)
    same = (rows["submodule"][1:] == rows["submodule"][:-1]) & (
        rows["stage"][1:] == rows["stage"][:-1]
    )
    same &= start[1:] - reached[:-1] <= apart
    heads = np.flatnonzero(np.concatenate(([True], ~same)))
    low, high = (of.reduceat(rows["step"], heads) for of in (np.minimum, np.maximum))
    return {
        "start": start[heads],
        "duration": np.maximum.reduceat(end, heads) - start[heads],
        "submodule": rows["submodule"][heads],
        "stage": rows["stage"][heads],
        "step": np.where(low == high, low, -1),
    }


def _steps(timeline: Timeline) -> dict[str, list[int]]:
    """Start, length and number of each step, as in the timeline's lane of steps."""
    spans = timeline.tables["spans"]
    rows = slice(0)
    for lane in reversed(timeline.document["lanes"]):
        if lane["kind"] == "spans" and lane["track"] == LANES[SpanLane.STEPS]:
            rows = slice(lane["first"], lane["first"] + lane["count"])
    return {name: spans[name][rows].tolist() for name in ("start", "duration", "step")}


# --- The icicle on the page's first screen: the module tree as rectangles as wide as their time.


# Kinds of nodes that the module tree lacks.
WAITING, NO_CALL, NO_OPERATOR, LOST = "waiting", "no_call", "no_operator", "lost"
_BESIDE = 1.01  # times the end-to-end time: beyond rounding
_SEEN = 0.001  # of the run: smallest visible own time of a submodule
_MAX_NODES = 600  # nodes in the page, so that the first screen stays small
_NODE_COLUMNS = (
    renamed(MODULE_TREE, "name", label="node"),
    "kind",
    "elapsed_ns",
    "self_ns",
    "share",
    "executions",
    "role",
    "flops_of_peak",
    "bound",
)


def icicle_json(analysis: Analysis) -> dict[str, Any] | None:
    """The nodes of the module tree with most time, by column, and below them what devices waited
    for; None if nothing took any time. `parent` is the position of a node's parent, -1 for the run;
    `codes` are those of columns of words. Only leaves have a bound, and only these and roles have a
    role. `together` has the number of devices whose times are summed, and the duration of the run,
    if the sum is longer; then the run counts once per device, and time outside a device's calls is
    a node. `several` is true if several devices had calls: the run is busy while any of them works.
    `waits_lack` is true if devices also waited in calls whose operators were not traced."""
    tree = nodes_of(analysis, _MAX_NODES).filter(pl.col("elapsed_ns") > 0)
    if tree.is_empty():
        return None
    kept = tree.with_columns(own="name", name="label", kind=pl.col("kind").cast(pl.String))
    waits = waits_of(analysis.inputs)
    in_calls = waits.filter(pl.col("submodule").is_not_null())["wait_ns"].sum()
    waits_lack = bool(len(waits)) and in_calls < analysis.idle["idle_inside_ns"].sum()
    together = _together(analysis, tree)
    kept = _of_devices(_without_only_stage(_with_waits(kept, waits)), together, analysis.devices)
    place = {node: number for number, node in enumerate(kept["node"]) if node is not None}
    above_each = [place.get(node, -1) for node in kept["parent"]]
    columns = columns_of(_NODE_COLUMNS, MODULE_TREE)
    coded = [column for column in columns if column.codes is not None]
    words = {word for column in coded for word in worded_column(column, kept[column.name].unique())}
    words |= {*kept.filter(pl.col("kind").is_in([WAITING, NO_CALL, NO_OPERATOR, LOST]))["name"]}
    return {
        "columns": described(columns),
        "values": {column.name: plain_values(column, kept[column.name]) for column in columns},
        "codes": {column.name: kept[column.name].to_list() for column in coded},
        "own": kept.select(own=pl.when(pl.col("own") != pl.col("name")).then("own"))[
            "own"
        ].to_list(),
        "depth": kept["depth"].to_list(),
        "parent": [above if above < at else -1 for at, above in enumerate(above_each)],
        "words": [said(word) for word in sorted(word for word in words if word)],
        "together": together,
        "several": len(analysis.devices.filter(pl.col("calls_ns") > 0)) > 1,
        "waits_lack": waits_lack,
    }


def _without_only_stage(tree: pl.DataFrame) -> pl.DataFrame:
    """Remove the stage of a pipeline without stages, which would repeat the run."""
    stages = tree.filter(pl.col("kind") == Node.STAGE)
    if stages["own"].to_list() != [RUN_STAGE]:
        return tree
    node, above = stages.select("node", "parent").row(0)
    inner = pl.col("depth") > stages["depth"][0]
    return tree.filter(pl.col("kind") != Node.STAGE).with_columns(
        parent=pl.col("parent").replace(node, above),
        depth=pl.when(inner).then(pl.col("depth") - 1).otherwise("depth"),
    )


def _with_waits(tree: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Add to each submodule and stage what devices waited for in it. The rest of a stage's own time
    is work outside calls; the rest of a submodule's is outside its operators, and it is not known
    whether a device worked then."""
    above = {*tree["parent"]}
    found = waits.group_by("stage", "submodule", "cause").agg(pl.col("wait_ns").sum())
    by_place: dict[tuple[str, str | None], list[tuple[str, str, int]]] = {}
    for stage, submodule, cause, length in found.sort("wait_ns", descending=True).iter_rows():
        wait = (WAITING, wait_name(cause), length)
        by_place.setdefault((stage, submodule), []).append(wait)
    whole: int = tree["elapsed_ns"][0]
    rows: list[dict[str, Any]] = []
    for row in tree.iter_rows(named=True):
        rows.append(row)
        if row["kind"] not in (Node.STAGE, Node.SUBMODULE):
            continue
        inner = by_place.get((row["stage"], row["submodule"]), [])
        rest = row["self_ns"] - sum(length for *_, length in inner)
        if row["kind"] == Node.STAGE and rest > 0 and not waits.is_empty():
            inner = [*inner, (NO_CALL, said("work outside of calls"), rest)]
        if row["kind"] == Node.SUBMODULE and rest > _SEEN * whole and row["node"] in above:
            inner = [*inner, (NO_OPERATOR, said("outside of operators"), rest)]
        for kind, name, length in inner:
            same = {"stage": row["stage"], "submodule": row["submodule"]}
            times = {"elapsed_ns": length, "self_ns": length, "share": length / whole}
            place = {"parent": row["node"], "depth": row["depth"] + 1, "kind": kind}
            rows.append({"name": name, "own": name, **same, **times, **place})
    return pl.DataFrame(rows, schema=tree.schema)


def _of_devices(
    tree: pl.DataFrame, together: dict[str, int] | None, devices: pl.DataFrame
) -> pl.DataFrame:
    """Scale the root of a run with summed devices to the run's duration per device; what exceeds
    the tree is outside of calls: idle, work, or not recorded, by the table of devices."""
    if together is None:
        return tree
    passed = together["passed"]
    whole = max(together["devices"] * passed, tree["elapsed_ns"][0])
    root = pl.col("depth") == 0
    found = tree.with_columns(elapsed_ns=pl.when(root).then(whole).otherwise("elapsed_ns"))
    waited = int(tree.filter(pl.col("kind") == WAITING)["elapsed_ns"].sum())
    rest = whole - tree["elapsed_ns"][0]
    known = devices.filter(pl.col("calls_ns") > 0).select("utilization", "idle_share").drop_nulls()
    busy, idle = (round(known[name].sum() * passed) for name in known.columns)
    if len(known) < together["devices"]:
        busy = idle = 0
    parts = (
        (WAITING, said("idle outside of calls"), idle - waited),
        (NO_CALL, said("work outside of calls"), busy + waited - tree["elapsed_ns"][0]),
        (LOST, said("not recorded"), rest),
    )
    for kind, name, most in parts:
        length = max(min(most, rest), 0)
        rest -= length
        if length:
            times = {"elapsed_ns": length, "self_ns": length, "parent": tree["node"][0], "depth": 1}
            row = {"name": name, "own": name, "kind": kind, **times}
            found = pl.concat([found, pl.DataFrame([row], schema=tree.schema)])
    return found.with_columns(share=pl.col("elapsed_ns") / whole)


def _together(analysis: Analysis, tree: pl.DataFrame) -> dict[str, int] | None:
    """The number of devices whose times are summed and the duration of the run; None if the sum is
    not longer."""
    account, whole = analysis.accounting, tree["elapsed_ns"][0]
    passed = account.wall_ns or account.end_to_end_ns
    if analysis.run.selection or not passed or whole <= _BESIDE * passed:
        return None
    devices = analysis.devices.filter(pl.col("calls_ns") > 0)
    return {"devices": len(devices), "passed": passed}


# --- The waterfall from one end-to-end time to the other, as a table whose rows are bars: each
# starts where the one above ends. It needs no script, follows the theme, and is read aloud as a
# table.


_CUT = 0.5  # of the longest: an axis starts above 0 if no total comes below this
_ROOM = 0.15  # of the range, left of the lowest total


def waterfall_html(base_ns: int, new_ns: int, steps: Sequence[Difference]) -> str:
    """The table: the time of the baseline, `steps` that add up to the difference, the time of the
    new runs."""
    totals = [base_ns]
    for *_, difference in steps:
        totals.append(totals[-1] + difference)
    low = _axis(totals)
    span = max(max(totals) - low, 1)

    def bar(begin: int, end: int, style: str) -> str:
        left, right = (100 * (max(at, low) - low) / span for at in sorted((begin, end)))
        places = f"--from:{left:.2f}%;--wide:{max(right - left, 0.3):.2f}%"
        return f'<td class="track" aria-hidden="true"><i class="{style}" style="{places}"></i></td>'

    style = "whole cut" if low else "whole"
    rows = [_row(said("base"), base_ns, None, "", bar(low, base_ns, style))]
    for (name, base, new, difference), begin in zip(steps, totals, strict=False):
        changed = bar(begin, begin + difference, "slower" if difference > 0 else "faster")
        rows.append(_row(name, base, new, difference_text(difference), changed))
    whole = difference_text(new_ns - base_ns)
    rows.append(_row(said("new"), None, new_ns, whole, bar(low, new_ns, style)))
    heads = (said("part"), said("baseline"), said("new"), said("difference"))
    head = "".join(f'<th scope="col">{spoken(text)}</th>' for text in heads)
    axis = said("Bars are broken: their axis begins at {time}.", time=duration(low)) if low else ""
    note = f'<p class="help">{spoken(axis)}</p>' if axis else ""
    return (
        f'<table class="waterfall"><thead><tr>{head}<td aria-hidden="true"></td></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>{note}"
    )


def _axis(totals: Sequence[int]) -> int:
    """The start of the axis: 0, or slightly below the lowest total if all totals are close."""
    least, most = min(totals), max(totals)
    if least < _CUT * most:
        return 0
    return max(round(least - _ROOM * max(most - least, 1)), 0)


def _row(name: str, base: int | None, new: int | None, difference: str, bar: str) -> str:
    times = ("" if ns is None else duration(ns) for ns in (base, new))
    cells = "".join(f"<td>{text}</td>" for text in (*times, difference))
    return f'<tr><th scope="row">{spoken(name)}</th>{cells}{bar}</tr>'
