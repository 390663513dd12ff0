"""Weights by device: what must fit there before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiler.analysis.manifest_numbers import byte_count

__all__ = ["device_weights", "submodule_weights"]


def device_weights(
    submodules: Mapping[str, Mapping[str, Any]], devices: Mapping[str, Mapping[str, Any]]
) -> dict[str, int]:
    """Bytes of weights by device, the most at once, from `RunInfo.submodules` and `.devices`.

    Where a device does not tell, its submodules are added up; weights that they share
    (`shared_weight_bytes`) count once. A device with a submodule whose weights nobody told of is
    left out.
    """
    totals: dict[str, int] = {}
    unknown: set[str] = set()
    for known in submodules.values():
        device = known.get("device") if isinstance(known, Mapping) else None
        if not isinstance(device, str):
            continue
        size = _own_bytes(known)
        if size is None:
            unknown.add(device)
        else:
            totals[device] = totals.get(device, 0) + size
    for name, known in devices.items():
        most = byte_count(known, "weight_bytes")
        if most is not None:
            totals[name] = most
    return {name: size for name, size in totals.items() if name not in unknown and size < 1 << 63}


def submodule_weights(submodules: Mapping[str, Mapping[str, Any]]) -> dict[str, int | None]:
    """Bytes of weights by submodule, but those shared with one before; None where nobody told."""
    return {name: _own_bytes(known) for name, known in submodules.items()}


def _own_bytes(known: object) -> int | None:
    """Bytes of a submodule's weights but those that it shares with one before."""
    size = byte_count(known, "weight_bytes")
    shared = byte_count(known, "shared_weight_bytes") or 0
    return None if size is None else max(size - shared, 0)
