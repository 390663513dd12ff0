"""Devices that wait for their host: within calls, between steps, while it loads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.activity import waits_of
from profiler.analysis.commands import first_calls
from profiler.analysis.finding_text import (
    MATERIAL,
    MOSTLY_IN_GRAPHS,
    Rule,
    Words,
    accelerators,
    calls_of,
    captures_and_replays,
    end_to_end_ns,
    extended,
    idle_for_host,
    in_graphs_share,
    named_devices,
    number,
    on_several,
    only_captures,
    share,
    texts,
    unaligned,
    value_range,
    works_behind,
)
from profiler.analysis.gains import LONGEST_LAUNCH, replay_gains
from profiler.analysis.host_activity import LONG_STALL, Stalls, stall_begins, stall_times, stalls_of
from profiler.analysis.idle import gap_evidence, gaps_of, host_in, in_data_loader, longest_wait
from profiler.analysis.idle_causes import WaitCause
from profiler.analysis.profiling_overhead import tracing_overhead
from profiler.analysis.replay import USUAL
from profiler.analysis.result import Analysis, Finding, Recorded, Where
from profiler.analysis.runtime import Runtime
from profiler.run.intervals import Stretches, Times, ends
from profiler.run.launches import launches_of
from profiler.run.run import Run
from profiler.text import Said, Value, filled, joined, said
from profiler.trace.events import NO_RANK, NO_STEP, rank_of_device
from profiler.trace.manifest_fields import ActivityKind


class MostlyBetween(StrEnum):
    """What most of the time between calls is."""

    HOST_WORK = "host_work"
    NOT_RECORDED = "not_recorded"


# --- What first calls load: libraries and kernels, in slow calls of the driver.


def loading_ns(analysis: Analysis, device: str, least_gap_ns: int = LONG_STALL) -> int:
    """Return how long a device waited at least for the host to load something, in ns. These are
    times in gaps of `least_gap_ns` and more, in first calls, in which launches and other driver
    calls of over 1 ms ran. Stalls are left out. 0 if most kernels had run before the recording
    began: they are loaded then."""
    once = stall_begins(analysis)
    rows = analysis.gaps.filter(
        pl.col("device") == device,
        pl.col("cause") == WaitCause.LAUNCH.value,
        pl.col("length_ns") >= least_gap_ns,
        ~pl.col("begin_ns").is_in(once),
        pl.col("call").is_in(first_calls(analysis.calls).implode()),
    )
    run = analysis.inputs.run
    if rows.is_empty() or _ran_before(run):
        return 0
    rank = rank_of_device(device)  # another rank's host loads for its own device
    launches = run.commands[run.flows["source"].unique()].filter(pl.col("category") == "host")
    if rank != NO_RANK:
        launches = launches.filter(pl.col("rank") == rank)
    begin, length = launches["start_ns"].to_list(), launches["duration_ns"].to_list()
    for one in run.info.host_activities:
        if one.kind is ActivityKind.RUNTIME_CALL and rank_of_device(one.thread) == rank:
            begin.append(one.start_ns)
            length.append(one.duration_ns)
    start, took = np.array(begin, dtype=np.int64), np.array(length, dtype=np.int64)
    slow = took > LONGEST_LAUNCH
    gaps = _times(rows["begin_ns"].to_numpy(), rows["length_ns"].to_numpy())
    return _times(start[slow], took[slow]).both(gaps).length


def loads_first(analysis: Analysis) -> bool:
    """Whether a device waits for 1 % of the run or more for what first calls load."""
    total, devices = end_to_end_ns(analysis), accelerators(analysis)["device"]
    return any(
        share(loading_ns(analysis, one, LONGEST_LAUNCH), total) >= MATERIAL for one in devices
    )


def _ran_before(run: Run) -> bool:
    """Whether at least half of the launched kernels also ran, by name, in work that was launched
    before the recording began."""
    launches = launches_of(run.commands, run.flows)
    if launches is None or not len(launches.carried):
        return False
    kernels = run.commands.select(
        name=pl.coalesce("kernel", "layer").cast(pl.String),
        launched=pl.Series(launches.source >= 0),
        computes=pl.col("category").cast(pl.String) == "compute",
    )
    before = kernels[launches.carried].filter("computes")["name"].unique()
    again = kernels.filter("launched", "computes")["name"].is_in(before.implode())
    return 2 * int(again.sum()) >= len(again) > 0


def _times(begin: Times, length: Times) -> Stretches:
    return Stretches.union(begin, begin + length)


# --- How long the device waited in each step for the host to launch, and how long of that before
# the first kernel of its calls.


class LaunchBoundSteps(Struct, frozen=True):
    """Shortest, median and longest time of some steps in which their calls were launch-bound;
    shortest and longest of that before their first kernels, None if unknown."""

    low_ns: int
    median_ns: int
    high_ns: int
    before_low_ns: int | None
    before_high_ns: int | None


def launch_bound_steps(calls: pl.DataFrame) -> LaunchBoundSteps | None:
    """Of the steps of the table of calls, or some of its rows; None without steps."""
    in_steps, first = calls.filter(pl.col("step") >= 0), pl.col("before_kernel_ns")
    steps = in_steps.group_by("pipeline", "step").agg(
        pl.col("launch_bound_ns").sum(), before=pl.when(first.is_not_null().all()).then(first.sum())
    )
    if steps.is_empty():
        return None
    bound = sorted(steps["launch_bound_ns"].to_list())
    before = sorted(steps["before"].drop_nulls().to_list())
    known = len(before) == len(bound)
    return LaunchBoundSteps(
        low_ns=bound[0],
        median_ns=round(np.median(bound)),
        high_ns=bound[-1],
        before_low_ns=before[0] if known else None,
        before_high_ns=before[-1] if known else None,
    )


# --- A rule about devices that wait for the host to launch, within calls.


HOST_WAIT = 0.10  # of end to end: a device whose host keeps up waits for a few per cent


def host_bound(analysis: Analysis) -> Iterator[Finding]:
    """A device waits for the host to launch its next command, within calls. Silent if clocks of
    devices are not aligned (when the host had called is not known on its clock), if nothing of
    the host was recorded, and if the run captures graphs or warms up for that. Commands whose
    launch was not recorded do not count, nor does what the host did once in one of several calls:
    fewer launches do not gain that."""
    if unaligned(analysis) or captures_and_replays(analysis) or only_captures(analysis):
        return
    total = end_to_end_ns(analysis)
    for row in accelerators(analysis).to_dicts():
        device, stalls = row["device"], stalls_of(analysis, device=row["device"])
        wait = row["launch_ns"] - (stalls.length_ns if stalls else 0)
        if share(wait, total) < HOST_WAIT:
            continue
        loading, unlisted_ns = in_data_loader(analysis, row, (WaitCause.LAUNCH, WaitCause.SYNC))
        evidence: dict[str, Value] = {
            "host_wait_ns": wait,
            "host_wait_share": share(wait, total),
            **_launches(analysis, device),
            **_of_steps(analysis, device),
            **_outside_steps(analysis, device, wait),
            **gap_evidence(row),
            **(loading or host_in(analysis, row, but=stall_begins(analysis))),
            **({"stalls": stalls.times, "stalls_ns": stalls.length_ns} if stalls else {}),
            **_slowed_by(analysis),
            **_in_graphs(analysis, device),
            **_loading(analysis, device),
        }
        found = Finding(
            "host_bound",
            evidence,
            where=calls_of(analysis, longest_wait(analysis, device), device=device),
            cost_ns=min(wait, loading["data_loader_ns"] + unlisted_ns) if loading else wait,
        )
        if launches_less(found):
            found = replace(found, cost_ns=max(wait, _by_fewer_launches(analysis, row, stalls)))
        yield found


def _by_fewer_launches(analysis: Analysis, row: Mapping[str, Any], stalls: Stalls | None) -> int:
    """What fewer launches gain at most, in ns: beside the wait for them what lies between kernels
    in the queue, and waits between calls to which the host comes sooner. That is no more than the
    device is idle up to its last work, nor than the host takes in calls, but for `stalls`, and the
    queue holds back. Queued work that starts later than `USUAL` waits for something else than its
    launch, and still would. 0 if no launches were recorded: then calls may be done when they
    return, and no host gets ahead."""
    run, axis = analysis.inputs.run, analysis.inputs.axis
    launched = run.commands["device"].gather(run.flows["target"]).cast(pl.String)
    if not (launched == row["device"]).any():
        return 0
    (gaps,) = (one for one in gaps_of(analysis.inputs) if one.device == row["device"])
    calls = run.calls.filter(pl.col("device").cast(pl.String) == row["device"])
    host = Stretches.union(calls["start_ns"].to_numpy(), ends(calls))
    host = host.both(gaps.counted).minus(axis.waits)
    causes = ("launch_ns", "sync_ns", "host_ns", "unknown_cause_ns")
    ahead = host.clipped(np.iinfo(np.int64).min // 4, gaps.span[0]).length
    idle = ahead + sum(row[name] for name in causes)
    launching = host.length
    if stalls:
        before = (pl.col("device") == row["device"]) & (pl.col("begin_ns") <= stalls.last_begin_ns)
        work = int(analysis.calls.filter(before)["busy_ns"].sum())  # that could run meanwhile
        idle -= max(stalls.length_ns - work, 0)
        launching -= stalls.length_ns
    queue = row["queue_ns"] - gaps.long_parts(USUAL)[WaitCause.QUEUE]
    return int(min(idle, launching) + queue)


def _loading(analysis: Analysis, device: str) -> dict[str, Value]:
    """How long the device waited for what the host loaded; nothing if it did not."""
    length = loading_ns(analysis, device)
    return {"loading_ns": length} if length else {}


def _in_graphs(analysis: Analysis, device: str) -> dict[str, Value]:
    """How much of a device's commands graphs launch, if that is most of them."""
    part = in_graphs_share(analysis, device)
    return {"in_graphs_share": part} if part > MOSTLY_IN_GRAPHS else {}


