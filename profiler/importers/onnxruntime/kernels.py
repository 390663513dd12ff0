"""What GPUs executed, in the runs of a session: commands of the device beside the nodes that
launched them.

Builds of ONNX Runtime with CUPTI or roctracer write it as events of category `Kernel`, and from
1.13 on the node that launched each; a run is told by that, else by the time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from profiler.events import UNKNOWN, Category, Track
from profiler.kineto.names import kernel_name, queue
from profiler.ort_profiles.event import KernelEvent
from profiler.ort_profiles.nodes import NodeColumns, NodeKind
from profiler.ort_profiles.profile import ProfiledRun
from profiler.trace.columns import Int64s

__all__ = ["KernelKind", "Launched", "add_kernels"]

_SLACK = 2_000  # ns: begins and durations are cut to whole µs
_ENDS = re.compile(r"(Host|Device)(?:Array)?To(Host|Device)")  # of a copy
_COPY = re.compile(r"Mem(cpy|set)")
_NO_THREAD = 0
_NEVER = 1 << 62
_TOGETHER = 64  # runs that overlap, of which one is looked for
_NO_TRACK = Track("", "", "other")
_NO_FLOWS: Int64s = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class KernelKind(NodeKind):
    """What executions of a kernel for a node on a stream have in common."""

    track: Track = _NO_TRACK
    kernel: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Launched:
    """The runs with the kernels among their nodes, and the flows from nodes to kernels of each,
    int64 [m, 2]. `lost` kernels have no place, of `by_end` the begins are computed."""

    runs: tuple[ProfiledRun, ...]
    flows: tuple[Int64s, ...]
    lost: int = 0
    by_end: int = 0


def add_kernels(
    runs: Sequence[ProfiledRun], kernels: Sequence[KernelEvent], device_of: Callable[[str], str]
) -> Launched:
    """The runs with their kernels. `device_of` tells the device that a provider launches on, ""
    where it launches nothing."""
    if not runs or not kernels:
        return Launched(tuple(runs), (_NO_FLOWS,) * len(runs), lost=len(kernels))
    known = [kernel for kernel in kernels if kernel.duration_ns >= 0]
    by_end = _told_by_end(known)
    if by_end:
        known = [replace(one, start_ns=one.start_ns - one.duration_ns) for one in known]
    placing = _Placing(runs, device_of)
    for kernel in known:
        placing.add(kernel)
    found = [placing.run(number) for number in range(len(runs))]
    placed = sum(map(len, placing.rows))
    return Launched(
        runs=tuple(run for run, _ in found),
        flows=tuple(flows for _, flows in found),
        lost=len(kernels) - placed,
        by_end=placed if by_end else 0,
    )


def _told_by_end(kernels: Sequence[KernelEvent]) -> bool:
    """Whether times are those of ends, as ONNX Runtime wrote up to 1.9: a stream executes one
    kernel after the other, so the reading by which fewer of them overlap is the right one. Files
    that name parents are newer."""
    if any(kernel.parent for kernel in kernels):
        return False
    streams: dict[str, list[tuple[int, int]]] = {}
    for kernel in kernels:
        streams.setdefault(kernel.stream, []).append((kernel.start_ns, kernel.duration_ns))
    begins = ends = 0
    for times in streams.values():
        start, duration = np.array(sorted(times), dtype=np.int64).T
        begins += int((start[:-1] + duration[:-1] > start[1:] + _SLACK).sum())
        ends += int((start[1:] - duration[1:] < start[:-1] - _SLACK).sum())
    return ends < begins


class _Placing:
    """Gives kernels to runs: `rows` are those of each run, with their device and the row of the
    node that launched them, -1 where that is not told."""

    def __init__(self, runs: Sequence[ProfiledRun], device_of: Callable[[str], str]) -> None:
        self._runs = runs
        self._kinds: list[NodeKind] = list(runs[0].nodes.kinds)
        self._codes: dict[KernelKind, int] = {}
        self._streams: dict[str, str] = {}
        self._devices = [device_of(kind.provider) for kind in self._kinds]
        devices = sorted({device for device in self._devices if device})
        self._device = devices[0] if len(devices) == 1 else ""
        self._order = sorted(range(len(runs)), key=lambda number: runs[number].start_ns)
        self._begins = [runs[number].start_ns for number in self._order]
        self._latest = list(accumulate((_end(runs[number]) for number in self._order), max))
        self._nodes: dict[int, dict[tuple[int, str], int]] = {}
        self.rows: list[list[tuple[KernelEvent, str, int]]] = [[] for _ in runs]

    def add(self, kernel: KernelEvent) -> None:
        """Give a kernel to its run, if there is one and its device is known."""
        at = kernel.start_ns if kernel.parent is None else kernel.parent[0]
        number, row = self._run_at(at, kernel.parent)
        if number < 0:
            return
        device = self._device
        if row >= 0:
            device = self._devices[int(self._runs[number].nodes.kind[row])]
        if device:
            self.rows[number].append((kernel, device, row))

    def run(self, number: int) -> tuple[ProfiledRun, Int64s]:
        """A run with its kernels behind its nodes, and the flows between them."""
        run, rows = self._runs[number], self.rows[number]
        nodes = replace(run.nodes, kinds=self._kinds)
        if not rows:
            return replace(run, nodes=nodes), _NO_FLOWS
        launch = np.array([row for *_, row in rows])
        of_kernels = NodeColumns(
            kinds=self._kinds,
            kind=np.array(self._codes_of(number), dtype=np.int32),
            thread=np.full(len(rows), _NO_THREAD),
            start_ns=np.array([kernel.start_ns for kernel, *_ in rows]),
            duration_ns=np.array([kernel.duration_ns for kernel, *_ in rows]),
            arena_bytes=np.full(len(rows), UNKNOWN),
        )
        behind = np.arange(len(nodes), len(nodes) + len(rows))
        flows = np.stack((launch, behind), axis=1)[launch >= 0]
        return replace(run, nodes=NodeColumns.joined([nodes, of_kernels])), flows

    def _codes_of(self, number: int) -> list[int]:
        """The kinds of a run's kernels: those that one node launched are parts of its work."""
        nodes, rows = self._runs[number].nodes, self.rows[number]
        several = Counter(row for kernel, _, row in rows if _lane(kernel)[1] == "compute")
        seen: Counter[int] = Counter()
        codes = []
        for kernel, device, row in rows:
            node = self._kinds[int(nodes.kind[row])] if row >= 0 else None
            shapes = ""
            if node is not None and node.shapes.strip(" ->") and _lane(kernel)[1] == "compute":
                seen[row] += 1
                part = f" part {seen[row]}/{several[row]}" if several[row] > 1 else ""
                shapes = f"{node.shapes}{part}"
            codes.append(self._code(kernel, node, device, shapes))
        return codes

    def _run_at(self, time_ns: int, parent: tuple[int, str] | None) -> tuple[int, int]:
        """The run around a moment and the row of the parent in it; -1 for none. Of runs that
        overlap it is the one that has the parent."""
        around: list[int] = []
        place = bisect_right(self._begins, time_ns + _SLACK) - 1
        while place >= 0 and self._latest[place] >= time_ns - _SLACK and len(around) < _TOGETHER:
            run = self._runs[self._order[place]]
            if _end(run) >= time_ns - _SLACK:
                around.append(self._order[place])
            place -= 1
        for number in around:
            row = self._rows_of(number).get(parent, -1) if parent else -1
            if row >= 0:
                return number, row
        return (around[0], -1) if len(around) == 1 else (-1, -1)

    def _rows_of(self, number: int) -> dict[tuple[int, str], int]:
        """The nodes of a run by begin and name."""
        if number not in self._nodes:
            nodes = self._runs[number].nodes
            names = (kind.name for kind in nodes.each())
            pairs = zip(nodes.start_ns.tolist(), names, strict=True)
            self._nodes[number] = {pair: row for row, pair in enumerate(pairs)}
        return self._nodes[number]

    def _code(self, kernel: KernelEvent, node: NodeKind | None, device: str, shapes: str) -> int:
        lane, category = _lane(kernel)
        kind = KernelKind(
            name=node.name if node else kernel.op_type or kernel_name(kernel.name),
            op_type=kernel.op_type or (node.op_type if node else kernel_name(kernel.name)),
            provider=node.provider if node else "",
            shapes=shapes,
            track=Track(device, f"stream {self._stream(kernel.stream)}{lane}", category),
            kernel=kernel.name,
        )
        if kind not in self._codes:
            self._codes[kind] = len(self._kinds)
            self._kinds.append(kind)
        return self._codes[kind]

    def _stream(self, stream: str) -> str:
        """A stream's number: CUDA's own; addresses, as ROCm has them, are numbered."""
        if stream.isascii() and stream.isdigit() and len(stream) < 6:
            return stream
        return self._streams.setdefault(stream, str(len(self._streams)))


def _end(run: ProfiledRun) -> int:
    return run.end_ns if run.duration_ns >= 0 else _NEVER


def _lane(kernel: KernelEvent) -> tuple[str, Category]:
    ends = _ENDS.search(kernel.name)
    if ends is not None:
        return (" memcpy", "dma") if ends[1] != ends[2] else (" copy", "copy")
    return (" copy", "copy") if _COPY.search(kernel.name) else queue("kernel", kernel.name)
