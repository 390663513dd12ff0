"""The declared shape of pipelines: what is a submodule, how it is invoked, what is host work.

It is diffusers' shape: attributes by name. Nothing is guessed from classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from profiler.capture.registry import backend_of
from profiler.errors import InputError

__all__ = [
    "SCHEDULER_STEP",
    "Entry",
    "device_of",
    "device_reader",
    "entries",
    "host_work",
    "part_of",
    "present_entries",
]

_Labelled = Literal["prompt", "denoiser", ""]


@dataclass(frozen=True, slots=True)
class Entry:
    """One way into a submodule: `method` of the attribute `submodule`, in `stage`.

    `labelled` says where its branch comes from. `part` is the attribute of the submodule that
    executes it, where its backend does not execute it whole; "" for the submodule itself.
    """

    submodule: str
    method: str
    stage: str
    labelled: _Labelled
    part: str


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
SCHEDULER_STEP = "scheduler.step"
_HOST_WORK = (
    "tokenizer",
    "tokenizer_2",
    "tokenizer_3",
    "tokenizer_4",
    "feature_extractor",
    "join_embeddings",
    "prepare_latents",
    "apply_guidance",
    "scheduler.set_timesteps",
    SCHEDULER_STEP,
    "image_processor.preprocess",
    "image_processor.postprocess",
)


def entries(pipeline: Any) -> list[Entry]:
    """The ways into the submodules that `pipeline` has. Raises InputError where it has none."""
    found = present_entries(pipeline)
    if not found:
        names = ", ".join(dict.fromkeys(entry.submodule for entry in _ENTRIES))
        raise InputError(
            f"{type(pipeline).__name__} has none of the submodules {names}: "
            "give a pipeline shaped like diffusers'"
        )
    return found


def present_entries(pipeline: Any) -> list[Entry]:
    """As `entries`, none where there is none."""
    return [entry for entry in _ENTRIES if _has(pipeline, entry)]


def _has(pipeline: Any, entry: Entry) -> bool:
    owner = getattr(pipeline, entry.submodule, None)
    if owner is None or not callable(getattr(owner, entry.method, None)):
        return False
    if entry.part and getattr(owner, entry.part, owner) is None:  # a VAE without encoder
        return backend_of(owner).whole
    return True


def host_work(pipeline: Any) -> Iterator[tuple[str, Any, str]]:
    """Path, owner and attribute of each callable of `pipeline` that is host work."""
    for path in _HOST_WORK:
        owner_path, _, name = path.rpartition(".")
        owner = getattr(pipeline, owner_path, None) if owner_path else pipeline
        if callable(getattr(owner, name, None)):
            yield path, owner, name


def part_of(pipeline: Any, entry: Entry) -> Any:
    """What executes a submodule: itself, or a part of it."""
    owner = getattr(pipeline, entry.submodule)
    if not entry.part or backend_of(owner).whole:
        return owner
    return getattr(owner, entry.part, owner)


def device_of(pipeline: Any, entry: Entry) -> str:
    """The device on which a submodule runs, "cpu:0" where nothing says otherwise."""
    owner = getattr(pipeline, entry.submodule)
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
