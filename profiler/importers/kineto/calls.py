"""Submodule calls of a Kineto trace: modules, annotations, iterations, pipeline calls.

A call is an outermost `nn.Module` range, or an outermost `encode` or `decode` of an autoencoder. A
module that itself contains a scheduler step or a pipeline's `__call__` is the pipeline. Without
modules, calls are the script's annotations, or repetitions of the same kernels. Class names only
choose between names if the structure is ambiguous. A section is one call of a pipeline.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate

import numpy as np
from msgspec import Struct, field, structs

from profiler.importers.kineto.modules import (
    BACKWARD,
    PROCESSOR,
    PYTHON,
    RUNTIME,
    Frames,
    Kind,
    class_of,
    parse_frame,
)
from profiler.kineto.events import Bools, Ranges
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s
from profiler.trace.events import NO_ITERATION

# --- Which ranges of a Kineto trace are submodule calls.
#
# The rule knows no class names. A *call* is
#
# - an outermost `nn.Module` range, if a module that itself holds a scheduler step or a pipeline's
#   `__call__` counts as pipeline and its children as outermost;
# - or an outermost `encode` or `decode` frame of an autoencoder: pipelines call these methods, not
#   the module, and one of them runs several modules (`post_quant_conv`, `Decoder`; tiles).
#
# Where modules are called so, torch's `backward` in none of them is a call, too. To it belongs what
# autograd launches, in the modules whose backward that is.
#
# An outermost module that elsewhere runs inside another call is a part of that submodule which the
# pipeline borrowed (a final norm for `clip_skip`), not a submodule: it is no call.


STEP_MARK = re.compile(r"ProfilerStep#(\d{1,9})")
"""The ranges that `torch.profiler`'s schedule marks, a step each."""

_WRAPPER_CLASSES = re.compile(
    r"OptimizedModule|DataParallel|DistributedDataParallel|Fully\w*Shard\w*|FSDP\w*"
)
_BACKWARD = re.compile(r"torch/(_tensor|autograd/__init__)\.py\(\d+\): backward$")
_MODEL_FOLDER = re.compile(r"models/(transformers|unets|autoencoders|controlnets)/")
_CLASS_IN_FOLDER = {
    "transformers": "Transformer",
    "unets": "UNet",
    "autoencoders": "Autoencoder",
    "controlnets": "ControlNet",
}


class Ran(StrEnum):
    """Whether the work that a call launched ran: in the run, only to warm up a graph capture, or
    not at all, because it was captured."""

    EXECUTED = "executed"
    WARM_UP = "warm_up"
    CAPTURED = "captured"


class CallRange(Struct, frozen=True):
    """One submodule call on the host.

    `instance` tells submodules apart ("T5EncoderModel_0"; "vae" for autoencoder methods);
    `class_name` is the module's class, a wrapper's inner one if the trace shows it, and the file
    (`autoencoder_kl`) for an autoencoder's method. `guessed` calls of a diffusion pipeline were
    inferred from operators, with `inputs` as their batch size, 0 if not known. `same_step`: it is
    in the same step as the denoiser's call before.
    """

    thread: int
    start_ns: int
    end_ns: int
    instance: str
    class_name: str
    is_autoencoder: bool = False
    modules: tuple[int, ...] = ()  # ranges in `Frames.modules`, wrapper before inner one
    class_known: bool = True  # False of what was guessed or annotated
    guessed: bool = False
    inputs: int = 0
    same_step: bool = False
    ran: Ran = Ran.EXECUTED


class Section(Struct):
    """One pipeline call: its frame, and what ran in it in order of time.

    `steps` are the (start, end) of its scheduler steps, `prompts` of its `encode_prompt` frames.
    """

    name: str
    thread: int
    start_ns: int
    end_ns: int
    calls: list[CallRange] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    prompts: list[tuple[int, int]] = field(default_factory=list)


