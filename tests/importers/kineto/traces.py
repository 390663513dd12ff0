"""Small torch.profiler traces, written by hand: times in µs from the trace's base."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from profiler.importers import import_trace
from profiler.run import Run
from profiler.tools.sources import load

BASE_NS = 1_700_000_000_000_000_000
PIPELINE = "diffusers/pipelines/flux/pipeline_flux.py(600): __call__"
ENCODE_PROMPT = "diffusers/pipelines/flux/pipeline_flux.py(300): encode_prompt"
STEP = "diffusers/schedulers/scheduling_flow_match_euler_discrete.py(425): step"
DECODE = "diffusers/models/autoencoders/autoencoder_kl.py(213): decode"


class Trace:
    """Collects events of one process and writes them as Kineto does."""

    def __init__(self, **header: Any) -> None:
        self.header: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, **header}
        self.events: list[dict[str, Any]] = []
        self._ids = 0

    def event(self, cat: str, name: str, start: float, length: float, **args: Any) -> None:
        tid = args.pop("tid", 1)
        pid = args.pop("pid", 1)
        times = {"ts": start, "dur": length}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args}
        )

    def frame(self, name: str, start: float, length: float, tid: int = 1) -> None:
        self.event("python_function", name, start, length, tid=tid)

    def module(self, instance: str, start: float, length: float, tid: int = 1) -> None:
        self.frame(f"nn.Module: {instance}", start, length, tid)

    def op(self, name: str, start: float, length: float, tid: int = 1, **args: Any) -> int:
        """An operator; returns its external id."""
        self._ids += 1
        self.event("cpu_op", name, start, length, tid=tid, **{"External id": self._ids}, **args)
        return self._ids

    def kernel(
        self,
        name: str,
        start: float,
        length: float,
        *,
        launched: float | None = None,
        external: int | None = None,
        tid: int = 1,
        cat: str = "kernel",
        device: int = 0,
        stream: int = 7,
        **args: Any,
    ) -> None:
        """Device work and, where `launched` says when, the runtime call behind it."""
        self._ids += 1
        place: dict[str, Any] = {"device": device, "stream": stream, **args}
        if external is not None:
            place["External id"] = external
        if launched is not None:
            place["correlation"] = self._ids
            runtime = "cudaLaunchKernel" if cat == "kernel" else "cudaMemcpyAsync"
            self.event("cuda_runtime", runtime, launched, 1, tid=tid, correlation=self._ids)
        self.event(cat, name, start, length, pid=device, tid=stream, **place)

    def thread(self, name: str, tid: int = 1) -> None:
        args = {"name": name}
        self.events.append(
            {"ph": "M", "name": "thread_name", "ts": 0, "pid": 1, "tid": tid, "args": args}
        )

    def document(self) -> dict[str, Any]:
        return {**self.header, "traceEvents": self.events}

    def write(self, folder: Path, name: str = "trace.json") -> Path:
        path = folder / name
        text = json.dumps(self.document()).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return path

    def imported(self, folder: Path) -> Run:
        """The run that the importer makes of the trace."""
        return load(import_trace(self.write(folder), folder / "traces"))


def flux(guided: bool = False) -> Trace:
    """A pipeline with two encoders, two steps and a VAE; `guided` calls the transformer twice."""
    trace = Trace()
    trace.frame(PIPELINE, 0, 1000)
    trace.frame(ENCODE_PROMPT, 10, 90)
    trace.module("CLIPTextModel_0", 20, 20)
    trace.module("T5EncoderModel_0", 50, 40)
    for begin in (150, 350):
        trace.module("FluxTransformer2DModel_0", begin, 60)
        if guided:
            trace.module("FluxTransformer2DModel_0", begin + 70, 60)
        trace.frame(STEP, begin + 140, 10)
    trace.frame(DECODE, 600, 300)
    trace.module("Decoder_0", 610, 280)
    return trace


def calls(run: Run) -> list[tuple[str, str, str | None, int]]:
    """Submodule, stage, branch and step of each call."""
    return run.calls.select("submodule", "stage", "branch", "step").rows()
