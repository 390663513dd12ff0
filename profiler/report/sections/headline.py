"""The one sentence above every report: what ran, for how long, what took it, what was idle.

headline(analysis, span_ns)
== "28 steps in 4.10 s: 92 % transformer, of which 41 % attention; device cpu:0 idle 6.0 %"

Shares are of the end-to-end time on the devices' axis; that of a role is of device time, which the
line says where devices were busy for less than most of it.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from profiler.analysis.accounting.identity import Accounting
from profiler.analysis.findings.measures import captures_and_replays
from profiler.analysis.host_side import has_accelerators, is_accelerator
from profiler.analysis.recorded_times import times_recorded
from profiler.analysis.result import Analysis
from profiler.analysis.timelines import are_apart
from profiler.text import count, counted, duration, joined, percent, said
from profiler.trace.events import GRAPH_CAPTURE, DropReason

__all__ = ["asynchronous", "at_once", "carried_over", "headline", "measured_apart"]

_ENOUGH = 0.8  # of the time: the parts that take it are named
_MOST = 3  # of parts, and of devices that are named
_KNOWN = 0.5  # of device time with a role, for the share of one to say anything
_WORTH = 0.05  # share of a role
_BUSY = 0.9  # of a submodule's time: its device time is all of it but for gaps
_ENCODERS = "text_encoder"


def headline(analysis: Analysis, span_ns: int) -> str:
    """One line: steps and time, the submodules with most of it, the first role, idle devices.

    `span_ns` lasts from the first event of the run to its last; it stands in for the end-to-end
    time where the run has no pipeline span. Shares of submodules are of the sum of the pipeline
    calls' times, that of a role of the device time of its submodule, that of idle of the time in
    which any pipeline call ran. Of a selection only the first are known for the whole run.
    """
    account = analysis.accounting
    total = account.end_to_end_ns or span_ns
    what = said("{what} in {time}", what=_what(analysis), time=_passed(account, total))
    if GRAPH_CAPTURE in analysis.inputs.run.info.capabilities:
        what = said("graph capture, not serving: {what}", what=what)
    elif captures_and_replays(analysis):
        what = said("graphs captured and replayed: {what}", what=what)
    if measured_apart(analysis):
        what = said("measured one by one: {what}", what=what)
    parts = [part for part in (_parts(analysis, total), _idle(analysis)) if part]
    return said("{what}: {parts}", what=what, parts=joined("; ", parts)) if parts else what


def measured_apart(analysis: Analysis) -> bool:
    """Whether nobody knows how often a pipeline calls the components, each of which was measured by
    itself: their sum is no end-to-end time."""
    return any(drop.detail.code is DropReason.STEPS_UNKNOWN for drop in analysis.drops)


def _what(analysis: Analysis) -> str:
    account = analysis.accounting
    parts = []
    if account.pipelines > 1 and not are_apart(analysis.drops):
        parts.append(counted(account.pipelines, "pipeline call"))
    if account.steps:
        parts.append(counted(account.steps, "step"))
    if account.in_iterations:
        parts.append(counted(account.iterations, "iteration"))
    if not parts and analysis.run.calls:
        parts.append(counted(analysis.run.calls, "call"))
    if not parts:
        parts.append(counted(analysis.run.commands, "command"))
    job = analysis.inputs.run.info.job
    if job is not None and len(job.ranks) > 1:
        parts.append(counted(len(job.ranks), "rank"))
    return joined(", ", parts)


def _passed(account: Accounting, total: int) -> str:
    """`"1.60 s"`, or `"1.60 s (3.10 s in sum)"` where pipeline calls ran at the same time."""
    if account.overlapping and account.told_apart:
        wall = duration(account.wall_ns)
        return said("{time} ({sum} in sum)", time=wall, sum=duration(total))
    return duration(total)


def _parts(analysis: Analysis, total: int) -> str:
    """`"92 % transformer, of which 41 % attention"`, `"48 % transformer (of which 41 % attention),
    35 % vae"`; "" where no submodule is known."""
    shares = _grouped(
        (part.submodule, part.wall_ns / total) for part in analysis.accounting.submodules if total
    )
    named: list[str] = []
    reached = 0.0
    for _, name, share in shares[:_MOST]:
        if reached >= _ENOUGH:
            break
        reached += share
        named.append(said("{share} {name}", share=percent(share), name=name))
    if not named:
        return ""
    first = shares[0][0]
    bound, role = _launch_bound(analysis, first), _role(analysis, first)
    if role and _is_busy(analysis, first):
        role = said("of which {role}", role=role)
    elif role:
        role = said("of its device time {role}", role=role)
    named[0] = _with_notes(named[0], bound, role, among=len(named) > 1)
    return joined(", ", named)


def _with_notes(part: str, bound: str, role: str, *, among: bool) -> str:
    """A submodule with how much of it is launch-bound, and what most of it is for: in one pair of
    parentheses `among` others, else the latter behind them."""
    inside = [note for note in (bound, role if among else "") if note]
    if inside:
        part = said("{part} ({notes})", part=part, notes=joined("; ", inside))
    return said("{part}, {role}", part=part, role=role) if role and not among else part


def _is_busy(analysis: Analysis, submodules: tuple[str, ...]) -> bool:
    """Whether devices worked for most of the submodules' time, as far as calls were traced."""
    elapsed, busy = _traced(analysis, submodules, "busy_ns")
    return busy >= _BUSY * elapsed


def _launch_bound(analysis: Analysis, submodules: tuple[str, ...]) -> str:
    """`"37 % of it launch-bound"`; "" where that is little."""
    elapsed, bound = _traced(analysis, submodules, "launch_bound_ns")
    if not elapsed or bound < _WORTH * elapsed:
        return ""
    return said("{share} of it launch-bound", share=percent(bound / elapsed))


