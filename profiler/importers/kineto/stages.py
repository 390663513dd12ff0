"""Stage, step and guidance branch of each Kineto call, and host work between calls.

Denoising starts with the first call of a module that runs between scheduler steps and ends with
the last step. Calls before it are `encode`, calls after it `decode`. Without scheduler frames
the module called most often is the denoiser, and `Staging.steps_from` says so. Other programs
have one stage, `run`, and no steps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from operator import itemgetter

import numpy as np
from msgspec import Struct, structs

from profiler.importers.kineto.calls import (
    CallRange,
    Ran,
    Section,
    SubmoduleNames,
    call_ranges,
    guessed_call,
    is_controlnet,
    is_decoder,
    is_denoiser,
    is_encoder,
    iterations_by_module,
    parted,
    tells_of_diffusion,
)
from profiler.importers.kineto.launches import (
    Convolution,
    HostMarks,
    Part,
    Product,
    Window,
    begun,
    capture_windows,
    host_marks,
    launching_operators,
    within,
)
from profiler.importers.kineto.modules import Frames, parse_frame, plain_name
from profiler.kineto.events import Ranges
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import CommandBuilder
from profiler.trace.events import (
    HOST_TRACK,
    NO_ITERATION,
    NO_STEP,
    ROOT_DEVICE,
    RUN_STAGE,
    Span,
    Track,
)
from profiler.trace.manifest_fields import StepsFrom

# --- Which branch of guidance a call computes: prompts of encoders, conditions of the denoiser.


BatchOf = Callable[[CallRange], int]  # leading dimension of a call's inputs, 0 if unknown


def branches_of(
    section: Section, stages: list[str], steps: list[int], submodules: list[str], batch_of: BatchOf
) -> Iterator[str]:
    """The branch of each call of a section, "" for calls without branches.

    `stages`, `steps` and `submodules` are those of the section's calls, in their order. Encoders:
    the first pass is the prompt, a later one the negative prompt. Denoiser and ControlNet: a single
    call per step is `batched` if it computes both branches, else `cond`; of several calls per step
    the first is `cond` and the others `uncond`, the order in which pipelines make them.
    """
    calls = section.calls
    passes = _encoder_passes(section, stages, submodules)
    guided = any(number > 0 for number in passes.values())
    decoded = [call for call, name in zip(calls, submodules, strict=True) if name == "vae"]
    images = max(map(batch_of, decoded), default=0)
    per_step = Counter(
        (step, call.instance)
        for call, step in zip(calls, steps, strict=True)
        if step >= 0 and call.ran is Ran.EXECUTED
    )
    seen = set[tuple[int, str]]()
    for index, (call, stage, step) in enumerate(zip(calls, stages, steps, strict=True)):
        branch = ""
        if index in passes:
            branch = "negative_prompt" if passes[index] else "prompt"
        elif stage == "denoise" and not is_decoder(call) and call.ran is Ran.EXECUTED:
            key = (step, call.instance)
            branch = "uncond" if key in seen else "cond"
            # one call holds both branches if it has twice as many inputs as images decoded, or more
            # of them where the VAE takes its images one by one and the encoders saw two prompts; if
            # shapes were not recorded, if they saw two prompts
            batch = batch_of(call) if per_step[key] == 1 and images else 0
            more = guided and batch > images and batch % 2 == 0
            if per_step[key] == 1 and (batch == 2 * images or more if batch else guided):
                branch = "batched"
            seen.add(key)
        yield branch


def _encoder_passes(section: Section, stages: list[str], submodules: list[str]) -> dict[int, int]:
    """The pass of each text encoder call, by the call's index: 0 for the encoder's first, else 1.

    Passes are counted within one `encode_prompt` if it runs the encoders twice (the prompt, then
    the negative prompt), else over the whole section.
    """
    encoders = [
        index
        for index, (stage, name) in enumerate(zip(stages, submodules, strict=True))
        if stage == "encode"
        and name.startswith("text_encoder")
        and section.calls[index].ran is Ran.EXECUTED
    ]
    starts = [start for start, _ in section.prompts]
    frame = {i: bisect_right(starts, section.calls[i].start_ns) for i in encoders}
    counts = Counter((frame[i], submodules[i]) for i in encoders)
    if max(counts.values(), default=0) < 2:
        frame = dict.fromkeys(encoders, 0)
    seen = set[tuple[int, str]]()
    passes = {}
    for index in encoders:
        key = (frame[index], submodules[index])
        passes[index] = int(key in seen)
        seen.add(key)
    return passes


# --- VAE decoders among the operators of a trace without modules.
#
# A decoder starts with a convolution from 4…32 channels and ends with one to 3. Decoders of frames
# that follow each other are one: video is decoded in chunks.


_IMAGE = 3  # channels
_BETWEEN = 8  # at most, between a decoder's first, narrow convolution and the one that widens


def decoders_of(marks: HostMarks) -> list[tuple[int, int]]:
    """The time ranges of VAE decoders: from the last convolution of latents before each convolution
    to an image, to the end of that."""
    eager = [one for one in marks.convolutions if not within(one.start_ns, marks.regions)]
    embedded = marks.embedded()
    found: list[tuple[int, int]] = []
    chunk_before = False  # whether the last decoder made frames, and nothing started since
    begin: int | None = None
    for place, one in enumerate(eager):
        if one.embeds_latents:
            begin = _first(marks, eager, place)
            chunk_before &= begin == one.start_ns
        elif one.results == _IMAGE and begin is not None:
            end = marks.laid_out(one.end_ns)
            since = found[-1][1] if found else begin
            begun_since = bisect_left(embedded, since) < bisect_left(embedded, begin)
            if chunk_before and one.video and not begun_since:
                found[-1] = (found[-1][0], end)
            else:
                found.append((begin, end))
            chunk_before, begin = one.video, None
    return found


def _first(marks: HostMarks, convolutions: Sequence[Convolution], place: int) -> int:
    """When a decoder started: with a convolution from latents to latents if one is directly before
    the one that widens them (`place`), else with that."""
    one = convolutions[place]
    if place:
        before = convolutions[place - 1]
        narrow = before.channels == before.results == one.channels
        if narrow and marks.launching(before.end_ns, one.start_ns) <= _BETWEEN:
            return before.start_ns
    return one.start_ns


# --- Denoisers among the operators of a trace without modules.
#
# A denoiser starts by embedding latents: a convolution from 4…32 channels, or a product of 64 rows
# or more that widens 16…128 features eight times; it ends where as many come out again. If nothing
# embeds latents around all that `torch.compile` compiled, its outermost regions are the denoiser.


_MANY_CONVOLUTIONS = 10  # of a UNet; a transformer has one, of its patches
_PRODUCTS_OF_A_BLOCK = 12
"""If two products that embed latents have at least this many matrix products between them, there is
a denoiser block between them. FLUX's blocks have fourteen if text and image are separate; embedding
the other inputs and the condition of a ControlNet (timestep, guidance and pooled text by two
products each, the text by one) takes seven."""


def denoisers_of(
    marks: HostMarks, decoders: Sequence[tuple[int, int]], edges: Sequence[int]
) -> list[Part]:
    """The calls of denoisers: from the embedding of latents to where as many features come out, or
    to the next start. If compiled regions before the last decoder are outside of these, the regions
    are the denoisers."""
    begins = _embedding_latents(marks, decoders)
    others = (begin for begin, _ in (*decoders, *marks.embeddings))
    stops = sorted([*(one.start_ns for one in begins), *others, *edges])
    found = []
    for one in begins:
        place = bisect_right(stops, one.start_ns)
        limit = stops[place] if place < len(stops) else marks.end_ns + 1
        end = _come_out(marks, one, limit)
        found.append(Part(one.start_ns, end or marks.last_end(one.start_ns, limit), one.batch))
    last = decoders[-1][0]
    regions = [region for region in marks.regions if region[0] < last]
    ranges = [(one.start_ns, one.end_ns) for one in found]
    if all(within(begin, ranges) for begin, _ in regions):
        return found
    return [Part(*region) for region in regions if not within(region[0], decoders)]


def _embedding_latents(
    marks: HostMarks, decoders: Sequence[tuple[int, int]]
) -> Sequence[Convolution] | Sequence[Product]:
    """What embeds latents for a denoiser: convolutions, or products if no convolution does."""

    def may_be(one: Convolution | Product) -> bool:
        elsewhere = within(one.start_ns, marks.regions) or within(one.start_ns, decoders)
        return one.embeds_latents and not elsewhere

    convolutions = [one for one in marks.convolutions if may_be(one)]
    if convolutions:
        return convolutions
    found: list[Product] = []
    since = 0  # index of the last one
    for place, one in enumerate(marks.products):
        if not may_be(one):
            continue
        if (found and not _layers(marks, since, place)) or _of_an_adapter(marks, place):
            continue
        found.append(one)
        since = place
    return found


def _layers(marks: HostMarks, first: int, last: int) -> bool:
    """Whether layers of a denoiser ran between two products that embed latents, given by index:
    many products, a compiled region, or as many features coming out. A ControlNet embeds its
    condition directly after the latents."""
    if last - first >= _PRODUCTS_OF_A_BLOCK:
        return True
    one, other = marks.products[first], marks.products[last]
    came_out = any(each.results == one.features for each in marks.products[first + 1 : last])
    region = bisect_right(marks.regions, one.start_ns, key=itemgetter(0))
    compiled = region < len(marks.regions) and marks.regions[region][0] < other.start_ns
    return came_out or compiled


def _of_an_adapter(marks: HostMarks, place: int) -> bool:
    """Whether a product is of an adapter such as LoRA: the product directly before it narrows, it
    widens again, to the size that a layer before both made of the same rows."""
    if place < 2:
        return False
    layer, before, one = marks.products[place - 2 : place + 1]
    narrowed = before.results == one.features and layer.results == one.results
    directly = marks.before(one.start_ns) <= marks.before(before.end_ns)
    return narrowed and directly and layer.rows == before.rows == one.rows


def _come_out(marks: HostMarks, first: Convolution | Product, limit_ns: int) -> int:
    """When the embedded latents came out again and were laid out, the last time before `limit_ns`;
    0 if they did not. A denoiser that estimates variances has twice as many results."""
    if isinstance(first, Convolution):
        sizes = {first.patch, 2 * first.patch}
        channels = {first.channels, 2 * first.channels}
    else:
        sizes, channels = {first.features, 2 * first.features}, set()
    products = begun(marks.products, first.start_ns, limit_ns)
    convolutions = begun(marks.convolutions, first.start_ns, limit_ns)
    ends = [one.end_ns for one in products if one.results in sizes]
    ends += [one.end_ns for one in convolutions if one.results in channels]
    return min(marks.laid_out(max(ends)), limit_ns) if ends else 0


# --- Calls of a diffusion pipeline whose trace has no modules, guessed from its operators.
#
# - A text encoder starts with an embedding of 20,000 rows or more, with the blocking copy of its
#   tokens if that comes directly before it. It ends with the last operator that launched a kernel
#   before the next start, or before a blocking call that comes when a dozen matrix products have
#   run; what puts encoded prompts together is the pipeline's.
# - VAE decoders are found by `decoders_of`, denoisers by `denoisers_of`.
#
# Without a decoder it is no diffusion, and nothing is guessed. What lies in the capture of a graph
# did not run, and what ran directly before for the same capture was its warm-up.


_PRODUCTS_OF_TWO_LAYERS = 12
"""A blocking call after so many matrix products ends a text encoder. A layer of CLIP has six
(query, key, value, output, two of its MLP), one of T5 seven. An earlier blocking call is inside the
encoder, as in Wan's."""

