"""Which blocks a step cache of diffusers' skips in a call, from the cache's own state.

The hooks that the cache has put on blocks are found once a pipeline call. What they hold is read
before and after a call of the submodule, inside its `cache_context`; nothing of them is wrapped, so
that code that was compiled through them is not compiled anew. FirstBlockCache does not keep the
ratio that it compares with its threshold: a number stands there that notes what it is compared
with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from profiler.capture.backend import Skipped
from profiler.capture.torch.children import child, every
from profiler.capture.torch.step_cache_settings import CACHE_OF_HOOK

__all__ = ["StepCaches"]

_Read = Callable[[], list[str]]  # paths of the blocks that were skipped since
_Hooked = tuple[str, Any]  # path and hook

_SHARED = {  # classes of hooks of one decision for all blocks; whether the block is ever skipped
    "FBCHeadBlockHook": False,
    "FBCBlockHook": True,
    "MagCacheHeadHook": True,
    "MagCacheBlockHook": True,
}
_SEA = ("SeaCacheLeaderBlockHook", "SeaCacheBlockHook")


class StepCaches:
    """The step cache of one submodule, whichever it has at the time."""

    def __init__(self) -> None:
        self._known: tuple[Any, ...] = ()
        self._cache = ""
        self._hooks: dict[str, list[_Hooked]] = {}  # by class
        self._layers: list[str] = []  # that SeaCache skips as one stack
        self._ratio: _Threshold | None = None

    def begin(self, module: Any, pipeline: int) -> Callable[[], Skipped | None] | None:
        """A call of `module` begins, in the pipeline call of that number. Returns what tells of it
        at its end; None where no cache is on."""
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
        """Leave the cache as it was."""
        if self._ratio is not None:
            self._ratio.give_back()
        self._known, self._cache, self._ratio = (), "", None
        self._hooks, self._layers = {}, []

    def _find(self, module: Any) -> None:
        if not any("_diffusers_hook" in inner.__dict__ for inner in every(module)):
            return
        for path, inner in module.named_modules():
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
        """How many blocks the cache may skip."""
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
        """What tells whether FasterCache has left out the unconditional half."""
        for _, denoiser in self._of("FasterCacheDenoiserHook"):
            iteration = denoiser.state.iteration
            return lambda: _leaves_out(denoiser, iteration)
        return lambda: False


class _Threshold(float):
    """FirstBlockCache's threshold, which notes the number that it is compared with."""

    compared: float | None
    _hook: Any
    _plain: Any

    @classmethod
    def on(cls, hook: Any) -> _Threshold:
        """In place of the hook's own, until it is given back."""
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
    """The state of the context in which the submodule is called now; None where it has none."""
    context = manager._context  # noqa: SLF001 - its property raises
    return None if context is None else manager._state_cache.get(context.name)  # noqa: SLF001


def _of_decision(hook: Any, paths: list[str]) -> _Read:
    """One decision for all blocks, which the first of them made."""

    def read() -> list[str]:
        state = _state(hook.state_manager)
        return paths if state is not None and not state.should_compute else []

    return read


def _of_sea(hook: Any, paths: list[str]) -> _Read:
    """It counts calls that it skipped one after the other."""
    before = getattr(_state(hook.state_manager), "consecutive_cached", 0)

    def read() -> list[str]:
        after = getattr(_state(hook.state_manager), "consecutive_cached", 0)
        return paths if after > before else []

    return read


def _of_broadcast(path: str, hook: Any) -> _Read:
    """What was computed is a new object: the one before was alive then."""
    iteration, cached = hook.state.iteration, id(hook.state.cache)

    def read() -> list[str]:
        same = id(hook.state.cache) == cached
        return [path] if hook.state.iteration > iteration and same else []

    return read


def _of_taylor(path: str, hook: Any) -> _Read:
    """It notes the step of its last computation. In a block that is skipped nothing is called."""
    before = getattr(_state(hook.state_manager), "current_step", -1)

    def read() -> list[str]:
        state = _state(hook.state_manager)
        called = state is not None and state.current_step > before
        return [path] if called and state.last_update_step != state.current_step else []

    return read


def _of_faster(path: str, hook: Any, denoiser: Any) -> _Read:
    """It keeps no decision: its own condition, on its own state, says what it was."""
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
    """Whether the cache's timestep lies there; its callback reads the pipeline's attribute."""
    return bool(steps[0] < hook.current_timestep_callback() < steps[1])
