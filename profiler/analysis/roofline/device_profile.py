"""The rates of one device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["DeviceProfile"]

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
    the hardware, `source` a URL or how it was measured. Of `peak_flops`, `attained` are those that
    the run itself went beyond what was measured. `cache_bytes` is the size of the last-level
    cache, `cache_bandwidth` bytes/s read and written from it.
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
