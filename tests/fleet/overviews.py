"""A small data set whose truth is known, for the page of all runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from profiler.fleet import LocalStorage
from tests.fleet.histories import drift, flat, step
from tests.fleet.simulated import addition, filled

RUNS = 40
"""Of each workload."""
CHANGED = 25
"""The first run of the workload `sd3.5, steps=28` that is 8 % slower."""


def three_workloads(folder: Path, **columns: object) -> Path:
    """Three workloads of 40 runs that take turns: `sd3.5` of 28 steps changes, of 50 steps it
    drifts and takes ten times as long, `flux` is steady. Beside them a run of bad quality, and one
    whose cache nobody recorded. Run n of the first is `run{3 n}`. `columns` are of all runs."""
    changes = step(np.random.default_rng(1), RUNS, 0.01, CHANGED, 0.08)
    drifts = 10 * drift(np.random.default_rng(2), RUNS, 0.01, 0.004)
    steady = 3 * flat(np.random.default_rng(3), RUNS, 0.01)
    workloads = ((changes, {}), (drifts, {"steps": 50}), (steady, {"model": "flux"}))
    runs = [
        addition(3 * n + turn, {"elapsed": float(values[n])}, **{**own, **columns})
        for n in range(RUNS)
        for turn, (values, own) in enumerate(workloads)
    ]
    bad = {"quality": "drops,residual", "drops": 3, "residual": 0.05}
    runs.append(addition(500, {"elapsed": 9e9}, **{**bad, **columns}))
    runs.append(addition(501, {"elapsed": 9e7}, **{"cache": None, **columns}))
    filled(LocalStorage(folder), runs)
    return folder
