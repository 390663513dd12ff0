"""Denoising loops in the script's own code: their schedulers, steps and outputs.

A loop starts with the first step of a scheduler after a new schedule, after a step back, or
after the schedule has run out. Only steps that returned count.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from profiler.capture.calls import Invocation, PipelineCall, first_dimension
from profiler.capture.patching import weakly
from profiler.plugins import let_pass
from profiler.trace.manifest_fields import (
    LARGEST,
    Generation,
    Parameters,
    Scheduler,
    Setting,
    setting,
)

# --- What a pipeline call made, and how: from the pipeline, its scheduler, its result, and else
# from its numeric arguments.


_RESULTS = ("images", "frames", "videos")
_IMAGE_CHANNELS = (1, 3, 4)  # channels of an image if they are last
_COLOURS_AHEAD = (1, 3)  # channels if they come first: four are latents'


def generation(pipeline: Any, scheduler: Any, call: PipelineCall, result: Any) -> Generation:
    """Describe what `call` of `pipeline`, which has returned `result`, made with `scheduler`."""
    given = call.settings
    made = _made(result)
    return Generation(
        scheduler=None if scheduler is None else _scheduler(scheduler),
        steps=len(call.step_ends_ns) or None,
        scheduled_steps=_count(getattr(scheduler, "num_inference_steps", None)),
        guidance_scale=_guidance(pipeline, given),
        true_cfg_scale=_number(given.get("true_cfg_scale")),
        width=made.get("width", _count(given.get("width"))),
        height=made.get("height", _count(given.get("height"))),
        frames=made.get("frames", _count(given.get("num_frames"))),
        batch=made.get("batch"),
    )


def scheduled_by(scheduler: Any, batch: int | None) -> Generation:
    """Describe what a loop outside pipeline calls makes with `scheduler`: `batch` latents."""
    return Generation(
        scheduler=_scheduler(scheduler),
        scheduled_steps=_count(getattr(scheduler, "num_inference_steps", None)),
        batch=batch,
    )


def _scheduler(scheduler: Any) -> Scheduler:
    """The scheduler's configuration without the class's defaults; later changes included."""
    config = getattr(scheduler, "config", None)
    try:
        parameters = inspect.signature(type(scheduler).__init__).parameters
    except (TypeError, ValueError) as error:
        let_pass(error)
        parameters = {}  # type: ignore[assignment]
    found: Parameters = {}
    for name, configured in config.items() if isinstance(config, Mapping) else ():
        current = _number(getattr(scheduler, name, None)) if name == "shift" else None
        value = configured if current is None else current
        default = parameters[name].default if name in parameters else None
        if name.startswith("_") or value == default:
            continue
        if isinstance(value, (bool, int, float)):
            found[name] = setting(value)
        elif isinstance(value, str):
            found[name] = value
    return Scheduler(name=type(scheduler).__name__, config=found)


def _guidance(pipeline: Any, given: Mapping[str, Setting]) -> float | None:
    """The guidance scale that the pipeline keeps from its call, else the one it was given."""
    for owner, name in (
        (pipeline, "_guidance_scale"),
        (getattr(pipeline, "guider", None), "guidance_scale"),
    ):
        found = _number(getattr(owner, name, None))
        if found is not None:
            return found
    return _number(given.get("guidance_scale"))


def _made(result: Any) -> dict[str, int]:
    """Width, height, frames and number of the images or videos in a result, as far as known; empty
    for latents."""
    values = getattr(result, "values", None)  # of the state that a modular pipeline returns
    by_name = values if isinstance(values, Mapping) else result
    if isinstance(by_name, Mapping):
        found = next((by_name[name] for name in _RESULTS if name in by_name), None)
    else:
        found = next((getattr(result, name) for name in _RESULTS if hasattr(result, name)), result)
    if isinstance(found, tuple) and found:
        found = found[0]
    if isinstance(found, list) and found:
        first = found[0]
        if isinstance(first, list) and first:
            return {"batch": len(found), "frames": len(first), **_size(first[0])}
        return {"batch": len(found), **_size(first)}
    return _of_array(found)


def _size(image: Any) -> dict[str, int]:
    """The size of a PIL image."""
    width, height = getattr(image, "width", None), getattr(image, "height", None)
    if isinstance(width, int) and isinstance(height, int):
        return {"width": width, "height": height}
    return {}


def _of_array(array: Any) -> dict[str, int]:
    """The size of an array [batch, (frames,) height, width, colours], or of a tensor with colours
    first."""
    try:
        shape = tuple(int(size) for size in array.shape)
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:  # of nested tensors
        let_pass(error)
        return {}
    if len(shape) not in (4, 5):
        return {}
    found = {"batch": shape[0]}
    if shape[-1] in _IMAGE_CHANNELS:
        found |= {"height": shape[-3], "width": shape[-2]}
    elif shape[-3] in _COLOURS_AHEAD:
        found |= {"height": shape[-2], "width": shape[-1]}
    else:
        return found
    return {**found, "frames": shape[1]} if len(shape) == 5 else found


def _number(value: Any) -> float | None:
    """A finite number for the manifest, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if -LARGEST <= value <= LARGEST else None


