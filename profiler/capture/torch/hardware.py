"""The hardware of the GPUs that torch uses."""

from __future__ import annotations

import sys

from profiler.trace.manifest_fields import Device

__all__ = ["gpu"]

_KIND = "cuda"  # of NVIDIA's and, by that name too, of AMD's


def gpu(device: str) -> Device | None:
    """Name, memory in bytes and multiprocessors of `cuda:1`; None of other devices, and where the
    process has not started CUDA: it is not started for that."""
    kind, _, index = device.partition(":")
    torch = sys.modules.get("torch")
    if torch is None or kind != _KIND or not index.isdecimal() or not torch.cuda.is_initialized():
        return None
    if int(index) >= torch.cuda.device_count():
        return None
    told = torch.cuda.get_device_properties(int(index))
    return Device(
        hardware=told.name, memory_bytes=told.total_memory, compute_units=told.multi_processor_count
    )
