"""Requests on devices: where submodules are placed, what fits there, and many requests at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from profiler.analysis.prediction.codes import PlacementNote
from profiler.analysis.prediction.memory_limits import too_large, unknown_memory
from profiler.analysis.prediction.placement import BestPlacement, best_placement
from profiler.analysis.prediction.request_graph import DEFAULT_ORDER
from profiler.analysis.prediction.scenario import Scenario
from profiler.analysis.prediction.simulation import Simulation, simulate
from profiler.analysis.prediction.targets import (
    TargetDevice,
    equal_hardware,
    placed,
    placement_of,
    target_devices,
)
from profiler.analysis.prediction.workload import Workload
from profiler.analysis.result import Analysis
from profiler.errors import InputError
from profiler.run.device_timeline import launches_of
from profiler.run.run import Run
from profiler.text import Note

__all__ = ["OnDevices"]


@dataclass(frozen=True, slots=True, eq=False)
class OnDevices:
    """The workload as it is placed, and what came of it; `too_large` says why it does not fit, and
    then there is no simulation of it; None where it fits."""

    placed: Workload
    simulation: Simulation | None = None
    best: BestPlacement | None = None
    too_large: Note | None = None
    notes: tuple[Note, ...] = ()

    @classmethod
    def of(cls, run: Run, analysis: Analysis, scenario: Scenario, workload: Workload) -> OnDevices:
        """The workload as it was where the scenario is about one request there."""
        if not scenario.simulates:
            return cls(workload)
        targets = _targets(run, analysis, scenario, workload)
        there = placed(workload, scenario.place, targets)
        where = placement_of(there)
        reason = too_large(there, where, targets)
        concurrency, order = scenario.concurrency or 1, scenario.order or DEFAULT_ORDER
        best = None
        searched = [t for t in targets if not scenario.devices or t.name in scenario.devices]
        if scenario.devices or len(searched) > 1:
            best = best_placement(workload, searched, concurrency, order, start=where)
        elif reason:
            raise InputError(f"{reason.error}; name more devices with --devices, or more memory")
        return cls(
            placed=there,
            simulation=None if reason else simulate(there, concurrency, order),
            best=best,
            too_large=reason.note if reason else None,
            notes=tuple(_notes(there, targets, best)),
        )


def _targets(
    run: Run, analysis: Analysis, scenario: Scenario, workload: Workload
) -> list[TargetDevice]:
    """The devices of the run and of the scenario."""
    now = placement_of(workload)
    names = list(dict.fromkeys((*now.values(), *scenario.place.values(), *scenario.devices)))
    memory = scenario.memory
    _check_named(memory, names)
    sizes = {name: memory.get(name, memory.get("")) for name in names}
    targets = target_devices(
        names,
        workload,
        run.info.devices,
        memory={name: size for name, size in sizes.items() if size is not None},
        profiles=analysis.device_profiles,
        roofline=analysis.roofline,
    )
    if launches_of(run.commands, run.flows) is not None:  # no rate tells what launches cost
        return [equal_hardware(target, now) for target in targets]
    return targets


def _check_named(memory: Mapping[str, int], names: Sequence[str]) -> None:
    """Raise InputError for memory of a device on which nothing is or could be placed."""
    for device in memory:
        if device and device not in names:
            raise InputError(
                f"--device-memory names {device!r}, on which nothing runs: give one of "
                f"{', '.join(names)}, or name it with --devices or --place too"
            )


def _notes(
    workload: Workload, targets: list[TargetDevice], best: BestPlacement | None
) -> Iterator[Note]:
    yield Note.of(PlacementNote.NO_TRANSFER_TIME)
    yield Note.of(PlacementNote.NO_INTERFERENCE)
    used = {*placement_of(workload).values()}
    yield from (note for target in targets if target.name in used for note in target.notes)
    yield from unknown_memory(workload, workload.submodules, targets)
    yield from best.notes if best is not None else ()
