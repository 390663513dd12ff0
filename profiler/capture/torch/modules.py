"""Ranges around module calls inside a submodule, so that operators find their module's path.

Hooks are there only while a pipeline call is traced. A range is opened only inside an invocation
that is being traced on the same thread (`open_range` has been called there).

torch.compile guards the hooks of the modules that it compiles, by their ids. So nothing is hooked
inside what a module has compiled, and a module's hooks have the same ids each time, for the sake of
functions that call modules and that the script has compiled itself.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from profiler.capture.torch.hooks import is_compiled
from profiler.capture.torch.moved_weights import Move, moves
from profiler.capture.torch.profiler import leave, running_session
from profiler.capture.torch.ranges import MODULE, WEIGHTS
from profiler.capture.torch.stored_weights import packed_shapes
from profiler.capture.wraps import Wraps, is_function
from profiler.interruptions import let_pass

__all__ = [
    "ModuleRanges",
    "class_name",
    "close_range",
    "is_one_piece",
    "leave_modules",
    "open_range",
]

_ATTACHED: weakref.WeakSet[ModuleRanges] = weakref.WeakSet()
_OPEN = threading.local()  # .ranges: those open on this thread, the invocation's first: name,
# torch's range, and the session that it was entered in


def open_range(name: str) -> None:
    """Open the range of an invocation on this thread: 0.7 µs while a session records it, where
    torch's `record_function` takes 6."""
    from torch._C._profiler import _RecordFunctionFast

    stack = getattr(_OPEN, "ranges", None)
    if stack is None:
        stack = _OPEN.ranges = []
    opened = _RecordFunctionFast(name)
    opened.__enter__()
    stack.append((name, opened, running_session()))


def close_range(name: str) -> None:
    """Close the range, with every range that an exception left open in it; nothing where no range
    of that name is open on this thread."""
    stack = getattr(_OPEN, "ranges", ())
    if not any(entry[0] == name for entry in stack):
        return
    while stack:
        last, opened, session = stack.pop()
        leave(opened, session)
        if last == name:
            return


def leave_modules() -> None:
    """In a forked child: take off all hooks of the parent's, and close this thread's ranges."""
    for ranges in list(_ATTACHED):
        ranges.detach()
    stack = getattr(_OPEN, "ranges", [])
    while stack:
        leave(*stack.pop()[1:])


@dataclass(frozen=True, slots=True)
class _Hooks:
    """What a module calls before and after its forward, with torch's handles of both."""

    name: str
    before: Callable[..., None]
    after: Callable[..., None]
    handles: tuple[Any, Any]

    @classmethod
    def on(cls, module: Any, name: str) -> _Hooks:
        """Hook a module for the first time."""
        before, after = _calls(name)
        first = module.register_forward_pre_hook(before, prepend=True)
        return cls(
            name, before, after, (first, module.register_forward_hook(after, always_call=True))
        )

    def put_back(self, module: Any) -> None:
        """Hook it again, under the same ids: torch has no public way to do so."""
        first, second = (handle.id for handle in self.handles)
        module._forward_pre_hooks[first] = self.before  # noqa: SLF001
        module._forward_pre_hooks.move_to_end(first, last=False)  # noqa: SLF001
        module._forward_hooks[second] = self.after  # noqa: SLF001
        module._forward_hooks_always_called[second] = True  # noqa: SLF001

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


