"""Stage, step and branch of each call of a section, from the order in which things ran.

- `denoise` begins with the first call of a module that runs between scheduler steps (with a
  single step: of the module called last before it) and ends with the last step;
- before it is `encode`, after it `decode`;
- the step of a call is the number of scheduler steps that have ended before it.

Without scheduler frames the module called most often is the denoiser and each of its calls one
step; `Staging.steps_from` says so. What is no diffusion has one stage, `run`, and no steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass

from msgspec import Struct

from profiler.events import NO_ITERATION, NO_STEP, RUN_STAGE, Span
from profiler.importers.kineto.branches import BatchOf, branches_of
from profiler.importers.kineto.calls import CallRange, Ran, Section
from profiler.importers.kineto.iterations import iterations_by_module
from profiler.importers.kineto.names import (
    SubmoduleNames,
    is_controlnet,
    is_decoder,
    is_denoiser,
    is_encoder,
    tells_of_diffusion,
)
from profiler.trace.manifest_fields import StepsFrom

__all__ = ["PlacedCall", "Staging", "stage_section"]


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """A call and what it is for, in the words of `profiler.events.Call`."""

    range: CallRange
    submodule: str
    stage: str
    step: int
    branch: str
    iteration: int = NO_ITERATION


class Staging(Struct, frozen=True):
    """A section parted: its calls, and the times that part it into stages and steps.

    `steps_from` is None without a denoiser. `stages` are (stage,
    begin, end) and tile the section; `loop_start_ns` is -1 where nothing denoises;
    `step_ends_ns` are the ends of step 0, 1, …
    """

    section: Section
    calls: tuple[PlacedCall, ...]
    steps_from: StepsFrom | None
    stages: tuple[tuple[str, int, int], ...]
    loop_start_ns: int
    step_ends_ns: tuple[int, ...]

    def spans(self) -> list[Span]:
        """Pipeline, stages and steps, outer before inner; the stages tile the pipeline."""
        section = self.section
        length = section.end_ns - section.start_ns
        spans = [Span("pipeline", section.name, "", NO_STEP, section.start_ns, length)]
        for stage, begin, end in self.stages:
            spans.append(Span("stage", stage, stage, NO_STEP, begin, end - begin))
        begin = self.loop_start_ns
        for step, end in enumerate(self.step_ends_ns):
            spans.append(Span("step", f"step {step}", "denoise", step, begin, end - begin))
            begin = end
        return spans

    def stage_at(self, time_ns: int) -> str:
        """The stage in which `time_ns` lies, "" outside the section."""
        return next((stage for stage, begin, end in self.stages if begin <= time_ns < end), "")

    def step_at(self, time_ns: int) -> int:
        """The step in which `time_ns` lies, `NO_STEP` outside the denoising loop."""
        step = bisect_right(self.step_ends_ns, time_ns)
        looping = 0 <= self.loop_start_ns <= time_ns
        return step if looping and step < len(self.step_ends_ns) else NO_STEP


def stage_section(section: Section, names: SubmoduleNames, batch_of: BatchOf) -> Staging:
    """Part a section into stages and steps and place its calls in them."""
    if not _is_diffusion(section):
        return _one_stage(section, names)
    calls = section.calls
    loop = _loop_instances(section)
    first = next((i for i, call in enumerate(calls) if call.instance in loop), len(calls))
    step_ends = _step_ends(section, loop, first)
    last = _last_of_loop(calls, loop, step_ends)
    stages = [
        _stage(index, first, last) if loop else _stage_by_class(call)
        for index, call in enumerate(calls)
    ]
    placed = _place(section, stages, step_ends, names, batch_of)
    begins = _loop_begins(section, first, last, step_ends) if loop else _begins(section, stages)
    return Staging(
        section=section,
        calls=placed,
        steps_from=_steps_from(section) if loop else None,
        stages=_tiles(section, begins),
        loop_start_ns=calls[first].start_ns if loop else -1,
        step_ends_ns=tuple(step_ends),
    )


def _steps_from(section: Section) -> StepsFrom:
    return StepsFrom.SCHEDULER if section.steps else StepsFrom.CALL_ORDER


def _is_diffusion(section: Section) -> bool:
    """Whether anything in it tells of diffusion: a noise scheduler, prompts, a class."""
    told = bool(section.steps or section.prompts)
    return told or any(call.guessed or tells_of_diffusion(call) for call in section.calls)


def _one_stage(section: Section, names: SubmoduleNames) -> Staging:
    """A section that is no diffusion."""
    placed = [
        PlacedCall(call, names.name(call, "class"), RUN_STAGE, NO_STEP, "", iteration)
        for call, iteration in zip(section.calls, iterations_by_module(section.calls), strict=True)
    ]
    stages = ((RUN_STAGE, section.start_ns, section.end_ns),)
    return Staging(section, tuple(placed), None, stages, loop_start_ns=-1, step_ends_ns=())


def _loop_instances(section: Section) -> set[str]:
    """The modules that the denoising loop calls: denoiser, ControlNet; empty without a loop."""
    calls = _candidates(section)
    if section.steps:
        first, last = section.steps[0], section.steps[-1]
        loop = {call.instance for call in calls if first[1] <= call.start_ns < last[0]}
        before = [call for call in calls if call.start_ns < first[0]]
        if not loop and before:
            loop = {before[-1].instance}
            loop |= {call.instance for call in before if is_controlnet(call)}
        return loop
    counts = Counter(call.instance for call in calls)
    most = max(counts.values(), default=0)
    often = {instance for instance, count in counts.items() if count == most}
    if most > 1 or len(often) == 1:
        return often
    return {call.instance for call in calls if is_denoiser(call)}


def _candidates(section: Section) -> list[CallRange]:
    """Calls that may be of the loop: neither encoders nor decoders, as far as classes tell."""
    ran = [call for call in section.calls if call.ran is Ran.EXECUTED]
    rest = [call for call in ran if not is_decoder(call)]
    return [call for call in rest if not is_encoder(call)] or (rest if section.steps else [])


def _step_ends(section: Section, loop: set[str], first: int) -> list[int]:
    """When each step ended. Work of the loop after the last scheduler step is one more step."""
    in_loop = [call for call in section.calls[first:] if call.instance in loop]
    if not in_loop:
        return []
    if not section.steps:
        return _closings(in_loop)
    ends = sorted(end for _, end in section.steps if end > in_loop[0].start_ns)
    if not ends or in_loop[-1].start_ns >= ends[-1]:
        ends.append(in_loop[-1].end_ns)
    return ends


def _closings(in_loop: list[CallRange]) -> list[int]:
    """When steps ended without a scheduler: with each call of the denoiser, or with the second of
    those that share a step."""
    closing = [call.instance for call in in_loop if is_denoiser(call)]
    closing = closing or list(dict.fromkeys(call.instance for call in in_loop))
    closers = [
        call for call in in_loop if call.instance == closing[-1] and call.ran is Ran.EXECUTED
    ]
    followed = [*(later.same_step for later in closers[1:]), False]
    return sorted(call.end_ns for call, more in zip(closers, followed, strict=True) if not more)


def _last_of_loop(calls: list[CallRange], loop: set[str], step_ends: list[int]) -> int:
    """The index of the last call of the loop, -1 without one."""
    inside = [
        index
        for index, call in enumerate(calls)
        if step_ends and (call.instance in loop or call.start_ns < step_ends[-1])
    ]
    return inside[-1] if inside else -1


def _stage(index: int, first: int, last: int) -> str:
    if index < first:
        return "encode"
    return "denoise" if index <= last else "decode"


def _stage_by_class(call: CallRange) -> str:
    if is_encoder(call):
        return "encode"
    return "decode" if is_decoder(call) else "denoise"


def _loop_begins(
    section: Section, first: int, last: int, step_ends: list[int]
) -> list[tuple[str, int]]:
    """When the stages around a loop begin: denoise once all prompts are encoded, decode after the
    last step."""
    calls = section.calls
    loop_start = calls[first].start_ns
    encoded = [end for start, end in section.prompts if start < loop_start]
    if encoded:
        encoded += [call.end_ns for call in calls[:first]]
    denoise = max(min(max(encoded, default=loop_start), loop_start), section.start_ns)
    decode = max(step_ends[-1], calls[last].end_ns)
    return [("encode", section.start_ns), ("denoise", denoise), ("decode", decode)]


def _begins(section: Section, stages: list[str]) -> list[tuple[str, int]]:
    """Without a loop a stage begins with the first of successive calls of that stage."""
    found: list[tuple[str, int]] = []
    for call, stage in zip(section.calls, stages, strict=True):
        if not found or found[-1][0] != stage:
            found.append((stage, call.start_ns if found else section.start_ns))
    return found


def _tiles(section: Section, begins: list[tuple[str, int]]) -> tuple[tuple[str, int, int], ...]:
    """Stages with begin and end, without those of no length."""
    ends = [begin for _, begin in begins[1:]] + [section.end_ns]
    tiles = [(stage, begin, end) for (stage, begin), end in zip(begins, ends, strict=True)]
    return tuple(tile for tile in tiles if tile[2] > tile[1])


def _place(
    section: Section,
    stages: list[str],
    step_ends: list[int],
    names: SubmoduleNames,
    batch_of: BatchOf,
) -> tuple[PlacedCall, ...]:
    steps = [
        bisect_right(step_ends, call.start_ns) if stage == "denoise" else NO_STEP
        for call, stage in zip(section.calls, stages, strict=True)
    ]
    submodules = [
        names.name(call, _structural_role(section, call, stage) if step_ends else "")
        for call, stage in zip(section.calls, stages, strict=True)
    ]
    branches = branches_of(section, stages, steps, submodules, batch_of)
    return tuple(
        PlacedCall(*row)
        for row in zip(section.calls, submodules, stages, steps, branches, strict=True)
    )


def _structural_role(section: Section, call: CallRange, stage: str) -> str:
    """What the place of a call in a pipeline says it is: the stage's usual submodule, or ""."""
    if stage != "denoise" and not section.steps:  # a repeated module alone is no evidence
        return ""
    if stage == "encode" and section.prompts:
        inside = any(begin <= call.start_ns < end for begin, end in section.prompts)
        return "text_encoder" if inside else ""
    return {"encode": "text_encoder", "denoise": "denoiser", "decode": "vae"}[stage]
