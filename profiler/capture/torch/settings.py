"""How a torch module is set up, read from it and its parts: nothing is imported or changed.

Attributes are looked up in `vars` where modules would raise for those that they lack. What cannot
be told stays absent.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from profiler.capture.devices import device_name
from profiler.capture.torch.children import child, every, own_tensors
from profiler.capture.torch.compile_settings import compiled
from profiler.capture.torch.step_cache_settings import plain_parameters, step_cache
from profiler.capture.torch.stored_weights import stored_bytes
from profiler.trace.manifest_settings import (
    Adapter,
    Attention,
    Offload,
    OffloadKind,
    SubmoduleSettings,
    WeightType,
)

__all__ = ["module_settings"]

_DISPATCH = "diffusers.models.attention_dispatch"
_SDPA = {
    "flash": "flash_sdp_enabled",
    "mem_efficient": "mem_efficient_sdp_enabled",
    "cudnn": "cudnn_sdp_enabled",
    "math": "math_sdp_enabled",
}
_GROUPED = "group_offloading"  # the hook's name in diffusers' registries
_MARKS = (
    "_compiled_call_impl",
    "_diffusers_hook",
    "_hf_hook",
    "config",
    "dynamo_ctx",
    "merged_adapters",
    "processor",
)
"""Attributes of the few modules that tell more than their weights."""
_KNOWN: weakref.WeakKeyDictionary[Any, tuple[list[Any], dict[str, WeightType]]] = (
    weakref.WeakKeyDictionary()
)
"""By submodule, which tensors it had, of which types, and what they were."""


def module_settings(root: Any) -> SubmoduleSettings:
    """The settings of the submodule `root`: read in each pipeline call, so what has thousands of
    modules is gone through once, and its weights are looked at anew where one is another."""
    everything = every(root)
    modules = [one for one in everything if _marked(one)]
    own = child(root, "_orig_mod") or root  # what torch.compile has wrapped
    return SubmoduleSettings(
        weights=_weights(root, everything),
        attention=_attention(modules),
        cache=step_cache(own, modules),
        offload=_offload(own, modules),
        compiled=compiled(root, modules),
        adapters=_adapters(own, modules),
    )


def _marked(module: Any) -> bool:
    own = module.__dict__
    return not own.keys().isdisjoint(_MARKS) or "processor" in module._modules  # noqa: SLF001


def _weights(root: Any, modules: Sequence[Any]) -> dict[str, WeightType]:
    tensors = [tensor for module in modules for tensor in own_tensors(module)]
    now = [len(modules), *map(id, tensors), *(tensor.dtype for tensor in tensors)]
    before, known = _KNOWN.get(root, ([], {}))
    if before == now:
        return known
    sizes = stored_bytes(modules)
    total = sum(sizes.values())
    ordered = sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0]))
    found = {name: WeightType(bytes=size, share=size / total) for name, size in ordered if size}
    _KNOWN[root] = now, found
    return found


def _attention(modules: Sequence[Any]) -> Attention | None:
    processors: dict[str, int] = {}
    backends: dict[str, None] = {}
    implementations: dict[str, None] = {}
    seen: set[int] = set()
    for module in modules:
        own = module.__dict__
        processor = own.get("processor") or child(module, "processor")
        name = "" if processor is None else type(processor).__name__
        if "Processor" in name and "Attn" in name:
            processors[name] = processors.get(name, 0) + 1
            if hasattr(processor, "_attention_backend"):
                backends[_backend(processor)] = None
        config = own.get("config")
        if config is not None and id(config) not in seen:
            seen.add(id(config))
            chosen = getattr(config, "_attn_implementation", None)
            if isinstance(chosen, str):
                implementations[chosen] = None
    if not processors and not implementations:
        return None
    return Attention(
        backends=tuple(filter(None, backends)),
        processors=processors,
        implementations=tuple(implementations),
        sdpa=_sdpa(),
    )


def _backend(processor: Any) -> str:
    """The processor's own, else the one that the dispatcher takes for it; "" where that does not
    tell."""
    chosen = processor._attention_backend  # noqa: SLF001 - where diffusers keeps it
    if chosen is None:
        registry = getattr(sys.modules.get(_DISPATCH), "_AttentionBackendRegistry", None)
        chosen = getattr(registry, "_active_backend", None)
    return "" if chosen is None else str(getattr(chosen, "value", chosen))


def _sdpa() -> tuple[str, ...]:
    switches = sys.modules["torch"].backends.cuda
    return tuple(name for name, of in _SDPA.items() if getattr(switches, of, lambda: False)())


def _offload(root: Any, modules: Sequence[Any]) -> Offload | None:
    grouped = next(_group_hooks(modules), None)
    if grouped is not None:
        config = grouped.config
        parameters = plain_parameters(
            {
                **vars(config),
                "stream": getattr(config, "stream", None) is not None,
                "offload_to_disk_path": None,
                "to_disk": getattr(config, "offload_to_disk_path", None) is not None,
                "module_prefix": None,
            }
        )
        return Offload(
            kind=OffloadKind.GROUP,
            execution_device=_device(config.onload_device),
            parameters=parameters,
        )
    hooks = list(_accelerate_hooks(root))
    whole = [hook for hook in hooks if type(hook).__name__ == "CpuOffload"]
    if whole:
        return Offload(kind=OffloadKind.MODEL, execution_device=_device(whole[0].execution_device))
    moving = (hook for module in modules for hook in _accelerate_hooks(module))
    moved = next((hook for hook in moving if getattr(hook, "offload", False) is True), None)
    where = _device(getattr(moved, "execution_device", None))
    placed = _device_map(root)
    if len(placed) > 1:
        kind = OffloadKind.DEVICE_MAP
        return Offload(kind=kind, execution_device=where, device_map=placed)
    if moved is not None:
        return Offload(kind=OffloadKind.SEQUENTIAL, execution_device=where)
    return None


def _device_map(root: Any) -> dict[str, int]:
    """How many parts of a module accelerate has put on each device."""
    counts: dict[str, int] = {}
    for device in (vars(root).get("hf_device_map") or {}).values():
        name = _device(device)
        counts[name] = counts.get(name, 0) + 1
    return counts


def _group_hooks(modules: Iterable[Any]) -> Iterator[Any]:
    for module in modules:
        hook = getattr(vars(module).get("_diffusers_hook"), "hooks", {}).get(_GROUPED)
        if hook is not None and getattr(hook, "config", None) is not None:
            yield hook


def _accelerate_hooks(module: Any) -> Iterator[Any]:
    """The hook of a module, and those that it is a sequence of."""
    hook = vars(module).get("_hf_hook")
    if hook is not None:
        yield hook
        yield from getattr(hook, "hooks", ())


def _device(device: Any) -> str:
    if device is None:
        return ""
    if isinstance(device, int):
        return device_name(f"cuda:{device}")
    return "disk" if device == "disk" else device_name(device)


def _adapters(root: Any, modules: Iterable[Any]) -> dict[str, Adapter]:
    kinds = vars(root).get("peft_config") or {}
    found: dict[str, list[Any]] = {}
    for module in modules:
        if "merged_adapters" in vars(module) and hasattr(type(module), "adapter_layer_names"):
            for name in getattr(module, "r", None) or ():
                found.setdefault(str(name), []).append(module)
    return {name: _adapter(name, kinds.get(name), layers) for name, layers in found.items()}


def _adapter(name: str, config: Any, layers: Sequence[Any]) -> Adapter:
    kind = getattr(config, "peft_type", "")
    fused = all(name in layer.merged_adapters for layer in layers)
    used = any(name in layer.active_adapters and not layer.disable_adapters for layer in layers)
    return Adapter(
        kind=str(getattr(kind, "value", kind) or ""),
        modules=len(layers),
        active=used or fused,
        fused=fused,
        ranks=tuple(sorted({int(layer.r[name]) for layer in layers})),
        scalings=tuple(sorted({float(s) for s in _scalings(name, layers)})),
    )


def _scalings(name: str, layers: Iterable[Any]) -> Iterator[float]:
    for layer in layers:
        factor = (getattr(layer, "scaling", None) or {}).get(name)
        if isinstance(factor, (int, float)):
            yield factor
