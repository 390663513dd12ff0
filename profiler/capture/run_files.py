"""The bundle of a session: calls are written while the run lasts, and the manifest at its end.

files = RunFiles(recorder, attached, Path("traces"), name=None, title="", compress="none")
files.open("StableDiffusion3Pipeline")     # makes the bundle's folder, and listens to the recorder
files.describe()                           # a manifest, so that a killed run is a bundle, too
path = files.write(failure="", warmup=None)
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from profiler.capture.attached import Attached
from profiler.capture.compilations import RunCompilations
from profiler.capture.host_commands import take_host_commands
from profiler.capture.invocations import Invocation
from profiler.capture.operator_source import OperatorTrace
from profiler.capture.recorder import Recorder
from profiler.capture.run_drops import NOT_ENDED
from profiler.capture.run_info import PipelineFacts, only_called, run_info
from profiler.capture.writing import CallWriter
from profiler.errors import OutputError
from profiler.events import NO_STEP
from profiler.interruptions import let_pass
from profiler.trace.bundle import WORK_NAME, BundleWriter
from profiler.trace.compression import Compression
from profiler.trace.manifest_fields import Warmup
from profiler.trace.manifest_overhead import Overhead

__all__ = ["RunFiles"]


class RunFiles:
    """Writes what `recorder` and the sources of `attached` tell, from `open` to `write`.
    `directory` is the bundle's folder, None before `open`; nothing is written once `closed`."""

    def __init__(
        self,
        recorder: Recorder,
        attached: Attached,
        out: Path,
        *,
        name: str | None,
        title: str,
        compress: Compression,
    ) -> None:
        self.directory: Path | None = None
        self.closed = False  # also in forked children
        self.compilations = RunCompilations(recorder)
        self._recorder = recorder
        self._attached = attached
        self._out = out
        self._name = name
        self._title = title
        self._compress: Compression = compress
        self._bundle: BundleWriter | None = None
        self._writer: CallWriter | None = None
        self._described: list[PipelineFacts] | None = None  # what the manifest says so far
        self._held: list[OperatorTrace] = []  # of calls whose labels may change
        self._taking = threading.RLock()  # what sources have: a thread that converts takes it, too

    def open(self, title: str) -> Path:
        """Make the bundle, where there is none yet; returns its folder, which a run that has been
        written keeps. Raises OutputError."""
        if self.directory is None:
            run_id = self._name or self._dated(self._title or title)
            bundle = BundleWriter.create(self._out, run_id, compress=self._compress)
            try:
                self._writer = CallWriter(
                    bundle, resting=self._recorder.at_rest, limit_size=self._recorder.limit
                )
            except BaseException:  # on a full disk
                shutil.rmtree(bundle.directory, ignore_errors=True)
                raise
            self._bundle, self.directory = bundle, bundle.directory
            self.compilations.open()
            self._recorder.on_call_end = self._call_ended
            self._recorder.on_call_placed = self._call_placed
            self._recorder.on_pipeline_end = self._take_complete
            self._recorder.on_converted = self._take_complete
            self._recorder.device_times.on_noted = self._call_noted
        return self.directory

    def remove(self) -> None:
        """Nothing was recorded, or can be: leave no bundle behind. Without effect where there is
        none."""
        if self._bundle is None or self._writer is None:
            return
        self._recorder.on_call_end = self._recorder.on_pipeline_end = None
        self._recorder.on_call_placed = self._recorder.on_converted = None
        self._writer.finish()
        self._writer.journal.remove()
        shutil.rmtree(self._bundle.directory, ignore_errors=True)
        self._bundle = self._writer = self.directory = self._described = None

    def describe(self) -> None:
        """The manifest of a run that has not ended, so that a killed run is a bundle, too; nothing
        where there is no bundle, or nothing new to say."""
        facts = self._attached.facts()
        if self._bundle is None or facts == self._described:
            return
        info = run_info(self._recorder, facts, [], self._attached.weights)
        unknown = structs.replace(info, overhead=Overhead(), drops=(NOT_ENDED,))
        self._bundle.begin(unknown)  # what it cost is not known before its end
        self._described = facts

    def write_gone(self) -> None:
        """Write what the sources hold whose part is gone, and let go of them."""
        if self._writer is not None:
            self._attached.standalone.write_gone(self._writer)

    def write(self, failure: str, warmup: Warmup | None) -> Path | None:
        """Write all that is left and the manifest, when everything is detached; returns the
        bundle's folder, None where there is none. Raises OutputError."""
        bundle, writer = self._bundle, self._writer
        if bundle is None or writer is None:
            return None
        begin = time.perf_counter_ns()
        writing = {"backpressure_ns": writer.backpressure_ns, "writing_ns": writer.writing_ns}
        with self._taking:
            for trace in self._held:
                writer.put(trace)
            for submodule, source in self._attached.sources():
                writer.put_rest(source, submodule)
            self._put_host(writer, all_left=True)
        writer.finish()
        writer.write_rest(self._recorder.finished())
        writer.write_host(self._recorder.spans())
        shutil.rmtree(bundle.directory / WORK_NAME, ignore_errors=True)
        called = {invocation.submodule for invocation in self._recorder.invocations}
        info = run_info(
            self._recorder,
            [only_called(facts, called) for facts in self._attached.facts()],
            self._attached.summaries(),
            self._attached.weights,
            warmup=warmup,
            writing={**writing, "conversion_ns": time.perf_counter_ns() - begin},
            drops=(*writer.drops(), *self._recorder.limit.drops()),
            failure=failure,
        )
        path = bundle.finish(structs.replace(info, compilations=self.compilations.of_run()))
        writer.journal.remove()
        return path

    def let_go(self) -> OutputError | None:
        """The run has been written, or cannot be; returns why calls are missing in it."""
        writer, self._writer, self._bundle = self._writer, None, None
        if writer is None:
            return None
        writer.journal.close()
        return writer.error()

    def _call_ended(self, invocation: Invocation) -> None:
        """A call has returned, on this thread: its line of the journal, and its file where that
        waits for no operators."""
        writer = self._writer
        if writer is None or self.closed:
            return
        self.compilations.look()
        traced = not invocation.left_out and self._attached.traces(invocation.submodule)
        invocation.awaits_operators = traced
        writer.note(invocation, awaits_operators=traced)
        if invocation.beyond_size:
            self._recorder.limit.lost(invocation)
        if not (traced or invocation.provisional):  # its file has its labels
            writer.put_call(invocation)

    def _call_placed(self, invocation: Invocation) -> None:
        """The labels of a call that has returned are known for good, or have changed."""
        writer = self._writer
        if writer is None or self.closed:
            return
        writer.note(invocation, awaits_operators=invocation.awaits_operators)
        if not invocation.awaits_operators:
            writer.put_call(invocation)

    def _call_noted(self, invocation: Invocation) -> None:
        """The device has told when it worked on a call that has returned."""
        writer = self._writer
        if writer is not None and not self.closed:
            writer.note(invocation, awaits_operators=invocation.awaits_operators)
            if invocation.pipeline is None:  # else it is written when that has ended
                writer.flush()

    def _take_complete(self) -> None:
        """A pipeline call has ended, or a source has converted: write what is complete. Files of
        calls whose labels may still change wait for the end of their pipeline call."""
        if self.closed:  # a forked child may have been left a locked lock
            return
        with self._taking:
            writer = self._writer
            if writer is None or self.closed:
                return
            held, self._held = self._held, []
            for trace in (*held, *self._converted()):
                if _placed(trace.invocation):
                    writer.put(trace)
                else:
                    self._held.append(trace)
            self._recorder.attempt("host work", self._put_host, writer)
            writer.flush()  # beside a pipeline call, too: a kill loses what is in no file

    def _converted(self) -> Iterator[OperatorTrace]:
        """What the sources have by now."""
        for _, source in self._attached.staying():
            try:
                yield from source.traces()
            except Exception as error:  # noqa: BLE001 - heard when the run ends: it is asked again
                let_pass(error)

    def _put_host(self, writer: CallWriter, *, all_left: bool = False) -> None:
        """Have what pipeline calls did between their submodules' calls written."""
        for commands in take_host_commands(self._recorder, all_left=all_left):
            writer.put_host(commands)

    def _dated(self, title: str) -> str:
        now = datetime.fromtimestamp(self._recorder.clock.now_ns() / 1e9, UTC)
        return f"{now:%Y%m%d-%H%M%S}-{title}"


def _placed(invocation: Invocation) -> bool:
    """Whether the labels of a call that has returned are known for good: its pipeline call has
    ended, or they tell of a step."""
    pipeline = invocation.pipeline
    if pipeline is None or pipeline.end_ns >= 0:
        return not invocation.provisional
    return invocation.step != NO_STEP and not invocation.provisional
