"""The best placement of submodules on devices: the one with the highest throughput.

Where there are few assignments (`EXHAUSTIVE`) all are considered, else moves of one submodule at a
time from several starts. A request cannot take less than the busiest device needs for it, nor than
its critical path by the concurrency: by this bound assignments are ordered, and left out when they
cannot be better than one found. The others are simulated with mean times.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from profiler.analysis.prediction.codes import PlacementNote
from profiler.analysis.prediction.memory_limits import fits, unknown_memory
from profiler.analysis.prediction.request_graph import (
    DEFAULT_ORDER,
    Order,
    request_graph,
)
from profiler.analysis.prediction.simulation import (
    SEED,
    Simulation,
    mean_durations,
    run_closed_loop,
    simulate,
)
from profiler.analysis.prediction.targets import TargetDevice, placed, placement_of
from profiler.analysis.prediction.workload import HOST, Workload
from profiler.errors import InputError
from profiler.text import Note

__all__ = ["EXHAUSTIVE", "BestPlacement", "best_placement"]

EXHAUSTIVE = 4096  # assignments
_EVENTS = 400_000  # of all simulations, about
_FEWEST = 8  # simulations
_STARTS = 6
_BETTER = 0.999  # of the time for a request: less than this is better
_AS_GOOD = 1.01
_WARMUP_ROUNDS = 4  # of `concurrency` requests
_FEWEST_ROUNDS, _ROUNDS = 3, 12

_Assignment = tuple[str, ...]  # device by submodule, in the order of `placement_of`


@dataclass(frozen=True, slots=True, eq=False)
class BestPlacement:
    """The best placement found, submodule to device, and what it came to.

    `possible` counts all assignments, `considered` those whose bound was looked at, `simulated`
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
    seed: int = SEED,
) -> BestPlacement:
    """Search the placement on `targets` with the highest throughput at this concurrency.

    `workload` is as it was measured, which the targets' factors are relative to; `start` is where
    its submodules are now, None: there. Of those that are equal within 1 %, one that moves the
    fewest submodules from there is taken. Raises InputError where no placement fits into the
    devices' memory.
    """
    if not targets:
        raise InputError("no devices to place on; name at least one")
    search = _Search(workload, targets, concurrency, order, start or {})
    possible = search.possible
    if possible == 0:
        raise InputError(f"{search.nowhere} can run on none of the devices: {search.why_nowhere}")
    if possible <= EXHAUSTIVE:
        search.all()
    else:
        search.climb(random.Random(seed))
    search.settle()
    if search.best is None:
        raise InputError(
            f"no placement on {', '.join(t.name for t in targets)} found that fits into memory; "
            "name more devices, or more memory"
        )
    found = search.mapping(search.best)
    return BestPlacement(
        placement=found,
        simulation=simulate(placed(workload, found, targets), concurrency, order, seed=seed),
        possible=possible,
        considered=len(search.bounds),
        simulated=search.simulated,
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
    cut: bool = False  # whether something was left out that may be better

    def __post_init__(self) -> None:
        self._present = placement_of(self.workload)
        names = {target.name for target in self.targets}
        self._choices = [
            [t.name for t in self.targets if submodule in t.factors] for submodule in self._present
        ]
        self._measured = tuple(self._present.values())
        self._now = tuple({**self._present, **self.start}.values())
        self._stays = all(device in names for device in self._now)
        self._by_name = {target.name: target for target in self.targets}
        self._graph = request_graph(self.workload, self.order)
        self._means = mean_durations(self._graph)
        number = {submodule: i for i, submodule in enumerate(self._present)}
        # By node the number of its submodule, -1 for host work.
        first = [work[0][0].submodule for work in self._graph.work]
        self._part = [-1 if submodule is None else number[submodule] for submodule in first]
        self._demand = [0.0] * (len(number) + 1)  # mean ns in a request, of host work at the end
        for part, mean in zip(self._part, self._means, strict=True):
            self._demand[part] += mean
        affordable = _EVENTS // (self.concurrency * len(self._part))  # rounds of all simulations
        rounds = affordable // _FEWEST - _WARMUP_ROUNDS - 1
        self._rounds = min(max(rounds, _FEWEST_ROUNDS), _ROUNDS)
        self._most = max(affordable // (_WARMUP_ROUNDS + self._rounds + 1), _FEWEST)
        self._paths: dict[tuple[float, ...], float] = {}  # critical path by factors

    @property
    def possible(self) -> int:
        count = 1
        for choices in self._choices:
            count *= len(choices)
        return count

    @property
    def nowhere(self) -> str:
        pairs = zip(self._present, self._choices, strict=True)
        return ", ".join(submodule for submodule, choices in pairs if not choices)

    @property
    def why_nowhere(self) -> str:
        return next((target.why_not.error for target in self.targets if target.why_not), "")

    @property
    def simulated(self) -> int:
        return len(self.periods)

    def notes(self) -> tuple[Note, ...]:
        found = [note for target in self.targets for note in target.notes]
        found += [target.why_not.note for target in self.targets if target.why_not]
        found += unknown_memory(self.workload, self._present, self.targets)
        if self.cut:
            found.append(Note.of(PlacementNote.SEARCH_CUT, simulations=self.simulated))
        return tuple(dict.fromkeys(found))

    def mapping(self, assignment: _Assignment) -> dict[str, str]:
        return dict(zip(self._present, assignment, strict=True))

    def all(self) -> None:
        """Every assignment, the most promising first, those that move least first among equals."""
        if self._stays:
            self.consider(self._now)
        candidates = [a for a in itertools.product(*self._choices) if self.bound(a) is not None]
        candidates.sort(key=lambda a: (self.bounds[a], self._moves(a)))
        for assignment in candidates:
            if self.bounds[assignment] >= self.best_period * _BETTER:
                return
            self.consider(assignment)

    def climb(self, generator: random.Random) -> None:
        """Moves of one submodule from several starts, while one is better."""
        starts = [self._now] if self._stays else []
        starts.append(self._balanced())
        while len(starts) < _STARTS:
            starts.append(tuple(generator.choice(choices) for choices in self._choices))
        for start in starts:
            current, period = start, self.consider(start)
            while True:
                steps = [a for a in self._neighbours(current) if self.bound(a) is not None]
                steps.sort(key=lambda a: (self.bounds[a], self._moves(a)))
                better = None
                for assignment in steps:
                    if self.bounds[assignment] >= period * _BETTER:
                        break
                    reached = self.consider(assignment)
                    if reached < period * _BETTER:
                        better = assignment, reached
                        break
                if better is None:
                    break
                current, period = better

    def settle(self) -> None:
        """Of the assignments that are about as good as the best, take one that moves fewest."""
        if self.best is None:
            return
        most, moves = self.best_period * _AS_GOOD, self._moves(self.best)
        near = [a for a, bound in self.bounds.items() if bound <= most and self._moves(a) < moves]
        for assignment in sorted(near, key=lambda a: (self._moves(a), self.bounds[a])):
            if len(self.periods) < self._most and self.consider(assignment) <= most:
                self.best = assignment
                return

    def bound(self, assignment: _Assignment) -> float | None:
        """The least time for a request, None where it does not fit into memory."""
        if assignment not in self.bounds:
            if not fits(self.workload, self.mapping(assignment), self.targets):
                return None
            self.bounds[assignment] = self._shortest_period(assignment)
        return self.bounds[assignment]

    def consider(self, assignment: _Assignment) -> float:
        """The time for a request of an assignment; the best one is kept."""
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
        """What the busiest device, the host thread and the critical path allow."""
        factors = self._factors(assignment)
        busy = dict.fromkeys(assignment, 0.0)
        for device, demand, factor in zip(assignment, self._demand, factors, strict=False):
            busy[device] += demand * factor
        if factors not in self._paths:
            self._paths[factors] = self._graph.critical_path(self._durations(factors))
        return max(*busy.values(), self._demand[-1], self._paths[factors] / self.concurrency)

    def _period(self, assignment: _Assignment) -> float:
        """The simulated time between completions, with mean times."""
        devices = list(dict.fromkeys(assignment))
        number = [1 + devices.index(device) for device in assignment]
        graph = replace(
            self._graph,
            resources=(HOST, *devices),
            resource=tuple(0 if part < 0 else number[part] for part in self._part),
        )
        durations = self._durations(self._factors(assignment))
        warmup = _WARMUP_ROUNDS * self.concurrency
        total = warmup + (self._rounds + 1) * self.concurrency
        done = run_closed_loop(graph, [durations] * total, self.concurrency, warmup, self.order)
        return 1e9 / done.throughput

    def _factors(self, assignment: _Assignment) -> tuple[float, ...]:
        """Time / measured time by submodule."""
        return tuple(
            1.0 if device == measured else self._by_name[device].factors[submodule]
            for submodule, measured, device in zip(
                self._present, self._measured, assignment, strict=True
            )
        )

    def _durations(self, factors: tuple[float, ...]) -> list[float]:
        pairs = zip(self._part, self._means, strict=True)
        return [mean if part < 0 else mean * factors[part] for part, mean in pairs]

    def _shape(self, assignment: _Assignment) -> tuple[object, ...]:
        """Equal for assignments that differ by equal devices alone."""
        groups: dict[str, list[int]] = {}
        for submodule, device in enumerate(assignment):
            groups.setdefault(device, []).append(submodule)
        return tuple(sorted((self._by_name[d].like, tuple(group)) for d, group in groups.items()))

    def _moves(self, assignment: _Assignment) -> int:
        return sum(a != b for a, b in zip(assignment, self._now, strict=True))

    def _neighbours(self, assignment: _Assignment) -> list[_Assignment]:
        return [
            (*assignment[:i], device, *assignment[i + 1 :])
            for i, choices in enumerate(self._choices)
            for device in choices
            if device != assignment[i]
        ]

    def _balanced(self) -> _Assignment:
        """The longest submodule first, each on the device that is done with it first."""
        busy = dict.fromkeys(self._by_name, 0.0)
        chosen = [""] * len(self._choices)
        for part in sorted(range(len(chosen)), key=lambda i: -self._demand[i]):
            submodule = list(self._present)[part]
            spent = {
                device: busy[device] + self._demand[part] * self._by_name[device].factors[submodule]
                for device in self._choices[part]
            }
            chosen[part] = min(spent, key=lambda device: spent[device])
            busy[chosen[part]] = spent[chosen[part]]
        return tuple(chosen)
