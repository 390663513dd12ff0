"""The RBLN backend: optimum-rbln submodules and `rebel.Runtime` objects.

Runtimes are recognized by their shape, and nothing is imported for it. During a run, proxies
replace the runtimes and record when the device worked. Runtime calls are numbered in the order
in which they started, as RBLN's profiler numbers its files. `profile-sd3 import --run` matches
them by these numbers.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from profiler.capture.backend import Backend, Watcher, Watching, notice
from profiler.capture.patching import ByIdentity, ClassPatches, call_wrapped
from profiler.capture.rbln import (
    DEVICE_KIND,
    configuration_of,
    device_number,
    own_configuration,
    rbln_device,
    slots_of,
)
from profiler.plugins import let_pass

if TYPE_CHECKING:
    from types import FrameType

    from profiler.capture.operator_source import OperatorSource, SourceRequest


# --- Runtimes of RBLN's compiler that a script calls directly: `rebel.Runtime("model.rbln")`.
#
# A runtime is detected on its first call outside pipelines and submodules, named as in the script,
# and hooked like a module. Its class is restored at the end.


LIBRARY = "rebel"
CALLS = ("run", "__call__")
_CLASS = "Runtime"


def is_runtime(part: Any) -> bool:
    """Whether `part` is a runtime of RBLN's compiler. Imports nothing."""
    known = getattr(sys.modules.get(LIBRARY), _CLASS, None)
    return isinstance(known, type) and isinstance(part, known)


class ScriptRuntimes:
    """Hands each runtime to the process on its first call."""

    def __init__(self, process: Watching) -> None:
        self._process = process
        self._seen: ByIdentity[bool] = ByIdentity()
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
        """Forget all runtimes, so that each is passed on its next call."""
        self._lock = threading.RLock()
        self._seen = ByIdentity()

    def undo(self) -> None:
        """Restore the class."""
        self._patches.undo()
        self.forget()

    def _first_use(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        from profiler.capture.calls import scope  # too expensive to import without runtimes

        @functools.wraps(original)
        def use(runtime: Any, *args: Any, **kwargs: Any) -> Any:
            around = scope()
            alone = around.pipeline is None and around.call is None
            entered = getattr(type(runtime), name, None) is use  # and not by another's method
            if alone and self._handed_over(runtime, sys._getframe(1)):  # noqa: SLF001 - as modules'
                if not entered:
                    return call_wrapped(runtime, name, original, args, kwargs)
                again = runtime if name == "__call__" else getattr(runtime, name)
                return again(*args, **kwargs)  # now with hooks in place
            return original(runtime, *args, **kwargs)

        return use

    def _handed_over(self, runtime: Any, caller: FrameType) -> bool:
        """Pass a new runtime to the process; returns whether it is hooked now."""
        with self._lock:
            try:
                if runtime in self._seen:
                    return False
                self._seen[runtime] = True
                self._process.use_parts([runtime], caller)
            except Exception as error:  # noqa: BLE001 - the user's program goes on
                let_pass(error)
                notice(f"a runtime outside pipelines is not recorded: {error}")
                return False
            return True


# --- RBLN: submodules of optimum-rbln, whose runtimes are called through proxies, and a script's
# own runtimes.


class Rbln(Backend):
    """A part that holds runtimes or is one, or whose submodule has an `rbln_config`."""

    name = "rbln"
    packages = ("optimum-rbln", "rebel-compiler")
    order = 2

    def owns(self, part: Any, owner: Any = None) -> bool:
        known = configuration_of(owner) is not None or bool(slots_of(part))
        return known or is_runtime(part)

    def entry_points(self, part: Any) -> tuple[str, ...]:
        if not is_runtime(part):
            return super().entry_points(part)
        return tuple(name for name in CALLS if callable(getattr(part, name, None)))

    def open(self, request: SourceRequest) -> OperatorSource | None:
        """Open the source of a part; None if it has no runtimes. Untraced runtime calls are
        numbered, too, to match RBLN's files."""
        from profiler.capture.rbln.operators import RblnRuntimes

        return RblnRuntimes.of(request)

    def device(self, part: Any, owner: Any, name: str) -> str:
        if is_runtime(part):
            return f"{DEVICE_KIND}:{device_number(getattr(part, 'device', None)) or 0}"
        return rbln_device(owner, name) or super().device(part, owner, name)

    def configured(self, pipeline: Any, submodule: str, part: str) -> Mapping[str, Any]:
        return own_configuration(pipeline, submodule, part)

    def watch(self, process: Watching) -> Watcher | None:
        return ScriptRuntimes(process)


BACKEND = Rbln()
