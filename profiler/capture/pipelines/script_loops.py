"""Denoising loops in the script's own code: their schedulers, steps and outputs.

A loop starts with the first step of a scheduler after a new schedule, after a step back, or
after the schedule has run out. Only steps that returned count.
"""

from __future__ import annotations

import gc
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from types import FrameType, FunctionType, ModuleType
from typing import Any

from msgspec import structs

from profiler.capture.calls import Invocation, PipelineCall, first_dimension
from profiler.capture.patching import weakly
from profiler.capture.pipelines.discovery import held, is_scheduler
from profiler.capture.registry import backend_of, notice
from profiler.plugins import let_pass
from profiler.trace.manifest_fields import (
    LARGEST,
    Generation,
    Parameters,
    Scheduler,
    Setting,
    setting,
)

# --- What a pipeline call made, and how: from the pipeline, its scheduler, its result, and from the
# numbers that it was given where nothing of these tells.


_RESULTS = ("images", "frames", "videos")
_IMAGE_CHANNELS = (1, 3, 4)  # channels of an image where they are last
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
    if shape[-1] in _IMAGE_CHANNELS:
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


# --- What denoising loops of a script's own made, outside every pipeline call: from their
# scheduler,
# from what it steps, and from what is decoded behind them.
#
# A loop begins with the first step of a scheduler after a new schedule, where the scheduler
# counts
# from an earlier step again, or where the schedule has run out. Its steps are those that
# returned.


_SAMPLE = ("sample", "latents", "x")
_AT = 2  # of a scheduler's `step(model_output, timestep, sample)`
_DECODED_CHANNELS = (1, 3)  # channels of what a VAE decodes, ahead of its pixels
_MOST = 1_000  # loops
_LATENTS = ("hidden_states", "sample", "latent_model_input", "latents", "x", "input")


@dataclass(slots=True, eq=False)
class _Loop:
    """One loop of `scheduler()`, None once that is gone: `made` but for its steps and sizes,
    `last_step` its latest step, `ends_ns` the ends of its steps, ahead of which `unseen` others
    were made. `decoded` are the latest outputs of submodules since, with their sizes."""

    scheduler: Callable[[], Any]
    made: Generation
    begin_ns: int
    unseen: int = 0
    last_step: int = -1
    ends_ns: list[int] = field(default_factory=list)
    decoded: dict[str, tuple[Invocation, Mapping[str, int]]] = field(default_factory=dict)


class ScriptLoops:
    """The loops of one run, in the order in which they began."""

    def __init__(self) -> None:
        self._loops: list[_Loop] = []
        self._open: dict[int, _Loop] = {}  # by a scheduler's id, which a later one may have again

    def new_schedule(self, scheduler: Any) -> None:
        """The scheduler has got a new schedule."""
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
        """`scheduler.step` of `step` has returned; `arguments` are its own, by place and name. It
        had made `unseen` steps of this loop before anybody looked."""
        loop = self._open.get(id(scheduler))
        another = loop is None or loop.scheduler() is not scheduler
        if loop is None or another or _begins_again(scheduler, step, loop):
            if len(self._loops) >= _MOST:
                return
            begin_ns = max((one.ends_ns[-1] for one in self._loops), default=-1)
            made = scheduled_by(scheduler, batch=_batch(*arguments))
            loop = self._open[id(scheduler)] = _Loop(weakly(scheduler), made, begin_ns, unseen)
            self._loops.append(loop)
        loop.last_step = step
        loop.ends_ns.append(end_ns)

    def returned(self, invocation: Invocation, output: Any) -> None:
        """A submodule has returned: perhaps it has decoded what the latest loop made."""
        if self._loops and (size := _decoded_size(output)):
            self._loops[-1].decoded[invocation.submodule] = (invocation, size)

    def generations(self, invocations: Iterable[Invocation]) -> list[Generation]:
        """What the loops made, each once; the stages of all `invocations` are known now."""
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
        """Whether another loop steps while this one does: whose a denoiser's call is, is unknown
        then."""
        others = (end for one in self._loops if one is not loop for end in one.ends_ns)
        return any(loop.begin_ns < end < loop.ends_ns[-1] for end in others)


