"""How many bytes the weights of a submodule take on its device: "does it fit?"."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from profiler.capture.torch.hooks import is_module
from profiler.capture.wraps import weakly
from profiler.errors import InputError

__all__ = ["LoadedPart", "LoadedWeights", "loaded_part", "weight_bytes"]


def weight_bytes(part: Any) -> int | None:
    """Bytes of a part's weights, as they are stored: a torch module's parameters and buffers,
    each once; an ONNX model's initializers. None where nobody can tell.

    Nothing is loaded: a torch tensor's size is known, an ONNX model's are read from its graph.
    """
    if is_module(part):
        tensors = [*part.parameters(), *part.buffers()]
        return int(sum(tensor.numel() * tensor.element_size() for tensor in tensors))
    from profiler.capture.onnxruntime.session_swap import model_of
    from profiler.capture.onnxruntime.weights import model_weights

    try:
        return model_weights(model_of(part)).total_bytes
    except InputError:
        return None


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """What a submodule has loaded on a device: `size` bytes, None where nobody can tell. `holder()`
    is the module, part or session that has them, None once it is gone."""

    submodule: str
    device: str
    size: int | None
    holder: Callable[[], Any]


def loaded_part(submodule: str, part: Any, device: str) -> LoadedPart:
    """A part as it is now; it is not kept alive. Parts that share one module or session have one
    holder."""
    script_session = getattr(part, "script_session", None)  # a bare one's
    if script_session is not None:
        return LoadedPart(submodule, device, weight_bytes(part), script_session)
    lazy = hasattr(part, "open_session") or is_module(part)
    holder = part if lazy else getattr(part, "session", part)
    return LoadedPart(submodule, device, weight_bytes(part), weakly(holder))


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
