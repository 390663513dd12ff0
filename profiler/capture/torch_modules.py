"""Ranges around module calls inside a submodule, so that operators find their module's path.

Hooks are there only while a pipeline call is traced. A range is opened only inside an invocation
that is being traced on the same thread (`open_range` has been called there).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from profiler.capture.torch_hooks import is_compiled
from profiler.capture.torch_ranges import MODULE
from profiler.capture.wraps import Wraps

__all__ = ["ModuleRanges", "class_name", "close_range", "open_range"]

_OPEN = threading.local()  # .ranges: [(name, range)] open on this thread, the invocation's first


def open_range(name: str) -> None:
    """Open the range of an invocation on this thread: 0.7 µs while a session records it, where
    torch's `record_function` takes 6."""
    from torch._C._profiler import _RecordFunctionFast

    stack = getattr(_OPEN, "ranges", None)
    if stack is None:
        stack = _OPEN.ranges = []
    opened = _RecordFunctionFast(name)
    opened.__enter__()
    stack.append((name, opened))


def close_range(name: str) -> None:
    """Close the range, with every range that an exception left open in it; nothing where no range
    of that name is open on this thread."""
    stack = getattr(_OPEN, "ranges", ())
    if not any(entry[0] == name for entry in stack):
        return
    while stack:
        last, opened = stack.pop()
        opened.__exit__(None, None, None)
        if last == name:
            return


class ModuleRanges:
    """Ranges around the calls of the modules below `root`, named by their path from it."""

    def __init__(self, root: Any) -> None:
        self._root = weakref.ref(root)
        self._attached = False
        self._handles: list[Any] = []
        self._wraps = Wraps()
        self.classes: dict[str, str] = {}  # by path from the root, "" for itself

    def __len__(self) -> int:
        return len(self._handles) // 2

    def attach(self) -> None:
        """Hook all modules below the root, as it is now; nothing where that has been done."""
        root = self._root()
        if self._attached or root is None:
            return
        self._attached = True
        self.classes = {"": class_name(root)}
        for path, module in _modules_below(root):
            self._hook(f"{MODULE}{path}", module)
            self.classes[path] = class_name(module)

    def detach(self) -> None:
        """Leave the modules as they were; again without effect."""
        while self._handles:
            self._handles.pop().remove()
        self._wraps.undo()
        self._attached = False

    def _hook(self, name: str, module: Any) -> None:
        if is_compiled(module):
            self._wraps.around(module, "_compiled_call_impl", _around(name))
            return
        before, after = _hooks(name)
        self._handles.append(module.register_forward_pre_hook(before, prepend=True))
        self._handles.append(module.register_forward_hook(after, always_call=True))


def _hooks(name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """What a module calls before and after its forward. They are compiled to nothing."""
    import torch
    from torch._C._profiler import _RecordFunctionFast

    compiling = torch.compiler.is_compiling

    def before(_module: Any, _args: Any) -> None:
        if compiling():
            return
        stack = getattr(_OPEN, "ranges", None)
        if stack:
            opened = _RecordFunctionFast(name)
            opened.__enter__()
            stack.append((name, opened))

    def after(_module: Any, _args: Any, _output: Any) -> None:
        if compiling():
            return
        stack = getattr(_OPEN, "ranges", None)
        if not stack:
            return
        if stack[-1][0] is name:
            stack.pop()[1].__exit__(None, None, None)
        else:
            close_range(name)

    return before, after


def _around(name: str) -> Callable[..., Any]:
    def around(original: Any, args: Any, kwargs: Any) -> Any:
        if not getattr(_OPEN, "ranges", None):
            return original(*args, **kwargs)
        open_range(name)
        try:
            return original(*args, **kwargs)
        finally:
            close_range(name)

    return around


def _modules_below(root: Any) -> Iterator[tuple[str, Any]]:
    """Path and module of everything called below `root`, each module once, under its first path.

    What torch.compile has compiled, and TorchScript, is one piece: nothing in it is called.
    """
    import torch

    never_called = (torch.nn.ModuleList, torch.nn.ModuleDict)
    seen = {id(root)}
    pending = [("", root)]
    while pending:
        path, module = pending.pop()
        if path and not isinstance(module, never_called):
            yield path, module
        if _is_one_piece(module):
            continue
        below = [(n, m) for n, m in module.named_children() if id(m) not in seen]
        seen.update(id(child) for _, child in below)
        prefix = f"{path}." if path else ""
        pending += [(f"{prefix}{name}", child) for name, child in reversed(below)]


def class_name(module: Any) -> str:
    """The class of a module, without torch.compile's wrapper."""
    return type(getattr(module, "_orig_mod", module)).__name__


def _is_one_piece(module: Any) -> bool:
    import torch

    wrapped = type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")
    return wrapped or is_compiled(module) or isinstance(module, torch.jit.ScriptModule)
