"""The report as one JSON document; `docs/json.md` describes every key.

Times are integers in nanoseconds, shares and other ratios numbers with 1.0 for all of it; what is
not known is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiler.analysis.result import Analysis
from profiler.analysis.roofline.device_profiles import DeviceProfile
from profiler.json_text import json_text, plain
from profiler.report.excerpts import outlier_count

__all__ = ["DOCUMENT_VERSION", "document", "to_json"]

DOCUMENT_VERSION = 1  # rises when a key goes or changes its meaning


def document(analysis: Analysis) -> dict[str, Any]:
    """The analysis as plain values: mappings, lists, text, numbers, booleans, None."""
    tables = {name: frame.to_dicts() for name, frame in analysis.tables().items()}
    return {
        "version": DOCUMENT_VERSION,
        "run": plain(analysis.run),
        "accounting": plain(analysis.accounting),
        "step_summary": plain(analysis.step_summary),
        **tables,
        "step_outliers_total": outlier_count(analysis),
        "findings": [plain(finding) for finding in analysis.findings],  # nested, not as the table
        "device_profiles": _profiles(analysis.device_profiles),
    }


def to_json(analysis: Analysis) -> str:
    """The document as JSON text that ends with a newline; no NaN, no Infinity."""
    return json_text(document(analysis)) + "\n"


def _profiles(profiles: Mapping[str, DeviceProfile]) -> dict[str, Any]:
    """What each device was held against, by device."""
    return {
        device: {
            "hardware": profile.hardware,
            "measured": profile.measured,
            "source": profile.source,
            "memory_bandwidth": profile.memory_bandwidth,
            "launch_ns": None if profile.launch_ns is None else round(profile.launch_ns),
            "peak_flops": dict(profile.peak_flops),
        }
        for device, profile in profiles.items()
    }
