"""Settings, stored weights and step caches of a torch module, read from it without changing it.

Missing attributes stay absent. Step caches of diffusers are not wrapped, so compiled code is
not recompiled: their state is read before and after each call of the submodule.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from profiler.capture.backend import device_name
from profiler.capture.calls import Skipped
from profiler.capture.patching import ByIdentity
from profiler.capture.torch.compile import compiled
from profiler.trace.manifest_fields import (
    Adapter,
    Attention,
    Device,
    Offload,
    OffloadKind,
    Parameters,
    Setting,
    StepCache,
    SubmoduleSettings,
    WeightType,
    setting,
)

# --- The hardware of the GPUs that torch uses.


_KIND = "cuda"  # of NVIDIA's GPUs and, under that name too, of AMD's


def gpu(device: str) -> Device | None:
    """Name, memory in bytes and multiprocessors of `cuda:1`; None for other devices, and if the
    process has not started CUDA, which this does not do."""
    kind, _, index = device.partition(":")
    torch = sys.modules.get("torch")
    if torch is None or kind != _KIND or not index.isdecimal() or not torch.cuda.is_initialized():
        return None
    if int(index) >= torch.cuda.device_count():
        return None
    properties = torch.cuda.get_device_properties(int(index))
    return Device(
        hardware=properties.name,
        memory_bytes=properties.total_memory,
        compute_units=properties.multi_processor_count,
    )


# --- The modules below one, and those of them that are large enough for submodules.


_FRAMEWORK = "torch.nn."
_FEWEST_CHILDREN = 2  # children with parameters: then a container of torch's is a model


def child(module: Any, name: str) -> Any:
    """The child of that name; None if there is none."""
    named: Any = getattr(module, "_modules", {})
    return named[name] if name in named else None  # noqa: SIM401 - it may have no `get`


def children(module: Any) -> list[tuple[str, Any]]:
    """Name and module of each child."""
    pairs = module._modules.items()  # noqa: SLF001 - torch's functions fail if one has no hash
    return [(name, below) for name, below in pairs if below is not None]


def every(root: Any) -> Iterator[Any]:
    """`root` and all modules below it, each once, in the order of torch's `modules()`."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        module = pending.pop()
        if module is not None and id(module) not in seen:
            seen.add(id(module))
            yield module
            below = module._modules  # noqa: SLF001 - as above
            if below:
                pending += reversed(below.values())


def with_paths(
    root: Any, closed: Callable[[Any], bool] = lambda _: False
) -> Iterator[tuple[str, Any]]:
    """`root` and all modules below it, each once, under its first path from there; but none below
    those that are `closed`."""
    seen = {id(root)}
    pending = [("", root)]
    while pending:
        path, module = pending.pop()
        yield path, module
        prefix, below = f"{path}." if path else "", []
        for name, one in () if closed(module) else children(module):
            if id(one) not in seen:
                seen.add(id(one))
                below.append((f"{prefix}{name}", one))
        pending += reversed(below)


def own_tensors(module: Any, kinds: Sequence[str] = ("_parameters", "_buffers")) -> list[Any]:
    """Its parameters and buffers, but not its children's."""
    own, found = module.__dict__, []
    for kind in kinds:
        held = own[kind] if kind in own else getattr(module, kind)
        if held:
            found += [tensor for tensor in held.values() if tensor is not None]
    return found


def whole_modules(module: Any) -> Iterator[Any]:
    """The module if it is large enough for a submodule, else the outermost ones below it that
    are."""
    if is_whole(module):
        yield module
    else:
        for _, child in children(module):
            yield from whole_modules(child)


def small_modules(module: Any) -> Iterator[Any]:
    """The executed parts of the module outside captured ones: the module itself if it contains none
    of these."""
    if not any(True for _ in whole_modules(module)):
        yield module
    elif not is_whole(module):
        for _, child in children(module):
            yield from small_modules(child)


