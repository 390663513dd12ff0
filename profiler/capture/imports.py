"""Callbacks when a library is imported: nothing is imported that the script does not import.

    when_imported("diffusers", patch)   # at once, if it is there already

A finder at the head of `sys.meta_path` waits for the names, lets the other finders find the
module, and has the callback run when the module's code has run. It takes itself away with the last
name. Loaders keep their type: only the one instance that loads the module is touched, until it has.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from profiler.capture.notices import notice
from profiler.interruptions import let_pass

__all__ = ["Callback", "forget", "waiting", "when_imported"]

Callback = Callable[[ModuleType], None]


class _Finder:
    """A meta path finder that finds nothing itself."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callback] = {}
        self._searching = threading.local()  # names that this thread is looking up just now

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders have for `name`, if somebody waits for it."""
        if name not in self.callbacks or name in self._names():
            return None
        self._names().add(name)
        try:
            spec = _found_by_others(self, name, path, target)
        finally:
            self._names().discard(name)
        if spec is not None and not _run_after(spec.loader, lambda module: self.call(name, module)):
            self.callbacks.pop(name, None)
            notice(f"{name} is not profiled: its loader {spec.loader!r} cannot be followed")
            self.leave_if_done()
        return spec

    def call(self, name: str, module: ModuleType) -> None:
        """Run the callback of `name`, once; its failure is said and never fails the import. Where
        the script is interrupted meanwhile, the callback waits for the next import."""
        callback = self.callbacks.pop(name, None)
        if callback is None:
            return
        try:
            self.leave_if_done()
            callback(module)
        except Exception as error:  # noqa: BLE001 - the script's import must not fail of us
            self.wait(name, callback)
            let_pass(error)
            forget(name)
            notice(f"{name} is not profiled: {type(error).__name__}: {error}")
        except BaseException:
            self.wait(name, callback)
            raise

    def wait(self, name: str, callback: Callback) -> None:
        self.callbacks[name] = callback
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def leave_if_done(self) -> None:
        if not self.callbacks and self in sys.meta_path:
            sys.meta_path.remove(self)

    def _names(self) -> set[str]:
        names: set[str] | None = getattr(self._searching, "names", None)
        if names is None:
            names = self._searching.names = set()
        return names


_finder = _Finder()


def when_imported(name: str, callback: Callback) -> None:
    """Call `callback(module)` once the module `name` is imported, now if it is already.

    A later callback for a name that nobody has imported yet replaces the earlier one.
    """
    module = sys.modules.get(name)
    if module is not None:
        _finder.callbacks[name] = callback
        _finder.call(name, module)
        return
    _finder.wait(name, callback)


def forget(name: str) -> None:
    """Wait no longer for `name`."""
    _finder.callbacks.pop(name, None)
    _finder.leave_if_done()


def waiting() -> tuple[str, ...]:
    """The names that callbacks wait for."""
    return tuple(_finder.callbacks)


def _found_by_others(
    own: _Finder, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        if finder is own or find is None:
            continue
        spec: ModuleSpec | None = find(name, path, target)
        if spec is not None:
            return spec
    return None


def _run_after(loader: Any, callback: Callback) -> bool:
    """Have `callback` run after `loader.exec_module`, this once. Returns whether it will."""
    execute = getattr(loader, "exec_module", None)
    if execute is None or isinstance(loader, type):  # built-in and frozen modules
        return False

    def exec_module(module: ModuleType) -> None:
        loader.__dict__.pop("exec_module", None)
        execute(module)
        callback(module)

    try:
        loader.exec_module = exec_module
    except AttributeError:
        return False
    return True
