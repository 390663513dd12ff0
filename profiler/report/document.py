"""The report as one JSON document; `docs/json.md` describes every key.

Times are integers in nanoseconds, shares and other ratios numbers with 1.0 for all of it; what is
not known is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from profiler.analysis.result import Analysis
from profiler.analysis.roofline.device_profiles import DeviceProfile
from profiler.report.excerpts import outlier_count
from profiler.trace.manifest_fields import Fields, stated

__all__ = ["DOCUMENT_VERSION", "document", "to_json"]

DOCUMENT_VERSION = 1  # rises when a key goes or changes its meaning


def document(analysis: Analysis) -> dict[str, Any]:
    """The analysis as plain values: mappings, lists, text, numbers, booleans, None."""
    tables = {name: frame.to_dicts() for name, frame in analysis.tables().items()}
    return {
        "version": DOCUMENT_VERSION,
        "run": _plain(analysis.run),
        "accounting": _plain(analysis.accounting),
        "step_summary": _plain(analysis.step_summary),
        **tables,
        "step_outliers_total": outlier_count(analysis),
        "findings": [_plain(finding) for finding in analysis.findings],  # nested, not as the table
        "device_profiles": _profiles(analysis.device_profiles),
    }


def to_json(analysis: Analysis) -> str:
    """The document as JSON text that ends with a newline; no NaN, no Infinity."""
    return json.dumps(document(analysis), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


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


def _plain(value: Any) -> Any:
    """`value` as JSON has it; numbers that JSON lacks become None, foreign types text."""
    if isinstance(value, Fields):
        return _plain(stated(value))
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)
