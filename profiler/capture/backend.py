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
from contextlib import AbstractContextManager, nullcontext
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


# --- Names of devices.


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


# --- The interface of a backend.


class CallHooks(Protocol):
    """Receives the calls of a submodule: either `around` each call, or its `begin` and `end`."""

    def around(self, original: Any, args: Any, kwargs: Any) -> Any:
        """Run `original(*args, **kwargs)` as a call."""

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], caller: FrameType) -> None:
        """Handle the start of a call; `caller` is a frame that runs until the call has ended."""

    def end(self, output: Any) -> None:
        """Handle the end of a call. If the call failed, its exception is being handled."""


class StepCache(Protocol):
    """Reads what the current step cache of a submodule skips."""

    def begin(self, owner: Any, pipeline: int) -> Callable[[], Skipped | None] | None:
        """Handle the start of a call of `owner` in pipeline call number `pipeline`. Returns a
        function that returns at the call's end what was skipped, or None if no cache is on."""

    def close(self) -> None:
        """Stop reading the cache; again without effect."""


class CompilationLog(Protocol):
    """What a runtime has compiled since this log was opened."""

    def new(self) -> Sequence[Compilation]:
        """Return the compilations since the last call of this method, in order, with CLOCK_REALTIME
        times and without calls. Called after every submodule call: cheap if there are none."""


class Mark(Protocol):
    """A mark in a device's queue."""

    def passed(self) -> bool:
        """Whether the device has reached the mark; does not wait."""

    def since_ns(self, earlier: Mark) -> int:
        """The time in ns from `earlier` to this mark, both of one device and both passed."""


class DeviceMarks(Protocol):
    """Puts marks into the queues of devices and checks whether a queue is empty."""

    def ready(self, device: str) -> bool:
        """Whether this thread may use the device's queue now; False if it has none."""

    def mark(self, device: str) -> Mark:
        """Put a mark behind all work that this thread has queued on the device so far."""

    def empty(self, device: str) -> bool:
        """Whether the device has done all work that this thread has queued on it."""


class StandalonePart(Protocol):
    """An object that a script runs outside pipelines, as `submodule` on `device`. `gone`: the
    script has dropped it. `refused` is set if it must not be recorded. `recommendation` says what
    to do if `device` is not the configured one."""

    submodule: str
    device: str
    refused: bool
    recommendation: str

    @property
    def gone(self) -> bool:
        """Whether the script has dropped the object."""


class Watching(Protocol):
    """A switched-on process, as a `Watcher` sees it."""

    def recording(self) -> Any:
        """The `Session` for what belongs to no pipeline; None if nothing is recorded."""

    def open_source(self, session: Any, part: Any) -> OperatorSource | None:
        """Open the source of a `StandalonePart` and describe the part in the manifest of `session`;
        None if its operators are not traced."""

    def use_parts(self, parts: list[Any], caller: FrameType) -> None:
        """Record `parts` from now on, except those that a pipeline holds: the script has just used
        them, in a call from the frame `caller`."""

    def held(self, parts: list[Any], caller: FrameType) -> list[Any]:
        """Return those of `parts` that the script's variables hold, directly or as attributes of
        their values."""

    def pass_over(self, parts: list[Any], caller: FrameType) -> None:
        """Count the work of `parts` in coverage, without recording their calls: the script has just
        used them as in `use_parts`, but they are too small for submodules."""


class Watcher(Protocol):
    """Notices which objects a script uses once a library is imported."""

    @property
    def libraries(self) -> Mapping[str, Callable[[Any], None]]:
        """The callback for each library, by module name: called with the module once it is
        imported."""

    def forget(self) -> None:
        """Forget all that was noticed, as in a forked child."""

    def undo(self) -> None:
        """Restore the libraries; again without effect."""


