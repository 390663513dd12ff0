"""A generated run of the shape of Stable Diffusion 3 on two accelerators, for reports.

Nothing here was measured: durations are drawn around plausible values from a seeded generator.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from msgspec import structs

from profiler.trace import (
    HOST_TRACK,
    NO_STEP,
    ROOT_DEVICE,
    BundleWriter,
    Call,
    CommandBuilder,
    Counter,
    Drop,
    RunInfo,
    Span,
    Track,
)
from tests.runs import make_info

__all__ = ["EPOCH_NS", "write_generated_bundle"]

EPOCH_NS = 1_795_253_400_123_456_789
_BLOCK = (  # layer, op type, role, µs, commands
    ("norm1.linear", "Gemm", "modulation", 46, 1),
    ("norm1.norm", "LayerNormalization", "norm", 38, 1),
    ("norm1_context.linear", "Gemm", "modulation", 44, 1),
    ("attn.to_q", "MatMul", "qkv_projection", 122, 3),
    ("attn.to_k", "MatMul", "qkv_projection", 121, 3),
    ("attn.to_v", "MatMul", "qkv_projection", 124, 3),
    ("attn.add_q_proj", "MatMul", "qkv_projection", 31, 1),
    ("attn.add_k_proj", "MatMul", "qkv_projection", 30, 1),
    ("attn.add_v_proj", "MatMul", "qkv_projection", 32, 1),
    ("attn.sdpa", "SDPA", "attention", 780, 8),
    ("attn.to_out.0", "MatMul", "attention", 128, 3),
    ("norm2", "LayerNormalization", "norm", 37, 1),
    ("ff.net.0.proj", "MatMul", "mlp", 520, 6),
    ("ff.net.2", "MatMul", "mlp", 505, 6),
    ("residual", "Add", "residual", 24, 1),
    ("ff_context.net.0.proj", "MatMul", "mlp", 74, 1),
    ("ff_context.net.2", "MatMul", "mlp", 71, 1),
)
_CLIP = (
    ("layer_norm1", "LayerNormalization", "norm", 9, 1),
    ("self_attn.qkv", "MatMul", "qkv_projection", 60, 2),
    ("self_attn.sdpa", "SDPA", "attention", 52, 2),
    ("self_attn.out_proj", "MatMul", "attention", 33, 1),
    ("layer_norm2", "LayerNormalization", "norm", 9, 1),
    ("mlp.fc1", "MatMul", "mlp", 78, 2),
    ("mlp.fc2", "MatMul", "mlp", 75, 2),
)
_RESNET = (
    ("norm1", "GroupNormalization", "norm", 480, 2),
    ("conv1", "Conv", "convolution", 2600, 12),
    ("norm2", "GroupNormalization", "norm", 470, 2),
    ("conv2", "Conv", "convolution", 2550, 12),
    ("upsample", "Resize", "resample", 690, 3),
)


@dataclass
class _Clock:
    """The time of the generated run, in ns."""

    now: int = EPOCH_NS
    calls: list[int] = field(default_factory=list)

    def after(self, microseconds: float) -> int:
        self.now += round(microseconds * 1000)
        return self.now


def write_generated_bundle(
    parent: Path,
    *,
    steps: int = 28,
    seed: int = 0,
    rename: dict[str, str] | None = None,
    drops: Sequence[Drop] = (),
) -> Path:
    """Write the run below `parent`; `rename` replaces submodule and block names by others."""
    draw, clock, host = random.Random(seed), _Clock(), CommandBuilder()
    names = rename or {}
    with BundleWriter.create(parent, "20261121-093000-sd3") as bundle:
        spans = [*_encode(bundle, draw, clock, host, names)]
        spans += _denoise(bundle, draw, clock, host, names, steps)
        spans += _decode(bundle, draw, clock, host, names)
        total = clock.now - EPOCH_NS
        spans.insert(0, Span("pipeline", "StableDiffusion3Pipeline", "", -1, EPOCH_NS, total))
        bundle.write_host(spans, host.build(), ROOT_DEVICE)
        info = _info(steps, total, names)
        return bundle.finish(structs.replace(info, drops=tuple(drops)))


def _encode(bundle, draw, clock, host, names) -> Iterator[Span]:
    start = clock.now
    sizes = (("text_encoder", 12, 0.72, 0), ("text_encoder_2", 32, 0.9, 0))
    sizes += (("text_encoder_3", 24, 2.6, 1),)
    for branch in ("prompt", "negative_prompt"):
        _host_work(host, clock, "tokenizer", 900 + draw.random() * 200, "encode")
        for submodule, blocks, scale, device in sizes:
            layers = _stack(names.get(submodule, submodule), "encoder.layers", blocks, _CLIP)
            call = _call(clock, submodule, "encode", branch, -1, f"rbln:{device}", names)
            _write_call(bundle, draw, clock, call, layers, scale)
    _host_work(host, clock, "concatenate embeddings", 420, "encode")
    yield Span("stage", "encode", "encode", -1, start, clock.now - start)


def _denoise(bundle, draw, clock, host, names, steps) -> Iterator[Span]:
    start = clock.now
    _host_work(host, clock, "prepare latents", 350, "denoise")
    layers = _stack(names.get("transformer", ""), "transformer_blocks", 24, _BLOCK)
    steps_done: list[Span] = []
    for step in range(steps):
        begin = clock.now
        scale = 1.18 if step == 0 else 1.09 if step == 17 else 1.0
        call = _call(clock, "transformer", "denoise", "batched", step, "rbln:0", names)
        _write_call(bundle, draw, clock, call, layers, scale)
        _host_work(host, clock, "scheduler.step", 610 + draw.random() * 90, "denoise", step)
        steps_done.append(Span("step", f"step {step}", "denoise", step, begin, clock.now - begin))
    yield Span("stage", "denoise", "denoise", -1, start, clock.now - start)
    yield from steps_done


def _decode(bundle, draw, clock, host, names) -> Iterator[Span]:
    start = clock.now
    layers = _stack(names.get("vae", ""), "decoder.up_blocks", 12, _RESNET)
    call = _call(clock, "vae", "decode", "", NO_STEP, "rbln:0", names)
    _write_call(bundle, draw, clock, call, layers, 1.0)
    _host_work(host, clock, "image_processor.postprocess", 5200, "decode")
    yield Span("stage", "decode", "decode", -1, start, clock.now - start)


def _stack(prefix: str, name: str, count: int, block) -> list[tuple]:
    start = f"{prefix}." if prefix else ""
    return [(f"{start}{name}.{i}.{layer[0]}", *layer[1:]) for i in range(count) for layer in block]


def _call(clock, submodule, stage, branch, step, device, names) -> Call:
    shapes = {"hidden_states": "float16[2,16,128,128]", "timestep": "float16[2]"}
    clock.calls.append(clock.now)
    index = len(clock.calls) - 1
    name = names.get(submodule, submodule)
    return Call(index, name, stage, branch, step, device, clock.now, 0, True, shapes)


def _write_call(bundle, draw, clock, call, layers, scale) -> None:
    """Write a call that executes `layers`: weights come in by DMA while the engine computes."""
    engine = Track(call.device, "Neural Engine Clusters", "compute")
    neural_dma = Track(call.device, "Neural DMA", "dma")
    task_dma = Track(call.device, "Task DMA", "copy")
    external = Track(call.device, "External HDMA", "dma")
    sync = Track(call.device, "Device Sync", "sync")
    builder = CommandBuilder()
    now = call.start_ns + 60_000
    builder.add(external, "input", "copy", now, 85_000, bytes_read=2 << 20, role="data_movement")
    now += 90_000
    for number, (layer, op_type, role, microseconds, commands) in enumerate(layers):
        duration = microseconds * 1000 * scale * draw.uniform(0.94, 1.09) / commands
        common = {"role": role, "shapes": "float16[2,4096,1536]"}
        weights = round(duration * commands * 0.55)
        loaded = builder.add(
            neural_dma, layer, op_type, now, weights, bytes_read=weights * 8, **common
        )
        for part in range(commands):
            took = round(duration * draw.uniform(0.9, 1.1))
            computed = builder.add(engine, layer, op_type, now, took, flops=took * 900, **common)
            now += took + 400
            if part == 0:
                builder.link(loaded, computed)
        if number % 3 == 1:
            builder.add(task_dma, layer, op_type, now, 6_000, bytes_written=1 << 16, **common)
            now += 2_500
        if number % 17 == 16:
            builder.add(sync, "barrier", "sync", now, 9_000)
            now += 9_500
    builder.add(external, "output", "copy", now, 48_000, bytes_written=1 << 20)
    now += 90_000
    times = np.linspace(call.start_ns, now - 1000, 8).astype(np.int64)
    used = 5_000_000_000 + (times % 900 << 20)
    memory = Counter(call.device, "device memory", "bytes", times, used)
    bundle.write_call(replace(call, duration_ns=now - call.start_ns), builder.build(), [memory])
    clock.now = now + 35_000


def _host_work(host, clock, name, microseconds, stage, step=NO_STEP) -> None:
    track = Track(ROOT_DEVICE, HOST_TRACK, "host")
    host.add(track, name, "", clock.now, round(microseconds * 1000), stage=stage, step=step)
    clock.after(microseconds + 6)


def _info(steps: int, total: int, names: dict[str, str]) -> RunInfo:
    placed = {"text_encoder": 0, "text_encoder_2": 0, "text_encoder_3": 1, "transformer": 0}
    return make_info(
        producer="capture",
        model="stable-diffusion-3-medium (generated)",
        pipeline="StableDiffusion3Pipeline",
        command_line=("python", "-m", "tests.report.generated"),
        versions={"profile-sd3": "0.1.0", "python": "3.11.7", "onnxruntime": "1.31.1"},
        hardware={"cpu": "AMD EPYC 9554 64-Core Processor", "cores": 16, "memory_bytes": 64 << 30},
        devices={
            "cpu:0": {"hardware": "AMD EPYC 9554 64-Core Processor", "cores": [0, 1, 2, 3]},
            "rbln:0": {"hardware": "RBLN-CA22"},
            "rbln:1": {"hardware": "RBLN-CA22"},
        },
        submodules={
            names.get(name, name): {"device": f"rbln:{device}", "activate_profiler": True}
            for name, device in {**placed, "vae": 0}.items()
        },
        settings={
            "prompt": "a photograph of an astronaut riding a horse",
            "steps": steps,
            "guidance_scale": 7.0,
            "height": 1024,
            "width": 1024,
        },
        overhead={
            "hooks_ns": 1_430_000,
            "operator_events": 41_000,
            "operator_event_ns": 310.0,
            "operators_ns": 12_710_000,
            "share": 14_140_000 / total,
            "conversion_ns": 350_000_000,
        },
        warmup={"runs": 1, "duration_ns": 1_210_000_000},
        attribution={
            names.get(name, name): {"attributed_ns": 992, "total_ns": 1000, "share": 0.992}
            for name in (*placed, "vae")
        },
    )


if __name__ == "__main__":
    import sys

    print(write_generated_bundle(Path(sys.argv[1])))
