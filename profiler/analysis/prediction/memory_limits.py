"""Whether a placement fits: the weights of what is placed on a device, and the activations of what
runs there. A device runs one call at a time, so that the largest activations of one count; the
embeddings and latents that requests keep between calls are small beside them and left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from profiler.analysis.prediction.targets import TargetDevice
from profiler.analysis.prediction.workload import Workload
from profiler.errors import InputError

__all__ = ["DeviceMemory", "check_fits", "fits", "memory_by_device", "unknown_memory"]

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What a placement needs on one device, in bytes, and on whose behalf.

    `activations` are the most of any one submodule; `unknown` names those whose weights nobody
    told of, which count as 0.
    """

    device: str
    submodules: tuple[str, ...]
    weights: int
    activations: int
    unknown: tuple[str, ...]

    @property
    def needed(self) -> int:
        return self.weights + self.activations


def memory_by_device(workload: Workload, placement: Mapping[str, str]) -> dict[str, DeviceMemory]:
    """What each device of a whole placement (of every submodule) has to hold."""
    found = {}
    for device in dict.fromkeys(placement.values()):
        here = tuple(name for name, where in placement.items() if where == device)
        found[device] = DeviceMemory(
            device=device,
            submodules=here,
            weights=sum(workload.weights.get(name, 0) for name in here),
            activations=max(workload.activations.get(name, 0) for name in here),
            unknown=tuple(name for name in here if name not in workload.weights),
        )
    return found


def fits(workload: Workload, placement: Mapping[str, str], targets: Sequence[TargetDevice]) -> bool:
    """Whether every device that has a limit holds what is placed on it, as far as is known."""
    return not any(_too_large(workload, placement, targets))


def check_fits(
    workload: Workload, placement: Mapping[str, str], targets: Sequence[TargetDevice]
) -> None:
    """Raise InputError for the first device on which a placement does not fit."""
    for limit, need in _too_large(workload, placement, targets):
        raise InputError(
            f"{', '.join(need.submodules)} need {_readable(need.needed)} on {need.device} "
            f"({_readable(need.weights)} of weights, {_readable(need.activations)} of "
            f"activations), which has {_readable(limit)}; place one of them elsewhere"
        )


def _too_large(
    workload: Workload, placement: Mapping[str, str], targets: Sequence[TargetDevice]
) -> Iterable[tuple[int, DeviceMemory]]:
    limits = {target.name: target.memory_bytes for target in targets}
    for device, need in memory_by_device(workload, placement).items():
        limit = limits.get(device)
        if limit is not None and need.needed > limit:
            yield limit, need


def unknown_memory(
    workload: Workload, submodules: Iterable[str], targets: Sequence[TargetDevice]
) -> list[str]:
    """What a check against the targets' limits did not count, in sentences."""
    if all(target.memory_bytes is None for target in targets):
        return []
    names = list(submodules)
    found = []
    for what, known in (("weights", workload.weights), ("activations", workload.activations)):
        missing = [name for name in names if name not in known]
        if missing:
            found.append(f"{what} of {', '.join(missing)} are not known and count as nothing")
    return found


def _readable(size: int) -> str:
    value = float(size)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
