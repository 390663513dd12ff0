"""Work outside captured calls: modules and pieces of modules that a script calls itself.

It is hooked in the first pipeline call and in traced ones only, and reported as coverage.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any, Literal

from profiler.capture.backend import Backend, backend_of, backends, configured
from profiler.capture.calls import PipelineCall, name_of, number_of, scope
from profiler.capture.patching import ByIdentity, Wraps, weakly
from profiler.capture.pipelines.discovery import (
    Held,
    Together,
    held,
    holds_components,
    is_executed,
    is_mock,
    is_scheduler,
    schedulers,
    submodules,
    title,
)
from profiler.capture.pipelines.script_objects import instances, names_of
from profiler.capture.recorder import Recorder
from profiler.capture.settings import Options
from profiler.errors import InputError
from profiler.plugins import let_pass
from profiler.trace.events import OF_PIPELINE, component_of

# --- Parameter names, by which arguments are recognized.


def argument_names(function: Any) -> list[str]:
    """The parameter names of `function`, empty if unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except Exception as error:  # noqa: BLE001 - it compares objects that can be called with classes
        let_pass(error)
        return []
    return [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


# --- Work that a pipeline executes outside captured calls.
#
# In the first pipeline call and in traced ones, everything else that is executed is hooked as long
# as the pipeline call lasts.


class Outside:
    """Measures the calls of something that is not captured, or of a piece of a captured module.
    They count only during a pipeline call, or, for a piece that is `alone`, only outside."""

    def __init__(
        self, name: str, recorder: Recorder, open_now: threading.local, *, alone: bool = False
    ) -> None:
        self._name = name
        self._recorder = recorder
        self._open = open_now  # .begins: starts of this thread's calls, -1 if not counted
        self._alone = alone

    def begin(self, args: Any, kwargs: Mapping[str, Any], caller: FrameType) -> None:  # noqa: ARG002
        """Handle the start of a call."""
        begins = self._open.__dict__.setdefault("begins", [])
        open_now = scope()
        here = (open_now.pipeline is None) == self._alone
        counts = not begins and open_now.call is None and here
        begins.append(self._recorder.clock.now_ns() if counts else -1)

    def end(self, output: Any) -> None:  # noqa: ARG002
        """Handle the end of a call, also of one that failed."""
        begins = self._open.__dict__.get("begins")
        begin_ns = begins.pop() if begins else -1
        if begin_ns >= 0:
            tally = self._recorder.coverage
            tally.add(self._name, self._recorder.clock.now_ns() - begin_ns)
            tally.alone |= self._alone

    def around(self, original: Any, args: Any, kwargs: Any) -> Any:
        """Run a call of a wrapped method."""
        self.begin(args, kwargs, None)  # type: ignore[arg-type]
        try:
            return original(*args, **kwargs)
        finally:
            self.end(None)


class PipelineCoverage:
    """Measures the uncaptured calls in one pipeline. `captured()` are its submodules by name;
    `named` returns objects by the names that the script has for them."""

    def __init__(
        self,
        recorder: Recorder,
        captured: Callable[[], Mapping[str, Any]],
        named: Callable[[list[Any]], Mapping[str, Any]],
    ) -> None:
        self._recorder = recorder
        self._captured = captured
        self._named = named
        self._found: list[tuple[str, str, Callable[[], Any]]] | None = None
        self._hooked: list[Wraps] = []  # for the running pipeline calls

    def begin(self, *, traced: bool) -> Wraps | None:
        """Hook everything uncaptured before a pipeline call, whose operators are `traced`. None if
        this call is not measured."""
        measured = self._recorder.recording and scope().pipeline is None
        if not measured or (self._found is not None and not traced) or not self._can_be_known():
            return None
        if self._found is None:
            self._found = self._looked_for()
        wraps, open_now = Wraps(), threading.local()
        for name, method, reference in self._found:
            part = reference()
            if part is not None:
                outside = Outside(name, self._recorder, open_now)
                backend_of(part).hook_calls(wraps, part, method, outside)
        self._hooked.append(wraps)
        return wraps

    def _can_be_known(self) -> bool:
        """Whether a backend of the captured objects can search for uncaptured ones; without that,
        coverage is unknown."""
        owners = self._captured().values()
        return any(type(backend_of(owner)).outside is not Backend.outside for owner in owners)

    def _looked_for(self) -> list[tuple[str, str, Callable[[], Any]]]:
        captured = self._captured()
        looking = backends()
        kinds = [kind for backend in looking for kind in backend.executed_kinds()]
        alive = instances(kinds, sys._getframe(1))  # noqa: SLF001 - inspect's is slow
        found = [one for backend in looking for one in backend.outside(captured, alive)]
        unnamed = {id(part): part for name, _, part in found if not name}
        names = {id(part): name for name, part in self._named(list(unnamed.values())).items()}
        return [
            (name or names[id(part)], method, weakref.ref(part)) for name, method, part in found
        ]

    def end(self, wraps: Wraps, pipeline: PipelineCall | None) -> None:
        """Remove the hooks after the pipeline call, which is None if it could not be recorded."""
        wraps.undo()
        self._hooked = [each for each in self._hooked if each is not wraps]
        if pipeline is None:
            return
        tally = self._recorder.coverage
        tally.pipelines += 1
        for call in reversed(list(self._recorder.invocations)):  # earlier ones are packed meanwhile
            if call.start_ns < pipeline.start_ns:
                break
            if number_of(call.pipeline) == pipeline.number and call.end_ns >= 0:
                tally.captured_ns += call.end_ns - call.start_ns

    def abandon(self) -> None:
        """Remove all hooks in a forked child, while the parent's pipeline calls continue."""
        for wraps in self._hooked:
            wraps.undo()
        self._hooked = []


# --- What a script calls directly, bypassing captured modules outside pipelines: pieces of these,
# `model.proj_out(x)`, and modules too small for a submodule. They are hooked for the first calls of
# captured modules, and reported in coverage.


_MOST_CALLS = 50  # measured captured calls, or loops of these
_MOST_SMALL = 200  # small modules hooked at a time


class PieceCoverage:
    """Measures direct calls of pieces of the modules `captured()`, by name."""

    def __init__(self, recorder: Recorder, captured: Callable[[], Mapping[str, Any]]) -> None:
        self._recorder = recorder
        self._captured = captured
        self._known: dict[str, Callable[[], Any]] = {}
        self._small: dict[str, Callable[[], Any]] = {}
        self._wraps = Wraps()
        self._open = threading.local()
        self._calls = 0
        self._ended = False
        self._begin_ns = recorder.clock.now_ns()

    def begin(self, small: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Hook the pieces of new modules, and new modules in `small`."""
        if self._ended:
            return
        new = _new(self._captured(), self._known)
        beside = dict(itertools.islice(_new(small, self._small).items(), _MOST_SMALL))
        names = {id(part): name for name, part in beside.items()}
        for backend in backends():
            for name, method, part in backend.outside(new, list(beside.values())):
                outside = Outside(name or names[id(part)], self._recorder, self._open, alone=True)
                backend_of(part).hook_calls(self._wraps, part, method, outside)

    def called(self) -> None:
        """Count the start of a captured call, or of a loop of them."""
        self._calls += 1
        if self._calls > _MOST_CALLS:
            self.end()

    def end(self) -> None:
        """Remove the hooks; again without effect."""
        if self._ended:
            return
        self._ended = True
        self._wraps.undo()
        alone = (
            call.end_ns - call.start_ns
            for call in list(self._recorder.invocations)  # none of these is packed
            if call.start_ns >= self._begin_ns and call.end_ns >= 0 and call.pipeline is None
        )
        self._recorder.coverage.captured_alone_ns += sum(alone)


def _new(found: Mapping[str, Any], known: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Add `found` objects to `known`; returns the new ones."""
    new = {n: one for n, one in found.items() if known.get(n, lambda: None)() is not one}
    known.update({name: weakly(one) for name, one in new.items()})
    return new


# --- The entry points of a pipeline's submodules, and its host work.
#
# A submodule is what a backend executes, under any name. Known names give its purpose, and make
# anything a submodule. For others the stage comes from their method or its arguments, else from the
# calls around (`Stages`).


_Labelled = Literal["prompt", "denoiser", ""]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry point of a submodule: its `method`, in `stage`; "" if the calls around decide the
    stage.

    `labelled` says where its branch comes from. `part` is the attribute of the submodule that is
    executed, "" for the submodule itself. The submodule is the pipeline's attribute of that name,
    unless `held` names the attribute, and the key if it is a list or dict.
    """

    submodule: str
    method: str
    stage: str
    labelled: _Labelled
    part: str
    held: tuple[str, str | int | None] | None = None


def _forward(submodule: str, stage: str, labelled: _Labelled = "") -> Entry:
    return Entry(submodule, "forward", stage, labelled, "")


_ENTRIES = (
    *(_forward(f"text_encoder{n}", "encode", "prompt") for n in ("", "_2", "_3", "_4")),
    _forward("image_encoder", "encode"),
    Entry("vae", "encode", "encode", "", "encoder"),
    _forward("controlnet", "denoise", "denoiser"),
    *(_forward(f"transformer{n}", "denoise", "denoiser") for n in ("", "_2")),
    _forward("unet", "denoise", "denoiser"),
    Entry("vae", "decode", "decode", "", "decoder"),
    _forward("safety_checker", "decode"),
)
PREPARE_LATENTS = "prepare_latents"
_HOST_WORK = (
    "tokenizer",
    "tokenizer_2",
    "tokenizer_3",
    "tokenizer_4",
    "feature_extractor",
    "join_embeddings",
    PREPARE_LATENTS,
    "apply_guidance",
    "image_processor.preprocess",
    "image_processor.postprocess",
)
_TEXT_ENCODER = re.compile(r"(.+_)?text_encoder(_\d+)?")  # also of a part: `prior_text_encoder`
_IMAGE_ENCODER = re.compile(r"(.+_)?image_encoder(_\d+)?")
_OF_METHOD = (("encode", "encode"), ("get_", "encode"), ("decode", "decode"))
_TIMESTEP = "timestep"  # prefix of a denoiser's parameter for the step

_Seen = tuple[tuple[str, str | int | None, int], ...]
_FOUND: ByIdentity[tuple[_Seen, list[Entry]]] = ByIdentity()
"""For each pipeline, the objects it held, and the entries found in them."""


@dataclass(frozen=True, slots=True)
class Apart:
    """The suffix of a pipeline's submodule names, to distinguish them from another pipeline's; not
    for the `same` objects, which it shares with another."""

    ending: str
    same: frozenset[str]


_APART: ByIdentity[Apart] = ByIdentity()


def set_apart(pipeline: Any, apart: Apart | None) -> Apart | None:
    """Set the suffix of a pipeline's submodule names; returns the previous one."""
    before = _APART.pop(pipeline)
    if apart is not None:
        with suppress(TypeError):  # it cannot be referenced weakly
            _APART[pipeline] = apart
    return before


def entries(pipeline: Any) -> list[Entry]:
    """The entry points of the submodules of `pipeline`. Raises InputError if it has none."""
    found = present_entries(pipeline)
    if not found:
        names = ", ".join(dict.fromkeys(entry.submodule for entry in _ENTRIES))
        what = "what was given" if isinstance(pipeline, Together) else title(pipeline)
        raise InputError(
            f"{what} holds no module, session or runtime, and none of the "
            f"submodules {names}: give a pipeline shaped like diffusers'"
        )
    return found


def present_entries(pipeline: Any) -> list[Entry]:
    """As `entries`, but empty if there are none."""
    known = [entry for entry in _ENTRIES if _has(pipeline, entry)]
    found = [*known, *_others(pipeline, known)]
    apart = _APART.get(pipeline)
    return [_under_its_name(entry, _name(pipeline, entry, apart)) for entry in found]


def _name(pipeline: Any, entry: Entry, apart: Apart | None) -> str:
    """The script's own name of a submodule, or the one that distinguishes it from another
    pipeline's."""
    named = name_of(owner_of(pipeline, entry))
    if named or apart is None or entry.submodule in apart.same:
        return named
    return f"{entry.submodule}{OF_PIPELINE}{apart.ending}"


def _under_its_name(entry: Entry, name: str) -> Entry:
    """The entry under the name that the script gave its submodule, if any."""
    if not name or name == entry.submodule:
        return entry
    return replace(entry, submodule=name, held=entry.held or (entry.submodule, None))


def _others(pipeline: Any, known: list[Entry]) -> list[Entry]:
    """The entries except the `known` ones; searched again if the pipeline holds new objects."""
    seen = tuple((one.name, one.key, id(one.value)) for one in held(pipeline))
    before = _FOUND.get(pipeline)
    if before is not None and before[0] == seen:
        return before[1]
    found = _looked_for(pipeline, known)
    with suppress(TypeError):  # it cannot be referenced weakly
        _FOUND[pipeline] = seen, found
    return found


def _looked_for(pipeline: Any, known: list[Entry]) -> list[Entry]:
    owners = {entry.submodule: owner_of(pipeline, entry) for entry in known}
    others = submodules(pipeline, list(owners.values()))
    found = []
    for name, owner in owners.items():
        of_it = [entry for entry in known if entry.submodule == name]
        methods = {entry.method for entry in of_it}
        in_parts = not backend_of(owner).whole and any(entry.part for entry in of_it)
        if backend_of(owner).name and not in_parts:  # of which part is unknown
            ways = [way for way in backend_of(owner).entry_points(owner) if way not in methods]
            found += [_of_known(entry=of_it[0], method=way, alone=len(of_it) == 1) for way in ways]
    taken = set(owners)
    for one in others:
        name = one.name if one.name not in taken else f"{one.attribute}.{one.name}"
        taken.add(name)
        found += [
            _of_other(name, one, method) for method in backend_of(one.value).entry_points(one.value)
        ]
    return found


def _of_known(entry: Entry, method: str, *, alone: bool) -> Entry:
    """A further entry point of a known submodule; `alone`: it has one known entry point, so one
    stage."""
    stage, labelled = (entry.stage, entry.labelled) if alone else (_stage_of_method(method), "")
    return Entry(entry.submodule, method, stage, labelled, "")


def _of_other(name: str, one: Held, method: str) -> Entry:
    stage, labelled = _stage_of_method(method), ""
    if _TEXT_ENCODER.fullmatch(name):
        stage, labelled = "encode", "prompt"
    elif _IMAGE_ENCODER.fullmatch(name):
        stage = "encode"
    elif not stage and _takes_timestep(one.value, method):
        stage, labelled = "denoise", "denoiser"
    where = None if one.key is None and name == one.attribute else (one.attribute, one.key)
    return Entry(name, method, stage, labelled, "", where)  # type: ignore[arg-type]


def _stage_of_method(method: str) -> str:
    own = method.rpartition(".")[2]
    return next((stage for begin, stage in _OF_METHOD if own.startswith(begin)), "")


def _takes_timestep(owner: Any, method: str) -> bool:
    names = argument_names(backend_of(owner).method(owner, method))
    return any(name.startswith(_TIMESTEP) for name in names)


def owner_of(pipeline: Any, entry: Entry) -> Any:
    """The submodule of an entry."""
    if entry.held is None:
        return getattr(pipeline, entry.submodule)
    attribute, key = entry.held
    inner = getattr(pipeline, attribute)
    return inner if key is None else inner[key]


def _has(pipeline: Any, entry: Entry) -> bool:
    owner = getattr(pipeline, entry.submodule, None)
    if owner is None or is_mock(owner) or not callable(getattr(owner, entry.method, None)):
        return False
    if entry.part and getattr(owner, entry.part, owner) is None:  # a VAE without encoder
        return backend_of(owner).whole
    return True


def host_work(pipeline: Any) -> Iterator[tuple[str, Any, str, bool]]:
    """Path, owner and attribute of each callable of `pipeline` that is host work, and whether the
    owner is a scheduler."""
    for path in _HOST_WORK:
        owner_path, _, name = path.rpartition(".")
        owner = getattr(pipeline, owner_path, None) if owner_path else pipeline
        if callable(getattr(owner, name, None)):
            yield path, owner, name, False
    for one in held(pipeline):
        if holds_components(one.value) and callable(getattr(one.value, PREPARE_LATENTS, None)):
            yield f"{one.name}.{PREPARE_LATENTS}", one.value, PREPARE_LATENTS, False
    for held_as, scheduler in schedulers(pipeline).items():
        for name in ("set_timesteps", "step"):
            if callable(getattr(scheduler, name, None)):
                yield f"{held_as}.{name}", scheduler, name, True


def part_of(pipeline: Any, entry: Entry) -> Any:
    """The object that executes a submodule: itself, or a part of it."""
    owner = owner_of(pipeline, entry)
    if not entry.part or backend_of(owner).whole:
        return owner
    return getattr(owner, entry.part, owner)


def device_of(pipeline: Any, entry: Entry) -> str:
    """The device of a submodule, "cpu:0" by default."""
    owner = owner_of(pipeline, entry)
    return device_reader(owner, entry)(owner)


def device_reader(owner: Any, entry: Entry) -> Callable[[Any], str]:
    """Return a function that returns the device of the submodule `owner`, without looking up its
    backend again."""
    whole = not entry.part or backend_of(owner).whole
    part = owner if whole else getattr(owner, entry.part, owner)
    device = backend_of(part, owner).device

    def read(owner: Any) -> str:
        part = owner if whole else getattr(owner, entry.part, owner)
        return device(part, owner, entry.part)

    return read


# --- Options of a pipeline's submodule: ours, else those that the pipeline itself configures
# (`Backend.configured`).


def options_for(pipeline: Any, entry: Entry, options: Options) -> Options:
    """`options`, completed by what `pipeline` configures now for the submodule of `entry`."""
    own = configured(pipeline, component_of(entry.submodule), entry.part)
    return options.beside(entry.submodule, own)


# --- The argument of `profiler.profile` as objects to attach: pipelines, and all other modules
# together.


_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, functools.partial)


def subjects(given: Any) -> list[Any]:
    """The pipelines in `given`, and all modules outside them as one. Raises InputError if nothing
    in it can be executed."""
    pipelines: list[Any] = []
    together = Together()
    for name, value in _named(given):
        if is_scheduler(value) or (is_executed(value) and not schedulers(value)):
            together.add(name or type(value).__name__, value)
        elif not any(value is known for known in pipelines) and (not name or _is_pipeline(value)):
            pipelines.append(value)
    if any(is_executed(value) for value in together.alive().values()):
        pipelines.append(together)
    for pipeline in pipelines or [given]:
        entries(pipeline)
    return pipelines


def _is_pipeline(value: Any) -> bool:
    return not isinstance(value, (type, ModuleType, *_FUNCTIONS)) and bool(present_entries(value))


def _named(given: Any) -> Iterator[tuple[str, Any]]:
    """The given objects with their names; "" for one that needs none."""
    if isinstance(given, Mapping):
        yield from ((str(name), value) for name, value in given.items())
    elif isinstance(given, (list, tuple, set)):
        yield from (pair for value in given for pair in _named(value))
    elif isinstance(given, functools.partial):
        yield from _named(given.func)
        yield from _named([*given.args])
        yield from given.keywords.items()
    elif isinstance(given, MethodType):
        yield from _named(given.__self__)
        yield from _of_function(given.__func__)
    elif isinstance(given, FunctionType):
        yield from _of_function(given)
    else:
        yield "", given


def _of_function(function: Any) -> Iterator[tuple[str, Any]]:
    """The objects that a function refers to, with their names there."""
    try:
        found = inspect.getclosurevars(inspect.unwrap(function))
    except (TypeError, ValueError):
        return
    yield from {**found.globals, **found.nonlocals}.items()


# --- Names of submodules in a run of several pipelines: each object has a name of its own.
#
# If another object has the name already, the later pipeline's variable, else its class, is
# appended. A pipeline made again in place of a deleted one has its names.


@dataclass(frozen=True, slots=True)
class _Holder:
    """The object with a name, and the kind of objects that may replace it."""

    owner: Callable[[], Any]
    kind: tuple[object, ...]


class RunNames:
    """The object behind each submodule's name. The owner changes it from one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[str, _Holder] = {}

    def add(self, pipeline: Any) -> Apart | None:
        """Name the submodules of a pipeline while it is attached; returns the previous suffix, to
        restore by `set_apart`."""
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
        """A free name for an object outside pipelines, with a number if another object has it."""
        number, free = 1, name
        while not self._fits(free, value, ()):
            number += 1
            free = f"{name}_{number}"
        return free

    def _has(self, name: str, owner: Any) -> bool:
        known = self._known.get(name)
        return known is not None and known.owner() is owner

    def _fits(self, name: str, owner: Any, kind: tuple[object, ...]) -> bool:
        """Whether a name is free for this object."""
        known = self._known.get(name)
        if known is None or known.owner() is owner:
            return True
        return known.owner() is None and known.kind == kind

    def _ending(self, pipeline: Any, own: dict[str, Any]) -> str:
        """The suffix for the submodules that only this pipeline has."""
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
