"""What is said of a host that is late: devices wait for it to launch work."""

from __future__ import annotations

from profiler.analysis.findings.codes import Recorded
from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.several_devices import (
    named_devices,
    on_several,
    value_range,
)
from profiler.report.sentences.findings.words import RuleWords, Words, number, texts
from profiler.text import Said, joined, said

__all__ = [
    "LOOK_IN_GAPS",
    "WORDS",
    "waits_for_data_loader",
    "waits_longer_than_launches",
    "with_host",
]

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


def _host_bound(found: Finding) -> Words:
    given = texts(found)
    title = _waits_for_host(found)
    if waits_longer_than_launches(found):
        title = with_host(title, found)
    if "stalls_ns" in found.evidence and not on_several(found):
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


def _waits_for_host(found: Finding) -> Said:
    """For how long a device waits, and in which stage or where in each step; or several devices."""
    given = texts(found)
    if on_several(found):
        return said(
            "{devices} each wait for the host to launch work for {share} of the time",
            devices=named_devices(found),
            share=value_range(found, "host_wait_share"),
        )
    title = said(
        "{device} waits for the host to launch work for {share} of the time",
        device=given["device"],
        share=given["host_wait_share"],
    )
    if "waits_in_ns" in found.evidence:
        return said(
            "{what}, {time} of it in {stage}",
            what=title,
            time=given["waits_in_ns"],
            stage=given["waits_in"],
        )
    if found.evidence.get("most_of_step_ns"):
        return said(
            "{what}: {low} to {high} of each step, of which {least} to {most} before the first "
            "kernel",
            what=title,
            low=given["least_of_step_ns"],
            high=given["most_of_step_ns"],
            least=given["least_before_kernel_ns"],
            most=given["most_before_kernel_ns"],
        )
    return title


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
        return LOOK_IN_GAPS
    imported = "recorded" in found.evidence and "recording_ns" not in found.evidence
    look = [_LOOK] if "gaps" in found.evidence else []
    return joined(" ", [*look, _LAUNCH_LESS, _TIME_UNTRACED if imported else _RECORD_CALLS])


def waits_longer_than_launches(found: Finding) -> bool:
    """Whether a device waits for the host longer for each command than a launch takes: then it is
    other work of the host, and fewer launches do not help."""
    commands = number(found, "commands") if "commands" in found.evidence else 0
    return bool(commands) and number(found, "host_wait_ns") / commands > _LAUNCH_NS


def with_host(title: Said, found: Finding) -> Said:
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


WORDS: RuleWords = {"host_bound": _host_bound}
