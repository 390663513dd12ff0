"""The report section on idle devices: gaps, critical path, exposed transfers, findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl

from profiler.analysis.collectives import exposed_transfers
from profiler.analysis.commands import has_accelerators, is_accelerator
from profiler.analysis.critical_path import CRITICAL_PATH
from profiler.analysis.document import Bars, Figure, Part, SectionGroup, SectionKind
from profiler.analysis.finding_text import (
    Rule,
    Words,
    accelerators,
    calls_of,
    captures_and_replays,
    end_to_end_ns,
    idle_for_host,
    named_devices,
    number,
    of_server,
    on_several,
    only_captures,
    share,
    texts,
    unaligned,
    value_range,
)
from profiler.analysis.host_activity import stalls_of
from profiler.analysis.host_bound import (
    HOST_WAIT,
    LAUNCH_GAPS,
    LOAD_AHEAD,
    LOAD_AHEAD_TEXT,
    LOOK_IN_GAPS,
    PREPARE,
    PREPARE_TEXT,
    prepares_inputs,
    waits_for_data_loader,
    with_data_loader,
    with_host,
)
from profiler.analysis.idle import (
    GAPS,
    GAPS_SHOWN,
    IDLE,
    IDLE_SHOWN,
    LONG_GAP_NS,
    gap_evidence,
    gaps_of,
    host_in,
    in_data_loader,
    longest_wait,
)
from profiler.analysis.idle_causes import UNKNOWN_CAUSE, WaitCause
from profiler.analysis.question import table_named
from profiler.analysis.result import Analysis, Finding, ReportInput, Where
from profiler.analysis.step_outliers import cold_calls
from profiler.analysis.table_text import (
    Sentences,
    declared_drawing,
    guessed_waits,
    on_devices,
    path_by_part,
    path_sentence,
    renamed,
    table,
    why_no_waits,
)
from profiler.analysis.transfers import COPIES, CPU_FALLBACK, DEVICE_TRANSITIONS, gain_without
from profiler.run.columns import Column
from profiler.run.intervals import Stretches, ends
from profiler.text import Said, Value, count, said, sentence
from profiler.trace.events import device_kind
from profiler.trace.manifest_fields import Device


class Copied(StrEnum):
    """Which memory most of a device's copies used, as far as their names say."""

    PINNED = "pinned"  # memory of the host that the device reads by itself
    PAGEABLE = "pageable"
    ON_DEVICES = "on_devices"


# --- Rules about devices that wait: for the host in calls, for data, for each other.


_ON_DEVICES = "(?i)DtoD|DeviceToDevice|PtoP|memset|fill"
_MIN_GAP_SHARE = 0.05  # of end to end
_EXPOSED = 0.05  # of end to end
_HIDDEN = 0.5  # of the transfers: more is as good as it gets without double buffering
_BUSY_DEVICE = 0.5  # of the run
_IDLE_DEVICE = 0.1  # of the run
_IN_CALLS = (WaitCause.LAUNCH, WaitCause.QUEUE, WaitCause.SYNC)
_FOR_HOST = (WaitCause.LAUNCH, WaitCause.SYNC, WaitCause.HOST)
_OF_GAPS = (*_IN_CALLS, WaitCause.HOST, WaitCause.COPY, WaitCause.OTHER_DEVICE)
_WAITS = {  # by column of the idle table
    "launch_ns": WaitCause.LAUNCH,
    "unknown_cause_ns": WaitCause.UNRECORDED,
    "sync_ns": WaitCause.SYNC,
    "queue_ns": WaitCause.QUEUE,
    "host_ns": WaitCause.HOST,
    "copy_wait_ns": WaitCause.COPY,
    "other_device_ns": WaitCause.OTHER_DEVICE,
    "data_ns": WaitCause.DATA,
}


