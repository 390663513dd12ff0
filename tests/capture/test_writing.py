"""Calls are written behind the pipeline: the queue's bound, back-pressure, disks that are full."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import profiler
from profiler.capture.operator_source import OperatorTrace, SourceSummary
from profiler.capture.options import Options
from profiler.capture.recorder import Invocation
from profiler.capture.session import Session
from profiler.capture.writing import CallWriter
from profiler.errors import OutputError
from profiler.events import Track
from profiler.testing import FakeClock
from profiler.trace.bundle import BundleWriter, call_files
from profiler.trace.columns import CommandBuilder
from profiler.trace.journal import JOURNAL_NAME, Journal, read_journal
from profiler.trace.manifest import MANIFEST_NAME, read_manifest

from .toy import ToyPipeline

START = 1_790_000_000_000_000_000


def trace(index: int) -> OperatorTrace:
    """A call of the transformer without commands, as the writer is given it."""
    call = Invocation("transformer", "denoise", "cond", index, "cpu:0", {}, START, START + 5)
    call.index = index
    return OperatorTrace(call, CommandBuilder().build(), ())


class SlowBundle(BundleWriter):
    """A disk that takes its first file only when the test lets it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.begun, self.allowed = threading.Event(), threading.Event()

    def write_call(self, *arguments: Any) -> Path:
        self.begun.set()
        assert self.allowed.wait(60)
        return super().write_call(*arguments)


def test_a_full_queue_holds_the_pipeline_back(tmp_path: Path) -> None:
    """Where the disk is slower than the pipeline, `put` waits, what it waited is counted, and
    every call is written in the end."""
    bundle = SlowBundle(tmp_path)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        bundle.allowed.set()

    writer = CallWriter(bundle, limit=1, nap=nap)
    writer.put(trace(0))
    assert bundle.begun.wait(60)  # the queue is empty again, the disk is busy
    writer.put(trace(1))
    assert (writer.backpressure_ns, naps) == (0, [])
    writer.put(trace(2))
    assert naps
    assert writer.backpressure_ns > 0
    writer.finish()
    assert writer.written == {0, 1, 2}
    assert len(call_files(tmp_path)) == 3
    assert writer.error() is None


def test_the_thread_sleeps_until_it_is_told(tmp_path: Path) -> None:
    """Nothing is written while few calls wait; a pipeline call's end writes them."""
    writer = CallWriter(BundleWriter(tmp_path), limit=100)
    for index in range(3):
        writer.put(trace(index))
    assert call_files(tmp_path) == []
    writer.flush()
    writer.finish()
    assert [path.name for path in call_files(tmp_path)] == [
        f"00{index}_transformer.step00{index}.pb" for index in range(3)
    ]


def test_a_call_is_never_written_twice(tmp_path: Path) -> None:
    """What comes a second time does not replace the file that is there."""
    writer = CallWriter(BundleWriter(tmp_path))
    writer.put(trace(0))
    writer.finish()
    (file,) = call_files(tmp_path)
    before = file.stat().st_mtime_ns
    writer.put(trace(0))
    writer.write_rest([trace(0).invocation])
    assert file.stat().st_mtime_ns == before