def _begins_again(scheduler: Any, step: int, loop: _Loop) -> bool:
    """Whether a step is of another loop than this one: by what the scheduler counts, else by the
    length of its schedule."""
    if hasattr(scheduler, "step_index"):
        return step <= loop.last_step
    try:
        return len(loop.ends_ns) >= len(scheduler.timesteps)
    except (AttributeError, TypeError) as error:  # it tells of none
        let_pass(error)
        return False


def _batch(args: Any, kwargs: Mapping[str, Any]) -> int | None:
    """How many latents a step has: the first dimension of its sample."""
    named = next((kwargs[name] for name in _SAMPLE if name in kwargs), None)
    sample = named if named is not None or len(args) <= _AT else args[_AT]
    return first_dimension(sample) or None


def _passes(denoised: Iterable[Invocation], latents: int) -> int | None:
    """How often each latent of a step went through the denoiser, in one batch or several calls: of
    several submodules the one that did most. None where that is no whole number."""
    by_name: dict[str, int] = {}
    for call in denoised:
        by_name[call.submodule] = by_name.get(call.submodule, 0) + _rows(call.input_shapes)
    most = max(by_name.values(), default=0)
    return most // latents if most and latents and most % latents == 0 else None


def _rows(shapes: Mapping[str, str]) -> int:
    """The batch of a denoiser's latents; 0 where nobody can tell which of its inputs they are."""
    name = next((name for name in _LATENTS if name in shapes), None)
    if name is None:
        name = next(iter(shapes)) if len(shapes) == 1 else ""
    first = shapes.get(name, "").partition("[")[2].removesuffix("]").split(",")[0]
    return int(first) if first.isdigit() else 0


def _decoded_size(output: Any) -> dict[str, int]:
    """Pixels of an output [batch, colours, (frames,) height, width], of its attribute `sample` or
    its first entry; nothing for anything else."""
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


# --- The names under which a script holds objects: attributes and variables of the frames it is in.


_OWN = "profiler."
_SHOWS_LOCALS = {"locals", "vars", "dir", "eval", "exec"}
_MOST_FRAMES = 200
_MOST_LOOKS = 1_000  # 50 µs each


def names_of(objects: Iterable[Any], caller: FrameType | None) -> dict[str, Any]:
    """Each object under its attribute (or key), else its variable, else as its backend calls it;
    with a number where an earlier one has the name."""
    known = _names(caller)
    found: dict[str, Any] = {}
    for value in objects:
        name = known.get(id(value)) or backend_of(value).title(value)
        number, free = 1, name
        while free in found:
            number += 1
            free = f"{name}_{number}"
        found[free] = value
    return found


def held_around(objects: Iterable[Any], caller: FrameType | None) -> list[Any]:
    """Those of the objects that an attribute or variable of the script's frames holds."""
    known = _names(caller)
    return [value for value in objects if id(value) in known]


def _names(caller: FrameType | None) -> dict[int, str]:
    """By identity: what an object's attribute or key is called, else its variable."""
    attributes: dict[int, str] = {}
    variables: dict[int, str] = {}
    for name, value in _variables(list(_frames(caller))):
        variables.setdefault(id(value), name)
        if _may_hold(value):
            for one in held(value):
                attributes.setdefault(id(one.value), one.name)
        elif isinstance(value, dict):
            attributes.update({id(v): str(k) for k, v in value.items() if id(v) not in attributes})
    return variables | attributes


def values_around(caller: FrameType | None) -> list[Any]:
    """What the variables of the script's frames hold."""
    return [value for _, value in _variables(list(_frames(caller)))]


def schedulers_around(caller: FrameType | None) -> dict[str, Any]:
    """The schedulers that the frames hold, in variables or attributes of those."""
    found: dict[str, Any] = {}
    for name, value in _variables(list(_frames(caller))):
        if isinstance(value, type):
            continue
        if is_scheduler(value):
            found.setdefault(name, value)
        elif _may_hold(value):
            for one in held(value):
                if one.key is None and is_scheduler(one.value):
                    found.setdefault(one.name, one.value)
    return found


def look_for_schedulers(session: Any, caller: FrameType) -> None:
    """Have the session know of the schedulers beside the calls of its parts: those that are there
    now, and those that are there when a part is called outside every loop."""
    left = _MOST_LOOKS

    def look(at: FrameType | None = None) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            session.parts.look = None
        around = schedulers_around(at or sys._getframe(1))  # noqa: SLF001 - inspect's is slow
        known = {id(value) for value in session.parts.alive().values()}
        for name, scheduler in around.items():
            if id(scheduler) not in known:
                session.add_part(name, scheduler)

    session.parts.look = look
    look(caller)