_AHEAD_NS = 1_000_000  # before an embedding, within which its tokens may be copied
_PUT_TOGETHER = frozenset(
    f"aten::{name}"
    for name in ("cat", "pad", "stack", "repeat", "zeros", "new_zeros", "zeros_like", "randn")
)
"""Operators that combine encoded prompts, or make the first noise: they belong to no submodule."""


def anchored_calls(trace: KinetoTrace) -> list[CallRange]:
    """The calls in order of time; none if nothing decodes an image."""
    convolving = trace.rows_named("aten::convolution".__eq__, "cpu_op")
    windows = capture_windows(trace)
    for marks in host_marks(trace, np.unique(trace.thread[convolving]).tolist()):
        decoders = decoders_of(marks)
        if not decoders:
            continue
        here = [window for window in windows if window.thread == marks.thread]
        edges = _edges(marks, here)
        denoisers = denoisers_of(marks, decoders, edges)
        stops = [one.start_ns for one in denoisers] + [begin for begin, _ in decoders]
        calls = _encoders(marks, sorted(stops + edges))
        if denoisers:
            first, end, _ = denoisers[0]
            inside = len(begun(marks.convolutions, first - 1, end))
            kind = "UNet" if inside >= _MANY_CONVOLUTIONS else "Transformer"
            calls += (
                guessed_call(marks.thread, *one[:2], "denoiser", kind, one[2]) for one in denoisers
            )
        images = {one.end_ns: one.batch for one in marks.convolutions if one.results == _IMAGE}
        ends = sorted(images)
        for begin, end in decoders:
            count = images[ends[bisect_right(ends, end) - 1]]
            calls.append(guessed_call(marks.thread, begin, end, "vae", "Decoder", count))
        return list(_captured(sorted(calls, key=lambda call: call.start_ns), here))
    return []


