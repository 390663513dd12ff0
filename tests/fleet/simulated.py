"""Runs of a data set with known truth, without bundles: `addition(3, step_ns=5e6)`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from profiler.fleet import commit_batch, make_dataset
from profiler.fleet.add import Addition
from profiler.fleet.storage import Storage
from profiler.tools.metrics import SCHEMA_VERSION, Measure, Summary

EPOCH = 1_795_000_000_000_000_000
DAY = 86_400_000_000_000
IDENTITY = {
    "pipeline": "StableDiffusion3Pipeline",
    "model": "sd3.5",
    "weights": "transformer bfloat16",
    "adapters": "none",
    "steps": 28,
    "resolution": "1024×1024",
    "batch_size": 1,
    "frames": 0,
    "guidance": 7.0,
    "attention": "flash",
    "cache": "none",
    "compile": "none",
    "offload": "none",
    "hardware": "1 × NVIDIA H100",
    "software": "torch 2.13.0",
}


def key(number: int) -> str:
    """The key of run `number`."""
    return hashlib.sha256(str(number).encode()).hexdigest()[:32]


def addition(
    number: int,
    metrics: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    **columns: object,
) -> Addition:
    """Run `number`, begun on day `number`; `metrics` are `step` of `denoise` and `elapsed` of the
    run in ns, `columns` those of `runs` that are otherwise."""
    values = {"step": 5e6, "elapsed": 200e6} | dict(metrics or {})
    run = {
        "run": key(number),
        "run_id": f"run{number}",
        "time_ns": EPOCH + number * DAY,
        "time_from": "trace",
        "commit": f"{number:040x}",
        "producer": "capture",
        **IDENTITY,
        "python": "3.11.7",
        "system": "Linux",
        "cpu": "AMD EPYC",
        "cores": 2,
        "memory_bytes": 1 << 35,
        "versions": "{}",
        "settings": "{}",
        "pipelines": 1,
        "calls": 35,
        "commands": 44_000,
        "drops": 0,
        "drop_kinds": "",
        "residual": 0.0,
        "tracing_cost": 0.02,
        "quality": "",
        **columns,
    }
    stages = {"step": "denoise"}
    rows = tuple(
        Measure(stages.get(name), None, None, None, None, None, name, value, None, None, "ns")
        for name, value in values.items()
    )
    summary = Summary(schema_version=SCHEMA_VERSION, content="", run=run, metrics=rows)
    return Addition(summary, f"/bundles/run{number}", labels=labels or {})


def filled(storage: Storage, additions: Iterable[Addition], batch: int = 1000) -> Storage:
    """A data set with these runs, in batches of so many."""
    make_dataset(storage)
    rows = list(additions)
    for first in range(0, len(rows), batch):
        commit_batch(storage, rows[first : first + batch])
    return storage


def noisy(count: int, center: float, noise: float, seed: int) -> list[float]:
    """`count` values around `center` with a relative standard deviation of `noise`."""
    return list(np.random.default_rng(seed).normal(center, noise * center, count))
