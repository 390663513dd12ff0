"""Runs of any size that no file holds: an NPU with split operators, a GPU with its launches."""

from __future__ import annotations

from typing import Any

import checkout  # noqa: F401  (finds the project)
import numpy as np
import polars as pl

from profiler.run.columns import CALLS, COMMANDS, COUNTERS, FLOWS, SPANS, empty, schema
from profiler.run.run import Run
from profiler.trace.manifest import RunInfo

_STEPS, _BLOCKS, _EACH_NS = 28, 24, 100
_SLOW = (5, 11, 20, 24)  # steps
_OF_BLOCK = ("norm1.linear", "norm1", "attn.to_q", "attn.to_k", "attn.to_v", "attn", "ff.net.0")
_LAYERS = [f"transformer_blocks.{b}.{name}" for b in range(_BLOCKS) for name in _OF_BLOCK]
_TRACKS = ("Cluster 0", "Cluster 1", "Cluster 2", "Task DMA")
_CALLS = 35
_LAUNCH_NS = 4000


def npu_run(commands: int) -> Run:
    """28 steps of a transformer of 24 blocks, about `commands` commands.

    Half of them transfer data on a queue beside three that compute, so that every operator is
    split; in four steps operators take twice their time, so that causes are looked for.
    """
    each = max(commands // _STEPS, len(_LAYERS))
    number = np.arange(each * _STEPS)
    step, place = number // each, number % each
    layer = place % len(_LAYERS)
    took = np.random.default_rng(0).normal(0.6 * _EACH_NS, 3, len(number)).astype(np.int64)
    took[np.isin(step, _SLOW) & (layer % len(_SLOW) == step % len(_SLOW))] *= 2
    moves = place // len(_LAYERS) % 2
    frame = _filled(
        COMMANDS,
        call=step,
        pipeline=np.full(len(number), -1),
        stage=_named(("denoise",), number * 0),
        step=step,
        device=_named(("rbln:0",), number * 0),
        track=_named(_TRACKS, np.where(moves == 1, 3, place % 3)),
        category=_named(("compute", "dma"), moves),
        layer=_named(_LAYERS, layer),
        op_type=_named(("aten::linear",), number * 0),
        start_ns=number * _EACH_NS,
        duration_ns=took,
        shapes=_named(("float[2,32] float[3,32]",), number * 0),
    )
    span = each * _EACH_NS
    calls = [
        (
            *(i, -1, "denoise", "transformer", "batched", i, -1, -1, "rbln:0"),
            *(i * span, span - 50, None, None, True, ""),
        )
        for i in range(_STEPS)
    ]
    steps = [("step", -1, f"step {i}", "denoise", i, i * span, span) for i in range(_STEPS)]
    return Run(
        run_id="npu",
        calls=pl.DataFrame(calls, schema=schema(CALLS), orient="row"),
        commands=frame,
        counters=empty(COUNTERS),
        flows=empty(FLOWS),
        spans=pl.DataFrame(steps, schema=schema(SPANS), orient="row"),
        info=RunInfo(producer="benchmark"),
    )


def gpu_run(commands: int) -> Run:
    """35 calls that end with a wait, about `commands` launches on the host and kernels that follow
    them after 5 µs or later, with a flow from each launch to its kernel."""
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
    layer = np.where(kind == 1, 2, np.tile(last, 2)[order])  # the last launch of a call waits
    frame = _filled(
        COMMANDS,
        call=np.tile(call, 2)[order],
        device=_named(("cpu:0", "cuda:0"), kind),
        track=_named(("thread 1", "stream 7"), kind),
        category=_named(("host", "compute"), kind),
        layer=_named(("cudaLaunchKernel", "cudaStreamSynchronize", "kernel"), layer),
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


def _named(names: Any, codes: Any) -> pl.Series:
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
