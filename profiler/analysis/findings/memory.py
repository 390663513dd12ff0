"""Rules about memory: what does not fit, and what makes the peak."""

from __future__ import annotations

from typing import Any

import polars as pl

from profiler.analysis.findings.finding import Finding, Where
from profiler.analysis.findings.measures import as_percent, calls_of, share
from profiler.analysis.result import Analysis
from profiler.messages import said

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
        over, part = left < 0, as_percent(share(left, size))
        title = (
            said(
                "The run needs {share} of the memory of {device}: it does not fit",
                share=as_percent(share(row["needed_bytes"], size)),
                device=row["device"],
            )
            if over
            else said(
                "At its peak {device} has {share} of its memory left",
                device=row["device"],
                share=part,
            )
        )
        found.append(
            Finding(
                rule="little_headroom",
                title=title,
                evidence={
                    "needed_bytes": row["needed_bytes"],
                    "size_bytes": size,
                    "headroom_bytes": left,
                    "headroom_share": share(left, size),
                    "peak_in": row["submodule"] or said("no call"),
                },
                hazard=said(
                    "Counters see tensors: fragmentation, contexts of the driver and "
                    "libraries, and a second request need memory that is not counted."
                ),
                remedy=said(
                    "Place submodules on other devices, quantize the largest, offload encoders "
                    "when they are done, or decode in tiles where the peak is there."
                ),
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
        evidence: dict[str, int | float | str] = {
            "activation_bytes": activations,
            "activation_share": share(activations, needed),
            "needed_bytes": needed,
        }
        if size:
            evidence["size_bytes"] = size
        found.append(
            Finding(
                rule="decode_peak",
                title=said(
                    "The peak of {device} is in {submodule}: its activations are {share} of it",
                    device=row["device"],
                    submodule=row["submodule"],
                    share=as_percent(share(activations, needed)),
                ),
                evidence=evidence,
                hazard=said(
                    "Tiles take longer and may show seams; a VAE in float16 may overflow "
                    "(bfloat16 or a fixed VAE does not)."
                ),
                remedy=said(
                    "Decode in tiles or slices (vae.enable_tiling(), vae.enable_slicing()), in "
                    "16 bits, or after the denoiser's weights have left the device."
                ),
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
