"""What a pipeline call made, and how: from the pipeline, its scheduler, its result, and from the
numbers that it was given where nothing of these tells."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from profiler.capture.timeline import PipelineCall
from profiler.interruptions import let_pass
from profiler.trace.manifest_fields import LARGEST, Setting, setting
from profiler.trace.manifest_settings import Generation, Parameters, Scheduler

__all__ = ["generation", "scheduled_by"]

_RESULTS = ("images", "frames", "videos")
_COLOURS = (1, 3, 4)  # channels of an image where they are last
_COLOURS_AHEAD = (1, 3)  # and where they are ahead: four are latents'


def generation(pipeline: Any, scheduler: Any, call: PipelineCall, result: Any) -> Generation:
    """What `call` of `pipeline`, which has returned `result`, made with `scheduler`."""
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
    """What a loop that `scheduler` steps by itself, outside every pipeline call, is known to make:
    so many latents."""
    return Generation(
        scheduler=_scheduler(scheduler),
        scheduled_steps=_count(getattr(scheduler, "num_inference_steps", None)),
        batch=batch,
    )


def _scheduler(scheduler: Any) -> Scheduler:
    """Its configuration without what is its class's default; what it was told since is in it."""
    config = getattr(scheduler, "config", None)
    try:
        parameters = inspect.signature(type(scheduler).__init__).parameters
    except (TypeError, ValueError) as error:
        let_pass(error)
        parameters = {}  # type: ignore[assignment]
    found: Parameters = {}
    for name, told in config.items() if isinstance(config, Mapping) else ():
        current = _number(getattr(scheduler, name, None)) if name == "shift" else None
        value = told if current is None else current
        default = parameters[name].default if name in parameters else None
        if name.startswith("_") or value == default:
            continue
        if isinstance(value, (bool, int, float)):
            found[name] = setting(value)
        elif isinstance(value, str):
            found[name] = value
    return Scheduler(name=type(scheduler).__name__, config=found)


def _guidance(pipeline: Any, given: Mapping[str, Setting]) -> float | None:
    """What the pipeline keeps of its call, else what it was given."""
    for owner, name in (
        (pipeline, "_guidance_scale"),
        (getattr(pipeline, "guider", None), "guidance_scale"),
    ):
        found = _number(getattr(owner, name, None))
        if found is not None:
            return found
    return _number(given.get("guidance_scale"))


def _made(result: Any) -> dict[str, int]:
    """Width, height, frames and number of the images or videos of a result, as far as it tells:
    latents do not."""
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
    """Of an image of PIL's."""
    width, height = getattr(image, "width", None), getattr(image, "height", None)
    if isinstance(width, int) and isinstance(height, int):
        return {"width": width, "height": height}
    return {}


def _of_array(array: Any) -> dict[str, int]:
    """Of an array [batch, (frames,) height, width, colours], or a tensor with colours ahead."""
    try:
        shape = tuple(int(size) for size in array.shape)
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:  # of nested tensors
        let_pass(error)
        return {}
    if len(shape) not in (4, 5):
        return {}
    found = {"batch": shape[0]}
    if shape[-1] in _COLOURS:
        found |= {"height": shape[-3], "width": shape[-2]}
    elif shape[-3] in _COLOURS_AHEAD:
        found |= {"height": shape[-2], "width": shape[-1]}
    else:
        return found
    return {**found, "frames": shape[1]} if len(shape) == 5 else found


def _number(value: Any) -> float | None:
    """A number as the manifest can hold it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if -LARGEST <= value <= LARGEST else None


def _count(value: Any) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST
    return value if known else None
