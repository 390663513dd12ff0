"""A script's objects around a call: by name in its frames, schedulers, and live instances of
classes."""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from inspect import CO_OPTIMIZED
from types import FrameType, FunctionType, ModuleType
from typing import Any

from profiler.capture.backend import backend_of, notice
from profiler.capture.imports import tracked_instances, with_subclasses
from profiler.capture.pipelines.discovery import held, is_scheduler

# --- The names of objects in a script: attributes and variables of its frames.


_OWN = "profiler."
_SHOWS_LOCALS = {"locals", "vars", "dir", "eval", "exec"}
_MOST_FRAMES = 200
_MOST_LOOKS = 1_000  # searches for schedulers, of 50 µs each


def names_of(objects: Iterable[Any], caller: FrameType | None) -> dict[str, Any]:
    """Name each object after its attribute (or key), else its variable, else by its backend; with a
    number if an earlier one has the name."""
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
    """The name of each object in the frames, by id: its attribute or key, else its variable."""
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
    """The values of the variables in the script's frames."""
    return [value for _, value in _variables(list(_frames(caller)))]


def schedulers_around(caller: FrameType | None) -> list[tuple[str, Any]]:
    """The schedulers in the frames with their names, in variables or in attributes of their values;
    that of the innermost frame is the last."""
    found: dict[int, tuple[str, Any]] = {}
    for name, value in _variables(list(_frames(caller))):
        if isinstance(value, type):
            continue
        if is_scheduler(value):
            found[id(value)] = found.pop(id(value), (name, value))
        elif _may_hold(value):
            for one in held(value):
                if one.key is None and is_scheduler(one.value):
                    found[id(one.value)] = found.pop(id(one.value), (one.name, one.value))
    return list(found.values())


def look_for_schedulers(session: Any, caller: FrameType) -> None:
    """Add the schedulers of the script to the session: those that exist now, and those that exist
    when a part is called outside every loop."""
    left = _MOST_LOOKS

    def look(at: FrameType | None = None) -> tuple[list[Any], list[Any]]:
        nonlocal left
        left -= 1
        if left <= 0:
            session.parts.look = None
        around = schedulers_around(at or sys._getframe(1))  # noqa: SLF001 - inspect's is slow
        known = {id(value) for value in session.parts.alive().values()}
        new = [(name, scheduler) for name, scheduler in around if id(scheduler) not in known]
        for name, scheduler in new:
            session.add_part(name, scheduler)
        return [scheduler for _, scheduler in around], [scheduler for _, scheduler in new]

    session.parts.look = look
    look(caller)


def _frames(caller: FrameType | None) -> Iterator[FrameType]:
    """The frames of the script, the outermost first; not the standard library's, to which a model
    in a pool of threads is `fn`."""
    found: list[FrameType] = []
    while caller is not None and len(found) < _MOST_FRAMES:
        standard = _is_standard(caller.f_code.co_filename)
        if not standard and not str(caller.f_globals.get("__name__")).startswith(_OWN):
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
    """A frame's local variables. Up to Python 3.12 a function's frame caches them for `locals()`.
    The cache is cleared, so that it keeps no models alive. A function that may call `locals()` gets
    an empty result instead."""
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
    return not _is_installed(frame.f_code.co_filename)


def _is_installed(file: str) -> bool:
    """Whether a file is of an installed package."""
    return "site-packages" in file or "dist-packages" in file


def _is_standard(file: str) -> bool:
    """Whether a file is of the standard library."""
    return file.startswith(_library()) and not _is_installed(file)


@cache
def _library() -> str:
    """The folder of the standard library, which takes half a millisecond to get."""
    return sysconfig.get_path("stdlib") + os.sep


def _shown(variables: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in variables.items() if not name.startswith("__"))


def _may_hold(value: Any) -> bool:
    """Whether an object of the script may hold modules: not a class, Python module or function, nor
    a network module, which owns its children."""
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, (type, ModuleType))
        and not hasattr(value, "_modules")
        and not callable(getattr(value, "__code__", None))
        and not hasattr(value, "__code__")
    )


# --- The live instances of classes. Those hidden by `gc.freeze()`, as in a child forked from a
# profiled process, are searched for from the script's variables.


_MOST_FROZEN = 100_000  # objects that are looked at one by one
_CLOSED = (type, ModuleType)  # the search does not continue into classes and libraries


def instances(kinds: Sequence[type], caller: FrameType | None = None) -> list[Any]:
    """The live instances of `kinds` and their subclasses. Of those hidden by `gc.freeze()`, only
    the outermost ones reachable from variables of non-library modules, and of the frames from
    `caller` on."""
    wanted = with_subclasses(kinds)
    if not wanted:
        return []
    found = tracked_instances(wanted)
    if gc.get_freeze_count():
        known = set(map(id, found))
        roots = [*_script_globals(), *values_around(caller)]
        found += [one for one in _reached(roots, wanted) if id(one) not in known]
    return found


def _reached(roots: Iterable[Any], wanted: set[type]) -> list[Any]:
    """The outermost instances of these classes that are reachable from the roots."""
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
    """The variables of all modules that are not from libraries."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        foreign = _is_installed(file) or _is_standard(file)
        if not foreign and not name.startswith(_OWN) and (file or name == "__main__"):
            yield vars(module)