def idle_gaps(analysis: Analysis) -> Iterator[Finding]:
    """A device is idle for over 100 µs at a time, with the cause of most of that time. Silent if
    `host_bound` says the same, or `first_call` of a stalled host; if clocks of devices are not
    aligned, since gaps between their calls are then unknown; if devices are models of a server,
    since an idle one keeps no hardware; and if graphs were captured but not run."""
    if unaligned(analysis) or of_server(analysis) or only_captures(analysis):
        return
    total = end_to_end_ns(analysis)
    causes = _causes_of_long_gaps(analysis)
    denoising = int((analysis.calls["stage"] == "denoise").sum())
    for row in accelerators(analysis).to_dicts():
        length, parts = row["long_gap_ns"], causes[row["device"]]
        largest = max(parts, key=lambda cause: parts[cause])
        stalls = stalls_of(analysis, device=row["device"])
        often = row["launch_ns"] - (stalls.length_ns if stalls else 0)
        launch_bound = largest is WaitCause.LAUNCH and share(often, total) >= HOST_WAIT
        launch_bound = launch_bound and not captures_and_replays(analysis)
        rest = length - _first_stalls(analysis, row)
        if launch_bound or share(rest, total) < _MIN_GAP_SHARE:
            continue
        for_host = _FOR_HOST if largest in _FOR_HOST else ()
        loading, unlisted_ns = in_data_loader(analysis, row, for_host)
        gained = rest if for_host else min(rest, parts[largest])  # the advice is for that cause
        if loading:
            gained = min(rest, loading["data_loader_ns"] + unlisted_ns)
        longest = longest_wait(analysis, row["device"]) if largest in _IN_CALLS else None
        where = calls_of(analysis, longest, device=row["device"]) if longest else None
        yield Finding(
            "idle_gaps",
            {
                **gap_evidence(row),
                "gap_share": share(length, total),
                "cause": largest,
                "waits_most_ns": parts[largest],
                **({"denoising_calls": denoising} if denoising else {}),
                **_unrecorded(analysis, row),
                **(loading or (host_in(analysis, row) if for_host else {})),
            },
            where=where or Where(device=row["device"]),
            cost_ns=None if largest is WaitCause.UNRECORDED else gained,
            severity="medium",
        )


def _first_stalls(analysis: Analysis, row: Mapping[str, Any]) -> int:
    """Return how long the host stalled in cold first calls of a device, in ns, which `first_call`
    reports."""
    found = (stalls_of(analysis, device=row["device"], call=call) for call in cold_calls(analysis))
    return sum(stalls.length_ns for stalls in found if stalls)


def _causes_of_long_gaps(analysis: Analysis) -> dict[str, dict[WaitCause, int]]:
    """Return the time of long gaps by device and cause, in ns."""
    found = {}
    for gaps in gaps_of(analysis.inputs):
        parts = gaps.long_parts(LONG_GAP_NS)
        causes = {cause: parts[cause] for cause in _OF_GAPS}
        found[gaps.device] = causes | {WaitCause.UNRECORDED: parts[UNKNOWN_CAUSE]}
    return found


def idle_around(analysis: Analysis) -> Finding | None:
    """For a good part of the run no accelerator has started work, or all have ended it: the host's
    work there is not overlapped. Silent if clocks of devices are not aligned, and if devices are
    models of a server."""
    if unaligned(analysis) or of_server(analysis):
        return None
    known = set(accelerators(analysis)["device"])
    worked = [gaps for gaps in gaps_of(analysis.inputs) if gaps.device in known]
    if not worked:
        return None
    first = min(worked, key=lambda gaps: gaps.span[0])
    last = max(worked, key=lambda gaps: gaps.span[1])
    counted, never = first.counted, np.iinfo(np.int64).max // 4
    before = counted.clipped(-never, first.span[0]).length
    behind = counted.clipped(last.span[1], never).length
    total = end_to_end_ns(analysis)
    if share(before + behind, total) < _MIN_GAP_SHARE:
        return None
    return Finding(
        "idle_around",
        {
            "around_ns": before + behind,
            "around_share": share(before + behind, total),
            "before_ns": before,
            "behind_ns": behind,
        },
        where=Where(device=(first if before >= behind else last).device),
        cost_ns=before + behind,
    )


def transfers_exposed(analysis: Analysis) -> Iterator[Finding]:
    """A device waits for transfers that are not overlapped with compute."""
    shares = exposed_transfers(analysis.inputs)
    for row in analysis.idle.to_dicts():
        part, hidden = shares.get(row["device"], 0.0), row["overlap_share"]
        if hidden is None or hidden >= _HIDDEN or part < _EXPOSED:
            continue
        wait = round(part * analysis.inputs.axis.counted.length)
        yield Finding(
            "transfers_exposed",
            {
                "data_wait_ns": wait,
                "data_wait_share": part,
                "transfer_ns": row["transfer_ns"],
                "hidden_share": hidden,
                **_copied(analysis, row["device"]),
            },
            where=Where(device=row["device"]),
            cost_ns=_without_transfers(analysis, row["device"], wait),
        )