def _edges(marks: HostMarks, windows: Sequence[Window]) -> list[int]:
    """Starts and ends of graph captures of whole parts, in which a part starts."""
    latents = [one.start_ns for one in marks.convolutions if one.of_latents]
    begins = sorted(latents + marks.embedded())
    ranges = [(window.start_ns, window.end_ns) for window in windows]
    held = [one for one in ranges if bisect_left(begins, one[0]) < bisect_left(begins, one[1])]
    return sorted(time for one in held for time in one)


def _captured(calls: Sequence[CallRange], windows: Sequence[Window]) -> Iterator[CallRange]:
    """Yield the calls, marked as captured or as the warm-up of a capture: calls of the same part
    directly before it."""
    ranges = [(window.start_ns, window.end_ns) for window in windows]
    upcoming = ""
    found: list[CallRange] = []
    for call in reversed(calls):
        ran = Ran.WARM_UP
        if within(call.start_ns, ranges):
            upcoming, ran = call.instance, Ran.CAPTURED
        elif call.instance != upcoming:
            upcoming, ran = "", Ran.EXECUTED
        found.append(structs.replace(call, ran=ran))
    yield from reversed(found)


def _encoders(marks: HostMarks, stops: Sequence[int]) -> list[CallRange]:
    """Text encoders: from each embedding of tokens to the next anchor or blocking call."""
    calls: list[CallRange] = []
    outside = [one for one in marks.embeddings if not within(one[0], marks.regions)]
    begins = sorted([*(begin for begin, _ in outside), *stops])
    for begin, size in outside:
        at = bisect_left(marks.blocking, begin) - 1
        before = marks.blocking[at] if at >= 0 else begin
        place = bisect_right(begins, begin)
        reached = begins[place - 2] if place > 1 else 0  # calls do not overlap
        first = before if begin - before <= _AHEAD_NS and before >= reached else begin
        limit = begins[place] if place < len(begins) else marks.end_ns
        # the first blocking call after two layers; without layers, the first of all
        products = begun(marks.products, begin - 1, limit)
        layers = products[_PRODUCTS_OF_TWO_LAYERS - 1 : _PRODUCTS_OF_TWO_LAYERS]
        place = bisect_right(marks.blocking, layers[0].end_ns if layers else begin)
        limit = min((*marks.blocking[place : place + 1], limit))
        end, name = marks.last_end(begin, limit, _PUT_TOGETHER), f"embedding {size}"
        calls.append(guessed_call(marks.thread, first, end, name, "TextEncoder"))
    return calls


