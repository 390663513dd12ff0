"""Pipeline calls on a GPU that works through a queue, simulated: what they take is known.

The host launches kernels one after the other, each 2 us before it may begin; it waits for the
device where a call says so, and at the end, unless the pipeline call returns before. A run of it,
and the truth of a changed one, come from the same few lines. `Machine` says how long a kernel in
the queue stays behind the one before it, and by how much the host is slower while it is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from profiler.run import FLOWS, Run, schema
from profiler.trace import RunInfo
from tests.runs import Command, make_call, make_info, make_run, make_span

__all__ = ["Machine", "QueuedCall", "QueuedPipeline", "Simulated"]

_LATENCY, _LAUNCH, _BETWEEN = 2_000, 1_000, 10_000
_WARM = make_info(producer="test", warmup={"runs": 1})


@dataclass(frozen=True)
class QueuedCall:
    """`kernels` of `length` ns each, every fifth a tenth of that, launched `host` ns after one
    another; `waits`: for the device before it returns, `waits_first` once its first kernel is
    launched, `waits_amid` when half of them are, `waits_behind` once it has returned. `apart` is on
    another stream, held back so long by what nobody recorded. For `stalls` ns the host stands still
    when half of them are launched; before all of them it works for `ahead` ns."""

    submodule: str
    branch: str = ""
    kernels: int = 20
    host: int = 40_000
    length: int = 10_000
    waits: bool = False
    waits_first: bool = False
    waits_amid: bool = False
    waits_behind: bool = False
    apart: int = 0
    stalls: int = 0
    ahead: int = _BETWEEN

    @property
    def stops(self) -> tuple[int, ...]:
        """The kernels ahead of which it waits."""
        first, amid = self.waits_first, self.waits_amid
        return (*([1] if first else []), *([self.kernels // 2] if amid else []))


@dataclass(frozen=True)
class Machine:
    """A kernel in the queue begins `between` ns after the end of the one before it, in a graph at
    once; the host takes `pace` times as long to launch one; where it `returns` early the pipeline
    call does not wait for the device."""

    between: int = 0
    pace: float = 1.0
    returns: bool = False


@dataclass(frozen=True)
class Simulated:
    """When the host was done, and the device's span, in ns; the run that was recorded."""

    ns: int
    device_span_ns: int
    run: Run


_PLAIN = Machine()


@dataclass(frozen=True)
class QueuedPipeline:
    """Calls before the steps, of each step, after them."""

    encode: Sequence[QueuedCall]
    steps: Sequence[Sequence[QueuedCall]]
    decode: Sequence[QueuedCall]

    def with_lengths(self, submodule: str, factor: float) -> QueuedPipeline:
        """With other lengths of a submodule's kernels."""

        def of(calls: Sequence[QueuedCall]) -> list[QueuedCall]:
            return [
                replace(c, length=round(c.length * factor)) if c.submodule == submodule else c
                for c in calls
            ]

        return QueuedPipeline(of(self.encode), [of(s) for s in self.steps], of(self.decode))

    def without(self, branch: str) -> QueuedPipeline:
        """Without the calls of a branch."""

        def of(calls: Sequence[QueuedCall]) -> list[QueuedCall]:
            return [call for call in calls if call.branch != branch]

        return QueuedPipeline(of(self.encode), [of(s) for s in self.steps], of(self.decode))

    def simulated(
        self, *, graphs: bool = False, info: RunInfo = _WARM, machine: Machine = _PLAIN
    ) -> Simulated:
        """What happens; with `graphs` each call is one launch but for the kernel that it waits for
        first, where it does not wait amid."""
        at = _Running(graphs, machine)
        begun = []
        for stage, step, calls in self._phases():
            begun.append((stage, step, at.now))
            for call in calls:
                at.call(call, stage, step)
        if not machine.returns:
            at.wait(-1)
        ends = [start for _, _, start in begun[1:]] + [at.now]
        spans = [make_span("pipeline", "P", 0, at.now, pipeline=0)]
        for (stage, step, start), end in zip(begun, ends, strict=True):
            if step >= 0:
                spans.append(make_span("step", f"step {step}", start, end, step, pipeline=0))
            else:
                spans.append(make_span("stage", stage, start, end, pipeline=0))
        spans.append(make_span("stage", "denoise", begun[1][2], ends[-2], pipeline=0))
        commands = [command for command, _ in at.commands]
        run = make_run(at.calls, commands, spans, info=info)
        flows = [(launch, row) for row, (_, launch) in enumerate(at.commands) if launch >= 0]
        run = replace(run, flows=pl.DataFrame(flows, schema=schema(FLOWS), orient="row"))
        work = [c for c, launch in at.commands if launch >= 0]
        span = max(c.start + c.duration for c in work) - min(c.start for c in work)
        return Simulated(max(at.now, *at.free), span, run)

    def _phases(self) -> list[tuple[str, int, Sequence[QueuedCall]]]:
        steps = [("denoise", number, calls) for number, calls in enumerate(self.steps)]
        return [("encode", -1, self.encode), *steps, ("decode", -1, self.decode)]


