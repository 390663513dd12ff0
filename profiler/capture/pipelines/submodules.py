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
from profiler.capture.patching import Wraps, weakly
from profiler.capture.pipelines.discovery import (
    Held,
    Together,
    held,
    holds_components,
    is_executed,
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

# --- What a call is called: its denoising step from the scheduler, its branch from what it was
# given.
#
# Nothing here counts calls of submodules. Steps come from the scheduler. A denoiser's branch comes,
# in this order, from
#
# 1. `cache_context("cond")` or `("uncond")`, in which diffusers' newer pipelines call it;
# 2. its argument `skip_layers`: the extra call of skip-layer guidance;
# 3. a guider that has prepared its inputs, as in modular pipelines (`guidance`);
# 4. the embeddings that it was given, if `encode_prompt` made them for one of the prompts;
# 5. its batch against that of the pipeline's own latents: twice as many is both branches at once.
#
# An encoder's branch is that of the prompt being encoded: `encode_prompt` takes the prompt first.


def argument_names(function: Any) -> list[str]:
    """The parameters of `function`, none if it does not tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        let_pass(error)
        return []
    return [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


# --- What a pipeline executes outside captured calls, measured.
#
# In the first pipeline call and in those whose operators are traced, whatever else is found that
# executes is hooked for as long as the pipeline call lasts.


class Outside:
    """Told of the calls of something that is captured nowhere, or of a piece of what is. They count
    if a pipeline call is open, or, of a piece that is `alone`, if none is."""

    def __init__(
        self, name: str, recorder: Recorder, open_now: threading.local, *, alone: bool = False
    ) -> None:
        self._name = name
        self._recorder = recorder
        self._open = open_now  # .begins: of this thread's calls, -1 for those in another
        self._alone = alone

    def begin(self, args: Any, kwargs: Mapping[str, Any], caller: FrameType) -> None:  # noqa: ARG002
        """A call begins."""
        begins = self._open.__dict__.setdefault("begins", [])
        open_now = scope()
        here = (open_now.pipeline is None) == self._alone
        counts = not begins and open_now.call is None and here
        begins.append(self._recorder.clock.now_ns() if counts else -1)

    def end(self, output: Any) -> None:  # noqa: ARG002
        """It has ended, or failed."""
        begins = self._open.__dict__.get("begins")
        begin_ns = begins.pop() if begins else -1
        if begin_ns >= 0:
            tally = self._recorder.coverage
            tally.add(self._name, self._recorder.clock.now_ns() - begin_ns)
            tally.alone |= self._alone

    def around(self, original: Any, args: Any, kwargs: Any) -> Any:
        """For methods that are wrapped."""
        self.begin(args, kwargs, None)  # type: ignore[arg-type]
        try:
            return original(*args, **kwargs)
        finally:
            self.end(None)


class PipelineCoverage:
    """Measures the calls of one pipeline. `captured()` are its submodules by name; `named` gives
    objects the names that the script has for them."""

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
        self._hooked: list[Wraps] = []  # for the pipeline calls that run now

    def begin(self, *, traced: bool) -> Wraps | None:
        """A pipeline call is about to start, whose operators are `traced`: hook what is captured
        nowhere. None if this one is not measured."""
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
        """Whether a backend of what is captured looks for what is not: without, nobody knows."""
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
        """The pipeline call has ended; None if it could not be recorded."""
        wraps.undo()
        self._hooked = [each for each in self._hooked if each is not wraps]
        if pipeline is None:
            return
        tally = self._recorder.coverage
        tally.pipelines += 1
        for call in reversed(list(self._recorder.invocations)):  # others are packed meanwhile
            if call.start_ns < pipeline.start_ns:
                break
            if number_of(call.pipeline) == pipeline.number and call.end_ns >= 0:
                tally.captured_ns += call.end_ns - call.start_ns

    def abandon(self) -> None:
        """Take every hook off in a forked child, whose parent's pipeline calls go on."""
        for wraps in self._hooked:
            wraps.undo()
        self._hooked = []


# --- What a script calls itself, past the modules that are captured and that no pipeline holds:
# pieces of these, `model.proj_out(x)`, and what is too small for a submodule. All of it is hooked
# for the first calls of these modules, and stated in coverage.


_MOST_CALLS = 50  # captured ones, or loops of these, that are measured
_MOST_SMALL = 200  # modules that are too small, hooked at a time


class PieceCoverage:
    """Measures the pieces of `captured()`, modules by name."""

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
        """Hook the pieces of what has come since, and of the `small` ones those that are new."""
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
        """A captured call starts, or a loop of them."""
        self._calls += 1
        if self._calls > _MOST_CALLS:
            self.end()

    def end(self) -> None:
        """Leave the pieces as they were; again without effect."""
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
    """What is not `known` of what was found, and is from now on."""
    new = {n: one for n, one in found.items() if known.get(n, lambda: None)() is not one}
    known.update({name: weakly(one) for name, one in new.items()})
    return new


# --- The ways into a pipeline's submodules, and what of it is host work.
#
# A submodule is what a backend executes, whatever the pipeline calls it (`components`). Names that
# are known say what it is for, and make anything a submodule; of others the stage is what their
# method or its arguments say, else what happens (`stages`).


_Labelled = Literal["prompt", "denoiser", ""]


@dataclass(frozen=True, slots=True)
class Entry:
    """One way into a submodule: its `method`, in `stage`; "" if what happens decides that.

    `labelled` says where its branch comes from. `part` is the attribute of the submodule that
    executes it, if its backend does not execute it whole; "" for the submodule itself. It is
    the pipeline's attribute of its name, unless `held` says which, with a key of a list or dict.
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
_TIMESTEP = "timestep"  # how the parameter of a denoiser starts that says which step it is

_Seen = tuple[tuple[str, str | int | None, int], ...]
_FOUND: weakref.WeakKeyDictionary[Any, tuple[_Seen, list[Entry]]] = weakref.WeakKeyDictionary()
"""By pipeline: what it held, and the entries that were found in that."""


@dataclass(frozen=True, slots=True)
class Apart:
    """What the names of a pipeline's submodules end with, but those that are the `same` objects as
    another's."""

    ending: str
    same: frozenset[str]


_APART: weakref.WeakKeyDictionary[Any, Apart] = weakref.WeakKeyDictionary()


def set_apart(pipeline: Any, apart: Apart | None) -> Apart | None:
    """Name the submodules of a pipeline so; returns how they were named before."""
    before = _apart(pipeline)
    try:
        if apart is not None:
            _APART[pipeline] = apart
        elif before is not None:
            del _APART[pipeline]
    except TypeError as error:  # it cannot be a key
        let_pass(error)
    return before


def _apart(pipeline: Any) -> Apart | None:
    try:
        return _APART.get(pipeline) if _APART else None
    except TypeError:  # it cannot be a key
        return None


def entries(pipeline: Any) -> list[Entry]:
    """The ways into the submodules that `pipeline` has. Raises InputError if it has none."""
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
    """As `entries`, none if there is none."""
    known = [entry for entry in _ENTRIES if _has(pipeline, entry)]
    found = [*known, *_others(pipeline, known)]
    apart = _apart(pipeline)
    return [_under_its_name(entry, _name(pipeline, entry, apart)) for entry in found]


def _name(pipeline: Any, entry: Entry, apart: Apart | None) -> str:
    """The name that the script gave a submodule, or that tells it from another pipeline's."""
    named = name_of(owner_of(pipeline, entry))
    if named or apart is None or entry.submodule in apart.same:
        return named
    return f"{entry.submodule}{OF_PIPELINE}{apart.ending}"


def _under_its_name(entry: Entry, name: str) -> Entry:
    """An entry under the name that the script gave its submodule, if it did."""
    if not name or name == entry.submodule:
        return entry
    return replace(entry, submodule=name, held=entry.held or (entry.submodule, None))


def _others(pipeline: Any, known: list[Entry]) -> list[Entry]:
    """The entries beside the `known` ones, looked for if the pipeline holds something new."""
    seen = tuple((one.name, one.key, id(one.value)) for one in held(pipeline))
    try:
        before, found = _FOUND.get(pipeline, ((), []))
        if seen != before:
            _FOUND[pipeline] = seen, (found := _looked_for(pipeline, known))
    except TypeError:  # it cannot be a key
        return _looked_for(pipeline, known)
    return found


def _looked_for(pipeline: Any, known: list[Entry]) -> list[Entry]:
    owners = {entry.submodule: owner_of(pipeline, entry) for entry in known}
    others = submodules(pipeline, list(owners.values()))
    found = []
    for name, owner in owners.items():
        of_it = [entry for entry in known if entry.submodule == name]
        methods = {entry.method for entry in of_it}
        in_parts = not backend_of(owner).whole and any(entry.part for entry in of_it)
        if backend_of(owner).name and not in_parts:  # which part a further way takes nobody tells
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
    """A further way into a known submodule; `alone`: it has one known way, so one stage."""
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
    if owner is None or not callable(getattr(owner, entry.method, None)):
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
    """What executes a submodule: itself, or a part of it."""
    owner = owner_of(pipeline, entry)
    if not entry.part or backend_of(owner).whole:
        return owner
    return getattr(owner, entry.part, owner)


def device_of(pipeline: Any, entry: Entry) -> str:
    """The device on which a submodule runs, "cpu:0" if nothing says otherwise."""
    owner = owner_of(pipeline, entry)
    return device_reader(owner, entry)(owner)


def device_reader(owner: Any, entry: Entry) -> Callable[[Any], str]:
    """What gives the device on which the submodule `owner` runs, without asking again which backend
    that belongs to."""
    whole = not entry.part or backend_of(owner).whole
    part = owner if whole else getattr(owner, entry.part, owner)
    device = backend_of(part, owner).device

    def read(owner: Any) -> str:
        part = owner if whole else getattr(owner, entry.part, owner)
        return device(part, owner, entry.part)

    return read


# --- Options of a pipeline's submodule: ours, and beside them what the pipeline itself configures.
#
# What a backend finds configured (`Backend.configured`) is honoured as if it had been given to us.
# What was given to us wins.


def options_for(pipeline: Any, entry: Entry, options: Options) -> Options:
    """`options` with what `pipeline` configures now of the submodule of `entry`."""
    own = configured(pipeline, component_of(entry.submodule), entry.part)
    return options.beside(entry.submodule, own)


# --- What `profiler.profile` is given, as what can be attached: pipelines, and modules together.
#
# subjects(pipe)                      # the pipeline subjects([base, refiner])           # two
# pipelines subjects({"unet": unet, "scheduler": scheduler})    # two objects under these names
# subjects(generate)                  # what a function refers to


_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, functools.partial)


def subjects(given: Any) -> list[Any]:
    """The pipelines that `given` stands for, with all modules that belong to none as one. Raises
    InputError if it has nothing that executes anything."""
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
    """The objects that were given, with their names; "" for one that needs none."""
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
    """What a function refers to, by the names that it has there."""
    try:
        found = inspect.getclosurevars(inspect.unwrap(function))
    except (TypeError, ValueError):
        return
    yield from {**found.globals, **found.nonlocals}.items()


# --- Names of submodules in a run of several pipelines: each object has a name of its own.
#
# What a later pipeline holds under a name that another object has gets the pipeline's variable,
# else its class, behind it. A pipeline that is made again in place of one that is gone has its
# names.


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
