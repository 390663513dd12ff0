"""Runtimes of RBLN's compiler that a script calls by itself: `rebel.Runtime("model.rbln")`.

A runtime is noticed on its first call outside every pipeline call and submodule, under the name
that the script has for it, and hooked like a module. Its class is left as it was at the end.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from profiler.capture.class_patches import ClassPatches
from profiler.capture.notices import notice
from profiler.interruptions import let_pass

if TYPE_CHECKING:
    from types import FrameType

    from profiler.capture.backend import Watching

__all__ = ["CALLS", "LIBRARY", "ScriptRuntimes", "is_runtime"]

LIBRARY = "rebel"
CALLS = ("run", "__call__")
_CLASS = "Runtime"


def is_runtime(part: Any) -> bool:
    """Whether a part is a runtime of RBLN's compiler. Nothing is imported for that."""
    known = getattr(sys.modules.get(LIBRARY), _CLASS, None)
    return isinstance(known, type) and isinstance(part, known)


class ScriptRuntimes:
    """Hands each runtime to the process on its first call."""

    def __init__(self, process: Watching) -> None:
        self._process = process
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._patches = ClassPatches()

    @property
    def libraries(self) -> dict[str, Callable[[Any], None]]:
        return {LIBRARY: self.watch}

    def watch(self, module: Any) -> None:
        """Watch all runtimes; `module` is `rebel`."""
        known = getattr(module, _CLASS, None)
        if self._patches or not isinstance(known, type):
            return
        for name in CALLS:
            owner = next((one for one in known.__mro__ if name in vars(one)), None)
            if owner is not None and callable(original := vars(owner)[name]):
                self._patches.replace(owner, name, self._first_use(name, original))

    def forget(self) -> None:
        """Hand over anew what is called from now on."""
        self._lock = threading.RLock()
        self._seen = weakref.WeakSet()

    def undo(self) -> None:
        """Leave the class as it was."""
        self._patches.undo()
        self.forget()

    def _first_use(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        from profiler.capture.scopes import scope  # too heavy for a process without runtimes

        @functools.wraps(original)
        def use(runtime: Any, *args: Any, **kwargs: Any) -> Any:
            around = scope()
            alone = around.pipeline is None and around.call is None
            if alone and self._handed_over(runtime, sys._getframe(1)):  # noqa: SLF001 - as modules'
                again = runtime if name == "__call__" else getattr(runtime, name)
                return again(*args, **kwargs)  # through the hooks that are there now
            return original(runtime, *args, **kwargs)

        return use

    def _handed_over(self, runtime: Any, caller: FrameType) -> bool:
        """Whether the runtime was not known until now, and is hooked."""
        with self._lock:
            try:
                if runtime in self._seen:
                    return False
                self._seen.add(runtime)
                self._process.use_parts([runtime], caller)
            except Exception as error:  # noqa: BLE001 - the script's call must not fail of us
                let_pass(error)
                notice(f"a runtime outside pipelines is not recorded: {error}")
                return False
            return True
