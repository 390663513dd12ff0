"""Discover pipelines when a script creates them, and the components that each one has.

diffusers calls `register_modules` when it makes a pipeline. The class's `__call__` and
`encode_prompt` are wrapped once per class. A pipeline is attached on its first use. Discovery
imports nothing and calls nothing of the pipeline.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from profiler.capture.backend import backend_of, notice
from profiler.capture.imports import collection_waits, import_ahead
from profiler.capture.patching import (
    WRAPPED,
    ByIdentity,
    ClassPatches,
    attributes,
    call_wrapped,
    callable_itself,
    weakly,
)
from profiler.plugins import let_pass

# --- Objects that a pipeline holds, under any name: executed parts and schedulers.
#
# Attributes of the object in the order in which they were set, and the entries of its lists and
# dicts. Nothing is imported or called.


_PLAIN = (str, bytes, int, float, complex, type(None))
_MOST = 1_000  # entries read of a list or dict
_LONGEST = 60  # characters of a title
_SCHEDULE = ("set_timesteps", "timesteps", "sigmas")


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """`value`, called `name`, which a pipeline holds as its `attribute`, or at `key` of that if it
    is a list or dict."""

    name: str
    attribute: str
    key: str | int | None
    value: Any


class Together:
    """Objects that no pipeline holds, by name, in place of a pipeline; they are not kept alive."""

    def __init__(self, **objects: Any) -> None:
        self._known = {name: weakly(value) for name, value in objects.items()}
        self.look: Callable[[], tuple[list[Any], list[Any]]] | None = None
        """Called before calls outside loops; returns the caller's schedulers, the innermost last,
        and those that are new."""

    def __getattr__(self, name: str) -> Any:
        found = self._known[name]() if name in self.__dict__.get("_known", ()) else None
        if found is None:
            raise AttributeError(name)
        return found

    def add(self, name: str, value: Any) -> str:
        """Add an object; returns its name, with a number if another has it."""
        for known, reference in self._known.items():
            if reference() is value:
                return known
        number, free = 1, name
        while free in self._known and self._known[free]() is not None:
            number += 1
            free = f"{name}_{number}"
        self._known[free] = weakly(value)
        return free

    def alive(self) -> dict[str, Any]:
        """The live objects by name."""
        found = {name: reference() for name, reference in list(self._known.items())}
        return {name: value for name, value in found.items() if value is not None}


def title(pipeline: Any) -> str:
    """The title of a pipeline: its class, or the names of the objects in a `Together`."""
    if isinstance(pipeline, Together):
        return "-".join(n for n, v in pipeline.alive().items() if not is_scheduler(v))[:_LONGEST]
    return type(pipeline).__name__


def held(pipeline: Any) -> Iterator[Held]:
    """All objects that a pipeline holds; one under several names comes several times."""
    if isinstance(pipeline, Together):
        for name, value in pipeline.alive().items():
            if not is_mock(value):
                yield Held(name, name, None, value)
        return
    own = attributes(pipeline)
    inner = own.get("_modules")  # modules have their children in a dict of their own
    own = {**own, **inner} if isinstance(inner, dict) else dict(own)
    collections = []
    for name, value in own.items():
        if isinstance(value, (Mapping, list, tuple)):
            collections.append((name, value))
        elif not isinstance(value, _PLAIN) and not is_mock(value):
            yield Held(name, name, None, value)
    for name, collection in collections:
        if not name.startswith("_"):
            yield from _in_collection(name, collection)


def _in_collection(name: str, collection: Any) -> Iterator[Held]:
    named = isinstance(collection, Mapping)
    pairs = collection.items() if named else enumerate(collection)
    for (key, value), _ in zip(list(pairs)[:_MOST], range(_MOST), strict=False):
        plain = is_mock(value) or isinstance(value, (*_PLAIN, Mapping, list, tuple))
        if isinstance(key, (str, int)) and not plain:
            yield Held(str(key) if named else f"{name}_{key}", name, key, value)


def is_mock(value: Any) -> bool:
    """Whether `value` is one of `unittest.mock`: it has every method, and keeps each call of one
    for the script."""
    mocks = getattr(sys.modules.get("unittest.mock"), "NonCallableMock", None)
    return mocks is not None and issubclass(type(callable_itself(value)), mocks)


def is_scheduler(value: Any) -> bool:
    """Whether `value` steps through a schedule."""
    steps = not is_mock(value) and callable(getattr(value, "step", None))
    return steps and any(hasattr(value, n) for n in _SCHEDULE)


def schedulers(pipeline: Any) -> dict[str, Any]:
    """The schedulers that a pipeline holds, by name; one named scheduler comes first."""
    own = getattr(pipeline, "scheduler", None)
    steps = not is_mock(own) and callable(getattr(own, "step", None))
    found = {"scheduler": own} if steps else {}
    for one in held(pipeline):
        known = one.key is not None or any(one.value is other for other in found.values())
        if not known and is_scheduler(one.value):
            found.setdefault(one.name, one.value)
    return found


def holds_components(value: Any) -> bool:
    """Whether `value` is itself a pipeline that names its components."""
    return isinstance(getattr(type(value), "components", None), property)


def submodules(pipeline: Any, known: list[Any]) -> list[Held]:
    """The objects of a pipeline that a backend executes, except the `known` ones and ones inside
    another; each once."""
    seen = {id(owner) for owner in known}
    found: list[Held] = []
    for one in sorted(held(pipeline), key=lambda one: one.name.startswith("_")):
        if id(one.value) not in seen and is_executed(one.value):
            seen.add(id(one.value))
            found.append(one)
    inside: set[int] = set()
    for owner in (*known, *(one.value for one in found)):
        inside.update(id(part) for part in backend_of(owner).inside(owner) if part is not owner)
    return [one for one in found if id(one.value) not in inside]


def is_executed(value: Any) -> bool:
    """Whether `value` is a module, session or runtime: a backend executes it."""
    if is_scheduler(value) or holds_components(value) or isinstance(value, type):
        return False
    backend = backend_of(value)
    return bool(backend.name) and backend.executes(value)


# --- Pipelines that a switched-on script creates and uses: detected by their class, attached one by
# one.
#
# Every diffusers pipeline calls `register_modules` while it is created. That shows its class, whose
# `__call__` and `encode_prompt` are wrapped once. On its first use, when its parts are complete and
# placed, a pipeline is passed to `attach`, and the use starts again with hooks in place.


_MODULAR = "diffusers.modular_pipelines.modular_pipeline"  # imported when ModularPipeline is
_DIFFUSERS = "diffusers.pipelines.pipeline_utils"  # unlocked: properties of the user may wait
OWN = {
    "profiler.pipelines.sd3": "StableDiffusion3Pipeline",
    "profiler.pipelines.flux": "FluxPipeline",
    "profiler.pipelines.qwen_image": "QwenImagePipeline",
}
"""Modules of our own pipelines, and the pipeline class in each."""

_USES = ("__call__", "encode_prompt")


class NewPipelines:
    """Hands each pipeline to `attach(pipeline)` on its first use.

    `attach` returns whether hooks are in place now, None to be called again on the next use. If it
    raises, one sentence on stderr says so, and the pipeline runs without hooks. `undo` restores the
    classes.
    """

    def __init__(self, attach: Callable[[Any], bool | None]) -> None:
        self._attach = attach
        self._seen: ByIdentity[bool] = ByIdentity()
        self._held: ByIdentity[bool] = ByIdentity()  # parts of pipelines
        self._lock = threading.RLock()
        self._classes: set[type] = set()
        self._patches = ClassPatches()

    @property
    def libraries(self) -> dict[str, Callable[[Any], None]]:
        """The callbacks for modules that define classes of pipelines, by module name."""
        own = {module: partial(self._watch_own, name) for module, name in OWN.items()}
        return {_DIFFUSERS: self.watch_diffusers, _MODULAR: self._watch_modular, **own}

    def _watch_own(self, name: str, module: Any) -> None:
        self.watch_class(getattr(module, name))

    def _watch_modular(self, module: Any) -> None:
        """Watch pipelines made of blocks, which share one `__call__`."""
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
            import_ahead()
            return register(pipeline, **modules)

        self._patches.replace(base, "register_modules", register_modules)

    def watch_class(self, pipeline_class: type) -> None:
        """Watch the instances of one class, including existing ones."""
        if pipeline_class in self._classes or WRAPPED in vars(pipeline_class):
            return
        self._classes.add(pipeline_class)
        for name in _USES:
            original = vars(pipeline_class).get(name)
            if callable(original) and not isinstance(original, (staticmethod, classmethod)):
                self._patches.replace(pipeline_class, name, self._first_use(name, original))

    def holds(self, part: Any) -> bool:
        """Whether any existing pipeline contains `part`, used or not."""
        return part in self._held

    def _note(self, modules: dict[str, Any]) -> None:
        for part in modules.values():
            with suppress(TypeError):  # it cannot be referenced weakly
                self._held[part] = True

    def forget(self) -> None:
        """Forget all pipelines, so that each is attached on its next use."""
        self._seen = ByIdentity()
        self._lock = threading.RLock()  # a fork may have left the child a locked one

    def forget_one(self, pipeline: Any) -> None:
        """Forget one pipeline, so that it is attached on its next use."""
        with self._lock:
            self._seen.pop(pipeline)

    def undo(self) -> None:
        """Restore all classes."""
        self._patches.undo()
        self._classes.clear()
        self.forget()

    def _first_use(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def use(pipeline: Any, *args: Any, **kwargs: Any) -> Any:
            entered = getattr(type(pipeline), name, None) is use  # and not by another's method
            if pipeline in self._seen or not self._attached(pipeline):
                return original(pipeline, *args, **kwargs)
            if not entered:
                return call_wrapped(pipeline, name, original, args, kwargs)
            again = pipeline if name == "__call__" else getattr(pipeline, name)
            return again(*args, **kwargs)  # now with hooks in place

        return use

    def _attached(self, pipeline: Any) -> bool:
        """Attach a pipeline once; other threads that use it wait, so that they are recorded,
        too."""
        with self._lock:
            known = self._seen.get(pipeline)
            if known is not None:
                return known
            try:
                with collection_waits():
                    attached = self._attach(pipeline)
            except Exception as error:  # noqa: BLE001 - the user's program goes on
                let_pass(error)
                notice(f"{type(pipeline).__name__} is not profiled: {error}")
                attached = False
            if attached is not None:
                self._seen[pipeline] = attached
            return bool(attached)


def _with_subclasses(base: type) -> Iterator[type]:
    """`base` and all its existing subclasses."""
    yield base
    below: type
    for below in base.__subclasses__():
        yield from _with_subclasses(below)
