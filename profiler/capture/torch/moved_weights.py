"""Where offloading moves weights: the methods of accelerate's and diffusers' hooks that do it, and
how many bytes are not yet where each of them puts them.

- accelerate's `AlignDevicesHook` (sequential offload, `device_map`) puts a module's weights in
  place before it runs; afterwards it drops them, which moves nothing.
- its `CpuOffload` puts a whole model in place, after the one before it has made room.
- diffusers' `ModuleGroup` (group offload) does both with a group of modules.

Both libraries look these methods up on their objects each time, so they can be wrapped there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

__all__ = ["Move", "moves"]

_ONLOAD, _OFFLOAD = "onload", "offload"
_ACCELERATE, _DIFFUSERS = "_hf_hook", "_diffusers_hook"  # where they keep their hooks
_GROUPED = "group_offloading"  # the hook's name in diffusers' registries


@dataclass(frozen=True, slots=True)
class Move:
    """Calls of `owner.method` move `nbytes()` of the weights of the module at `path`; `kind` says
    which way."""

    owner: Any
    method: str
    kind: str
    path: str
    nbytes: Callable[[], int]


def moves(
    modules: Mapping[str, Any], *, closed: Callable[[Any], bool] = lambda _: False
) -> Iterator[Move]:
    """What moves weights of these modules, which have paths; of each hook and group once. The hooks
    of a module that is `closed` are left alone."""
    paths = {id(module): path for path, module in modules.items()}
    groups: set[int] = set()
    for path, module in modules.items():
        if vars(module).keys().isdisjoint((_ACCELERATE, _DIFFUSERS)) or closed(module):
            continue
        hook = vars(module).get(_ACCELERATE)
        for one in getattr(hook, "hooks", None) or (hook,):
            yield from _of_accelerate(one, module, path)
        registry = vars(module).get(_DIFFUSERS)
        group = getattr(getattr(registry, "hooks", {}).get(_GROUPED), "group", None)
        if group is not None and id(group) not in groups:
            groups.add(id(group))
            yield from _of_group(group, paths.get(id(next(iter(group.modules), module)), path))


def _of_accelerate(hook: Any, module: Any, path: str) -> Iterator[Move]:
    if getattr(hook, "offload", False) is True:

        def absent() -> int:
            within = hook.place_submodules
            buffers = module.buffers(recurse=within) if hook.offload_buffers else ()
            weights = chain(module.parameters(recurse=within), buffers)
            return _nbytes(one for one in weights if one.device.type == "meta")

        yield Move(hook, "pre_forward", _ONLOAD, path, absent)
    elif type(hook).__name__ == "CpuOffload":
        yield Move(hook, "pre_forward", _ONLOAD, path, _elsewhere(module, hook.execution_device))
        before = hook.prev_module_hook
        if before is not None:
            name = type(before.model).__name__
            yield Move(before, "offload", _OFFLOAD, name, _elsewhere(before.model, "cpu"))


def _of_group(group: Any, path: str) -> Iterator[Move]:
    def weights() -> Iterator[Any]:
        for module in group.modules:
            yield from chain(module.parameters(), module.buffers())
        yield from chain(group.parameters, group.buffers)

    def to_onload() -> int:
        if group.offload_to_disk_path is not None:
            return _nbytes(weights())
        return _nbytes(one for one in weights() if not _is_at(one, group.onload_device))

    def to_offload() -> int:
        if group.stream is not None or group.offload_to_disk_path is not None:
            return 0  # the copy that was there before is taken again, or nothing is kept
        return _nbytes(one for one in weights() if not _is_at(one, group.offload_device))

    yield Move(group, "onload_", _ONLOAD, path, to_onload)
    yield Move(group, "offload_", _OFFLOAD, path, to_offload)


def _elsewhere(model: Any, device: Any) -> Callable[[], int]:
    def nbytes() -> int:
        weights = chain(model.parameters(), model.buffers())
        return _nbytes(one for one in weights if not _is_at(one, device))

    return nbytes


def _is_at(tensor: Any, device: Any) -> bool:
    """Whether a tensor is on a device, which may be an index or have none."""
    import torch

    wanted = torch.device(device)
    same = wanted.index is None or wanted.index == tensor.device.index
    return bool(tensor.device.type == wanted.type and same)


def _nbytes(tensors: Iterable[Any]) -> int:
    """Each tensor once."""
    each = {id(tensor): tensor for tensor in tensors}.values()
    return sum(tensor.numel() * tensor.element_size() for tensor in each)
