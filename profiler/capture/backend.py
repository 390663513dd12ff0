"""The `Backend` interface: what capture needs from each runtime that runs a submodule.

A backend is a folder beside this module whose `backend.py` has one as `BACKEND`. Another
package registers one under the entry point group `profile_sd3.backends`. Every profiled process
imports it, so it must import its libraries inside methods.

    class ToyBackend(Backend):
        name = "toy"

        def owns(self, part, owner=None):
            return isinstance(part, toy.Engine)

        def open(self, request):
            return ToyOperators(request)      # an `OperatorSource`
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from profiler.capture.patching import Around, Wraps, attributes, is_function, weakly
from profiler.errors import InputError
from profiler.plugins import let_pass, plain_text
from profiler.trace.events import ROOT_DEVICE

if TYPE_CHECKING:
    from profiler.capture.calls import Skipped
    from profiler.capture.operator_source import Gaps, OperatorSource, SourceRequest
    from profiler.capture.overhead import EventCost
    from profiler.capture.settings import SubmoduleOptions
    from profiler.trace.manifest_fields import Compilation, Device, SubmoduleSettings


# --- How devices are called.


def device_name(device: Any) -> str:
    """A device as `kind:index`: "mps" is "mps:0"."""
    kind, _, index = str(device).partition(":")
    return f"{kind}:{index or 0}"


def output_device(output: Any) -> str:
    """The device of the first tensor in a call's output, "" if there is none."""
    if isinstance(output, Mapping):
        output = tuple(output.values())
    while isinstance(output, (tuple, list)) and output:
        output = output[0]
    device = getattr(output, "device", None)
    return device_name(device) if device is not None else ""


# --- What capture asks about whatever executes a submodule: a `Backend` for each runtime.
#
# A backend is a folder beside this module whose `backend.py` has one as `BACKEND`. Another package
# registers one under the entry point group `profile_sd3.backends`:
#
#     class ToyBackend(Backend):
#         name = "toy"
#
#         def owns(self, part, owner=None):
#             return isinstance(part, toy.Engine)
#
#         def open(self, request):
#             return ToyOperators(request)      # an `OperatorSource`
#
# What a backend does not say is answered as for an object that nobody claims. The module that
# registers it is imported by every process that is profiled: libraries are imported in methods.


class CallHooks(Protocol):
    """Hears of the calls of a submodule: `around` each, or their `begin` and `end`."""

    def around(self, original: Any, args: Any, kwargs: Any) -> Any:
        """Run `original(*args, **kwargs)` as a call."""

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], caller: FrameType) -> None:
        """A call starts; `caller` is a frame that runs until it has ended."""

    def end(self, output: Any) -> None:
        """It has ended, also if it failed: then with its exception being handled."""


class StepCache(Protocol):
    """The step cache of a submodule, whichever it has at the time."""

    def begin(self, owner: Any, pipeline: int) -> Callable[[], Skipped | None] | None:
        """A call of `owner` starts, in the pipeline call of that number; returns what tells at the
        call's end what was skipped, None if no cache is on."""

    def close(self) -> None:
        """Nothing is asked any more; again without effect."""


class CompilationLog(Protocol):
    """What a runtime compiled since this log was opened."""

    def new(self) -> Sequence[Compilation]:
        """What has been compiled since this was asked last, in order, with times of CLOCK_REALTIME
        and without calls. Asked after every call: cheap if there is nothing."""


class Mark(Protocol):
    """A mark in the queue of a device."""

    def passed(self) -> bool:
        """Whether the device has come to it; nothing waits for that."""

    def since_ns(self, earlier: Mark) -> int:
        """How long after another mark of its device it was passed, in ns; both have been."""


class DeviceMarks(Protocol):
    """Puts marks into the queues of devices, and asks them."""

    def ready(self, device: str) -> bool:
        """Whether this thread may use the device's queue now; False if it has none."""

    def mark(self, device: str) -> Mark:
        """A mark behind all that this thread has asked of the device so far."""

    def empty(self, device: str) -> bool:
        """Whether the device has done all that this thread has asked of it."""


