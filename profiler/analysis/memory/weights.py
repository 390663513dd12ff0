"""Weights by device: what must fit there before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

from profiler.trace.manifest_fields import Device, Submodule

__all__ = ["device_weights", "submodule_weights"]


def device_weights(
    submodules: Mapping[str, Submodule], devices: Mapping[str, Device]
) -> dict[str, int]:
    """Bytes of weights by device, the most at once, from `RunInfo.submodules` and `.devices`.

    Where a device does not tell, its submodules are added up; weights that they share
    (`shared_weight_bytes`) count once. A device with a submodule whose weights nobody told of is
    left out.
    """
    totals: dict[str, int] = {}
    unknown: set[str] = set()
    for known in submodules.values():
        size = _own_bytes(known)
        if size is None:
            unknown.add(known.device)
        else:
            totals[known.device] = totals.get(known.device, 0) + size
    for name, device in devices.items():
        if device.weight_bytes is not None:
            totals[name] = device.weight_bytes
    named = {name: size for name, size in totals.items() if name}
    return {name: size for name, size in named.items() if name not in unknown and size < 1 << 63}


def submodule_weights(submodules: Mapping[str, Submodule]) -> dict[str, int | None]:
    """Bytes of weights by submodule, but those shared with one before; None where nobody told."""
    return {name: _own_bytes(known) for name, known in submodules.items()}


def _own_bytes(known: Submodule) -> int | None:
    """Bytes of a submodule's weights but those that it shares with one before."""
    size = known.weight_bytes
    return None if size is None else max(size - (known.shared_weight_bytes or 0), 0)
