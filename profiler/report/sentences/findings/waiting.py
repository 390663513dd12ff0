"""What is said of devices that wait, whatever for; `late_host` is about launches alone."""

from __future__ import annotations

from collections.abc import Mapping

from profiler.analysis.findings.finding import Finding
from profiler.analysis.waiting.codes import WaitCause
from profiler.report.sentences.findings.late_host import LOOK_IN_GAPS, with_host
from profiler.report.sentences.findings.several_devices import (
    named_devices,
    on_several,
    value_range,
)
from profiler.report.sentences.findings.words import RuleWords, Words, number, texts
from profiler.text import Said, count, said

__all__ = ["WORDS"]

_RECOMMENDATIONS: Mapping[object, Said] = {
    WaitCause.LAUNCH: LOOK_IN_GAPS,
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


def _idle_gaps(found: Finding) -> Words:
    if on_several(found):
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
        title = with_host(title, found)
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
        "devices": named_devices(found),
        "low": count(round(number(found, "least_gaps"))),
        "high": count(round(number(found, "most_gaps"))),
        "share": value_range(found, "gap_share"),
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
        title = with_host(title, found)
        caveat = _OF_ALL_WAITING
    recommendation = _RECOMMENDATIONS[found.evidence["cause"]]
    return Words(title=title, caveat=caveat, recommendation=recommendation)


def _transfers_exposed(found: Finding) -> Words:
    given = texts(found)
    title = said(
        "{device} waits for transfers for {share} of its time",
        device=given["device"],
        share=given["data_wait_share"],
    )
    if on_several(found):
        title = said(
            "{devices} each wait for transfers for {share} of their time",
            devices=named_devices(found),
            share=value_range(found, "data_wait_share"),
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
    "idle_gaps": _idle_gaps,
    "transfers_exposed": _transfers_exposed,
    "idle_device": _idle_device,
}