class ModuleRanges:
    """Ranges around the calls of the modules below `root`, named by their path from it."""

    def __init__(self, root: Any) -> None:
        self._root = weakref.ref(root)
        self._attached = False
        self._known: weakref.WeakKeyDictionary[Any, _Hooks] = weakref.WeakKeyDictionary()
        self._there: list[_Hooks] = []
        self._wraps = Wraps()
        self.classes: dict[str, str] = {}  # by path from the root, "" for itself
        self.packed: dict[str, str] = {}  # shapes of packed weights, likewise

    def __len__(self) -> int:
        return len(self._there)

    def attach(self) -> None:
        """Hook all modules below the root, as it is now; nothing where that has been done."""
        root = self._root()
        if self._attached or root is None:
            return
        self._attached = True
        _ATTACHED.add(self)
        modules = {"": root}
        for path, module in _modules_below(root):
            self._hook(f"{MODULE}{path}", module)
            modules[path] = module
        self.classes = {path: class_name(module) for path, module in modules.items()}
        packed = {path: packed_shapes(module) for path, module in modules.items()}
        self.packed = {path: shapes for path, shapes in packed.items() if shapes}
        for move in moves(modules, closed=is_one_piece):
            self._wraps.around(move.owner, move.method, _around_move(move))

    def detach(self) -> None:
        """Leave the modules as they were; again without effect."""
        while self._there:
            self._there.pop().remove()
        self._wraps.undo()
        self._attached = False
        _ATTACHED.discard(self)

    def _hook(self, name: str, module: Any) -> None:
        if is_compiled(module):
            self._wraps.around(module, "_compiled_call_impl", _around(name))
            return
        known = self._known.get(module)
        if known is not None and known.name == name:
            known.put_back(module)
        else:
            known = self._known[module] = _Hooks.on(module, name)
        self._there.append(known)


def _calls(name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """What a module calls before and after its forward. They are compiled to nothing."""
    import torch
    from torch._C._profiler import _RecordFunctionFast

    compiling = torch.compiler.is_compiling

    def before(_module: Any, _args: Any) -> None:
        if compiling():
            return
        stack = getattr(_OPEN, "ranges", None)
        if stack:
            session = running_session()
            if session:  # a profiler of the script's may have been started in this call
                opened = _RecordFunctionFast(name)
                opened.__enter__()
                stack.append((name, opened, session))

    def after(_module: Any, _args: Any, _output: Any) -> None:
        if compiling():
            return
        stack = getattr(_OPEN, "ranges", None)
        if not stack:
            return
        if stack[-1][0] is name:
            leave(*stack.pop()[1:])
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


def _around_move(move: Move) -> Callable[..., Any]:
    def around(original: Any, args: Any, kwargs: Any) -> Any:
        nbytes = _bytes_of(move) if getattr(_OPEN, "ranges", None) else 0
        if not nbytes:
            return original(*args, **kwargs)
        name = f"{WEIGHTS}{move.kind} {nbytes} {move.path}"
        open_range(name)
        try:
            return original(*args, **kwargs)
        finally:
            close_range(name)

    return around


def _bytes_of(move: Move) -> int:
    """How much a move will move; 0 where a library's hook is not as we know it."""
    try:
        return move.nbytes()
    except Exception as error:  # noqa: BLE001 - the script's call must not fail of us
        let_pass(error)
        return 0


def _modules_below(root: Any) -> Iterator[tuple[str, Any]]:
    """Path and module of everything called below `root`, each module once, under its first path.

    What torch.compile has compiled, itself or a method of it, and TorchScript, is one piece: in it
    nothing is called.
    """
    import torch

    never_called = (torch.nn.ModuleList, torch.nn.ModuleDict)
    seen = {id(root)}
    pending = [("", root)]
    while pending:
        path, module = pending.pop()
        if path and not isinstance(module, never_called):
            yield path, module
        if is_one_piece(module):
            continue
        below = [(n, m) for n, m in module.named_children() if id(m) not in seen]
        seen.update(id(child) for _, child in below)
        prefix = f"{path}." if path else ""
        pending += [(f"{prefix}{name}", child) for name, child in reversed(below)]


def class_name(module: Any) -> str:
    """The class of a module, without torch.compile's wrapper."""
    return type(getattr(module, "_orig_mod", module)).__name__


def is_one_piece(module: Any) -> bool:
    """Whether nothing is called inside the module: it is compiled, or TorchScript."""
    import torch

    wrapped = type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")
    if wrapped or is_compiled(module) or isinstance(module, torch.jit.ScriptModule):
        return True
    own = [value for value in vars(module).values() if is_function(value)]
    return any(_compiles(method) for method in (module.forward, *own))


def _compiles(method: Any) -> bool:
    """Whether torch.compile made it; what torch.compiler.disable makes is marked likewise."""
    made = hasattr(method, "_torchdynamo_orig_callable")
    return made and not getattr(method, "_torchdynamo_disable", False)