class _Running:
    def __init__(self, graphs: bool, machine: Machine) -> None:
        self.graphs = graphs
        self.machine = machine
        self.now = 0
        self.free = [0, 0]
        self.calls: list = []
        self.commands: list[tuple[Command, int]] = []

    def call(self, call: QueuedCall, stage: str, step: int) -> None:
        self.now += call.ahead
        number, begin, launched, begin_graph = len(self.calls), self.now, 0, 0
        at_once = self.graphs and not call.waits_amid
        first, amid = int(call.waits_first), call.kernels // 2 if call.stalls else 0
        for kernel in range(call.kernels):
            if kernel in call.stops:
                self.wait(number)
            in_graph = at_once and kernel >= first
            if amid and kernel == amid:
                self.now = (begin_graph + _LAUNCH if at_once else self.now) + call.stalls
            if not in_graph:
                self.now += round(call.host * self.machine.pace)
                launched = self._launch(number, self.now)
                self.now += _LAUNCH
                ready = self.now - _LAUNCH + _LATENCY
            else:
                begins = kernel == first or bool(amid and kernel == amid)
                begin_graph = self.now if begins else begin_graph
                launched = self._launch(number, begin_graph) if begins else launched
                ready = begin_graph + _LATENCY
            stream = int(call.apart > 0)
            between = 0 if in_graph or not self.free[stream] else self.machine.between
            behind = self.free[stream] + between
            start = max(behind, ready, self.free[0] + call.apart if stream else 0)
            kind, length = ("k", call.length) if kernel % 5 else ("short", call.length // 10)
            self.free[stream] = start + length
            track = f"stream {stream}"
            row = Command(number, "cuda:0", track, "compute", kind, start, length, kind)
            self.commands.append((row, launched))
        self.now = begin_graph + _LAUNCH if at_once else self.now
        if call.waits:
            self.wait(number)
        place = {"stage": stage, "step": step, "branch": call.branch, "pipeline": 0}
        self.calls.append(
            make_call(number, call.submodule, begin, self.now, device="cuda:0", **place)
        )
        if call.waits_behind:
            self.wait(-1, stage, step)

    def _launch(self, number: int, at: int) -> int:
        row = Command(number, "cpu:0", "launches", "host", "cudaLaunchKernel", at, _LAUNCH)
        self.commands.append((row, -1))
        return len(self.commands) - 1

    def wait(self, number: int, stage: str = "", step: int = -1) -> None:
        end = max(self.now + _LAUNCH, *self.free)
        layer = "cudaStreamSynchronize"
        length = end - self.now
        place = (stage, step)
        row = Command(number, "cpu:0", "waits", "sync", layer, self.now, length, "", *place)
        self.commands.append((row, -1))
        self.now = end
