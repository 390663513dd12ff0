"""Counters of devices over time (power, clocks, temperature, use of units), and the energy of each
pipeline call and step.

A counter keeps its value until its next sample, and the last for as long as its samples are
usually apart. Of memory there are the counters alone: `memory.py` has its tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.context import Inputs, shared
from profiler.analysis.question import Table
from profiler.analysis.steps import step_spans
from profiler.run.columns import (
    DATA_ONLY,
    FLOAT64,
    INT64,
    NS,
    STEP,
    STRING,
    Column,
    Type,
    col,
    schema,
)
from profiler.run.intervals import Times
from profiler.run.run import Run
from profiler.trace.events import NO_STEP

_WATTS, _JOULES = Type(FLOAT64, "W"), Type(FLOAT64, "J")
_POINTS = 256  # intervals of a counter over time, at most
_POWER = re.compile(r"\bpower\b.*\((m?)W\)", re.IGNORECASE)
_MILLI = 1e-3

DEVICE_COUNTERS: tuple[Column, ...] = (
    col("device", STRING, "device of the counter", key=True),
    col("counter", STRING, "its name, with its unit, as recorded", key=True),
    col("samples", INT64, "how often it was recorded", importance=3),
    col("start_ns", NS, "time of its first sample, on the run's clock", importance=DATA_ONLY),
    col("end_ns", NS, "time of its last sample, on the run's clock", importance=DATA_ONLY),
    col("min", FLOAT64, "its smallest value", importance=2),
    col("mean", FLOAT64, "mean of its values by how long each held"),
    col("max", FLOAT64, "its largest value", importance=1),
)

COUNTER_TIMELINE: tuple[Column, ...] = (
    col("device", STRING, "device of the counter", key=True),
    col("counter", STRING, "its name, with its unit, as recorded", key=True),
    col("time_ns", NS, "first sample in an interval, on the run's clock"),
    col("samples", INT64, "samples in the interval"),
    col("min", FLOAT64, "smallest of them"),
    col("mean", FLOAT64, "mean of them"),
    col("max", FLOAT64, "largest of them"),
)

ENERGY: tuple[Column, ...] = (
    col("device", STRING, "device whose power was recorded", key=True),
    col("pipeline", INT64, "number of the pipeline call"),
    col("step", STEP, "denoising step; -1 for the whole pipeline call"),
    col("start_ns", NS, "begin, on the run's clock", importance=DATA_ONLY),
    col("covered_ns", NS, "how much of its time the power is known for"),
    col("samples", INT64, "samples of power in it", importance=1),
    col("mean_w", _WATTS, "mean power over covered_ns", label="mean W"),
    col("energy_j", _JOULES, "energy that the device took in covered_ns", label="energy J"),
)


class DeviceCounter(Struct, frozen=True, eq=False):
    """Samples in order of time: `values[i]` holds from `times[i]` to `until[i]`."""

    device: str
    name: str
    times: Times
    until: Times
    values: npt.NDArray[np.float64]

    def within(self, start: int, end: int) -> tuple[int, float]:
        """Return for how long from `start` to `end` the value is known, in ns, and its integral
        over that."""
        held = np.minimum(self.until, end) - np.maximum(self.times, start)
        held = np.maximum(held, 0)
        return int(held.sum()), float((held * self.values).sum())

    def samples(self, start: int, end: int) -> int:
        """Return the number of samples from `start` to `end`."""
        first, last = np.searchsorted(self.times, (start, end)).tolist()
        return int(last - first)

    @property
    def watts(self) -> float | None:
        """Factor that converts its values to watts; None if it does not measure power."""
        found = _POWER.search(self.name)
        return (_MILLI if found[1] else 1.0) if found else None


@shared
def counters_of(of: Inputs) -> tuple[DeviceCounter, ...]:
    """The counters of devices except those of memory, by device and name."""
    texts = [pl.col("device", "name").cast(pl.String)]
    rows = of.run.counters.drop_nulls(["device", "name"]).filter(
        pl.col("unit").cast(pl.String).ne_missing("bytes"), pl.col("value").is_finite()
    )
    found = []
    for (device, name), some in rows.group_by(texts):
        samples = some.sort("time_ns", maintain_order=True)
        samples = samples.unique("time_ns", keep="last", maintain_order=True)
        times = samples["time_ns"].to_numpy()
        apart = int(np.median(np.diff(times))) if len(times) > 1 else 0
        until = np.append(times[1:], times[-1] + apart)
        values = samples["value"].cast(pl.Float64).to_numpy()
        found.append(DeviceCounter(str(device), str(name), times, until, values))
    return tuple(sorted(found, key=lambda one: (one.device, one.name)))


def _counters(of: Inputs) -> pl.DataFrame:
    rows = []
    for one in counters_of(of):
        start, end = int(one.times[0]), int(one.until[-1])
        known, total = one.within(start, end)
        rows.append(
            {
                "device": one.device,
                "counter": one.name,
                "samples": len(one.times),
                "start_ns": start,
                "end_ns": int(one.times[-1]),
                "min": float(one.values.min()),
                "mean": total / known if known else float(one.values.mean()),
                "max": float(one.values.max()),
            }
        )
    return pl.DataFrame(rows, schema=schema(DEVICE_COUNTERS))


def _timeline(of: Inputs) -> pl.DataFrame:
    parts = [pl.DataFrame(schema=schema(COUNTER_TIMELINE))]
    for one in counters_of(of):
        first, span = int(one.times[0]), int(one.times[-1] - one.times[0])
        places = (one.times - first) // (span // _POINTS + 1)
        value = pl.col("value")
        frame = pl.DataFrame({"place": places, "time_ns": one.times, "value": one.values})
        some = frame.group_by("place", maintain_order=True).agg(
            pl.col("time_ns").first(),
            samples=pl.len().cast(pl.Int64),
            min=value.min(),
            mean=value.mean(),
            max=value.max(),
        )
        named = some.with_columns(device=pl.lit(one.device), counter=pl.lit(one.name))
        parts.append(named.select(schema(COUNTER_TIMELINE).names()))
    return pl.concat(parts)


def _windows(of: Inputs) -> Iterator[tuple[int, int, int, int]]:
    """Pipeline call, step, start and end of each pipeline call (step -1) and step."""
    calls = of.pipelines.spans.select("pipeline", "start_ns", "duration_ns").rows()
    for pipeline, start, length in calls:
        yield pipeline, NO_STEP, start, start + max(length, 0)
    steps = step_spans(of.run, of.pipelines)
    yield from steps.select("pipeline", "step", "start_ns", "end_ns").iter_rows()


def _energy(of: Inputs) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for one in counters_of(of):
        factor = one.watts
        for pipeline, step, start, end in _windows(of) if factor is not None else ():
            known, total = one.within(start, end)
            if not known or factor is None:
                continue
            rows.append(
                {
                    "device": one.device,
                    "pipeline": pipeline,
                    "step": step,
                    "start_ns": start,
                    "covered_ns": known,
                    "samples": one.samples(start, end),
                    "mean_w": factor * total / known,
                    "energy_j": factor * total / 1e9,
                }
            )
    return pl.DataFrame(rows, schema=schema(ENERGY))


TABLES = (
    Table(
        "device_counters",
        "one counter of a device",
        "devices",
        DEVICE_COUNTERS,
        _counters,
        title="Counters",
        about="Counters that the recorder sampled, under its own names, of the whole run; those "
        "of memory are in `memory_devices`.",
    ),
    Table(
        "counter_timeline",
        "one interval of a counter of a device",
        "devices",
        COUNTER_TIMELINE,
        _timeline,
        title="Counters over time",
        about="At most 256 intervals per counter; one without a sample has no row, and the value "
        "from before holds.",
    ),
    Table(
        "energy",
        "the energy that one device took for a pipeline call or a step",
        "devices",
        ENERGY,
        _energy,
        title="Energy",
        about="Power times the time for which it held, over the range of a pipeline call (one "
        "image, or one batch of images) or the tiles of a step. A row with fewer than two samples "
        "is no better than the power from before.",
        rank=("step", "-energy_j"),
    ),
)


# --- Counters of memory in use, as a run has them: arenas of ONNX Runtime, allocators of torch
# and CUDA.


CHANGES = "since the pipeline began"
"""In the name of a counter that counts changes alone."""

_ARENA = " arena in use"
_ALLOCATED = r"^(torch|CUDA) allocated"


class MemoryCounter(Struct, frozen=True, eq=False):
    """What one counter held: `values[i]` bytes from `times[i]` on, `before` until then. `owner` is
    the submodule whose arena it is, None for an allocator."""

    name: str
    owner: str | None
    times: Times
    values: Times
    calls: Times

    @property
    def before(self) -> int:
        if CHANGES in self.name:
            return 0
        return int(self.values[0] if self.owner is None else self.values.min())

    def at(self, time: int) -> int:
        """Bytes held at a moment."""
        place = int(np.searchsorted(self.times, time, side="right"))
        return int(self.values[place - 1]) if place else self.before

    def added(self) -> dict[int, int]:
        """By call, the most that it held above what it held when the call's samples began."""
        rows = pl.DataFrame({"call": self.calls, "value": self.values})
        above = pl.col("value").max() - pl.col("value").first()
        found = rows.filter(pl.col("call") >= 0).group_by("call").agg(above)
        return dict(found.iter_rows())


