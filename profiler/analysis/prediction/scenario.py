"""What shall be different from the run: the question of a prediction, checked against the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from profiler.analysis.prediction.image_sizes import ImageSize
from profiler.analysis.prediction.precision import precision
from profiler.analysis.prediction.request_graph import ORDERS, Order
from profiler.analysis.prediction.workload import Workload
from profiler.errors import InputError

__all__ = [
    "GUIDED",
    "MOST_BATCH",
    "MOST_CONCURRENT",
    "MOST_STEPS",
    "Scenario",
    "check",
    "parse_places",
]

MOST_STEPS = 10_000
MOST_CONCURRENT = 1_000
MOST_BATCH = 1_000
GUIDED = ("uncond", "negative_prompt", "skip_layers", "batched")  # branches that guidance adds


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is different; as it was where a field has its default.

    `guidance` False is without classifier-free and skip-layer guidance. `drop` are submodules that
    are not called, `place` is where submodules go, `precision` a floating-point type by its full
    name. `concurrency` is the number of requests in flight, `order` how their tasks wait for one
    another, `devices` what the best placement is searched on (none: the run's), `memory` its bytes
    by device, "" for all that are not named. `cuda_graph` launches each call of a
    submodule at once. `untraced_ns` is what the request takes without the profiler as it is, None:
    not known, and then the host is as slow as it was recorded. `batch` is how many times as many
    images or videos a request makes, `size` how large they are.
    """

    steps: int | None = None
    guidance: bool = True
    drop: tuple[str, ...] = ()
    place: Mapping[str, str] = field(default_factory=dict)
    precision: str | None = None
    concurrency: int | None = None
    order: Order | None = None
    devices: tuple[str, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict)
    cuda_graph: bool = False
    untraced_ns: int | None = None
    batch: int | None = None
    size: ImageSize | None = None

    @property
    def changes_calls(self) -> bool:
        """Whether a request calls something else, or takes another time for it."""
        changed = self.steps is not None or self.precision is not None or not self.guidance
        larger = self.batch is not None or self.size is not None
        others = self.untraced_ns is not None or larger
        return changed or bool(self.drop) or self.cuda_graph or others

    @property
    def simulates(self) -> bool:
        """Whether requests on devices are to be simulated."""
        return bool(
            self.place or self.concurrency or self.devices or self.memory or self.order is not None
        )


def parse_places(texts: Iterable[str]) -> dict[str, str]:
    """`text_encoder_3=cpu:1`, several with commas. Raises InputError for what is not that."""
    found: dict[str, str] = {}
    for text in texts:
        for part in text.split(","):
            submodule, equals, device = (word.strip() for word in part.partition("="))
            if not (submodule and equals and device):
                raise InputError(
                    f"--place {part.strip()!r} is no placement: write SUBMODULE=DEVICE, such as "
                    "text_encoder_3=cpu:1"
                )
            if submodule in found:
                raise InputError(f"--place names {submodule} twice: give it once")
            found[submodule] = device
    return found


def check(scenario: Scenario, workload: Workload) -> None:
    """Raise InputError where the workload cannot answer the scenario."""
    if scenario.steps is not None and not 0 < scenario.steps <= MOST_STEPS:
        raise InputError(
            f"--steps {scenario.steps} is no number of steps: give one from 1 to {MOST_STEPS:,}"
        )
    if scenario.concurrency is not None and not 0 < scenario.concurrency <= MOST_CONCURRENT:
        raise InputError(
            f"--concurrency {scenario.concurrency} is no number of requests: give one from 1 to "
            f"{MOST_CONCURRENT:,}"
        )
    if scenario.batch is not None and not 0 < scenario.batch <= MOST_BATCH:
        raise InputError(
            f"--batch {scenario.batch} is no number of times as many: give one from 1 to "
            f"{MOST_BATCH:,}"
        )
    if scenario.order is not None and scenario.order not in ORDERS:
        raise InputError(f"--order {scenario.order!r} is no order: give {' or '.join(ORDERS)}")
    if scenario.precision is not None:
        precision(scenario.precision)
    _check_steps(scenario, workload)
    _check_submodules(scenario, workload)
    branches = {task.branch for task in workload.tasks}
    if not scenario.guidance and not branches & {*GUIDED}:
        raise InputError(
            "the run is without guidance: it has no call for a negative prompt and no batched one, "
            "so leave out --guidance off"
        )


def _check_steps(scenario: Scenario, workload: Workload) -> None:
    steady = min((task.steady_ns.shape[1] for task in workload.step), default=0)
    if (scenario.steps or 1) > 1 and not steady and scenario.steps != workload.steps:
        raise InputError(
            "the run has one step, which pays for what happens once, so more cannot be predicted: "
            "record a run of at least two"
        )


def _check_submodules(scenario: Scenario, workload: Workload) -> None:
    known = ", ".join(workload.submodules)
    for option, names in (("--drop", scenario.drop), ("--place", scenario.place)):
        for name in names:
            if name not in workload.submodules:
                raise InputError(f"{option} {name!r} is no submodule that the run called: {known}")
    both = [name for name in scenario.place if name in scenario.drop]
    if both:
        raise InputError(f"--place and --drop both name {both[0]}: give one of them")
    if {*scenario.drop} >= {*workload.submodules}:
        raise InputError(f"--drop leaves nothing to run: keep one of {known}")
