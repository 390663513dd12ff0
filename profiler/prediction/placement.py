"""The best placement of submodules on devices: the one with the highest throughput.

If there are at most `EXHAUSTIVE` assignments, all are considered. Otherwise submodules are
moved one at a time from several starts. Assignments are ordered by a bound: the busiest
device's time, or the critical path divided by the concurrency. Those that cannot be better than
one found are left out, the others simulated with mean times.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.device_profiles import DeviceProfile
from profiler.analysis.result import Analysis
from profiler.analysis.roofline import Bound
from profiler.errors import InputError
from profiler.prediction.pieces import HOST
from profiler.prediction.requests import SEED, Simulation, mean_durations, run_closed_loop, simulate
from profiler.prediction.scenario import PlacementNote, Scenario
from profiler.prediction.workload import DEFAULT_ORDER, Order, Task, Workload, request_graph
from profiler.run.launches import launches_of
from profiler.run.run import Run
from profiler.text import Note
from profiler.trace.events import device_kind
from profiler.trace.manifest_fields import Device

# --- Devices that submodules may be placed on, and what a submodule's time would be there.
#
# A device of the same hardware takes the same time. On other hardware each operator's time is
# scaled by the rate that bounds it (`roofline.bounds`) on both devices: peak FLOP/s, bandwidth, or
# the time between launches; host-bound time stays. Without profiles of both nothing is predicted.


_CAPTURE = "record a run with that device, or measure both with `profile-sd3 benchmark-device`"
_NOTHING = Device()  # without known properties


class OtherHardware(Struct, frozen=True):
    """Why times on `device` are not known: it is other hardware than `measured_on`, and rates to
    scale by are missing, or, with `launches`, would not scale launched work."""

    device: str
    measured_on: str
    launches: bool = False

    @property
    def note(self) -> Note:
        """`PlacementNote.OTHER_HARDWARE`, or `LAUNCHES_ELSEWHERE`."""
        codes = (PlacementNote.OTHER_HARDWARE, PlacementNote.LAUNCHES_ELSEWHERE)
        return Note.of(codes[self.launches], device=self.device, measured_on=self.measured_on)

    @property
    def error(self) -> str:
        """The end of an error's message."""
        why = f"their rates do not tell the time there; {_CAPTURE}"
        if self.launches:
            why = "how fast a host launches there is not known; record a run with that device"
        return f"{self.device} is other hardware than {self.measured_on}, and {why}"


class TargetDevice(Struct, frozen=True, eq=False):
    """A device that submodules may be placed on.

    `memory_bytes` is None if no limit is known. `factors` are its time / the measured time by
    submodule, for those that can run there; `why_not` says why others cannot. `like` is equal for
    devices that are interchangeable in a placement.
    """

    name: str
    memory_bytes: int | None
    factors: Mapping[str, float]
    why_not: OtherHardware | None = None
    notes: tuple[Note, ...] = ()
    like: str = ""


def equal_hardware(target: TargetDevice, present: Mapping[str, str]) -> TargetDevice:
    """Return `target` without the submodules whose time there is scaled by rates; `present` is
    where they are now."""
    kept = {name: factor for name, factor in target.factors.items() if factor == 1.0}
    if len(kept) == len(target.factors):
        return target
    moved = next(name for name in target.factors if name not in kept)
    why_not = OtherHardware(target.name, present[moved], launches=True)
    return replace(target, factors=kept, why_not=why_not)


def placement_of(workload: Workload) -> dict[str, str]:
    """Submodule to the device on which it was measured.

    Raises InputError if one was measured on several.
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
    """Return the workload with the submodules of `placement` moved to other devices.

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
        device = placement.get(task.submodule or "", task.device)
        if task.submodule is None or device == task.device:
            return task
        factor = by_name[device].factors[task.submodule]
        first, steady = (
            ns if factor == 1.0 else np.rint(ns * factor).astype(np.int64)
            for ns in (task.first_ns, task.steady_ns)
        )
        return replace(task, device=device, first_ns=first, steady_ns=steady)

    parts = ("encode", "step", "decode")
    return replace(workload, **{part: tuple(map(moved, getattr(workload, part))) for part in parts})


