"""Whether a placement fits: the weights of what is placed on a device, and the activations of what
runs there. A device runs one call at a time, so that the activations of one count, beside what the
others keep meanwhile; the embeddings and latents of requests are small beside them and left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from profiler.analysis.prediction.targets import TargetDevice
from profiler.analysis.prediction.workload import Workload

__all__ = ["DeviceMemory", "fits", "memory_by_device", "too_large", "unknown_memory"]

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What a placement needs on one device, in bytes, and on whose behalf.

    `activations` are the most of one that runs and what the others keep; `unknown` names those
    whose weights nobody told of, which count as 0.
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
            activations=_activations(workload, here),
            unknown=tuple(name for name in here if name not in workload.weights),
        )
    return found


def _activations(workload: Workload, names: Sequence[str]) -> int:
    """The most that they hold beside their weights while any one of them runs."""
    kept = {name: workload.kept.get(name, 0) for name in names}
    rest = sum(kept.values())
    return max(rest - kept[n] + max(workload.activations.get(n, 0), kept[n]) for n in names)


def fits(workload: Workload, placement: Mapping[str, str], targets: Sequence[TargetDevice]) -> bool:
    """Whether every device that has a limit holds what is placed on it, as far as is known."""
    return not any(_too_large(workload, placement, targets))


def too_large(
    workload: Workload, placement: Mapping[str, str], targets: Sequence[TargetDevice]
) -> str:
    """Why a placement does not fit, of the first device on which it does not; "" where it fits."""
    for limit, need in _too_large(workload, placement, targets):
        return (
            f"{', '.join(need.submodules)} need {_readable(need.needed)} on {need.device} "
            f"({_readable(need.weights)} of weights, {_readable(need.activations)} of "
            f"activations), which has {_readable(limit)}"
        )
    return ""


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