class StandalonePart(Protocol):
    """What a script runs by itself, outside pipelines, as `submodule` on `device`. `gone` tells
    that the script has let go of it; `refused` is set if it is not to be recorded, and
    `recommendation` says what to do if `device` is another than was configured."""

    submodule: str
    device: str
    refused: bool
    recommendation: str

    @property
    def gone(self) -> bool:
        """Whether the script has let go of it."""


class Watching(Protocol):
    """A process that is switched on, as a `Watcher` sees it."""

    def recording(self) -> Any:
        """The `Session` for what belongs to no pipeline; None if nothing is recorded."""

    def open_source(self, session: Any, part: Any) -> OperatorSource | None:
        """The source of a `StandalonePart`, described in the manifest of `session`; None if its
        operators are not traced."""

    def use_parts(self, parts: list[Any], caller: FrameType) -> None:
        """The script uses these objects, which it may hold in a pipeline or not, from a call in
        the frame `caller`: those that no pipeline holds are recorded from now on."""

    def held(self, parts: list[Any], caller: FrameType) -> list[Any]:
        """Those of these objects that the script's variables hold, or attributes of what these
        do."""

    def pass_over(self, parts: list[Any], caller: FrameType) -> None:
        """The script uses these objects, which are too small for submodules, as `use_parts` has
        it: what they execute is stated in coverage."""


class Watcher(Protocol):
    """Notices what a script uses once a library is imported."""

    @property
    def libraries(self) -> Mapping[str, Callable[[Any], None]]:
        """Names of modules, and what is called with each when it has been imported."""

    def forget(self) -> None:
        """Start again, as in a forked child: nothing that was noticed is known any more."""

    def undo(self) -> None:
        """Leave the libraries as they were; again without effect."""