def target_devices(
    names: Sequence[str],
    workload: Workload,
    devices: Mapping[str, Device],
    *,
    memory: Mapping[str, int] | None = None,
    profiles: Mapping[str, DeviceProfile] | None = None,
    roofline: pl.DataFrame | None = None,
) -> list[TargetDevice]:
    """Describe the devices `names` by the run's own devices (`RunInfo.devices`).

    `memory` are bytes by device and override the run's; `profiles` (the devices' rates) and
    `roofline` (the run's operators) scale times to other hardware. A device that is not in the run
    is assumed to be like the first of its kind, with a note. Raises InputError if its kind is not
    in the run.
    """
    present, found = placement_of(workload), []
    for name in dict.fromkeys(names):
        stand_in, notes = _stand_in(name, devices, present)
        known = devices.get(stand_in, _NOTHING).memory_bytes or None
        limit = (memory or {}).get(name, known)
        factors, why_not = _factors(stand_in, name, present, devices, profiles or {}, roofline)
        like = repr((_hardware(stand_in, devices), limit, sorted(factors.items())))
        found.append(TargetDevice(name, limit, factors, why_not, notes, like))
    return found


def _stand_in(
    name: str, devices: Mapping[str, Device], present: Mapping[str, str]
) -> tuple[str, tuple[Note, ...]]:
    """The run's device whose properties apply to `name`, and a note if it is another device."""
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
    """Return kind, hardware name and core count: equal for devices that are equally fast."""
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
    found, why_not = {}, None
    for submodule, device in present.items():
        factor, base, target = None, profiles.get(device), profiles.get(stand_in)
        if _hardware(device, devices) == _hardware(stand_in, devices):
            factor = 1.0
        elif base is not None and target is not None and roofline is not None:
            operators = roofline.filter(submodule=submodule, device=device)
            factor = _relative_time(operators, base, target)
        if factor is None:
            why_not = OtherHardware(name, device)
        else:
            found[submodule] = factor
    return found, why_not


def _relative_time(
    operators: pl.DataFrame, base: DeviceProfile, target: DeviceProfile
) -> float | None:
    """Time of operators on `target` / on `base`, None if a rate that decides is not known."""
    both = base.peak_flops.keys() & target.peak_flops.keys()
    peaks = (base.peak_flops[dtype] / target.peak_flops[dtype] for dtype in both)
    ratios = {
        Bound.COMPUTE.value: max(peaks, default=None),  # the least favourable
        Bound.MEMORY.value: _ratio(base.memory_bandwidth, target.memory_bandwidth),
        Bound.LAUNCH.value: (launch := _ratio(target.launch_ns, base.launch_ns)),
        Bound.OVERHEAD.value: launch,
        Bound.HOST.value: 1.0,
    }
    total = weighted = 0.0
    for bound, busy in operators.select("bound", "total_ns").iter_rows():
        if bound is None:
            continue  # unknown: scaled as the others
        ratio = ratios[bound]
        if ratio is None:
            return None
        total += busy
        weighted += busy * ratio
    return weighted / total if total else None


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


# --- Whether a placement fits into memory: weights on a device, and activations of what runs there.
# A device runs one call at a time, so that the activations of one submodule count, beside what the
# others retain meanwhile; the embeddings and latents of requests are small and left out.


_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


class DeviceMemory(Struct, frozen=True):
    """Memory that a placement needs on one device, in bytes.

    `activations` are the largest of one running submodule plus what the others retain; `unknown`
    names submodules whose weights are not known and count as 0.
    """

    device: str
    submodules: tuple[str, ...]
    weights: int
    activations: int
    unknown: tuple[str, ...]

    @property
    def needed(self) -> int:
        return self.weights + self.activations


class TooLarge(Struct, frozen=True):
    """A device whose memory (`memory` bytes) is too small for what is placed on it."""

    need: DeviceMemory
    memory: int

    @property
    def note(self) -> Note:
        """The note on it: `PlacementNote.TOO_LARGE`."""
        return Note.of(
            PlacementNote.TOO_LARGE,
            submodules=self.need.submodules,
            device=self.need.device,
            required_bytes=self.need.needed,
            weights_bytes=self.need.weights,
            activations_bytes=self.need.activations,
            memory_bytes=self.memory,
        )

    @property
    def error(self) -> str:
        """The start of an error message: `"cpu:0 has 1.0 GiB and would hold 2.0 GiB of vae"`."""
        names, need = ", ".join(self.need.submodules), _readable(self.need.needed)
        return f"{self.need.device} has {_readable(self.memory)} and would hold {need} of {names}"


def memory_by_device(workload: Workload, placement: Mapping[str, str]) -> dict[str, DeviceMemory]:
    """Compute the memory that each device needs for a complete placement (of every submodule)."""
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
    """The peak of memory beside weights while any one of the submodules runs."""
    kept = {name: workload.kept.get(name, 0) for name in names}
    rest = sum(kept.values())
    return max(rest - kept[n] + max(workload.activations.get(n, 0), kept[n]) for n in names)


