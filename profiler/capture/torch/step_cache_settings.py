"""Which of diffusers' step caches a module has, and how it is configured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from profiler.trace.manifest_fields import Setting, setting
from profiler.trace.manifest_settings import Parameters, StepCache

__all__ = ["CACHE_OF_HOOK", "plain_parameters", "step_cache"]

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
"""By the class of a hook of diffusers' that only this cache has: the cache, as its configuration
class names it."""

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
    """What of an object's attributes is a number, switch or text, or a list of such; what is None,
    private, a tensor or a function is left out."""
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
