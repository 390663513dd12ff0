"""What is said of calls that take longer than their nodes."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, texts
from profiler.text import said
from profiler.trace.events import device_kind

__all__ = ["WORDS", "is_qnn"]

_RECOMMENDATION = said(
    "Look at the largest part: copies of inputs and outputs, queues, power states. Keep buffers "
    "that host and device share, send several inputs a call, keep the device awake between calls."
)
_OF_QNN = said(
    "Of ONNX Runtime's QNN provider: htp_performance_mode=burst and rpc_control_latency keep the "
    "accelerator awake and answer sooner, enable_htp_shared_memory_allocator=1 spares copies of "
    "inputs and outputs. Send several inputs a call."
)
_CAVEAT = said("The finer the profile, the longer the time around its nodes.")
_CAVEAT_OF_QNN = said(
    "Profiling each node lengthens the time around the nodes: profiling_level=basic measures "
    "calls with less of this effect."
)


def _outside_nodes(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{share} of the time, {outside}, lies outside of the nodes that {device} ran: {parts}",
            share=given["outside_share"],
            outside=given["outside_ns"],
            device=given["device"],
            parts=given["parts"],
        ),
        caveat=_CAVEAT_OF_QNN if is_qnn(found) else _CAVEAT,
        recommendation=_OF_QNN if is_qnn(found) else _RECOMMENDATION,
    )


def is_qnn(found: Finding) -> bool:
    """Whether the device is one of Qualcomm's QNN."""
    return device_kind(found.where.device or "") == "qnn"


WORDS: RuleWords = {"outside_nodes": _outside_nodes}
