"""What `rbln_config` says: that of a submodule, and that of the pipeline around it.

optimum-rbln's is an object of `activate_profiler`, `device` and `device_map`, each None where
nothing was said; a pipeline's holds one for each submodule, which inherits what the pipeline's says
for all. Written by hand it is a mapping of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "configuration_of",
    "configured_device",
    "device_number",
    "own_configuration",
    "said_to_profile",
    "several",
]

_WHOLE_MODEL = "compiled_model"  # the only name in most submodules' `device_map`


def several(owner: Any) -> list[Any]:
    """The submodules of which `owner` is a list, as of several ControlNets; none of any other."""
    nets = getattr(owner, "nets", None)
    if not isinstance(nets, list) or getattr(owner, "rbln_config", None) is not None:
        return []
    return nets if all(getattr(net, "rbln_config", None) is not None for net in nets) else []


def configuration_of(owner: Any) -> Any:
    """The `rbln_config` of a submodule; of a list of several, which were configured as one, the
    first's. None of what is none of optimum-rbln's."""
    return getattr(next(iter(several(owner)), owner), "rbln_config", None)


def own_configuration(pipeline: Any, submodule: str, part: str) -> dict[str, Any]:
    """What a pipeline's own `rbln_config` says of the part `part` of a submodule, "" for all of it:
    `activate_profiler` and `device`, each where it says it.

    The submodule's own counts first, with which its runtimes were made, then what the pipeline's
    says of the submodule, then what that says for all.
    """
    around = getattr(pipeline, "rbln_config", None)
    levels = (
        configuration_of(getattr(pipeline, submodule, None)),
        _field(around, submodule),
        around,
    )
    activated = (said_to_profile(level) for level in levels)
    devices = (configured_device(level, part) for level in levels)
    found = {
        "activate_profiler": next((said for said in activated if said is not None), None),
        "device": next((device for device in devices if device is not None), None),
    }
    return {key: value for key, value in found.items() if value is not None}


def said_to_profile(config: Any) -> bool | None:
    """`activate_profiler` of a configuration, None where it says nothing."""
    activated = _field(config, "activate_profiler")
    return activated if isinstance(activated, bool) else None


def configured_device(config: Any, part: str) -> int | None:
    """The device of a submodule's part, of several (RSD) the first; None where none is said."""
    devices = _field(config, "device_map")
    if isinstance(devices, Mapping) and devices:
        first = next(iter(devices.values()))
        found = device_number(devices.get(part, devices.get(_WHOLE_MODEL, first)))
        if found is not None:
            return found
    return device_number(_field(config, "device"))


def device_number(device: Any) -> int | None:
    """The index of a device or of the first of several; None where it is no real device."""
    if isinstance(device, (list, tuple)):
        device = device[0] if device else None
    is_index = isinstance(device, int) and not isinstance(device, bool)
    return device if is_index and device >= 0 else None


def _field(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
