"""One call of a pipeline on the timeline: the moments that part it into stages and steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from profiler.events import NO_PIPELINE, NO_STEP, RUN_STAGE, STAGES, Span, SpanKind
from profiler.trace.manifest_fields import Setting
from profiler.trace.manifest_settings import Generation, SubmoduleSettings

__all__ = ["PipelineCall", "nothing", "number_of"]


def nothing() -> None:
    """Do nothing."""


@dataclass(slots=True, eq=False)
class PipelineCall:
    """One call of the pipeline, `number` as in `events.Call`. `outer` is the pipeline call in which
    it runs, `inner` are those that ran in it; `-1` stands for moments that were not reached.
    `settings` are the numbers and switches that it was given, `submodules` how its submodules were
    set up when it began, `generation` is what it made."""

    name: str
    start_ns: int
    number: int = NO_PIPELINE
    end_ns: int = -1
    outer: PipelineCall | None = None
    inner: list[PipelineCall] = field(default_factory=list)
    encode_end_ns: int = -1  # end of encode_prompt and of every call of the encode stage
    step_ends_ns: list[tuple[int, int]] = field(default_factory=list)  # (step, end)
    loop_start_ns: int = -1  # begin of the first denoiser call
    decoding: bool = False  # a call of the decode stage has begun
    hooks_ns: int = 0  # in the profiler's own code, while it ran
    around_ns: int = 0  # in the profiler's own code, ahead of its begin and behind its end
    failed: bool = False  # ended with an exception: the stage that was running is its last
    settings: dict[str, Setting] = field(default_factory=dict)
    submodules: dict[str, SubmoduleSettings] = field(default_factory=dict)
    generation: Generation | None = None
    before_end: Callable[[], object] = nothing  # what is to be known when it has ended
    is_run: bool = False  # it has the stage `run` alone

    def begin_call(self, stage: str, start_ns: int) -> None:
        """A submodule call of `stage` begins."""
        if stage == "denoise" and self.loop_start_ns < 0:
            self.loop_start_ns = start_ns
        if stage == "decode":
            self.decoding = True

    def end_call(self, stage: str, end_ns: int) -> None:
        """A submodule call of `stage` has returned."""
        if stage == "encode":
            self.end_encoding(end_ns)

    def place_call(self, stage: str, start_ns: int, end_ns: int) -> None:
        """A submodule call that has returned turns out to be of `stage`."""
        if stage == RUN_STAGE:
            self.is_run = True
        elif stage == "denoise":
            begun = self.loop_start_ns >= 0
            self.loop_start_ns = min(self.loop_start_ns, start_ns) if begun else start_ns
        elif stage == "decode":
            self.decoding = True
        elif self.loop_start_ns < 0 or end_ns <= self.loop_start_ns:
            self.encode_end_ns = max(self.encode_end_ns, end_ns)

    def end_encoding(self, end_ns: int) -> None:
        """What belongs to the encode stage has ended; later than the loop's begin it is none."""
        if self.loop_start_ns < 0:
            self.encode_end_ns = end_ns

    def end_step(self, step: int, end_ns: int) -> None:
        """A scheduler step has ended: the denoising step that it closes."""
        self.step_ends_ns.append((step, end_ns))

    def total_hooks_ns(self) -> int:
        """Time in the profiler's own code, that of inner pipeline calls included."""
        inner_ns = sum(call.total_hooks_ns() for call in self.inner)
        return self.hooks_ns + self.around_ns + inner_ns

    def spans(self) -> list[Span]:
        """Pipeline, stages and steps, outer before inner; the stages tile the pipeline.

        A pipeline that only runs other pipelines has their stages and steps.
        """
        pipeline = self._span("pipeline", self.name, "", NO_STEP, self.start_ns, self.end_ns)
        return [pipeline, *self._parts(self.start_ns, self.end_ns)]

    def _parts(self, start_ns: int, end_ns: int) -> list[Span]:
        """Stages and steps; the first stage begins at `start_ns`, the last ends at `end_ns`."""
        if self.inner and self.loop_start_ns < 0 and self.encode_end_ns < 0:
            borders = [start_ns, *(call.end_ns for call in self.inner[:-1]), end_ns]
            return [
                span
                for call, begin, end in zip(self.inner, borders, borders[1:], strict=False)
                for span in call._parts(begin, end)  # noqa: SLF001 - of its own class
            ]
        if self.is_run:
            return [self._span("stage", RUN_STAGE, RUN_STAGE, NO_STEP, start_ns, end_ns)]
        spans = []
        borders = [start_ns, *self.stage_borders_ns(), end_ns]
        for stage, begin, end in zip(STAGES, borders, borders[1:], strict=False):
            if end > begin:
                spans.append(self._span("stage", stage, stage, NO_STEP, begin, end))
        begin = self.loop_start_ns if self.loop_start_ns >= 0 else borders[1]
        for step, end in self.step_ends_ns:
            spans.append(self._span("step", f"step {step}", "denoise", step, begin, end))
            begin = end
        return spans

    def _span(
        self, kind: SpanKind, name: str, stage: str, step: int, begin_ns: int, end_ns: int
    ) -> Span:
        return Span(kind, name, stage, step, begin_ns, end_ns - begin_ns, self.number)

    def stage_borders_ns(self) -> tuple[int, int]:
        """Ends of encode and denoise. Encoding ends with `encode_prompt` and the last call of
        its stage; denoising with the last scheduler step. What was never reached has no length."""
        unfinished = self.failed and not self.decoding
        encode_end = self.encode_end_ns
        if encode_end < 0 or (unfinished and self.loop_start_ns < 0):
            encode_end = self.loop_start_ns if self.loop_start_ns >= 0 else self.end_ns
        denoise_end = self.step_ends_ns[-1][1] if self.step_ends_ns else encode_end
        if self.loop_start_ns >= 0 and (unfinished or not self.step_ends_ns):
            denoise_end = self.end_ns
        return encode_end, max(denoise_end, encode_end)


def number_of(pipeline: PipelineCall | None) -> int:
    """The number of a pipeline call, `NO_PIPELINE` for none."""
    return NO_PIPELINE if pipeline is None else pipeline.number
