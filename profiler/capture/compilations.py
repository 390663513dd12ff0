"""What was compiled in a run, and in which of its calls.

compilations = RunCompilations(recorder)
compilations.open()      # once the backends are known
compilations.look()      # after each call
compilations.of_run()    # when the run has ended
"""

from __future__ import annotations

import threading
import time

from msgspec import structs

from profiler.capture.backend import CompilationLog
from profiler.capture.invocations import Invocation
from profiler.capture.recorder import Recorder
from profiler.capture.registry import backends
from profiler.trace.manifest_compilations import Compilation

__all__ = ["RunCompilations"]

_WHERE = "compilation"  # of what is lost where a log fails


class RunCompilations:
    """Collects what the backends' logs tell.

    Compilers say when they compiled, not in which thread: a compilation belongs to the recorded
    call in whose time it began; of several, which run in threads, to the one that began last.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._logs: list[CompilationLog] = []
        self._found: list[Compilation] = []
        self._looking = threading.Lock()  # who finds it taken leaves it to the next look

    def open(self) -> None:
        """Begin to listen: what has been compiled before is not of this run."""
        opened = (self._recorder.attempt(_WHERE, one.compilation_log) for one in backends())
        self._logs = [log for log in opened if log is not None]

    def look(self) -> None:
        """Take what has been compiled since the last look."""
        if not self._logs or not self._looking.acquire(blocking=False):
            return
        try:
            for log in self._logs:
                new = self._recorder.attempt(_WHERE, log.new)
                if new:
                    offset_ns = self._recorder.clock.now_ns() - time.time_ns()
                    self._found += [
                        structs.replace(one, start_ns=one.start_ns + offset_ns) for one in new
                    ]
        finally:
            self._looking.release()

    def of_run(self) -> tuple[Compilation, ...]:
        """Those of recorded calls, with their indices, and those of recorded pipeline calls
        outside of calls; without those of warm-up and of what the script does beside."""
        self.look()
        calls = sorted(self._recorder.finished(), key=lambda call: call.start_ns)
        found = []
        for one in sorted(self._found, key=lambda one: one.start_ns):
            call = _call_at(calls, one.start_ns)
            if call is not None:
                found.append(structs.replace(one, call=call.index))
            elif self._in_pipeline(one.start_ns):
                found.append(one)
        return tuple(found)

    def _in_pipeline(self, at_ns: int) -> bool:
        return any(call.start_ns <= at_ns < call.end_ns for call in self._recorder.pipelines)


def _call_at(calls: list[Invocation], at_ns: int) -> Invocation | None:
    """The call that ran then; of several the one that began last. `calls` by their begin."""
    running = (call for call in reversed(calls) if call.start_ns <= at_ns < call.end_ns)
    return next(running, None)
