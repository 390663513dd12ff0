"""What a script calls itself, past the modules that are captured and that no pipeline holds: pieces
of these, `model.proj_out(x)`, and what is too small for a submodule. All of it is hooked for the
first calls of these modules, and stated in coverage.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from profiler.capture.pipelines.outside import Outside
from profiler.capture.recorder import Recorder
from profiler.capture.registry import backend_of, backends
from profiler.capture.timeline import number_of
from profiler.capture.wraps import Wraps, weakly
from profiler.events import NO_PIPELINE

__all__ = ["PieceCoverage"]

_MOST_CALLS = 50  # captured ones, or loops of these, that are measured
_MOST_SMALL = 200  # modules that are too small, hooked at a time


class PieceCoverage:
    """Measures the pieces of `captured()`, modules by name."""

    def __init__(self, recorder: Recorder, captured: Callable[[], Mapping[str, Any]]) -> None:
        self._recorder = recorder
        self._captured = captured
        self._known: dict[str, Callable[[], Any]] = {}
        self._small: dict[str, Callable[[], Any]] = {}
        self._wraps = Wraps()
        self._open = threading.local()
        self._calls = 0
        self._ended = False
        self._first = len(recorder.invocations)

    def begin(self, small: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Hook the pieces of what has come since, and of the `small` ones those that are new."""
        if self._ended:
            return
        new = _new(self._captured(), self._known)
        beside = dict(itertools.islice(_new(small, self._small).items(), _MOST_SMALL))
        names = {id(part): name for name, part in beside.items()}
        for backend in backends():
            for name, method, part in backend.outside(new, list(beside.values())):
                outside = Outside(name or names[id(part)], self._recorder, self._open, alone=True)
                backend_of(part).hook_calls(self._wraps, part, method, outside)

    def called(self) -> None:
        """A captured call begins, or a loop of them."""
        self._calls += 1
        if self._calls > _MOST_CALLS:
            self.end()

    def end(self) -> None:
        """Leave the pieces as they were; again without effect."""
        if self._ended:
            return
        self._ended = True
        self._wraps.undo()
        alone = (
            call.end_ns - call.start_ns
            for call in self._recorder.invocations[self._first :]
            if call.end_ns >= 0 and number_of(call.pipeline) == NO_PIPELINE
        )
        self._recorder.coverage.captured_alone_ns += sum(alone)


def _new(found: Mapping[str, Any], known: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """What is not `known` of what was found, and is from now on."""
    new = {n: one for n, one in found.items() if known.get(n, lambda: None)() is not one}
    known.update({name: weakly(one) for name, one in new.items()})
    return new
