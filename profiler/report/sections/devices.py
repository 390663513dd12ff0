"""What each device did, by category of work."""

from __future__ import annotations

from profiler.analysis.devices.columns import DEVICES
from profiler.analysis.result import Analysis
from profiler.report.model import Figure, Part, ReportInput, SectionKind, Selected
from profiler.report.views import renamed, table
from profiler.text import said

__all__ = ["SECTION", "devices_figure"]

_DEVICES = (
    "device",
    "hardware",
    "utilization",
    "span_ns",
    renamed(DEVICES, "calls_ns", label="in calls"),
    "busy_ns",
    "idle_ns",
    "carried_over_ns",
    "unrecorded_ns",
    "compute_ns",
    "dma_ns",
    "copy_ns",
    "collective_ns",
    "sync_ns",
    "other_ns",
    "host_ns",
    "calls",
    "commands",
    renamed(DEVICES, "weight_bytes", label="weights"),
)


def devices_figure(analysis: Analysis) -> Figure:
    """How long commands of each category ran on each device."""
    return Figure("devices", "devices", (analysis.devices,))


def _parts(of: ReportInput) -> tuple[Part, ...]:
    analysis = of.analysis
    if analysis.devices.is_empty():
        return ()
    return (
        Part(
            said("Time by category of work"),
            figure=devices_figure(analysis),
            table=table(
                "devices",
                "devices",
                _DEVICES,
                DEVICES,
                analysis.devices,
                shown=20,
                selected=Selected("devices"),
            ),
        ),
    )


SECTION = SectionKind(
    "devices",
    110,
    said("Devices"),
    _parts,
    tables=("devices",),
)