def _traced(analysis: Analysis, submodules: tuple[str, ...], column: str) -> tuple[int, int]:
    """How long the submodules' calls took, and a column of theirs: of calls that were traced alone,
    for of others nobody knows it. Without any of these, of all."""
    rows = analysis.calls.filter(pl.col("submodule").is_in(submodules))
    traced = rows.filter(pl.col("ops_traced") | (pl.col("commands") > 0))
    if len(traced) in (0, len(rows)):
        rows = analysis.submodules.filter(pl.col("submodule").is_in(submodules))
        return int(rows["elapsed_ns"].sum()), int(rows[column].sum())
    return int(traced["elapsed_ns"].sum()), int(traced[column].sum())


def _grouped(shares: Iterable[tuple[str, float]]) -> list[tuple[tuple[str, ...], str, float]]:
    """Submodules, their name and their share, the largest first; several text encoders as one."""
    found = list(shares)
    encoders = [part for part in found if part[0].startswith(_ENCODERS)]
    rest = [part for part in found if part not in encoders] if len(encoders) > 1 else found
    parts = [((name,), name, share) for name, share in rest]
    if len(encoders) > 1:
        names, each = zip(*encoders, strict=True)
        parts.append((names, said("text encoders"), sum(each)))
    return sorted(parts, key=lambda part: -part[2])


def _role(analysis: Analysis, submodules: tuple[str, ...]) -> str:
    """`"41 % attention"`, the role with most of their device time; "" where most of it has none."""
    if analysis.run.selection:
        return ""
    roles = analysis.roles.filter(pl.col("submodule").is_in(submodules))
    sums = dict(roles.group_by("role", maintain_order=True).agg(pl.col("total_ns").sum()).rows())
    busy = sum(sums.values())
    known = {name: ns for name, ns in sums.items() if name != "other"}
    if not busy or sum(known.values()) < _KNOWN * busy:
        return ""
    name, ns = max(known.items(), key=lambda part: part[1])
    if ns < _WORTH * busy:
        return ""
    return said("{share} {name}", share=percent(ns / busy), name=name)


def _idle(analysis: Analysis) -> str:
    """`"device cpu:0 idle 6.0 %"`: the time in which none of its commands ran. Where calls of a
    device were not traced nobody knows that: `"device cuda:0 without a call for 6.0 %"`; a CPU that
    drives accelerators is no such device. "" where the tables are of a selection, and where nobody
    recorded when commands ran."""
    if analysis.run.selection or not times_recorded(analysis.inputs.run.info):
        return ""
    idle, without_call = [], []
    rows = analysis.devices.select("device", "calls", "idle_share", "calls_share").rows()
    driven = has_accelerators(device for device, *_ in rows)
    for device, calls, idle_share, calls_share in rows:
        if idle_share is not None:
            idle.append((idle_share, device))
        elif calls and calls_share is not None and is_accelerator(device) == driven:
            without_call.append((1 - calls_share, device))
    parts = []
    if idle:
        parts.append(_devices_idle(sorted(idle)))
    if without_call:
        parts.append(_devices_without_call(sorted(without_call)))
    return joined("; ", parts) if parts else ""


def _devices_idle(shares: list[tuple[float, str]]) -> str:
    """One device, a few by name, or of many the least and the most."""
    if len(shares) == 1:
        (share, device), *_ = shares
        return said("device {device} idle {share}", device=device, share=percent(share))
    if len(shares) > _MOST:
        found = _range(shares)
        if found["low"] == found["high"]:
            return said("{devices} idle {low}", **found)
        return said("{devices} idle {low} to {high}", **found)
    return said("devices idle: {devices}", devices=_each(shares))


def _devices_without_call(shares: list[tuple[float, str]]) -> str:
    if len(shares) == 1:
        (share, device), *_ = shares
        return said(
            "device {device} without a call for {share}", device=device, share=percent(share)
        )
    if len(shares) > _MOST:
        return said("{devices} without a call for {low} to {high}", **_range(shares))
    return said("devices without a call: {devices}", devices=_each(shares))


def _each(shares: list[tuple[float, str]]) -> str:
    return joined(
        ", ",
        [said("{device} {share}", device=d, share=percent(share)) for share, d in shares],
    )


def _range(shares: list[tuple[float, str]]) -> dict[str, str]:
    low, high = percent(shares[0][0]), percent(shares[-1][0])
    return {"devices": counted(len(shares), "device"), "low": low, "high": high}


def at_once(account: Accounting) -> str:
    """How many pipeline calls ran at the same time as another, and what the times are of."""
    calls = counted(account.pipelines, "pipeline call")
    number = count(account.overlapping)
    if not account.told_apart:
        return said(
            "{number} of {calls} ran at the same time as another; the run does not say what "
            "belongs to which, so they count as one",
            number=number,
            calls=calls,
        )
    return said(
        "{number} of {calls} ran at the same time as another: {wall} of wall time, {sum} in sum, "
        "to which times and shares refer",
        number=number,
        calls=calls,
        wall=duration(account.wall_ns),
        sum=duration(account.end_to_end_ns),
    )


def asynchronous(analysis: Analysis) -> list[tuple[str, int, int]]:
    """Submodules whose calls return before their device is done: name, time in calls, device
    time, in ns. For these the wall time of a call says little."""
    rows = analysis.submodules.select("submodule", "duration_ns", "busy_ns").rows()
    return [row for row in rows if row[2] > 1.02 * row[1]]


def carried_over(analysis: Analysis) -> list[tuple[str, int]]:
    """Devices that worked on what had been launched before the recording began, and how long, in
    ns."""
    rows = analysis.devices.select("device", "carried_over_ns").rows()
    return [row for row in rows if row[1]]