def _without_transfers(analysis: Analysis, device: str, exposed: int) -> int:
    """Return the most that the run gains without a device's transfers, in ns: the time for which it
    only waits for them, and more if the host waits for them too and then launches late. That is
    known by replay, or else limited by the time of the copying calls and by the device's idle time
    for the host."""
    run = analysis.inputs.run
    own = run.commands.select(_transfers_on(device)).to_series()
    gain = gain_without(analysis, own.arg_true().to_numpy().astype(np.int64))
    if gain is not None:
        return max(exposed, gain)
    source, target = run.flows["source"], run.flows["target"]
    launching = run.commands[source.filter(own.gather(target))]
    calls = Stretches.union(launching["start_ns"].to_numpy(), ends(launching))
    return exposed + min(calls.length, idle_for_host(analysis, device))


def _transfers_on(device: str) -> pl.Expr:
    on_device = (pl.col("device").cast(pl.String) == device).fill_null(value=False)
    return on_device & pl.col("category").is_in(["dma", "copy"])


def _copied(analysis: Analysis, device: str) -> dict[str, Value]:
    """Return what most of the time of a device's copies was spent on, if their names say so."""
    copies = analysis.inputs.run.commands.lazy().filter(_transfers_on(device))
    name = pl.coalesce("kernel", "op_type", "layer").cast(pl.String)
    kind = (
        pl.when(name.str.contains(_ON_DEVICES))
        .then(pl.lit(Copied.ON_DEVICES.value))
        .when(name.str.contains("Pinned"))
        .then(pl.lit(Copied.PINNED.value))
        .when(name.str.contains("Pageable"))
        .then(pl.lit(Copied.PAGEABLE.value))
    )
    took = copies.group_by(kind=kind).agg(pl.col("duration_ns").clip(0).sum()).collect()
    if took.is_empty():
        return {}
    longest = took.sort("duration_ns", "kind", nulls_last=True)["kind"][-1]
    return {} if longest is None else {"copied": Copied(longest)}


def idle_device(analysis: Analysis) -> Finding | None:
    """One device works for most of the run, another one like it hardly ever. Silent if clocks of
    devices are not aligned: how long the run took is not known, and if devices are models of a
    server."""
    if unaligned(analysis) or of_server(analysis):
        return None
    used = {
        row["device"]: (row["calls_share"] or 0.0, row["calls_ns"])
        for row in analysis.devices.filter(pl.col("calls") > 0).to_dicts()
        if not _shares_cores(analysis.run.devices, row["device"])
    }
    if len(used) < 2:
        return None
    busiest, least = max(used, key=lambda n: used[n]), min(used, key=lambda n: used[n])
    alike = device_kind(busiest) == device_kind(least)
    if not alike or used[busiest][0] < _BUSY_DEVICE or used[least][0] > _IDLE_DEVICE:
        return None
    return Finding(
        "idle_device",
        {
            "devices": len(used),
            "idle_device_calls_ns": used[least][1],
            "idle_device_calls_share": used[least][0],
            "busy_device": busiest,
            "busy_device_calls_share": used[busiest][0],
        },
        where=Where(device=least),
    )


def _unrecorded(analysis: Analysis, row: Mapping[str, Any]) -> dict[str, Value]:
    """Return the share of a device's waiting with unknown cause, and how many of its commands were
    recorded without their launch; empty if all causes are known."""
    if not row["unknown_cause_ns"]:
        return {}
    run = analysis.inputs.run
    launched = np.zeros(len(run.commands), dtype=np.bool_)
    launched[run.flows["target"].to_numpy()] = True
    own = run.commands.select(
        (pl.col("device") == row["device"]) & ~pl.col("category").is_in(["host", "sync"])
    )
    here = own.to_series().fill_null(value=False).to_numpy()
    return {
        "unrecorded_share": share(row["unknown_cause_ns"], sum(row[name] for name in _WAITS)),
        "commands": int(here.sum()),
        "unrecorded_launches": int((here & ~launched).sum()),
    }


def _shares_cores(devices: Mapping[str, Device], device: str) -> bool:
    known = devices.get(device)
    return known is not None and bool(known.shared_with)