def find_calls(frames: Frames) -> list[CallRange]:
    """The submodule calls of a trace in order of their start; none without module ranges."""
    modules, holds = frames.modules, _holds_pipeline(frames)
    # outermost encode and decode frames that lie in no module of their own
    methods = frames.of_kind(Kind.AUTOENCODER).outermost()
    around = modules.innermost(methods.thread, methods.start_ns)
    methods = methods.select(np.append(holds, True)[around])
    top = modules.outermost_marked(~holds)
    in_method = methods.innermost(modules.thread, modules.start_ns) >= 0
    outermost = (top == np.arange(len(modules))) & ~in_method
    inside = {frames.instances[index] for index in np.flatnonzero((top >= 0) & ~outermost).tolist()}
    calls = []
    for index in np.flatnonzero(outermost).tolist():
        instance = frames.instances[index]
        if instance not in inside:
            class_name, chain = _unwrapped(frames, index)
            calls.append(CallRange(*_times(modules, index), instance, class_name, modules=chain))
    for index, row in enumerate(methods.row.tolist()):
        frame = parse_frame(frames.name(row))
        assert frame is not None
        times = _times(methods, index)
        calls.append(CallRange(*times, "vae", frame.stem, is_autoencoder=True))
    return sorted(calls, key=lambda call: (call.start_ns, call.end_ns))


def backward_calls(trace: KinetoTrace, calls: list[CallRange]) -> list[CallRange]:
    """The outermost `backward` frames of torch that lie in none of these calls of modules, as calls
    of their own: else the time of a module would last until its backward had ended, with all that
    the modules behind it did meanwhile."""
    rows = trace.rows_named(lambda name: bool(_BACKWARD.match(name)), PYTHON)
    if not len(rows):
        return []
    frames = trace.ranges(rows).outermost()
    inside = call_ranges(calls).innermost(frames.thread, frames.start_ns) >= 0
    return [
        CallRange(*_times(frames, index), BACKWARD, BACKWARD, class_known=False)
        for index in np.flatnonzero(~inside).tolist()
    ]


def _times(ranges: Ranges, index: int) -> tuple[int, int, int]:
    """Thread, start and end of a range."""
    return int(ranges.thread[index]), int(ranges.start_ns[index]), int(ranges.end_ns[index])


def call_ranges(calls: list[CallRange]) -> Ranges:
    """The calls as ranges; `row` is the position in `calls`."""
    return Ranges.of(
        np.arange(len(calls), dtype=np.int64),
        np.array([call.thread for call in calls], dtype=np.int32),
        np.array([call.start_ns for call in calls], dtype=np.int64),
        np.array([call.end_ns for call in calls], dtype=np.int64),
    )


def guessed_call(
    thread: int, start_ns: int, end_ns: int, instance: str, class_name: str, inputs: int = 0
) -> CallRange:
    """A call inferred from operators."""
    return CallRange(
        *(thread, start_ns, end_ns, instance, class_name, instance == "vae"),
        class_known=False,
        guessed=True,
        inputs=inputs,
    )


def _holds_pipeline(frames: Frames) -> Bools:
    """Whether each module is not a submodule because the pipeline itself runs in it, bool
    [modules]."""
    holds = np.zeros(len(frames.modules), dtype=np.bool_)
    for kind in (Kind.STEP, Kind.PIPELINE):
        inner = frames.of_kind(kind)
        for index in np.unique(frames.modules.innermost(inner.thread, inner.start_ns)).tolist():
            above = index
            while above >= 0 and not holds[above]:
                holds[above] = True
                above = int(frames.modules.parent[above])
    return holds


def _unwrapped(frames: Frames, index: int) -> tuple[str, tuple[int, ...]]:
    """The module's class, and the indices of the ranges that are the whole submodule.

    For a wrapper (torch.compile's `OptimizedModule`, data parallelism) the class is that of the
    wrapped module, if the trace has it.
    """
    parents = frames.modules.parent
    chain = [index]
    name, _ = class_of(frames.instances[index])
    while _WRAPPER_CLASSES.fullmatch(name):
        inner = chain[-1] + 1
        if inner >= len(parents) or parents[inner] != chain[-1]:
            break
        inner_name, _ = class_of(frames.instances[inner])
        if inner_name == "GraphModule":  # what was compiled, not what it was compiled from
            break
        chain.append(inner)
        name = inner_name
    if _WRAPPER_CLASSES.fullmatch(name):
        name = _class_from_files(frames, index) or name
    return name, tuple(chain)


