"""Charts of time and memory by stage, role, operator and device, as plain plotly JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from profiler.analysis.critical_path import PathPart
from profiler.analysis.document import (
    CATEGORY_COLOURS,
    DEVICE_COLOURS,
    HOST,
    HOST_WORK,
    MUTED,
    PAGE,
    ROLE_COLOURS,
    SURFACE,
    TEXT,
    Colour,
    Theme,
    submodule_colours,
)
from profiler.analysis.result import Accounting
from profiler.analysis.table_text import labels, path_by_part, stage_names
from profiler.report.charts.style import (
    FRAMED,
    HOVER,
    Bar,
    Chart,
    bars,
    bars_layout,
    dash_of,
    distinguished,
    draws,
    end_labels,
    escaped,
    hatching,
    layout,
    picking,
    shortened,
    stacked,
    titled,
    unit_for,
)
from profiler.text import Said, count, duration, joined, percent, said, size
from profiler.trace.events import CATEGORIES, device_kind

# --- The chart of each repeated block's device time by role, as plain plotly JSON.


_HEIGHT = 300  # px
_NARROW_LINE = 45  # characters below all blocks on a narrow page
_NUMBER = re.compile(r"[0-9]+$")


@draws("blocks")
def blocks(rows: pl.DataFrame, theme: Theme = "light") -> Chart:
    """Draw a bar per block, divided by role; `rows` are of one submodule (`block_roles`)."""
    names = rows["block"].unique(maintain_order=True).to_list()
    totals = dict(rows.group_by("block").agg(pl.col("total_ns").sum()).iter_rows())
    unit = unit_for(max(totals.values(), default=0))
    place = {name: number for number, name in enumerate(names)}
    by_role: dict[str | None, list[tuple[str, int, str]]] = {}
    for given, *part in rows.select("role", "block", "total_ns", "submodule").iter_rows():
        by_role.setdefault(given, []).append((part[0], part[1], part[2]))
    data = []
    for role, colour in ROLE_COLOURS.items():
        parts = by_role.get(role)
        if not parts:
            continue
        texts = (
            said(
                "{block}, {role}: {time}, {share} of the block",
                block=block,
                role=role,
                time=duration(ns),
                share=percent(ns / totals[block]),
            )
            for block, ns, _ in parts
        )
        trace = {
            "type": "bar",
            "name": role,
            "x": [place[block] for block, _, _ in parts],
            "y": [ns * unit.per_ns for _, ns, _ in parts],
            "marker": {
                "color": colour.on(theme),
                "line": {"color": SURFACE.on(theme), "width": 0.5},
            },
            "customdata": [escaped(text) for text in texts],
            "hovertemplate": HOVER,
        }
        data.append(picking(trace, ({"submodule": name, "role": role} for _, _, name in parts)))
    return {"data": data, "layout": _blocks_layout(names, unit.name, theme)}


def _blocks_layout(names: list[str], unit: str, theme: Theme) -> Chart:
    made = layout(theme)
    made["xaxis"] |= {
        "tickvals": [*range(len(names))],
        "ticktext": [escaped(label) for label in _labels(names)],
        "tickangle": 0,
        "tickfont": {"size": 11.5, "color": TEXT.on(theme)},
    }
    made["yaxis"] |= {"showgrid": True, "rangemode": "tozero"}
    made["meta"] = {"columns": [escaped(label) for label in _labels(names, narrow=True)]}
    titled(made, xaxis=escaped(_title(names)), yaxis=unit)
    made["margin"] |= {"t": 60}
    return made | {"barmode": "stack", "bargap": 0.2, "height": _HEIGHT}


def _labels(names: list[str], *, narrow: bool = False) -> list[str]:
    """The labels of blocks: their numbers, and with several kinds the name at the first of each
    kind, shortened on a `narrow` page to what fits below its blocks and those before."""
    blocks = Counter(map(_kind, names))
    found, before = [], _kind(names[0]) if len(blocks) == 1 else ""
    for name in names:
        kind, number = _kind(name), _NUMBER.search(name)
        room = _NARROW_LINE * min(blocks[kind], blocks.get(before, len(names))) // len(names)
        limit = max(room, 4) if narrow else len(name)
        label = number[0] if number else shortened(name, limit)
        named = kind == before or not number
        found.append(label if named else f"{label}\n{shortened(kind.rstrip('.'), limit)}")
        before = kind
    return found


def _title(names: list[str]) -> str:
    """The common name of all blocks; with several kinds just "block", as names are at the axis."""
    kinds = {*map(_kind, names)}
    return f"{kinds.pop().rstrip('.')}.*" if len(kinds) == 1 else said("block")


def _kind(name: str) -> str:
    return _NUMBER.sub("", name)


# --- The chart of the critical path, as plain plotly JSON.


_ROWS = 12  # of the critical path


@draws("critical_path")
def critical_path(path: pl.DataFrame, submodules: Sequence[str], theme: Theme = "light") -> Chart:
    """Draw the critical path: a bar for each part of a submodule, longest first, in the colours of
    `submodules`, all of the run."""
    rows = list(path_by_part(path, _ROWS).iter_rows(named=True))
    colours = submodule_colours(submodules)
    fills = [colours.get(row["submodule"], HOST).on(theme) for row in rows]
    values = {str(number): row["path_ns"] for number, row in enumerate(rows)}
    names = [_name(row["submodule"], row["part"]) for row in rows]
    texts = [
        said(
            "{name}\n{device}\n{pieces} pieces, {time}",
            name=name,
            device=row["device"] or "",
            pieces=count(row["pieces"]),
            time=duration(row["path_ns"]),
        )
        for name, row in zip(names, rows, strict=True)
    ]
    unit = unit_for(max(values.values(), default=0))
    made = bars_layout(theme, [*values], max(values.values(), default=0), row=25)
    distinct = distinguished(names, [row["device"] for row in rows])
    labels = [escaped(shortened(name)) for name in distinct]
    made["yaxis"] |= {"tickvals": [*values], "ticktext": labels}
    shares = {key: percent(row["share"]) for key, row in zip(values, rows, strict=True)}
    made |= {"annotations": end_labels(values, unit, shares), "showlegend": False}
    made["margin"] |= {"t": 8}
    trace = bars(said("critical path"), values, unit, fills, texts, theme)
    picks = ({"submodule": row["submodule"], "device": row["device"]} for row in rows)
    return {"data": [picking(trace, picks)], "layout": made}


def _name(submodule: str | None, part: str | None) -> Said:
    names = labels([part], PathPart)
    return joined(" ", [submodule, *names] if submodule else names)


# --- The chart of device time by category, as plain plotly JSON.


@draws("devices")
def devices(frame: pl.DataFrame, total_ns: int, theme: Theme = "light") -> Chart:
    """Draw for each device how long commands of each category ran (union of intervals), with the
    share of the end-to-end time `total_ns`; the host's may be outside of it and then have no
    share."""
    rows = list(frame.iter_rows(named=True))
    data, values, notes, devices_of = [], {}, {}, {}
    for row in rows:
        for category in CATEGORIES:
            ns = row[f"{category}_ns"]
            if ns:
                key = f"{row['device']}  {category}"
                values[key], devices_of[key] = ns, row["device"]
                notes[key] = duration(ns) + (
                    f"  {percent(ns / total_ns)}" if ns <= total_ns else ""
                )
    unit = unit_for(max(values.values(), default=0))
    for category in CATEGORIES:
        found = {key: ns for key, ns in values.items() if key.endswith(f"  {category}")}
        texts = [said("{what}: {time} of end to end", what=key, time=notes[key]) for key in found]
        if found:
            colour = CATEGORY_COLOURS[category].on(theme)
            trace = bars(category, found, unit, colour, texts, theme)
            if category == "sync":
                trace["marker"] |= hatching(theme, CATEGORY_COLOURS[category])
            data.append(picking(trace, ({"device": devices_of[key]} for key in found)))
    made = bars_layout(theme, [*values], max(values.values(), default=0), row=26)
    made |= {"annotations": end_labels(values, unit, notes), "showlegend": False}
    made["margin"] |= {"t": 8}
    return {"data": data, "layout": made}


# --- The chart of what idle devices waited for, as plain plotly JSON.


_CAUSES = (  # column, name, colour, line pattern of waiting
    ("computing_ns", said("computing"), PAGE["busy"], ""),
    ("exposed_ns", said("collectives"), CATEGORY_COLOURS["collective"], ""),
    ("data_ns", said("data"), CATEGORY_COLOURS["dma"], ""),
    ("copy_wait_ns", said("waiting for copies"), PAGE["wait-line"], "|"),
    ("other_device_ns", said("other device"), PAGE["wait-line"], "+"),
    ("launch_ns", said("waits for the host"), PAGE["wait-line"], "/"),
    ("unknown_cause_ns", said("cause not recorded"), HOST, "/"),
    ("sync_ns", said("sync"), PAGE["wait-line"], "\\"),
    ("queue_ns", said("queued"), PAGE["wait-line"], "."),
    ("host_work_ns", said("between calls, host work"), HOST_WORK, "x"),
    ("host_ns", said("between calls, nothing"), PAGE["wait-line"], "-"),
    ("before_after_ns", said("outside of end to end"), PAGE["frame"], FRAMED),
    ("unallocated_ns", said("before and after its work"), PAGE["counter"], "/"),
    ("unrecorded_ns", said("not recorded"), PAGE["frame"], "."),
)


@draws("idle")
def idle(frame: pl.DataFrame, theme: Theme = "light") -> Chart:
    """Draw one bar per device: its compute time, and its waits by cause in the rest of the run."""
    rows = {str(number): row for number, row in enumerate(frame.iter_rows(named=True))}
    for row in rows.values():
        row["host_ns"] -= row["host_work_ns"]
    spans = {key: row["span_ns"] + row["unallocated_ns"] for key, row in rows.items()}
    unit = unit_for(max(spans.values(), default=0))
    data = []
    own = all(device_kind(row["device"]) == "cpu" for row in rows.values())
    for column, cause, colour, shape in _CAUSES:
        # work of a CPU is not launched by a host
        name = said("between operators") if own and column == "launch_ns" else cause
        values = {key: row[column] for key, row in rows.items() if row[column]}
        texts = [
            said(
                "{device}, {what}: {time}, {share} of its bar",
                device=rows[key]["device"],
                what=name,
                time=duration(ns),
                share=percent(ns / spans[key]),
            )
            for key, ns in values.items()
        ]
        if values:
            trace = bars(name, values, unit, colour.on(theme), texts, theme)
            if shape:
                trace["marker"] |= hatching(theme, colour, shape)
            data.append(picking(trace, ({"device": rows[key]["device"]} for key in values)))
    made = bars_layout(theme, [*spans], max(spans.values(), default=0))
    labels = [escaped(shortened(row["device"], 24)) for row in rows.values()]
    made["yaxis"] |= {"tickvals": [*spans], "ticktext": labels}
    shares = {key: row["idle_share"] for key, row in rows.items() if row["idle_share"] is not None}
    notes = {key: said("{share} idle", share=percent(share)) for key, share in shares.items()}
    made["annotations"] = end_labels(spans, unit, notes)
    return {"data": data, "layout": made}


# --- The chart of devices' memory during a run, as plain plotly JSON.


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@draws("memory")
def memory(
    course: pl.DataFrame, devices: pl.DataFrame, calls: pl.DataFrame, theme: Theme = "light"
) -> Chart:
    """Draw one line per device: the maximum of its counters in each interval of `course`
    (`memory_timeline`), with a mark at the peak (`devices`); `calls` give the start of the axis."""
    begin, end = _extent(course, calls)
    unit = unit_for(end - begin)
    most = max(course["bytes"], default=0)
    power = next((p for p in range(4, 0, -1) if most >= 1024**p), 0)
    data: list[dict[str, Any]] = []
    for number, device in enumerate(course["device"].unique(maintain_order=True)):
        rows = course.filter(pl.col("device") == device)
        colour = DEVICE_COLOURS[number % len(DEVICE_COLOURS)].on(theme)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": escaped(device),
                "x": [round((at - begin) * unit.per_ns, 3) for at in rows["time_ns"]],
                "y": [round(held / 1024**power, 3) for held in rows["bytes"]],
                "line": {"color": colour, "width": 2, "shape": "hv", "dash": dash_of(number)},
                "fill": "tozeroy",
                "fillcolor": colour + "26",
                "customdata": [escaped(_text(row, begin)) for row in rows.iter_rows(named=True)],
                "hovertemplate": HOVER,
            }
        )
    made = layout(theme)
    made["yaxis"] |= {"rangemode": "tozero", "showgrid": True}
    since = said("{unit} from the first call", unit=unit.name)
    titled(made, xaxis=since, yaxis=_UNITS[power])
    made["annotations"] = _peaks(devices, (begin, end), unit.per_ns, 1024**power, theme)
    return {"data": data, "layout": made | {"height": 280, "showlegend": len(data) > 1}}


def _extent(course: pl.DataFrame, calls: pl.DataFrame) -> tuple[int, int]:
    """The range of the time axis: from the first call, or an earlier sample, to the last sample."""
    times = course["time_ns"].to_list()
    starts = calls["start_ns"].head(1).to_list() if times else []
    return min([*times, *starts], default=0), max(times, default=0)


def _text(row: dict[str, Any], begin: int) -> str:
    held = said(
        "{device}: {bytes} at {time}",
        device=row["device"],
        bytes=size(row["bytes"]),
        time=duration(row["time_ns"] - begin),
    )
    if not row["submodule"]:
        return held
    return said("{held}\nduring {submodule}", held=held, submodule=row["submodule"])


def _peaks(
    devices: pl.DataFrame, extent: tuple[int, int], per_ns: float, of: int, theme: Theme
) -> list[dict[str, Any]]:
    """Annotations at the peaks: how much memory, and in whose call."""
    known = devices.drop_nulls(["peak_bytes", "peak_ns"])
    return [
        {
            "x": (row["peak_ns"] - extent[0]) * per_ns,
            "y": row["peak_bytes"] / of,
            "text": escaped(_peak(row)),
            "xanchor": "left" if row["peak_ns"] < sum(extent) / 2 else "right",
            "showarrow": True,
            "arrowhead": 2,
            "arrowwidth": 1,
            "arrowcolor": MUTED.on(theme),
            "ax": 0,
            "ay": -22,
        }
        for row in known.iter_rows(named=True)
    ]


def _peak(row: dict[str, Any]) -> str:
    peak = said("{device}: peak {peak}", device=row["device"], peak=size(row["peak_bytes"]))
    if not row["submodule"]:
        return peak
    return said("{peak} in {submodule}", peak=peak, submodule=row["submodule"])


# --- The chart of the longest operators, as plain plotly JSON.


@draws("operators")
def operators(
    frame: pl.DataFrame, submodules: Sequence[str], top: int = 15, theme: Theme = "light"
) -> Chart:
    """Draw the `top` operators by total time, folded or single, in the colours of `submodules`, all
    of the run."""
    rows = list(frame.filter(~pl.col("host")).head(top).iter_rows(named=True))
    colours = submodule_colours(submodules)
    fills = [colours.get(row["submodule"], HOST).on(theme) for row in rows]
    values = {str(number): row["total_ns"] for number, row in enumerate(rows)}
    texts = [
        said(
            "{submodule}: {layer}\n{op_types}\n{commands} commands, total {total}, wall {wall}",
            submodule=row["submodule"] or said("no call"),
            layer=shortened(row["layer"], 120),
            op_types=shortened(row["op_types"], 120),
            commands=count(row["commands"]),
            total=duration(row["total_ns"]),
            wall=duration(row["wall_ns"]),
        )
        for row in rows
    ]
    shares = {str(i): percent(row["share"] or 0) for i, row in enumerate(rows)}
    unit = unit_for(max(values.values(), default=0))
    made = bars_layout(theme, [*values], max(values.values(), default=0), row=25)
    distinct = distinguished([row["layer"] for row in rows], [row["submodule"] for row in rows])
    labels = [escaped(shortened(name)) for name in distinct]
    made["yaxis"] |= {"tickvals": [*values], "ticktext": labels}
    made |= {"annotations": end_labels(values, unit, shares), "showlegend": False}
    made["margin"] |= {"t": 8}
    trace = bars(said("total"), values, unit, fills, texts, theme)
    picks = ({"submodule": row["submodule"], "operator": row["layer"]} for row in rows)
    return {"data": [picking(trace, picks)], "layout": made}


# --- The chart of each submodule's device time by role, as plain plotly JSON.


@draws("roles")
def roles(frame: pl.DataFrame, theme: Theme = "light") -> Chart:
    """Draw one bar per submodule with the share of each role, most device time first."""
    found = frame.drop_nulls("submodule").filter(pl.col("total_ns") > 0)
    sums = found.group_by("submodule", maintain_order=True).agg(pl.col("total_ns").sum())
    totals = dict(sums.sort("total_ns", descending=True, maintain_order=True).iter_rows())
    number = {name: str(i) for i, name in enumerate(totals)}
    by_role: dict[str | None, list[dict[str, Any]]] = {}
    for row in found.with_columns(pl.col("role").cast(pl.String)).iter_rows(named=True):
        by_role.setdefault(row["role"], []).append(row)
    data = []
    for role, colour in ROLE_COLOURS.items():
        rows = by_role.get(role)
        if not rows:
            continue
        texts = [
            said(
                "{submodule}, {role}: {busy}, {share} of its device time",
                submodule=row["submodule"],
                role=role,
                busy=duration(row["total_ns"]),
                share=percent(row["total_ns"] / totals[row["submodule"]]),
            )
            for row in rows
        ]
        trace = {
            "type": "bar",
            "orientation": "h",
            "name": role,
            "y": [number[row["submodule"]] for row in rows],
            "x": [round(100 * row["total_ns"] / totals[row["submodule"]], 3) for row in rows],
            "marker": {"color": colour.on(theme), "line": {"color": SURFACE.on(theme), "width": 1}},
            "customdata": [escaped(text) for text in texts],
            "hovertemplate": HOVER,
        }
        picks = ({"submodule": row["submodule"], "role": role} for row in rows)
        data.append(picking(trace, picks))
    return {"data": data, "layout": _roles_layout(totals, theme)}


def _roles_layout(totals: dict[str, int], theme: Theme) -> Chart:
    keys = [str(i) for i in range(len(totals))]
    made = bars_layout(theme, keys, 0, row=34)
    made["yaxis"] |= {
        "tickvals": keys,
        "ticktext": [escaped(shortened(name, 28)) for name in totals],
    }
    ticks = range(0, 101, 20)
    made["xaxis"] |= {"range": [0, 112], "tickvals": [*ticks], "ticktext": [str(x) for x in ticks]}
    titled(made, xaxis=said("% of the submodule's device time"))
    made["annotations"] = [
        {
            "x": 100,
            "y": key,
            "text": escaped(duration(ns)),
            "showarrow": False,
            "xanchor": "left",
            "xshift": 4,
        }
        for key, ns in zip(keys, totals.values(), strict=True)
    ]
    made["margin"] |= {"t": 56}
    made["height"] += 22  # for a legend of two lines
    return made


# --- The chart of each stage's time, as plain plotly JSON.


_CALLS = said("calls, several at once")
_HOST_WORK, _NOTHING = said("host work"), said("no call")
_FIXED: dict[str, Colour] = {
    _CALLS: HOST,
    _HOST_WORK: HOST_WORK,
    _NOTHING: PAGE["wait-line"],
}
_BETWEEN: dict[str, str] = {_HOST_WORK: "x", _NOTHING: "-"}  # line patterns: devices wait


@draws("stages")
def stages(
    frame: pl.DataFrame,
    calls: pl.DataFrame,
    account: Accounting,
    divided: tuple[pl.DataFrame, int] | None,
    theme: Theme = "light",
) -> Chart:
    """Draw one bar per stage: `divided` by what devices did, the mean over several devices; else
    its submodules' calls, the host work between them, and idle time.

    Submodules are shown separately if their calls do not overlap; otherwise the calls are one part.
    """
    rows = list(frame.iter_rows(named=True))
    if divided is not None:
        return _divided_stages(rows, *divided, theme)
    if account.calls_outside:
        calls = calls.filter(pl.col("pipeline") >= 0)
    # Colours by all submodules of the run, so that a selection does not change them.
    colours = {**submodule_colours(part.submodule for part in account.submodules), **_FIXED}
    of_stage = {row["stage"]: _stage_parts(calls, row) for row in rows}
    present = dict.fromkeys(name for parts in of_stage.values() for name in parts)
    names = stage_names(of_stage)
    ordered = sorted(present, key=lambda name: [*_FIXED].index(name) if name in _FIXED else -1)
    totals = {stage: sum(parts.values()) for stage, parts in of_stage.items()}
    unit = unit_for(max(totals.values(), default=0))
    data = []
    for name in ordered:
        values = {stage: parts[name] for stage, parts in of_stage.items() if name in parts}
        texts = [
            said(
                "{name} in {stage}: {time}",
                name=name,
                stage=names.get(stage, stage),
                time=duration(ns),
            )
            for stage, ns in values.items()
        ]
        trace = bars(name, values, unit, colours[name].on(theme), texts, theme)
        if name in _BETWEEN:
            trace["marker"] |= hatching(theme, colours[name], _BETWEEN[name])
        submodule = None if name in _FIXED else name
        data.append(picking(trace, ({"stage": stage, "submodule": submodule} for stage in values)))
    return {"data": data, "layout": _stages_layout(rows, totals, theme)}


def _divided_stages(
    rows: list[dict[str, Any]], activity: pl.DataFrame, devices: int, theme: Theme
) -> Chart:
    """Draw one bar per stage: `activity`, divided by the number of devices."""
    totals = {row["stage"]: row["elapsed_ns"] for row in rows}
    names = stage_names(totals)
    bars_of = [
        Bar(stage, names.get(stage, stage), ns, {"stage": stage}) for stage, ns in totals.items()
    ]
    keyed = activity.with_columns(pl.col("elapsed_ns") / devices, key=pl.col("stage"))
    unit = unit_for(max(totals.values(), default=0))
    made = _stages_layout(rows, totals, theme)
    if devices > 1:
        what = said("{unit} per device, mean of {number}", unit=unit.name, number=devices)
        titled(made, xaxis=what)
    return {"data": stacked(keyed, bars_of, unit, theme, upright=False), "layout": made}


def _stages_layout(rows: list[dict[str, Any]], totals: Mapping[str, int], theme: Theme) -> Chart:
    """The layout of one bar per stage, with time and share at its end."""
    unit = unit_for(max(totals.values(), default=0))
    shares = {row["stage"]: row["share"] for row in rows}
    notes = {
        stage: duration(total) + ("" if shares[stage] is None else f"  {percent(shares[stage])}")
        for stage, total in totals.items()
    }
    made = bars_layout(theme, [*totals], max(totals.values(), default=0))
    names = stage_names(totals)
    labels = [escaped(names.get(stage, stage)) for stage in totals]
    made["yaxis"] |= {"tickvals": [*map(escaped, totals)], "ticktext": labels}
    made["annotations"] = end_labels(totals, unit, notes)
    return made


def _stage_parts(calls: pl.DataFrame, row: Mapping[str, Any]) -> dict[str, int]:
    """Time of one stage by part; adds up to its duration if the accounting is possible."""
    of_stage = calls.filter(pl.col("stage") == row["stage"])
    sums = of_stage.group_by("submodule", maintain_order=True).agg(pl.col("elapsed_ns").sum())
    by_submodule = dict(sums.iter_rows())
    complete = sum(by_submodule.values()) == row["calls_ns"]
    parts = by_submodule if complete else {_CALLS: row["calls_ns"]}
    return parts | {_HOST_WORK: row["host_ns"] or 0, _NOTHING: row["idle_ns"] or 0}
