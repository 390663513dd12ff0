"""What a switched-on process watches for: pipelines, and what backends notice outside of them.

Backends of other packages are looked up when the first library that is watched has been imported,
or when code switches profiling on: the start of an interpreter does not pay for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from profiler.capture.backend import Backend, Watcher, Watching
from profiler.capture.imports import forget, when_imported
from profiler.capture.notices import notice
from profiler.capture.registry import backends, built_in
from profiler.interruptions import let_pass

__all__ = ["Watchers"]


class Watchers:
    """Those of `pipelines` and of backends, for a process. When a library that one of them asks for
    has been imported, `noticed` says whether the process is still on; only then the watcher is
    told."""

    def __init__(self, process: Watching, pipelines: Watcher, noticed: Callable[[], bool]) -> None:
        self._process = process
        self._pipelines = pipelines
        self._noticed = noticed
        self._by_backend: dict[str, Watcher] = {}  # "" for pipelines
        self._others_asked = False  # whether other packages' backends have been

    def begin(self) -> None:
        """Watch for pipelines, and what the backends here watch for."""
        self._by_backend.setdefault("", self._pipelines)
        self._add(built_in())
        for watcher in list(self._by_backend.values()):
            self._watch(watcher)

    def ask_others(self) -> None:
        """Have backends of other packages watch as well: once, when it costs no process that runs
        no model anything."""
        if self._others_asked:
            return
        self._others_asked = True
        known = set(self._by_backend)
        for backend in backends():
            try:
                self._add([backend])
                if backend.name in self._by_backend and backend.name not in known:
                    self._watch(self._by_backend[backend.name])
            except Exception as error:  # noqa: BLE001 - of another package
                let_pass(error)
                notice(
                    f"the backend {backend.name} does not watch: {type(error).__name__}: {error}"
                )

    def end(self) -> None:
        """What is imported from now on is not noticed."""
        for watcher in self._by_backend.values():
            for name in watcher.libraries:
                forget(name)

    def undo(self) -> None:
        """Leave libraries as they were."""
        for watcher in self._by_backend.values():
            watcher.undo()

    def forget(self) -> None:
        """Begin anew, as in a forked child."""
        for watcher in self._by_backend.values():
            watcher.forget()

    def _add(self, asked: Iterable[Backend]) -> None:
        for backend in asked:
            if backend.name not in self._by_backend:
                watcher = backend.watch(self._process)
                if watcher is not None:
                    self._by_backend[backend.name] = watcher

    def _watch(self, watcher: Watcher) -> None:
        for name, callback in watcher.libraries.items():
            when_imported(name, self._on_import(callback))

    def _on_import(self, callback: Callable[[Any], None]) -> Callable[[ModuleType], None]:
        def imported(module: ModuleType) -> None:
            if self._noticed():
                callback(module)
                self.ask_others()

        return imported