class Backend:
    """One runtime that executes submodules.

    `name` is used in manifests and error messages. The manifest states the versions of `packages`.
    `whole`: a submodule is executed as one, whatever parts it has. `allocations`: its sources can
    record allocations (`memory`). Built-in backends are asked in `order`, after those of other
    packages. A method that a backend does not define answers as for an unknown object.

    A `part` is what executes a submodule. `owner` is the pipeline's attribute that contains it: the
    part itself, or for example a VAE in which the part is called `name` ("decoder").
    """

    name = ""
    packages: tuple[str, ...] = ()
    whole = False
    allocations = False
    order = 0

    def owns(self, part: Any, owner: Any = None) -> bool:  # noqa: ARG002
        """Whether `part` belongs to this backend. Imports and changes nothing."""
        return False

    def executes(self, part: Any) -> bool:  # noqa: ARG002
        """Whether `part`, which this backend owns, is a submodule whatever a pipeline calls it."""
        return True

    def inside(self, part: Any) -> Iterable[Any]:
        """The objects inside `part`, none of which is a submodule of its own."""
        return list(attributes(part).values())

    def entry_points(self, part: Any) -> tuple[str, ...]:
        """The names of the methods by which `part` is executed."""
        ways = ("forward", "encode", "decode")
        found = tuple(name for name in ways if callable(getattr(part, name, None)))
        return found or (("__call__",) if callable(part) else ())

    def title(self, part: Any) -> str:
        """The name of `part` if the script has none for it."""
        return type(part).__name__

    def open(self, request: SourceRequest) -> OperatorSource | None:  # noqa: ARG002
        """Hook a source for the operators of `request.part`; None if they cannot be traced. Also
        called for a selection that traces nothing. Raises InputError."""
        return None

    def event_cost(self, gaps: Gaps) -> EventCost | None:  # noqa: ARG002
        """Measure the mean cost of recording one event; None if unknown. `gaps` are those between
        the run's events, as far as sources know."""
        return None

    @property
    def measures_events(self) -> bool:
        """Whether `event_cost` has an answer if the machine is not too busy to measure."""
        return type(self).event_cost is not Backend.event_cost

    def step_cache(self) -> StepCache | None:
        """Open a reader of the blocks that a cache skips in calls of one submodule; None if the
        runtime has no such caches."""
        return None

    def compilation_log(self) -> CompilationLog | None:
        """Open a log of what the runtime compiles from now on; None if it never compiles in
        calls."""
        return None

    def device(self, part: Any, owner: Any, name: str) -> str:  # noqa: ARG002
        """The device that a part runs on now, as `kind:index`. Called in every submodule call."""
        device = getattr(part, "device", None)
        return device_name(device) if device else ROOT_DEVICE

    def device_marks(self) -> DeviceMarks | None:
        """Return an object that can put marks into the queues of this runtime's devices, or
        None."""
        return None

    def device_facts(self, device: str) -> Device | None:  # noqa: ARG002
        """What the runtime reports about the hardware of `device`; None if it is not one of its
        devices. Loads and starts nothing."""
        return None

    def configured(self, pipeline: Any, submodule: str, part: str) -> Mapping[str, Any]:  # noqa: ARG002
        """What the user's program itself has configured for a pipeline's submodule, or for its part
        of that name, in the form of our configuration. It applies if ours says nothing. Every
        backend is asked, whichever owns the part."""
        return {}

    def unobserved(self) -> AbstractContextManager[Any]:
        """A context in which reading arguments and results runs no code of the script's."""
        return nullcontext()

    def weight_bytes(self, part: Any) -> int | None:  # noqa: ARG002
        """Bytes of a part's weights as stored; None if unknown. Loads nothing."""
        return None

    def holder(self, part: Any) -> Callable[[], Any]:
        """Return a function that returns the object with a part's weights, None once it is gone.
        Parts with the same such object share their weights."""
        return weakly(part)

    def settings(self, part: Any) -> SubmoduleSettings | None:  # noqa: ARG002
        """Read the current settings of a part; None if unknown. Called before each pipeline call:
        loads and changes nothing."""
        return None

    def model_path(self, part: Any) -> Path | None:
        """The path of a part's model, None if unknown."""
        path = getattr(part, "model_path", None)
        return Path(path) if path else None

    def method(self, owner: Any, name: str) -> Any:
        """The method `name`, with the parameters that its author wrote."""
        return getattr(owner, name)

    def seen(self, owner: Any, name: str) -> Any:
        """Return an object whose identity changes when the method `name` is replaced and must be
        hooked again."""
        return attributes(owner).get(name)

    def hook_calls(self, wraps: Wraps, owner: Any, name: str, hooks: CallHooks) -> None:
        """Report each call of the submodule's method `name` to `hooks`, until `wraps` is undone."""
        self.hook_method(wraps, owner, name, hooks.around)

    def hook_method(self, wraps: Wraps, owner: Any, name: str, around: Around) -> None:
        """Wrap a method on a subclass for this one object, so that copies of it run their own
        method; on the instance if the instance itself has the method."""
        if name not in attributes(owner) and is_function(getattr(owner, name)):
            try:
                wraps.around_method(owner, name, around)
            except (TypeError, AttributeError) as error:  # its class cannot be changed
                let_pass(error)
            else:
                return
        wraps.around(owner, name, around)

    def executed_kinds(self) -> Sequence[type]:
        """The classes of the objects to pass to `outside`. Imports nothing."""
        return ()

    def outside(
        self,
        captured: Mapping[str, Any],  # noqa: ARG002
        alive: Sequence[Any],  # noqa: ARG002
    ) -> Iterable[tuple[str, str, Any]]:
        """Name, method and object of everything of this runtime that may run while a pipeline runs
        and is not among the `captured` submodules; the name is "" to use the script's variable.
        `alive` are the process's live objects of `executed_kinds`, and perhaps other objects."""
        return ()

    def watch(self, process: Watching) -> Watcher | None:  # noqa: ARG002
        """Watch for parts that a script uses outside pipelines; None if this backend does not."""
        return None


