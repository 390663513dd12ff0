"""What makers publish of their devices, as `published_profiles.toml` has it with its sources."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

from profiler.analysis.roofline.device_profile import DeviceProfile

__all__ = ["published"]

_TERA = 1e12
_GIGA = 1e9
_MEBIBYTE = 1 << 20
_L2_WIDTH = 64  # bytes a clock and multiprocessor


@lru_cache
def published() -> tuple[DeviceProfile, ...]:
    """The published profiles, in the order of the file."""
    import tomllib  # for devices that a maker publishes something of

    place = resources.files(__package__) / "published_profiles.toml"
    document = tomllib.loads(place.read_text(encoding="utf-8"))
    peaks = {
        name: {dtype: rate * _TERA for dtype, rate in rates.items()}
        for name, rates in document["peaks"].items()
    }
    return tuple(_profile(device, peaks) for device in document["devices"])


def _profile(device: Mapping[str, Any], peaks: Mapping[str, Mapping[str, float]]) -> DeviceProfile:
    memory, cache = device.get("memory"), device.get("cache")
    return DeviceProfile(
        hardware=device["hardware"],
        peak_flops=peaks[device["peaks"]],
        memory_bandwidth=None if memory is None else memory * _TERA,
        launch_ns=None,
        source=device["source"],
        measured=False,
        matches=tuple(device["matches"]),
        excludes=tuple(device.get("excludes", ())),
        cache_bytes=None if cache is None else cache * _MEBIBYTE,
        cache_bandwidth=_cache_bandwidth(device),
    )


def _cache_bandwidth(device: Mapping[str, Any]) -> float | None:
    """Bytes/s of the last-level cache: published, or the most that multiprocessors can take."""
    if "l2" in device:
        multiprocessors, gigahertz = device["l2"]
        bandwidth: float = multiprocessors * _L2_WIDTH * gigahertz * _GIGA
        return bandwidth
    published_rate: float | None = device.get("cache_bandwidth")
    return None if published_rate is None else published_rate * _TERA
