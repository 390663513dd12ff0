"""What each device did, by category of work."""

from __future__ import annotations

from profiler.analysis import columns
from profiler.messages import said
from profiler.report.charts.devices import devices
from profiler.report.model import Figure, Part, ReportInput, SectionKind, Shown
from profiler.report.views import table

__all__ = ["SECTION"]

_DEVICES = (
    Shown("device", "device", "text"),
    Shown("hardware", "hardware", "text", 4),
    Shown("utilization", "busy of its span", "share"),
    Shown("span_ns", "span", "ns", 4),
    Shown("calls_ns", "in calls", "ns", 5),
    Shown("busy_ns", "busy", "ns"),
    Shown("idle_ns", "idle", "ns", 4),
    Shown("compute_ns", "compute", "ns", 1),
    Shown("dma_ns", "dma", "ns", 2),
    Shown("copy_ns", "copy", "ns", 3),
    Shown("sync_ns", "sync", "ns", 3),
    Shown("other_ns", "other", "ns", 6),
    Shown("host_ns", "host", "ns", 3),
    Shown("calls", "calls", "count", 4),
    Shown("commands", "commands", "count"),
    Shown("weight_bytes", "weights", "bytes", 4),
)


def _parts(of: ReportInput) -> tuple[Part, ...]:
    analysis = of.analysis
    if analysis.devices.is_empty():
        return ()
    return (
        Part(
            said("Time by category of work"),
            figure=Figure("devices", lambda theme: devices(analysis, theme)),
            table=table(
                "devices", "devices", _DEVICES, columns.DEVICES, analysis.devices, shown=20
            ),
        ),
    )


SECTION = SectionKind("devices", 110, said("Devices"), _parts)
