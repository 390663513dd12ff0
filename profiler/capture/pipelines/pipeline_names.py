"""Names of submodules in a run of several pipelines: each object has a name of its own.

    names = RunNames()
    names.add(base)        # unet, vae
    names.add(refiner)     # unet@refiner; vae, if both have the same one

What a later pipeline holds under a name that another object has gets the pipeline's variable, else
its class, behind it. A pipeline that is made again in place of one that is gone has its names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from profiler.capture.patching import weakly
from profiler.capture.pipelines.discovery import Together
from profiler.capture.pipelines.script_objects import names_of
from profiler.capture.pipelines.submodules import Apart, owner_of, present_entries, set_apart
from profiler.trace.events import OF_PIPELINE


@dataclass(frozen=True, slots=True)
class _Holder:
    """What has a name: the object, and what would be the same again."""

    owner: Callable[[], Any]
    kind: tuple[object, ...]


class RunNames:
    """Which object each submodule's name stands for. Whoever holds it sees to it that one thread at
    a time changes it."""

    def __init__(self) -> None:
        self._known: dict[str, _Holder] = {}

    def add(self, pipeline: Any) -> Apart | None:
        """Name the submodules of a pipeline for as long as it is attached; returns how it was
        named before, for `set_apart` when it no longer is."""
        before = set_apart(pipeline, None)
        held = {entry.submodule: owner_of(pipeline, entry) for entry in present_entries(pipeline)}
        kinds = {name: _kind(pipeline, owner) for name, owner in held.items()}
        taken = [name for name, owner in held.items() if not self._fits(name, owner, kinds[name])]
        if taken and not isinstance(pipeline, Together):
            same = frozenset(name for name, owner in held.items() if self._has(name, owner))
            own = {name: owner for name, owner in held.items() if name not in same}
            set_apart(pipeline, Apart(self._ending(pipeline, own), same))
            entries = present_entries(pipeline)
            held = {entry.submodule: owner_of(pipeline, entry) for entry in entries}
        for name, owner in held.items():
            self._known[name] = _Holder(weakly(owner), _kind(pipeline, owner))
        return before

    def free(self, name: str, value: Any) -> str:
        """The name of something that no pipeline holds, with a number if another object has it."""
        number, free = 1, name
        while not self._fits(free, value, ()):
            number += 1
            free = f"{name}_{number}"
        return free

    def _has(self, name: str, owner: Any) -> bool:
        known = self._known.get(name)
        return known is not None and known.owner() is owner

    def _fits(self, name: str, owner: Any, kind: tuple[object, ...]) -> bool:
        """Whether nothing else has a name."""
        known = self._known.get(name)
        if known is None or known.owner() is owner:
            return True
        return known.owner() is None and known.kind == kind

    def _ending(self, pipeline: Any, own: dict[str, Any]) -> str:
        """What the names of those submodules end with that are a pipeline's own."""
        (name,) = names_of([pipeline], sys._getframe(1))  # noqa: SLF001 - inspect's is slow
        kinds = {submodule: _kind(pipeline, owner) for submodule, owner in own.items()}
        number, free = 1, name
        while not all(
            self._fits(f"{submodule}{OF_PIPELINE}{free}", owner, kinds[submodule])
            for submodule, owner in own.items()
        ):
            number += 1
            free = f"{name}_{number}"
        return free


def _kind(pipeline: Any, owner: Any) -> tuple[object, ...]:
    model = getattr(pipeline, "name_or_path", None)
    return (type(pipeline), model if isinstance(model, str) else "", type(owner))
