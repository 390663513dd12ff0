"""Step matrix, redundancy, memory and split operators of many commands: processor time of each.

    python benchmarks/denoise.py [--commands 10000000] [--rounds 5]

28 steps of a transformer of 24 blocks; half of the commands transfer data on a queue beside three
that compute, so that every operator is split, and in four steps operators take twice their time,
so that causes are looked for. Figures are medians of the rounds, in one process.
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
from profiler.analysis.denoise.call_kinds import CallKinds
from profiler.analysis.denoise.invariants import find_invariants
from profiler.analysis.denoise.outlier_causes import outlier_table
from profiler.analysis.denoise.step_matrix import step_matrix
from profiler.analysis.kinds import kinds_of
from profiler.analysis.memory.usage import find_memory
from profiler.analysis.operators.folds import fold
from profiler.analysis.operators.geometry import geometry_table
from profiler.analysis.pipelines import PipelineCalls
from profiler.analysis.roles.of_kinds import roles_of
from profiler.analysis.steps import step_table
from profiler.table.columns import CALLS, COMMANDS, COUNTERS, FLOWS, SPANS, empty, schema
from profiler.table.run import Run
from profiler.trace.manifest import RunInfo

_STEPS, _BLOCKS, _EACH_NS = 28, 24, 100
_SLOW = (5, 11, 20, 24)  # steps
_OF_BLOCK = ("norm1.linear", "norm1", "attn.to_q", "attn.to_k", "attn.to_v", "attn", "ff.net.0")
LAYERS = [f"transformer_blocks.{b}.{name}" for b in range(_BLOCKS) for name in _OF_BLOCK]
_TRACKS = ("Cluster 0", "Cluster 1", "Cluster 2", "Task DMA")


def npu_run(commands: int) -> Run:
    """A run of about `commands` commands."""
    each = max(commands // _STEPS, len(LAYERS))
    number = np.arange(each * _STEPS)
    step, place = number // each, number % each
    layer = place % len(LAYERS)
    took = np.random.default_rng(0).normal(0.6 * _EACH_NS, 3, len(number)).astype(np.int64)
    took[np.isin(step, _SLOW) & (layer % len(_SLOW) == step % len(_SLOW))] *= 2
    moves = place // len(LAYERS) % 2
    columns = {
        "call": step,
        "pipeline": np.full(len(number), -1),
        "stage": _named(("denoise",), number * 0),
        "step": step,
        "device": _named(("rbln:0",), number * 0),
        "track": _named(_TRACKS, np.where(moves == 1, 3, place % 3)),
        "category": _named(("compute", "dma"), moves),
        "layer": _named(LAYERS, layer),
        "command_index": np.zeros(len(number), dtype=np.int32),
        "op_type": _named(("aten::linear",), number * 0),
        "start_ns": number * _EACH_NS,
        "duration_ns": took,
        "shapes": _named(("float[2,32] float[3,32]",), number * 0),
    }
    frame = pl.DataFrame(
        {
            name: columns[name]
            if name in columns
            else pl.Series([None]).new_from_index(0, len(number))
            for name in schema(COMMANDS)
        }
    )
    frame = frame.select(pl.col(name).cast(dtype) for name, dtype in schema(COMMANDS).items())
    return _run(each, frame)


def _run(each: int, commands: pl.DataFrame) -> Run:
    span = each * _EACH_NS
    calls = [
        (i, -1, "denoise", "transformer", "batched", i, "rbln:0", i * span, span - 50, True, "")
        for i in range(_STEPS)
    ]
    steps = [("step", -1, f"step {i}", "denoise", i, i * span, span) for i in range(_STEPS)]
    return Run(
        run_id="benchmark",
        calls=pl.DataFrame(calls, schema=schema(CALLS), orient="row"),
        commands=commands,
        counters=empty(COUNTERS),
        flows=empty(FLOWS),
        spans=pl.DataFrame(steps, schema=schema(SPANS), orient="row"),
        info=RunInfo(producer="benchmark"),
    )


def _named(names: Any, codes: Any) -> pl.Series:
    return pl.Series(names, dtype=pl.Categorical()).gather(codes)


def _timed(times: dict[str, list[float]], name: str, work: Callable[[], Any]) -> Any:
    begin = time.process_time()
    found = work()
    times.setdefault(name, []).append(time.process_time() - begin)
    return found


def measure(run: Run, times: dict[str, list[float]]) -> None:
    """One round: adds the processor seconds of each part to `times`."""
    arrays = CommandArrays.of(run.commands, run.calls)
    pipelines = PipelineCalls.of(run)
    kinds = kinds_of(run.calls, run.commands, arrays.call)
    roles = roles_of(run.info.submodules, kinds, arrays.call, run.commands["role"])
    steps = step_table(run, arrays, pipelines)
    number = pipelines.number_of(run.calls)
    folds = fold(run.calls, run.commands, arrays)
    ran = _timed(times, "call kinds", lambda: CallKinds.of(kinds, arrays, len(run.calls)))
    matrix = _timed(
        times, "step matrix", lambda: step_matrix(run.calls, kinds, roles, ran, steps, pipelines)
    )
    again = _timed(
        times, "invariants", lambda: find_invariants(run.calls, kinds, roles, ran, number, {})
    )
    _timed(times, "step tables", lambda: (matrix.table(again.over_steps), matrix.cells()))
    _timed(
        times,
        "outliers",
        lambda: outlier_table(matrix, run, arrays, run.calls, run.commands, arrays, kinds),
    )
    _timed(times, "memory", lambda: find_memory(run, {}))
    _timed(times, "geometry", lambda: geometry_table(folds, run.calls, run.commands, arrays))


def main() -> None:
    """Print the median processor time of each part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    run = npu_run(options.commands)
    times: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        measure(run, times)
    print(f"{len(run.commands):,} commands, {options.rounds} rounds")
    for name, seconds in times.items():
        print(f"{name:12} {statistics.median(seconds):6.3f} s")


if __name__ == "__main__":
    main()
