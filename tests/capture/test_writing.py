"""Calls are written behind the pipeline: the queue's bound, back-pressure, disks that are full."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import profiler
from profiler.capture import FakeClock, Gaps, Invocation, Options, Session, SourceSummary
from profiler.capture.operator_source import NewSessions, OperatorTrace, TimedCall
from profiler.capture.pipelines.steps import ScriptBranches
from profiler.capture.session import StandaloneSources
from profiler.capture.writing import CallWriter
from profiler.errors import OutputError
from profiler.trace import (
    JOURNAL_NAME,
    MANIFEST_NAME,
    BundleWriter,
    CommandBuilder,
    Journal,
    Track,
    call_files,
    read_journal,
    read_manifest,
    read_trace,
)
from profiler.trace.events import Branch
from tests.runs import told

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


class SlowDisk:
    """Takes a file only when the pipeline naps, and then one: `naps`, the `longest` queue."""

    LIMIT = 16

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.naps = self.longest = 0
        self.allowed, self.written = threading.Semaphore(0), threading.Semaphore(0)
        disk, write = self, BundleWriter.write_call

        class Writer(CallWriter):
            def __init__(self, bundle: BundleWriter, **given: Any) -> None:
                super().__init__(bundle, limit=disk.LIMIT, nap=disk.nap, **given)

            def put(self, trace: OperatorTrace) -> None:
                super().put(trace)
                disk.longest = max(disk.longest, self._items.qsize())

            def finish(self) -> None:
                disk.allowed.release(10_000)  # what may be left, and the one in hand
                super().finish()

        def write_call(bundle: BundleWriter, *arguments: Any) -> Path:
            assert disk.allowed.acquire(timeout=60)
            path = write(bundle, *arguments)
            disk.written.release()
            return path

        monkeypatch.setattr(BundleWriter, "write_call", write_call)
        monkeypatch.setattr("profiler.capture.session.CallWriter", Writer)

    def nap(self, seconds: float) -> None:
        self.naps += 1
        self.allowed.release()
        assert self.written.acquire(timeout=60)

    def held_back(self, calls: int) -> bool:
        """Whether the queue was bounded, and all but what fits into it was waited for."""
        return self.longest <= self.LIMIT and calls - self.naps <= self.LIMIT + 1


@pytest.mark.parametrize("steps", [300, pytest.param(3_000, marks=pytest.mark.nightly)])
def test_calls_without_operators_wait_for_no_file(tmp_path: Path, monkeypatch, steps: int) -> None:
    """However slow the disk and however many the calls, nothing is held back: the journal has them,
    and their files are there when the run has ended."""
    disk, clock = SlowDisk(monkeypatch), FakeClock(START)
    pipeline = ToyPipeline(clock)
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock, name="toy") as run:
        pipeline(num_inference_steps=steps)
    assert run.path is not None
    assert disk.naps == 0
    loaded = profiler.load(run.path)
    assert (len(loaded.calls), loaded.drops) == (steps + 7, ())
    assert loaded.info.overhead.backpressure_ns == 0


class CountedBundle(BundleWriter):
    """Tells of each file that it has written."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.files = threading.Semaphore(0)

    def write_call(self, *arguments: Any) -> Path:
        path = super().write_call(*arguments)
        self.files.release()
        return path


def test_calls_of_no_pipeline_are_written_while_the_run_lasts(tmp_path: Path) -> None:
    """Those without operators get their files in the background, one after the other."""
    bundle = CountedBundle(tmp_path)
    writer = CallWriter(bundle)
    for index in range(3):
        writer.put_call(trace(index).invocation)
    for _ in range(3):
        assert bundle.files.acquire(timeout=60)
    assert len(call_files(tmp_path)) == 3
    writer.finish()
    assert writer.written == {0, 1, 2}


