"""From a model folder to the components of a pipeline."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.errors import InputError
from profiler.model_layouts import check_widths
from profiler.pipelines.devices import (
    DEFAULT_DEVICE,
    Device,
    Placement,
    ProviderSpec,
    check_part_name,
)
from profiler.pipelines.model_folder import ModelFolder
from profiler.pipelines.onnx_submodule import OnnxPart
from profiler.pipelines.scheduler import FlowMatchEulerDiscreteScheduler

__all__ = ["Components", "load_components"]

_SCHEDULER_CLASS = "FlowMatchEulerDiscreteScheduler"


@dataclass(frozen=True)
class Components:
    """What a pipeline is made of: its parts by name, its scheduler, and its folder, where it finds
    tokenizers and sizes."""

    parts: Mapping[str, OnnxPart]
    scheduler: FlowMatchEulerDiscreteScheduler
    placement: Placement
    folder: ModelFolder


def load_components(
    path: Path | str,
    class_name: str,
    submodules: Sequence[str],
    optional: Collection[str],
    devices: Mapping[str, str],
    providers: Sequence[ProviderSpec] | None,
) -> Components:
    """Read the model folder of a `class_name` and place its submodules; no session is opened.

    See `OnnxPipeline.from_folder` for the arguments. Raises `InputError` if a file is missing or
    malformed, parts do not fit together, or a device or provider cannot be used.
    """
    folder = ModelFolder(path, class_name)
    present = [name for name in submodules if name not in optional or folder.has(name)]
    for name in devices:
        check_part_name(name, present)
    default = str(Device.of_provider(providers[0])) if providers else DEFAULT_DEVICE
    placed = {name: str(Device.parse(devices.get(name, default))) for name in present}
    placement = Placement.plan(placed.values())
    parts = {
        name: _part(
            folder,
            name,
            placed[name],
            providers=providers if providers and name not in devices else None,
            placement=placement,
        )
        for name in present
    }
    check_widths(class_name, {name: part.config for name, part in parts.items()})
    return Components(parts, _scheduler(folder), placement, folder)


def _part(
    folder: ModelFolder,
    name: str,
    device: str,
    *,
    providers: Sequence[ProviderSpec] | None,
    placement: Placement,
) -> OnnxPart:
    """Describe one part; the VAE's folder is that of its decoder."""
    subfolder = "vae_decoder" if name == "vae" else name
    model_path = folder.model_path(subfolder)
    return OnnxPart(
        name,
        model_path,
        device,
        providers=providers,
        placement=placement,
        config=folder.settings(subfolder).values,
    )


def _scheduler(folder: ModelFolder) -> FlowMatchEulerDiscreteScheduler:
    """Make the scheduler; raises `InputError` if the folder asks for one of another class."""
    settings = folder.settings("scheduler", "scheduler_config.json")
    name = settings.values.get("_class_name") or folder.class_name("scheduler")
    if name not in (None, _SCHEDULER_CLASS):
        raise InputError(
            f"{settings.source} asks for {name!r}; this pipeline has {_SCHEDULER_CLASS}"
        )
    return FlowMatchEulerDiscreteScheduler(settings.values, settings.source)
