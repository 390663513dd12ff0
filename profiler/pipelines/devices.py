"""Devices, and which cores each CPU device has.

A device is written `kind:index`. CPU devices are real here: `cpu:0`, `cpu:1`, … share out the
cores that the process may use, so that submodules placed on different ones do not compete. Other
kinds name an ONNX Runtime execution provider and the index of the device it should use.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from profiler.errors import InputError, needing
from profiler.trace import manifest_fields

__all__ = [
    "DEFAULT_DEVICE",
    "PROVIDERS",
    "Device",
    "DeviceShare",
    "Placement",
    "ProviderSpec",
    "check_part_name",
    "check_providers",
    "parse_device_options",
    "pinned",
    "usable_cores",
]

ProviderSpec = str | tuple[str, Mapping[str, str]]
"""An ONNX Runtime execution provider by name, alone or with its options."""

DEFAULT_DEVICE = "cpu:0"

PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "CPUExecutionProvider",
        "cuda": "CUDAExecutionProvider",
        "tensorrt": "TensorrtExecutionProvider",
        "rocm": "ROCMExecutionProvider",
        "migraphx": "MIGraphXExecutionProvider",
        "dml": "DmlExecutionProvider",
        "cann": "CANNExecutionProvider",
    }
)
"""Device kind to the ONNX Runtime execution provider that serves it."""


@dataclass(frozen=True, order=True)
class Device:
    """A place that executes commands; `str()` gives `kind:index`."""

    kind: str
    index: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"

    @classmethod
    def parse(cls, text: str) -> "Device":
        """Read `kind:index`; raises `InputError` for another form or an unknown kind."""
        match = re.fullmatch(r"([a-z]+):([0-9]{1,4})", text)
        if match is None or match[1] not in PROVIDERS:
            kinds = ", ".join(PROVIDERS)
            raise InputError(
                f"{text!r} is not a device; write kind:index such as cpu:1, with one of {kinds}"
            )
        return cls(match[1], int(match[2]))

    def providers(self) -> list[ProviderSpec]:
        """Return the ONNX Runtime providers for this device, in order of preference."""
        if self.kind == "cpu":
            return [PROVIDERS["cpu"]]
        return [(PROVIDERS[self.kind], {"device_id": str(self.index)}), PROVIDERS["cpu"]]

    @classmethod
    def of_provider(cls, spec: ProviderSpec) -> "Device":
        """Return the device that an ONNX Runtime provider stands for; the inverse of `providers`.

        Raises `InputError` for a provider that no device kind names.
        """
        name, options = (spec, {}) if isinstance(spec, str) else spec
        for kind, provider in PROVIDERS.items():
            if provider == name:
                return cls.parse(f"{kind}:{options.get('device_id', '0')}")
        known = ", ".join(PROVIDERS.values())
        raise InputError(f"{name!r} is not a provider that devices can name; use one of {known}")


def parse_device_options(options: Iterable[str], known_parts: Collection[str]) -> dict[str, str]:
    """Read `submodule=kind:index` options into submodule → device.

    Raises `InputError` for a submodule that is not in `known_parts`, one named twice, or a
    malformed device.
    """
    devices: dict[str, str] = {}
    for option in options:
        name, separator, device = option.partition("=")
        if not separator:
            raise InputError(
                f"{option!r} does not say which submodule goes where; "
                "write submodule=kind:index such as text_encoder_3=cpu:1"
            )
        check_part_name(name, known_parts)
        if name in devices:
            raise InputError(f"{name} is placed twice, on {devices[name]} and {device}; keep one")
        devices[name] = str(Device.parse(device))
    return devices


def check_part_name(name: str, known_parts: Collection[str]) -> None:
    """Raise `InputError` unless `name` is one of `known_parts`."""
    if name not in known_parts:
        known = ", ".join(known_parts)
        raise InputError(f"{name!r} is not a submodule of this pipeline; it has {known}")


def check_providers(providers: Iterable[ProviderSpec]) -> None:
    """Raise `InputError` if this ONNX Runtime lacks one of `providers`."""
    with needing("run", "profiler.pipelines", "onnxruntime"):
        import onnxruntime

    available: list[str] = onnxruntime.get_available_providers()
    for spec in providers:
        name = spec if isinstance(spec, str) else spec[0]
        if name not in available:
            raise InputError(
                f"this onnxruntime has no {name}, only {', '.join(available)}; "
                "install the onnxruntime package that brings it or choose another device"
            )


def usable_cores() -> tuple[int, ...]:
    """Return the processors that this process may use, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


@dataclass(frozen=True)
class DeviceShare:
    """What one device has of this machine.

    `cores` are operating-system processor numbers, empty for a device that is not a CPU; `pinned`
    says that its threads stay on them; `shared_with` names CPU devices on the same cores.
    """

    device: str
    cores: tuple[int, ...]
    pinned: bool
    shared_with: tuple[str, ...] = ()

    def described(self) -> manifest_fields.Device:
        """What the trace's manifest says of the device."""
        device = Device.parse(self.device)
        if device.kind != "cpu":
            return manifest_fields.Device(provider=PROVIDERS[device.kind])
        return manifest_fields.Device(
            cores=self.cores, pinned=self.pinned, shared_with=self.shared_with
        )


@dataclass(frozen=True)
class Placement:
    """The devices of one pipeline and what each has of the machine."""

    shares: tuple[DeviceShare, ...]

    @classmethod
    def plan(cls, devices: Iterable[str], cores: Iterable[int] | None = None) -> "Placement":
        """Share out `cores` (default: all usable ones) evenly among the CPU devices.

        The order of the devices' indices is the order of the cores. One CPU device has all cores
        and is not pinned. More CPU devices than cores have one core each and share it. Raises
        `InputError` for a malformed device.
        """
        wanted = sorted({Device.parse(device) for device in devices})
        pool = tuple(cores) if cores is not None else usable_cores()
        if not pool:
            raise InputError("no cores to place CPU devices on; give at least one")
        cpus = [str(device) for device in wanted if device.kind == "cpu"]
        others = [str(device) for device in wanted if device.kind != "cpu"]
        chosen = {name: _cores_of(i, len(cpus), pool) for i, name in enumerate(cpus)}
        shares = [
            DeviceShare(
                device=name,
                cores=mine,
                pinned=len(cpus) > 1,
                shared_with=tuple(
                    other for other in cpus if other != name and chosen[other] == mine
                ),
            )
            for name, mine in chosen.items()
        ]
        shares += [DeviceShare(device=name, cores=(), pinned=False) for name in others]
        return cls(tuple(shares))

    def of(self, device: str) -> DeviceShare:
        """Return the share of `device`; raises `InputError` if the placement lacks it."""
        for share in self.shares:
            if share.device == device:
                return share
        known = ", ".join(share.device for share in self.shares)
        raise InputError(f"{device!r} is not a device of this placement; it has {known}")

    def described(self) -> dict[str, manifest_fields.Device]:
        """What the trace's manifest says of each device."""
        return {share.device: share.described() for share in self.shares}


def _cores_of(position: int, count: int, pool: tuple[int, ...]) -> tuple[int, ...]:
    """Return the cores of the device at `position` of `count`: a run of `pool`, or one shared."""
    if count > len(pool):
        return (pool[position % len(pool)],)
    start = position * len(pool) // count
    return pool[start : (position + 1) * len(pool) // count]


@contextmanager
def pinned(cores: Collection[int]) -> Iterator[None]:
    """Keep the calling thread on `cores` inside the block; its former cores come back after it.

    Without cores, or where the system cannot pin threads, nothing happens.
    """
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
