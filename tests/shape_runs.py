"""Runs of operations with known shapes, simulated launch by launch, and what each shape costs.

Operations are launched from layers of repeated blocks on streams of devices that run behind the
host. Some launch several kernels, some have kernels whose operator nobody knows; copies and waits
lie between them. The tally is kept while they are launched, by plain dictionaries.
"""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from dataclasses import dataclass, field

import polars as pl
from hypothesis import strategies as st

from profiler.run import Run
from tests.runs import Command, make_call, make_run

__all__ = ["Known", "Tally", "shape_runs"]

_OPERATIONS = (  # op type, shapes, FLOPs of one, its kernels (several: one after the other)
    ("aten::mm", "in: bfloat16[64,32] bfloat16[32,16]", 2 * 64 * 32 * 16, ("gemm_a",)),
    ("aten::mm", "in: bfloat16[16,32] bfloat16[32,16]", 2 * 16 * 32 * 16, ("gemm_a", "gemm_b")),
    ("aten::mm", "in: float32[64,32] float32[32,16]", 2 * 64 * 32 * 16, ("gemm_c",)),
    ("aten::add", "in: bfloat16[64,32] bfloat16[64,32]", 64 * 32, ("void add<bf16>(int)",)),
    ("aten::layer_norm", "in: bfloat16[64,32] bfloat16[32]", 6 * 64 * 32, ("n1", "n2", "n3")),
    ("own::op", "in: bfloat16[64,32]", None, ("own",)),
    ("elementwise", None, None, ("void elementwise<mul>(int)",)),
    ("elementwise", None, None, ("void elementwise<add>(int)",)),
)


@dataclass
class Tally:
    """What a shape of a submodule cost on a device."""

    executions: int = 0
    commands: int = 0
    total_ns: int = 0
    layers: set[str] = field(default_factory=set)
    kernels: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))


@dataclass
class Known:
    """A run; the tally of each submodule, op type, shapes, kernel where no operator is known, and
    device; the time of all that devices did; FLOPs of one execution."""

    run: Run
    tallies: dict[tuple[str | None, str, str | None, str | None, str], Tally]
    busy: dict[str, int]
    flops: dict[tuple[str, str | None], int | None]


@dataclass
class _Simulation:
    """Streams that run behind the host, and the tally of what was launched."""

    chance: random.Random
    free: dict[tuple[str, int], int]
    tallies: dict[tuple[str | None, str, str | None, str | None, str], Tally] = field(
        default_factory=dict
    )
    busy: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    commands: list[Command] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)

    def execute(self, call: int, submodule: str | None, layer: str, at: int) -> None:
        """Launch the kernels of some operation on some stream."""
        op_type, shapes, _, kernels = self.chance.choice(_OPERATIONS)
        place = device, stream = self.chance.choice([*self.free])
        key = (submodule, op_type, shapes, None if shapes else kernels[0], device)
        tally = self.tallies.setdefault(key, Tally())
        tally.executions += 1
        name = f"{layer}/{op_type}" if shapes else op_type
        tally.layers |= {name} - {op_type}
        for number, kernel in enumerate(kernels, 1):
            start, took = max(at, self.free[place]), self.chance.randint(1, 50)
            self.free[place] = start + took
            where = (call, device, f"stream {stream}", "compute")
            self.commands.append(Command(*where, name, start, took, op_type, kernel=kernel))
            part = f" part {number}/{len(kernels)}" if len(kernels) > 1 else ""
            self.texts.append(shapes and shapes + part)
            tally.commands += 1
            tally.total_ns += took
            tally.kernels[kernel] += took
            self.busy[device] += took if call >= 0 else 0

    def move(self, call: int, at: int) -> None:
        """Copy something, or wait."""
        category = self.chance.choice(("dma", "copy", "sync"))
        device, took = self.chance.choice([*self.free])[0], self.chance.randint(1, 20)
        track = f"stream 7 {category}"
        self.commands.append(Command(call, device, track, category, "copy", at, took, "Memcpy"))
        self.texts.append(None)
        self.busy[device] += took if category != "sync" else 0


@st.composite
def shape_runs(draw: st.DrawFn) -> Known:
    """A run of some calls of two submodules on one or two devices."""
    chance = random.Random(draw(st.integers(0, 1 << 40)))
    devices = ("cuda:0", "cuda:1")[: draw(st.integers(1, 2))]
    sim = _Simulation(chance, {(device, stream): 0 for device in devices for stream in (7, 8)})
    calls, at = [], 0
    for call in range(draw(st.integers(1, 4))):
        begin, submodule = at, chance.choice(("transformer", "vae"))
        for block in range(chance.randint(1, 3)):
            for number in range(chance.randint(1, 4)):
                at += chance.randint(1, 10)
                sim.execute(call, submodule, f"Block_{block}.Part_{number}", at)
            if chance.random() < 0.3:
                sim.move(call, at)
        at += 1
        calls.append(make_call(call, submodule, begin, at))
        if chance.random() < 0.3:
            sim.execute(-1, None, "Outside", at)
    run = make_run(calls, sim.commands)
    column = pl.Series("shapes", sim.texts, dtype=pl.Categorical())
    run = dataclasses.replace(run, commands=run.commands.with_columns(column))
    flops = {(op, shapes): count for op, shapes, count, _ in _OPERATIONS}
    return Known(run, sim.tallies, dict(sim.busy), flops)
