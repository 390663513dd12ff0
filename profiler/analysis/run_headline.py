"""The head of every report: how long it took, how busy devices were, what took the time, what ran.

    headline(analysis, span_ns)
    == "1.19 s for 4 steps: the GPU computes 60 % and waits for the host 38 %; transformer takes "
       "83 %, text encoders 9.9 %, vae 4.2 %"

All shares are of the end-to-end time on the devices' axis. What is no news is left out: a submodule
that takes all of it, waiting that is little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from profiler.analysis.activity import Activity
from profiler.analysis.collectives import exposed_shares, exposed_transfers, work_shares
from profiler.analysis.commands import are_apart, has_accelerators, is_accelerator, times_recorded
from profiler.analysis.document import Fact
from profiler.analysis.end_to_end import measured_apart
from profiler.analysis.finding_text import (
    MATERIAL,
    captures_and_replays,
    end_to_end_ns,
    noun_of,
    only_captures,
)
from profiler.analysis.health import (
    busy_unknown,
    calls_unknown,
    is_damaged,
    is_host_only,
    lacks_work,
    launches_alone,
    notes_of,
)
from profiler.analysis.ranks import FEWEST_COLLECTIVES, slowest_rank
from profiler.analysis.result import Accounting, Analysis
from profiler.text import Noun, Said, count, counted, duration, filled, joined, percent, said
from profiler.trace.events import GRAPH_CAPTURE, device_kind, rank_of_device
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import AttributedTo, CallsFrom, Graphs

_MOST = 3  # of parts, and of devices that are named
_MOSTLY = 0.5  # of the operators' time: what has a role
_ROLE = 0.1  # share of the largest role, if roles are named
_NO_NEWS = ("other", "collective")  # roles: unknown, and what the headline says before
_PART = 0.02  # share of a submodule that is named
_NEARLY_ALL = 0.985  # share of a submodule that is no news
_AT_ONCE = 1.02  # sum of shares: more is no rounding, submodules ran at the same time
_WAITS = 0.05  # share of waiting that is named
_EXPOSED = 0.05  # share of exposed communication that is named
_UNRECORDED = 0.05  # share of time that counts nowhere: the headline has the whole, too
_AROUND = 0.1  # share of time around operators that is named
_MOVED = 0.01  # of the run: so much transferring is no computing
_COMMUNICATED = 0.01  # of busy time: so much communicating is no computing
_ENCODERS = "text_encoder"
_SEVERAL_ENCODERS = said("text encoders")

_PROCESS = re.compile(r"process_\d+")  # the name of a process whose calls are not known

_BETWEEN = "host_ns"  # before the first call and behind the last one, too

_CAUSES = {  # column of the idle table: what one device does, what several do
    "launch_ns": (said("waits for the host"), said("wait for the host")),
    "copy_wait_ns": (said("waits for copies"), said("wait for copies")),
    "other_device_ns": (said("waits for another device"), said("wait for another device")),
    "queue_ns": (said("waits in the queue"), said("wait in the queue")),
    _BETWEEN: (said("is idle outside of calls"), said("are idle outside of calls")),
}
_IDLE = (said("is idle"), said("are idle"))
_COMMUNICATES = (said("only communicates {share}"), said("only communicate {share}"))
_TRANSFERS = (said("only transfers {share}"), said("only transfer {share}"))
_GPU = (said("the GPU"), "GPU")
_NPU = (said("the NPU"), "NPU")
_KINDS = {  # of devices: one of them, and the noun
    **dict.fromkeys(("cuda", "rocm", "xpu", "gpu", "mps"), _GPU),
    **dict.fromkeys(("rbln", "npu", "qnn", "neuron"), _NPU),
    "tpu": (said("the TPU"), "TPU"),
    "mtia": (said("the MTIA"), "MTIA"),
    "cpu": (said("the CPU"), "CPU"),
}


def headline(analysis: Analysis, span_ns: int) -> str:
    """One line: time and steps, how busy devices were and what they waited for most, the
    submodules with most of the time.

    `span_ns` lasts from the first event of the run to its last; it stands in for the end-to-end
    time if the run has no pipeline span. Of a selection only the submodules are known.
    """
    account, apart = analysis.accounting, measured_apart(analysis)
    total = account.end_to_end_ns or span_ns
    info, passed = analysis.inputs.run.info, _passed(account, total)
    if lacks_work(info.health) and not is_host_only(info.health):
        passed = said("at least {time}", time=passed)
    what = said("{time} for {what}", what=_what(analysis), time=passed)
    if is_host_only(info.health):
        alone = launches_alone(info.health) or said("no GPU work recorded")
        what = said("{alone}, times of the host: {what}", alone=alone, what=what)
    elif is_damaged(notes_of(info)):
        what = said("damaged recording: {what}", what=what)
    if only_captures(analysis):
        what = said("graph capture, not serving: {what}", what=what)
    elif captures_and_replays(analysis):
        what = said("graphs captured and replayed: {what}", what=what)
    if apart:
        what = said("measured one by one: {what}", what=what)
    damaged = busy_unknown(info.health) or calls_unknown(info.health)
    unknown = apart or (damaged and not is_host_only(info.health))
    source = info.recording.calls_from if info.recording else None
    unnamed = source in (CallsFrom.NOTHING, CallsFrom.KERNEL_PERIOD) or _works_in_no_call(analysis)
    parts = [
        "" if only_captures(analysis) else _devices(analysis),
        _ranks(analysis),
        "" if unknown or unnamed else _submodules(account, total, _only_submodule(analysis)),
    ]
    if parts[0] and not any(parts[1:]):
        parts.append(_roles_of_run(analysis))
    parts = [part for part in parts if part]
    if not parts and not unknown and not times_recorded(info):
        parts = [part for part in (_around(analysis, total), _roles(analysis)) if part]
    return said("{what}: {parts}", what=what, parts=joined("; ", parts)) if parts else what


def _works_in_no_call(analysis: Analysis) -> bool:
    """Whether devices worked, and none of it is known to be a call's: times of calls are the
    host's."""
    parts = analysis.run.attribution.values()
    work = [one.attributed_ns for one in parts if one.to is AttributedTo.CALLS and one.total_ns]
    return bool(work) and not any(work)


