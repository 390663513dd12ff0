"""Healthy recordings of one device as columns, generated from a seed, and damage done to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profiler.trace.runtime_calls import GRAPH, KERNEL, OTHER, DeviceRows, DeviceSyncs, HostLaunches

BEGIN = 1_000_000_000_000
KERNELS = tuple(f"kernel_{number}" for number in range(8))


def launches_of(
    start, correlation, *, kind=None, captured=None, process=0, length=4_000, dependent=False
):
    """Launches at these times."""
    start = np.asarray(start, dtype=np.int64)
    number = len(start)
    return HostLaunches(
        row=np.arange(number),
        start=start,
        end=start + length,
        process=np.broadcast_to(np.int64(process), (number,)).copy(),
        correlation=np.array(correlation, dtype=np.int64),
        kind=np.full(number, KERNEL, dtype=np.int64) if kind is None else np.asarray(kind),
        captured=np.zeros(number, dtype=np.bool_) if captured is None else np.asarray(captured),
        dependent=np.full(number, dependent),
    )


def rows_of(start, length, correlation, *, kernel=None, stream=None, device=None, process=None):
    """Work of devices at these times."""
    start = np.asarray(start, dtype=np.int64)
    number = len(start)
    zero = np.zeros(number, dtype=np.int64)
    stream = zero if stream is None else np.asarray(stream, dtype=np.int64)
    device = zero if device is None else np.asarray(device, dtype=np.int64)
    return DeviceRows(
        start=start,
        end=start + np.asarray(length, dtype=np.int64),
        device=device,
        stream=stream,
        process=zero - 1 if process is None else np.asarray(process, dtype=np.int64),
        correlation=np.array(correlation, dtype=np.int64),
        kernel=zero if kernel is None else np.asarray(kernel, dtype=np.int64),
        exempt=np.zeros(number, dtype=np.bool_),
        devices=tuple(f"cuda:{one}" for one in range(int(device.max(initial=0)) + 1)),
        streams=tuple(f"stream {one}" for one in range(int(stream.max(initial=0)) + 1)),
        kernels=KERNELS,
    )


def no_syncs() -> DeviceSyncs:
    """No synchronization."""
    none = np.zeros(0, dtype=np.int64)
    return DeviceSyncs(none, none, none, none)


def syncs_at(begin, end) -> DeviceSyncs:
    """Synchronizations of process 0."""
    begin, end = np.asarray(begin, dtype=np.int64), np.asarray(end, dtype=np.int64)
    return DeviceSyncs(begin, end, np.zeros_like(begin), np.full_like(begin, -1))


def healthy(seed: int, kernels: int = 1500) -> tuple[DeviceRows, HostLaunches, DeviceSyncs]:
    """A recording of 1 to 3 streams, with a graph replay now and then, copies, and a
    synchronization at the end of each of its parts."""
    random = np.random.default_rng(seed)
    streams = int(random.integers(1, 4))
    usual = random.integers(3_000, 400_000, len(KERNELS))
    host, free, correlation = BEGIN, [BEGIN] * streams, 100
    starts, lengths, numbers, codes, queues = [], [], [], [], []
    begun, called, kinds = [], [], []
    sync_begin, sync_end = [], []
    while len(starts) < kernels:
        for _ in range(int(random.integers(20, 80))):
            host += int(random.integers(4_500, 30_000))
            correlation += int(random.integers(1, 4))
            stream = int(random.integers(streams))
            graph = random.random() < 0.02
            size = int(random.integers(5, 30)) if graph else 1
            copy = not graph and random.random() < 0.05
            begun.append(host)
            called.append(correlation)
            kinds.append(GRAPH if graph else OTHER if copy else KERNEL)
            at = max(host + int(random.integers(3_000, 12_000)), free[stream] + 1_000)
            for _ in range(size):
                code = -1 if copy else int(random.integers(len(KERNELS)))
                length = int((usual[code] if code >= 0 else 20_000) * random.uniform(0.97, 1.03))
                starts.append(at)
                lengths.append(length)
                numbers.append(correlation)
                codes.append(code)
                queues.append(stream)
                at += length + int(random.integers(500, 2_000))
            free[stream] = at
        sync_begin.append(host + 5_000)
        host = max(host + 6_000, *free) + 7_000
        sync_end.append(host)
    rows = rows_of(starts, lengths, numbers, kernel=codes, stream=queues)
    return rows, launches_of(begun, called, kind=kinds), syncs_at(sync_begin, sync_end)


def with_rows(rows: DeviceRows, kept) -> DeviceRows:
    """Some of the rows, perhaps several times."""
    names = ("start", "end", "device", "stream", "process", "correlation", "kernel", "exempt")
    return replace(rows, **{name: getattr(rows, name)[kept] for name in names})