def is_whole(module: Any) -> bool:
    """Whether a module is large enough for a submodule: its class is not torch's own, or two of
    its children have parameters."""
    if not f"{type(module).__module__}.".startswith(_FRAMEWORK):
        return True
    with_weights = (
        any(own_tensors(one, ("_parameters",)) for one in every(child))
        for _, child in children(module)
    )
    return sum(with_weights) >= _FEWEST_CHILDREN


# --- What a module holds itself, also if its children and tensors are in no dict (TorchScript), and
# what its weights take as they are stored, quantized ones too, by type of elements.
#
# - A tensor of a class of its own that is made of others (torchao's, DTensor) takes what these
#   take; its own size is that of what it stands for.
# - bitsandbytes keeps the scales of its weights beside them.
# - What torch's dynamic quantization has packed is no tensor any more: its module knows the dims.


_PLAIN = ("Tensor", "Parameter", "Buffer")
_PACKED = "_packed_params"
_PACKED_BYTES = {"torch.qint8": 1, "torch.quint8": 1, "torch.float16": 2}
_PACKED_NAMES = {"torch.float16": "half"}
_BIAS_BYTES = 4  # of each value: it stays float32


def stored_bytes(modules: Iterable[Any]) -> dict[str, int]:
    """Bytes by type of elements, each tensor once: `bfloat16`; of quantized ones the class before
    it, `Int8Tensor (float32)`, for their dtype is what they stand for."""
    tensors: dict[int, Any] = {}
    sizes: dict[str, int] = {}
    for module in modules:
        known = (tensor for tensor in own_tensors(module) if not is_lazy(tensor))
        tensors.update({id(tensor): tensor for tensor in known})
        for name, size in _packed_bytes(module):
            sizes[name] = sizes.get(name, 0) + size
    by_type: dict[tuple[type, Any], int] = {}
    for tensor in tensors.values():
        key = type(tensor), getattr(tensor, "quant_type", None) or tensor.dtype
        by_type[key] = by_type.get(key, 0) + sum(map(_bytes_of_tensor, _parts(tensor)))
    for (kind, dtype), size in by_type.items():
        name = _element_type(kind.__name__, dtype)
        sizes[name] = sizes.get(name, 0) + size
    return sizes


def is_lazy(tensor: Any) -> bool:
    """Whether a tensor is a weight that gets its shape in its module's first call."""
    from torch.nn.parameter import is_lazy as lazy

    return bool(lazy(tensor))


def packed_shapes(module: Any) -> str:
    """Weight and bias of a linear layer that torch has quantized dynamically, as `shapes` has
    them; "" for any other module. torch's events have no dims of packed weights."""
    found = _packed(module)
    if found is None:
        return ""
    dtype, rows, columns, bias = found
    name = _PACKED_NAMES.get(dtype, dtype.removeprefix("torch."))
    return f"{name}[{rows},{columns}]" + (f" float[{rows}]" if bias else "")


