"""How devices are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["device_name", "output_device"]


def device_name(device: Any) -> str:
    """A device as `kind:index`: "mps" is "mps:0"."""
    kind, _, index = str(device).partition(":")
    return f"{kind}:{index or 0}"


def output_device(output: Any) -> str:
    """The device of the first tensor in a call's output, "" where there is none."""
    if isinstance(output, Mapping):
        output = tuple(output.values())
    while isinstance(output, (tuple, list)) and output:
        output = output[0]
    device = getattr(output, "device", None)
    return device_name(device) if device is not None else ""
