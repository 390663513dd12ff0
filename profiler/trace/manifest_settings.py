"""What a manifest says of how submodules and pipeline calls were set up: read from the objects that
ran, for comparison with another run.

What nobody could tell is absent. `docs/file-format.md` describes the keys.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, field

from profiler.trace.manifest_fields import LARGEST, Fields, Setting

__all__ = [
    "Adapter",
    "Attention",
    "Compiled",
    "Generation",
    "Offload",
    "OffloadKind",
    "Parameters",
    "Scheduler",
    "StepCache",
    "SubmoduleSettings",
    "WeightType",
]

_Count = Annotated[int, Meta(ge=0, le=LARGEST)]
_Real = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Number = Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)]
Parameters = dict[str, Setting]


class WeightType(Fields, frozen=True, kw_only=True):
    """Weights of one type of elements: their bytes as they are stored, and the share of these in
    the submodule's."""

    bytes: _Count
    share: _Share


class Attention(Fields, frozen=True, kw_only=True):
    """What computes attention. `backends` are those of diffusers' dispatcher that the processors
    name, or its own where they name none; `processors` counts their classes; `implementations` are
    those of transformers' models; `sdpa` are torch's kernels that are switched on."""

    backends: tuple[str, ...] = ()
    processors: dict[str, _Count] = field(default_factory=dict)
    implementations: tuple[str, ...] = ()
    sdpa: tuple[str, ...] = ()


class StepCache(Fields, frozen=True, kw_only=True):
    """A cache of diffusers' that lets steps skip blocks, and its configuration."""

    name: str
    parameters: Parameters = field(default_factory=dict)


class OffloadKind(StrEnum):
    """How weights come to the device that needs them."""

    MODEL = "model"  # the whole submodule before its call
    SEQUENTIAL = "sequential"  # each layer before it runs
    GROUP = "group"  # blocks or leaves in groups
    DEVICE_MAP = "device_map"  # parts lie on several devices


class Offload(Fields, frozen=True, kw_only=True):
    """Weights that do not stay where they are needed. `device_map` counts modules by device."""

    kind: OffloadKind
    execution_device: str = ""
    device_map: dict[str, _Count] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=dict)


class Compiled(Fields, frozen=True, kw_only=True):
    """torch.compile: of the whole submodule, or of so many `modules` in it. `mode` is known where
    the compiler's options are those of one."""

    whole: bool = False
    modules: _Count = 0
    backend: str = ""
    mode: str = ""
    dynamic: bool | None = None
    fullgraph: bool | None = None


class Adapter(Fields, frozen=True, kw_only=True):
    """A LoRA or another adapter of peft's on so many `modules`: its ranks and the factors by which
    what it computes is scaled, each value once. `fused` into the weights it computes nothing."""

    kind: str = ""
    modules: _Count = 0
    active: bool = False
    fused: bool = False
    ranks: tuple[_Count, ...] = ()
    scalings: tuple[_Real, ...] = ()


class SubmoduleSettings(Fields, frozen=True, kw_only=True):
    """How a submodule was set up from the pipeline call `since` on, -1 for from the beginning.

    `weights` are by type of elements; `inputs` are types of a session's inputs by name;
    `providers` are ONNX Runtime's, in order, with their options.
    """

    since: _Number = -1
    weights: dict[str, WeightType] = field(default_factory=dict)
    attention: Attention | None = None
    cache: StepCache | None = None
    offload: Offload | None = None
    compiled: Compiled | None = None
    adapters: dict[str, Adapter] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    providers: dict[str, dict[str, str]] = field(default_factory=dict)


class Scheduler(Fields, frozen=True, kw_only=True):
    """A scheduler's class, and what of its configuration is not its class's default."""

    name: str
    config: Parameters = field(default_factory=dict)


class Generation(Fields, frozen=True, kw_only=True):
    """What pipeline calls made, and how: the calls of these numbers, all alike.

    `steps` are those that the scheduler took, `scheduled_steps` what it was set to. `width` and
    `height` are in pixels, `frames` a video's, `batch` images or videos of the result.

    Of a script's own loop `pipelines` is empty, `batch` counts the latents that the scheduler
    steps, and `denoiser_passes` says how often each of them goes through the denoiser in a step:
    twice with classifier-free guidance, whose scale no object tells.
    """

    pipelines: tuple[_Number, ...] = ()
    scheduler: Scheduler | None = None
    steps: _Count | None = None
    scheduled_steps: _Count | None = None
    guidance_scale: _Real | None = None
    true_cfg_scale: _Real | None = None
    width: _Count | None = None
    height: _Count | None = None
    frames: _Count | None = None
    batch: _Count | None = None
    denoiser_passes: _Count | None = None
