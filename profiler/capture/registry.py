"""The registry of backends: find the backend that owns an object.

Backends of other packages (entry point group `profile_sd3.backends`) are asked first, so they
can claim objects of built-in backends. They are loaded when the first object is claimed,
because the lookup is slow. Hooks keep the answer; no call of a submodule asks here.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from profiler.capture.backend import Backend
from profiler.errors import InputError
from profiler.plugins import let_pass, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profiler.capture.operator_source import OperatorSource, SourceRequest
    from profiler.capture.settings import SubmoduleOptions
    from profiler.trace.manifest_fields import Device


# --- What a profiled script's user is told: one line on stderr each, never an exception.


def notice(sentence: str) -> None:
    """Write `sentence` to stderr as one line; nothing happens if there is no stderr, or it is
    full: what stays in its buffer would change the script's exit code."""
    own, line = sys.__stderr__, f"profile-sd3: {plain_text(' '.join(sentence.split()))}\n"
    try:
        if own is None or sys.stderr is not own:  # it is the script's, or a notebook's
            sys.stderr.write(line)
            sys.stderr.flush()
            return
        own.flush()
        data = line.encode(own.encoding, "backslashreplace")
        while data:
            data = data[os.write(own.fileno(), data) :]
    except (OSError, ValueError, AttributeError) as error:
        let_pass(error)


# --- Which backends there are, and which of them an object belongs to.
#
# Those of other packages (entry point group `profile_sd3.backends`) are asked first, so that an
# engine can be claimed that is an object of another backend's as well. Looking them up takes longer
# than starting to profile, so it is done when the first object is to be claimed. No call of a
# submodule asks here: hooks keep the answer.


GROUP = "profile_sd3.backends"
_MODULE = "backend"  # of a backend's folder
_failed: set[str] = set()  # names of backends that could not answer


class _Unclaimed(Backend):
    """Answers for objects that belong to no backend."""

    def open(self, request: SourceRequest) -> OperatorSource | None:
        if request.selection.nothing:
            return None
        known = ", ".join(sorted(backend.name for backend in backends()))
        raise InputError(
            f"no backend ({known}) traces the operators of {request.submodule}, which is a "
            f"{type(request.part).__name__}: use ops='none' or activate_profiler=False"
        )


_UNCLAIMED = _Unclaimed()


@cache
def built_in() -> tuple[Backend, ...]:
    """The backends whose folders lie here, in the order in which they are asked."""
    here: Iterable[str] = import_module(__package__).__path__
    folders = [entry for path in here for entry in os.scandir(path) if entry.is_dir()]
    names = sorted(entry.name for entry in folders if os.path.isfile(f"{entry.path}/{_MODULE}.py"))  # noqa: PTH113 - pathlib takes longer
    found: list[Backend] = [
        import_module(f"{__package__}.{name}.{_MODULE}").BACKEND for name in names
    ]
    return tuple(sorted(found, key=lambda backend: backend.order))


@cache
def backends() -> tuple[Backend, ...]:
    """All backends in the order in which they are asked. A package whose backend cannot be used is
    named on stderr, and left out."""
    from profiler.plugins import plugins

    found = []
    for backend in plugins(GROUP, "name", "owns", "open"):
        if isinstance(backend, Backend):
            found.append(backend)
        else:
            kind = type(backend).__name__
            notice(f"a backend is left out: {GROUP} has a {kind} that is no instance of Backend")
    return (*found, *built_in())


def backend_of(part: Any, owner: Any = None) -> Backend:
    """The backend that `part` of `owner` belongs to; one with no answers of its own where it
    belongs to none."""
    for backend in backends():
        try:
            if backend.owns(part, owner):
                return backend
        except Exception as error:  # noqa: BLE001 - a crash is an answer as well, until it is mended
            let_pass(error)
            if backend.name not in _failed:
                _failed.add(backend.name)
                kind = f"{type(part).__name__} ({type(error).__name__}: {error})"
                notice(f"the backend {backend.name} does not tell whether it owns a {kind}")
    return _UNCLAIMED


def backend_named(name: str) -> Backend:
    """The backend of that name; one with no answers of its own if there is none."""
    return next((backend for backend in backends() if backend.name == name), _UNCLAIMED)


def configured(pipeline: Any, submodule: str, part: str) -> SubmoduleOptions:
    """What the user's program has itself configured of a submodule's part, as the first backend
    that knows says. A configuration that fails or is no such thing says nothing."""
    from profiler.capture.settings import SubmoduleOptions, parse_config

    for backend in backends():
        try:
            found = backend.configured(pipeline, submodule, part)
            if found:
                return parse_config({submodule: found}, "all", (submodule,)).of(submodule)
        except Exception as error:  # noqa: BLE001 - a crash is an answer as well, until it is mended
            let_pass(error)
    return SubmoduleOptions()


def device_facts(device: str) -> Device | None:
    """What the first backend that knows tells of a device's hardware; a backend that fails tells
    nothing."""
    for backend in backends():
        try:
            found = backend.device_facts(device)
        except Exception as error:  # noqa: BLE001 - a crash is an answer as well, until it is mended
            let_pass(error)
        else:
            if found is not None:
                return found
    return None


def open_source(request: SourceRequest) -> OperatorSource | None:
    """The source for a part, hooked into it; None if its operators cannot be traced.

    Raises InputError if the part is nothing that runs operators.
    """
    source = backend_of(request.part, request.owner).open(request)
    if source is not None and request.recorder.limit.most is not None:
        from profiler.capture.operator_source import LimitedSource

        source = LimitedSource(source, request.recorder.limit)
    if source is None or not request.selection.mixed:
        return source
    from profiler.capture.operator_source import SelectedCalls

    return SelectedCalls(source, request.selection)
