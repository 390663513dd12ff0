"""How many bytes the weights of a submodule take on its device: "does it fit?"."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from profiler.capture.registry import backend_of

__all__ = ["LoadedPart", "LoadedWeights", "loaded_part", "weight_bytes"]


def weight_bytes(part: Any) -> int | None:
    """Bytes of a part's weights, as they are stored; None where nobody can tell."""
    return backend_of(part).weight_bytes(part)


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """What a submodule has loaded on a device: `size` bytes, None where nobody can tell. `holder()`
    is the object that has them, None once it is gone."""

    submodule: str
    device: str
    size: int | None
    holder: Callable[[], Any]


def loaded_part(submodule: str, part: Any, device: str) -> LoadedPart:
    """A part as it is now; it is not kept alive. Parts that share their weights have one holder."""
    backend = backend_of(part)
    return LoadedPart(submodule, device, backend.weight_bytes(part), backend.holder(part))


class LoadedWeights:
    """The weights of a run's pipelines and sessions, as they come and go: the most that was loaded
    at once. What several of them hold together counts once."""

    def __init__(self) -> None:
        self._parts: list[LoadedPart] = []
        self._unknown: set[tuple[str, str]] = set()  # submodule and device
        self._submodules: dict[str, tuple[int, int]] = {}  # in all, of them counted elsewhere
        self._devices: dict[str, int] = {}

    def add(self, parts: Iterable[LoadedPart]) -> None:
        """These have been loaded, beside those of before that are still there."""
        self._parts = [p for p in (*self._parts, *parts) if p.holder() is not None]
        self._unknown |= {(p.submodule, p.device) for p in self._parts if p.size is None}
        submodules: dict[str, dict[int, int]] = {}
        devices: dict[str, dict[int, int]] = {}
        for part in self._parts:
            if part.size is not None:
                identity = id(part.holder())
                submodules.setdefault(part.submodule, {})[identity] = part.size
                devices.setdefault(part.device, {})[identity] = part.size
        counted: set[int] = set()
        for name, sizes in submodules.items():
            total = sum(sizes.values())
            shared = sum(size for identity, size in sizes.items() if identity in counted)
            counted.update(sizes)
            self._submodules[name] = max((total, shared), self._submodules.get(name, (0, 0)))
        for name, sizes in devices.items():
            self._devices[name] = max(sum(sizes.values()), self._devices.get(name, 0))

    def of_submodule(self, name: str) -> dict[str, int]:
        """`weight_bytes`, and of them `shared_weight_bytes` with submodules before it; nothing
        where a part of it does not tell."""
        if name not in self._submodules or any(name == submodule for submodule, _ in self._unknown):
            return {}
        total, shared = self._submodules[name]
        return {"weight_bytes": total} | ({"shared_weight_bytes": shared} if shared else {})

    def of_device(self, name: str) -> dict[str, int]:
        """`weight_bytes` on a device; nothing where a part there does not tell."""
        if name not in self._devices or any(name == device for _, device in self._unknown):
            return {}
        return {"weight_bytes": self._devices[name]}
