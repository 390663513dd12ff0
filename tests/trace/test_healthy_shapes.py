"""Recordings at the edge of what is legal raise no alarm: thresholds came from others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler.trace.health import check
from profiler.trace.manifest_fields import HealthRule
from profiler.trace.runtime_calls import GRAPH
from tests.trace.health_rows import BEGIN, healthy, launches_of, no_syncs, rows_of

MS = 1_000_000
TOLD = (HealthRule.DRIFT, HealthRule.LATE_CLOCK, HealthRule.GAP)


def queued(launched, length, stream):
    """When each row starts: 6 µs after its launch, or with its queue's end."""
    free, start = {}, []
    for begun, took, queue in zip(launched.tolist(), length.tolist(), stream.tolist(), strict=True):
        start.append(max(free.get(queue, 0), begun + 6_000))
        free[queue] = start[-1] + took
    return np.array(start)


def run(length, *, every=5_000, streams=1, processes=1):
    """Kernels of these lengths, launched every 5 µs onto queues by turns."""
    place = np.arange(len(length))
    launched, stream = BEGIN + place * every, place % streams
    process, numbers = stream % processes, place // processes + 1
    start = queued(launched, length, stream)
    rows = rows_of(start, length, numbers, stream=stream, process=process, kernel=stream % 8)
    return rows, launches_of(launched, numbers, process=process), no_syncs()


def graphs(random):
    """Fifty replays of a graph whose branches overlap."""
    launched = BEGIN + np.arange(50) * 3 * MS
    start = (launched[:, None] + 9_000 + np.arange(20) * 40_000).ravel()
    length, kernel = random.integers(20_000, 70_000, 1_000), np.tile(np.arange(20) % 8, 50)
    rows = rows_of(start, length, np.repeat(np.arange(1, 51), 20), kernel=kernel)
    return rows, launches_of(launched, np.arange(1, 51), kind=np.full(50, GRAPH)), no_syncs()


def midway(seed):
    """A recording whose host part begins a third later."""
    rows, launches, syncs = healthy(seed)
    kept = launches.start >= np.quantile(launches.start, 1 / 3)
    columns = {name: getattr(launches, name)[kept] for name in launches.__slots__}
    return rows, replace(launches, **columns), syncs


SHAPES = {
    "long kernels": lambda random: run(np.full(30, 5_000 * MS)),
    "long ones among short ones": lambda random: run(
        np.where(np.arange(200) % 10 == 0, 800 * MS, 5_000)
    ),
    "kernels of a microsecond": lambda random: run(np.full(400, 900)),
    "64 streams": lambda random: run(random.integers(50_000, 900_000, 640), streams=64),
    "processes that share a device": lambda random: run(
        random.integers(50_000, 900_000, 640), streams=8, processes=2
    ),
    "a request every ten seconds": lambda random: run(np.full(60, 3 * MS), every=10_000 * MS),
    "graphs alone": graphs,
    "begun midway": lambda random: midway(int(random.integers(1_000))),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_legal_shapes_raise_no_alarm(shape):
    for seed in range(5):
        notes = check(*SHAPES[shape](np.random.default_rng(seed))).notes
        assert [note for note in notes if note.rule.damage or note.rule in TOLD] == []


@pytest.mark.parametrize("kernels", range(1, 21))
def test_a_few_kernels_raise_no_alarm(kernels):
    """Thresholds that are shares must not judge so few."""
    for seed in range(5):
        random = np.random.default_rng(seed)
        notes = check(*run(random.integers(800, 90_000, kernels), every=20_000)).notes
        assert [note for note in notes if note.rule.damage or note.rule in TOLD] == []
