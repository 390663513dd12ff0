"""Pipelines that a switched-on script makes and uses: noticed on their class, attached singly.

Every diffusers pipeline calls `register_modules` while it is made, which shows its class. The
class's `__call__` and `encode_prompt` are wrapped, once a class: on its first use, when its parts
are complete and placed, a pipeline is handed to `attach`, and the use begins again, hooks in place.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from profiler.capture.class_patches import ClassPatches
from profiler.capture.notices import notice
from profiler.capture.wraps import WRAPPED
from profiler.interruptions import let_pass

__all__ = ["OWN", "NewPipelines"]

_MODULAR = "diffusers.modular_pipelines.modular_pipeline"  # where ModularPipeline is
_DIFFUSERS = "diffusers.pipelines.pipeline_utils"  # where DiffusionPipeline is defined
OWN = {
    "profiler.pipelines.sd3": "StableDiffusion3Pipeline",
    "profiler.pipelines.flux": "FluxPipeline",
    "profiler.pipelines.qwen_image": "QwenImagePipeline",
}
"""Modules of our own pipelines, and the class in each."""

_USES = ("__call__", "encode_prompt")


class NewPipelines:
    """Hands each pipeline to `attach(pipeline)` on its first use.

    `attach` returns whether hooks are in place now, None to be asked again on the next use. Where
    it raises, that is said in one sentence, and the pipeline runs without hooks. `undo` leaves the
    classes as they were.
    """

    def __init__(self, attach: Callable[[Any], bool | None]) -> None:
        self._attach = attach
        self._seen: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._held: weakref.WeakSet[Any] = weakref.WeakSet()  # parts of pipelines
        self._lock = threading.RLock()
        self._classes: set[type] = set()
        self._patches = ClassPatches()

    @property
    def libraries(self) -> dict[str, Callable[[Any], None]]:
        """Where classes of pipelines are defined."""
        own = {module: partial(self._watch_own, name) for module, name in OWN.items()}
        return {_DIFFUSERS: self.watch_diffusers, _MODULAR: self._watch_modular, **own}

    def _watch_own(self, name: str, module: Any) -> None:
        self.watch_class(getattr(module, name))

    def _watch_modular(self, module: Any) -> None:
        """Pipelines made of blocks, which have one `__call__`."""
        for known in _with_subclasses(module.ModularPipeline):
            self.watch_class(known)

    def watch_diffusers(self, module: Any) -> None:
        """Watch all pipelines of diffusers; `module` is its `pipelines.pipeline_utils`."""
        base = module.DiffusionPipeline
        for known in _with_subclasses(base):
            self.watch_class(known)
        register = base.register_modules

        @functools.wraps(register)
        def register_modules(pipeline: Any, **modules: Any) -> Any:
            for known in type(pipeline).__mro__[:-1]:
                self.watch_class(known)
            self._note(modules)
            return register(pipeline, **modules)

        self._patches.replace(base, "register_modules", register_modules)

    def watch_class(self, pipeline_class: type) -> None:
        """Watch the instances of one class, those that exist included."""
        if pipeline_class in self._classes or WRAPPED in vars(pipeline_class):
            return
        self._classes.add(pipeline_class)
        for name in _USES:
            original = vars(pipeline_class).get(name)
            if callable(original) and not isinstance(original, (staticmethod, classmethod)):
                self._patches.replace(pipeline_class, name, self._first_use(name, original))

    def holds(self, part: Any) -> bool:
        """Whether a pipeline that was made has `part`, used or not."""
        try:
            return part in self._held
        except TypeError:
            return False

    def _note(self, modules: dict[str, Any]) -> None:
        for part in modules.values():
            with suppress(TypeError):  # it knows no weak references
                self._held.add(part)

    def forget(self) -> None:
        """Let every pipeline be attached again on its next use."""
        self._seen = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()  # a forked child may have been left a locked one

    def forget_one(self, pipeline: Any) -> None:
        """Let one pipeline be attached again on its next use."""
        with self._lock:
            self._seen.pop(pipeline, None)

    def undo(self) -> None:
        """Leave all classes as they were."""
        self._patches.undo()
        self._classes.clear()
        self.forget()

    def _first_use(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def use(pipeline: Any, *args: Any, **kwargs: Any) -> Any:
            if pipeline not in self._seen and self._attached(pipeline):
                again = pipeline if name == "__call__" else getattr(pipeline, name)
                return again(*args, **kwargs)  # through the hooks that are there now
            return original(pipeline, *args, **kwargs)

        return use

    def _attached(self, pipeline: Any) -> bool:
        """Attach once; threads that use the pipeline meanwhile wait, to be recorded as well."""
        with self._lock:
            if pipeline in self._seen:
                return self._seen[pipeline]
            try:
                attached = self._attach(pipeline)
            except Exception as error:  # noqa: BLE001 - the script runs on, unprofiled
                let_pass(error)
                notice(f"{type(pipeline).__name__} is not profiled: {error}")
                attached = False
            if attached is not None:
                self._seen[pipeline] = attached
            return bool(attached)


def _with_subclasses(base: type) -> Iterator[type]:
    """`base` and all classes below it that exist."""
    yield base
    below: type
    for below in base.__subclasses__():
        yield from _with_subclasses(below)