# --- Which inferred calls of a denoiser share a step: the conditional, then the unconditional one.
#
# The host launches less between the two of a pair than after it, when the two are combined and the
# scheduler steps. A single pair cannot be compared: then the encoders must have seen two prompts,
# and each call as many inputs as images were decoded.


def paired(trace: KinetoTrace, calls: Sequence[CallRange]) -> list[CallRange]:
    """The calls, in order of time, with `same_step` of the second of each pair."""
    seconds: set[int] = set()
    launching = cache(lambda: launching_operators(trace))
    for part in parted(calls):
        ran = [call for call in part if call.guessed and call.ran is Ran.EXECUTED]
        denoisers = [call for call in ran if not is_encoder(call) and not is_decoder(call)]
        if _may_be_pairs(ran, denoisers) and _are_pairs(launching, ran, denoisers):
            seconds |= {call.start_ns for call in denoisers[1::2]}
    return [structs.replace(call, same_step=call.start_ns in seconds) for call in calls]


def _may_be_pairs(part: Sequence[CallRange], denoisers: Sequence[CallRange]) -> bool:
    """Whether the denoiser's calls may be pairs: nothing shows that a call computes both branches,
    or that there is only one."""
    if not denoisers or len(denoisers) % 2 or len({call.instance for call in denoisers}) > 1:
        return False
    if _prompts(part) == 1:
        return False
    images = max((call.inputs for call in part if is_decoder(call)), default=0)
    return not images or all(call.inputs < 2 * images for call in denoisers)


