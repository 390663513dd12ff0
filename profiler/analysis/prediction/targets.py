"""Devices that submodules may be placed on, and what a submodule's time would be there.

A device of the same hardware takes the same time. On other hardware each operator's time goes by
the rate of what bounds it (`roofline.bounds`) on both devices: peak FLOP/s, bandwidth, or the
time between launches; what the host bounds stays. Without profiles of both nothing is predicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from profiler.analysis.prediction.codes import PlacementNote
from profiler.analysis.prediction.tasks import Task
from profiler.analysis.prediction.workload import Workload
from profiler.analysis.roofline.codes import Bound
from profiler.analysis.roofline.device_profile import DeviceProfile
from profiler.errors import InputError
from profiler.text import Note
from profiler.trace.events import device_kind
from profiler.trace.manifest_fields import Device

__all__ = [
    "OtherHardware",
    "TargetDevice",
    "equal_hardware",
    "placed",
    "placement_of",
    "target_devices",
]

_CAPTURE = "record a run with that device, or measure both with `profile-sd3 benchmark-device`"
_NOTHING = Device()  # is known of the device


@dataclass(frozen=True, slots=True)
class OtherHardware:
    """That the times on `device` are not known: it is other hardware than `measured_on`, and their
    rates do not tell; `launches`: nor would they where work is launched."""

    device: str
    measured_on: str
    launches: bool = False

    @property
    def note(self) -> Note:
        """`PlacementNote.OTHER_HARDWARE`, or `LAUNCHES_ELSEWHERE`."""
        code = PlacementNote.OTHER_HARDWARE
        if self.launches:
            code = PlacementNote.LAUNCHES_ELSEWHERE
        return Note.of(code, device=self.device, measured_on=self.measured_on)

    @property
    def error(self) -> str:
        """The end of an error's message."""
        if self.launches:
            return (
                f"{self.device} is other hardware than {self.measured_on}, and how fast a host "
                "launches there is not known; record a run with that device"
            )
        return (
            f"{self.device} is other hardware than {self.measured_on}, and their rates do not tell "
            f"the time there; {_CAPTURE}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class TargetDevice:
    """A device of a placement.

    `memory_bytes` is None where it has no limit that is known. `factors` are its time / the
    measured time by submodule, of those that can run there; `why_not` tells of the others. `like`
    is equal for devices that are the same to a placement.
    """

    name: str
    memory_bytes: int | None
    factors: Mapping[str, float]
    why_not: OtherHardware | None = None
    notes: tuple[Note, ...] = ()
    like: str = ""


def equal_hardware(target: TargetDevice, present: Mapping[str, str]) -> TargetDevice:
    """`target` without the submodules, placed as `present`, whose time there goes by rates."""
    kept = {name: factor for name, factor in target.factors.items() if factor == 1.0}
    if len(kept) == len(target.factors):
        return target
    moved = next(name for name in target.factors if name not in kept)
    why_not = OtherHardware(target.name, present[moved], launches=True)
    return replace(target, factors=kept, why_not=why_not)


def placement_of(workload: Workload) -> dict[str, str]:
    """Submodule to the device on which it was measured.

    Raises InputError where one was measured on several.
    """
    found: dict[str, str] = {}
    for task in (*workload.encode, *workload.step, *workload.decode):
        if task.submodule is None:
            continue
        device = found.setdefault(task.submodule, task.device)
        if device != task.device:
            raise InputError(
                f"{task.submodule} ran on {device} and on {task.device}; "
                "a placement needs a run in which each submodule stays on one device"
            )
    return found


def placed(
    workload: Workload, placement: Mapping[str, str], targets: Sequence[TargetDevice]
) -> Workload:
    """The workload with the submodules of `placement` on other devices; the rest stays.

    Raises InputError for a submodule that the workload lacks, a device that is no target, and a
    submodule whose time there is not known.
    """
    present = placement_of(workload)
    by_name = {target.name: target for target in targets}
    for submodule, device in placement.items():
        if submodule not in present:
            raise InputError(
                f"{submodule!r} is not a submodule of this run; it has {', '.join(present)}"
            )
        if device == present[submodule]:
            continue
        if device not in by_name:
            known = ", ".join(sorted({*by_name, *present.values()}))
            raise InputError(f"{device!r} is not among the devices to place on: {known}")
        if submodule not in by_name[device].factors:
            why_not = by_name[device].why_not
            reason = f": {why_not.error}" if why_not else ""
            raise InputError(f"{submodule} cannot be placed on {device}{reason}")

    def moved(task: Task) -> Task:
        if task.submodule is None or task.submodule not in placement:
            return task
        device = placement[task.submodule]
        if device == task.device:
            return task
        factor = by_name[device].factors[task.submodule]
        times = (task.first_ns, task.steady_ns)
        if factor != 1.0:
            times = tuple(np.rint(ns * factor).astype(np.int64) for ns in times)
        return replace(task, device=device, first_ns=times[0], steady_ns=times[1])

    return replace(
        workload,
        encode=tuple(map(moved, workload.encode)),
        step=tuple(map(moved, workload.step)),
        decode=tuple(map(moved, workload.decode)),
    )


def target_devices(
    names: Sequence[str],
    workload: Workload,
    devices: Mapping[str, Device],
    *,
    memory: Mapping[str, int] | None = None,
    profiles: Mapping[str, DeviceProfile] | None = None,
    roofline: pl.DataFrame | None = None,
) -> list[TargetDevice]:
    """What is known of the devices `names`, from the run's own (`RunInfo.devices`).

    `memory` are bytes by device, over what the run knows; `profiles` the devices' rates and
    `roofline` the run's operators, by which times on other hardware go. A device that is not in
    the run is taken to be like the first of its kind, which a note says. Raises InputError for one
    whose kind is not in the run.
    """
    present = placement_of(workload)
    asked = memory or {}
    found = []
    for name in dict.fromkeys(names):
        stand_in, notes = _stand_in(name, devices, present)
        known = devices.get(stand_in, _NOTHING).memory_bytes or None
        limit = asked.get(name, known)
        factors, why_not = _factors(stand_in, name, present, devices, profiles or {}, roofline)
        like = repr((_hardware(stand_in, devices), limit, sorted(factors.items())))
        found.append(TargetDevice(name, limit, factors, why_not, notes, like))
    return found


def _stand_in(
    name: str, devices: Mapping[str, Device], present: Mapping[str, str]
) -> tuple[str, tuple[Note, ...]]:
    """The device of the run that tells what this one is, and what to say of that."""
    known = list(dict.fromkeys((*devices, *present.values())))
    if name in known:
        return name, ()
    kind = device_kind(name)
    like = next((other for other in known if device_kind(other) == kind), None)
    if like is None:
        raise InputError(f"nothing is known of {name}, only of {', '.join(known)}: {_CAPTURE}")
    of_kind = PlacementNote.LIKE_OTHER_CPU if kind == "cpu" else PlacementNote.LIKE_OTHER_DEVICE
    return like, (Note.of(of_kind, device=name, other=like),)


def _hardware(device: str, devices: Mapping[str, Device]) -> tuple[str, str, int | None]:
    """Kind, name of the hardware and number of cores: equal for devices that are equally fast."""
    known = devices.get(device, _NOTHING)
    return device_kind(device), known.hardware, len(known.cores) or None


def _factors(
    stand_in: str,
    name: str,
    present: Mapping[str, str],
    devices: Mapping[str, Device],
    profiles: Mapping[str, DeviceProfile],
    roofline: pl.DataFrame | None,
) -> tuple[dict[str, float], OtherHardware | None]:
    """Time on the device / time measured by submodule, and why others are missing."""
    found: dict[str, float] = {}
    why_not = None
    for submodule, device in present.items():
        if _hardware(device, devices) == _hardware(stand_in, devices):
            found[submodule] = 1.0
            continue
        factor = None
        base, target = profiles.get(device), profiles.get(stand_in)
        if base is not None and target is not None and roofline is not None:
            operators = roofline.filter(
                (pl.col("submodule") == submodule) & (pl.col("device") == device)
            )
            factor = _relative_time(operators, base, target)
        if factor is None:
            why_not = OtherHardware(name, device)
        else:
            found[submodule] = factor
    return found, why_not


def _relative_time(
    operators: pl.DataFrame, base: DeviceProfile, target: DeviceProfile
) -> float | None:
    """Time of operators on `target` / on `base`, None where a rate that decides is not known."""
    ratios = {
        Bound.COMPUTE.value: _peak_ratio(base, target),
        Bound.MEMORY.value: _ratio(base.memory_bandwidth, target.memory_bandwidth),
        Bound.LAUNCH.value: _ratio(target.launch_ns, base.launch_ns),
        Bound.HOST.value: 1.0,
    }
    total = weighted = 0.0
    for bound, busy in operators.select("bound", "total_ns").iter_rows():
        if bound is None:
            continue  # scaled as the rest
        ratio = ratios[bound]
        if ratio is None:
            return None
        total += busy
        weighted += busy * ratio
    return weighted / total if total else None


def _peak_ratio(base: DeviceProfile, target: DeviceProfile) -> float | None:
    """The least favourable ratio over the types that both multiply."""
    both = sorted(set(base.peak_flops) & set(target.peak_flops))
    return max((base.peak_flops[t] / target.peak_flops[t] for t in both), default=None)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None