def test_a_call_waits_until_its_device_has_noted_it(tmp_path: Path) -> None:
    """Those behind it do not; what its device has not told when the run is closed stays unknown."""
    bundle = CountedBundle(tmp_path)
    writer = CallWriter(bundle)
    first = trace(0).invocation
    first.noting = True
    writer.put_call(first)
    writer.put_call(trace(1).invocation)
    assert bundle.files.acquire(timeout=60)
    assert writer.written == {1}
    first.noting, first.device_lag_ns, first.device_duration_ns = False, 5, 70
    writer.flush()
    assert bundle.files.acquire(timeout=60)
    writer.finish()
    (file,) = [path for path in call_files(tmp_path) if path.name.startswith("000")]
    (call,) = read_trace(file).calls
    assert (call.device_lag_ns, call.device_duration_ns) == (5, 70)


def test_an_encoders_call_waits_until_a_step_has_shown_its_branch(tmp_path: Path) -> None:
    """The loop's first step shows that the second of two calls had the negative prompt, however
    long after: their files are not written before. Calls behind them do not wait."""

    def relabel(invocation: Invocation, branch: Branch) -> None:
        invocation.branch = branch

    bundle, branches = CountedBundle(tmp_path), ScriptBranches(relabel)
    writer = CallWriter(bundle)
    prompt, negative, other, denoiser = (trace(index).invocation for index in range(4))
    for encoded in (prompt, negative):
        encoded.branch = "prompt"
        branches.encoded(encoded)
        writer.put_call(encoded)
    writer.put_call(other)
    assert bundle.files.acquire(timeout=60)
    assert writer.written == {2}
    branches.denoised(denoiser, 2)
    branches.stepped(1)
    writer.flush()
    for _ in range(2):
        assert bundle.files.acquire(timeout=60)
    writer.finish()
    calls = [call for path in call_files(tmp_path) for call in read_trace(path).calls]
    assert {call.index: call.branch for call in calls[:2]} == {0: "prompt", 1: "negative_prompt"}


def test_no_file_is_written_beside_a_pipeline_call(tmp_path: Path) -> None:
    """Calls without operators stay in the queue while the pipeline is not at rest."""
    asked = threading.Semaphore(0)

    def resting() -> bool:
        asked.release()
        return False

    writer = CallWriter(BundleWriter(tmp_path), resting=resting)
    writer.put_call(trace(0).invocation)
    for _ in range(2):
        assert asked.acquire(timeout=60)
    writer.finish()
    assert call_files(tmp_path) == []
    writer.write_rest([trace(0).invocation])
    assert len(call_files(tmp_path)) == 1


@pytest.mark.torch
@pytest.mark.parametrize("steps", [50, pytest.param(400, marks=pytest.mark.nightly)])
def test_many_calls_with_operators_take_no_more_memory(
    tmp_path: Path, monkeypatch, steps: int
) -> None:
    """Operators of torch pass through the same queue, once they have been converted."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")

    class Doubling(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, hidden_states: Any) -> Any:
            return torch.from_numpy(hidden_states) * self.factor

    disk, pipeline = SlowDisk(monkeypatch), ToyPipeline(FakeClock(START))
    pipeline.transformer = Doubling()
    with profiler.profile(
        pipeline,
        out=tmp_path,
        ops="none transformer=all",
        name="toy",
    ) as run:
        for _ in range(2):
            pipeline(num_inference_steps=steps)
    assert run.path is not None
    assert disk.held_back(2 * steps)
    loaded = profiler.load(run.path)
    traced = loaded.calls.filter(loaded.calls["ops_traced"])
    assert (len(loaded.calls), len(traced), loaded.drops) == (2 * steps + 14, 2 * steps, ())


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
        assert [drop.kind for drop in manifest.info.drops] == ["aborted_run"]
        assert manifest.calls == ()
        assert manifest.info.pipeline == "ToyPipeline"
        pipeline(num_inference_steps=1)
    assert not (bundle / JOURNAL_NAME).exists()
    run = profiler.load(bundle)
    assert (len(run.calls), run.drops) == (16, ())
    assert run.info.overhead.backpressure_ns == 0
    assert run.info.overhead.writing_ns >= 0


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


class Summed(Doubling):
    """A source that traced nothing and has this summary."""

    def __init__(self, summary: SourceSummary) -> None:
        super().__init__()
        self._summary = summary

    def summary(self) -> SourceSummary:
        return self._summary


def test_sessions_that_are_gone_are_summed_by_submodule(tmp_path: Path) -> None:
    """A script that makes a session for each request: two of the unet are one submodule's, whose
    events, gaps, costs and times are the sums; the encoder's stay apart."""
    calls = TimedCall(5, True, {}), TimedCall(7, False, {})
    encoder = SourceSummary(events=1, gaps=Gaps(1, 7.0), total_ns=9)
    made = (
        ("unet", _summary(6, Gaps(2, 30.0), NewSessions(4, 1, 9), 1, calls[:1])),
        ("encoder", encoder),
        ("unet", _summary(4, Gaps(3, 12.0), NewSessions(2, 1, 3), 1, calls[1:])),
    )
    writer, sources = CallWriter(BundleWriter(tmp_path)), StandaloneSources()
    for name, summary in made:
        sources.add(name, Summed(summary), gone=lambda: True)
        sources.write_gone(writer)
    writer.finish()
    unet = _summary(10, Gaps(5, 42.0), NewSessions(6, 2, 12), 2, calls)
    assert sources.let_go() == [("unet", unet), ("encoder", encoder)]