def _class_from_files(frames: Frames, index: int) -> str:
    """The kind of model of a compiled module, from the files whose code runs in it; "" if
    unknown."""
    modules, trace = frames.modules, frames.trace
    start_ns = trace.start_ns[frames.rows]
    inside = (trace.thread[frames.rows] == modules.thread[index]) & (
        (start_ns >= modules.start_ns[index]) & (start_ns < modules.end_ns[index])
    )
    for row in frames.rows[inside].tolist():
        if match := _MODEL_FOLDER.search(frames.name(row).replace("\\", "/")):
            return _CLASS_IN_FOLDER[match[1]]
    return ""


# --- Calls of a trace without modules: the ranges that its script named (`record_function`, NVTX).
#
# A call is an outermost such range of a thread. A range around all others distinguishes nothing and
# is replaced by those in it. Ranges that torch itself opens (`Optimizer.step#SGD.step`, those of
# collectives and of compiled graphs) do not count, nor do ranges of operators that profilers write.
# If nothing else is named, profiler steps are calls.


_OWN = re.compile(
    r"ProfilerStep#|Optimizer\.(?:step|zero_grad)#|enumerate\(|(?:\w*ccl|gloo|mpi|ucc|c10d):"
    r"|## Call CompiledFxGraph|CompiledF|(?:Distributed|FullySharded)?DataParallel\."
    r"|FSDP::|record_param_comms|\[pl\]|Torch-Compiled"
    r"|\{\s*['\"]|[\w:.<>]+, (?:seq|op_id|sizes) = "  # of operators, by DLProf and emit_nvtx
)
_MAX_WRAPPERS = 8  # ranges around all others, at most


def _is_step(name: str) -> bool:
    return STEP_MARK.fullmatch(name) is not None


def _is_the_scripts(name: str) -> bool:
    return _OWN.match(name) is None


def annotated_calls(trace: KinetoTrace) -> list[CallRange]:
    """The ranges that the script named, in order of time; none if one holds all it named."""
    ranges = trace.ranges(trace.rows_named(_is_the_scripts, "user_annotation"))
    for _ in range(_MAX_WRAPPERS):
        outer = np.flatnonzero(ranges.parent < 0)
        if len(outer) != 1:
            break
        ranges = ranges.select(np.arange(len(ranges)) != outer[0])
    return _calls(trace, ranges.outermost()) if len(ranges) else []


def stepped_calls(trace: KinetoTrace) -> list[CallRange]:
    """The steps of torch.profiler's schedule as calls of one submodule, each at most until the
    next: its schedule ends one before it begins another."""
    ranges = trace.ranges(trace.rows_named(_is_step, "user_annotation"))
    thread, start, end = ranges.thread, ranges.start_ns, ranges.end_ns.copy()
    followed = np.flatnonzero((thread[1:] == thread[:-1]) & (start[1:] > start[:-1]))
    end[followed] = np.minimum(end[followed], start[followed + 1])
    return _calls(trace, Ranges.of(ranges.row, thread, start, end).outermost())


def has_devices_alone(trace: KinetoTrace) -> bool:
    """Whether the trace has device work, and no host events that could have launched it."""
    if any(len(trace.rows_of(name)) for name in (*RUNTIME, "cpu_op")):
        return False
    return bool(len(trace.rows_of("kernel", "gpu_memcpy", "gpu_memset")))


def device_calls(trace: KinetoTrace) -> list[CallRange]:
    """The ranges of devices that the script named, else those of the profiler's steps, in order of
    time; one that several streams have at the same time is one call."""
    rows = trace.rows_named(_is_the_scripts, "gpu_user_annotation")
    if not len(rows):
        rows = trace.rows_named(_is_step, "gpu_user_annotation")
    found: list[CallRange] = []
    last: dict[str, int] = {}
    for call in _calls(trace, trace.ranges(rows).outermost()):
        at = last.get(call.instance, -1)
        if at >= 0 and call.start_ns < found[at].end_ns:
            found[at] = structs.replace(found[at], end_ns=max(found[at].end_ns, call.end_ns))
            continue
        last[call.instance] = len(found)
        found.append(call)
    return found


def _calls(trace: KinetoTrace, ranges: Ranges) -> list[CallRange]:
    calls = []
    for index, name in enumerate(trace.events.names_of(ranges.row)):
        plain = name.partition("#")[0] if _is_step(name) else name.strip("# ") or name
        calls.append(CallRange(*_times(ranges, index), plain, plain, class_known=False))
    return sorted(calls, key=lambda call: (call.start_ns, call.end_ns))