def _what(analysis: Analysis) -> str:
    parts = _parts_of_run(analysis)
    if not parts and analysis.run.calls:
        parts.append(_calls(analysis))
    if not parts:
        parts.append(counted(analysis.run.commands, "command"))
    job = analysis.inputs.run.info.job
    if job is not None and len(job.ranks) < job.world_size:
        size = counted(job.world_size, "rank")
        parts.append(said("{given} of {ranks}", given=count(len(job.ranks)), ranks=size))
    elif job is not None and len(job.ranks) > 1:
        parts.append(counted(len(job.ranks), "rank"))
    return joined(", ", parts)


def _parts_of_run(analysis: Analysis) -> list[Said]:
    """How many pipeline calls, steps and iterations there were, of which there were any."""
    account, parts = analysis.accounting, []
    if account.pipelines > 1 and not are_apart(analysis.drops):
        parts.append(counted(account.pipelines, "pipeline call"))
    if account.steps:
        parts.append(counted(account.steps, "step"))
    if account.in_iterations:
        parts.append(counted(account.iterations, "iteration"))
    return parts


def _called(analysis: Analysis) -> list[str]:
    return analysis.submodules.filter(pl.col("calls") > 0)["submodule"].to_list()


def _only_submodule(analysis: Analysis) -> str:
    """The submodule whose calls are counted by its name; "" if there are others, or one call."""
    names = _called(analysis)
    counts_calls = analysis.run.calls > 1 and not _parts_of_run(analysis)
    return names[0] if counts_calls and len(names) == 1 else ""


def _calls(analysis: Analysis) -> Said:
    """`"1 call"`, `"400 calls of jit_f"`, `"414 calls of 4 submodules"`, `"3 submodules"` that were
    called once each, or `"2 processes"`: pipeline calls are counted beside them."""
    number = analysis.run.calls
    names = _called(analysis)
    if number == 1 or not names:
        return counted(number, "call")
    if number == len(names) and all(map(_PROCESS.fullmatch, names)):
        return said("{number} processes", number=count(number))
    submodules = counted(len(names), "submodule")
    if number == len(names):
        return submodules
    of = names[0] if len(names) == 1 else submodules
    return said("{calls} of {of}", calls=counted(number, "call"), of=of)