def _slowed_by(analysis: Analysis) -> dict[str, Value]:
    """What was recorded that slowed the host, and what recording operators cost in calls if that
    is known and matters: the host is late for less without it."""
    evidence: dict[str, Value] = {}
    recording = analysis.run.recording
    if recording and recording.with_stack:
        evidence["recorded"] = Recorded.PYTHON_STACKS
    elif recording and recording.record_shapes:
        evidence["recorded"] = Recorded.OPERATORS
    elif tracing_overhead(analysis) is not None:
        evidence["recorded"] = Recorded.OPERATORS
        cost = round(analysis.run.overhead.operators_ns or 0)
        evidence |= {"recording_ns": cost} if cost else {}
    return evidence


def _launches(analysis: Analysis, device: str) -> dict[str, int]:
    """How many commands the device got, and how long one took."""
    rows = analysis.roofline_roles.filter(pl.col("device") == device)
    commands, busy = int(rows["commands"].sum()), int(rows["total_ns"].sum())
    return {"commands": commands, "mean_command_ns": busy // commands} if commands else {}


def _of_steps(analysis: Analysis, device: str) -> dict[str, int]:
    """How much of each step is launch-bound, and of that lies before the first kernel of its
    calls; nothing if there are no steps or nobody knows. Steps in which the host did something
    once are left out."""
    calls = analysis.calls.filter(pl.col("device") == device)
    still = stall_times(analysis).within(calls["begin_ns"].to_numpy(), calls["end_ns"].to_numpy())
    stalled = calls.filter(still > 0).select("pipeline", "step")
    steps = launch_bound_steps(calls.join(stalled, on=["pipeline", "step"], how="anti"))
    if steps is None or steps.before_low_ns is None or steps.before_high_ns is None:
        return {}
    return {
        "least_of_step_ns": steps.low_ns,
        "median_of_step_ns": steps.median_ns,
        "most_of_step_ns": steps.high_ns,
        "least_before_kernel_ns": steps.before_low_ns,
        "most_before_kernel_ns": steps.before_high_ns,
    }


def _outside_steps(analysis: Analysis, device: str, wait_ns: int) -> dict[str, Value]:
    """The stage without steps in which most of the wait is, if there is one; nothing else. As in
    the wait, what the host did once is left out."""
    if analysis.steps.is_empty():
        return {}
    stepped = analysis.calls.filter(pl.col("step") != NO_STEP)["stage"].unique()
    here = (pl.col("device") == device) & (pl.col("cause") == WaitCause.LAUNCH.value)
    rows = waits_of(analysis.inputs).filter(here, ~pl.col("stage").is_in(stepped.implode()))
    for stage, length in rows.group_by("stage").agg(pl.col("wait_ns").sum()).iter_rows():
        stalls = stalls_of(analysis, device=device, stage=stage)
        often = length - (stalls.length_ns if stalls else 0)
        if often > wait_ns / 2:
            return {"waits_in": stage, "waits_in_ns": often}
    return {}


# --- What findings say of a device that waits for its host: titles, advice.


LOOK_IN_GAPS = said(
    "Look at what the host does in the gaps: synchronizing (.item(), .cpu(), printing), "
    "allocation, graph breaks, lazy loading."
)
_SLOWER = said(
    "Recording slows the host: without the profiler the device waits less. Faster kernels gain "
    "nothing while it waits."
)
_SLOWER_WITH_STACKS = said(
    "Recording slows the host, Python stacks most of all: without the profiler the device waits "
    "less. Faster kernels gain nothing while it waits."
)
_GRAPHS_GAIN_MORE = said(
    "Graphs may gain more than this wait: kernels in the queue follow one another sooner, and the "
    "host gets ahead of the device between calls."
)
_PREPARES = re.compile(
    r"(processing|feature_extraction|tokenization)_\w+\.py: (?!post|.*decode)"
    r"|torchvision/transforms/"
)
_MORE = 0.05  # of the wait: what fewer launches gain beside it and the title names
_LAUNCH_LESS = said(
    "Launch less: CUDA graphs or torch.compile(mode='reduce-overhead'), larger batches, fused "
    "nodes."
)
_WARM_UP = said(
    "Warm up with the same shapes and record again: launches and other calls of the driver take so "
    "long if they load libraries and kernels, as the first ones do. Neither graphs nor fewer "
    "launches gain that."
)
_BETWEEN_GRAPHS = said(
    "Graphs launch most of this work already: look at what the host does between their launches "
    "(copies of inputs, sampling, callbacks), and capture what is still launched one by one."
)
_LOOK = said("The table of gaps shows what the host did in the longest ones.")
_RECORD_CALLS = said("Record once with call spans only to see how much is left.")
_TIME_UNTRACED = said(
    "Without the profiler the device waits less: profile-sd3 predict --untraced MS, with the time "
    "of the run without it, shows what CUDA graphs gain then."
)
LOAD_AHEAD_TEXT = said(
    "Load ahead: more workers (num_workers; with 0 the loop itself loads), persistent_workers, "
    "prefetch_factor, pin_memory, or cheaper decoding and transforms. With fewer launches the host "
    "can load the next batch while the device works."
)


PREPARE_TEXT = said(
    "The host prepares inputs meanwhile: do that in worker processes (num_workers), for the next "
    "call while this one runs, or on the device (a fast image processor: use_fast=True, "
    "device='cuda')."
)


def _host_bound(found: Finding) -> Words:
    """Return the words of a finding about a device that waits for the host."""
    title = _waits_for_host(found)
    stacks = found.evidence.get("recorded") == Recorded.PYTHON_STACKS
    if waits_for_loading(found):
        loading = said("{what}; at least {loading_ns} of that in slow calls of the driver")
        title = extended(title, loading, found)
    elif waits_longer_than_launches(found):
        title = with_host(title, found)
    if "stalls_ns" in found.evidence and not on_several(found):
        stalls = said("{what}, not counting {stalls_ns} of host work that happened only once")
        title = extended(title, stalls, found)
    more = round((found.cost_ns or 0) - number(found, "host_wait_ns"))
    if more > _MORE * number(found, "host_wait_ns"):
        beside = said("{what}; fewer launches may also save {more_ns} between kernels and calls")
        beyond = replace(found, evidence={**found.evidence, "more_ns": more})
        title = extended(title, beside, beyond)
    if "recording_ns" in found.evidence:
        cost = said("{what}; recording operators took {recording_ns} of the host's time in calls")
        title = extended(title, cost, found)
    if stacks:
        title = extended(title, said("{what}; recording Python stacks slowed the host"), found)
    if waits_for_data_loader(found):
        title = with_data_loader(title, found)
    caveat = _SLOWER_WITH_STACKS if stacks else _SLOWER
    return Words(
        title=title,
        caveat=joined(" ", [caveat, _GRAPHS_GAIN_MORE]) if _by_launching_less(found) else caveat,
        recommendation=_less_waiting(found),
    )


def _waits_for_host(found: Finding) -> str:
    """Return the title: for how long a device waits, and in which stage or where in each step; or
    the range of several devices."""
    if on_several(found):
        return said(
            "{devices} each wait for the host to launch work for {share} of the time",
            devices=named_devices(found),
            share=value_range(found, "host_wait_share"),
        )
    waits = said("{device} waits for the host to launch work for {host_wait_share} of the time")
    title = filled(waits, texts(found))
    if "waits_in_ns" in found.evidence:
        return extended(title, said("{what}, {waits_in_ns} of it in {waits_in}"), found)
    if found.evidence.get("most_of_step_ns"):
        of_step = said(
            "{what}: {least_of_step_ns} to {most_of_step_ns} of each step, of which "
            "{least_before_kernel_ns} to {most_before_kernel_ns} before the first kernel"
        )
        return extended(title, of_step, found)
    return title


def waits_for_data_loader(found: Finding) -> bool:
    """Whether a device waits for the host because it loads data: fewer launches do not help."""
    return "data_loader_ns" in found.evidence


def prepares_inputs(found: Finding) -> bool:
    """Whether the host was mostly preparing inputs: images, sounds or texts."""
    return bool(_PREPARES.search(str(found.evidence.get("host_in", ""))))


def waits_for_loading(found: Finding) -> bool:
    """Whether a device waits for the host mostly because it loads libraries and kernels, as first
    calls do: fewer launches do not help."""
    loading = number(found, "loading_ns") if "loading_ns" in found.evidence else 0
    return 2 * loading > number(found, "host_wait_ns")


def _less_waiting(found: Finding) -> Said:
    """Return what to do, by how long the device waits for each command: fewer launches help if that
    is about as long as a launch."""
    if waits_for_data_loader(found):
        return LOAD_AHEAD_TEXT
    if waits_for_loading(found):
        return _WARM_UP
    if waits_longer_than_launches(found):
        return PREPARE_TEXT if prepares_inputs(found) else LOOK_IN_GAPS
    imported = "recorded" in found.evidence and "recording_ns" not in found.evidence
    look = [_LOOK] if "gaps" in found.evidence else []
    if "in_graphs_share" in found.evidence:
        return joined(" ", [*look, _BETWEEN_GRAPHS])
    if imported and "ranks" in found.evidence:  # `predict` does not replay several
        return joined(" ", [*look, _LAUNCH_LESS])
    return joined(" ", [*look, _LAUNCH_LESS, _TIME_UNTRACED if imported else _RECORD_CALLS])


def _by_launching_less(found: Finding) -> bool:
    """Whether fewer launches, such as by torch's graphs, help a device that waits for the host."""
    return launches_less(found) and found.evidence.get("runtime") in (None, Runtime.COMPILED)


def launches_less(found: Finding) -> bool:
    """Whether fewer launches help a device that waits for the host."""
    others = (waits_for_data_loader, waits_for_loading, waits_longer_than_launches)
    return "in_graphs_share" not in found.evidence and not any(f(found) for f in others)


def waits_longer_than_launches(found: Finding) -> bool:
    """Whether a device waits for the host longer than a launch takes, for each command or in long
    gaps that are most of it: then it is other work of the host, and fewer launches do not help."""
    wait, commands = number(found, "host_wait_ns"), number(found, "commands")
    length = number(found, "gap_ns") - number(found, "stalls_ns")  # the wait holds no stalls
    gaps = number(found, "gaps") - number(found, "stalls")
    mostly = 2 * length > wait and length > LONGEST_LAUNCH * gaps
    return mostly or (commands > 0 and wait > LONGEST_LAUNCH * commands)


def with_data_loader(title: str, found: Finding) -> str:
    """The title, with how long the host was in a DataLoader."""
    return extended(
        title, said("{what}; at least {data_loader_ns} of that for the DataLoader"), found
    )


def with_host(title: str, found: Finding) -> str:
    """The title, with what the host was in for a large part of the longest gaps."""
    if "host_in" not in found.evidence:
        return title
    return extended(title, said("{what}; the host was in {host_in} for {host_in_ns}"), found)


LOAD_AHEAD = said("Load ahead: DataLoader workers (num_workers), persistent, pinned memory")
PREPARE = said("Prepare inputs in worker processes, ahead, or on the device")
LAUNCH_GAPS = said("Look at what the host does in the gaps: .item(), allocation, loading")


def _host_bound_change(found: Finding) -> Said:
    """What to do about a device that waits for the host, in one line."""
    if waits_for_data_loader(found):
        return LOAD_AHEAD
    if waits_for_loading(found):
        return said("Warm up and record again: first launches load libraries and kernels")
    if waits_longer_than_launches(found):
        return PREPARE if prepares_inputs(found) else LAUNCH_GAPS
    if "in_graphs_share" in found.evidence:
        return said("Launched by graphs already: look at what the host does between them")
    return said("Launch less: CUDA graphs, torch.compile, larger batches, fused nodes")


# --- Rules about the time between calls: host work and synchronization around the steps.


_BETWEEN = 0.05  # of the steps' time
_SYNC_STEPS = 0.5  # of the steps: waits in fewer are not the loop's
_SYNC_WAIT = 0.02  # of the device's span
_SYNC = r"(?i)synchronize|^(cuda|hip)Memcpy(WithStream)?$|^aten::(item|_local_scalar_dense)$"


def host_between_steps(analysis: Analysis) -> Finding | None:
    """Between the calls of steps the host (scheduler, guidance, callbacks) works while the device
    waits. Silent if clocks of devices are not aligned, since the ends of steps are then unknown,
    and if a GPU's calls were captured without operators, since the host waits for it there."""
    steps = analysis.steps
    if steps.is_empty() or unaligned(analysis) or works_behind(analysis):
        return None
    inside = int((steps["host_ns"] + steps["idle_ns"]).sum())  # between calls of one step
    between = inside + int(steps["between_ns"].sum())
    duration = int(steps["elapsed_ns"].sum()) + int(steps["between_ns"].sum())
    of_steps, total = analysis.calls.filter(pl.col("step") >= 0), end_to_end_ns(analysis)
    little = share(between, duration) < _BETWEEN or share(between, total) < 2 * MATERIAL
    if of_steps.is_empty() or little:
        return None
    host_work = int(steps["host_ns"].sum()) + int(steps["between_host_ns"].sum())
    mostly_work = host_work >= between / 2
    return Finding(
        "host_between_steps",
        {
            "between_ns": between,
            "between_share": share(between, duration),
            "host_work_ns": host_work,
            "not_recorded_ns": between - host_work,
            "mostly": MostlyBetween.HOST_WORK if mostly_work else MostlyBetween.NOT_RECORDED,
            **_longest_host_work(analysis),
        },
        where=Where(device=str(of_steps["device"][0])),
        cost_ns=max(between, _without_host_between(analysis)),
    )


def _without_host_between(analysis: Analysis) -> int:
    """Return what the run gains, by replay, if the host does nothing between calls of steps, in ns.
    Work that overlaps with the device's counts too, since it delays launches. 0 if the run cannot
    be replayed."""
    gains = replay_gains(analysis.inputs)
    if gains is None:
        return 0
    run, pipelines = analysis.inputs.run, analysis.inputs.pipelines
    calls = run.calls.with_columns(number=pl.Series(pipelines.number_of(run.calls)))
    steps = calls.filter(pl.col("step") >= 0).group_by("number", maintain_order=True)
    extents = steps.agg(first=pl.col("start_ns").min(), last=pl.col("start_ns").max())
    loops = Stretches.union(extents["first"].to_numpy(), extents["last"].to_numpy())
    of_calls = Stretches.union(calls["start_ns"].to_numpy(), ends(calls))
    return gains.without_host(loops.minus(of_calls))


def scheduler_sync(analysis: Analysis) -> Finding | None:
    """The host waits for its device between the calls of most steps. Silent if clocks of devices
    are not aligned."""
    steps, waits = len(analysis.steps), accelerators(analysis)
    if waits.is_empty() or unaligned(analysis):
        return None
    often = pl.col("calls") > 1 + _SYNC_STEPS * steps  # what is in no step counts as one
    of_steps = pl.col("submodule").is_null() & often
    named = pl.col("layer").str.contains(_SYNC) | pl.col("op_types").str.contains(_SYNC)
    rows = analysis.operators.filter(of_steps & named).sort("wall_ns", descending=True)
    for_host = pl.sum_horizontal("launch_ns", "sync_ns", "host_ns")
    longest = waits.sort(for_host).row(-1, named=True)
    wait = idle_for_host(analysis, longest["device"])
    if rows.is_empty() or share(wait, longest["span_ns"]) < _SYNC_WAIT:
        return None
    cost = _without_waits(analysis, rows["layer"], wait)
    if share(cost, end_to_end_ns(analysis)) < MATERIAL:
        return None
    return Finding(
        "scheduler_sync",
        {
            "operation": rows["layer"][0],
            "waits": int(rows["commands"].sum()),
            "host_ns": int(rows["wall_ns"].sum()),
            "device_wait_ns": wait,
            "device_wait_share": share(wait, longest["span_ns"]),
        },
        where=Where(layer=rows["layer"][0], device=longest["device"]),
        cost_ns=cost,
    )


def _without_waits(analysis: Analysis, layers: pl.Series, idle_ns: int) -> int:
    """Return the most that the run gains if the host does not wait in these commands between calls,
    in ns, by replay: it then launches ahead, also in calls. Without a replay the gain is limited by
    these waits and by the device's idle time for the host."""
    run, gains = analysis.inputs.run, replay_gains(analysis.inputs)
    between = (pl.col("call") < 0) & pl.col("layer").cast(pl.String).is_in(layers.implode())
    commands = run.commands.filter(between)
    if gains is None:
        waited = int(commands["duration_ns"].clip(0).sum())
        return min(waited, idle_ns)
    recording = gains.whole.recording
    begun = recording.clock.at(commands["start_ns"].to_numpy())
    gone = np.isin(recording.waits.begin, begun)
    none = np.zeros(len(recording.works.row), dtype=np.bool_)
    return max(gains.without_waits(gone, none), 0)


def _longest_host_work(analysis: Analysis) -> dict[str, Value]:
    """Return the longest host work of no call that is in at least half of the steps, without waits
    and what it called; empty if no host work was recorded."""
    often = pl.col("calls") >= 0.5 * max(len(analysis.steps), 1)
    rows = analysis.operators.filter("host", pl.col("submodule").is_null(), often)
    rows = rows.with_columns(work_ns=pl.col("self_ns") - pl.col("waited_ns")).sort("work_ns")
    if rows.is_empty() or not rows["work_ns"][-1]:
        return {}
    return {
        "longest_host_work": str(rows["layer"][-1]),
        "longest_host_work_ns": int(rows["work_ns"][-1]),
    }


_KEEP_THERE = said(
    "Keep latents, guidance and scheduler on the device, and sigmas and timesteps there from the "
    "start; drop callbacks and progress bars; or compile the whole step."
)
_FIND_OUT = said(
    "Find out what runs there, for most of it was not recorded: callbacks, progress bars, garbage "
    "collection, locks, other threads."
)


def _host_between_steps(found: Finding) -> Words:
    recorded = found.evidence["mostly"] == MostlyBetween.HOST_WORK
    return Words(
        title="{between_share} of the steps' time lies between calls",
        caveat="What is not recorded may be callbacks, progress bars or other threads. Part of the "
        "host work may be arithmetic that has to run somewhere.",
        recommendation=_KEEP_THERE if recorded else _FIND_OUT,
    )


_BETWEEN_CHANGES: Mapping[object, Said] = {
    MostlyBetween.HOST_WORK: said("Keep latents, guidance and scheduler on the device"),
    MostlyBetween.NOT_RECORDED: said(
        "Find what runs there: callbacks, progress bars, other threads"
    ),
}


RULES = (
    Rule(
        host_bound,
        _host_bound,
        _host_bound_change,
        section="idle",
        merged_by="host_wait_share",
        needs=("timeline", "launches"),
    ),
    Rule(
        host_between_steps,
        _host_between_steps,
        lambda found: _BETWEEN_CHANGES.get(found.evidence.get("mostly")),
        section="idle",
        needs=("timeline",),
    ),
    Rule(
        scheduler_sync,
        Words(
            title="The host waits for {device} between the calls of most steps",
            caveat="While the host waits it launches nothing, so the device is idle after every "
            "wait. The wait itself is the device's work, not lost time.",
            recommendation="Find what synchronizes (timesteps compared on the device, .item(), "
            ".cpu(), nonzero() in the scheduler or a callback) and keep those values on the host.",
        ),
        "Find what synchronizes (.item(), .cpu()) and keep it on the host",
        section="idle",
        needs=("timeline", "launches"),
    ),
)
