"""What a pipeline executes outside captured calls, measured.

In the first pipeline call and in those whose operators are traced, whatever else is found that
executes is hooked for as long as the pipeline call lasts.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from profiler.capture.backend import Backend
from profiler.capture.pipelines.alive import instances
from profiler.capture.recorder import Recorder
from profiler.capture.registry import backend_of, backends
from profiler.capture.scopes import scope
from profiler.capture.timeline import PipelineCall, number_of
from profiler.capture.wraps import Wraps

__all__ = ["Outside", "PipelineCoverage"]


class Outside:
    """Told of the calls of something that is captured nowhere, or of a piece of what is. They count
    where a pipeline call is open, or, of a piece that is `alone`, where none is."""

    def __init__(
        self, name: str, recorder: Recorder, open_now: threading.local, *, alone: bool = False
    ) -> None:
        self._name = name
        self._recorder = recorder
        self._open = open_now  # .begins: of this thread's calls, -1 for those in another
        self._alone = alone

    def begin(self, args: Any, kwargs: Mapping[str, Any], caller: FrameType) -> None:  # noqa: ARG002
        """A call begins."""
        begins = self._open.__dict__.setdefault("begins", [])
        open_now = scope()
        here = (open_now.pipeline is None) == self._alone
        counts = not begins and open_now.call is None and here
        begins.append(self._recorder.clock.now_ns() if counts else -1)

    def end(self, output: Any) -> None:  # noqa: ARG002
        """It has ended, or failed."""
        begins = self._open.__dict__.get("begins")
        begin_ns = begins.pop() if begins else -1
        if begin_ns >= 0:
            tally = self._recorder.coverage
            tally.add(self._name, self._recorder.clock.now_ns() - begin_ns)
            tally.alone |= self._alone

    def around(self, original: Any, args: Any, kwargs: Any) -> Any:
        """For methods that are wrapped."""
        self.begin(args, kwargs, None)  # type: ignore[arg-type]
        try:
            return original(*args, **kwargs)
        finally:
            self.end(None)


class PipelineCoverage:
    """Measures the calls of one pipeline. `captured()` are its submodules by name; `named` gives
    objects the names that the script has for them."""

    def __init__(
        self,
        recorder: Recorder,
        captured: Callable[[], Mapping[str, Any]],
        named: Callable[[list[Any]], Mapping[str, Any]],
    ) -> None:
        self._recorder = recorder
        self._captured = captured
        self._named = named
        self._found: list[tuple[str, str, Callable[[], Any]]] | None = None
        self._hooked: list[Wraps] = []  # for the pipeline calls that run now

    def begin(self, *, traced: bool) -> Wraps | None:
        """A pipeline call is about to begin, whose operators are `traced`: hook what is captured
        nowhere. None where this one is not measured."""
        measured = self._recorder.recording and scope().pipeline is None
        if not measured or (self._found is not None and not traced) or not self._can_be_told():
            return None
        if self._found is None:
            self._found = self._looked_for()
        wraps, open_now = Wraps(), threading.local()
        for name, method, reference in self._found:
            part = reference()
            if part is not None:
                outside = Outside(name, self._recorder, open_now)
                backend_of(part).hook_calls(wraps, part, method, outside)
        self._hooked.append(wraps)
        return wraps

    def _can_be_told(self) -> bool:
        """Whether a backend of what is captured looks for what is not: without, nobody knows."""
        owners = self._captured().values()
        return any(type(backend_of(owner)).outside is not Backend.outside for owner in owners)

    def _looked_for(self) -> list[tuple[str, str, Callable[[], Any]]]:
        captured = self._captured()
        looking = backends()
        kinds = [kind for backend in looking for kind in backend.executed_kinds()]
        alive = instances(kinds, sys._getframe(1))  # noqa: SLF001 - inspect's is slow
        found = [one for backend in looking for one in backend.outside(captured, alive)]
        unnamed = {id(part): part for name, _, part in found if not name}
        names = {id(part): name for name, part in self._named(list(unnamed.values())).items()}
        return [
            (name or names[id(part)], method, weakref.ref(part)) for name, method, part in found
        ]

    def end(self, wraps: Wraps, pipeline: PipelineCall | None) -> None:
        """The pipeline call has ended; None where it could not be recorded."""
        wraps.undo()
        self._hooked = [each for each in self._hooked if each is not wraps]
        if pipeline is None:
            return
        tally = self._recorder.coverage
        tally.pipelines += 1
        for call in reversed(self._recorder.invocations):
            if call.start_ns < pipeline.start_ns:
                break
            if number_of(call.pipeline) == pipeline.number and call.end_ns >= 0:
                tally.captured_ns += call.end_ns - call.start_ns

    def abandon(self) -> None:
        """Take every hook off in a forked child, whose parent's pipeline calls go on."""
        for wraps in self._hooked:
            wraps.undo()
        self._hooked = []
