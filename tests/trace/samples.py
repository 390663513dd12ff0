"""A small run on two devices, made by hand: every time in it is known.

Two encoder calls overlap, consecutive calls touch, commands overlap, nest and take no time, a wait
depends on what begins after it, and a counter stands in the files of several calls.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from profiler.trace import (
    HOST_TRACK,
    NO_STEP,
    ROOT_DEVICE,
    UNKNOWN,
    BundleWriter,
    Call,
    CommandBuilder,
    CommandColumns,
    Counter,
    RunInfo,
    Span,
    Track,
)

__all__ = [
    "EPOCH_NS",
    "awkward_trace",
    "small_bundle",
    "small_calls",
    "small_host",
    "two_commands",
]

EPOCH_NS = 1_795_253_400_123_456_789
_WORKERS = Track("cpu:0", "intra-op", "compute")
_SECOND = {
    "dma": Track("cpu:1", "Task DMA", "dma"),
    "late": Track("cpu:1", "stream 10", "compute"),
    "early": Track("cpu:1", "stream 7", "compute"),
    "sync": Track("cpu:1", "Sync", "sync"),
}
_MOST_FLOPS = (1 << 62) - 512  # the largest float below 2^62, from which on a run is damaged


def small_bundle(parent: Path, run_id: str = "small") -> Path:
    """Write the run to `parent/run_id`; returns the bundle's folder."""
    with BundleWriter.create(parent, run_id) as bundle:
        for call, commands, counters in small_calls():
            bundle.write_call(call, commands, counters)
        spans, commands = small_host()
        bundle.write_host(spans, commands, ROOT_DEVICE)
        return bundle.finish(RunInfo(producer="capture", model="small"))


def small_calls() -> list[tuple[Call, CommandColumns, tuple[Counter, ...]]]:
    """The calls in order of their start, with their commands and counters."""
    calls = [
        _call(0, "text_encoder", "prompt", 0, 200),
        _call(1, "text_encoder_2", "prompt", 150, 200),
        *(
            Call(
                2 + step,
                "transformer",
                "denoise",
                "batched",
                step,
                "cpu:1",
                EPOCH_NS + 1000 + 500 * step,
                500,
                ops_traced=True,
                input_shapes={"hidden_states": "float32[2,16,64,64]", "timestep": "int64[2]"},
            )
            for step in range(2)
        ),
        Call(4, "vae", "decode", "", NO_STEP, "cpu:0", EPOCH_NS + 2000, 300, ops_traced=False),
    ]
    commands = [
        _encoder_commands(calls[0].start_ns),
        _encoder_commands(calls[1].start_ns),
        _transformer_commands(calls[2].start_ns),
        _transformer_commands(calls[3].start_ns),
        CommandBuilder().build(),
    ]
    memory = [_memory(call) for call in calls]
    return [(*parts[:2], (parts[2],)) for parts in zip(calls, commands, memory, strict=True)]


def small_host() -> tuple[list[Span], CommandColumns]:
    """Spans of the pipeline and the host work outside its calls."""
    spans = [
        Span("pipeline", "StableDiffusion3Pipeline", "", NO_STEP, EPOCH_NS - 100, 2500),
        Span("stage", "encode", "encode", NO_STEP, EPOCH_NS - 100, 1050),
        Span("stage", "denoise", "denoise", NO_STEP, EPOCH_NS + 950, 1050),
        Span("step", "step 0", "denoise", 0, EPOCH_NS + 1000, 500),
        Span("step", "step 1", "denoise", 1, EPOCH_NS + 1500, 500),
        Span("stage", "decode", "decode", NO_STEP, EPOCH_NS + 2000, 400),
    ]
    builder = CommandBuilder()
    host = Track(ROOT_DEVICE, HOST_TRACK, "host")
    builder.add(host, "tokenize", "", EPOCH_NS - 50, 40, stage="encode")
    builder.add(host, "scheduler.step", "", EPOCH_NS + 1490, 10, stage="denoise", step=0)
    builder.add(host, "postprocess", "", EPOCH_NS + 2300, 90, stage="decode")
    return spans, builder.build()


