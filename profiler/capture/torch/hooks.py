"""Calls of torch modules through their own hooks; which device they run on.

A module's `forward` is never replaced: diffusers' and accelerate's hooks (offload, caching, group
offload) do that, before or after us, and find the module as they expect it. A module that
`module.compile()` has compiled is wrapped outside its compiled code, and our hooks step aside while
torch compiles through them.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import FrameType
from typing import Any

from profiler.capture.devices import device_name
from profiler.capture.wraps import Around, Wraps
from profiler.events import ROOT_DEVICE

__all__ = [
    "execution_device",
    "hook_module",
    "is_compiled",
    "is_module",
    "transparent",
]

_Begin = Callable[[tuple[Any, ...], Mapping[str, Any], FrameType], None]
_End = Callable[[Any], None]


def is_module(value: Any) -> bool:
    """Whether `value` is a torch module; torch is not imported for that."""
    torch = sys.modules.get("torch")
    module = getattr(getattr(torch, "nn", None), "Module", None)
    return module is not None and isinstance(value, module)


def is_compiled(module: Any) -> bool:
    """Whether `module.compile()` has been called: its hooks run inside the compiled code."""
    return getattr(module, "_compiled_call_impl", None) is not None


def hook_module(wraps: Wraps, module: Any, begin: _Begin, end: _End, around: Around) -> None:
    """Tell `begin(args, kwargs, caller)` and `end(output)` of each call of `module`; a call that
    failed has ended with its exception being handled. torch tells nothing of the end where that is
    no `Exception`, as KeyboardInterrupt: `caller` is the frame that has then ended, too.

    `around(original, args, kwargs)` stands for both where the module is compiled, or TorchScript.
    Undone with `wraps`.
    """
    if is_compiled(module):
        wraps.around(module, "_compiled_call_impl", around)
        return
    if _is_script(module):  # which refuses hooks, and calls what its instance has
        wraps.around(module, "forward", around)
        return
    before, after = _Before(module, begin), _After(module, end)
    wraps.on_undo(module.register_forward_pre_hook(before, prepend=True, with_kwargs=True).remove)
    wraps.on_undo(module.register_forward_hook(after, always_call=True).remove)


def _is_script(module: Any) -> bool:
    """Whether TorchScript made the module."""
    script = getattr(sys.modules.get("torch.jit"), "ScriptModule", None)
    return script is not None and isinstance(module, script)


class _Hook:
    """A forward hook of `module`. In a pickle or copy of it stands a function that does nothing
    and needs nothing of ours."""

    def __init__(self, module: Any, tell: Callable[..., None]) -> None:
        import torch

        self.compiling = torch.compiler.is_compiling
        self.module = weakref.ref(module)
        self.tell = tell

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


class _Before(_Hook):
    def __call__(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self.compiling() and called is self.module():
            self.tell(args, kwargs, sys._getframe(1))  # noqa: SLF001 - inspect's, without a check


class _After(_Hook):
    def __call__(self, called: Any, _: Any, output: Any) -> None:
        if not self.compiling() and called is self.module():
            self.tell(output)


def transparent(around: Around) -> Around:
    """`around` that steps aside while torch compiles through it."""
    import torch

    compiling = torch.compiler.is_compiling

    def outside(original: Any, args: Any, kwargs: Any) -> Any:
        if compiling():
            return original(*args, **kwargs)
        return around(original, args, kwargs)

    return outside


def execution_device(module: Any) -> str:
    """Where a module runs: its offload hook's device, which may be an index, else that of its
    first weight."""
    hook = getattr(module, "_hf_hook", None)  # accelerate's
    for candidate in (hook, *getattr(hook, "hooks", ())):
        device = getattr(candidate, "execution_device", None)
        if device is not None:
            return _indexed(f"cuda:{device}" if isinstance(device, int) else device)
    tensor = next(module.parameters(), None)
    if tensor is None:
        tensor = next(module.buffers(), None)
    return ROOT_DEVICE if tensor is None else device_name(tensor.device)


def _indexed(device: Any) -> str:
    """A device by its name; `cuda` is this process's current one."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if str(device) == "cuda" and cuda is not None and cuda.is_initialized():
        return device_name(f"cuda:{cuda.current_device()}")
    return device_name(device)