def _count(value: Any) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST
    return value if known else None


# --- What a script's own denoising loops made, outside every pipeline call: from their scheduler,
# its arguments, and what is decoded afterwards.


_SAMPLE = ("sample", "latents", "x")
_AT = 2  # position in a scheduler's `step(model_output, timestep, sample)`
_TIMESTEP_AT = 1
_DECODED_CHANNELS = (1, 3)  # unlocked: properties of the user may wait
_MOST = 1_000  # loops
_LATENTS = ("hidden_states", "sample", "latent_model_input", "latents", "x", "input")


@dataclass(slots=True, eq=False)
class _Loop:
    """One loop of `scheduler()`, which returns None once the scheduler is gone. `made` lacks steps
    and sizes; `last_step` is its latest step, `ends_ns` the ends of its steps, before which
    `unseen` others ran. `decoded` are the latest outputs of submodules since, with their sizes."""

    scheduler: Callable[[], Any]
    made: Generation
    begin_ns: int
    unseen: int = 0
    last_step: int = -1
    ends_ns: list[int] = field(default_factory=list)
    decoded: dict[str, tuple[Invocation, Mapping[str, int]]] = field(default_factory=dict)


class ScriptLoops:
    """The loops of one run, in the order in which they started."""

    def __init__(self) -> None:
        self._loops: list[_Loop] = []
        self._open: dict[int, _Loop] = {}  # by id of the scheduler, which a later one may reuse

    def new_schedule(self, scheduler: Any) -> None:
        """Start a new loop with the next step, since the scheduler has a new schedule."""
        self._open.pop(id(scheduler), None)

    def stepped(
        self,
        scheduler: Any,
        step: int,
        arguments: tuple[Any, Any],
        end_ns: int,
        *,
        unseen: int = 0,
    ) -> None:
        """Record that `scheduler.step` has returned from `step`; `arguments` are its positional and
        keyword arguments. It had made `unseen` steps of this loop before it was hooked."""
        loop = self._open.get(id(scheduler))
        another = loop is None or loop.scheduler() is not scheduler
        if loop is None or another or _begins_again(scheduler, step, loop):
            if len(self._loops) >= _MOST:
                return
            begin_ns = max((one.ends_ns[-1] for one in self._loops), default=-1)
            made = scheduled_by(scheduler, batch=latents_batch(*arguments) or None)
            loop = self._open[id(scheduler)] = _Loop(weakly(scheduler), made, begin_ns, unseen)
            self._loops.append(loop)
        loop.last_step = step
        loop.ends_ns.append(end_ns)

    def returned(self, invocation: Invocation, output: Any) -> None:
        """Record the output of a submodule that may have decoded the result of the latest loop."""
        if self._loops and (size := _decoded_size(output)):
            self._loops[-1].decoded[invocation.submodule] = (invocation, size)

    def generations(self, invocations: Iterable[Invocation]) -> list[Generation]:
        """What the loops made, without duplicates; the stages of all `invocations` are known
        now."""
        denoised = [one for one in invocations if one.pipeline is None and one.stage == "denoise"]
        return list({repr(made): made for made in self._made(denoised)}.values())

    def _made(self, denoised: list[Invocation]) -> Iterable[Generation]:
        for loop in self._loops:
            sizes = [size for call, size in loop.decoded.values() if call.stage == "decode"]
            size = sizes[-1] if sizes else {}
            within = [c for c in denoised if loop.begin_ns < c.start_ns < loop.ends_ns[-1]]
            if self._meets_another(loop):
                within = []
            steps = loop.unseen + len(loop.ends_ns)
            yield structs.replace(
                loop.made,
                steps=steps,
                denoiser_passes=_passes(within, steps * (loop.made.batch or 0)),
                **size,
            )

    def _meets_another(self, loop: _Loop) -> bool:
        """Whether another loop steps during this one, so that it is unknown whose the denoiser's
        calls are."""
        others = (end for one in self._loops if one is not loop for end in one.ends_ns)
        return any(loop.begin_ns < end < loop.ends_ns[-1] for end in others)