def two_commands() -> CommandColumns:
    """Two commands of one layer, for tests that need no more."""
    builder = CommandBuilder()
    for start_ns in (EPOCH_NS + 10, EPOCH_NS + 60):
        builder.add(_WORKERS, "layer", "MatMul", start_ns, 40)
    return builder.build()


def awkward_trace() -> tuple[Call, CommandColumns, tuple[Counter, ...]]:
    """A call whose commands never close, have odd names, or begin at one and the same moment."""
    builder = CommandBuilder()
    for position, name in enumerate(("", "ünïcode ∂", 'quote " \\', "line\nbreak", "x" * 5000)):
        builder.add(_WORKERS, name, name, EPOCH_NS + 20 * position, 10, shapes=name)
    never = builder.add(_SECOND["late"], "never closed", "Kernel", EPOCH_NS + 5, UNKNOWN)
    after = builder.add(_SECOND["late"], "after it", "Kernel", EPOCH_NS + 50, 10)
    builder.link(never, after)
    for duration_ns in (0, 30, 10, 0, 20, 30):
        builder.add(_SECOND["sync"], f"{duration_ns} ns", "", EPOCH_NS + 200, duration_ns)
    builder.add(_SECOND["sync"], "0 ns at an end", "", EPOCH_NS + 230, 0, flops=_MOST_FLOPS)
    times = np.array([EPOCH_NS, EPOCH_NS, EPOCH_NS + 300], dtype=np.int64)
    values = np.array([-(1 << 50), 0, 1 << 50], dtype=np.int64)
    call = Call(7, "controlnet", "denoise", "uncond", 3, "cpu:1", EPOCH_NS, 300, ops_traced=True)
    empty = Counter("cpu:1", "never sampled", "count", times[:0], values[:0])
    return call, builder.build(), (Counter("cpu:0", "balance", "count", times, values), empty)


def _call(index: int, submodule: str, branch: str, after_ns: int, duration_ns: int) -> Call:
    return Call(
        index,
        submodule,
        "encode",
        branch,
        NO_STEP,
        "cpu:0",
        EPOCH_NS + after_ns,
        duration_ns,
        ops_traced=True,
        input_shapes={"input_ids": "int64[1,77]"},
    )


def _encoder_commands(start_ns: int) -> CommandColumns:
    builder = CommandBuilder()
    known = {"bytes_read": 4096, "bytes_written": 0, "flops": 10**15}
    first = builder.add(_WORKERS, "mlp.fc1", "MatMul", start_ns + 10, 100, role="mlp", **known)
    builder.add(_WORKERS, "mlp.fc1", "MatMul", start_ns + 50, 100, role="mlp")
    builder.add(_WORKERS, "mlp.act", "Gelu", start_ns + 20, 30, shapes="in: float32[1]")
    builder.add(_WORKERS, "shape", "Reshape", start_ns + 160, 0)
    last = builder.add(_WORKERS, "norm", "LayerNormalization", start_ns + 160, 40, role="norm")
    builder.link(first, last)
    return builder.build()


def _transformer_commands(start_ns: int) -> CommandColumns:
    builder = CommandBuilder()
    copied = builder.add(_SECOND["dma"], "to device", "Memcpy", start_ns, 100, bytes_read=1 << 40)
    waited = builder.add(_SECOND["sync"], "wait", "Sync", start_ns + 120, 380)
    halves = [
        builder.add(_SECOND[name], "attn.sdpa", "SDPA", start_ns + 150, 200, role="attention")
        for name in ("late", "early")
    ]
    for half in halves:
        builder.link(copied, half)
        builder.link(half, waited)
    return builder.build()


def _memory(call: Call) -> Counter:
    times = np.array([call.start_ns, call.end_ns - 1], dtype=np.int64)
    values = np.array([1 << 33, (1 << 33) + call.index], dtype=np.int64)
    return Counter("cpu:0", "Resident memory", "bytes", times, values)