def _summary(
    events: int, gaps: Gaps, new: NewSessions, sessions: int, timed: tuple[TimedCall, ...]
) -> SourceSummary:
    """Of a source whose operators took 8 ns an event, 5 of them with a path, in a host event."""
    return SourceSummary(
        events=events,
        gaps=gaps,
        new_sessions=new,
        attributed_ns=5 * events,
        total_ns=8 * events,
        sessions=sessions,
        host_events=events,
        timed=timed,
    )


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


class Unreadable(Doubling):
    """Operators that cannot be read."""

    def traces(self) -> Iterator[OperatorTrace]:
        raise KeyError("ph")
        yield


def test_operators_that_cannot_be_read_cost_nothing_else(tmp_path: Path) -> None:
    """A source that fails neither reaches the pipeline nor keeps the rest from being written: all
    calls are there, and what is lost is said."""
    clock = FakeClock(START)
    session = Session.open(Options("none"), tmp_path, "toy", clock=clock)
    pipeline = ToyPipeline(clock)
    session.attach(pipeline)
    session.add_source(Unreadable(), "transformer")
    pipeline(num_inference_steps=2)
    run = profiler.load(session.close())
    assert len(run.calls) == 9
    assert [(drop.kind, drop.where, told(drop)) for drop in run.drops] == [
        ("untraced_call", "transformer", "their operators could not be read: 'ph'")
    ]


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
    assert [(drop.kind, drop.where) for drop in run.drops] == [
        ("missing_file", "002_text_encoder_3.prompt.pb")
    ]
    assert type(pipeline) is ToyPipeline


def test_a_disk_without_room_for_the_manifest(tmp_path: Path, monkeypatch) -> None:
    """Where a run cannot even begin, the pipeline is left as it was, and so is the disk."""

    def begin(bundle: BundleWriter, info: Any) -> None:
        raise OutputError("cannot write manifest.json (No space left on device): clear it")

    monkeypatch.setattr(BundleWriter, "begin", begin)
    pipeline = ToyPipeline(FakeClock(START))
    before = dict(vars(pipeline.transformer))
    with pytest.raises(OutputError), profiler.profile(pipeline, out=tmp_path, ops="none"):
        raise AssertionError
    assert type(pipeline) is ToyPipeline
    assert vars(pipeline.transformer) == before
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_has_room_again(tmp_path: Path, monkeypatch) -> None:
    """A call that could not be written at once is written when the run ends; nothing is lost."""
    full_disk(monkeypatch, "002_text_encoder_3.prompt.pb", times=1)
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock, name="toy") as run:
        pipeline(num_inference_steps=1)
    assert run.path is not None
    assert (len(profiler.load(run.path).calls), profiler.load(run.path).drops) == (8, ())


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
