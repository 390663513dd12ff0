"""The shape of optimum-rbln's submodules: where their runtimes are and on which device they run.

A submodule (`RBLNModel`) keeps its runtimes in the list `model` and calls `model[0]`; the VAE calls
the attribute `runtime` of its `encoder` and `decoder`. Nothing is imported for that: what has this
shape is one of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from profiler.capture.settings import is_on
from profiler.capture.wraps import weakly
from profiler.errors import InputError

__all__ = ["DEVICE_KIND", "Slot", "rbln_device", "slots_of", "writes_shards"]

DEVICE_KIND = "rbln"
_WHOLE_MODEL = "compiled_model"  # the only name in most submodules' `device_map`


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a part keeps a runtime: `name` as it is written behind the part; `get` and `put`
    read and replace it. The part is held weakly; where it is gone, `get` gives None."""

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], None]


def slots_of(part: Any) -> list[Slot]:
    """Every place from which `part` calls a runtime; none where it is no part of optimum-rbln's."""
    runtimes = getattr(part, "model", None)
    if isinstance(runtimes, list) and getattr(part, "rbln_config", None) is not None:
        return [_item(part, index) for index, runtime in enumerate(runtimes) if callable(runtime)]
    if _is_wrapped_runtime(part):
        weak = weakly(part)
        return [
            Slot(
                "runtime",
                lambda: getattr(weak(), "runtime", None),
                lambda new: setattr(weak(), "runtime", new),
            )
        ]
    return []


def _item(part: Any, index: int) -> Slot:
    weak = weakly(part)

    def get() -> Any:
        runtimes = getattr(weak(), "model", None)
        return runtimes[index] if isinstance(runtimes, list) and index < len(runtimes) else None

    def put(new: Any) -> None:
        weak().model[index] = new

    return Slot(f"model[{index}]", get, put)


def _is_wrapped_runtime(part: Any) -> bool:
    """Whether `part` is an `RBLNPytorchRuntime`, such as the decoder of a VAE."""
    return callable(getattr(part, "runtime", None)) and callable(getattr(part, "forward", None))


def rbln_device(owner: Any, name: str) -> str:
    """The device of a submodule's part, `rbln:<n>`; "" where `owner` is none of optimum-rbln's.

    `owner` is the submodule, `name` the part ("decoder"; anything else is the whole submodule).
    A model that is spread over several devices is placed on its first.
    """
    config = getattr(owner, "rbln_config", None)
    if config is None:
        return ""
    found = getattr(_runtime(owner, name), "device", None)
    if _number(found) is None:
        devices = getattr(config, "device_map", None)
        if isinstance(devices, Mapping) and devices:
            found = devices.get(name, devices.get(_WHOLE_MODEL, next(iter(devices.values()))))
    if _number(found) is None:
        found = getattr(config, "device", None)
    return f"{DEVICE_KIND}:{_number(found) or 0}"


def _runtime(owner: Any, name: str) -> Any:
    runtimes = getattr(owner, "model", None)
    whole = runtimes[0] if isinstance(runtimes, list) and runtimes else None
    return getattr(getattr(owner, name, None), "runtime", whole)


def _number(device: Any) -> int | None:
    """The index of a device or of the first of several; None where it is no real device."""
    if isinstance(device, (list, tuple)):
        device = device[0] if device else None
    return device if isinstance(device, int) and device >= 0 else None


def writes_shards(owner: Any) -> bool:
    """Whether RBLN's own profiler writes a file for each runtime call of the submodule `owner`:
    its `activate_profiler`, where that is not said the variable RBLN_PROFILER, in which it takes
    the same words for on as we do."""
    activated = getattr(getattr(owner, "rbln_config", None), "activate_profiler", None)
    if activated is not None:
        return bool(activated)
    with contextlib.suppress(InputError):
        return is_on(os.environ)
    return False