# --- In which pass of a loop that is not denoising each call is: a token, a training step.
#
# Where the trace has two or more `ProfilerStep#n`, a call in one of them is in iteration n. Else,
# in a section that is no diffusion, the module that is called most often is the loop's, if that is
# three times or more: its k-th call starts iteration k, and what follows it belongs to it, until it
# is called again, in the last one until a module is called that no other iteration has. A module
# that holds more time wins among those called equally often; one that holds less than a tenth of
# the time, as what only moves tensors, tells nothing beside others.


LEAST_PASSES = 3
"""Calls of one module from which on they are passes of a loop."""


_LOOP_SHARE = 0.1  # of the time of all calls


def iterations_by_step(trace: KinetoTrace, calls: Sequence[CallRange]) -> list[int] | None:
    """For each call the number of the profiler step in which it starts, `NO_ITERATION` outside of
    steps.

    None for a trace with fewer than two profiler steps: one step is no loop.
    """
    steps = sorted(
        (int(trace.start_ns[row]), int(trace.end_ns[row]), int(match[1]))
        for row in trace.rows_of("user_annotation").tolist()
        if (match := STEP_MARK.fullmatch(trace.events.name_of(row)))
    )
    if len(steps) < 2:
        return None
    begins = [begin for begin, _, _ in steps]
    found = []
    for call in calls:
        place = bisect_right(begins, call.start_ns) - 1
        inside = place >= 0 and call.start_ns < steps[place][1]
        found.append(steps[place][2] if inside else NO_ITERATION)
    return found


def iterations_by_module(calls: Sequence[CallRange], process: Mapping[int, int]) -> list[int]:
    """For each call its iteration, counted by calls of the module that is called most often.
    `NO_ITERATION` before its first call, and for all calls if no module is called `LEAST_PASSES`
    times. Processes that all call it are ranks and counted separately; `process` has the process of
    each thread."""
    weight: dict[str, tuple[int, int]] = {}
    for call in calls:
        if call.instance == BACKWARD:  # which ends a pass
            continue
        times, length = weight.get(call.instance, (0, 0))
        weight[call.instance] = (times + 1, length + call.end_ns - call.start_ns)
    least = _LOOP_SHARE * sum(length for _, length in weight.values())
    heavy = {instance: held for instance, held in weight.items() if held[1] >= least} or weight
    loop = max(heavy, key=lambda instance: heavy[instance], default="")
    if loop not in weight or weight[loop][0] < LEAST_PASSES:
        return [NO_ITERATION] * len(calls)
    ranks = {process.get(call.thread, 0) for call in calls if call.instance == loop}
    passes = dict.fromkeys(ranks, NO_ITERATION)
    found: list[tuple[int, int]] = []  # rank and pass
    for call in calls:
        rank = process.get(call.thread, 0) if len(ranks) > 1 else min(ranks)
        passes[rank] = passes.get(rank, NO_ITERATION) + (call.instance == loop)
        found.append((rank, passes[rank]))
    return _without_ends(calls, found, set(passes.items()))


def _without_ends(
    calls: Sequence[CallRange], passes: Sequence[tuple[int, int]], last: Collection[tuple[int, int]]
) -> list[int]:
    """The iteration of each call, without what follows a loop. A module that only the `last`
    iteration of a rank has marks the end: its call and all after it are in no iteration. The end of
    a loop is not recorded, and an evaluation or a decoder may follow."""
    usual = {call.instance for call, of in zip(calls, passes, strict=True) if of not in last}
    ended = set()
    found = []
    for call, of in zip(calls, passes, strict=True):
        if of in last and call.instance not in usual:
            ended.add(of)
        found.append(NO_ITERATION if of in ended else of[1])
    return found


# --- Names of submodules: the attribute that diffusers would have, from class and place in the run.
#
# Classes are hints only. They choose between names that the structure leaves open (`transformer` or
# `unet`, `text_encoder` or `image_encoder`); what is a call, and in which stage, they decide only
# if the trace shows no denoising loop at all. If nothing tells of diffusion, a submodule has the
# name of its class.


_HINTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("vae", re.compile(r"Autoencoder|VAE|Vae|VQ|^Decoder\w*$")),
    ("controlnet", re.compile(r"Control")),
    ("image_encoder", re.compile(r"Vision|Image\w*Encoder|Siglip|Dino")),
    ("safety_checker", re.compile(r"SafetyChecker")),
    ("text_encoder", re.compile(r"Text\w*Model|Text\w*Encoder|T5|EncoderModel|CausalLM|Bert")),
    ("unet", re.compile(r"UNet|Unet")),
    ("transformer", re.compile(r"Transformer|DiT|Flux")),
)
_DIFFUSION = re.compile(r"Autoencoder|UNet|Unet|DiT|Flux|Transformer\w*[23]D")  # of no other model
_WARM_UP, _OPTIMIZED = "warm-up", "OptimizedModule"
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _hint(call: CallRange) -> str:
    if call.is_autoencoder:
        return "vae"
    return next((name for name, hint in _HINTS if hint.search(call.class_name)), "")


def is_encoder(call: CallRange) -> bool:
    """Whether the class is that of a text or image encoder."""
    return _hint(call) in ("text_encoder", "image_encoder")


def is_denoiser(call: CallRange) -> bool:
    """Whether the class is that of a denoiser."""
    return _hint(call) in ("transformer", "unet")


def is_decoder(call: CallRange) -> bool:
    """Whether the call is of an autoencoder, or of a checker of its images."""
    return _hint(call) in ("vae", "safety_checker")


def is_controlnet(call: CallRange) -> bool:
    """Whether the class is that of a ControlNet, which runs in the loop beside the denoiser."""
    return _hint(call) == "controlnet"


def tells_of_diffusion(call: CallRange) -> bool:
    """Whether only a diffusion pipeline has such a part: a denoiser, or an image's autoencoder."""
    return call.is_autoencoder or bool(_DIFFUSION.search(call.class_name))


class SubmoduleNames:
    """Names the module instances of a trace: each gets the name of its first call.

    Instances that would share a name are numbered in order of their first call: `text_encoder`,
    `text_encoder_2`, `text_encoder_3`.
    """

    def __init__(self) -> None:
        self._of_instance: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def name(self, call: CallRange, role: str) -> str:
        """The submodule's name. `role` is its role by its place in the pipeline: `text_encoder`,
        `denoiser`, `vae`, "" if unknown, or `class` if it is not a diffusion pipeline. Warm-ups of
        a graph capture have a name of their own."""
        name = self._name(call, role)
        return f"{name} {_WARM_UP}" if call.ran is Ran.WARM_UP else name

    def _name(self, call: CallRange, role: str) -> str:
        known = self._of_instance.get(call.instance)
        if known is not None:
            return known
        base = _hint(call)
        if role == "class":
            base = call.class_name
        elif not base and (role == "text_encoder" or (role and call.class_name == _OPTIMIZED)):
            base = role
        elif not base:  # `AudioUpsampler2` → `audio_upsampler_2`, `ResNet` → `resnet`
            words = _WORD.findall(call.class_name.replace("Net", "net"))
            base = "_".join(words).lower() or "module"
        count = self._counts[base] = self._counts.get(base, 0) + 1
        name = base if count == 1 else f"{base}_{count}"
        self._of_instance[call.instance] = name
        return name


# --- The calls of a pipeline distinguished if only its submodules are known: prompts that are
# encoded after something was denoised, and latents that are denoised after some were decoded,
# belong to the next call of the pipeline. What was not guessed tells nothing.


def parted(calls: Sequence[CallRange]) -> list[list[CallRange]]:
    """The calls in order of time, grouped by pipeline call."""
    found: list[list[CallRange]] = [[]]
    denoised = decoded = False
    for call in calls:
        if call.guessed:
            encodes, decodes = is_encoder(call), is_decoder(call)
            if (decoded and not decodes) or (denoised and encodes):
                found.append([])
                denoised = decoded = False
            denoised |= not encodes and not decodes
            decoded |= decodes
        found[-1].append(call)
    return found


# --- Passes of a loop that only its kernels tell: the same names in the same order, again and
# again.
#
# Kernels are taken in the order of their launches. The period is the distance at which a kernel
# comes back that ran three times or more; it holds if nine of ten kernels are the same one period
# later. A pass lasts on its host from its first launch to the next pass's.


_REPEATED = "repeated kernels"
_ON_DEVICES = ("kernel", "gpu_memcpy", "gpu_memset")
_ALIKE = 0.9  # of the kernels, one period later
_LEAST = 4  # kernels of a period: fewer are a loop within an operation
_TRIED = 8  # distances, the most frequent first


