"""Modules that a switched-on script calls by itself, outside pipelines: noticed on the first call.

Whatever module is made is noted. The first call of any module after that looks at all new ones: the
outermost, and schedulers beside them, are handed over under the names of their variables, before
the call goes on. Between that and the next new module nothing of ours is there.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from profiler.capture.backend import Watching
from profiler.capture.notices import notice
from profiler.interruptions import let_pass

__all__ = ["ScriptModules", "is_whole", "outermost"]

_MODULE = "torch.nn.modules.module"  # where Module is defined
_OWN = "profiler."
_FRAMEWORK = "torch.nn."
_COMPILERS = ("torch.fx.", "torch._", "torch.onnx.", "torch.export.")
_EXPORTED = "ONNXTracedModule"  # what torch.onnx.export calls, of torch.jit._trace
_COMPILED = "torch._dynamo.eval_frame"  # where what torch.compile returns is defined
_GRAPHS = "torch.fx.graph_module"  # of a script that exports or traces, or of a compiler
_FEWEST_CHILDREN = 2  # with parameters: a container of torch's that is a model
_MOST_LOOKS = 200  # at new modules: a script that makes some in every step is left alone then


class ScriptModules:
    """Watches torch's `Module`. `process` is told of what a script calls outside pipelines."""

    def __init__(self, process: Watching) -> None:
        self._process = process
        self._base: Any = None
        self._before: tuple[Any, Any] = (None, None)  # `__init__` and `__call__` as they were
        self._new: list[weakref.ref[Any]] = []
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()  # outermost modules, handed over
        self._looks = 0
        self._armed = False
        self._lock = threading.RLock()

    @property
    def libraries(self) -> dict[str, Callable[[Any], None]]:
        return {_MODULE: self.watch}

    def watch(self, module: Any) -> None:
        """Note modules from now on, and those that exist; `module` defines `Module`."""
        if self._base is not None:
            return
        base = self._base = module.Module
        made = base.__init__
        self._before = (made, base.__call__)
        self._new = [weakref.ref(o) for o in gc.get_objects() if issubclass(type(o), base)]

        @functools.wraps(made)
        def __init__(new: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            made(new, *args, **kwargs)
            if _is_compilers(new) and not _may_be_scripts(new):
                return  # in the middle of a call
            self._new.append(weakref.ref(new))
            if not self._armed:
                self._arm()

        base.__init__ = __init__
        if self._new:
            self._arm()

    def forget(self) -> None:
        """Hand over anew what is called from now on."""
        self._lock = threading.RLock()
        self._new += [weakref.ref(known) for known in list(self._known)]
        self._known = weakref.WeakSet()
        if self._new and self._base is not None:
            self._arm()

    def undo(self) -> None:
        """Leave the class as it was."""
        if self._base is not None:
            self._base.__init__, self._base.__call__ = self._before
            self._base, self._armed = None, False
            self._new, self._known = [], weakref.WeakSet()

    def _arm(self) -> None:
        """Have the next call of any module look at the new ones."""
        if self._looks >= _MOST_LOOKS:
            self._new.clear()
            return
        self._armed = True
        original = self._before[1]

        @functools.wraps(original)
        def __call__(called: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            import torch  # it is whole by now

            traces = torch.compiler.is_compiling() or torch.jit.is_tracing()
            if not (traces or (_is_compilers(called) and not _is_graph(called))):
                self._look(sys._getframe(1))  # noqa: SLF001 - inspect's, without a check
            return original(called, *args, **kwargs)

        self._base.__call__ = __call__

    def _look(self, caller: FrameType) -> None:
        """A module is called: hand the new ones over."""
        with self._lock:
            if not self._armed or self._base is None:
                return
            self._armed = False
            self._looks += 1
            self._base.__call__ = self._before[1]
            references, self._new = self._new, []
            if str(caller.f_globals.get("__name__")).startswith(_OWN):
                return
            try:
                self._hand_over([found for r in references if (found := r()) is not None], caller)
            except Exception as error:  # noqa: BLE001 - the script's call must not fail of us
                let_pass(error)
                notice(f"modules outside pipelines are not recorded: {error}")

    def _hand_over(self, new: list[Any], caller: FrameType) -> None:
        graphs = [module for module in new if _is_graph(module)]
        if graphs:
            scripts = {id(module) for module in self._process.held(graphs, caller)}
            new = [module for module in new if not _is_graph(module) or id(module) in scripts]
        held = {id(below) for module in self._known for below in module.modules()}
        roots = [module for module in outermost(new) if id(module) not in held]
        self._known.update(roots)
        found = [module for root in roots for module in _whole_modules(root)]
        small = [module for root in roots for module in _small_modules(root)]
        if found:
            self._process.use_parts(found, caller)
        if small:
            self._process.pass_over(small, caller)


def _is_compilers(module: Any) -> bool:
    """Whether a module is one that torch.compile, a tracer or an export makes around the user's."""
    where, name = type(module).__module__, type(module).__name__
    return (where.startswith(_COMPILERS) and where != _COMPILED) or name == _EXPORTED


def _is_graph(module: Any) -> bool:
    """Whether a module is a traced graph: what `torch.export` and `torch.fx` give a script, and
    what torch.compile makes for itself."""
    return type(module).__module__ == _GRAPHS


def _may_be_scripts(module: Any) -> bool:
    """Whether a graph that has just been made may be the script's: nothing is being compiled or
    exported, which ends before the script gets one."""
    import torch
    from torch._guards import CompileContext, TracingContext

    busy = torch.compiler.is_compiling() or CompileContext.try_get() or TracingContext.try_get()
    return _is_graph(module) and not busy


def outermost(modules: Iterable[Any]) -> list[Any]:
    """Those that none of the others has as a child, once."""
    modules = list(modules)
    children = {id(child) for module in modules for child in module._modules.values()}  # noqa: SLF001
    seen: set[int] = set()
    found = []
    for module in modules:
        if id(module) not in children and id(module) not in seen:
            seen.add(id(module))
            found.append(module)
    return found


def _whole_modules(module: Any) -> Iterator[Any]:
    """The module where it is one that is captured, else those below it that are."""
    if is_whole(module):
        yield module
    else:
        for child in module._modules.values():  # noqa: SLF001
            if child is not None:
                yield from _whole_modules(child)


def _small_modules(module: Any) -> Iterator[Any]:
    """What of the module is executed beside the modules in it that are captured: itself where
    there is none of these."""
    if not any(True for _ in _whole_modules(module)):
        yield module
    elif not is_whole(module):
        for child in module._modules.values():  # noqa: SLF001
            if child is not None:
                yield from _small_modules(child)


def is_whole(module: Any) -> bool:
    """Whether a module is large enough for a submodule: its class is not torch's own, or two of
    its children have parameters."""
    if not f"{type(module).__module__}.".startswith(_FRAMEWORK):
        return True
    children = (child for child in module._modules.values() if child is not None)  # noqa: SLF001
    return sum(any(True for _ in c.parameters()) for c in children) >= _FEWEST_CHILDREN