def too_large(
    workload: Workload, placement: Mapping[str, str], targets: Sequence[TargetDevice]
) -> TooLarge | None:
    """The first device on which a placement does not fit; None if it fits, as far as is known."""
    limits = {target.name: target.memory_bytes for target in targets}
    for device, need in memory_by_device(workload, placement).items():
        limit = limits.get(device)
        if limit is not None and need.needed > limit:
            return TooLarge(need, limit)
    return None


def unknown_memory(
    workload: Workload, submodules: Iterable[str], targets: Sequence[TargetDevice]
) -> Iterator[Note]:
    """Note the submodules whose memory is not known and was not counted."""
    if all(target.memory_bytes is None for target in targets):
        return
    names = list(submodules)
    for code, known in (
        (PlacementNote.WEIGHTS_UNKNOWN, workload.weights),
        (PlacementNote.ACTIVATIONS_UNKNOWN, workload.activations),
    ):
        missing = tuple(name for name in names if name not in known)
        if missing:
            yield Note.of(code, submodules=missing)


def _readable(size: int) -> str:
    unit = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size / 1024**unit:.1f} {_UNITS[unit]}" if unit else f"{size} bytes"


# --- The best placement of submodules on devices: the one with the highest throughput.


EXHAUSTIVE = 4096  # assignments
_EVENTS = 400_000  # of all simulations, about
_FEWEST = 8  # simulations
_STARTS = 6
_BETTER = 0.999  # of the best time for a request: below counts as better
_AS_GOOD = 1.01
_WARMUP_ROUNDS = 4  # of `concurrency` requests
_FEWEST_ROUNDS, _ROUNDS = 3, 12

_Assignment = tuple[str, ...]  # device by submodule, in the order of `placement_of`


class BestPlacement(Struct, frozen=True, eq=False):
    """The best placement by submodule, and its simulation.

    `possible` counts all assignments, `considered` those whose bound was computed, `simulated`
    those that were simulated; `exhaustive` says that within the model none is more than 1 % better.
    """

    placement: Mapping[str, str]
    simulation: Simulation
    possible: int
    considered: int
    simulated: int
    exhaustive: bool
    notes: tuple[Note, ...]


def best_placement(
    workload: Workload,
    targets: Sequence[TargetDevice],
    concurrency: int = 1,
    order: Order = DEFAULT_ORDER,
    *,
    start: Mapping[str, str] | None = None,
) -> BestPlacement:
    """Search the placement on `targets` with the highest throughput at this concurrency.

    `workload` is as measured; the targets' factors are relative to it. `start` is where submodules
    are now, None for where they were measured. Of placements within 1 % of the best, one that moves
    the fewest submodules is taken. Raises InputError if no placement fits into the devices' memory.
    """
    if not targets:
        raise InputError("no devices to place on; name at least one")
    search = _Search(workload, targets, concurrency, order, start or {})
    possible = math.prod(map(len, search.choices.values()))
    if possible == 0:
        nowhere = ", ".join(name for name, devices in search.choices.items() if not devices)
        why = next((target.why_not.error for target in targets if target.why_not), "")
        raise InputError(f"{nowhere} can run on none of the devices: {why}")
    if possible <= EXHAUSTIVE:
        search.all()
    else:
        search.climb(random.Random(SEED))  # noqa: S311 - starts of a search, no secrets
    search.settle()
    if search.best is None:
        raise InputError(
            f"no placement on {', '.join(t.name for t in targets)} found that fits into memory; "
            "name more devices, or more memory"
        )
    found = search.mapping(search.best)
    return BestPlacement(
        placement=found,
        simulation=simulate(placed(workload, found, targets), concurrency, order),
        possible=possible,
        considered=len(search.bounds),
        simulated=len(search.periods),
        exhaustive=possible <= EXHAUSTIVE and not search.cut,
        notes=search.notes(),
    )