def periodic_calls(trace: KinetoTrace, work: Int64s, launch: Int64s) -> list[CallRange]:
    """One call per period of the kernels in `work`, which were launched by `launch`. None without a
    period, or if launches are not known."""
    known = trace.events.of_category(work, "kernel")
    known &= launch >= 0
    order = np.argsort(trace.start_ns[launch[known]], kind="stable")
    rows, launches = work[known][order], launch[known][order]
    found = period_of(trace.events.name[rows].astype(np.int64))
    if found is None:
        return []
    first, period = found
    begins = [*range(first, len(rows), period)]
    if len(rows) - begins[-1] < _ALIKE * period:  # this pass went on without being recorded
        del begins[-1]
    times, last = trace.start_ns[launches], launches[begins[-1] : begins[-1] + period]
    ends = [*times[begins[1:]].tolist(), int(trace.end_ns[last].max())]
    thread = int(np.bincount(trace.thread[launches]).argmax())
    return [
        CallRange(thread, begin, end, _REPEATED, _REPEATED, class_known=False)
        for begin, end in zip(times[begins].tolist(), ends, strict=True)
        if end > begin
    ]


def period_of(names: Int64s) -> tuple[int, int] | None:
    """The index at which the first period starts, and the length of a period; None without a
    loop."""
    distances: Counter[int] = Counter()
    for code, count in enumerate(np.bincount(names).tolist() if len(names) else []):
        if count >= LEAST_PASSES:
            apart = np.diff(np.flatnonzero(names == code))
            most = int(np.bincount(apart).argmax())
            if most >= _LEAST:
                distances[most] += 1
    for period, _ in distances.most_common(_TRIED):
        same = names[:-period] == names[period:]
        passes = 1 + int(same.sum()) // period
        if passes >= LEAST_PASSES and float(same[same.argmax() :].mean()) >= _ALIKE:
            return int(same.argmax()), period
    return None


# --- The pipeline call of each submodule call.
#
# A *section* is one call of a pipeline: the outermost `__call__` frame of a pipeline; without such
# frames each `ProfilerStep#n` that holds scheduler steps; if calls were guessed, what `parted`
# distinguishes; else the whole trace.


def find_sections(frames: Frames, calls: list[CallRange]) -> list[Section]:
    """The pipeline calls of a trace, each with its submodule calls, in order of time.

    A call outside every section (a prompt encoded ahead, an image decoded afterwards) belongs to
    the next section, or to the last one if there is no next.
    """
    # outermost scheduler steps; those in a call (a consistency decoder's own) are not ours
    steps = frames.of_kind(Kind.STEP).outermost()
    steps = steps.select(call_ranges(calls).innermost(steps.thread, steps.start_ns) < 0)
    sections = _pipelines(frames, calls) or _marked(frames.trace, steps)
    sections = sections or _guessed(frames.trace, calls)
    if not sections:
        start = min([call.start_ns for call in calls] + steps.start_ns.tolist())
        end = max([call.end_ns for call in calls] + steps.end_ns.tolist())
        if calls[0].instance == _REPEATED:  # what ran before the first pass is of the run, too
            start, end = _all_launched(frames.trace, calls[0].thread, start, end)
        sections = [_around(frames.trace, calls[0].thread, start, end)]
    lookup = Lookup(sections)
    for call in calls:
        lookup.of(call.thread, call.start_ns).calls.append(call)
    prompts = frames.of_kind(Kind.ENCODE_PROMPT).outermost()
    for ranges, name in ((steps, "steps"), (prompts, "prompts")):
        for thread, start, end in (_times(ranges, index) for index in range(len(ranges))):
            getattr(lookup.of(thread, start), name).append((start, end))
    for section in sections:
        section.steps.sort()
        section.prompts.sort()
        inside = [(call.start_ns, call.end_ns) for call in section.calls] + section.steps
        section.start_ns = min([section.start_ns, *(start for start, _ in inside)])
        section.end_ns = max([section.end_ns, *(end for _, end in inside)])
    return sections