_RECOMMENDATIONS: Mapping[object, str] = {
    WaitCause.LAUNCH: LOOK_IN_GAPS,
    WaitCause.SYNC: "The host waited until the device had nothing left, and launched only then: "
    "look for .item(), .cpu(), printing, blocking copies.",
    WaitCause.QUEUE: "The host had launched the next command: look for what holds it back, events "
    "of other streams, other processes on the device, changes of clocks.",
    WaitCause.HOST: "Look at what the host does between calls: scheduler, guidance, callbacks, "
    "post-processing; or let other requests fill the gaps.",
    WaitCause.COPY: "The device is idle in operations such as copy-done until a copy arrives: keep "
    "what each call copies resident (weights, caches offloaded to the host), copy less, or start "
    "copies earlier.",
    WaitCause.OTHER_DEVICE: "Give it other work in the meantime: independent calls, several "
    "requests at once. profile-sd3 predict compares placements.",
    WaitCause.UNRECORDED: "Record the host as well, with every launch: launches say whether it was "
    "late, or the device had nothing to do.",
    WaitCause.DATA: "Prefetch from pinned memory on a separate stream, and keep weights resident.",
}


def _idle_gaps(found: Finding) -> Words:
    if on_several(found):
        return _idle_devices(found)
    times = _times(round(number(found, "gaps")))
    return _waiting(
        found,
        {"times": times},
        "{device} is idle for more than 100 µs {times}, {gap_share} of its time in all; mainly "
        "{cause}",
        "{device} is idle for more than 100 µs {times}, {gap_share} of its time in all; the cause "
        "of {unrecorded_share} of its waiting was not recorded",
    )


def _waiting(found: Finding, more: dict[str, str], known: str, unrecorded: str) -> Words:
    """The words about one or several waiting devices, from the template for a `known` or an
    `unrecorded` cause; `more` are values beside the evidence."""
    cause = found.evidence["cause"]
    title: str = said(
        unrecorded if cause == WaitCause.UNRECORDED else known, **(texts(found) | more)
    )
    caveat = _WITHOUT_LAUNCHES
    if cause != WaitCause.UNRECORDED:
        title, caveat = with_host(title, found), _FILLED
    if waits_for_data_loader(found):
        return Words(with_data_loader(title, found), caveat, LOAD_AHEAD_TEXT)
    if prepares_inputs(found):
        return Words(title, caveat, PREPARE_TEXT)
    if cause == WaitCause.HOST and "denoising_calls" not in found.evidence:
        return Words(title, caveat, _BETWEEN_CALLS)
    return Words(title, caveat, _RECOMMENDATIONS[cause])


_BETWEEN_CALLS = said(
    "Look at what the host does between calls: loading and preparing inputs, sampling, callbacks, "
    "post-processing; or let other requests fill the gaps."
)


_FILLED = said("A gap that other requests fill costs nothing.")
_WITHOUT_LAUNCHES = said(
    "Of its {commands} commands, {unrecorded_launches} were recorded without their launch. A gap "
    "that other requests fill costs nothing."
)


def _idle_devices(found: Finding) -> Words:
    """The words about several idle devices, with the caveat of the one that is idle longest."""
    return _waiting(
        found,
        {"devices": named_devices(found), "share": value_range(found, "gap_share")},
        "{devices} are each idle for more than 100 µs {least_gaps} to {most_gaps} times, {share} "
        "of the time in all; mainly {cause}",
        "{devices} are each idle for more than 100 µs {least_gaps} to {most_gaps} times, {share} "
        "of the time in all; the cause was mostly not recorded",
    )


def _transfers_exposed(found: Finding) -> Words:
    title = said("{device} waits for transfers for {data_wait_share} of its time")
    if on_several(found):
        title = said(
            "{devices} each wait for transfers for {share} of their time",
            devices=named_devices(found),
            share=value_range(found, "data_wait_share"),
        )
    copied = found.evidence.get("copied")
    return Words(
        title=title,
        caveat=_SECOND_BUFFER if copied == Copied.PINNED else _NO_OVERLAP,
        recommendation=_COPY_LESS.get(copied, _PIN),
    )


_SECOND_BUFFER = said("Prefetching needs memory for a second buffer.")
_NO_OVERLAP = said(
    "Prefetching needs memory for a second buffer. Copies from pageable memory do not overlap at "
    "all."
)
_PIN = said(
    "Pin host memory and prefetch on a separate stream; keep weights resident instead of "
    "offloading; leave tensors on the device between submodules."
)
_COPY_LESS: Mapping[object, str] = {
    Copied.PINNED: "Host memory is pinned: prefetch on a separate stream; keep weights resident "
    "instead of offloading; leave tensors on the device between submodules.",
    Copied.ON_DEVICES: "Most copies stay on devices: write results in place, avoid clones, and "
    "copy on another stream while the device computes.",
}