@dataclass(eq=False)
class _Search:
    workload: Workload
    targets: Sequence[TargetDevice]
    concurrency: int
    order: Order
    start: Mapping[str, str]
    best: _Assignment | None = None
    best_period: float = float("inf")
    bounds: dict[_Assignment, float] = field(default_factory=dict)
    periods: dict[tuple[object, ...], float] = field(default_factory=dict)
    cut: bool = False  # something that may be better was left out

    def __post_init__(self) -> None:
        self._present = placement_of(self.workload)
        self._by_name = {target.name: target for target in self.targets}
        self.choices = {
            submodule: [t.name for t in self.targets if submodule in t.factors]
            for submodule in self._present
        }
        self._now = tuple({**self._present, **self.start}.values())
        self._stays = all(device in self._by_name for device in self._now)
        self._graph = request_graph(self.workload, self.order)
        self._means = mean_durations(self._graph)
        number = {submodule: i for i, submodule in enumerate(self._present)}
        # By node the number of its submodule, -1 for host work.
        self._part = [number.get(work[0][0].submodule or "", -1) for work in self._graph.work]
        self._demand = [0.0] * (len(number) + 1)  # mean ns in a request, of host work at the end
        for part, mean in zip(self._part, self._means, strict=True):
            self._demand[part] += mean
        affordable = _EVENTS // (self.concurrency * len(self._part))  # rounds of all simulations
        rounds = affordable // _FEWEST - _WARMUP_ROUNDS - 1
        self._rounds = min(max(rounds, _FEWEST_ROUNDS), _ROUNDS)
        self._most = max(affordable // (_WARMUP_ROUNDS + self._rounds + 1), _FEWEST)
        self._paths: dict[tuple[float, ...], float] = {}  # critical path by factors

    def notes(self) -> tuple[Note, ...]:
        found = [note for target in self.targets for note in target.notes]
        found += [target.why_not.note for target in self.targets if target.why_not]
        found += unknown_memory(self.workload, self._present, self.targets)
        if self.cut:
            found.append(Note.of(PlacementNote.SEARCH_CUT, simulations=len(self.periods)))
        return tuple(dict.fromkeys(found))

    def mapping(self, assignment: _Assignment) -> dict[str, str]:
        return dict(zip(self._present, assignment, strict=True))

    def all(self) -> None:
        """Every assignment, the most promising first."""
        if self._stays:
            self.consider(self._now)
        for assignment in self._promising(itertools.product(*self.choices.values())):
            if self.bounds[assignment] >= self.best_period * _BETTER:
                return
            self.consider(assignment)

    def climb(self, generator: random.Random) -> None:
        """Improve several starts by moving one submodule at a time."""
        starts = [self._now] if self._stays else []
        starts.append(self._balanced())
        while len(starts) < _STARTS:
            starts.append(tuple(map(generator.choice, self.choices.values())))
        for start in starts:
            current: _Assignment | None = start
            period = self.consider(start)
            while current is not None:
                current, period = self._better(current, period)

    def _better(self, current: _Assignment, period: float) -> tuple[_Assignment | None, float]:
        """The first neighbour that takes less than `period` for a request, and its own; None if
        none does."""
        for assignment in self._promising(self._neighbours(current)):
            if self.bounds[assignment] >= period * _BETTER:
                break
            reached = self.consider(assignment)
            if reached < period * _BETTER:
                return assignment, reached
        return None, period

    def _promising(self, assignments: Iterable[_Assignment]) -> list[_Assignment]:
        """Those that fit, the most promising first, those that move least first among equals."""
        fitting = [a for a in assignments if self.bound(a) is not None]
        return sorted(fitting, key=lambda a: (self.bounds[a], self._moves(a)))

    def settle(self) -> None:
        """Replace the best assignment by one within 1 % that moves fewer submodules."""
        if self.best is None:
            return
        most, moves = self.best_period * _AS_GOOD, self._moves(self.best)
        near = [a for a, bound in self.bounds.items() if bound <= most and self._moves(a) < moves]
        for assignment in sorted(near, key=lambda a: (self._moves(a), self.bounds[a])):
            if len(self.periods) < self._most and self.consider(assignment) <= most:
                self.best = assignment
                return

    def bound(self, assignment: _Assignment) -> float | None:
        """The lower bound of the time per request, None if it does not fit into memory."""
        if assignment not in self.bounds:
            if too_large(self.workload, self.mapping(assignment), self.targets) is not None:
                return None
            self.bounds[assignment] = self._shortest_period(assignment)
        return self.bounds[assignment]

    def consider(self, assignment: _Assignment) -> float:
        """Simulate an assignment and return its time per request; the best one is kept."""
        if self.bound(assignment) is None:
            return float("inf")
        key = self._shape(assignment)
        if key not in self.periods:
            if len(self.periods) >= self._most:
                self.cut = True
                return float("inf")
            self.periods[key] = max(self._period(assignment), self.bounds[assignment])
        if self.periods[key] < self.best_period * _BETTER:
            self.best, self.best_period = assignment, self.periods[key]
        return self.periods[key]

    def _shortest_period(self, assignment: _Assignment) -> float:
        """The lower bound set by the busiest device, the host thread and the critical path."""
        factors = self._factors(assignment)
        busy = dict.fromkeys(assignment, 0.0)
        for device, demand, factor in zip(assignment, self._demand, factors, strict=False):
            busy[device] += demand * factor
        if factors not in self._paths:
            self._paths[factors] = self._graph.critical_path(self._durations(factors))
        return max(*busy.values(), self._demand[-1], self._paths[factors] / self.concurrency)

    def _period(self, assignment: _Assignment) -> float:
        """The simulated time between completions, with mean times."""
        devices = (HOST, *dict.fromkeys(assignment))
        needs = tuple(0 if part < 0 else devices.index(assignment[part]) for part in self._part)
        graph = replace(self._graph, resources=devices, resource=needs)
        durations = self._durations(self._factors(assignment))
        warmup = _WARMUP_ROUNDS * self.concurrency
        total = warmup + (self._rounds + 1) * self.concurrency
        done = run_closed_loop(graph, [durations] * total, self.concurrency, warmup, self.order)
        return 1e9 / done.throughput

    def _factors(self, assignment: _Assignment) -> tuple[float, ...]:
        """The factors on measured times, by submodule."""
        return tuple(
            1.0 if device == measured else self._by_name[device].factors[submodule]
            for (submodule, measured), device in zip(self._present.items(), assignment, strict=True)
        )

    def _durations(self, factors: tuple[float, ...]) -> list[float]:
        pairs = zip(self._part, self._means, strict=True)
        return [mean if part < 0 else mean * factors[part] for part, mean in pairs]

    def _shape(self, assignment: _Assignment) -> tuple[object, ...]:
        """A key that is equal for assignments that differ only by interchangeable devices."""
        groups: dict[str, list[int]] = {}
        for submodule, device in enumerate(assignment):
            groups.setdefault(device, []).append(submodule)
        return tuple(sorted((self._by_name[d].like, tuple(group)) for d, group in groups.items()))

    def _moves(self, assignment: _Assignment) -> int:
        return sum(a != b for a, b in zip(assignment, self._now, strict=True))

    def _neighbours(self, assignment: _Assignment) -> list[_Assignment]:
        return [
            (*assignment[:i], device, *assignment[i + 1 :])
            for i, choices in enumerate(self.choices.values())
            for device in choices
            if device != assignment[i]
        ]

    def _balanced(self) -> _Assignment:
        """Assign greedily: longest submodule first, each to the device that finishes it first."""
        busy = dict.fromkeys(self._by_name, 0.0)
        chosen: dict[str, str] = {}
        demands = sorted(zip(self.choices, self._demand, strict=False), key=lambda one: -one[1])
        for submodule, demand in demands:
            spent = {
                device: busy[device] + demand * self._by_name[device].factors[submodule]
                for device in self.choices[submodule]
            }
            device = chosen[submodule] = min(spent, key=spent.__getitem__)
            busy[device] = spent[device]
        return tuple(chosen[submodule] for submodule in self.choices)


# --- Requests on devices: placed submodules, what fits, and many requests at once.


class OnDevices(Struct, frozen=True, eq=False):
    """The placed workload and its simulation; if it does not fit into memory, `too_large` says why
    and there is no simulation."""

    placed: Workload
    simulation: Simulation | None = None
    best: BestPlacement | None = None
    too_large: Note | None = None
    notes: tuple[Note, ...] = ()

    @classmethod
    def of(cls, run: Run, analysis: Analysis, scenario: Scenario, workload: Workload) -> OnDevices:
        """Place and simulate `workload`; unchanged if the scenario needs no simulation."""
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
    now, memory = placement_of(workload), scenario.memory
    names = list(dict.fromkeys((*now.values(), *scenario.place.values(), *scenario.devices)))
    for device in memory:
        if device and device not in names:
            raise InputError(
                f"--device-memory names {device!r}, on which nothing runs: give one of "
                f"{', '.join(names)}, or name it with --devices or --place too"
            )
    sizes = {name: memory.get(name, memory.get("")) for name in names}
    known = {name: size for name, size in sizes.items() if size is not None}
    rates, rows = analysis.device_profiles, analysis.roofline
    devices = run.info.devices
    targets = target_devices(names, workload, devices, memory=known, profiles=rates, roofline=rows)
    if launches_of(run.commands, run.flows) is not None:  # no rate tells what launches cost
        return [equal_hardware(target, now) for target in targets]
    return targets


def _notes(
    workload: Workload, targets: list[TargetDevice], best: BestPlacement | None
) -> Iterator[Note]:
    yield Note.of(PlacementNote.NO_TRANSFER_TIME)
    yield Note.of(PlacementNote.NO_INTERFERENCE)
    used = {*placement_of(workload).values()}
    yield from (note for target in targets if target.name in used for note in target.notes)
    yield from unknown_memory(workload, workload.submodules, targets)
    yield from best.notes if best is not None else ()