def _begins_again(scheduler: Any, step: int, loop: _Loop) -> bool:
    """Whether a step starts another loop: by the scheduler's step counter, else by the length of
    its schedule."""
    if hasattr(scheduler, "step_index"):
        return step <= loop.last_step
    try:
        return loop.unseen + len(loop.ends_ns) >= len(scheduler.timesteps)
    except (AttributeError, TypeError) as error:  # it has no schedule
        let_pass(error)
        return False


def latents_batch(args: Any, kwargs: Mapping[str, Any]) -> int:
    """The number of latents of a step: the first dimension of its sample, 0 if it has none."""
    named = next((kwargs[name] for name in _SAMPLE if name in kwargs), None)
    sample = named if named is not None or len(args) <= _AT else args[_AT]
    return first_dimension(sample)


def timestep(args: Any, kwargs: Mapping[str, Any]) -> Any:
    """The timestep of a step, None if it has none."""
    return kwargs.get("timestep", args[_TIMESTEP_AT] if len(args) > _TIMESTEP_AT else None)


def _passes(denoised: Iterable[Invocation], latents: int) -> int | None:
    """The number of denoiser passes of each latent per step, in one batch or several calls; of
    several submodules the maximum. None if that is not a whole number."""
    by_name: dict[str, int] = {}
    for call in denoised:
        by_name[call.submodule] = by_name.get(call.submodule, 0) + _rows(call.input_shapes)
    most = max(by_name.values(), default=0)
    return most // latents if most and latents and most % latents == 0 else None


def _rows(shapes: Mapping[str, str]) -> int:
    """The batch of a denoiser's latents; 0 if it is unknown which input they are."""
    name = next((name for name in _LATENTS if name in shapes), None)
    if name is None:
        name = next(iter(shapes)) if len(shapes) == 1 else ""
    first = shapes.get(name, "").partition("[")[2].removesuffix("]").split(",")[0]
    return int(first) if first.isdigit() else 0


def _decoded_size(output: Any) -> dict[str, int]:
    """Height, width and frames of an output [batch, colours, (frames,) height, width], of its
    attribute `sample` or its first entry; empty for anything else."""
    found = getattr(output, "sample", output)
    if isinstance(found, (tuple, list)) and found:
        found = found[0]
    try:
        shape = tuple(int(size) for size in found.shape)
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        let_pass(error)
        return {}
    if len(shape) not in (4, 5) or shape[1] not in _DECODED_CHANNELS:
        return {}
    frames = {"frames": shape[2]} if len(shape) == 5 else {}
    return {"width": shape[-1], "height": shape[-2], **frames}
