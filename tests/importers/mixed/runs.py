"""One run that several recorders saw, with known truth: what was executed, in ns from its begin,
written as each of them writes it, on a clock that is off by a known time.

    run = Run()
    run.kineto(folder, off_ns=40_000)
    run.nsys(folder)
    run.onnxruntime(folder)

Two encoder calls and four steps launch six kernels each; then a session of ONNX Runtime decodes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tests.importers.kineto.traces import Trace
from tests.importers.nsys.generated import Call, Kernel, Metric, Range, export
from tests.importers.rocprofv3 import generated as rocprofv3

EPOCH_NS = 1_790_000_000_000_000_000
"""Of the run's begin: a whole second."""
CALLS = ("text_encoder", "text_encoder_2", *["transformer"] * 4)
NODES = 5
KERNELS = tuple(f"void {name}<float>(float*)" for name in ("gemm", "softmax", "norm"))
_NODE_NS = 2_000_000


@dataclass(frozen=True)
class Work:
    """A kernel that the host asked for at `launched`."""

    name: str
    launched: int
    start: int
    end: int


@dataclass(frozen=True)
class Run:
    """`begin_ns` is when it began, from 1970; no two of its kernels begin equally far apart unless
    it is `even`. They take 0.2 ms, `slow` times as much."""

    begin_ns: int = EPOCH_NS
    seed: int = 7
    even: bool = False
    slow: int = 1

    @property
    def works(self) -> list[Work]:
        found, at = [], 1_000_000
        for number in range(6 * len(CALLS)):
            more = 0 if self.even else 1_000 * ((number * number * self.seed) % 31)
            end = at + 30_000 + 200_000 * self.slow + more
            found.append(Work(KERNELS[number % 3], at, at + 30_000, end))
            at = end + 20_000
        return found

    @property
    def busy_ns(self) -> int:
        """What the GPU worked."""
        return sum(work.end - work.start for work in self.works)

    @property
    def decode_ns(self) -> int:
        """When the session's only run begins."""
        return self.works[-1].end + 500_000

    def ranges(self) -> list[tuple[str, int, int]]:
        """Name, begin and end of each call on the host."""
        works = self.works
        groups = [works[6 * number : 6 * number + 6] for number in range(len(CALLS))]
        return [
            (name, own[0].launched - 10_000, own[-1].end + 5_000)
            for name, own in zip(CALLS, groups, strict=True)
        ]

    def later(self, ns: int) -> Run:
        return replace(self, begin_ns=self.begin_ns + ns)

    def kineto(self, folder: Path, name: str = "torch.json", *, off_ns: int = 0, some=slice(None)):
        """As torch.profiler writes it; `some` of the kernels."""
        base = self.begin_ns + off_ns
        trace = Trace(baseTimeNanoseconds=base, record_shapes=1)
        for text, start, end in self.ranges():
            trace.event("user_annotation", text, start / 1000, (end - start) / 1000)
        for work in self.works[some]:
            length = (work.end - work.start) / 1000
            shapes = {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}
            external = trace.op("aten::mm", work.launched / 1000 - 2, 9, **shapes)
            trace.kernel(
                work.name,
                work.start / 1000,
                length,
                launched=work.launched / 1000,
                external=external,
            )
        return trace.write(folder, name)

    def nsys(
        self,
        folder: Path,
        name: str = "report.sqlite",
        *,
        off_ns=0,
        utc=True,
        ranges=True,
        says=str,
    ):
        """As Nsight Systems exports it, from its session's begin 5 ms before the run's; `says`
        gives kernels other names."""
        session = 5_000_000
        rows: list[object] = []
        for number, work in enumerate(self.works, 1):
            rows.append(Kernel(work.start + session, work.end + session, number, says(work.name)))
            called = work.launched + session
            rows.append(Call(called, called + 1_000, number))
        if ranges:
            rows += [Range(a + session, b + session, text) for text, a, b in self.ranges()]
        rows += [Metric(session + 1_000_000 * at, 50 + at) for at in range(5)]
        begun = self.begin_ns + off_ns - session if utc else None
        return export(folder, rows, utc=begun).rename(folder / name)

    def rocprofv3(
        self, folder: Path, name: str = "made_results.json", *, since_ns=10**12, some=slice(None)
    ):
        """As rocprofv3 writes it, from the machine's start."""
        works = enumerate(self.works[some], 1)
        kernels = [
            rocprofv3.Kernel(w.start + since_ns, w.end + since_ns, number, w.name)
            for number, w in works
        ]
        return rocprofv3.as_json(rocprofv3.Told(kernels), folder, name)

    def session(self, folder: Path):
        """As ONNX Runtime writes a session whose runs launch the kernels of all calls."""
        events = []
        for _, start, end in self.ranges():
            args = {"op_name": "MatMul", "provider": "CUDAExecutionProvider"}
            events.append(_event("mm_kernel_time", start + 1_000, 5_000, "Node", **args))
            events.append(_event("model_run", start, end - start, "Session"))
        return self._profile(folder, "unet", events)

    def onnxruntime(self, folder: Path, *, zone_hours: int = 0, named: bool = True):
        """As ONNX Runtime writes it, on the clock of the file's name."""
        events = []
        for number in range(NODES):
            start = self.decode_ns + number * _NODE_NS
            args = {"op_name": "Conv", "provider": "CPUExecutionProvider"}
            name = f"conv_{number}_kernel_time"
            events.append(_event(name, start, _NODE_NS - 100_000, "Node", **args))
        events.append(_event("model_run", self.decode_ns, NODES * _NODE_NS, "Session"))
        return self._profile(folder, "vae_decoder", events, zone_hours, named=named)

    def _profile(self, folder: Path, name: str, events, zone_hours=0, *, named=True):
        local = datetime.fromtimestamp(self.begin_ns // 10**9 + 3600 * zone_hours, UTC)
        stem = f"{name}_{local:%Y-%m-%d_%H-%M-%S}_000" if named else name
        path = folder / f"{stem}.json"
        path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
        return path


def _event(name: str, start_ns: int, length_ns: int, cat: str, **args: str) -> dict[str, object]:
    times = {"ts": start_ns // 1000, "dur": length_ns // 1000}
    return {"cat": cat, "pid": 7, "tid": 1, "ph": "X", "name": name, "args": args, **times}