def _frames(caller: FrameType | None) -> Iterator[FrameType]:
    """The frames of the script, the outermost first."""
    found: list[FrameType] = []
    while caller is not None and len(found) < _MOST_FRAMES:
        if not str(caller.f_globals.get("__name__")).startswith(_OWN):
            found.append(caller)
        caller = caller.f_back
    yield from reversed(found)


def _variables(frames: list[FrameType]) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for frame in frames:
        if id(frame.f_globals) not in seen:
            seen.add(id(frame.f_globals))
            if frame.f_code.co_flags & CO_OPTIMIZED and _is_script(frame):
                yield from _shown(dict(frame.f_globals))
        yield from _shown(_locals(frame))


def _locals(frame: FrameType) -> dict[str, Any]:
    """A frame's local variables. Up to Python 3.12 a function's frame keeps what it has shown, and
    gives it to `locals()`: it is emptied, lest it keep models alive, and left alone where the
    function may have asked for it."""
    if not frame.f_code.co_flags & CO_OPTIMIZED:
        return dict(frame.f_locals)
    if _SHOWS_LOCALS.intersection(frame.f_code.co_names):
        return {}
    shown = frame.f_locals
    found = dict(shown)
    if isinstance(shown, dict):
        shown.clear()
    return found


def _is_script(frame: FrameType) -> bool:
    return "site-packages" not in frame.f_code.co_filename


def _shown(variables: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in variables.items() if not name.startswith("__"))


def _may_hold(value: Any) -> bool:
    """Whether an object of the script's may hold modules: no class, module of Python's or function;
    a module of a network holds what is inside it."""
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, (type, ModuleType))
        and not hasattr(value, "_modules")
        and not callable(getattr(value, "__code__", None))
        and not hasattr(value, "__code__")
    )


# --- The instances of some classes that live in the process, found in one look at all objects.
#
# Subclasses are asked of their classes, so that each object costs a look at its type and no more.
# What `gc.freeze()` hides, as in a child that was forked from a profiled process, is looked for
# in
# what the script's variables lead to.


_MOST_FROZEN = 100_000  # objects that are looked at one by one
_CLOSED = (type, ModuleType)  # what they lead to are classes and libraries


def instances(kinds: Sequence[type], caller: FrameType | None = None) -> list[Any]:
    """Those of `kinds` and of their subclasses. Of what `gc.freeze()` has hidden, those that lie
    outermost in what variables of modules that are no library, and of the frames from `caller` on,
    lead to."""
    wanted = _with_subclasses(kinds)
    if not wanted:
        return []
    found = [one for one in gc.get_objects() if type(one) in wanted]
    if gc.get_freeze_count():
        known = set(map(id, found))
        roots = [*_script_globals(), *values_around(caller)]
        found += [one for one in _reached(roots, wanted) if id(one) not in known]
    return found


def _reached(roots: Iterable[Any], wanted: set[type]) -> list[Any]:
    """The instances of these classes that the roots lead to, but not through one another."""
    found, seen = [], set[int]()
    pending = list(roots)
    while pending:
        further: list[Any] = []
        for one in pending:
            if id(one) in seen or not gc.is_tracked(one) or isinstance(one, _CLOSED):
                continue
            seen.add(id(one))
            if type(one) in wanted:
                found.append(one)
            elif isinstance(one, FunctionType):
                further.append(one.__closure__)
            else:
                further.append(one)
        if len(seen) > _MOST_FROZEN:
            notice(
                "gc.freeze() hides objects from the look at what is not captured: some of what "
                "runs may be missing from the coverage"
            )
            break
        pending = gc.get_referents(*further)
    return found


def _script_globals() -> Iterator[dict[str, Any]]:
    """The variables of modules that are no library's."""
    library = sysconfig.get_path("stdlib")
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        foreign = "site-packages" in file or "dist-packages" in file or file.startswith(library)
        if not foreign and not name.startswith(_OWN) and (file or name == "__main__"):
            yield vars(module)


def _with_subclasses(kinds: Sequence[type]) -> set[type]:
    found, left = set(kinds), list(kinds)
    while left:
        below: list[type] = type.__subclasses__(left.pop())
        new = [kind for kind in below if kind not in found]
        found.update(new)
        left += new
    return found