class Backend:
    """One runtime that executes submodules.

    `name` stands in manifests and error messages. The manifest states the versions of `packages`.
    `whole`: a submodule of this backend's is executed by itself, whatever parts it has.
    `allocations`: its sources tell of allocations if these are asked for (`memory`). Backends of
    ours are asked in `order`, those of other packages before them.

    A `part` is what executes a submodule. `owner` is the pipeline's attribute that it is of:
    itself, or such as a VAE whose part is called `name` in it ("decoder").
    """

    name = ""
    packages: tuple[str, ...] = ()
    whole = False
    allocations = False
    order = 0

    def owns(self, part: Any, owner: Any = None) -> bool:  # noqa: ARG002
        """Whether `part` belongs to this backend. Nothing is imported for that, and nothing is
        changed."""
        return False

    def executes(self, part: Any) -> bool:  # noqa: ARG002
        """Whether `part`, which is owned, is a submodule whatever a pipeline calls it."""
        return True

    def inside(self, part: Any) -> Iterable[Any]:
        """The objects of which `part` is made: none of them is a submodule of its own."""
        return list(attributes(part).values())

    def entry_points(self, part: Any) -> tuple[str, ...]:
        """The methods by which `part` is called, as far as they execute anything."""
        ways = ("forward", "encode", "decode")
        found = tuple(name for name in ways if callable(getattr(part, name, None)))
        return found or (("__call__",) if callable(part) else ())

    def title(self, part: Any) -> str:
        """What `part` is called if the script has no name for it."""
        return type(part).__name__

    def open(self, request: SourceRequest) -> OperatorSource | None:  # noqa: ARG002
        """What traces the operators of `request.part`, hooked into it; None if they cannot be
        traced. A selection that traces nothing is told as well. Raises InputError."""
        return None

    def event_cost(self, gaps: Gaps) -> EventCost | None:  # noqa: ARG002
        """What one recorded event costs on average, measured now; None if that is not known.
        `gaps` are those between the events, as far as sources know."""
        return None

    @property
    def measures_events(self) -> bool:
        """Whether `event_cost` has an answer on a machine that is not too busy for it."""
        return type(self).event_cost is not Backend.event_cost

    def step_cache(self) -> StepCache | None:
        """What tells which blocks a cache skips in the calls of one submodule; None if there
        are no such caches."""
        return None

    def compilation_log(self) -> CompilationLog | None:
        """What tells what the runtime compiles from now on; None if it compiles nothing in
        calls."""
        return None

    def device(self, part: Any, owner: Any, name: str) -> str:  # noqa: ARG002
        """The device that a part runs on now, as `kind:index`. Asked in every call."""
        device = getattr(part, "device", None)
        return device_name(device) if device else ROOT_DEVICE

    def device_marks(self) -> DeviceMarks | None:
        """What puts marks into the queues of devices that work through such; None if there are
        none, or nobody can."""
        return None

    def device_facts(self, device: str) -> Device | None:  # noqa: ARG002
        """What the runtime tells of the hardware of a device of that name; None if it is none of
        its devices. Nothing is loaded or started for that."""
        return None

    def configured(self, pipeline: Any, submodule: str, part: str) -> Mapping[str, Any]:  # noqa: ARG002
        """What the user's program has itself configured of a pipeline's submodule, or of its part
        of that name, in the form of our own configuration; it counts if ours says nothing. Every
        backend is asked, whoever owns the part."""
        return {}

    def weight_bytes(self, part: Any) -> int | None:  # noqa: ARG002
        """Bytes of a part's weights, as they are stored; None if nobody can tell. Nothing is
        loaded for that."""
        return None

    def holder(self, part: Any) -> Callable[[], Any]:
        """What gives the object that has a part's weights, None once that is gone: parts that
        share one share their weights."""
        return weakly(part)

    def settings(self, part: Any) -> SubmoduleSettings | None:  # noqa: ARG002
        """How a part is set up now, read from it; None if nobody can tell. Asked before each
        pipeline call: nothing is loaded for that, and nothing is changed."""
        return None

    def model_path(self, part: Any) -> Path | None:
        """Where the model of a part lies, None if it does not tell."""
        path = getattr(part, "model_path", None)
        return Path(path) if path else None

    def method(self, owner: Any, name: str) -> Any:
        """The method `name` with the parameters that the user wrote."""
        return getattr(owner, name)

    def seen(self, owner: Any, name: str) -> Any:
        """What is another object once the method `name` has been replaced, so that it must be
        hooked again."""
        return attributes(owner).get(name)

    def hook_calls(self, wraps: Wraps, owner: Any, name: str, hooks: CallHooks) -> None:
        """Have `hooks` told of each call of the submodule's method `name`, until `wraps` is
        undone."""
        self.hook_method(wraps, owner, name, hooks.around)

    def hook_method(self, wraps: Wraps, owner: Any, name: str, around: Around) -> None:
        """Wrap a method: on a subclass for this one object, so that copies of it run their own;
        if the instance itself has the method, on the instance."""
        if name not in attributes(owner) and is_function(getattr(owner, name)):
            try:
                wraps.around_method(owner, name, around)
            except TypeError as error:  # its class cannot be changed
                let_pass(error)
            else:
                return
        wraps.around(owner, name, around)

    def executed_kinds(self) -> Sequence[type]:
        """The classes whose instances `outside` is given. Nothing is imported for that."""
        return ()

    def outside(
        self,
        captured: Mapping[str, Any],  # noqa: ARG002
        alive: Sequence[Any],  # noqa: ARG002
    ) -> Iterable[tuple[str, str, Any]]:
        """What of this runtime's may be executed while a pipeline runs, beside the `captured`
        submodules: name, method and object of each; "" if the script's variable names it.
        `alive` is what lives in the process of `executed_kinds`, perhaps of others'."""
        return ()

    def watch(self, process: Watching) -> Watcher | None:  # noqa: ARG002
        """What notices parts that a script uses outside pipelines; None: nothing does."""
        return None


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
