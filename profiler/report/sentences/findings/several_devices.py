"""What is said of several devices of which the same was found: their names and ranges of values."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import texts
from profiler.text import Said, count, joined, said

__all__ = ["named_devices", "on_several", "value_range"]

_NAMED = 4  # devices, at most


def on_several(found: Finding) -> bool:
    """Whether it is of several devices."""
    return "on_devices" in found.evidence


def named_devices(found: Finding) -> Said:
    """`tpu:0, tpu:1 and tpu:2`, of more how many and which: `8 devices (rocm:0, …, rocm:7)`."""
    names = found.evidence["on_devices"]
    assert isinstance(names, tuple)
    *others, last = map(str, names)
    if len(names) > _NAMED:
        some = {"count": count(len(names)), "first": others[0], "last": last}
        return said("{count} devices ({first}, …, {last})", **some)
    return said("{devices} and {last}", devices=joined(", ", others), last=last)


def value_range(found: Finding, name: str) -> Said | str:
    """`95 % to 97 %`, or one of them where they read the same."""
    given = texts(found)
    low, high = given[f"least_{name}"], given[f"most_{name}"]
    return low if low == high else said("{low} to {high}", low=low, high=high)
