"""Device peaks: FLOP rates by type, memory and cache bandwidth, launch cost.

A profile is measured (`profile-sd3 benchmark-device` writes a file of them) or published. A
measured one is what the device reaches on this machine, with the threads it has. A published
one cannot be exceeded and is not reached in practice. `published_profiles.toml` has the
sources.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from profiler.errors import InputError
from profiler.files import json_text, opened, paired, size_of
from profiler.trace.events import device_kind
from profiler.trace.manifest_fields import Device

# --- The rates of one device.


_STANDS_IN = {  # a type without a rate of its own is computed at least as fast as
    "bfloat16": ("float16", "float32"),
    "float16": ("bfloat16", "float32"),
    "float8e4m3fn": ("float8e5m2", "bfloat16", "float16", "float32"),
    "float8e5m2": ("float8e4m3fn", "bfloat16", "float16", "float32"),
    "int8": ("uint8", "float32"),
    "uint8": ("int8", "float32"),
    "complex64": ("float32",),
    "complex128": ("float64",),
}


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """The rates of one device, None if not known.

    `peak_flops` is FLOP/s by type (`float32`, `bfloat16`, …; integers: operations/s) of dense
    matrix products, `memory_bandwidth` bytes/s read and written together, `launch_ns` the min time
    from one command to the next. `device` is what it was measured on, a device (`cuda:0`) or a kind
    (`cpu`, with the number of `cores`), "" for published ones; `hardware` is the name of the
    hardware, `source` a URL or how it was measured. `attained` are the types of `peak_flops` whose
    measured rate the run itself exceeded. `cache_bytes` is the size of the last-level cache,
    `cache_bandwidth` bytes/s read and written from it.
    """

    hardware: str
    peak_flops: Mapping[str, float]
    memory_bandwidth: float | None
    launch_ns: float | None
    source: str
    measured: bool
    device: str = ""
    cores: int | None = None
    attained: tuple[str, ...] = ()
    matches: tuple[str, ...] = field(default=(), repr=False)
    excludes: tuple[str, ...] = field(default=(), repr=False)
    cache_bytes: float | None = None
    cache_bandwidth: float | None = None

    def peak(self, dtype: str) -> float | None:
        """Return the FLOP/s of a type, or of one that is no faster if it has no rate; None if there
        is none."""
        for name in (dtype, *_STANDS_IN.get(dtype, ())):
            if name in self.peak_flops:
                return self.peak_flops[name]
        return None

    def is_of(self, hardware: str) -> bool:
        """Whether this published profile describes the hardware with this name."""
        name = hardware.lower()
        return any(word in name for word in self.matches) and not any(
            word in name for word in self.excludes
        )


# --- What makers publish of their devices, as `published_profiles.toml` has it with its sources.


_TERA = 1e12
_GIGA = 1e9
_MEBIBYTE = 1 << 20
_L2_WIDTH = 64  # bytes a clock and multiprocessor


@lru_cache
def published() -> tuple[DeviceProfile, ...]:
    """The published profiles, in the order of the file."""
    import tomllib  # only for devices with published figures

    place = resources.files(__package__) / "published_profiles.toml"
    document = tomllib.loads(place.read_text(encoding="utf-8"))
    peaks = {
        name: {dtype: rate * _TERA for dtype, rate in rates.items()}
        for name, rates in document["peaks"].items()
    }
    return tuple(_published_profile(device, peaks) for device in document["devices"])


def _published_profile(
    device: Mapping[str, Any], peaks: Mapping[str, Mapping[str, float]]
) -> DeviceProfile:
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


# --- How fast a device can be: peak rates by type, bandwidth of memory and of the last-level cache,
# what a launch costs.
#
# A profile is measured (`profile-sd3 benchmark-device` writes a file of them) or published
# (`published`). A measured one is what the device does on this machine, with the threads it has; a
# published one is what nothing can exceed, and less than it is reached in practice.


FILE_NAME = "device_profiles.json"
_FORMAT = 1
_LONGEST = 1 << 20  # bytes
_CACHE = ("cache_bytes", "cache_bandwidth")  # `benchmark-device` does not measure them
_RATES = ("memory_bandwidth", "launch_ns", *_CACHE)
_RECOMMENDATION = "measure it again with `profile-sd3 benchmark-device`"


def profiles_of(
    devices: Mapping[str, Device | None], measured: Sequence[DeviceProfile] = ()
) -> dict[str, DeviceProfile]:
    """The profile of each device of a run (`RunInfo.devices`) that has one.

    Measured profiles of the hardware come first: of this device before others of its kind, with as
    many cores before other numbers of them, and with more before fewer. Published ones come next. A
    measured profile without a last-level cache takes the published one's.
    """
    found = {}
    for device, known in devices.items():
        name, count = (known.hardware, len(known.cores) or None) if known else ("", None)
        fits = [p for p in measured if _fits(p, device, name)]
        fits.sort(key=lambda p: (p.device != device, p.cores != count, -(p.cores or 0)))
        known_ones = [] if device_kind(device) == "cpu" else [published_of(name)]
        fits += (p for p in known_ones if p is not None)
        if fits:
            found[device] = _with_cache(fits[0], fits[-1])
    return found


def published_of(hardware: str) -> DeviceProfile | None:
    """Return the published profile of the hardware with this name; there are none of CPUs."""
    return next((profile for profile in published() if profile.is_of(hardware)), None)


def _with_cache(profile: DeviceProfile, other: DeviceProfile) -> DeviceProfile:
    """`profile`, with the cache of the published `other` if it has none."""
    if profile.cache_bytes is not None or other.measured:
        return profile
    return replace(profile, cache_bytes=other.cache_bytes, cache_bandwidth=other.cache_bandwidth)


def _fits(profile: DeviceProfile, device: str, hardware: str) -> bool:
    """Whether a measured profile may be that of a device, as far as both names are known."""
    kind = device_kind(device)
    same = not hardware or not profile.hardware or hardware == profile.hardware
    known = bool(hardware) and hardware == profile.hardware
    return same and (known or profile.device in (device, kind))


def profiles_text(profiles: Sequence[DeviceProfile]) -> str:
    """The text of a file of measured profiles, JSON."""
    entries = [
        {
            "device": profile.device,
            "hardware": profile.hardware,
            "cores": profile.cores,
            "peak_flops": dict(profile.peak_flops),
            "memory_bandwidth": profile.memory_bandwidth,
            "launch_ns": profile.launch_ns,
            "source": profile.source,
            **{name: rate for name in _CACHE if (rate := getattr(profile, name)) is not None},
        }
        for profile in profiles
    ]
    return json_text({"device_profiles": _FORMAT, "devices": entries}) + "\n"


def find_profiles(source: Path) -> tuple[DeviceProfile, ...]:
    """Return the measured profiles for the run at `source` (a bundle or a file): those in its
    folder, else in the one above, else none. Raises InputError if that file is not one of
    profiles."""
    folder = source if source.is_dir() else source.parent
    for place in (folder / FILE_NAME, folder.absolute().parent / FILE_NAME):
        if place.is_file():
            return read_profiles(place)
    return ()


def read_profiles(path: Path) -> tuple[DeviceProfile, ...]:
    """Read what `profiles_text` wrote. Raises InputError if the file is not that."""
    try:
        with opened(path) as file:
            if size_of(file) > _LONGEST:
                raise InputError(f"{path} is too large for device profiles: {_RECOMMENDATION}")
            document = json.loads(paired(file.read(_LONGEST).decode()))
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot read {path} ({reason}): {_RECOMMENDATION}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}): {_RECOMMENDATION}") from error
    version = document.get("device_profiles") if isinstance(document, dict) else None
    if version != _FORMAT:
        raise InputError(
            f"{path} holds no device profiles that this version reads: {_RECOMMENDATION}"
        )
    entries = document.get("devices")
    if not isinstance(entries, list) or not entries:
        raise InputError(f"{path} names no device: {_RECOMMENDATION}")
    return tuple(_measured_profile(path, entry) for entry in entries)


def _measured_profile(path: Path, entry: Any) -> DeviceProfile:
    if not isinstance(entry, dict) or not isinstance(entry.get("peak_flops"), dict):
        raise InputError(f"a device in {path} has no peak_flops by type: {_RECOMMENDATION}")
    name = entry.get("device")
    texts = {key: entry.get(key, "") for key in ("device", "hardware", "source")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise InputError(f"device {name!r} in {path} has a name that is no text: {_RECOMMENDATION}")
    peaks = {str(dtype): _rate(path, name, value) for dtype, value in entry["peak_flops"].items()}
    rates: dict[str, Any] = {
        key: None if entry.get(key) is None else _rate(path, name, entry[key]) for key in _RATES
    }
    cores = _cores(path, name, entry.get("cores"))
    return DeviceProfile(peak_flops=peaks, measured=True, cores=cores, **texts, **rates)


def _cores(path: Path, device: object, value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise InputError(
        f"device {device!r} in {path} has a number of cores that is none: {_RECOMMENDATION}"
    )


def _rate(path: Path, device: object, value: Any) -> float:
    """Return `value` if it is a number above 0; raises InputError otherwise."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 < value < 1e30 or not math.isfinite(value):
        raise InputError(
            f"device {device!r} in {path} has a rate that is no number above 0: {_RECOMMENDATION}"
        )
    return float(value)