def _element_type(kind: str, dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    return name if kind in _PLAIN else f"{kind} ({name})"


def _parts(tensor: Any) -> Iterator[Any]:
    """The tensors that are stored for one."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        for name in flatten()[0]:
            yield from _parts(getattr(tensor, name))
        return
    yield tensor
    state = getattr(tensor, "quant_state", None)  # of four-bit weights; its scales may have one
    states = (state, getattr(state, "state2", None))
    scales = (getattr(tensor, "SCB", None), *(getattr(one, "absmax", None) for one in states))
    yield from (one for one in scales if one is not None)


def _bytes_of_tensor(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _packed(module: Any) -> tuple[str, int, int, bool] | None:
    """Type, rows, columns of a packed weight, and whether there is a bias: nothing is unpacked."""
    own = module.__dict__
    packed = child(module, _PACKED)
    rows, columns = own.get("out_features"), own.get("in_features")
    if packed is None or not isinstance(rows, int) or not isinstance(columns, int):
        return None
    bias = getattr(getattr(packed, _PACKED, None), "bias", None)
    return str(getattr(packed, "dtype", "")), rows, columns, bias is not None and bias() is not None


def _packed_bytes(module: Any) -> Iterator[tuple[str, int]]:
    found = _packed(module)
    if found is not None and found[0] in _PACKED_BYTES:
        dtype, rows, columns, bias = found
        yield f"packed ({dtype.removeprefix('torch.')})", rows * columns * _PACKED_BYTES[dtype]
        if bias:
            yield "float32", rows * _BIAS_BYTES


# --- Which of diffusers' step caches a module has, and how it is configured.


CACHE_OF_HOOK = {
    "FBCHeadBlockHook": "FirstBlockCache",
    "PyramidAttentionBroadcastHook": "PyramidAttentionBroadcast",
    "FasterCacheBlockHook": "FasterCache",
    "FasterCacheDenoiserHook": "FasterCache",
    "TaylorSeerCacheHook": "TaylorSeerCache",
    "MagCacheHeadHook": "MagCache",
    "SeaCacheRootHook": "SeaCache",
    "TextKVCacheTransformerHook": "TextKVCache",
}
"""By the class of a diffusers hook that only this cache has: the cache, named as its configuration
class."""

_LONGEST = 200  # characters of a parameter's text


def step_cache(root: Any, modules: Sequence[Any]) -> StepCache | None:
    """The cache that was switched on by `enable_cache`, else by a function of diffusers' hooks."""
    config = getattr(root, "_cache_config", None)
    if config is not None:
        name = type(config).__name__.removesuffix("Config")
        return StepCache(name=name, parameters=plain_parameters(vars(config)))
    for module in modules:
        for hook in getattr(vars(module).get("_diffusers_hook"), "hooks", {}).values():
            name = CACHE_OF_HOOK.get(type(hook).__name__, "")
            if name:
                own = getattr(hook, "config", hook)
                return StepCache(name=name, parameters=plain_parameters(vars(own)))
    return None


def plain_parameters(values: Mapping[str, Any]) -> Parameters:
    """The attributes of an object that are numbers, switches or texts, or lists of these; None,
    private attributes, tensors and functions are left out."""
    found = {name: _plain(value) for name, value in values.items() if not name.startswith("_")}
    return {name: value for name, value in found.items() if value is not None}


def _plain(value: Any) -> Setting:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, (bool, int, float)):
        return setting(value)
    if isinstance(value, str):
        return value[:_LONGEST]
    if isinstance(value, (list, tuple)) and all(isinstance(v, (int, float, str)) for v in value):
        return ", ".join(map(str, value))[:_LONGEST]
    if type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device"):
        return str(value).removeprefix("torch.")
    return None


# --- The settings of a torch module, read from it and its parts: nothing is imported or changed.
#
# Attributes are looked up in `vars` if modules would raise for missing ones. Unknown settings stay
# absent.


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
"""Attributes of the few modules with settings beyond their weights."""
_KNOWN: ByIdentity[tuple[list[Any], dict[str, WeightType]]] = ByIdentity()
"""For each submodule, its tensors, their types, and the weight types computed from them."""


def module_settings(root: Any) -> SubmoduleSettings:
    """The settings of the submodule `root`. Read in each pipeline call, so thousands of modules are
    visited once, and weights again only if a tensor has changed."""
    everything = list(every(root))
    modules = [one for one in everything if _marked(one)]
    own = child(root, "_orig_mod") or root  # the module inside a wrapper of torch.compile
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
    known = _KNOWN.get(root)
    if known is not None and known[0] == now:
        return known[1]
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
    """The attention backend: the processor's own, else the dispatcher's; "" if unknown."""
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
    """The number of a module's parts that accelerate has put on each device."""
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
    """The accelerate hook of a module, and the hooks in it if it is a sequence."""
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


# --- The blocks that a step cache of diffusers skips in a call, from the cache's own state.
#
# The cache's hooks on blocks are searched once per pipeline call. Their state is read before and
# after a call of the submodule, inside its `cache_context`. Nothing of them is wrapped, so compiled
# code is not recompiled. FirstBlockCache does not keep the ratio that it compares with its
# threshold: the threshold is replaced by a number that stores it.


