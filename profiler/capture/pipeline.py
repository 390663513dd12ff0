"""Hooks on a pipeline shaped like diffusers': they tell the recorder what runs when.

The shape is declared below, not guessed: which attributes are submodules and through which method
they are invoked, and which callables are host work. Everything is wrapped on the instance and can
be undone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from profiler.capture.recorder import Invocation, Recorder
from profiler.capture.wraps import Around, Wraps
from profiler.errors import InputError
from profiler.events import NO_STEP, ROOT_DEVICE

__all__ = ["BeforeCall", "Entry", "attach", "device_of", "entries", "part_of"]

BeforeCall = Callable[[Invocation | None, str], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """One way into a submodule: `method` of the attribute `submodule`, in `stage`.

    `part` is the path to what holds the submodule's session.
    """

    submodule: str
    method: str
    stage: str
    part: str


_ENTRIES = (
    Entry("text_encoder", "forward", "encode", "text_encoder"),
    Entry("text_encoder_2", "forward", "encode", "text_encoder_2"),
    Entry("text_encoder_3", "forward", "encode", "text_encoder_3"),
    Entry("transformer", "forward", "denoise", "transformer"),
    Entry("unet", "forward", "denoise", "unet"),
    Entry("vae", "decode", "decode", "vae.decoder"),
)
_HOST_WORK = (
    "tokenizer",
    "tokenizer_2",
    "tokenizer_3",
    "join_embeddings",
    "prepare_latents",
    "apply_guidance",
    "scheduler.set_timesteps",
    "scheduler.step",
    "image_processor.postprocess",
)
_STEP = "scheduler.step"
_PROMPT_ORDER = ("prompt", "negative_prompt")  # the order in which encode_prompt encodes


def entries(pipeline: Any) -> list[Entry]:
    """The submodules that `pipeline` has. Raises InputError where it has none."""
    found = [entry for entry in _ENTRIES if getattr(pipeline, entry.submodule, None) is not None]
    if not found:
        names = ", ".join(dict.fromkeys(entry.submodule for entry in _ENTRIES))
        raise InputError(
            f"{type(pipeline).__name__} has none of the submodules {names}: "
            "give a pipeline shaped like diffusers'"
        )
    return found


def part_of(pipeline: Any, entry: Entry) -> Any:
    """What holds the session of a submodule."""
    return attrgetter(entry.part)(pipeline)


def device_of(pipeline: Any, entry: Entry) -> str:
    """The device on which a submodule is placed, "cpu:0" where nothing says otherwise."""
    return str(getattr(part_of(pipeline, entry), "device", None) or ROOT_DEVICE)


def attach(pipeline: Any, recorder: Recorder, before_call: BeforeCall) -> Wraps:
    """Wrap `pipeline` so that it reports to `recorder`; `before_call(invocation, submodule)` runs
    before each call outside its span, with None during warm-up. Undo with the result."""
    wraps = Wraps()
    hooks = _Hooks(pipeline, recorder, before_call)
    try:
        wraps.around_call(pipeline, hooks.around_pipeline)
        if hasattr(pipeline, "encode_prompt"):
            wraps.around(pipeline, "encode_prompt", hooks.around_encode_prompt)
        for entry in entries(pipeline):
            owner = getattr(pipeline, entry.submodule)
            wraps.around(owner, entry.method, hooks.around_submodule(entry, owner))
        for path, owner, name in _host_work(pipeline):
            wraps.around(owner, name, hooks.around_host_work(path))
    except BaseException:
        wraps.undo()
        raise
    return wraps


def _host_work(pipeline: Any) -> Iterator[tuple[str, Any, str]]:
    for path in _HOST_WORK:
        owner_path, _, name = path.rpartition(".")
        owner = getattr(pipeline, owner_path, None) if owner_path else pipeline
        if getattr(owner, name, None) is not None:
            yield path, owner, name


class _Hooks:
    def __init__(self, pipeline: Any, recorder: Recorder, before_call: BeforeCall) -> None:
        self._pipeline = pipeline
        self._recorder = recorder
        self._before_call = before_call
        self._encoded: dict[str, int] = {}  # calls per encoder since the pipeline began
        self._inside = False  # in a call or host work: what it invokes is part of it

    def around_pipeline(self, original: Any, args: Any, kwargs: Any) -> Any:
        if self._recorder.pipeline is not None:
            return original(*args, **kwargs)
        self._encoded.clear()
        if self._recorder.recording:
            self._recorder.settings = _numbers(original, args, kwargs)
        self._recorder.begin_pipeline(type(self._pipeline).__name__)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            self._recorder.end_pipeline(failed=True)
            raise
        self._recorder.end_pipeline()
        return result

    def around_encode_prompt(self, original: Any, args: Any, kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if self._recorder.pipeline is not None:
            self._recorder.pipeline.encode_end_ns = self._recorder.clock.now_ns()
        return result

    def around_submodule(self, entry: Entry, owner: Any) -> Around:
        names = _parameter_names(getattr(owner, entry.method))
        device = device_of(self._pipeline, entry)

        def around(original: Any, args: Any, kwargs: Any) -> Any:
            if self._inside:
                return original(*args, **kwargs)
            recorder = self._recorder
            entered = recorder.clock.now_ns()
            shapes = _shapes(names, args, kwargs)
            call = Invocation(
                submodule=entry.submodule,
                stage=entry.stage,
                branch=self._branch(entry),
                step=self._step() if entry.stage == "denoise" else NO_STEP,
                device=device,
                input_shapes=shapes,
                start_ns=0,
            )
            self._before_call(call if recorder.recording else None, entry.submodule)
            call.start_ns = recorder.clock.now_ns()
            recorder.begin_call(call)
            self._inside = True
            try:
                result = original(*args, **kwargs)
                call.end_ns = recorder.clock.now_ns()
                return result
            finally:
                self._inside = False
                self._count(call.start_ns - entered)

        return around

    def around_host_work(self, path: str) -> Around:
        def around(original: Any, args: Any, kwargs: Any) -> Any:
            if self._inside:
                return original(*args, **kwargs)
            step = self._step() if path == _STEP else NO_STEP
            begin = self._recorder.clock.now_ns()
            self._inside = True
            try:
                return original(*args, **kwargs)
            finally:
                self._inside = False
                end = self._recorder.clock.now_ns()
                self._recorder.add_host_work(path, begin, end)
                if path == _STEP:
                    self._recorder.end_step(step)

        return around

    def _branch(self, entry: Entry) -> str:
        """Encoders: the order in which a pipeline call invokes each. Denoiser: whether
        guidance doubles the batch. Others have none."""
        if entry.stage == "encode":
            count = self._encoded.get(entry.submodule, 0)
            self._encoded[entry.submodule] = count + 1
            return _PROMPT_ORDER[min(count, 1)]
        if entry.stage == "denoise":
            guided = getattr(self._pipeline, "do_classifier_free_guidance", False)
            return "batched" if guided else "cond"
        return ""

    def _step(self) -> int:
        """The denoising step as the scheduler counts it."""
        index = getattr(self._pipeline.scheduler, "step_index", None)
        return int(index) if index is not None else 0

    def _count(self, duration_ns: int) -> None:
        if self._recorder.recording and self._recorder.pipeline is not None:
            self._recorder.hooks_ns += duration_ns


def _numbers(function: Any, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers and switches among a call's arguments, defaults included; no text of the user."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {}
    bound.apply_defaults()
    return {k: v for k, v in bound.arguments.items() if isinstance(v, (bool, int, float))}


def _parameter_names(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _shapes(names: list[str], args: Any, kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Array arguments as "dtype[d0,d1,…]", by parameter name."""
    positional = {names[i] if i < len(names) else f"arg{i}": value for i, value in enumerate(args)}
    return {
        name: f"{value.dtype}[{','.join(map(str, value.shape))}]"
        for name, value in {**positional, **kwargs}.items()
        if hasattr(value, "dtype") and hasattr(value, "shape")
    }
