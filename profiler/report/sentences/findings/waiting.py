"""What is said of devices that wait."""

from __future__ import annotations

from collections.abc import Mapping

from profiler.analysis.findings.codes import Recorded
from profiler.analysis.findings.finding import Finding
from profiler.analysis.waiting.codes import WaitCause
from profiler.messages import Said, joined, said
from profiler.report.sentences.findings.words import RuleWords, Words, number, texts
from profiler.report.units import count

__all__ = ["WORDS", "waits_for_data_loader", "waits_longer_than_launches"]


_SLOWER = said(
    "Recording slows the host: without the profiler the device waits less. Faster kernels gain "
    "nothing while it waits."
)
_SLOWER_WITH_STACKS = said(
    "Recording slows the host, Python stacks most of all: without the profiler the device waits "
    "less. Faster kernels gain nothing while it waits."
)
_NAMED = 4  # devices, at most
_LAUNCH_NS = 1_000_000  # longer than any launch takes
_LAUNCH_LESS = said(
    "Launch less: CUDA graphs or torch.compile(mode='reduce-overhead'), larger batches, fused "
    "nodes."
)
_LOOK = said("The table of gaps says what the host did in the longest of them.")
_RECORD_CALLS = said("Record once with call spans only to see how much is left.")
_TIME_UNTRACED = said(
    "Without the profiler the host is late for less: profile-sd3 predict --untraced MS, with what "
    "the run takes without it, says what a CUDA graph then gains."
)
_LOAD_AHEAD = said(
    "Load ahead: more workers (num_workers; with 0 the loop itself loads), persistent_workers, "
    "prefetch_factor, pin_memory, or cheaper decoding and transforms. Fewer launches gain only "
    "what is left."
)
_RECOMMENDATIONS: Mapping[object, Said] = {
    WaitCause.LAUNCH: said(
        "Look at what the host does in the gaps: synchronizing (.item(), .cpu(), printing), "
        "allocation, graph breaks, lazy loading."
    ),
    WaitCause.SYNC: said(
        "The host waited until the device had nothing left, and launched only then: look for "
        ".item(), .cpu(), printing, blocking copies."
    ),
    WaitCause.QUEUE: said(
        "The host had launched the next command: look for what holds it back, events of other "
        "streams, other processes on the device, changes of clocks."
    ),
    WaitCause.HOST: said(
        "Look at what the host does between calls: scheduler, guidance, callbacks, "
        "post-processing; or let other requests fill the gaps."
    ),
    WaitCause.COPY: said(
        "The device is idle in operations such as copy-done until a copy arrives: keep what each "
        "call copies resident (weights, caches offloaded to the host), copy less, or start "
        "copies earlier."
    ),
    WaitCause.OTHER_DEVICE: said(
        "Give it other work in the meantime: independent calls, several requests at once. "
        "profile-sd3 predict compares placements."
    ),
    WaitCause.UNRECORDED: said(
        "Record the host as well, with every launch: launches say whether it was late, or the "
        "device had nothing to do."
    ),
    WaitCause.DATA: said(
        "Prefetch from pinned memory on a separate stream, and keep weights resident."
    ),
}


