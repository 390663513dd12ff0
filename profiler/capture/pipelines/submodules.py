"""The declared shape of pipelines: what is a submodule, how it is invoked, what is host work.

It is diffusers' shape: attributes by name. Nothing is guessed from classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from profiler.capture.rbln.runtimes import rbln_device
from profiler.capture.torch.hooks import device_name, execution_device, is_module
from profiler.errors import InputError
from profiler.events import ROOT_DEVICE

__all__ = [
    "SCHEDULER_STEP",
    "Entry",
    "device_of",
    "entries",
    "host_work",
    "part_of",
    "present_entries",
]

_Labelled = Literal["prompt", "denoiser", ""]


@dataclass(frozen=True, slots=True)
class Entry:
    """One way into a submodule: `method` of the attribute `submodule`, in `stage`.

    `labelled` says where its branch comes from. `part` is the path to what holds the submodule's
    session where it runs on ONNX Runtime.
    """

    submodule: str
    method: str
    stage: str
    labelled: _Labelled
    part: str


def _forward(submodule: str, stage: str, labelled: _Labelled = "") -> Entry:
    return Entry(submodule, "forward", stage, labelled, submodule)


_ENTRIES = (
    *(_forward(f"text_encoder{n}", "encode", "prompt") for n in ("", "_2", "_3", "_4")),
    _forward("image_encoder", "encode"),
    Entry("vae", "encode", "encode", "", "vae.encoder"),
    _forward("controlnet", "denoise", "denoiser"),
    *(_forward(f"transformer{n}", "denoise", "denoiser") for n in ("", "_2")),
    _forward("unet", "denoise", "denoiser"),
    Entry("vae", "decode", "decode", "", "vae.decoder"),
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
    return part_of(pipeline, entry) is not None  # optimum's VAE may have no encoder


def host_work(pipeline: Any) -> Iterator[tuple[str, Any, str]]:
    """Path, owner and attribute of each callable of `pipeline` that is host work."""
    for path in _HOST_WORK:
        owner_path, _, name = path.rpartition(".")
        owner = getattr(pipeline, owner_path, None) if owner_path else pipeline
        if callable(getattr(owner, name, None)):
            yield path, owner, name


def part_of(pipeline: Any, entry: Entry) -> Any:
    """What executes a submodule: the torch module itself, or what holds its session."""
    owner = getattr(pipeline, entry.submodule)
    if is_module(owner):
        return owner
    try:
        return attrgetter(entry.part)(pipeline)
    except AttributeError:
        return owner


def device_of(pipeline: Any, entry: Entry) -> str:
    """The device on which a submodule runs, "cpu:0" where nothing says otherwise."""
    part = part_of(pipeline, entry)
    if is_module(part):
        return execution_device(part)
    npu = rbln_device(getattr(pipeline, entry.submodule), entry.part.rpartition(".")[2])
    device = npu or getattr(part, "device", None)
    return device_name(device) if device else ROOT_DEVICE