_Read = Callable[[], list[str]]  # paths of the blocks that were skipped since
_Hooked = tuple[str, Any]  # path and hook

_SHARED = {  # classes of hooks that share one decision; whether their blocks are ever skipped
    "FBCHeadBlockHook": False,
    "FBCBlockHook": True,
    "MagCacheHeadHook": True,
    "MagCacheBlockHook": True,
}
_SEA = ("SeaCacheLeaderBlockHook", "SeaCacheBlockHook")


class StepCaches:
    """The step cache of one submodule, whichever is enabled at the time."""

    def __init__(self) -> None:
        self._known: tuple[Any, ...] = ()
        self._cache = ""
        self._hooks: dict[str, list[_Hooked]] = {}  # by class
        self._layers: list[str] = []  # layers that SeaCache skips as one stack
        self._ratio: _Threshold | None = None

    def begin(self, module: Any, pipeline: int) -> Callable[[], Skipped | None] | None:
        """Handle the start of a call of `module`, in pipeline call number `pipeline`. Returns a
        function that returns at its end what was skipped; None if no cache is on."""
        own = child(module, "_orig_mod") or module
        known = (pipeline, id(own.__dict__.get("_cache_config")))
        if known != self._known:
            self.close()
            self._find(own)
            self._known = known
        if not self._cache:
            return None
        ratio = self._ratio
        if ratio is not None:
            ratio.compared = None
        reads = list(self._reads())
        blocks = self._blocks()
        uncond = self._uncond()

        def end() -> Skipped | None:
            skipped = [path for read in reads for path in read()]
            compared = None if ratio is None else ratio.compared
            return Skipped(self._cache, blocks, tuple(skipped), uncond(), compared)

        return end

    def close(self) -> None:
        """Restore the cache."""
        if self._ratio is not None:
            self._ratio.give_back()
        self._known, self._cache, self._ratio = (), "", None
        self._hooks, self._layers = {}, []

    def _find(self, module: Any) -> None:
        if not any("_diffusers_hook" in inner.__dict__ for inner in every(module)):
            return
        for path, inner in with_paths(module):
            registry = inner.__dict__.get("_diffusers_hook")
            for hook in registry.hooks.values() if registry is not None else ():
                name = type(hook).__name__
                self._cache = self._cache or CACHE_OF_HOOK.get(name, "")
                self._hooks.setdefault(name, []).append((path, hook))
        for _, head in self._hooks.get("FBCHeadBlockHook", ()):
            self._ratio = _Threshold.on(head)
        for _, root in self._hooks.get("SeaCacheRootHook", ()):
            if getattr(root, "use_stack_boundary", False):
                self._layers = [f"layers.{n}" for n in range(len(module.layers))]

    def _of(self, *names: str) -> list[_Hooked]:
        return [hooked for name in names for hooked in self._hooks.get(name, ())]

    def _blocks(self) -> int:
        """The number of blocks that the cache may skip."""
        shared = [name for name, skips in _SHARED.items() if skips]
        each = ("PyramidAttentionBroadcastHook", "TaylorSeerCacheHook", "FasterCacheBlockHook")
        return len({path for path, _ in self._of(*shared, *_SEA, *each)}) + len(self._layers)

    def _reads(self) -> Iterator[_Read]:
        shared = self._of(*_SHARED)
        if shared:
            skips = [path for path, hook in shared if _SHARED[type(hook).__name__]]
            yield _of_decision(shared[0][1], list(dict.fromkeys(skips)))
        roots = self._of("SeaCacheRootHook")
        if roots:
            yield _of_sea(roots[0][1], [path for path, _ in self._of(*_SEA)] + self._layers)
        for path, hook in self._of("PyramidAttentionBroadcastHook"):
            yield _of_broadcast(path, hook)
        for path, hook in self._of("TaylorSeerCacheHook"):
            yield _of_taylor(path, hook)
        denoiser = next((hook for _, hook in self._of("FasterCacheDenoiserHook")), None)
        for path, hook in self._of("FasterCacheBlockHook"):
            yield _of_faster(path, hook, denoiser)

    def _uncond(self) -> Callable[[], bool]:
        """Return a function that returns whether FasterCache has left out the unconditional
        half."""
        for _, denoiser in self._of("FasterCacheDenoiserHook"):
            iteration = denoiser.state.iteration
            return lambda: _leaves_out(denoiser, iteration)
        return lambda: False


