"""The devices of providers, as far as a profile tells them: no session is there to be asked."""

from __future__ import annotations

from functools import lru_cache

from profiler.events import ROOT_DEVICE
from profiler.ort_profiles.providers import KNOWN, device_of_provider

__all__ = ["device_of", "launches", "launching_device"]

_LAUNCHING = ("cuda", "rocm", "tensorrt", "dml", "webgpu", "js")
_UNKNOWN_DEVICE = "npu:0"


@lru_cache(maxsize=256)
def device_of(provider: str) -> str:
    """The device of a provider; those that are not known here run on `npu:0`."""
    device = device_of_provider(provider, {})
    return device if device == ROOT_DEVICE or provider in KNOWN else _UNKNOWN_DEVICE


@lru_cache(maxsize=256)
def launches(provider: str) -> bool:
    """Whether its nodes only launch what its device runs."""
    return device_of(provider).partition(":")[0] in _LAUNCHING


def launching_device(provider: str) -> str:
    """The device that its nodes launch on, "" where they launch nothing."""
    return device_of(provider) if launches(provider) else ""
