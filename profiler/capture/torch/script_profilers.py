"""Whether the script's own torch profiler is prepared or running, and a call before it is.

A schedule of torch.profiler prepares Kineto in its warm-up step and starts it a step later, and
torch's flag says nothing in between. A session of ours in that time ends the process with SIGSEGV
when the script's starts. So the methods that prepare and start a profiler are wrapped while a run
is open: our session stops first, and none is started until the script's has ended.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from profiler.capture.imports import tracked_instances, with_subclasses
from profiler.capture.patching import ByIdentity, ClassPatches

AUTOGRAD, KINETO = "torch.autograd.profiler", "torch.profiler.profiler"
_LAST_NAMES = {AUTOGRAD: "KinetoStepTracker", KINETO: "profile"}  # if fully imported
_EMITTERS = ("emit_itt", "emit_nvtx")
_STEPS = "ProfilerStep"  # torch counts steps under this name while a torch.profiler.profile exists


class ScriptProfilers:
    """The profilers of a process that are not ours. `give_way` is called before one is prepared or
    started, on its thread."""

    def __init__(self) -> None:
        self.give_way: Callable[[], None] = lambda: None
        self._own: ByIdentity[bool] = ByIdentity()
        self._waiting: ByIdentity[bool] = ByIdentity()
        self._users: set[object] = set()
        self._patches = ClassPatches()
        self._patched: set[str] = set()
        self._lock = threading.Lock()

    def own(self, profiler: Any) -> Any:
        """Mark `profiler` as ours, and return it."""
        self._own[profiler] = True
        return profiler

    @property
    def waiting(self) -> bool:
        """Whether a profiler is prepared, or an observer of execution traces is running, which
        would write our ranges to the script's file."""
        return bool(self._waiting)

    def watch(self, user: object) -> None:
        """Watch profilers from now on, including prepared ones, until `leave(user)`."""
        with self._lock:
            self._users.add(user)
            for name, patch in ((AUTOGRAD, self._patch_autograd), (KINETO, self._patch_kineto)):
                module = sys.modules.get(name)
                if name not in self._patched and hasattr(module, _LAST_NAMES[name]):
                    self._patched.add(name)
                    patch(module)

    def leave(self, user: object) -> None:
        """Restore torch, unless another user still watches."""
        with self._lock:
            self._users.discard(user)
            if not self._users:
                self._patches.undo()
                self._patched.clear()

    def _patch_autograd(self, module: Any) -> None:
        self._wrap(module.profile, "_prepare_trace", before=True, waits=True)
        self._wrap(module.profile, "_start_trace", before=True, waits=False)
        for name in _EMITTERS:
            self._wrap(getattr(module, name, None), "__enter__", before=True, waits=None)

    def _patch_kineto(self, module: Any) -> None:
        observer = getattr(module, "ExecutionTraceObserver", None)
        self._wrap(observer, "start", before=True, waits=True)
        self._wrap(observer, "stop", before=False, waits=False)
        self._wrap(observer, "unregister_callback", before=False, waits=False)
        self._look_for_prepared(module)

    def _look_for_prepared(self, module: Any) -> None:
        """Add profilers in the warm-up step of their schedule. Looks at all objects only if a
        profiler exists."""
        tracker = getattr(sys.modules.get(AUTOGRAD), "KinetoStepTracker", None)
        if _STEPS not in getattr(tracker, "_step_dict", ()):
            return
        for found in tracked_instances(with_subclasses([module.profile])):
            warm = getattr(found, "current_action", None) is module.ProfilerAction.WARMUP
            if warm and found.profiler is not None:
                self._waiting[found.profiler] = True

    def _wrap(self, owner: Any, name: str, *, before: bool, waits: bool | None) -> None:
        """Wrap a method of profilers: `before` calls `give_way` first; then the profiler `waits`
        (True), no longer waits (False), or neither (None)."""
        if owner is None or name not in vars(owner):
            return
        original = vars(owner)[name]

        @functools.wraps(original)
        def wrapper(profiler: Any, *args: Any, **kwargs: Any) -> Any:
            if profiler in self._own:
                return original(profiler, *args, **kwargs)
            if before:
                self.give_way()
            if waits:
                self._waiting[profiler] = True
            try:
                return original(profiler, *args, **kwargs)
            finally:
                if waits is False:
                    self._waiting.pop(profiler)

        self._patches.replace(owner, name, wrapper)


PROFILERS = ScriptProfilers()