def _passed(account: Accounting, total: int) -> str:
    """`"1.60 s"`, `"1.60 s (3.10 s in sum)"` if pipeline calls ran at the same time, or
    `"1.03 s recorded of 1.23 s"` if much of what passed counts nowhere."""
    if account.overlapping and account.told_apart:
        wall = duration(account.wall_ns)
        return said("{time} ({sum} in sum)", time=wall, sum=duration(total))
    whole = total + account.unrecorded_ns
    if account.unrecorded_ns > _UNRECORDED * whole:
        return said("{time} recorded of {whole}", time=duration(total), whole=duration(whole))
    return duration(total)


# --- How busy devices were.


def _devices(analysis: Analysis) -> str:
    """`"the GPU computes 60 % and waits for the host 38 %"`. If calls of a device were not traced
    that is not known: `"device cuda:0 without a call for 6.0 %"`; a CPU that drives accelerators is
    no such device. "" for a selection, and if it was not recorded when commands ran."""
    info = analysis.inputs.run.info
    if analysis.run.selection or not times_recorded(info) or is_host_only(info.health):
        return ""
    damaged = busy_unknown(info.health)
    rows = analysis.devices.rows(named=True)
    driven = has_accelerators(row["device"] for row in rows)
    without_call = sorted(
        (1 - row["calls_share"], row["device"])
        for row in rows
        if row["idle_share"] is None
        and row["device"] not in damaged
        and row["calls"]
        and row["calls_share"]  # 0: its calls are moments, or beneath others
        and is_accelerator(row["device"]) == driven
    )
    parts = [_did(analysis, some, name) for some, name in _groups(analysis)]
    if without_call and without_call[-1][0] >= _WAITS:
        parts.append(_without_call(without_call))
    return joined("; ", parts)


def _groups(analysis: Analysis) -> list[tuple[list[dict[str, Any]], str]]:
    """Return groups of devices of which it is known what they did, each with a name: those of one
    kind together, or a few of several kinds one by one."""
    damaged = busy_unknown(analysis.inputs.run.info.health)
    devices = [
        row
        for row in analysis.devices.rows(named=True)
        if row["device"] not in damaged and row["idle_share"] is not None
    ]
    kinds = {device_kind(row["device"]) for row in devices}
    if len(kinds) > 1 and len(devices) <= _MOST:
        return [([row], row["device"]) for row in devices]
    if not devices:
        return []
    one, noun = _KINDS.get(min(kinds), ("", "device")) if len(kinds) == 1 else ("", "device")
    if len(devices) == 1:
        return [(devices, one or devices[0]["device"])]
    return [(devices, counted(len(devices), noun))]