def _prompts(part: Sequence[CallRange]) -> int:
    """How many prompts the encoders saw, 0 if there are none."""
    return max(Counter(call.instance for call in part if is_encoder(call)).values(), default=0)


def _are_pairs(
    launching: Callable[[], Ranges], part: Sequence[CallRange], denoisers: Sequence[CallRange]
) -> bool:
    if len(denoisers) == 2:
        return _prompts(part) > 1 and all(call.inputs for call in denoisers)
    operators, thread = launching(), denoisers[0].thread
    first, last = np.searchsorted(operators.thread, (thread, thread + 1))
    begins = operators.start_ns[first:last]
    between = [
        int(np.searchsorted(begins, later.start_ns) - np.searchsorted(begins, call.end_ns))
        for call, later in pairwise(denoisers)
    ]
    return max(between[::2]) < min(between[1::2])


# --- Stage, step and branch of each call of a section, from the order in which things ran.
#
# With a single scheduler step, `denoise` starts with the first call of the module called last
# before it. The step of a call is the number of scheduler steps that have ended before it; without
# scheduler frames, each call of the denoiser is one.


@dataclass(frozen=True, slots=True)
class StagedCall:
    """A call with its labels, in the words of `profiler.trace.events.Call`."""

    range: CallRange
    submodule: str
    stage: str
    step: int
    branch: str
    iteration: int = NO_ITERATION


class Staging(Struct, frozen=True):
    """A section divided into stages and steps: its calls, and the times of the division.

    `steps_from` is None without a denoiser. `stages` are (stage, start, end) and tile the section;
    `loop_start_ns` is -1 if nothing denoises; `step_ends_ns` are the ends of step 0, 1, …
    """

    section: Section
    calls: tuple[StagedCall, ...]
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
        for step, (begin, end) in enumerate(pairwise((self.loop_start_ns, *self.step_ends_ns))):
            spans.append(Span("step", f"step {step}", "denoise", step, begin, end - begin))
        return spans

    def stage_at(self, time_ns: int) -> str:
        """The stage in which `time_ns` lies, "" outside the section."""
        return next((stage for stage, begin, end in self.stages if begin <= time_ns < end), "")

    def step_at(self, time_ns: int) -> int:
        """The step in which `time_ns` lies, `NO_STEP` outside the denoising loop."""
        step = bisect_right(self.step_ends_ns, time_ns)
        looping = 0 <= self.loop_start_ns <= time_ns
        return step if looping and step < len(self.step_ends_ns) else NO_STEP


