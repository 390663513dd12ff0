"""Which ranges of a Kineto trace are submodule calls.

The rule knows no class names. A *call* is

- an outermost `nn.Module` range, where a module that itself holds a scheduler step or a pipeline's
  `__call__` counts as pipeline and its children as outermost;
- or an outermost `encode` or `decode` frame of an autoencoder: pipelines call these methods, not
  the module, and one of them runs several modules (`post_quant_conv`, `Decoder`; tiles).

An outermost module that elsewhere runs inside another call is a part of that submodule which the
pipeline borrowed (a final norm for `clip_skip`), not a submodule: it is no call.

Which call of a pipeline they are of, `sections` says.
"""

from __future__ import annotations

import re
from enum import StrEnum

import numpy as np
from msgspec import Struct, field

from profiler.importers.kineto.frames import Frames, Kind, class_of, parse_frame
from profiler.kineto.ranges import Bools, Ranges

__all__ = [
    "STEP_MARK",
    "CallRange",
    "Ran",
    "Section",
    "call_ranges",
    "find_calls",
    "guessed_call",
]

STEP_MARK = re.compile(r"ProfilerStep#(\d{1,9})")
"""The ranges that `torch.profiler`'s schedule marks, a step each."""

_WRAPPERS = re.compile(
    r"OptimizedModule|DataParallel|DistributedDataParallel|Fully\w*Shard\w*|FSDP\w*"
)
_MODEL_FOLDER = re.compile(r"models/(transformers|unets|autoencoders|controlnets)/")
_CLASS_IN_FOLDER = {
    "transformers": "Transformer",
    "unets": "UNet",
    "autoencoders": "Autoencoder",
    "controlnets": "ControlNet",
}


class Ran(StrEnum):
    """Whether what a call launched ran: all but what a graph captured did, a warm-up of its capture
    for nobody's sake."""

    EXECUTED = "executed"
    WARM_UP = "warm_up"
    CAPTURED = "captured"


class CallRange(Struct, frozen=True):
    """One submodule call on the host.

    `instance` tells submodules apart ("T5EncoderModel_0"; "vae" for autoencoder methods);
    `class_name` is the module's class, a wrapper's inner one where the trace shows it, and the
    file (`autoencoder_kl`) for an autoencoder's method. `guessed` calls are those of a diffusion
    pipeline that operators show, `inputs` how many they had at once, 0 where not known, and
    `same_step` those in the step of the denoiser's call before.
    """

    thread: int
    start_ns: int
    end_ns: int
    instance: str
    class_name: str
    is_autoencoder: bool
    modules: tuple[int, ...]  # the module's range in `Frames.modules`, wrapper before inner one
    told: bool = True  # whether the trace tells the class: not of what was guessed or annotated
    guessed: bool = False
    inputs: int = 0
    same_step: bool = False
    ran: Ran = Ran.EXECUTED


class Section(Struct):
    """One call of a pipeline: its frame, and in order of time what ran in it.

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
    modules = frames.modules
    autoencoders = _autoencoder_frames(frames)
    top = modules.outermost_marked(~_holds_pipeline(frames))
    in_method = autoencoders.innermost(modules.thread, modules.start_ns) >= 0
    outermost = (top == np.arange(len(modules))) & ~in_method
    inside = {frames.instances[index] for index in np.flatnonzero((top >= 0) & ~outermost).tolist()}
    calls = [
        _module_call(frames, index)
        for index in np.flatnonzero(outermost).tolist()
        if frames.instances[index] not in inside
    ]
    calls += [_method_call(frames, autoencoders, index) for index in range(len(autoencoders))]
    return sorted(calls, key=lambda call: (call.start_ns, call.end_ns))


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
    """A call that operators show."""
    return CallRange(
        thread,
        start_ns,
        end_ns,
        instance,
        class_name,
        is_autoencoder=instance == "vae",
        modules=(),
        told=False,
        guessed=True,
        inputs=inputs,
    )


def _holds_pipeline(frames: Frames) -> Bools:
    """Which modules are no submodule because the pipeline itself runs in them, bool [modules]."""
    holds = np.zeros(len(frames.modules), dtype=np.bool_)
    for kind in (Kind.STEP, Kind.PIPELINE):
        inner = frames.of_kind(kind)
        for index in np.unique(frames.modules.innermost(inner.thread, inner.start_ns)).tolist():
            above = index
            while above >= 0 and not holds[above]:
                holds[above] = True
                above = int(frames.modules.parent[above])
    return holds


def _autoencoder_frames(frames: Frames) -> Ranges:
    """Outermost encode and decode frames that lie in no module of their own."""
    methods = frames.of_kind(Kind.AUTOENCODER).outermost()
    around = frames.modules.innermost(methods.thread, methods.start_ns)
    holds = _holds_pipeline(frames)
    return methods.select((around < 0) | holds[around] if len(holds) else around < 0)


def _module_call(frames: Frames, index: int) -> CallRange:
    modules = frames.modules
    class_name, chain = _unwrapped(frames, index)
    return CallRange(
        thread=int(modules.thread[index]),
        start_ns=int(modules.start_ns[index]),
        end_ns=int(modules.end_ns[index]),
        instance=frames.instances[index],
        class_name=class_name,
        is_autoencoder=False,
        modules=chain,
    )


def _method_call(frames: Frames, methods: Ranges, index: int) -> CallRange:
    frame = parse_frame(frames.name(int(methods.row[index])))
    assert frame is not None
    return CallRange(
        thread=int(methods.thread[index]),
        start_ns=int(methods.start_ns[index]),
        end_ns=int(methods.end_ns[index]),
        instance="vae",
        class_name=frame.stem,
        is_autoencoder=True,
        modules=(),
    )


def _unwrapped(frames: Frames, index: int) -> tuple[str, tuple[int, ...]]:
    """The module's class, and the ranges that are the submodule as a whole.

    For a wrapper (torch.compile's `OptimizedModule`, data parallelism) the class is that of the
    module it holds, as far as the trace tells.
    """
    parents = frames.modules.parent
    chain = [index]
    name, _ = class_of(frames.instances[index])
    while _WRAPPERS.fullmatch(name):
        inner = chain[-1] + 1
        if inner >= len(parents) or parents[inner] != chain[-1]:
            break
        inner_name, _ = class_of(frames.instances[inner])
        if inner_name == "GraphModule":  # what was compiled, not what it was compiled from
            break
        chain.append(inner)
        name = inner_name
    if _WRAPPERS.fullmatch(name):
        name = _class_from_files(frames, index) or name
    return name, tuple(chain)


def _class_from_files(frames: Frames, index: int) -> str:
    """What kind of model a compiled module is, from the files whose code runs in it; or ""."""
    modules, trace = frames.modules, frames.trace
    start_ns = trace.start_ns[frames.rows]
    inside = (trace.thread[frames.rows] == modules.thread[index]) & (
        (start_ns >= modules.start_ns[index]) & (start_ns < modules.end_ns[index])
    )
    for row in frames.rows[inside].tolist():
        match = _MODEL_FOLDER.search(frames.name(row).replace("\\", "/"))
        if match:
            return _CLASS_IN_FOLDER[match[1]]
    return ""
