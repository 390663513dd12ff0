"""Device utilization: how busy each device was, with which categories of work.

It also has the rules about operators whose parts on several tracks or devices are imbalanced.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.commands import (
    CommandArrays,
    has_accelerators,
    is_accelerator,
    times_recorded,
    untraced_calls,
)
from profiler.analysis.context import Inputs
from profiler.analysis.document import Fact, Figure, Part, SectionGroup, SectionKind
from profiler.analysis.finding_text import (
    MATERIAL,
    Rule,
    Words,
    calls_of,
    end_to_end_ns,
    scaled,
    share,
)
from profiler.analysis.health import busy_unknown, is_host_only
from profiler.analysis.host_activity import dropped_tiles
from profiler.analysis.idle import busy_of
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, Finding, ReportInput
from profiler.analysis.table_text import renamed, table
from profiler.analysis.timeline import extent
from profiler.run.columns import (
    BYTES,
    DATA_ONLY,
    INT64,
    NS,
    SHARE,
    STEP,
    STRING,
    Adds,
    Column,
    col,
    typed,
)
from profiler.run.device_timeline import work_axes
from profiler.run.intervals import Codes, Stretches, Times, counts, positions, text_codes, union_by
from profiler.run.launches import Busy, device_work
from profiler.run.run import Run
from profiler.text import Said, counted, joined, percent, said
from profiler.trace.events import CATEGORIES, NO_RANK, device_kind, rank_of_device
from profiler.trace.manifest_fields import Device, Submodule

# --- The columns of devices.


DEVICES: tuple[Column, ...] = (
    col("device", STRING, "a place that executes commands", key=True),
    col(
        "rank",
        STEP,
        "process of the job to which it belongs, from 0; -1 in a run of a single process",
        importance=DATA_ONLY,
    ),
    col("hardware", STRING, "name of the hardware, if the run knows it", True, importance=8),
    col("calls", INT64, "calls placed there", importance=9),
    col("commands", INT64, "commands executed there", adds=Adds("commands")),
    col("calls_ns", NS, "union of the calls on it", importance=8),
    col(
        "busy_ns",
        NS,
        "part of the end-to-end time in which it worked: union of its commands of every category "
        "except host and sync",
    ),
    col("compute_ns", NS, "part of busy_ns: union of its compute commands", importance=1),
    col("dma_ns", NS, "the same of its dma commands", importance=2, hide_if_zero=True),
    col("copy_ns", NS, "the same of its copy commands", importance=5, hide_if_zero=True),
    col(
        "collective_ns",
        NS,
        "the same of its collectives between ranks",
        importance=5,
        hide_if_zero=True,
    ),
    col("sync_ns", NS, "union of its sync commands", importance=6, hide_if_zero=True),
    col("other_ns", NS, "part of busy_ns of category other", importance=17, hide_if_zero=True),
    col("host_ns", NS, "union of its host commands", importance=3, hide_if_zero=True),
    col(
        "span_ns",
        NS,
        "from its first command or call to the end of the last one, minus the profiler's own work",
        importance=9,
    ),
    col(
        "idle_ns",
        NS,
        "span_ns - busy_ns - before_after_ns - unrecorded_ns; null if calls are untraced, or only "
        "host work ran",
        True,
        importance=4,
    ),
    col(
        "unrecorded_ns",
        NS,
        "time in its span in which nothing was recorded although work or the host waited, or data "
        "is missing; not idle",
        label="not recorded in its span",
        importance=7,
        hide_if_zero=True,
    ),
    col(
        "before_after_ns",
        NS,
        "how long it worked outside of the end-to-end time",
        label="busy outside",
        importance=7,
        hide_if_zero=True,
    ),
    col(
        "carried_over_ns",
        NS,
        "union of its work that was launched before the recording began; in before_after_ns if no "
        "other work ran",
        importance=7,
        hide_if_zero=True,
    ),
    col(
        "utilization",
        SHARE,
        "share of the end-to-end time in which it worked; null if idle_ns is",
        True,
        label="busy of end to end",
    ),
    col(
        "idle_share",
        SHARE,
        "share of the end-to-end time in which it was idle: the rest of it is not recorded of this "
        "device; null if idle_ns is",
        True,
        label="idle of end to end",
        importance=3,
    ),
    col(
        "calls_share",
        SHARE,
        "share of the end-to-end time in calls placed there",
        True,
        label="in calls of end to end",
        importance=14,
    ),
    col(
        "weight_bytes",
        BYTES,
        "largest amount of weights of the submodules placed there at one time; null if one of "
        "them is unknown",
        True,
        importance=5,
        hide_if_zero=True,
    ),
)


# --- Devices: how busy each was, with what.


def _devices(of: Inputs) -> pl.DataFrame:
    """One row a device that has calls or commands (`DEVICES`), by name.

    What of the time of a call of which a drop says that commands are missing nothing ran in is not
    recorded. Commands on no device are left out. How idle a device was is known where it executed
    something but host work, and every call placed there (of a device without any: every call) was
    traced: else `idle_ns`, `idle_share` and `utilization` are null, as they are where nobody
    recorded when commands ran.
    """
    run, calls, commands, axis = of.run, of.calls, of.commands, of.axis
    info, tiles, counted, missing = run.info, run.tiles, axis.counted, dropped_tiles(run)
    at = _Placed.of(of)
    names, groups = at.names, len(at.names)
    worked = np.array([at.length(name) for name in names], dtype=np.int64)
    of_commands = extent(commands.start, commands.end, at.commands, groups)
    inside = _inside(counted, at, worked, *of_commands)
    number, by_category = _by_category(commands, at.commands, inside, counted, worked > inside)
    of_calls = extent(*at.tile_span, at.tiles, groups)
    first, last = np.minimum(of_commands[0], of_calls[0]), np.maximum(of_commands[1], of_calls[1])
    spans = [*zip(first.tolist(), last.tolist(), strict=True)]
    unrecorded = [tiles.unrecorded_on.get(name, Stretches.none()) for name in names]
    lost = [Stretches.of_all((each, missing)) for each in unrecorded]
    recorded = counted.length - at.quiet(each.both(counted) for each in lost)
    lost = [each.clipped(*span) for each, span in zip(lost, spans, strict=True)]
    lost_ns = at.quiet(lost) if len(missing) else np.array([each.length for each in lost], np.int64)
    profilers = (
        axis.beside.minus(each).clipped(*span) for each, span in zip(unrecorded, spans, strict=True)
    )
    span_ns = last - first - at.quiet(profilers)
    placed, untraced = np.bincount(at.calls, minlength=groups), untraced_calls(run, calls)
    here = np.bincount(at.calls[untraced], minlength=groups) > 0
    known = (worked > 0) & (span_ns > 0) & ~np.where(placed > 0, here, untraced.any())
    known &= times_recorded(info) and not is_host_only(info.health)
    known &= ~np.isin(names, [*busy_unknown(info.health)])
    total = counted.length
    busy_share, idle_share = (
        pl.Series(part / (total or np.nan)).fill_nan(None) for part in (inside, recorded - inside)
    )
    if_known = {
        "idle_ns": pl.Series(span_ns - worked - lost_ns),
        "utilization": busy_share,
        "idle_share": idle_share,
    }
    ranks, weights = _ranks(run), device_weights(info.submodules, info.devices)
    carried = dict(tiles.devices.select("device", "carried_over_ns").iter_rows())
    rows = positions(calls["call"].to_numpy(), run.calls["call"].to_numpy())
    table = pl.DataFrame(
        {
            "device": names,
            "rank": [ranks.get(name, NO_RANK) for name in names],
            "hardware": [info.devices.get(name, Device()).hardware or None for name in names],
            "calls": placed,
            "commands": number.sum(axis=1),
            "calls_ns": union_by(*at.tile_span, at.tiles, groups),
            "busy_ns": inside,
            "before_after_ns": worked - inside,
            **{f"{name}_ns": by_category[:, i] for i, name in enumerate(CATEGORIES)},
            "span_ns": span_ns,
            "unrecorded_ns": lost_ns,
            **{name: each.set(pl.Series(~known), None) for name, each in if_known.items()},
            "carried_over_ns": [carried.get(name, 0) for name in names],
            "calls_share": [
                axis.taken(rows[at.calls == place], separate=False) / total if total else None
                for place in range(groups)
            ],
            "weight_bytes": pl.Series([weights.get(name) for name in names], dtype=pl.Int64),
        }
    )
    return table.select(typed(DEVICES))


class _Placed(Struct, frozen=True, eq=False):
    """Which device is whose: the `names` of all, and places among these, -1 for none, of calls, of
    their tiles, which have starts and ends, and of commands; `busy` is when each ran any of these
    that is its work."""

    names: list[str]
    calls: Codes
    tiles: Codes
    tile_span: tuple[Times, Times]
    commands: Codes
    busy: Mapping[str, Busy]

    @classmethod
    def of(cls, of: Inputs) -> _Placed:
        """All devices that have calls or commands, in order of names."""
        calls, commands = of.calls, of.commands
        codes, placed = text_codes(calls["device"])
        names = sorted({*commands.devices, *placed})
        tiles = calls.select("call").join(of.run.tiles.calls, on="call", maintain_order="left")
        place = {name: number for number, name in enumerate(names)}
        return cls(
            names,
            calls=_renumbered(codes, placed, place),
            tiles=np.array([place.get(name, -1) for name in tiles["tile_device"]], dtype=np.int32),
            tile_span=(tiles["begin_ns"].to_numpy(), tiles["end_ns"].to_numpy()),
            commands=_renumbered(commands.device, commands.devices, place),
            busy=busy_of(of)
            if not of.selection
            else {name: axis.busy for name, axis in work_axes(commands).items()},
        )

    def length(self, device: str) -> int:
        """Return how long a device was busy, in ns."""
        return self.busy[device].length if device in self.busy else 0

    def within(self, device: str, stretches: Stretches) -> int:
        """Return how long a device was busy within some stretches of time, in ns."""
        if device not in self.busy:
            return 0
        return int(self.busy[device].within(stretches.start, stretches.end).sum())

    def quiet(self, stretches: Iterable[Stretches]) -> Times:
        """How long nothing ran on each device in stretches of time of its own, int64 [groups]."""
        pairs = zip(self.names, stretches, strict=True)
        found = [each.length - self.within(name, each) for name, each in pairs]
        return np.array(found, dtype=np.int64)


def _inside(counted: Stretches, at: _Placed, worked: Times, first: Times, last: Times) -> Times:
    """How long each device worked in the time that counts, int64 [groups]; all of it if none
    does. Its commands are between `first` and `last`."""
    if not len(counted):
        return worked
    found = worked.copy()
    for number, name in enumerate(at.names):
        whole = len(counted) == 1 and counted.start[0] <= first[number]
        if worked[number] and not (whole and last[number] <= counted.end[0]):
            found[number] = at.within(name, counted)
    return found


def _renumbered(codes: Codes, of: Iterable[str], place: Mapping[str, int]) -> Codes:
    """The `place` of each name, from codes into `of`; -1 for the code behind the last."""
    return np.array([*(place[name] for name in of), -1], dtype=np.int32)[codes]


def _by_category(
    commands: CommandArrays,
    device: Codes,
    busy: Times,
    counted: Stretches,
    outside: np.ndarray[Any, np.dtype[np.bool_]],
) -> tuple[Times, Times]:
    """Number and union of the commands by device and category, int64 [groups, categories]. `busy`
    is the union of all work of each device in the `counted` time, `outside` says which of them also
    worked at other times."""
    kinds, groups = len(CATEGORIES), len(busy)
    codes = device * np.int32(kinds) + commands.category
    codes[device < 0] = -1
    number = counts(codes, groups * kinds).reshape(groups, kinds)
    there = number * device_work(np.arange(kinds)) > 0
    alone = there & (there.sum(axis=1) == 1)[:, None]
    unknown = (number > 0) & ~alone
    found = np.where(alone, busy[:, None], 0)
    if unknown.any():
        table = np.append(np.where(unknown.ravel(), np.arange(groups * kinds), -1), -1)
        codes = table.astype(np.int32)[codes]  # -1 takes the last
        union = union_by(commands.start, commands.end, codes, groups * kinds)
        found += union.reshape(groups, kinds)
        works = device_work(np.arange(kinds)) & unknown & outside[:, None]
        for at, kind in np.argwhere(works).tolist():
            rows = np.flatnonzero(codes == at * kinds + kind)
            worked = Stretches.union(commands.start[rows], commands.end[rows])
            found[at, kind] = worked.both(counted).length
    return number, found


def _ranks(run: Run) -> dict[str, int]:
    """The rank of each device: the one in its name, or else the only rank of the job."""
    job = run.info.job
    alone = job.ranks[0].rank if job is not None and len(job.ranks) == 1 else NO_RANK
    names = {*run.calls["device"].cast(pl.String), *run.commands["device"].unique().cast(pl.String)}
    return {name: max(rank_of_device(name), alone) for name in names if name is not None}


# --- The table of devices.


TABLES = (
    Table(
        name="devices",
        row="one device",
        section="devices",
        columns=DEVICES,
        make=_devices,
        title="Devices",
        about="There is a row for each device that has calls or commands, in order of names.",
    ),
)


# --- Rules about operators that were split over tracks or devices.


_UNEVEN = 1.2  # busiest / mean: of four tracks one has a fifth more to do
_AT_ONCE = 1.05  # total / wall: below it the parts did not run concurrently


def track_imbalance(analysis: Analysis) -> Iterable[Finding]:
    """The parts of split operators end at different times: tracks wait for the busiest."""
    if analysis.partitioning.is_empty():
        return ()
    keys = ("submodule", "layer")
    on_one_device = ~(pl.col("part") == "device").any().over(keys)
    computing = pl.col("part") == "compute"
    rows = analysis.partitioning.filter(
        on_one_device & (computing | ((pl.col("part") == "whole") & ~computing.any().over(keys)))
    )
    return _uneven_splits(
        analysis,
        rows.with_columns(
            parts="tracks", mean_ns=pl.col("parallel_utilization") * pl.col("wall_ns")
        ),
        "track_imbalance",
        "tracks",
    )


def device_imbalance(analysis: Analysis) -> Iterable[Finding]:
    """Operators were split over devices of a kind, and one has more to do than the others."""
    if analysis.partitioning.is_empty():
        return ()
    keys = ("submodule", "layer")
    of_device = analysis.partitioning.filter(pl.col("part") == "device")
    kinds = pl.col("device").str.split(":").list.first().n_unique()
    devices = of_device.group_by(keys).agg(parts=pl.len(), kinds=kinds)
    rows = analysis.partitioning.filter(pl.col("part") == "whole").join(devices, on=keys)
    return _uneven_splits(
        analysis,
        rows.filter(pl.col("kinds") == 1).with_columns(
            imbalance="device_imbalance", mean_ns=pl.col("total_ns") / pl.col("parts")
        ),
        "device_imbalance",
        "devices",
    )


def _uneven_splits(
    analysis: Analysis, rows: pl.DataFrame, rule: str, over: str
) -> Iterator[Finding]:
    """Yield one finding per submodule; `rows` are split operators, with the `imbalance` of `parts`.

    The lost time is what the busiest part takes beyond the mean of all, `mean_ns`.
    """
    total = end_to_end_ns(analysis)
    uneven = rows.filter(
        pl.col("submodule").is_not_null(),
        pl.col("parts") > 1,
        pl.col("imbalance") >= _UNEVEN,
        pl.col("total_ns") >= _AT_ONCE * pl.col("wall_ns"),
    ).with_columns(lost_ns=(pl.col("imbalance") - 1) * pl.col("mean_ns"))
    rows = scaled(analysis, uneven, "lost_ns").sort("lost_ns", "layer", descending=[True, False])
    for (submodule,), some in rows.group_by("submodule", maintain_order=True):
        lost = float(some["lost_ns"].sum())
        if share(lost, total) < MATERIAL:
            continue
        worst = some.row(0, named=True)
        yield Finding(
            rule,
            {
                "operators": len(some),
                "lost_ns": round(lost),
                "lost_share": share(lost, total),
                "worst_layer": worst["layer"],
                "worst_imbalance": round(worst["imbalance"], 3),
                f"worst_{over}": worst["parts"],
            },
            where=calls_of(analysis, str(submodule), layer=worst["layer"]),
            cost_ns=round(lost),
        )


RULES = (
    Rule(
        track_imbalance,
        Words(
            title="Operators of {submodule} are split unevenly over tracks: {lost_share} of the "
            "run",
            caveat="The part of the busiest track beyond the mean is what an even split saves, if "
            "the work can be divided evenly at all; commands that wait for data look busy.",
            recommendation="Divide by a size that is a multiple of the number of tracks (heads, "
            "channels, tokens), give the odd rest to no single one, or run such operators on fewer "
            "tracks.",
        ),
        "Divide by a multiple of the number of tracks",
    ),
    Rule(
        device_imbalance,
        Words(
            title="Operators of {submodule} are split unevenly over devices: {lost_share} of the "
            "run",
            caveat="Devices of different speed, or one that also serves others, look the same; "
            "transfers between them are not counted here.",
            recommendation="Divide heads or channels evenly over the devices, give the slower one "
            "less, or move whole submodules instead of parts of operators.",
        ),
        "Divide heads or channels evenly over the devices",
    ),
)


# --- How busy each device was, and why it was idle, in a line a device.


_MOST = 3  # devices that have a line each
_WORTH = 0.005  # of the end-to-end time: causes and differences that are named
_NAMED = 3  # causes at most
_CAUSES: Mapping[str, Said] = {
    "launch_ns": said("launch-bound {share}"),
    "unknown_cause_ns": said("cause not recorded {share}"),
    "sync_ns": said("sync-bound {share}"),
    "queue_ns": said("queue-bound {share}"),
    "copy_wait_ns": said("waiting for copies {share}"),
    "other_device_ns": said("waiting for another device {share}"),
    "host_ns": said("between calls {share}"),
    "unallocated_ns": said("before and after its work {share}"),
}
"""The parts of `idle_share`, by column: shares of the end-to-end time."""


def device_facts(analysis: Analysis) -> tuple[Fact, ...]:
    """Return for each device the shares of the end-to-end time in which it was busy, idle and why,
    and not recorded. Of more than a few devices, return the range and the most idle one. Empty
    if the times of commands were not recorded."""
    info = analysis.inputs.run.info
    if not times_recorded(info) or is_host_only(info.health):
        return ()
    rows = analysis.devices.rows(named=True)
    driven = has_accelerators(row["device"] for row in rows)
    known = [row for row in rows if row["idle_share"] is not None]
    waits = {row["device"]: row for row in analysis.idle.rows(named=True)}
    total = analysis.accounting.wall_ns or analysis.accounting.end_to_end_ns
    if len(known) > _MOST:
        known.sort(key=lambda row: -row["idle_share"])
        return (
            _range(known, waits, total),
            _device(known[0], waits.get(known[0]["device"]), total),
        )
    facts = [_device(row, waits.get(row["device"]), total) for row in known]
    untraced = [
        row
        for row in rows
        if row not in known
        and row["calls"]
        and row["calls_share"] is not None
        and is_accelerator(row["device"]) == driven
    ]
    missing = untraced_calls(analysis.inputs.run, analysis.inputs.calls).any()
    why = said("busy time is unknown: only host work was recorded")
    if missing:
        why = said("busy time is unknown: not all calls were traced")
    return (*facts, *_untraced(untraced[: _MOST - len(facts)], busy_unknown(info.health), why))


def _device(row: Mapping[str, Any], waits: Mapping[str, Any] | None, total: int) -> Fact:
    """Return the line of a device: `rocm:2`: `busy 60 %`, `idle 40 %: launch-bound 38 %, between
    calls 2.0 %`, and first what was not recorded of it, though it is in the end-to-end time."""
    idle = said("idle {share}", share=percent(row["idle_share"]))
    causes = _causes(waits, total) if waits is not None and total else []
    if causes:
        idle = said("{idle}: {causes}", idle=idle, causes=joined(", ", causes))
    lost = 1 - row["utilization"] - row["idle_share"]
    if lost >= _WORTH:
        idle = said("recording gaps {share}, {idle}", share=percent(lost), idle=idle)
    return Fact(row["device"], said("busy {share}", share=percent(row["utilization"])), idle)


def _causes(waits: Mapping[str, Any], total: int) -> list[Said]:
    """Return the causes of idle time: launch-bound first, however small, unless it is unknown; then
    the largest of the others that are worth naming."""
    first = "launch_ns"
    causes = [name for name in _CAUSES if name != first and waits[name] >= _WORTH * total]
    causes.sort(key=lambda name: -waits[name])
    if waits[first] or not waits["unknown_cause_ns"]:
        causes.insert(0, first)
    return [
        said(_cause(name, waits["device"]).template, share=percent(waits[name] / total))
        for name in causes[:_NAMED]
    ]


def _cause(name: str, device: str) -> Said:
    """Return the name of a cause. A CPU waits between operators: no host launches its work."""
    if name == "launch_ns" and device_kind(device) == "cpu":
        return said("between operators {share}")
    return _CAUSES[name]


def _range(
    rows: Sequence[Mapping[str, Any]], waits: Mapping[str, Mapping[str, Any]], total: int
) -> Fact:
    """Return the line of many devices, with lowest and highest shares; `rows` have the most
    idle first."""
    busy = [row["utilization"] for row in rows]
    value = said("busy {share}", share=_from_to(busy[0], busy[-1]))
    known = [waits[row["device"]] for row in rows if row["device"] in waits]
    cause = _most_common(known)
    bound = [row[cause] / total for row in known if total]
    share = _from_to(min(bound, default=0), max(bound, default=0))
    named = said(_cause(cause, rows[0]["device"]).template, share=share)
    if rows[0]["idle_share"] - rows[-1]["idle_share"] < _WORTH:
        note = said("{cause}; all are alike, one is below", cause=named)
    else:
        note = said("{cause}; the most idle one is below", cause=named)
    return Fact(counted(len(rows), "device"), value, note)


def _from_to(low: float, high: float) -> str:
    """`1.6 % to 2.7 %`, or one value if both read the same."""
    ends = {"low": percent(low), "high": percent(high)}
    return ends["low"] if ends["low"] == ends["high"] else said("{low} to {high}", **ends)


def _most_common(waits: Sequence[Mapping[str, Any]]) -> str:
    """Return launch-bound if any device is, else what they waited for longest in sum."""
    if any(row["launch_ns"] for row in waits):
        return "launch_ns"
    return max(_CAUSES, key=lambda name: sum(row[name] for row in waits))


def _untraced(
    rows: Sequence[Mapping[str, Any]], damaged: Container[str], why: Said
) -> Iterator[Fact]:
    for row in rows:
        if row["device"] in damaged:
            yield Fact(row["device"], said("busy time is not known"))
            continue
        value = said("in calls {share}", share=percent(row["calls_share"]))
        yield Fact(row["device"], value, why)


# --- What each device did, by category of work.


_DEVICES = (
    "device hardware utilization span_ns",
    renamed(DEVICES, "calls_ns", label="in calls"),
    "busy_ns carried_over_ns unrecorded_ns compute_ns dma_ns copy_ns collective_ns sync_ns",
    "other_ns host_ns calls commands",
    renamed(DEVICES, "weight_bytes", label="weights"),
)


def devices_figure(analysis: Analysis) -> Figure:
    """Return the figure of how long commands of each category ran on each device."""
    total_ns = analysis.inputs.axis.counted.length
    return Figure("devices", "devices", (analysis.devices, total_ns))


def _parts(of: ReportInput) -> tuple[Part, ...]:
    analysis = of.analysis
    if analysis.devices.is_empty():
        return ()
    return (
        Part(
            said("Time by category of work"),
            figure=devices_figure(analysis),
            table=table("devices", "devices", _DEVICES, DEVICES, analysis.devices, shown=20),
        ),
    )


SECTION = SectionKind(
    "devices",
    80,
    said("Devices"),
    _parts,
    tables=("devices", "counter_timeline"),
    group=SectionGroup.DEVICE,
)


# --- Weights by device: what must fit there before anything runs.


def device_weights(
    submodules: Mapping[str, Submodule], devices: Mapping[str, Device]
) -> dict[str, int]:
    """Bytes of weights by device, the most at once, from `RunInfo.submodules` and `.devices`.

    If a device does not tell, its submodules are added up; weights that they share
    (`shared_weight_bytes`) count once. A device with a submodule whose weights nobody gave of is
    left out.
    """
    totals: dict[str, int] = {}
    unknown: set[str] = set()
    for known in submodules.values():
        size = _own_bytes(known)
        if size is None:
            unknown.add(known.device)
        else:
            totals[known.device] = totals.get(known.device, 0) + size
    for name, device in devices.items():
        if device.weight_bytes is not None:
            totals[name] = device.weight_bytes
    named = {name: size for name, size in totals.items() if name}
    return {name: size for name, size in named.items() if name not in unknown and size < 1 << 63}


def submodule_weights(submodules: Mapping[str, Submodule]) -> dict[str, int | None]:
    """Bytes of weights by submodule, but those shared with one before; None if unknown."""
    return {name: _own_bytes(known) for name, known in submodules.items()}


def _own_bytes(known: Submodule) -> int | None:
    """Bytes of a submodule's weights but those that it shares with one before."""
    size = known.weight_bytes
    return None if size is None else max(size - (known.shared_weight_bytes or 0), 0)
