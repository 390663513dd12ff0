"""Columns for the writer's tests: a small call by hand, large ones by formula."""

from __future__ import annotations

import numpy as np

from profiler.trace import NO_STEP, UNKNOWN, Call, CommandBuilder, CommandColumns, Counter, Track

__all__ = ["EPOCH_NS", "large_commands", "small_call"]

EPOCH_NS = 1_795_253_400_123_456_789


def small_call() -> tuple[Call, CommandColumns, list[Counter]]:
    """Two tracks, commands that overlap, nest, touch and take no time, flows, a counter."""
    queue = Track("cuda:0", "stream 7", "compute")
    copies = Track("cuda:0", "Task DMA", "dma")
    builder = CommandBuilder()
    to_q, at = "blocks.0.attn.to_q", EPOCH_NS
    copy = builder.add(copies, "to device", "Memcpy", at + 100, 200, bytes_read=4096)
    first = builder.add(queue, to_q, "MatMul", at + 300, 100, shapes="in: float32[1,2]")
    builder.add(queue, to_q, "MatMul", at + 350, 100, role="qkv_projection")
    ran = {"kernel": "void gemm<float, 8>(int, float*)", "module": "blocks.0.attn"}
    builder.add(queue, "inner", "", at + 320, 20, **ran)
    builder.add(queue, "marker", "", at + 450, 0, flops=0)
    builder.link(copy, first)
    call = Call(0, "transformer", "denoise", "", 3, "cuda:0", at, 1000, ops_traced=True)
    times, values = np.array([at + 10, at + 900]), np.array([-5, 1 << 33])
    return call, builder.build(), [Counter("cuda:0", "Memory", "bytes", times, values)]


def large_commands(count: int, *, tracks: int = 1, unit_ns: int = 1) -> CommandColumns:
    """Commands that overlap now and then; two of a layer follow each other."""
    random = np.random.default_rng(count)
    layers = tuple(f"transformer_blocks.{layer // 10}.part.{layer % 10}" for layer in range(300))
    shapes = tuple(f"in: float32[{size},64]; out: float32[{size}]" for size in range(1, 50))
    rows = np.arange(count)
    layer = rows // 2 % len(layers)
    duration = random.integers(0, 3000, count) * unit_ns
    step = random.integers(0, 4000, count) * unit_ns
    nothing, unknown = np.zeros(count, np.int32), np.full(count, UNKNOWN, np.int64)
    return CommandColumns(
        tracks=tuple(Track("cuda:0", f"stream {number}", "compute") for number in range(tracks)),
        strings=("", "MatMul", *layers, *shapes),
        track=random.integers(0, tracks, count).astype(np.int32),
        layer=(layer + 2).astype(np.int32),
        command_index=(rows % 2).astype(np.int32),
        op_type=(rows % 2).astype(np.int32),
        role=nothing,
        shapes=(layer % len(shapes) + 2 + len(layers)).astype(np.int32),
        stage=nothing,
        step=np.full(count, NO_STEP, np.int32),
        start_ns=EPOCH_NS + np.cumsum(step),
        duration_ns=duration,
        bytes_read=rows.astype(np.int64) % 5000,
        bytes_written=unknown,
        flops=unknown,
        kernel=(layer % 7 * (rows % 3 > 0)).astype(np.int32),
        module=(layer % 5 + 2).astype(np.int32),
        flows=np.stack([rows[:-1:7], rows[1::7]], axis=1).astype(np.int64),
    )