_IDLE_AROUND = Words(
    title="Nothing runs on accelerators for {around_share} of the run: {before_ns} before the "
    "first work, {behind_ns} after the last",
    caveat="Time that other requests fill costs nothing.",
    recommendation="Look at what the host does there: loading, compiling, tokenizing and "
    "preprocessing ahead of the first launch, post-processing, encoding and writing behind the "
    "last kernel.",
)


_IDLE_DEVICE_WORDS = Words(
    title="Calls on {device} take {idle_device_calls_share} of the run, those on {busy_device} "
    "{busy_device_calls_share}",
    caveat="A placement made for lack of memory is no mistake. Dividing work over devices costs "
    "transfers.",
    recommendation="Run the branches of guidance or several requests on both devices, or encode "
    "the next request on the idle one. profile-sd3 predict compares placements.",
)


def _times(number: int) -> Said:
    """`"once"`, `"twice"`, `"1,200 times"`."""
    few = {1: said("once"), 2: said("twice")}
    return few.get(number) or said("{number} times", number=count(number))


CAUSE_CHANGES: Mapping[object, Said] = {
    WaitCause.LAUNCH: LAUNCH_GAPS,
    WaitCause.SYNC: said("Remove synchronization: .item(), .cpu(), printing, blocking copies"),
    WaitCause.QUEUE: said("Find what holds launched work back: other streams, other processes"),
    WaitCause.HOST: said("Look at what the host does between calls: scheduler, callbacks"),
    WaitCause.COPY: said("Start copies earlier; keep what is copied in each call resident"),
    WaitCause.OTHER_DEVICE: said("Give it other work in the meantime: independent calls, requests"),
    WaitCause.UNRECORDED: said("Record every launch of the host: they say whether it was late"),
    WaitCause.DATA: said("Prefetch from pinned memory; keep weights resident"),
}


def _idle_gaps_change(found: Finding) -> Said | None:
    if waits_for_data_loader(found):
        return LOAD_AHEAD
    if prepares_inputs(found):
        return PREPARE
    cause = found.evidence.get("cause")
    if cause == WaitCause.HOST and "denoising_calls" not in found.evidence:
        return said("Look at what the host does between calls: inputs, callbacks, results")
    return CAUSE_CHANGES.get(cause)


def _transfers_change(found: Finding) -> Said:
    return _COPY_CHANGES.get(
        found.evidence.get("copied"),
        said("Prefetch from pinned memory; leave tensors on the device"),
    )


_COPY_CHANGES: Mapping[object, Said] = {
    Copied.PINNED: said("Prefetch on a separate stream; leave tensors on the device"),
    Copied.ON_DEVICES: said("Write results in place; avoid clones"),
}


RULES = (
    Rule(
        idle_gaps,
        _idle_gaps,
        _idle_gaps_change,
        section="idle",
        merged_by="gap_share",
        needs=("timeline", "launches"),
    ),
    Rule(idle_around, _IDLE_AROUND, "Prepare the next request while this one runs"),
    Rule(
        transfers_exposed,
        _transfers_exposed,
        _transfers_change,
        section="idle",
        merged_by="data_wait_share",
        needs=("timeline",),
    ),
    Rule(
        idle_device,
        _IDLE_DEVICE_WORDS,
        "Run guidance's branches or several requests on both devices",
        section="idle",
        needs=("timeline",),
    ),
)


# --- Who waits for whom: idle devices, the critical path, switches between providers.


_PATH_ROWS = 30
_CPU_FALLBACK = 100
_SUFFIX = "ExecutionProvider"
_LATE = said(
    "Launch-bound time of calls, submodules and steps is the sum of launch-bound and sync-bound "
    "here: after a wait, too, the host launches too late."
)
_ON_CPUS = said("Of a CPU, launch-bound is what lies between operators: no host launches these.")
_PATH = (
    "part submodule device pieces path_ns guessed_ns",
    renamed(CRITICAL_PATH, "share", meaning="path_ns / wall time of the pipeline calls"),
)
_FALLBACK_NODES = ("layer", "submodule", "op_type", "provider", "nodes", "total_ns")


def _parts(of: ReportInput) -> tuple[Part, ...]:
    """Idle devices and the critical path of the whole run; what several providers cost."""
    return (*_idle(of), *_copies(of), *_busy(of), *_gap_parts(of), *_path(of), *_providers(of))


def idle_figure(analysis: Analysis) -> Figure:
    """Return the figure of what each device did and waited for."""
    return Figure("idle", "idle", (analysis.idle,))