def _pipelines(frames: Frames, calls: list[CallRange]) -> list[Section]:
    outermost = frames.of_kind(Kind.PIPELINE).outermost()
    sections = []
    for row, thread in zip(outermost.row.tolist(), outermost.thread.tolist(), strict=True):
        frame = parse_frame(frames.name(row))
        start, end = int(frames.trace.start_ns[row]), int(frames.trace.end_ns[row])
        if frame and any(c.thread == thread and start <= c.start_ns < end for c in calls):
            sections.append(Section(frame.stem, thread, start, end))
    return sorted(sections, key=lambda section: section.start_ns)


def _marked(trace: KinetoTrace, steps: Ranges) -> list[Section]:
    """One section per profiler step, if several of them contain scheduler steps."""
    sections = []
    for row in trace.rows_named(_is_step, "user_annotation").tolist():
        start, end = int(trace.start_ns[row]), int(trace.end_ns[row])
        if ((steps.start_ns >= start) & (steps.start_ns < end)).any():
            name = trace.events.name_of(row)
            sections.append(Section(name, int(trace.thread[row]), start, end))
    return sorted(sections, key=lambda section: section.start_ns) if len(sections) > 1 else []


def _guessed(trace: KinetoTrace, calls: Sequence[CallRange]) -> list[Section]:
    """The pipeline calls of inferred calls; none if there is only one."""
    if not any(call.guessed for call in calls):
        return []
    parts = parted(calls)
    if len(parts) == 1:
        return []
    spans = [(part[0].start_ns, max(call.end_ns for call in part)) for part in parts]
    thread = calls[0].thread
    name = _around(trace, thread, spans[0][0], max(end for _, end in spans)).name
    return [Section(name, thread, start, end) for start, end in spans]


def _all_launched(trace: KinetoTrace, thread: int, start: int, end: int) -> tuple[int, int]:
    """The start of the first and the end of the last of a thread's operators and runtime calls, and
    of all device work."""
    host = trace.rows_of("cpu_op", *RUNTIME)
    rows = np.append(host[trace.thread[host] == thread], trace.rows_of(*_ON_DEVICES))
    first = int(trace.start_ns[rows].min(initial=start))
    return first, int(trace.end_ns[rows].max(initial=end))


def _around(trace: KinetoTrace, thread: int, start: int, end: int) -> Section:
    """The smallest annotation around a range, a profiler's step aside; without one, that range and
    the processors of inputs and outputs before and after it."""
    rows = trace.rows_named(lambda name: not _is_step(name), "user_annotation")
    rows = rows[(trace.start_ns[rows] <= start) & (end <= trace.end_ns[rows])]
    if not len(rows):
        return Section("trace", thread, *_with_processors(trace, thread, start, end))
    row = rows.item(trace.duration_ns[rows].argmin())
    start, end = int(trace.start_ns[row]), int(trace.end_ns[row])
    return Section(trace.events.name_of(row), thread, start, end)


def _with_processors(trace: KinetoTrace, thread: int, start: int, end: int) -> tuple[int, int]:
    """A range with what prepares the inputs of a model before it, or makes something of its outputs
    after it, on its thread."""
    rows = trace.rows_named(lambda name: PROCESSOR.search(name) is not None, PYTHON)
    rows = rows[trace.thread[rows] == thread]
    first, last = trace.start_ns[rows].min(initial=start), trace.end_ns[rows].max(initial=end)
    return int(first), int(last)


class Lookup:
    """Finds the section of a time; sections are in order of time."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self._all = _InOrder(sections)
        threads: defaultdict[int, list[Section]] = defaultdict(list)
        for section in sections:
            threads[section.thread].append(section)
        self._of_thread = {thread: _InOrder(some) for thread, some in threads.items()}

    def of(self, thread: int, time_ns: int) -> Section:
        """The first section around a time, preferably on the same thread; else the next one; else
        the last."""
        own = self._of_thread.get(thread)
        around = own.around(time_ns) if own is not None else None
        return around or self._all.around(time_ns) or self._all.behind(time_ns)


class _InOrder:
    """Sections in order of their start; they may overlap."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self._sections = sections
        self._starts = [section.start_ns for section in sections]
        self._reached = list(accumulate((section.end_ns for section in sections), max))

    def around(self, time_ns: int) -> Section | None:
        first = bisect_right(self._reached, time_ns)
        return self._sections[first] if first < bisect_right(self._starts, time_ns) else None

    def behind(self, time_ns: int) -> Section:
        place = bisect_right(self._starts, time_ns)
        return self._sections[min(place, len(self._sections) - 1)]
