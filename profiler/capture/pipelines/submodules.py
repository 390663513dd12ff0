"""The ways into a pipeline's submodules, and what of it is host work.

A submodule is what a backend executes, whatever the pipeline calls it (`components`). Names that
are known say what it is for, and make anything a submodule; of others the stage is what their
method or its arguments say, else what happens (`stages`).
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from profiler.capture.pipelines.components import (
    Held,
    held,
    holds_components,
    schedulers,
    submodules,
)
from profiler.capture.pipelines.labels import argument_names
from profiler.capture.pipelines.user_labels import name_of
from profiler.capture.registry import backend_of
from profiler.errors import InputError

__all__ = [
    "PREPARE_LATENTS",
    "Entry",
    "device_of",
    "device_reader",
    "entries",
    "host_work",
    "owner_of",
    "part_of",
    "present_entries",
]

_Labelled = Literal["prompt", "denoiser", ""]


@dataclass(frozen=True, slots=True)
class Entry:
    """One way into a submodule: its `method`, in `stage`; "" where what happens decides that.

    `labelled` says where its branch comes from. `part` is the attribute of the submodule that
    executes it, where its backend does not execute it whole; "" for the submodule itself. It is
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
_TIMESTEP = "timestep"  # how the parameter of a denoiser begins that says which step it is

_Seen = tuple[tuple[str, str | int | None, int], ...]
_FOUND: weakref.WeakKeyDictionary[Any, tuple[_Seen, list[Entry]]] = weakref.WeakKeyDictionary()
"""By pipeline: what it held, and the entries that were found in that."""


def entries(pipeline: Any) -> list[Entry]:
    """The ways into the submodules that `pipeline` has. Raises InputError where it has none."""
    found = present_entries(pipeline)
    if not found:
        names = ", ".join(dict.fromkeys(entry.submodule for entry in _ENTRIES))
        raise InputError(
            f"{type(pipeline).__name__} holds no module, session or runtime, and none of the "
            f"submodules {names}: give a pipeline shaped like diffusers'"
        )
    return found


def present_entries(pipeline: Any) -> list[Entry]:
    """As `entries`, none where there is none."""
    known = [entry for entry in _ENTRIES if _has(pipeline, entry)]
    found = [*known, *_others(pipeline, known)]
    return [_under_its_name(entry, name_of(owner_of(pipeline, entry))) for entry in found]


def _under_its_name(entry: Entry, name: str) -> Entry:
    """An entry under the name that the script gave its submodule, if it did."""
    if not name or name == entry.submodule:
        return entry
    return replace(entry, submodule=name, held=entry.held or (entry.submodule, None))


def _others(pipeline: Any, known: list[Entry]) -> list[Entry]:
    """The entries beside the `known` ones, looked for where the pipeline holds something new."""
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
    return next((stage for begin, stage in _OF_METHOD if method.startswith(begin)), "")


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
    """The device on which a submodule runs, "cpu:0" where nothing says otherwise."""
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
