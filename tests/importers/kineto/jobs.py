"""Traces of a job's ranks with known truth: clocks that are off and drift, a straggler, collectives
of known bytes. Times are in ns of the job's own clock; each rank writes them as its clock has them.

A round is compute, then an all_reduce on another stream, half of which is under compute that goes
on; the straggler's compute is longer, so it is the last, and the others wait for it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.importers.kineto.traces import BASE_NS, Trace

__all__ = ["BYTES", "COMPUTE_NS", "HIDDEN_NS", "ROUND_NS", "TRANSFER_NS", "Job"]

COMPUTE_NS = 4_000_000
TRANSFER_NS = 2_000_000
HIDDEN_NS = 500_000  # of the transfer, by compute that begins with it
ROUND_NS = 10_000_000
BYTES = 4 << 20
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass
class Job:
    """`offsets_ns` and `drifts` say what each rank's clock has added, `launch_delay_ns` how much
    longer the compute of the `straggler` is. `told` is what kernels tell: `sequence`, `group` or
    nothing."""

    offsets_ns: tuple[int, ...] = (0, 300_000, -700_000, 45_000)
    drifts: tuple[float, ...] = ()
    rounds: int = 12
    straggler: int = 2
    launch_delay_ns: int = 1_500_000
    told: str = "sequence"
    jitter_ns: int = 0  # by which ends of collectives differ
    skipped: dict[int, tuple[int, ...]] = field(default_factory=dict)  # rounds a rank lost
    world_size: int | None = None
    devices: int = 8  # of a machine
    dtype: str = "Float"
    elements: int = BYTES // 4  # of a message

    @property
    def size(self) -> int:
        return len(self.offsets_ns)

    def begin_ns(self, number: int, rank: int) -> int:
        """When a rank begins a collective."""
        late = self.launch_delay_ns if rank == self.straggler else 0
        return number * ROUND_NS + COMPUTE_NS + late

    def end_ns(self, number: int) -> int:
        return max(self.begin_ns(number, rank) for rank in range(self.size)) + TRANSFER_NS

    def clock_us(self, rank: int, time_ns: int) -> float:
        """What the clock of a rank shows, in µs from the file's base."""
        shown = time_ns + self.offsets_ns[rank]
        if self.drifts:
            shown += round(time_ns * self.drifts[rank])
        return (shown + 1_000_000_000) / 1000

    def trace(self, rank: int) -> Trace:
        info: dict[str, Any] = {"backend": "nccl", "rank": rank}
        info["world_size"] = self.world_size or self.size
        trace = Trace(distributedInfo=info)
        for number in range(self.rounds):
            if number not in self.skipped.get(rank, ()):
                self._round(trace, number, rank)
        return trace

    def _round(self, trace: Trace, number: int, rank: int) -> None:
        device = rank % self.devices
        first, begin = number * ROUND_NS, self.begin_ns(number, rank)
        jitter = self.jitter_ns * ((rank * 7 + number * 3) % 5 - 2) // 2
        end = self.end_ns(number) + jitter

        def at(time_ns: int) -> float:
            return self.clock_us(rank, time_ns)

        trace.event("user_annotation", "forward", at(first - 100_000), at(end) - at(first) + 100)
        common = {"launched": at(first - 50_000), "device": device}
        trace.kernel("gemm", at(first), at(begin) - at(first), **common)
        trace.kernel("gemm", at(begin), HIDDEN_NS / 1000, **common)
        args = self._args(number)
        trace.kernel(ALL_REDUCE, at(begin), at(end) - at(begin), stream=20, **common, **args)

    def _args(self, number: int) -> dict[str, Any]:
        if not self.told:
            return {}
        told: dict[str, Any] = {
            "Collective name": "allreduce",
            "In msg nelems": self.elements,
            "Out msg nelems": self.elements,
            "Group size": self.size,
            "dtype": self.dtype,
            "Process Group Name": "0",
            "Process Group Ranks": json.dumps(list(range(self.size))),
        }
        return {**told, "Seq": number} if self.told == "sequence" else told

    def write(self, folder: Path) -> list[Path]:
        """A file a rank, in a folder of their own."""
        folder.mkdir(parents=True, exist_ok=True)
        return [self.trace(rank).write(folder, f"rank{rank}.json") for rank in range(self.size)]

    def true_begin_ns(self, number: int, rank: int) -> int:
        """When a collective begins on the run's clock, which is that of rank 0."""
        return BASE_NS + 1_000_000_000 + self.begin_ns(number, rank)
