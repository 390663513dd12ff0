"""Callbacks on library import, deferred signals, and existing instances of classes.

    when_imported("diffusers", patch)   # immediately, if it is imported already

Capture imports no library that the script does not import. A finder at the head of
`sys.meta_path` waits for the names and removes itself with the last one.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from itertools import chain, compress, islice
from types import FrameType, ModuleType
from typing import Any

from profiler.capture.backend import notice
from profiler.plugins import let_pass

# --- Callbacks when a library is imported.
#
# The finder lets the other finders find the module and runs the callback after the module's code.
# Loaders keep their type: only the instance that loads the module is changed, until it has.
# it has.


Callback = Callable[[ModuleType], None]


class _Finder:
    """A meta path finder that finds nothing itself."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callback] = {}
        self._searching = threading.local()  # names that this thread is looking up

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of `name` by the other finders, if a callback waits for that module; None
        otherwise."""
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
        """Run the callback of `name`, once. If it fails, a notice is printed and the import goes
        on. If the script is interrupted meanwhile, the callback waits for the next import."""
        callback = self.callbacks.pop(name, None)
        if callback is None:
            return
        try:
            self.leave_if_done()
            callback(module)
        except Exception as error:  # noqa: BLE001 - the user's program goes on
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
    """Call `callback(module)` once the module `name` is imported, immediately if it is already.

    A later callback for a name that is not imported yet replaces the earlier one.
    """
    module = sys.modules.get(name)
    if module is not None:
        _finder.callbacks[name] = callback
        _finder.call(name, module)
        return
    _finder.wait(name, callback)


def forget(name: str) -> None:
    """Remove the callback of `name`."""
    _finder.callbacks.pop(name, None)
    _finder.leave_if_done()


def waiting() -> tuple[str, ...]:
    """The names of the modules that callbacks wait for."""
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
    """Have `callback` run once after `loader.exec_module`. Returns whether that is possible."""
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


# --- Signals that are deferred while something of ours must not be interrupted: a profiler that is
# interrupted while it stops loses its whole recording.


_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Defer signals that Python handles (Ctrl-C, or the script's own handler) to the end of the
    block; the same signal a second time is not deferred. Has no effect on other threads than the
    main one, which are never interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
    waiting: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if number not in waiting:
            waiting.append(number)
            return
        waiting.remove(number)
        handlers[number](number, frame)

    try:
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            handler = None if number is None else signal.getsignal(number)
            if number is not None and callable(handler):
                handlers[number] = handler
                signal.signal(number, note)
        yield
    finally:
        try:
            _give_back(handlers)
        except BaseException:  # a restored handler has raised
            _give_back(handlers)
            raise
        finally:
            for number in waiting:
                signal.raise_signal(number)


def _give_back(handlers: dict[int, Callable[[int, FrameType | None], Any]]) -> None:
    for number in reversed(handlers):  # SIGINT last, which raises
        signal.signal(number, handlers[number])


# --- What is done before the first call of a model, so that it does not wait.


_AHEAD = ("profiler.capture.session", "profiler.capture.pipelines.submodules")


@contextmanager
def collection_waits() -> Iterator[None]:
    """Pause Python's garbage collector inside the block: our new objects would trigger a collection
    of all of the program's. Restores the program's setting."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@cache
def import_ahead(*of_backend: str) -> None:
    """Import what the first call needs, and these modules of a backend, while the program builds
    its models."""
    try:
        with collection_waits():
            for name in (*_AHEAD, *of_backend):
                import_module(name)
    except Exception as error:  # noqa: BLE001 - the first call says what is wrong
        let_pass(error)


# --- Existing instances of classes, found in one pass over all objects. Each costs only a look at
# its type: subclasses are looked up from the classes.


def with_subclasses(kinds: Iterable[type]) -> set[type]:
    """The classes and all their subclasses."""
    found, left = set(kinds), list(kinds)
    while left:
        below: list[type] = type.__subclasses__(left.pop())
        new = [kind for kind in below if kind not in found]
        found.update(new)
        left += new
    return found


def tracked_instances(kinds: Collection[type]) -> list[Any]:
    """The live objects of exactly these classes, except those hidden by `gc.freeze()`.

    While a list holds all objects, no other thread may run: a tuple that one is building (`tuple(x
    for x in y)`) would fail with a SystemError, in the script's code. CPython lets others run after
    calls and jumps; the three marked statements are neither.
    """
    objects: list[Any] = []
    of_these = compress(objects, map(kinds.__contains__, map(type, objects)))
    everything = chain.from_iterable(map(gc.get_objects, (None,)))
    objects += everything  # 1
    found = [*of_these]  # 2
    del objects[:]  # 3
    return found


# --- Classes of modules, as the manifest has them: `submodules.NAME.modules`, path → class.
#
# A module's path says where an operator is, its class what it is: reports find roles by both.


_MOST = 20_000  # modules of a submodule; SD3.5 large has some 1,500


def known_modules(classes: Mapping[str, str]) -> dict[str, str]:
    """Limit the classes by path to what the manifest's `Submodule.modules` may contain; the path ""
    is the submodule itself.

    Of more than 20,000 modules, the first ones.
    """
    return dict(islice(classes.items(), _MOST))