def critical_path_figure(analysis: Analysis) -> Figure:
    """Return the figure of what the critical path consists of."""
    names = [part.submodule for part in analysis.accounting.submodules]
    return Figure("path", "critical_path", (analysis.critical_path, names))


def _idle(of: ReportInput) -> Iterator[Part]:
    analysis = of.analysis
    title = said("What devices waited for, whole run")
    if why := why_no_waits(analysis.idle, analysis.run):
        yield Part(title, lead=sentence(why), always=True)
        return
    if analysis.idle.is_empty():
        return
    columns: list[str | Column] = [*IDLE_SHOWN.split()]
    if not has_accelerators(analysis.idle["device"]):
        columns[columns.index("launch_ns")] = renamed(IDLE, "launch_ns", label="between operators")
    made = table("idle", "waiting of devices", columns, IDLE, analysis.idle, shown=20)
    notes = [_LATE] if (analysis.idle["sync_ns"] > 0).any() else []
    if has_accelerators(analysis.idle["device"]) and _between_operators(analysis.idle):
        notes.append(_ON_CPUS)
    yield Part(title, figure=idle_figure(analysis), table=made, notes=tuple(notes))


def _between_operators(idle: pl.DataFrame) -> bool:
    """Whether a CPU among the devices was idle between operators."""
    return any(
        length and not is_accelerator(device)
        for device, length in idle.select("device", "launch_ns").iter_rows()
    )


def _copies(of: ReportInput) -> Iterator[Part]:
    made = table("copies", "copies", COPIES, COPIES, of.analysis.copies, shown=20)
    yield Part(said("Copies, whole run"), table=made)


def _busy(of: ReportInput) -> Iterator[Part]:
    """How busy each device was over time."""
    frame = of.analysis.busy_timeline
    if not frame.is_empty():
        groups = frame.group_by("device", maintain_order=True)
        bars = tuple(
            Bars(str(device), (rows["busy_share"] * 1000).round().cast(pl.Int64).to_list())
            for (device,), rows in groups
        )
        figure = declared_drawing(table_named("busy_timeline"), frame, bars)
        yield Part(said("Busy share over time"), figure=figure)


def _gap_parts(of: ReportInput) -> Iterator[Part]:
    relative = of.analysis.gaps.with_columns(pl.col("begin_ns") - of.begin_ns)
    start = renamed(
        GAPS, "begin_ns", label="start", meaning="when it ran dry, from the start of the run"
    )
    columns = on_devices((start, GAPS_SHOWN), GAPS, relative)
    made = table("gaps", "gaps", columns, GAPS, relative, shown=of.rows(10))
    yield Part(said("Longest gaps, whole run"), table=made)


def _path(of: ReportInput) -> Iterator[Part]:
    analysis = of.analysis
    if analysis.critical_path.is_empty():
        return
    rows = path_by_part(analysis.critical_path, _PATH_ROWS)
    made = table("path", "critical path", _PATH, CRITICAL_PATH, rows)
    guessed = guessed_waits(analysis.critical_path)
    yield Part(
        path_sentence(analysis.critical_path),
        figure=critical_path_figure(analysis),
        table=made,
        notes=(sentence(guessed),) if guessed else (),
    )


def _providers(of: ReportInput) -> Iterator[Part]:
    short = pl.col("source", "target").str.strip_suffix(_SUFFIX)
    edges = of.analysis.device_transitions.with_columns(short)
    yield Part(
        said("Switches between providers"),
        table=table(
            "device_transitions", "switches", DEVICE_TRANSITIONS, DEVICE_TRANSITIONS, edges
        ),
    )
    yield Part(
        said("CPU fallback between copies, by total time"),
        table=table(
            "cpu_fallback",
            "CPU fallback nodes",
            _FALLBACK_NODES,
            CPU_FALLBACK,
            of.analysis.cpu_fallback,
            shown=of.rows(10),
            held=_CPU_FALLBACK,
        ),
    )


SENTENCES: Sentences = {
    Copied: {
        Copied.PINNED: "between pinned memory of the host and the device",
        Copied.PAGEABLE: "between pageable memory of the host and the device",
        Copied.ON_DEVICES: "on devices",
    }
}

SECTION = SectionKind(
    "idle",
    50,
    said("Idle time"),
    _parts,
    tables=(
        *("idle", "copies", "busy_timeline", "gaps"),
        *("critical_path", "device_transitions", "cpu_fallback"),
    ),
    group=SectionGroup.DEVICE,
)