def _did(analysis: Analysis, devices: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return how busy a named group of devices was, and what it waited for most."""
    several = len(devices) > 1
    names = {row["device"] for row in devices}
    total = analysis.accounting.wall_ns or analysis.accounting.end_to_end_ns
    waits = [row for row in analysis.idle.rows(named=True) if row["device"] in names]
    alone = exposed_transfers(analysis.inputs)
    moved = [alone.get(row["device"], 0.0) for row in waits]
    did: str = _worked(devices, name, moved)
    if _communicate(analysis, devices):
        did = joined(", ", _communicated(analysis, devices, name, moved))
    cause, shares = _most(waits, total)
    phrase = _CAUSES.get(cause, _IDLE)
    if cause not in _CAUSES:
        shares = [row["idle_share"] for row in devices]
    if max(shares) < _WAITS:
        return did
    return said("{did} and {waits} {share}", did=did, waits=phrase[several], share=_range(shares))


def _worked(devices: Sequence[Mapping[str, Any]], name: str, moved: Sequence[float]) -> Said:
    """How busy devices were, and how much of that are transfers alone."""
    several, most = len(devices) > 1, max(moved, default=0)
    words = {"device": name, "busy": _range(row["utilization"] for row in devices)}
    words["works"] = said("compute") if several else said("computes")
    if most > _MOVED:
        words["works"] = said("are busy") if several else said("is busy")
    if most >= _WAITS:
        words["busy"] = said("{busy} ({alone} in transfers alone)", **words, alone=_range(moved))
    return said("{device} {works} {busy}", **words)


def _communicated(
    analysis: Analysis, devices: Sequence[Mapping[str, Any]], name: str, moved: Sequence[float]
) -> Iterator[str]:
    """How long devices computed, only communicated, and only transferred: no moment is in two."""
    several, shares = len(devices) > 1, work_shares(analysis.inputs)
    each = [shares.get(row["device"], (row["utilization"], 0.0)) for row in devices]
    works = said("compute") if several else said("computes")
    busy = _range(computed for computed, _ in each)
    yield said("{device} {works} {busy}", device=name, works=works, busy=busy)
    yield filled(_COMMUNICATES[several], {"share": _range(exposed for _, exposed in each)})
    if max(moved, default=0) >= _WAITS:
        yield filled(_TRANSFERS[several], {"share": _range(moved)})


def _communicate(analysis: Analysis, devices: Sequence[Mapping[str, Any]]) -> bool:
    """Whether exposed collectives are a noticeable part of the busy time of a device."""
    shares = exposed_shares(analysis.inputs)
    return any(
        shares.get(row["device"], 0.0) > _COMMUNICATED * row["utilization"] for row in devices
    )


def _most(waits: Sequence[dict[str, Any]], total: int) -> tuple[str, list[float]]:
    """Return what devices waited for most, and the share of the time for each; "" if that is
    little, or if it is launches on a CPU, which waits for itself."""
    waits = [row | {_BETWEEN: row[_BETWEEN] + row["unallocated_ns"]} for row in waits]
    sums = {cause: sum(row[cause] for row in waits) for cause in _CAUSES}
    cause = max(sums, key=lambda name: sums[name])
    on_cpu = any(device_kind(row["device"]) == "cpu" for row in waits)
    shares = [row[cause] / total for row in waits] if total else []
    if not shares or max(shares) < _WAITS or (cause == "launch_ns" and on_cpu):
        return "", []
    return cause, shares


def _range(shares: Iterable[float]) -> str:
    """`60 %`, or `2.9 % to 3.0 %`."""
    ordered = sorted(shares)
    low, high = percent(ordered[0]), percent(ordered[-1])
    return low if low == high else said("{low} to {high}", low=low, high=high)


def _ranks(analysis: Analysis) -> str:
    """`"rank 1 is the slowest, by at least 27.1 ms in 9 collectives"`: so much longer the others
    wait in these. With the share of exposed communication on devices of which nothing else is said:
    of that rank, of all if no rank is known to be the slowest. Few collectives show one only if
    others wait much for it. "" for a selection, and if it was not recorded when commands ran."""
    of = analysis.inputs
    info = of.run.info
    if analysis.run.selection or not times_recorded(info) or is_host_only(info.health):
        return ""
    damaged, slowest = busy_unknown(info.health), slowest_rank(of)
    described = {row["device"] for some, _ in _groups(analysis) for row in some}
    left_out = {*damaged, *described}
    shares = {name: share for name, share in exposed_shares(of).items() if name not in left_out}
    least_ns = MATERIAL * end_to_end_ns(analysis)
    if slowest is None or (slowest.number < FEWEST_COLLECTIVES and slowest.less_ns < least_ns):
        exposed = max(shares.values(), default=0) >= _EXPOSED
        share = _range(shares.values()) if exposed else ""
        return said("exposed communication takes {share}", share=share) if exposed else ""
    of_rank = [share for name, share in shares.items() if rank_of_device(name) == slowest.rank]
    given = len(info.job.ranks) if info.job is not None else 0
    some_given = info.job is not None and given < info.job.world_size
    phrase = _SLOWEST[some_given]
    if max(of_rank, default=0) >= _EXPOSED:
        phrase = _EXPOSED_ON_SLOWEST[some_given]
    values = {
        "given": count(given),
        "share": _range(of_rank) if of_rank else "",
        "rank": count(slowest.rank),
        "collectives": counted(slowest.number, "collective"),
        "time": duration(slowest.less_ns),
    }
    return filled(phrase, values)


_SLOWEST = (
    said("rank {rank} is the slowest, by at least {time} in {collectives}"),
    said("rank {rank} is the slowest of the {given} given, by at least {time} in {collectives}"),
)
_EXPOSED_ON_SLOWEST = (
    said(
        "exposed communication takes {share} on rank {rank}, the slowest by at least {time} in "
        "{collectives}"
    ),
    said(
        "exposed communication takes {share} on rank {rank}, the slowest of the {given} given by "
        "at least {time} in {collectives}"
    ),
)


def _without_call(shares: list[tuple[float, str]]) -> str:
    """Return how long one device had no call, a few by name, or many by the range."""
    each = [{"device": device, "share": percent(share)} for share, device in shares]
    if len(each) == 1:
        return filled(said("device {device} without a call for {share}"), each[0])
    if len(each) <= _MOST:
        named = [said("{device} {share}", **values) for values in each]
        return said("devices without a call: {devices}", devices=joined(", ", named))
    return said(
        "{devices} without a call for {share}",
        devices=counted(len(each), "device"),
        share=_range(share for share, _ in shares),
    )


# --- What took the time.


def _submodules(account: Accounting, total: int, only: str) -> str:
    """`"transformer takes 83 %, text encoders 9.9 %, vae 4.2 %"`, or `"the calls take 83 %"` if
    all are of `only`, which is named before; "" if one takes all of it, or none any time, or they
    ran at the same time: shares would add up to more."""
    shares = _grouped(
        (part.submodule, part.wall_ns / total) for part in account.submodules if total
    )
    if not shares or shares[0][1] >= _NEARLY_ALL or sum(each for _, each in shares) > _AT_ONCE:
        return ""
    (name, share), *others = shares[:_MOST]
    if not share:
        return ""
    if name == only:
        return said("the calls take {share}", share=percent(share))
    several = name == str(_SEVERAL_ENCODERS)
    first = said(
        "{name} take {share}" if several else "{name} takes {share}",
        name=name,
        share=percent(share),
    )
    return _with_others(first, others)


def _with_others(first: Said, others: Iterable[tuple[str, float]]) -> Said:
    large = [(name, percent(share)) for name, share in others if share >= _PART]
    rest = (said("{name} {share}", name=name, share=share) for name, share in large)
    return joined(", ", [first, *rest])


def _around(analysis: Analysis, total: int) -> str:
    """`"operators take 15 % and what is around them 85 %"` of the run; "" if that is little."""
    took = int(analysis.roles["total_ns"].sum())
    if not took or took > (1 - _AROUND) * total:
        return ""
    share, rest = percent(took / total), percent(1 - took / total)
    return said("operators take {share} and what is around them {rest}", share=share, rest=rest)


def _roles(analysis: Analysis) -> str:
    """`"convolution takes 83 % of the operators' time, data movement 8.7 %"`; "" if most of that
    has no role."""
    roles = analysis.roles.group_by("role").agg(pl.col("total_ns").sum())
    total = int(roles["total_ns"].sum())
    known = roles.filter(pl.col("role") != "other").sort("total_ns", descending=True)
    shares = [
        (str(role).replace("_", " "), length / total) for role, length in known.iter_rows() if total
    ]
    if sum(share for _, share in shares) < _MOSTLY:
        return ""
    (name, share), *others = shares[:_MOST]
    first = said("{role} takes {share} of the operators' time", role=name, share=percent(share))
    return _with_others(first, others)


def _roles_of_run(analysis: Analysis) -> str:
    """`"attention takes 44 %, data movement 15 %"` of the time of the devices; "" if that is little
    or most of their work has no role, and of a selection."""
    account, rows = analysis.accounting, [row for some, _ in _groups(analysis) for row in some]
    total = (account.wall_ns or account.end_to_end_ns) * len(rows)
    if analysis.run.selection or not total:
        return ""
    work = analysis.activity.filter(pl.col("what") == Activity.WORK.value)
    sums = work.group_by("role").agg(pl.col("elapsed_ns").sum()).drop_nulls().iter_rows()
    shares = {str(role): length / total for role, length in sums}
    busy = sum(row["utilization"] for row in rows) / len(rows)
    known = [(one.replace("_", " "), shares[one]) for one in shares if one not in _NO_NEWS]
    found = sorted(known, key=lambda part: (-part[1], part[0]))[:_MOST]
    enough = sum(share for _, share in known) >= _MOSTLY * busy
    if not found or found[0][1] < _ROLE or not enough or sum(shares.values()) > _AT_ONCE * busy:
        return ""
    (name, share), *others = found
    first = said("{name} takes {share}", name=name, share=percent(share))
    return _with_others(first, others)


def _grouped(shares: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """The name and share of submodules, the largest first; several text encoders as one."""
    found = list(shares)
    encoders = [part for part in found if part[0].startswith(_ENCODERS)]
    if len(encoders) > 1:
        together = (_SEVERAL_ENCODERS, sum(share for _, share in encoders))
        found = [part for part in found if part not in encoders] + [together]
    return sorted(found, key=lambda part: -part[1])


# --- How many commands ran, under their producer's word: a key figure of the report.


_HEADED = {  # all that was recorded
    Noun.KERNELS: said("Events"),
    Noun.NODES: said("Nodes + host"),
    Noun.OPERATORS: said("Operators + host"),
    Noun.COMMANDS: said("Commands"),
}
_HEADED_OWN = {  # what devices executed
    Noun.KERNELS: said("Kernels"),
    Noun.NODES: said("Nodes"),
    Noun.OPERATORS: said("Operators run"),
}


def events_fact(analysis: Analysis) -> Fact:
    """What ran on devices, and beside it on their host; of a selection, all of the run at once."""
    run = analysis.run
    untraced = run.calls - run.traced_calls
    notes: list[str] = [counted(run.calls, "call")]
    notes += [said("{number} without commands", number=count(untraced))] if untraced else []
    noun = noun_of(analysis)
    if run.selection or noun == Noun.COMMANDS:
        return Fact(_HEADED[noun], count(run.commands), joined(", ", notes))
    category = pl.col("category").cast(pl.String)
    copied, waited = category.is_in(("dma", "copy")), category == "sync"
    if noun != Noun.KERNELS:  # copies are nodes of their own, and a CPU's waits its own
        copied = waited = pl.lit(value=False)
    commands, on_host = pl.col("commands"), pl.col("host")
    own, copies, host = analysis.kinds.table.select(
        own=commands.filter(~on_host & ~copied & ~waited).sum(),
        copies=commands.filter(~on_host & copied).sum(),
        host=commands.filter(on_host).sum(),
    ).row(0)
    if noun == Noun.KERNELS:
        info = analysis.inputs.run.info
        if copies == 1:
            notes.append(said("1 copy or fill"))
        elif copies or times_recorded(info):  # averages are of layers alone
            notes.append(said("{number} copies and fills", number=count(copies)))
        notes.append(_launches(host, info))
    elif host:
        notes.append(said("beside {number} of the host", number=count(host)))
    return Fact(_HEADED_OWN[noun], count(own), joined(", ", notes))


def _launches(number: int, info: RunInfo) -> str:
    """What the host did, as far as anybody recorded it."""
    if not number and info.capabilities and "launches" not in info.capabilities:
        return said("launches not recorded")
    if number == 1:
        return said("1 launch or other host command")
    return said("{number} launches and other host commands", number=count(number))


# --- What the report says of graphs that were replayed: where the operators of their kernels come
# from.


def replay_facts(analysis: Analysis) -> Iterator[Fact]:
    """Yield what is known of replayed graphs, and that launches were captured if the headline does
    not say so already; nothing without graphs."""
    recording = analysis.run.recording
    graphs = recording.graphs if recording else None
    if graphs is None:
        return
    if not graphs.kernels and graphs.replays:  # of a recorder that no capture helps
        yield Fact(said("Graphs"), counted(graphs.replays, "replay"))
        return
    if graphs.captured and not graphs.replays:
        note = said("launches that were captured and not run: the trace of a graph's capture")
        if GRAPH_CAPTURE not in analysis.inputs.run.info.capabilities:
            yield Fact(said("Graphs"), count(graphs.captured), note)
        return
    note = _operators_from(graphs)
    if graphs.uncompared:
        note = said(
            "{what}; replays not compared with all captures, which would take too long: {replays} "
            "(give fewer by --capture)",
            what=note,
            replays=count(graphs.uncompared),
        )
    yield Fact(said("Graphs"), counted(graphs.replays, "replay"), note)


def _operators_from(graphs: Graphs) -> Said:
    """Return how many kernels have operators, or what they need if none has."""
    if graphs.joined:
        return said(
            "{joined} of {kernels} kernels have operators, from the trace of the capture",
            joined=count(graphs.joined),
            kernels=count(graphs.kernels),
        )
    if graphs.captures:
        return said(
            "{kernels} kernels without operators: of the captures that are there the best has "
            "{share} of a replay's kernels in order, and 98 % are needed",
            kernels=count(graphs.kernels),
            share=percent(graphs.best or 0.0),
        )
    return said(
        "{kernels} kernels without operators: these ran when the graph was captured, and a trace "
        "of that (--capture, or the folder capture_traces) tells them",
        kernels=count(graphs.kernels),
    )
