"""Profiles of Qualcomm's QNN: CSV of ONNX Runtime or of qnn-profile-viewer, and HTP summaries."""

from __future__ import annotations

import re
from pathlib import Path

from profiler.importers.importer import Importer, reader

HEADER = re.compile(rb"\s*\"?Msg Timestamp\"?\s*,\s*\"?Message\"?\s*,\s*\"?Time\"?\s*,")
_LINES = 10  # above the header, of qnn-profile-viewer
_SUMMARY = re.compile(rb'"artifact_type"\s*:\s*"QHAS"')


def is_csv(head: bytes) -> bool:
    """Whether a file is a profile as CSV."""
    return any(HEADER.match(line) for line in head.split(b"\n", _LINES)[:_LINES])


def is_summary(head: bytes) -> bool:
    """Whether a file is a summary of an HTP."""
    return head.lstrip()[:1] == b"{" and _SUMMARY.search(head[:4096]) is not None


def _recognises(_path: Path, head: bytes) -> bool:
    return is_csv(head) or is_summary(head)


IMPORTER = Importer(
    name="qnn",
    title="Qualcomm QNN",
    accepts="a profile of Qualcomm's QNN (CSV of ONNX Runtime or qnn-profile-viewer), an HTP "
    "summary (QHAS), or both",
    recognises=_recognises,
    read=reader(__name__),
    capabilities=frozenset({"averages", "cycles", "bytes"}),
    seen="those of ONNX Runtime with QAIRT 2.4x on Snapdragon X (HTP)",
)
