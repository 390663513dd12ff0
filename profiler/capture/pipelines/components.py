"""What a pipeline holds, whatever it is called: what executes something, and schedulers.

Attributes of the object itself in the order in which they were set, then what its lists and dicts
have. Nothing is imported or called for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from profiler.capture.registry import backend_of
from profiler.capture.wraps import attributes, weakly

__all__ = [
    "Held",
    "Together",
    "held",
    "holds_components",
    "is_executed",
    "is_scheduler",
    "schedulers",
    "submodules",
    "title",
]

_PLAIN = (str, bytes, int, float, complex, type(None))
_MOST = 1_000  # entries of a list or dict that are looked at
_LONGEST = 60  # characters of a title
_SCHEDULE = ("set_timesteps", "timesteps", "sigmas")


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """`value`, which a pipeline holds as its `attribute`, at `key` of that where it is a list or
    dict, and which is called `name`."""

    name: str
    attribute: str
    key: str | int | None
    value: Any


class Together:
    """Objects that no pipeline holds, under names, as if one did; they are not kept alive."""

    def __init__(self, **objects: Any) -> None:
        self._known = {name: weakly(value) for name, value in objects.items()}
        self.look: Callable[[], None] | None = None  # to be called ahead of calls outside loops

    def __getattr__(self, name: str) -> Any:
        found = self._known[name]() if name in self.__dict__.get("_known", ()) else None
        if found is None:
            raise AttributeError(name)
        return found

    def add(self, name: str, value: Any) -> str:
        """Hold one more; returns its name, with a number where another has it."""
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
        """What is still there, by name."""
        found = {name: reference() for name, reference in list(self._known.items())}
        return {name: value for name, value in found.items() if value is not None}


def title(pipeline: Any) -> str:
    """What a pipeline is called: its class; the names of what no pipeline holds."""
    if isinstance(pipeline, Together):
        return "-".join(n for n, v in pipeline.alive().items() if not is_scheduler(v))[:_LONGEST]
    return type(pipeline).__name__


def held(pipeline: Any) -> Iterator[Held]:
    """All objects that a pipeline holds, each as often as it does."""
    if isinstance(pipeline, Together):
        yield from (Held(name, name, None, value) for name, value in pipeline.alive().items())
        return
    own = attributes(pipeline)
    inner = own.get("_modules")  # where modules keep their children
    own = {**own, **inner} if isinstance(inner, dict) else dict(own)
    collections = []
    for name, value in own.items():
        if isinstance(value, (Mapping, list, tuple)):
            collections.append((name, value))
        elif not isinstance(value, _PLAIN):
            yield Held(name, name, None, value)
    for name, collection in collections:
        if not name.startswith("_"):
            yield from _in_collection(name, collection)


def _in_collection(name: str, collection: Any) -> Iterator[Held]:
    named = isinstance(collection, Mapping)
    pairs = collection.items() if named else enumerate(collection)
    for (key, value), _ in zip(list(pairs)[:_MOST], range(_MOST), strict=False):
        if isinstance(key, (str, int)) and not isinstance(value, (*_PLAIN, Mapping, list, tuple)):
            yield Held(str(key) if named else f"{name}_{key}", name, key, value)


def is_scheduler(value: Any) -> bool:
    """Whether `value` steps through a schedule."""
    return callable(getattr(value, "step", None)) and any(hasattr(value, n) for n in _SCHEDULE)


def schedulers(pipeline: Any) -> dict[str, Any]:
    """The schedulers that a pipeline holds, by name; the one that it calls so first."""
    own = getattr(pipeline, "scheduler", None)
    found = {"scheduler": own} if callable(getattr(own, "step", None)) else {}
    for one in held(pipeline):
        known = one.key is not None or any(one.value is other for other in found.values())
        if not known and is_scheduler(one.value):
            found.setdefault(one.name, one.value)
    return found


def holds_components(value: Any) -> bool:
    """Whether `value` is a pipeline itself: it names its components."""
    return isinstance(getattr(type(value), "components", None), property)


def submodules(pipeline: Any, known: list[Any]) -> list[Held]:
    """What a pipeline holds that a backend executes, beside the `known` objects: none twice, and
    none that is inside another."""
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
