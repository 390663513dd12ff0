"""How busy each device was, and why it was idle, in a line a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from profiler.analysis.host_side import has_accelerators, is_accelerator
from profiler.analysis.recorded_times import times_recorded
from profiler.analysis.result import Analysis
from profiler.report.model import Fact
from profiler.text import Said, counted, joined, percent, said

__all__ = ["device_facts"]

_MOST = 3  # devices that have a line each
_WORTH = 0.005  # of the end-to-end time: causes that are named
_CAUSES: Mapping[str, Said] = {
    "launch_ns": said("launch-bound {share}"),
    "unknown_cause_ns": said("cause not recorded {share}"),
    "sync_ns": said("sync-bound {share}"),
    "queue_ns": said("queue-bound {share}"),
    "copy_wait_ns": said("waiting for copies {share}"),
    "other_device_ns": said("waiting for another device {share}"),
    "host_ns": said("between calls {share}"),
    "unused_ns": said("before and after its work {share}"),
}
"""Of what `idle_share` is the sum, by column: shares of the end-to-end time."""


def device_facts(analysis: Analysis) -> tuple[Fact, ...]:
    """For each device the share of the end-to-end time in which it was busy, and why it was idle
    in the rest; of more than a few devices the range, and the idlest one. Nothing where nobody
    recorded when commands ran."""
    if not times_recorded(analysis.inputs.run.info):
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
    return (*facts, *_untraced(untraced[: _MOST - len(facts)]))


def _device(row: Mapping[str, Any], waits: Mapping[str, Any] | None, total: int) -> Fact:
    """`rocm:2`: `busy 60 %`, `idle 40 %: launch-bound 38 %, between calls 2.0 %`."""
    idle = said("idle {share}", share=percent(row["idle_share"]))
    causes = _causes(waits, total) if waits is not None and total else []
    if causes:
        idle = said("{idle}: {causes}", idle=idle, causes=joined(", ", causes))
    return Fact(row["device"], said("busy {share}", share=percent(1 - row["idle_share"])), idle)


def _causes(waits: Mapping[str, Any], total: int) -> list[Said]:
    """Launch-bound first, whatever it is, unless nothing tells it; the others that are worth
    naming, the largest first."""
    first = "launch_ns"
    others = [name for name in _CAUSES if name != first and waits[name] >= _WORTH * total]
    others.sort(key=lambda name: -waits[name])
    told = waits[first] or not waits["unknown_cause_ns"]
    return [
        said(_CAUSES[name].template, share=percent(waits[name] / total))
        for name in ((first, *others) if told else others)
    ]


def _range(
    rows: Sequence[Mapping[str, Any]], waits: Mapping[str, Mapping[str, Any]], total: int
) -> Fact:
    """Of many devices the least and the most; `rows` have the idlest first."""
    busy = [1 - row["idle_share"] for row in rows]
    value = said("busy {share}", share=_from_to(busy[0], busy[-1]))
    known = [waits[row["device"]] for row in rows if row["device"] in waits]
    cause = _most_common(known)
    bound = [row[cause] / total for row in known if total]
    share = _from_to(min(bound, default=0), max(bound, default=0))
    note = said("{cause}; the idlest is below", cause=said(_CAUSES[cause].template, share=share))
    return Fact(counted(len(rows), "device"), value, note)


def _from_to(low: float, high: float) -> str:
    """`1.6 % to 2.7 %`, or the one that both read as."""
    ends = {"low": percent(low), "high": percent(high)}
    return ends["low"] if ends["low"] == ends["high"] else said("{low} to {high}", **ends)


def _most_common(waits: Sequence[Mapping[str, Any]]) -> str:
    """Launch-bound, unless no device is: then what they waited for longest, all together."""
    if any(row["launch_ns"] for row in waits):
        return "launch_ns"
    return max(_CAUSES, key=lambda name: sum(row[name] for row in waits))


def _untraced(rows: Sequence[Mapping[str, Any]]) -> Iterator[Fact]:
    for row in rows:
        value = said("in calls {share}", share=percent(row["calls_share"]))
        yield Fact(row["device"], value, said("busy time is unknown: not all calls were traced"))