def stage_section(
    section: Section, names: SubmoduleNames, batch_of: BatchOf, process: Mapping[int, int]
) -> Staging:
    """Divide a section into stages and steps and label its calls; `process` has the process of each
    thread."""
    calls = section.calls
    denoises = section.steps or section.prompts  # a noise scheduler, prompts, or a class
    if not denoises and not any(call.guessed or tells_of_diffusion(call) for call in calls):
        plain = [
            StagedCall(call, names.name(call, "class"), RUN_STAGE, NO_STEP, "", iteration)
            for call, iteration in zip(calls, iterations_by_module(calls, process), strict=True)
        ]
        whole = ((RUN_STAGE, section.start_ns, section.end_ns),)
        return Staging(section, tuple(plain), None, whole, loop_start_ns=-1, step_ends_ns=())
    loop = _loop_instances(section)
    first = next((i for i, call in enumerate(calls) if call.instance in loop), len(calls))
    step_ends = _step_ends(section, loop, first)
    last = _last_of_loop(calls, loop, step_ends)
    stages = []
    for index, call in enumerate(calls):
        before = index < first if loop else is_encoder(call)
        behind = index > last if loop else is_decoder(call)
        stages.append("encode" if before else "decode" if behind else "denoise")
    placed = _place(section, stages, step_ends, names, batch_of)
    begins = _loop_begins(section, first, last, step_ends) if loop else _begins(section, stages)
    ends = [*(begin for _, begin in begins[1:]), section.end_ns]
    tiles = [(stage, begin, end) for (stage, begin), end in zip(begins, ends, strict=True)]
    steps_from = StepsFrom.SCHEDULER if section.steps else StepsFrom.CALL_ORDER
    return Staging(
        section=section,
        calls=placed,
        steps_from=steps_from if loop else None,
        stages=tuple(tile for tile in tiles if tile[2] > tile[1]),
        loop_start_ns=calls[first].start_ns if loop else -1,
        step_ends_ns=tuple(step_ends),
    )


def _loop_instances(section: Section) -> set[str]:
    """The modules that the denoising loop calls: denoiser, ControlNet; empty without a loop."""
    # neither encoders nor decoders, by their classes
    ran = [call for call in section.calls if call.ran is Ran.EXECUTED and not is_decoder(call)]
    calls = [call for call in ran if not is_encoder(call)] or (ran if section.steps else [])
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
    """When steps ended, without a scheduler: with each call of the denoiser, or with the second
    call of a pair."""
    closing = [call.instance for call in in_loop if is_denoiser(call)]
    closing = closing or list(dict.fromkeys(call.instance for call in in_loop))
    ran = (call for call in in_loop if call.ran is Ran.EXECUTED)
    closers = [call for call in ran if call.instance == closing[-1]]
    followed = [*(later.same_step for later in closers[1:]), False]
    return sorted(call.end_ns for call, more in zip(closers, followed, strict=True) if not more)


def _last_of_loop(calls: list[CallRange], loop: set[str], step_ends: list[int]) -> int:
    """The index of the last call of the loop, -1 without one."""
    last = step_ends[-1] if step_ends else 0
    inside = (i for i, call in enumerate(calls) if call.instance in loop or call.start_ns < last)
    return max(inside, default=-1) if step_ends else -1


