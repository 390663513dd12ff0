"""Rules about memory: what does not fit, and what makes the peak."""

from __future__ import annotations

from typing import Any

import polars as pl

from profiler.analysis.findings.finding import Finding, Where
from profiler.analysis.findings.measures import calls_of, share
from profiler.analysis.result import Analysis
from profiler.text import Value

__all__ = ["decode_peak", "little_headroom"]

_HEADROOM = 0.10  # of the memory: fragmentation and the driver's context need about as much
_ACTIVATIONS = 0.30  # of what is needed
_OF_SIZE = 0.50  # of the memory: a peak below half of it is nobody's problem
_LARGE = 1 << 30  # bytes, where the device's memory is not known


def little_headroom(analysis: Analysis) -> tuple[Finding, ...]:
    """A device's memory is nearly, or more than, full."""
    found = []
    for row in analysis.memory_devices.drop_nulls("headroom_bytes").to_dicts():
        left, size = row["headroom_bytes"], row["size_bytes"]
        if not size or share(left, size) >= _HEADROOM:
            continue
        over = left < 0
        found.append(
            Finding(
                rule="little_headroom",
                evidence={
                    "needed_bytes": row["needed_bytes"],
                    "size_bytes": size,
                    "headroom_bytes": left,
                    "headroom_share": share(left, size),
                    **({"peak_in": row["submodule"]} if row["submodule"] else {}),
                },
                where=_at_peak(analysis, row),
                severity="high" if over else "medium",
            )
        )
    return tuple(found)


def decode_peak(analysis: Analysis) -> tuple[Finding, ...]:
    """Decoding the image needs most memory, for activations."""
    found = []
    for row in analysis.memory_devices.filter(pl.col("stage") == "decode").to_dicts():
        held = analysis.memory.filter(
            (pl.col("device") == row["device"]) & (pl.col("submodule") == row["submodule"])
        )
        activations = held["activation_bytes"][0] if len(held) else None
        needed, size = row["needed_bytes"], row["size_bytes"]
        if activations is None or not needed or share(activations, needed) < _ACTIVATIONS:
            continue
        if (share(needed, size) < _OF_SIZE) if size else activations < _LARGE:
            continue
        evidence: dict[str, Value] = {
            "activation_bytes": activations,
            "activation_share": share(activations, needed),
            "needed_bytes": needed,
        }
        if size:
            evidence["size_bytes"] = size
        found.append(
            Finding(
                rule="decode_peak",
                evidence=evidence,
                where=_at_peak(analysis, row),
                severity="medium" if size else "low",
            )
        )
    return tuple(found)


def _at_peak(analysis: Analysis, row: dict[str, Any]) -> Where:
    """The calls of the submodule that ran at the peak."""
    if row["submodule"] is None:
        return Where(device=row["device"])
    step = row["step"] if row["step"] is not None and row["step"] >= 0 else None
    return calls_of(analysis, row["submodule"], device=row["device"], step=step)
