"""The shape of optimum-rbln's submodules: where their runtimes are and on which device they run.

A submodule (`RBLNModel`) keeps its runtimes in the list `model` and calls `model[0]`; a VAE,
whatever its pipeline calls it, calls the attribute `runtime` of its `encoder` and `decoder`;
several ControlNets are a list `nets` of submodules. Nothing is imported for that: what has this
shape is one of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from profiler.capture.rbln.configuration import (
    configuration_of,
    configured_device,
    device_number,
    said_to_profile,
    several,
)
from profiler.capture.settings import is_on
from profiler.capture.wraps import attributes, weakly
from profiler.errors import InputError

__all__ = ["DEVICE_KIND", "Slot", "rbln_device", "slots_of", "writes_shards"]

DEVICE_KIND = "rbln"


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a part keeps a runtime: `name` as it is written behind the part; `get` and `put`
    read and replace it. The part is held weakly; where it is gone, `get` gives None."""

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], None]


def slots_of(part: Any) -> list[Slot]:
    """Every place from which `part` calls a runtime; none where it is no part of optimum-rbln's."""
    nets = several(part)
    return [
        *_slots_of_one(part, ""),
        *(slot for n, net in enumerate(nets) for slot in _slots_of_one(net, f"nets[{n}].")),
    ]


def _slots_of_one(part: Any, before: str) -> Iterator[Slot]:
    """Those of a part that is no list of others; their names begin with `before`."""
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
    """The device of a submodule's part, `rbln:<n>`; "" where `owner` is none of optimum-rbln's.

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
    """Whether RBLN's own profiler writes a file for each runtime call of the submodule `owner`:
    its `activate_profiler`, where that is not said the variable RBLN_PROFILER, in which it takes
    the same words for on as we do."""
    activated = said_to_profile(configuration_of(owner))
    if activated is not None:
        return activated
    with contextlib.suppress(InputError):
        return is_on(os.environ)
    return False
