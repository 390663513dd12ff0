"""How fast a device can be: peak rates by type, memory bandwidth, what a launch costs.

A profile is measured (`profile-sd3 benchmark-device` writes a file of them) or published
(`PUBLISHED`). A measured one is what the device does on this machine, with the threads it has; a
published one is what nothing can exceed, and less than it is reached in practice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiler.errors import InputError
from profiler.trace.manifest_fields import Device

__all__ = [
    "FILE_NAME",
    "PUBLISHED",
    "DeviceProfile",
    "find_profiles",
    "profiles_of",
    "profiles_text",
    "read_profiles",
]

FILE_NAME = "device_profiles.json"
_FORMAT = 1
_LONGEST = 1 << 20  # bytes
_RECOMMENDATION = "measure it again with `profile-sd3 benchmark-device`"
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
    """The rates of one device, None where not known.

    `peak_flops` is FLOP/s by type (`float32`, `bfloat16`, …; integers: operations/s) of dense
    matrix products, `memory_bandwidth` bytes/s read and written together, `launch_ns` the least
    time from one command to the next. `device` is what it was measured on, a device (`cuda:0`) or
    a kind (`cpu`, with the number of `cores`), "" for published ones; `hardware` is the name of
    the hardware, `source` a URL or how it was measured.
    """

    hardware: str
    peak_flops: Mapping[str, float]
    memory_bandwidth: float | None
    launch_ns: float | None
    source: str
    measured: bool
    device: str = ""
    cores: int | None = None
    matches: tuple[str, ...] = field(default=(), repr=False)
    excludes: tuple[str, ...] = field(default=(), repr=False)

    def peak(self, dtype: str) -> float | None:
        """FLOP/s of a type; of one without a rate, that of a type that is no faster."""
        for name in (dtype, *_STANDS_IN.get(dtype, ())):
            if name in self.peak_flops:
                return self.peak_flops[name]
        return None

    def is_of(self, hardware: str) -> bool:
        """Whether a published profile is that of the hardware with this name."""
        name = hardware.lower()
        return any(word in name for word in self.matches) and not any(
            word in name for word in self.excludes
        )


_TERA = 1e12
_NVIDIA_H100 = {
    "float64": 66.9 * _TERA,
    "float32": 66.9 * _TERA,  # torch's default; 494.7 where TF32 is allowed
    "float16": 989.4 * _TERA,
    "bfloat16": 989.4 * _TERA,
    "float8e4m3fn": 1978.9 * _TERA,
    "float8e5m2": 1978.9 * _TERA,
    "int8": 1978.9 * _TERA,
}

PUBLISHED: tuple[DeviceProfile, ...] = (
    DeviceProfile(
        hardware="AMD Instinct MI300X",
        peak_flops={
            "float64": 163.4 * _TERA,
            "float32": 163.4 * _TERA,
            "float16": 1307.4 * _TERA,
            "bfloat16": 1307.4 * _TERA,
            "float8e4m3fnuz": 2614.9 * _TERA,
            "float8e5m2fnuz": 2614.9 * _TERA,
            "int8": 2614.9 * _TERA,
        },
        memory_bandwidth=5.3e12,
        launch_ns=None,
        source="https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html",
        measured=False,
        matches=("mi300x",),
    ),
    DeviceProfile(
        hardware="NVIDIA H100 SXM",
        peak_flops=_NVIDIA_H100,
        memory_bandwidth=3.35e12,
        launch_ns=None,
        source="https://www.nvidia.com/en-us/data-center/h100/ (figures there with sparsity)",
        measured=False,
        matches=("h100",),
        excludes=("pcie", "nvl", "h100l", "mig"),
    ),
    DeviceProfile(
        hardware="NVIDIA H200 SXM",
        peak_flops=_NVIDIA_H100,
        memory_bandwidth=4.8e12,
        launch_ns=None,
        source="https://www.nvidia.com/en-us/data-center/h200/ (figures there with sparsity)",
        measured=False,
        matches=("h200",),
        excludes=("nvl", "gh200", "mig"),
    ),
    DeviceProfile(
        hardware="RBLN ATOM",
        peak_flops={"float16": 32 * _TERA, "int8": 128 * _TERA},
        memory_bandwidth=None,  # no source that could be read says it
        launch_ns=None,
        source="https://ascii.jp/elem/000/004/379/4379440/",
        measured=False,
        matches=("rbln-ca02", "rbln-ca12", "rbln-ca22"),
    ),
    DeviceProfile(
        hardware="RBLN Rebel100",
        peak_flops={
            "float16": 1000 * _TERA,
            "float8e4m3fn": 2000 * _TERA,
            "float8e5m2": 2000 * _TERA,
        },
        memory_bandwidth=4.8e12,
        launch_ns=None,
        source="https://docs.rbln.ai/v0.12.0/software/profiler/architecture.html (memory), "
        "https://www.tomshardware.com/tech-industry/semiconductors/isscc-2026-rebellions-ucie-rebel-100",
        measured=False,
        matches=("rbln-cr", "rebel100"),
    ),
)


def profiles_of(
    devices: Mapping[str, Device | None], measured: Sequence[DeviceProfile] = ()
) -> dict[str, DeviceProfile]:
    """The profile of each device of a run (`RunInfo.devices`) that has one.

    First what was measured on such hardware: on this device before others of its kind, with as
    many cores before other numbers of them, and with more before fewer. Then what is published.
    """
    found = {}
    for device, known in devices.items():
        name, count = (known.hardware, len(known.cores) or None) if known else ("", None)
        fits = [p for p in measured if _fits(p, device, name)]
        fits.sort(key=lambda p: (p.device != device, p.cores != count, -(p.cores or 0)))
        candidates = [*fits, *(p for p in PUBLISHED if p.is_of(name))]
        if candidates:
            found[device] = candidates[0]
    return found


def _fits(profile: DeviceProfile, device: str, hardware: str) -> bool:
    """Whether what was measured may be this device: as far as both names are known."""
    kind = device.partition(":")[0]
    same = not hardware or not profile.hardware or hardware == profile.hardware
    known = bool(hardware) and hardware == profile.hardware
    return same and (known or profile.device in (device, kind))


def profiles_text(profiles: Sequence[DeviceProfile]) -> str:
    """The file of measured profiles, JSON."""
    entries = [
        {
            "device": profile.device,
            "hardware": profile.hardware,
            "cores": profile.cores,
            "peak_flops": dict(profile.peak_flops),
            "memory_bandwidth": profile.memory_bandwidth,
            "launch_ns": profile.launch_ns,
            "source": profile.source,
        }
        for profile in profiles
    ]
    return json.dumps({"device_profiles": _FORMAT, "devices": entries}, indent=1) + "\n"


def find_profiles(source: Path) -> tuple[DeviceProfile, ...]:
    """What was measured for the run at `source` (a bundle or a file): the profiles in its folder,
    else in the one above, else none. Raises InputError where that file is not one of profiles."""
    folder = source if source.is_dir() else source.parent
    for place in (folder / FILE_NAME, folder.absolute().parent / FILE_NAME):
        if place.is_file():
            return read_profiles(place)
    return ()


def read_profiles(path: Path) -> tuple[DeviceProfile, ...]:
    """Read what `profiles_text` wrote. Raises InputError where the file is not that."""
    try:
        if path.stat().st_size > _LONGEST:
            raise InputError(f"{path} is too large for device profiles: {_RECOMMENDATION}")
        document = json.loads(path.read_text(encoding="utf-8"))
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
    return tuple(_profile(path, entry) for entry in entries)


def _profile(path: Path, entry: Any) -> DeviceProfile:
    if not isinstance(entry, dict) or not isinstance(entry.get("peak_flops"), dict):
        raise InputError(f"a device in {path} has no peak_flops by type: {_RECOMMENDATION}")
    name = entry.get("device")
    texts = {key: entry.get(key, "") for key in ("device", "hardware", "source")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise InputError(f"device {name!r} in {path} has a name that is no text: {_RECOMMENDATION}")
    peaks = {str(dtype): _rate(path, name, value) for dtype, value in entry["peak_flops"].items()}
    return DeviceProfile(
        hardware=texts["hardware"],
        peak_flops=peaks,
        memory_bandwidth=_known_rate(path, name, entry.get("memory_bandwidth")),
        launch_ns=_known_rate(path, name, entry.get("launch_ns")),
        source=texts["source"],
        measured=True,
        device=texts["device"],
        cores=_cores(path, name, entry.get("cores")),
    )


def _cores(path: Path, device: object, value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise InputError(
        f"device {device!r} in {path} has a number of cores that is none: {_RECOMMENDATION}"
    )


def _known_rate(path: Path, device: object, value: Any) -> float | None:
    return None if value is None else _rate(path, device, value)


def _rate(path: Path, device: object, value: Any) -> float:
    """A rate or time as a number above 0."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 < value < 1e30 or not math.isfinite(value):
        raise InputError(
            f"device {device!r} in {path} has a rate that is no number above 0: {_RECOMMENDATION}"
        )
    return float(value)
