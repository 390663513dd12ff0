"""Weights by device: what must fit there before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        size, shared = (_bytes(known, key) for key in ("weight_bytes", "shared_weight_bytes"))
        if size < 0:
            unknown.add(device)
        else:
            totals[device] = totals.get(device, 0) + max(size - max(shared, 0), 0)
    for name, known in devices.items():
        most = _bytes(known, "weight_bytes") if isinstance(known, Mapping) else -1
        if most >= 0:
            totals[name] = most
    return {name: size for name, size in totals.items() if name not in unknown and size < 1 << 63}


def _bytes(known: Mapping[str, Any], key: str) -> int:
    """What a manifest has there where it can be a size, else -1."""
    value = known.get(key)
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62
    return int(value) if fits else -1  # type: ignore[arg-type]


def submodule_weights(submodules: Mapping[str, Mapping[str, Any]]) -> dict[str, int | None]:
    """Bytes of weights by submodule, but those shared with one before; None where nobody told."""
    found: dict[str, int | None] = {}
    for name, known in submodules.items():
        if isinstance(known, Mapping):
            size, shared = (_bytes(known, key) for key in ("weight_bytes", "shared_weight_bytes"))
            found[name] = None if size < 0 else max(size - max(shared, 0), 0)
    return found