def test_files_lie_there_before_the_run_has_ended(tmp_path: Path) -> None:
    """Between two calls of the pipeline the bundle has a manifest that says it has not ended, a
    journal of all calls, and with the end of the block neither of these is left."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    bundle = tmp_path / "toy"
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock, name="toy"):
        pipeline(num_inference_steps=1)
        assert sorted(read_journal(bundle)) == list(range(8))
        manifest = read_manifest(bundle / MANIFEST_NAME)
        assert [loss.kind for loss in manifest.info.losses] == ["aborted_run"]
        assert manifest.calls == ()
        assert manifest.info.pipeline == "ToyPipeline"
        pipeline(num_inference_steps=1)
    assert not (bundle / JOURNAL_NAME).exists()
    run = profiler.load(bundle)
    assert (len(run.calls), run.losses) == (16, ())
    assert run.info.overhead["backpressure_ns"] == 0
    assert run.info.overhead["writing_ns"] >= 0


class Doubling:
    """Operators of the transformer: one command a call, complete when the pipeline call is."""

    def __init__(self) -> None:
        self.waiting: list[Invocation] = []

    def traces(self) -> Iterator[OperatorTrace]:
        while self.waiting:
            call = self.waiting.pop(0)
            call.ops_traced = True
            builder = CommandBuilder()
            builder.add(Track("cpu:0", "CPU", "compute"), "double", "Mul", call.start_ns, 1)
            yield OperatorTrace(call, builder.build(), ())

    def close(self) -> None:
        pass

    def summary(self) -> SourceSummary:
        return SourceSummary()


def test_operators_are_taken_when_the_pipeline_call_ends(tmp_path: Path) -> None:
    """What a source has complete leaves it with each pipeline call, not with the run; calls of
    its submodule that it did not trace are written without operators."""
    clock, source = FakeClock(START), Doubling()
    session = Session.open(Options("none"), tmp_path, "toy", clock=clock)
    pipeline = ToyPipeline(clock)
    session.attach(pipeline)
    session.add_source(source, "transformer")
    forward = pipeline.transformer.forward

    def traced(**inputs: Any) -> Any:
        source.waiting.append(session.recorder.invocations[-1])
        return forward(**inputs)

    pipeline.transformer.forward = traced
    for steps in (3, 2):
        pipeline(num_inference_steps=steps)
        assert source.waiting == []
    pipeline.transformer.forward = forward
    pipeline(num_inference_steps=1)
    entries = read_journal(tmp_path / "toy").values()
    assert [e.call.submodule for e in entries if e.awaits_operators] == ["transformer"] * 6
    assert session.close() == tmp_path / "toy"
    calls = profiler.load(tmp_path / "toy").calls
    traced_steps = calls.filter(calls["ops_traced"])["step"].to_list()
    assert (len(calls), traced_steps) == (27, [0, 1, 2, 0, 1])


def full_disk(monkeypatch: pytest.MonkeyPatch, *names: str, times: int = 1 << 30) -> None:
    """Files of these names cannot be written, the first `times` times."""
    write, left = BundleWriter.write_call, [times]

    def write_call(bundle: BundleWriter, call: Any, *rest: Any) -> Path:
        if call.file_name in names and left[0] > 0:
            left[0] -= 1
            raise OutputError(f"cannot write {call.file_name} (No space left on device): clear it")
        return write(bundle, call, *rest)

    monkeypatch.setattr(BundleWriter, "write_call", write_call)


def test_a_full_disk_does_not_reach_the_pipeline(tmp_path: Path, monkeypatch) -> None:
    """The pipeline runs to its end; then one sentence says what is missing, as the bundle does."""
    full_disk(monkeypatch, "002_text_encoder_3.prompt.pb")
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    profiled = profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock, name="toy")
    profiled.__enter__()
    pipeline(num_inference_steps=1)
    with pytest.raises(OutputError, match=r"^1 call is missing in .*toy: cannot write 002_"):
        profiled.__exit__(None, None, None)
    assert profiled.path == tmp_path / "toy"
    run = profiler.load(profiled.path)
    assert len(run.calls) == 7
    assert [(loss.kind, loss.where) for loss in run.losses] == [
        ("missing_file", "002_text_encoder_3.prompt.pb")
    ]
    assert type(pipeline) is ToyPipeline


def test_a_disk_that_has_room_again(tmp_path: Path, monkeypatch) -> None:
    """A call that could not be written at once is written when the run ends; nothing is lost."""
    full_disk(monkeypatch, "002_text_encoder_3.prompt.pb", times=1)
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock, name="toy") as run:
        pipeline(num_inference_steps=1)
    assert run.path is not None
    assert (len(profiler.load(run.path).calls), profiler.load(run.path).losses) == (8, ())


def test_a_cut_line_of_the_journal_spoils_no_other(tmp_path: Path) -> None:
    """Of a journal with a line that the disk had no room for, and one that names a file outside
    the bundle's numbers, all others are read."""
    journal = Journal.create(tmp_path)
    journal.add(trace(0).invocation.as_call(), awaits_operators=True)
    with (tmp_path / JOURNAL_NAME).open("ab") as file:
        file.write(b'\n{"call": {"index": 1, "subm')
        file.write(b'\n{"call": {"index": -1, "submodule": "x", "stage": "", "branch": "", "step":')
        file.write(b' 0, "device": "cpu:0", "start_ns": 0, "duration_ns": 0, "ops_traced": false}}')
    journal.add(trace(2).invocation.as_call(), awaits_operators=False)
    journal.close()
    entries = read_journal(tmp_path)
    assert {index: entry.awaits_operators for index, entry in entries.items()} == {
        0: True,
        2: False,
    }
    assert entries[2].call == trace(2).invocation.as_call()