class _Threshold(float):
    """FirstBlockCache's threshold, which stores the number that it is compared with."""

    compared: float | None
    _hook: Any
    _plain: Any

    @classmethod
    def on(cls, hook: Any) -> _Threshold:
        """Replace the hook's threshold until `give_back`."""
        found = cls(hook.threshold)
        found.compared, found._hook, found._plain = None, hook, hook.threshold
        hook.threshold = found
        return found

    def give_back(self) -> None:
        if self._hook.threshold is self:
            self._hook.threshold = self._plain

    def __lt__(self, other: Any) -> bool:  # of `ratio > threshold`
        if isinstance(other, float) and math.isfinite(other):
            self.compared = other
        return bool(float(self) < other)

    __hash__ = float.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (float(self),)


def _state(manager: Any) -> Any:
    """The cache state for the submodule's current context; None if there is none."""
    context = manager._context  # noqa: SLF001 - its property raises
    return None if context is None else manager._state_cache.get(context.name)  # noqa: SLF001


def _of_decision(hook: Any, paths: list[str]) -> _Read:
    """Read the one decision for all blocks, made by the first of them."""

    def read() -> list[str]:
        state = _state(hook.state_manager)
        return paths if state is not None and not state.should_compute else []

    return read


def _of_sea(hook: Any, paths: list[str]) -> _Read:
    """Read the change of the hook's counter of consecutive skipped calls."""
    before = getattr(_state(hook.state_manager), "consecutive_cached", 0)

    def read() -> list[str]:
        after = getattr(_state(hook.state_manager), "consecutive_cached", 0)
        return paths if after > before else []

    return read


def _of_broadcast(path: str, hook: Any) -> _Read:
    """Read whether the cached object is the same: a computed result is a new object, while the old
    one is alive."""
    iteration, cached = hook.state.iteration, id(hook.state.cache)

    def read() -> list[str]:
        same = id(hook.state.cache) == cached
        return [path] if hook.state.iteration > iteration and same else []

    return read


def _of_taylor(path: str, hook: Any) -> _Read:
    """Read the step of the last computation, which the hook stores. A skipped block calls
    nothing."""
    before = getattr(_state(hook.state_manager), "current_step", -1)

    def read() -> list[str]:
        state = _state(hook.state_manager)
        called = state is not None and state.current_step > before
        return [path] if called and state.last_update_step != state.current_step else []

    return read


def _of_faster(path: str, hook: Any, denoiser: Any) -> _Read:
    """Evaluate the hook's own condition on its state, since it stores no decision."""
    iteration = hook.state.iteration
    outer = None if denoiser is None else denoiser.state.iteration

    def read() -> list[str]:
        if hook.state.iteration == iteration or not _within(hook, hook.timestep_skip_range):
            return []
        computes = iteration > 0 and iteration % hook.block_skip_range == 0
        halved = outer is not None and _leaves_out(denoiser, outer)
        return [path] if not computes and (hook.is_guidance_distilled or halved) else []

    return read


def _leaves_out(denoiser: Any, iteration: int) -> bool:
    return (
        iteration > 0
        and not denoiser.is_guidance_distilled
        and iteration % denoiser.unconditional_batch_skip_range != 0
        and _within(denoiser, denoiser.unconditional_batch_timestep_skip_range)
    )


def _within(hook: Any, steps: tuple[float, float]) -> bool:
    """Whether the cache's timestep is within `steps`; its callback reads the pipeline's
    attribute."""
    return bool(steps[0] < hook.current_timestep_callback() < steps[1])
