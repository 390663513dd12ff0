"""torch: modules, which report through forward hooks, and torch.profiler."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from profiler.capture.backend import (
    Backend,
    CallHooks,
    CompilationLog,
    StepCache,
    Watcher,
    Watching,
)
from profiler.capture.torch.hooks import (
    execution_device,
    hook_module,
    is_compiled,
    is_module,
    transparent,
)
from profiler.capture.wraps import Around, Wraps

if TYPE_CHECKING:
    from profiler.capture.device_times import DeviceMarks
    from profiler.capture.event_cost import EventCost
    from profiler.capture.operator_source import Gaps, OperatorSource, SourceRequest
    from profiler.trace.manifest_fields import Device
    from profiler.trace.manifest_settings import SubmoduleSettings

__all__ = ["BACKEND", "Torch"]


class Torch(Backend):
    """A part is a torch module."""

    name = "torch"
    packages = ("torch",)
    whole = True
    allocations = True
    order = 1

    def owns(self, part: Any, owner: Any = None) -> bool:  # noqa: ARG002
        return is_module(part)

    def inside(self, part: Any) -> Iterable[Any]:
        return list(part.modules())

    def entry_points(self, part: Any) -> tuple[str, ...]:
        from profiler.capture.torch.entry_points import entry_points

        return entry_points(part)

    def open(self, request: SourceRequest) -> OperatorSource | None:
        """Also for a module that is not to be traced: others' sessions are paused in its calls."""
        from profiler.capture.torch.operators import TorchOperators, TorchPause

        if request.selection.nothing:
            return TorchPause(request.recorder)
        return TorchOperators.of(request)

    def event_cost(self, gaps: Gaps) -> EventCost | None:  # noqa: ARG002
        from profiler.capture.torch.cost import torch_event_cost

        return torch_event_cost()

    def step_cache(self) -> StepCache:
        from profiler.capture.torch.step_caches import StepCaches

        return StepCaches()

    def compilation_log(self) -> CompilationLog:
        from profiler.capture.torch.compilations import DynamoLog

        return DynamoLog()

    def device(self, part: Any, owner: Any, name: str) -> str:  # noqa: ARG002
        return execution_device(part)

    def device_marks(self) -> DeviceMarks:
        from profiler.capture.torch.device_marks import StreamMarks

        return StreamMarks()

    def device_facts(self, device: str) -> Device | None:
        from profiler.capture.torch.hardware import gpu

        return gpu(device)

    def weight_bytes(self, part: Any) -> int | None:
        """Of its parameters and buffers, each once, and of what is packed."""
        from profiler.capture.torch.stored_weights import stored_bytes

        return sum(stored_bytes(part.modules()).values())

    def settings(self, part: Any) -> SubmoduleSettings | None:
        from profiler.capture.torch.settings import module_settings

        return module_settings(part)

    def method(self, owner: Any, name: str) -> Any:
        """Of the module that torch.compile has wrapped, too; `forward` of an encoder."""
        inner = self._entered(owner, name)
        if inner is not None:
            owner, name = inner, "forward"
        return getattr(getattr(owner, "_orig_mod", owner), name)

    def seen(self, owner: Any, name: str) -> Any:
        inner = self._entered(owner, name)
        if inner is not None:
            return inner if inner is not owner else is_compiled(owner)
        return super().seen(owner, name)

    def hook_calls(self, wraps: Wraps, owner: Any, name: str, hooks: CallHooks) -> None:
        inner = self._entered(owner, name)
        if inner is not None:
            hook_module(wraps, inner, hooks.begin, hooks.end, hooks.around)
        else:
            self.hook_method(wraps, owner, name, hooks.around)

    def _entered(self, owner: Any, name: str) -> Any:
        """The module whose calls are those of the method `name`: itself of `forward`, its encoder
        of `get_encoder`; None where the method is to be wrapped."""
        if name == "forward":
            return owner
        from profiler.capture.torch.entry_points import ENCODER, encoder_of

        return encoder_of(owner) if name == ENCODER else None

    def hook_method(self, wraps: Wraps, owner: Any, name: str, around: Around) -> None:
        """On the instance, and out of the way while torch compiles through it."""
        wraps.around(owner, name, transparent(around))

    def executed_kinds(self) -> Sequence[type]:
        known = getattr(sys.modules.get("torch.nn"), "Module", None)
        return (known,) if isinstance(known, type) else ()

    def outside(
        self, captured: Mapping[str, Any], alive: Sequence[Any]
    ) -> Iterable[tuple[str, str, Any]]:
        if "torch.nn" not in sys.modules:
            return ()
        from profiler.capture.torch.outside import outside

        return outside(captured, alive)

    def watch(self, process: Watching) -> Watcher | None:
        from profiler.capture.torch.script_modules import ScriptModules

        return ScriptModules(process)


BACKEND = Torch()
