"""A fleet of 500 runs with three planted regressions: the truth that finding them is held against.

Noise of 1 to 3 %; one metric takes one of two times, one drifts, one has noise alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from profiler.fleet.add import Addition
from profiler.tools.metrics import Measure
from tests.fleet.histories import drift, flat, two_modes
from tests.fleet.simulated import addition, key

__all__ = ["PLANTED", "RUNS", "additions", "planted_values"]

RUNS = 500
PLANTED: Mapping[str, tuple[tuple[int, float], ...]] = {
    "denoise.step": ((180, 0.05),),
    "elapsed": ((260, 0.08),),
    "denoise.first_step": ((400, 0.2),),
    "decode.elapsed": (),
    "encode.elapsed": (),
    "denoise.idle": (),
}
"""By metric: the first slower run of each regression, and by how much it is slower, a ratio."""


def planted_values(seed: int = 2026) -> dict[str, np.ndarray]:
    """The values of each metric, ns, float64 [500] each, in the order of time."""
    generator = np.random.default_rng(seed)
    made = {
        "denoise.step": flat(generator, RUNS, 0.01),
        "elapsed": flat(generator, RUNS, 0.02),
        "denoise.first_step": flat(generator, RUNS, 0.03),
        "decode.elapsed": flat(generator, RUNS, 0.03),
        "encode.elapsed": two_modes(generator, RUNS, 0.01),
        "denoise.idle": drift(generator, RUNS, 0.02, 0.0005),
    }
    for name, regressions in PLANTED.items():
        for at, by in regressions:
            made[name][at:] *= 1 + by
    return made


def additions(values: Mapping[str, np.ndarray]) -> Iterator[Addition]:
    """The runs, one a day, each at a commit of its own."""
    for number in range(RUNS):
        one = addition(number, commit=f"{key(number)}{number:08x}")
        rows = tuple(_measure(name, float(of[number])) for name, of in values.items())
        yield Addition(replace(one.summary, metrics=rows), one.place, labels=one.labels)


def _measure(name: str, value: float) -> Measure:
    stage, _, metric = name.rpartition(".")
    return Measure(stage or None, None, None, None, None, None, metric, value, None, None, "ns")
