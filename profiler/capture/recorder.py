"""What happened in a run, noted while it runs: cheap to write, turned into a bundle afterwards.

The recorder knows nothing of torch, ONNX Runtime or files. Whoever wraps a pipeline tells it when
pipelines, calls and host work begin and end; it answers with `Recording`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from profiler.capture.clock import Clock
from profiler.events import NO_STEP, Call, Span

__all__ = ["HostWork", "Invocation", "PipelineCall", "Recorder"]


@dataclass(slots=True)
class Invocation:
    """One submodule invocation, from its begin on. `session_run` is the ordinal of the run of
    the submodule's session that executed it, -1 where no session traced it."""

    submodule: str
    stage: str
    branch: str
    step: int
    device: str
    input_shapes: Mapping[str, str]
    start_ns: int
    end_ns: int = -1
    ops_traced: bool = False


@dataclass(slots=True)
class HostWork:
    """A piece of work of the pipeline itself, on the root device, outside every call."""

    name: str
    start_ns: int
    end_ns: int = -1
    stage: str = ""
    step: int = NO_STEP


@dataclass(slots=True)
class PipelineCall:
    """One call of the pipeline and the moments that part it into stages and steps."""

    name: str
    start_ns: int
    end_ns: int = -1
    encode_end_ns: int = -1
    step_ends_ns: list[tuple[int, int]] = field(default_factory=list)  # (step, end)
    loop_start_ns: int = -1  # begin of the first denoiser call
    decoding: bool = False  # a call of the decode stage has begun
    failed: bool = False  # ended with an exception: the stage that was running is its last

    def spans(self) -> list[Span]:
        """Pipeline, stages and steps, outer before inner; the stages tile the pipeline."""
        spans = [Span("pipeline", self.name, "", NO_STEP, self.start_ns, self._length())]
        borders = [self.start_ns, *self._borders(), self.end_ns]
        for stage, begin, end in zip(
            ("encode", "denoise", "decode"), borders, borders[1:], strict=False
        ):
            if end > begin:
                spans.append(Span("stage", stage, stage, NO_STEP, begin, end - begin))
        begin = self.loop_start_ns if self.loop_start_ns >= 0 else borders[1]
        for step, end in self.step_ends_ns:
            spans.append(Span("step", f"step {step}", "denoise", step, begin, end - begin))
            begin = end
        return spans

    def _length(self) -> int:
        return self.end_ns - self.start_ns

    def _borders(self) -> tuple[int, int]:
        """Ends of encode and denoise. Encoding ends with `encode_prompt`; denoising with the
        last scheduler step. What was never reached has no length."""
        encode_end = self.encode_end_ns
        if encode_end < 0:
            encode_end = self.loop_start_ns if self.loop_start_ns >= 0 else self.end_ns
        denoise_end = self.step_ends_ns[-1][1] if self.step_ends_ns else encode_end
        unfinished = self.failed and not self.decoding
        if self.loop_start_ns >= 0 and (unfinished or not self.step_ends_ns):
            denoise_end = self.end_ns
        return encode_end, max(denoise_end, encode_end)

    def stage_at(self, time_ns: int) -> str:
        """The stage in which `time_ns` lies, once the pipeline has ended."""
        encode_end, denoise_end = self._borders()
        if time_ns < encode_end:
            return "encode"
        return "denoise" if time_ns < denoise_end else "decode"

    def step_at(self, time_ns: int) -> int:
        """The step in which `time_ns` lies, `NO_STEP` outside the denoising loop."""
        begin = self.loop_start_ns
        for step, end in self.step_ends_ns:
            if begin <= time_ns < end:
                return step
            begin = end
        return NO_STEP


class Recorder:
    """Collects one run. `recording` is off during warm-up: nothing is kept then."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.recording = True
        self.hooks_ns = 0  # spent in our own code inside the pipeline
        self.settings: dict[str, Any] = {}  # numbers that the last pipeline call was given
        self.pipelines: list[PipelineCall] = []
        self.invocations: list[Invocation] = []
        self.host_work: list[HostWork] = []
        self._open: PipelineCall | None = None

    @property
    def pipeline(self) -> PipelineCall | None:
        """The pipeline call that is running."""
        return self._open

    def begin_pipeline(self, name: str) -> None:
        self._open = PipelineCall(name, self.clock.now_ns())

    def end_pipeline(self, *, failed: bool = False) -> None:
        pipeline, self._open = self._open, None
        if pipeline is None:
            return
        pipeline.failed = failed
        pipeline.end_ns = self.clock.now_ns()
        if self.recording:
            self.pipelines.append(pipeline)

    def begin_call(self, invocation: Invocation) -> None:
        if self.recording:
            self.invocations.append(invocation)
        pipeline = self._open
        denoising = invocation.stage == "denoise"
        if pipeline is not None and denoising and pipeline.loop_start_ns < 0:
            pipeline.loop_start_ns = invocation.start_ns
        if pipeline is not None and invocation.stage == "decode":
            pipeline.decoding = True

    def add_host_work(self, name: str, start_ns: int, end_ns: int) -> None:
        if self.recording:
            self.host_work.append(HostWork(name, start_ns, end_ns))

    def end_step(self, step: int) -> None:
        """A scheduler step has ended: the denoising step it closes."""
        if self._open is not None:
            self._open.step_ends_ns.append((step, self.clock.now_ns()))

    def finished(self) -> list[Invocation]:
        """Invocations that returned, in the order of their start."""
        return sorted((i for i in self.invocations if i.end_ns >= 0), key=lambda i: i.start_ns)

    def calls(self) -> list[Call]:
        """The calls of `finished`, in its order."""
        return [
            Call(
                index=index,
                submodule=i.submodule,
                stage=i.stage,
                branch=i.branch,
                step=i.step,
                device=i.device,
                start_ns=i.start_ns,
                duration_ns=i.end_ns - i.start_ns,
                ops_traced=i.ops_traced,
                input_shapes=i.input_shapes,
            )
            for index, i in enumerate(self.finished())
        ]

    def spans(self) -> list[Span]:
        return [span for pipeline in self.pipelines for span in pipeline.spans()]

    def placed_host_work(self) -> list[HostWork]:
        """Host work with the stage and step in which it began."""
        for work in self.host_work:
            for pipeline in self.pipelines:
                if pipeline.start_ns <= work.start_ns < pipeline.end_ns:
                    work.stage = pipeline.stage_at(work.start_ns)
                    work.step = pipeline.step_at(work.start_ns)
        return self.host_work