def _host_bound(found: Finding) -> Words:
    given = texts(found)
    title = said(
        "{device} waits for the host to launch work for {share} of the time",
        device=given["device"],
        share=given["host_wait_share"],
    )
    if _on_several(found):
        title = said(
            "{devices} each wait for the host to launch work for {share} of the time",
            devices=_devices(found),
            share=_range(found, "host_wait_share"),
        )
    elif "waits_in_ns" in found.evidence:
        title = said(
            "{what}, {time} of it in {stage}",
            what=title,
            time=given["waits_in_ns"],
            stage=given["waits_in"],
        )
    elif found.evidence.get("most_of_step_ns"):
        title = said(
            "{what}: {low} to {high} of each step, of which {least} to {most} before the first "
            "kernel",
            what=title,
            low=given["least_of_step_ns"],
            high=given["most_of_step_ns"],
            least=given["least_before_kernel_ns"],
            most=given["most_before_kernel_ns"],
        )
    if waits_longer_than_launches(found):
        title = _with_host(title, found)
    if "stalls_ns" in found.evidence and not _on_several(found):
        title = said(
            "{what}, not counting {time} of host work that happened only once",
            what=title,
            time=given["stalls_ns"],
        )
    if "recording_ns" in found.evidence:
        title = said(
            "{what}; recording operators took {time} of the host's time in calls",
            what=title,
            time=given["recording_ns"],
        )
    return Words(
        title=_with_data_loader(title, found),
        caveat=_SLOWER_WITH_STACKS if _has_stacks(found) else _SLOWER,
        recommendation=_less_waiting(found),
    )


def _has_stacks(found: Finding) -> bool:
    return found.evidence.get("recorded") == Recorded.PYTHON_STACKS


def _with_data_loader(title: Said, found: Finding) -> Said:
    """The title, with how long it was for a DataLoader."""
    if not waits_for_data_loader(found):
        return title
    return said(
        "{what}; at least {time} of that for the DataLoader",
        what=title,
        time=texts(found)["data_loader_ns"],
    )


def waits_for_data_loader(found: Finding) -> bool:
    """Whether a device waits for the host because that loads data: fewer launches do not help."""
    return "data_loader_ns" in found.evidence


def _less_waiting(found: Finding) -> Said:
    """What to do by how long the device waits for each command: fewer launches help where it is
    about what a launch takes."""
    if waits_for_data_loader(found):
        return _LOAD_AHEAD
    if waits_longer_than_launches(found):
        return _RECOMMENDATIONS[WaitCause.LAUNCH]
    imported = "recorded" in found.evidence and "recording_ns" not in found.evidence
    look = [_LOOK] if "gaps" in found.evidence else []
    return joined(" ", [*look, _LAUNCH_LESS, _TIME_UNTRACED if imported else _RECORD_CALLS])


def waits_longer_than_launches(found: Finding) -> bool:
    """Whether a device waits for the host longer for each command than a launch takes: then it is
    other work of the host, and fewer launches do not help."""
    commands = number(found, "commands") if "commands" in found.evidence else 0
    return bool(commands) and number(found, "host_wait_ns") / commands > _LAUNCH_NS


def _idle_gaps(found: Finding) -> Words:
    if _on_several(found):
        return _idle_devices(found)
    given = texts(found)
    known = {
        "device": given["device"],
        "times": _times(round(number(found, "gaps"))),
        "share": given["gap_share"],
    }
    if found.evidence["cause"] == WaitCause.UNRECORDED:
        title = said(
            "{device} is idle for more than 100 µs {times}, {share} of its time in all; the cause "
            "of {unrecorded} of its waiting was not recorded",
            **known,
            unrecorded=given["unrecorded_share"],
        )
        caveat = _without_launches(found)
    else:
        title = said(
            "{device} is idle for more than 100 µs {times}, {share} of its time in all; it mainly "
            "waits for {most}",
            **known,
            most=given["cause"],
        )
        title = _with_host(title, found)
        caveat = _OF_ALL_WAITING
    return Words(
        title=title,
        caveat=caveat,
        recommendation=_RECOMMENDATIONS[found.evidence["cause"]],
    )


_OF_ALL_WAITING = said(
    "The cause is that of all its waiting, shorter gaps included. A gap that other requests fill "
    "costs nothing."
)


def _without_launches(found: Finding) -> Said:
    return said(
        "Of its {commands} commands, {missing} were recorded without their launch. A gap that "
        "other requests fill costs nothing.",
        commands=count(round(number(found, "commands"))),
        missing=count(round(number(found, "unrecorded_launches"))),
    )