def _loop_begins(
    section: Section, first: int, last: int, step_ends: list[int]
) -> list[tuple[str, int]]:
    """When the stages around a loop start: denoise once all prompts are encoded, decode after the
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
    """Starts of stages without a loop: the first of successive calls of each stage."""
    found: list[tuple[str, int]] = []
    for call, stage in zip(section.calls, stages, strict=True):
        if not found or found[-1][0] != stage:
            found.append((stage, call.start_ns if found else section.start_ns))
    return found


def _place(
    section: Section,
    stages: list[str],
    step_ends: list[int],
    names: SubmoduleNames,
    batch_of: BatchOf,
) -> tuple[StagedCall, ...]:
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
        StagedCall(*row)
        for row in zip(section.calls, submodules, stages, steps, branches, strict=True)
    )


def _structural_role(section: Section, call: CallRange, stage: str) -> str:
    """The role of a call by its place in the pipeline: the stage's usual submodule, or ""."""
    if stage != "denoise" and not section.steps:  # a repeated module alone is no evidence
        return ""
    if stage == "encode" and section.prompts:
        inside = any(begin <= call.start_ns < end for begin, end in section.prompts)
        return "text_encoder" if inside else ""
    return {"encode": "text_encoder", "denoise": "denoiser", "decode": "vae"}[stage]


# --- Host work of the pipeline itself: the Python frames outside every call.
#
# These are the outermost frames of a section that are not in a call and contain none:
# `scheduler.step`, tokenizers, `postprocess`, and whatever else the pipeline does between calls.
# They do not overlap, and with the calls they leave only the pipeline's own bytecode unexplained.


_SET_TIMESTEPS = ("set_timesteps", "retrieve_timesteps")


def add_host_work(
    frames: Frames, staging: Staging, builder: CommandBuilder, root: str = ROOT_DEVICE
) -> None:
    """Add the host work of one section as commands of the track `Host` of the device `root`."""
    track = Track(root, HOST_TRACK, "host")
    found = _largest(frames, staging)
    steps = [start for start, _ in staging.section.steps]  # in order
    columns = (column.tolist() for column in (found.row, found.start_ns, found.end_ns))
    for row, start, end in zip(*columns, strict=True):
        name = frames.name(row)
        first = bisect_left(steps, start)
        is_step = first < len(steps) and steps[first] < end
        layer = "scheduler.step" if is_step else _layer(name, staging, start)
        stage, step = staging.stage_at(start), staging.step_at(start)
        builder.add(track, layer, plain_name(name), start, end - start, stage=stage, step=step)


def _largest(frames: Frames, staging: Staging) -> Ranges:
    """The outermost frames of the section that are not in a call and contain none."""
    trace, section = frames.trace, staging.section
    start, end = trace.start_ns[frames.rows], trace.end_ns[frames.rows]
    inside = (start >= section.start_ns) & (end <= section.end_ns) & (end > start)
    inside &= (start > section.start_ns) | (end < section.end_ns)  # not the pipeline's own frame
    inside &= trace.thread[frames.rows] == section.thread
    calls = call_ranges([call for call in section.calls if call.thread == section.thread])
    begins, ends = calls.start_ns, calls.end_ns
    before = np.searchsorted(begins, start, side="right") - 1  # the last call started by then
    if len(calls):
        within = (before >= 0) & (start < ends[before])
        following = np.searchsorted(begins, start, side="left")
        holds = (following < len(begins)) & (begins[np.minimum(following, len(begins) - 1)] < end)
        inside &= ~within & ~holds
    return frames.outermost(inside)


def _layer(name: str, staging: Staging, start_ns: int) -> str:
    """A short name for a frame: `tokenizer_2`, `scheduler.set_timesteps`,
    `image_processor.postprocess`."""
    frame = parse_frame(name)
    if frame is None:
        return plain_name(name)
    if "tokenization" in frame.stem:  # of the text encoder that is called next: `tokenizer_2`
        later = (call.submodule for call in staging.calls if call.range.start_ns >= start_ns)
        encoder = next((name for name in later if name.startswith("text_encoder")), "")
        return encoder.replace("text_encoder", "tokenizer") or "tokenizer"
    if frame.function in _SET_TIMESTEPS:
        return "scheduler.set_timesteps"
    own = frame.stem.startswith(("pipeline_", "__init__")) or frame.function.startswith("<")
    return frame.function if own else f"{frame.stem}.{frame.function}"
