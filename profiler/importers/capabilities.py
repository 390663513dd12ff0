"""What a producer's files can tell, by code. The set is open: importers of others add their own."""

from __future__ import annotations

from profiler.events import GRAPH_CAPTURE
from profiler.importers.importer import Importer

__all__ = ["MEANINGS", "cannot_tell", "tells"]

MEANINGS = {
    "timeline": "when each command ran, and where",
    "launches": "which launch of the host each command of a device had",
    "shapes": "shapes of operators, and with them FLOPs, efficiency and the roofline",
    "bytes": "bytes that copies and operators moved",
    "memory": "the allocator's memory over time",
    "cycles": "cycles of the device's units",
    "metrics": "the device's counters over time",
    GRAPH_CAPTURE: "kernels of a graph's capture, to name those of its replays",
}


def tells(importer: Importer) -> list[str]:
    """What its files may tell, in words; a code without a meaning stands for itself."""
    known = [meaning for code, meaning in MEANINGS.items() if code in importer.capabilities]
    return known + sorted(importer.capabilities - MEANINGS.keys())


def cannot_tell(importer: Importer) -> list[str]:
    """What other producers' files tell and its never do, in words; not graphs, of torch alone."""
    lacking = MEANINGS.keys() - importer.capabilities - {GRAPH_CAPTURE}
    return [meaning for code, meaning in MEANINGS.items() if code in lacking]