def memory_counters(run: Run) -> dict[str, list[MemoryCounter]]:
    """The counters of memory in use, by device."""
    name = pl.col("name").cast(pl.String)
    known = name.str.ends_with(_ARENA) | name.str.contains(_ALLOCATED)
    rows = run.counters.filter(known, pl.col("unit").cast(pl.String) == "bytes")
    found: dict[str, list[MemoryCounter]] = {}
    texts = [pl.col("device").cast(pl.String), name]
    for (device, called), some in rows.drop_nulls("device").group_by(texts, maintain_order=True):
        samples = some.sort("time_ns", maintain_order=True).unique(
            "time_ns", keep="last", maintain_order=True
        )
        owner = str(called).removesuffix(_ARENA) if str(called).endswith(_ARENA) else None
        values = samples["value"].to_numpy().astype(np.int64)
        counter = MemoryCounter(
            str(called), owner, samples["time_ns"].to_numpy(), values, samples["call"].to_numpy()
        )
        found.setdefault(str(device), []).append(counter)
    return found


def summed(counters: list[MemoryCounter]) -> tuple[Times, Times]:
    """The sum of the counters after each of their samples: times and bytes."""
    if not counters:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    times = np.concatenate([counter.times for counter in counters])
    changes = [np.diff(counter.values, prepend=counter.before) for counter in counters]
    order = np.argsort(times, kind="stable")
    times, values = times[order], np.cumsum(np.concatenate(changes)[order])
    last = np.flatnonzero(np.append(np.diff(times), 1))
    return times[last], values[last] + sum(counter.before for counter in counters)