# --- Messages to the profiled script's user: one line on stderr each, never an exception.


def notice(sentence: str) -> None:
    """Write `sentence` to stderr as one line. Does nothing without stderr or if it is full, since
    text left in its buffer would change the script's exit code."""
    own, line = sys.__stderr__, f"profile-sd3: {plain_text(' '.join(sentence.split()))}\n"
    try:
        if own is None or sys.stderr is not own:  # stderr of the script, or of a notebook
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
# Backends of other packages (entry point group `profile_sd3.backends`) are asked first, so that
# they can claim an object that a built-in backend would own, too. Looking them up takes longer than
# starting to profile, so it waits for the first object. No call of a submodule looks here: hooks
# keep the answer.


GROUP = "profile_sd3.backends"
_MODULE = "backend"  # of a backend's folder
_failed: set[str] = set()  # names of backends whose `owns` has failed


class _Unclaimed(Backend):
    """The backend of objects that no backend owns."""

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
    """The backends in this folder, in the order in which they are asked."""
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
    """The backend that owns `part` of `owner`; one with default answers if none does."""
    for backend in backends():
        try:
            if backend.owns(part, owner):
                return backend
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
            if backend.name not in _failed:
                _failed.add(backend.name)
                kind = f"{type(part).__name__} ({type(error).__name__}: {error})"
                notice(f"the backend {backend.name} does not tell whether it owns a {kind}")
    return _UNCLAIMED


def backend_named(name: str) -> Backend:
    """The backend of that name; one with default answers if there is none."""
    return next((backend for backend in backends() if backend.name == name), _UNCLAIMED)


def configured(pipeline: Any, submodule: str, part: str) -> SubmoduleOptions:
    """What the user's program itself has configured for a submodule's part, by the first backend
    that knows. A configuration that fails or is invalid is ignored."""
    from profiler.capture.settings import SubmoduleOptions, parse_config

    for backend in backends():
        try:
            found = backend.configured(pipeline, submodule, part)
            if found:
                return parse_config({submodule: found}, "all", (submodule,)).of(submodule)
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
    return SubmoduleOptions()


def device_facts(device: str) -> Device | None:
    """What the first backend that knows `device` reports about its hardware, or None. Backends that
    fail are skipped."""
    for backend in backends():
        try:
            found = backend.device_facts(device)
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
        else:
            if found is not None:
                return found
    return None


def open_source(request: SourceRequest) -> OperatorSource | None:
    """Hook a source for a part's operators; None if they cannot be traced.

    Raises InputError if the part does not run operators.
    """
    source = backend_of(request.part, request.owner).open(request)
    if source is not None and request.recorder.limit.most is not None:
        from profiler.capture.operator_source import LimitedSource

        source = LimitedSource(source, request.recorder.limit)
    if source is None or not request.selection.mixed:
        return source
    from profiler.capture.operator_source import SelectedCalls

    return SelectedCalls(source, request.selection)
