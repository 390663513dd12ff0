"""Whether a placement fits: the weights of what is placed on a device, and the activations of what
runs there. A device runs one call at a time, so that the activations of one count, beside what the
others keep meanwhile; the embeddings and latents of requests are small beside them and left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from profiler.analysis.prediction.codes import PlacementNote
from profiler.analysis.prediction.targets import TargetDevice
from profiler.analysis.prediction.workload import Workload
from profiler.text import Note

__all__ = [
    "DeviceMemory",
    "TooLarge",
    "fits",
    "memory_by_device",
    "too_large",
    "unknown_memory",
]

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


@dataclass(frozen=True, slots=True)
class TooLarge:
    """That a device, which has `memory` bytes, lacks the room for what is placed on it."""

    need: DeviceMemory
    memory: int

    @property
    def note(self) -> Note:
        """`PlacementNote.TOO_LARGE`."""
        return Note.of(
            PlacementNote.TOO_LARGE,
            submodules=self.need.submodules,
            device=self.need.device,
            needed_bytes=self.need.needed,
            weights_bytes=self.need.weights,
            activations_bytes=self.need.activations,
            memory_bytes=self.memory,
        )

    @property
    def error(self) -> str:
        """The beginning of an error: `"cpu:0 has 1.0 GiB and would hold 2.0 GiB of vae"`."""
        names, need = ", ".join(self.need.submodules), _readable(self.need.needed)
        return f"{self.need.device} has {_readable(self.memory)} and would hold {need} of {names}"


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
) -> TooLarge | None:
    """The first device on which a placement does not fit; None where it fits."""
    return next(iter(_too_large(workload, placement, targets)), None)


def _too_large(
    workload: Workload, placement: Mapping[str, str], targets: Sequence[TargetDevice]
) -> Iterable[TooLarge]:
    limits = {target.name: target.memory_bytes for target in targets}
    for device, need in memory_by_device(workload, placement).items():
        limit = limits.get(device)
        if limit is not None and need.needed > limit:
            yield TooLarge(need, limit)


def unknown_memory(
    workload: Workload, submodules: Iterable[str], targets: Sequence[TargetDevice]
) -> list[Note]:
    """What a check against the targets' limits did not count."""
    if all(target.memory_bytes is None for target in targets):
        return []
    names = list(submodules)
    found = []
    for code, known in (
        (PlacementNote.WEIGHTS_UNKNOWN, workload.weights),
        (PlacementNote.ACTIVATIONS_UNKNOWN, workload.activations),
    ):
        missing = tuple(name for name in names if name not in known)
        if missing:
            found.append(Note.of(code, submodules=missing))
    return found


def _readable(size: int) -> str:
    value = float(size)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
