"""The runtimes of optimum-rbln's submodules, their devices, and their `rbln_config`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from profiler.capture.patching import attributes, weakly
from profiler.capture.settings import is_on
from profiler.errors import InputError

# --- The `rbln_config` of a submodule, and of the pipeline around it.
#
# optimum-rbln's is an object with `activate_profiler`, `device` and `device_map`, each None if not
# set. A pipeline's contains one for each submodule, which inherits the pipeline's values. Written
# by hand it is a mapping of the same names.


_WHOLE_MODEL = "compiled_model"  # the only name in most submodules' `device_map`


def several(owner: Any) -> list[Any]:
    """The submodules in `owner` if it is a list of them, such as several ControlNets; else
    empty."""
    nets = getattr(owner, "nets", None)
    if not isinstance(nets, list) or getattr(owner, "rbln_config", None) is not None:
        return []
    return nets if all(getattr(net, "rbln_config", None) is not None for net in nets) else []


def configuration_of(owner: Any) -> Any:
    """The `rbln_config` of a submodule; of a list of several, which are configured as one, the
    first's. None for objects of other libraries."""
    return getattr(next(iter(several(owner)), owner), "rbln_config", None)


def own_configuration(pipeline: Any, submodule: str, part: str) -> dict[str, Any]:
    """The `activate_profiler` and `device` that a pipeline's own `rbln_config` sets for the part
    `part` of a submodule, "" for all of it.

    The first that is set counts: in the submodule's own config, with which its runtimes were made,
    in the pipeline's for the submodule, in the pipeline's for all.
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
    """`activate_profiler` of a configuration, None if not set."""
    activated = _field(config, "activate_profiler")
    return activated if isinstance(activated, bool) else None


def configured_device(config: Any, part: str) -> int | None:
    """The device of a submodule's part, or the first of several (RSD); None if not set."""
    devices = _field(config, "device_map")
    if isinstance(devices, Mapping) and devices:
        first = next(iter(devices.values()))
        found = device_number(devices.get(part, devices.get(_WHOLE_MODEL, first)))
        if found is not None:
            return found
    return device_number(_field(config, "device"))


def device_number(device: Any) -> int | None:
    """The index of a device or of the first of several; None if it is not a real device."""
    if isinstance(device, (list, tuple)):
        device = device[0] if device else None
    is_index = isinstance(device, int) and not isinstance(device, bool)
    return device if is_index and device >= 0 else None


def _field(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


# --- The structure of optimum-rbln's submodules: their runtimes and devices.
#
# A submodule (`RBLNModel`) keeps its runtimes in the list `model` and calls `model[0]`; a VAE calls
# the attribute `runtime` of its `encoder` and `decoder`; several ControlNets are a list `nets` of
# submodules. Nothing is imported: an object with this structure is one.


DEVICE_KIND = "rbln"


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a runtime in a part: `name` is its path in the part; `get` and `put` read and
    replace it. The part is referenced weakly; once it is gone, `get` returns None."""

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], None]


def slots_of(part: Any) -> list[Slot]:
    """Every place from which `part` calls a runtime; empty if it is not from optimum-rbln."""
    nets = several(part)
    return [
        *_slots_of_one(part, ""),
        *(slot for n, net in enumerate(nets) for slot in _slots_of_one(net, f"nets[{n}].")),
    ]


def _slots_of_one(part: Any, before: str) -> Iterator[Slot]:
    """The slots of a part that is not a list; their names start with `before`."""
    runtimes = getattr(part, "model", None)
    if isinstance(runtimes, list) and getattr(part, "rbln_config", None) is not None:
        for index, runtime in enumerate(runtimes):
            if callable(runtime):
                yield _item(part, index, before)
        for name, inner in list(attributes(part).items()):
            if _is_wrapped_runtime(inner):
                yield _wrapped(inner, f"{before}{name}.")
    elif _is_wrapped_runtime(part):
        yield _wrapped(part, before)


def _wrapped(part: Any, before: str) -> Slot:
    weak = weakly(part)
    return Slot(
        f"{before}runtime",
        lambda: getattr(weak(), "runtime", None),
        lambda new: setattr(weak(), "runtime", new),
    )


def _item(part: Any, index: int, before: str) -> Slot:
    weak = weakly(part)

    def get() -> Any:
        runtimes = getattr(weak(), "model", None)
        return runtimes[index] if isinstance(runtimes, list) and index < len(runtimes) else None

    def put(new: Any) -> None:
        weak().model[index] = new

    return Slot(f"{before}model[{index}]", get, put)


def _is_wrapped_runtime(part: Any) -> bool:
    """Whether `part` is an `RBLNPytorchRuntime`, such as the decoder of a VAE."""
    return callable(getattr(part, "runtime", None)) and callable(getattr(part, "forward", None))


def rbln_device(owner: Any, name: str) -> str:
    """The device of a submodule's part, `rbln:<n>`; "" if `owner` is not from optimum-rbln.

    `owner` is the submodule, `name` the part ("decoder"; anything else is the whole submodule).
    A model that is spread over several devices is placed on its first.
    """
    config = configuration_of(owner)
    if config is None:
        return ""
    found = device_number(getattr(_runtime(owner, name), "device", None))
    if found is None:
        found = configured_device(config, name)
    return f"{DEVICE_KIND}:{found or 0}"


def _runtime(owner: Any, name: str) -> Any:
    owner = next(iter(several(owner)), owner)
    runtimes = getattr(owner, "model", None)
    whole = runtimes[0] if isinstance(runtimes, list) and runtimes else None
    return getattr(getattr(owner, name, None), "runtime", whole)


def writes_shards(owner: Any) -> bool:
    """Whether RBLN's own profiler writes a file for each runtime call of the submodule `owner`: by
    its `activate_profiler`, else by the variable RBLN_PROFILER, whose words for on are ours."""
    activated = said_to_profile(configuration_of(owner))
    if activated is not None:
        return activated
    with contextlib.suppress(InputError):
        return is_on(os.environ)
    return False
