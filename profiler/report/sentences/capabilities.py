"""What a producer's files tell, and what a report lacks where they do not, in words.

The codes are an open set (`Importer.capabilities`): those of other packages stand for themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from profiler.text import said
from profiler.trace.events import GRAPH_CAPTURE

__all__ = ["ADVICE", "CONSEQUENCES", "FINDINGS", "told", "untold"]

_MEANINGS = {
    "timeline": said("when each command ran, and where"),
    "averages": said("how long each command takes, on average"),
    "launches": said("which launch of the host each command of a device had"),
    "shapes": said("shapes of operators, and with them FLOPs, efficiency and the roofline"),
    "bytes": said("bytes that copies and operators moved"),
    "memory": said("the allocator's memory over time"),
    "cycles": said("cycles of the device's units"),
    "metrics": said("the device's counters over time"),
    "stages": said("how long each stage of a request took, and nothing below"),
    "requests": said("requests of a server: how long each waited for what, and computed"),
    GRAPH_CAPTURE: said("kernels of a graph's capture, to name those of its replays"),
}

CONSEQUENCES: Mapping[str, tuple[str, str]] = {
    # code → the section that lacks it, and what it says
    "timeline": (
        "idle",
        said(
            "The trace does not say when its commands ran: idle time, the critical path and use "
            "over time are unknown."
        ),
    ),
    "shapes": (
        "shapes",
        said("The trace has no shapes of operators: no FLOPs, no efficiency, no roofline."),
    ),
    "launches": (
        "idle",
        said("The trace has no launches: what devices waited for within calls is not known."),
    ),
    "memory": ("memory", said("The trace has no allocations: memory over time is unknown.")),
}

FINDINGS: Mapping[str, str] = {  # code → what no rule can find without it
    "timeline": said("idle time"),
    "shapes": said("FLOPs and the roofline"),
    "launches": said("launches"),
    "memory": said("memory over time"),
}

ADVICE: Mapping[tuple[str, str], str] = {  # code and producer → how to record it
    ("shapes", "kineto"): said("Record with record_shapes=True."),
    ("memory", "kineto"): said("Record with profile_memory=True."),
    ("launches", "kineto"): said("Also record with ProfilerActivity.CPU."),
    ("shapes", "nsys"): said("Record with torch.autograd.profiler.emit_nvtx(record_shapes=True)."),
    ("launches", "rocprofv3"): said("Also record with --hip-trace."),
    ("timeline", "tensorrt"): said("Give the file that --exportTimes writes as well."),
    ("shapes", "tensorrt"): said("Give the file that --exportLayerInfo writes as well."),
}


def told(codes: Collection[str]) -> list[str]:
    """What is told, in the order of the meanings; codes without one at the end."""
    known = [meaning for code, meaning in _MEANINGS.items() if code in codes]
    return known + sorted(set(codes) - _MEANINGS.keys())


def untold(codes: Collection[str]) -> list[str]:
    """What other producers tell and these never do; not graphs' captures, of torch alone, nor
    averages, of what has no times, nor requests and
    stages, of servers."""
    lacking = _MEANINGS.keys() - set(codes) - {GRAPH_CAPTURE, "averages", "requests", "stages"}
    return [meaning for code, meaning in _MEANINGS.items() if code in lacking]
