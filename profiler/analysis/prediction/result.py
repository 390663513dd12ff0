"""What a prediction comes to: small frozen values, the input of its reports. Times are in ns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler.analysis.prediction.changes import DeviceSpan
from profiler.analysis.prediction.placement import BestPlacement
from profiler.analysis.prediction.request import RequestTime
from profiler.analysis.prediction.scenario import Scenario
from profiler.analysis.prediction.simulation import Simulation
from profiler.text import Note

__all__ = ["Measured", "Part", "Prediction", "RecordedLatency"]


@dataclass(frozen=True, slots=True)
class Measured:
    """What the run says: the mean time of its `pipelines` (their numbers), `low` to `high`, with
    `steps` steps. `recorded_ns` is as it was recorded, `ns` without the cost of tracing where that
    is known (`corrected`)."""

    pipelines: tuple[int, ...]
    steps: int
    recorded_ns: float
    ns: float
    low_ns: float
    high_ns: float
    corrected: bool


@dataclass(frozen=True, slots=True)
class Part:
    """The time of a stage or submodule in a request, before and after; 0 where it is in none."""

    name: str
    before_ns: float
    after_ns: float


@dataclass(frozen=True, slots=True, eq=False)
class RecordedLatency:
    """What a server recorded: how many requests were `in_flight` in the mean, how many ended in a
    second, and how long each took, int64 [requests]."""

    in_flight: float
    throughput: float
    latency_ns: npt.NDArray[np.int64]

    def latency(self, percentile: float) -> int:
        """The latency in ns below which `percentile` % of the requests stay."""
        return round(float(np.percentile(self.latency_ns, percentile)))


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """The answer to `scenario` for one request of the run, and for many at once.

    `stages` and `submodules` (the host's time among them, `host`) add up to `measured.ns` before
    and to `request.ns` after. `simulation` is None where nothing about devices or requests at once
    was asked for, or where what is placed does not fit into memory (`too_large` says why, else
    None); `best` is None where there is one device and no set of them was given.
    `assumes` (`Assumption`, `PlacementNote`) is what it takes for granted, `unknown` (`Unknown`)
    what it does not know. Where launches were replayed `device` is the device's span, and
    `reasons` (`Reason`) say why the request takes what it takes. `recorded` is what requests of a
    server took, to hold the simulation against; such a prediction has no stages and submodules.
    """

    run_id: str
    scenario: Scenario
    measured: Measured
    request: RequestTime
    stages: tuple[Part, ...]
    submodules: tuple[Part, ...]
    simulation: Simulation | None
    best: BestPlacement | None
    too_large: Note | None
    assumes: tuple[Note, ...]
    unknown: tuple[Note, ...]
    device: DeviceSpan | None = None
    reasons: tuple[Note, ...] = ()
    recorded: RecordedLatency | None = None
