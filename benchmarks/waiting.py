"""Idle times, critical path and provider boundaries of many commands: processor time of each part.

    python benchmarks/waiting.py [--commands 10000000] [--rounds 5]

Half of the commands are launches on the host, half what a GPU ran, with a flow from each launch to
its kernel, in 35 calls that end with a wait. Figures are medians of the rounds, in one process; the
first round also pays for memory that the later ones reuse.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import checkout  # noqa: F401  (finds the project)
import numpy as np
import polars as pl

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.waiting.boundaries import boundary_tables
from profiler.analysis.waiting.critical_path import critical_path_table
from profiler.analysis.waiting.idle import idle_table
from profiler.analysis.waiting.run_timeline import RunTimeline
from profiler.table.columns import CALLS, COMMANDS, COUNTERS, FLOWS, SPANS, empty, schema
from profiler.table.run import Run
from profiler.trace.manifest import RunInfo

_CALLS = 35
_LAUNCH_NS = 4000


def gpu_run(commands: int) -> Run:
    """A run of about `commands` launches and kernels that follow them after 5 µs or later."""
    each = max(commands // _CALLS // 2, 2)
    number = np.arange(_CALLS * each)
    call = (number // each).astype(np.int32)
    launch = number * 10_000
    took = np.random.default_rng(0).integers(3000, 15_000, len(number))
    done = np.cumsum(took) + np.maximum.accumulate(launch + 5000 - np.cumsum(took) + took)
    order = np.lexsort((np.append(launch, done - took), np.tile(call, 2)))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    kind = order // len(number)  # 0: launches, 1: kernels
    last = np.zeros(len(number), dtype=bool)
    last[each - 1 :: each] = True
    launched = np.where(last, np.maximum(done - launch, _LAUNCH_NS), _LAUNCH_NS)
    frame = _filled(
        COMMANDS,
        call=np.tile(call, 2)[order],
        device=_named(("cpu:0", "cuda:0"), kind),
        track=_named(("thread 1", "stream 7"), kind),
        category=pl.Series(["host", "compute"]).gather(kind),
        layer=_named(
            ("cudaLaunchKernel", "cudaStreamSynchronize", "kernel"), _layers(kind, last, order)
        ),
        start_ns=np.append(launch, done - took)[order],
        duration_ns=np.append(launched, took)[order],
    )
    begin = launch[::each]
    calls = _filled(
        CALLS,
        call=np.arange(_CALLS),
        submodule=pl.Series(["transformer"] * _CALLS),
        device=pl.Series(["cuda:0"] * _CALLS),
        start_ns=begin,
        duration_ns=np.append(begin[1:], launch[-1] + 10_000) - begin,
    )
    flows = pl.DataFrame({"source": place[: len(number)], "target": place[len(number) :]})
    info = RunInfo(producer="benchmark")
    return Run("gpu", calls, frame, empty(COUNTERS), flows.cast(schema(FLOWS)), empty(SPANS), info)


def _layers(kind: np.ndarray, last: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The place of each command's layer: the last launch of a call waits."""
    return np.where(kind == 1, 2, np.tile(last, 2)[order].astype(np.int64))


def _named(names: tuple[str, ...], codes: np.ndarray) -> pl.Series:
    return pl.Series(names, dtype=pl.Categorical()).gather(codes)


def _filled(columns: tuple[Any, ...], **given: Any) -> pl.DataFrame:
    """A frame of the declared columns; what is not given is null, 0, "" or true."""
    values = []
    for column in columns:
        if column.name in given:
            value = pl.Series(column.name, given[column.name])
        elif column.nullable:
            value = pl.lit(None)
        elif column.dtype == pl.Boolean():
            value = pl.lit(True)
        else:
            value = pl.lit(0 if column.dtype.is_integer() else "")
        values.append(value.cast(column.dtype).alias(column.name))
    return pl.DataFrame({c.name: given[c.name] for c in columns[:1]}).select(values)


def measured(run: Run, rounds: int) -> dict[str, list[float]]:
    """Seconds of processor time of each part by round."""
    arrays = CommandArrays.of(run.commands, run.calls)
    seconds: dict[str, list[float]] = {}

    def timed(name: str, function: Callable[..., Any], *given: Any) -> Any:
        begin = time.process_time()
        result = function(*given)
        seconds.setdefault(name, []).append(time.process_time() - begin)
        return result

    for _ in range(rounds):
        timeline = timed("calls and launches", RunTimeline.of, run, arrays)
        timed("idle", idle_table, timeline)
        timed("critical path", critical_path_table, timeline)
        timed("boundaries", boundary_tables, run.calls, run.commands, arrays)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    run = gpu_run(options.commands)
    seconds = measured(run, options.rounds)
    print(f"{len(run.commands):,} commands, {len(run.flows):,} launches, processor time")
    for name, values in seconds.items():
        print(f"{name:<24}{statistics.median(values):8.3f} s   first {values[0]:.3f} s")


if __name__ == "__main__":
    main()