def _idle_devices(found: Finding) -> Words:
    """The same of several devices, the caveat of the one that is idle longest."""
    known = {
        "devices": _devices(found),
        "low": count(round(number(found, "least_gaps"))),
        "high": count(round(number(found, "most_gaps"))),
        "share": _range(found, "gap_share"),
    }
    if found.evidence["cause"] == WaitCause.UNRECORDED:
        title = said(
            "{devices} are each idle for more than 100 µs {low} to {high} times, {share} of the "
            "time in all; the cause was mostly not recorded",
            **known,
        )
        caveat = _without_launches(found)
    else:
        title = said(
            "{devices} are each idle for more than 100 µs {low} to {high} times, {share} of the "
            "time in all; they mainly wait for {most}",
            **known,
            most=texts(found)["cause"],
        )
        title = _with_host(title, found)
        caveat = _OF_ALL_WAITING
    recommendation = _RECOMMENDATIONS[found.evidence["cause"]]
    return Words(title=title, caveat=caveat, recommendation=recommendation)


def _with_host(title: Said, found: Finding) -> Said:
    """The title, with what the host was in for a large part of the longest gaps."""
    if "host_in" not in found.evidence:
        return title
    given = texts(found)
    return said(
        "{what}; the host was in {name} for {time}",
        what=title,
        name=given["host_in"],
        time=given["host_in_ns"],
    )


def _on_several(found: Finding) -> bool:
    return "on_devices" in found.evidence


def _devices(found: Finding) -> Said:
    """`tpu:0, tpu:1 and tpu:2`, of more how many and which: `8 devices (rocm:0, …, rocm:7)`."""
    names = found.evidence["on_devices"]
    assert isinstance(names, tuple)
    *others, last = map(str, names)
    if len(names) > _NAMED:
        some = {"count": count(len(names)), "first": others[0], "last": last}
        return said("{count} devices ({first}, …, {last})", **some)
    return said("{devices} and {last}", devices=joined(", ", others), last=last)


def _range(found: Finding, name: str) -> Said | str:
    """`95 % to 97 %`, or one of them where they read the same."""
    given = texts(found)
    low, high = given[f"least_{name}"], given[f"most_{name}"]
    return low if low == high else said("{low} to {high}", low=low, high=high)


def _transfers_exposed(found: Finding) -> Words:
    given = texts(found)
    title = said(
        "{device} waits for transfers for {share} of its time",
        device=given["device"],
        share=given["data_wait_share"],
    )
    if _on_several(found):
        title = said(
            "{devices} each wait for transfers for {share} of their time",
            devices=_devices(found),
            share=_range(found, "data_wait_share"),
        )
    return Words(
        title=title,
        caveat=said(
            "Prefetching needs memory for a second buffer. Copies from pageable memory do not "
            "overlap at all."
        ),
        recommendation=said(
            "Pin host memory and prefetch on a separate stream; keep weights resident instead of "
            "offloading; leave tensors on the device between submodules."
        ),
    )


def _idle_device(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "Calls on {least} take {share} of the run, those on {busiest} {share_2}",
            least=given["device"],
            share=given["idle_device_share"],
            busiest=given["busy_device"],
            share_2=given["busy_device_share"],
        ),
        caveat=said(
            "A placement made for lack of memory is no mistake. Dividing work over devices costs "
            "transfers."
        ),
        recommendation=said(
            "Run the branches of guidance or several requests on both devices, or encode the next "
            "request on the idle one. profile-sd3 predict compares placements."
        ),
    )


def _times(number: int) -> Said:
    """`"once"`, `"twice"`, `"1,200 times"`."""
    few = {1: said("once"), 2: said("twice")}
    return few.get(number) or said("{number} times", number=count(number))


WORDS: RuleWords = {
    "host_bound": _host_bound,
    "idle_gaps": _idle_gaps,
    "transfers_exposed": _transfers_exposed,
    "idle_device": _idle_device,
}
