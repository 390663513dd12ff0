"""A run that one thread closes while another runs its pipeline: torch stops a session on the thread
that it records."""

from __future__ import annotations

import tempfile
import threading

import pytest

import profiler

torch = pytest.importorskip("torch", reason="needs the torch extra")

from profiler.capture import Invocation  # noqa: E402
from profiler.capture.torch.modules import close_range, is_profiling, open_range  # noqa: E402
from profiler.capture.torch.profiler_session import Tracing  # noqa: E402
from tests.runs import told  # noqa: E402

from .test_operators import MODEL_TABLE, Run, table  # noqa: E402

pytestmark = pytest.mark.torch


class Transformer(torch.nn.Module):
    """Waits for `turn` twice in each call, where one is set."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.turn = None

    def forward(self, hidden_states):
        turn = self.turn
        if turn is not None:
            turn.wait(timeout=120)
            turn.wait(timeout=120)
        return self.linear(hidden_states)


class Pipeline:
    def __init__(self):
        self.transformer = Transformer()

    def __call__(self):
        return self.transformer(torch.ones(1, 4))


def in_thread(work):
    """Run `work` on a thread of its own to its end."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=120)
    assert not thread.is_alive()


def test_a_session_is_stopped_on_its_own_thread():
    """Closing on another one loses what is not cut, says so, and leaves the rest to the thread:
    torch records nothing there afterwards, and the next run has everything."""
    tracing = Tracing()
    first, second = Run(tracing=tracing), Run(tracing=tracing)
    recording, closed = threading.Event(), threading.Event()
    after = []

    def work():
        with first:
            first.call()
            recording.set()
            assert closed.wait(120)
        after.append((is_profiling(), torch._C._autograd._profiler_enabled()))
        with second:
            second.call()

    thread = threading.Thread(target=work)
    thread.start()
    assert recording.wait(120)
    assert first.traces() == []
    (drop,) = first.source.summary().drops
    assert (drop.kind, drop.count) == ("untraced_call", 1)
    assert "closed on another thread" in told(drop)
    closed.set()
    thread.join(timeout=120)
    assert after == [(False, False)]
    assert [table(trace) for trace in second.traces()] == [MODEL_TABLE]


def test_a_given_up_session_ends_at_the_next_call_of_its_thread():
    """That call is traced in one of its own, and so is its host work."""
    tracing = Tracing()
    first, second = Run(tracing=tracing), Run(tracing=tracing)
    recording, closed = threading.Event(), threading.Event()

    def work():
        with first:
            first.call()
            recording.set()
            assert closed.wait(120)
            with second:
                second.call()

    thread = threading.Thread(target=work)
    thread.start()
    assert recording.wait(120)
    first.source.close()
    closed.set()
    thread.join(timeout=120)
    assert [table(trace) for trace in second.traces()] == [MODEL_TABLE]
    assert tracing.sessions == 2
    assert not is_profiling()


class Refusing:
    """A profiler on a thread that torch records already: torch says so late."""

    use_device = kineto_results = None

    def __enter__(self):
        torch.autograd.profiler._run_on_profiler_start()
        raise RuntimeError("Profiler is already enabled on this thread")


def test_a_profiler_that_torch_refuses_fails_no_call(monkeypatch):
    """The call runs on, its operators are a drop, and torch's flag is as it was."""
    run = Run()
    with monkeypatch.context() as patch, run:
        patch.setattr(
            "profiler.capture.torch.profiler_session.new_profiler", lambda **_: Refusing()
        )
        run.call()
    assert not is_profiling()
    with run:
        run.call()
    assert [table(trace) for trace in run.traces()] == [MODEL_TABLE]
    assert [(drop.kind, drop.count) for drop in run.source.summary().drops] == [
        ("untraced_call", 1)
    ]


def test_a_thread_that_ends_in_a_call_holds_up_no_other():
    """Its session can be stopped by nobody; other threads are traced all the same."""
    tracing = Tracing()
    first, second = Run(tracing=tracing), Run(tracing=tracing)
    in_thread(lambda: first.source.before(Invocation("transformer", "", "", 0, "cpu:0", {})))
    with second:
        second.call()
    assert [table(trace) for trace in second.traces()] == [MODEL_TABLE]
    assert first.traces() == []
    (drop,) = first.source.summary().drops
    assert "has ended" in told(drop)


def test_runs_closed_in_the_middle_of_a_call(tmp_path):
    """A dozen blocks against a worker that runs the pipeline all the while: no call of it fails,
    torch's profiler is off when all has ended, and the run after them is whole."""
    pipeline, errors = Pipeline(), []
    turn, go_on = threading.Barrier(2), True
    pipeline.transformer.turn = turn

    def work():
        while go_on:
            try:
                pipeline()
            except Exception as error:  # noqa: BLE001 - a crash is an answer as well, until it is mended
                errors.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    for number in range(12):
        with profiler.profile(pipeline, out=tmp_path):
            turn.wait(timeout=120)  # a call of the worker has begun
            if number % 2:  # and now one that began in the block
                turn.wait(timeout=120)
                turn.wait(timeout=120)
        if number == 11:
            pipeline.transformer.turn = None
            go_on = False
        turn.wait(timeout=120)
    worker.join(timeout=120)
    assert errors == []
    assert not is_profiling()
    with profiler.profile(pipeline, out=tmp_path) as run:
        pipeline()
    loaded = profiler.load(run.path)
    assert loaded.calls["ops_traced"].to_list() == [True]
    assert loaded.drops == ()


def test_ranges_of_the_script_are_not_ours(tmp_path):
    """Whatever they are called: the layers are those of the modules."""

    class Named(Transformer):
        def forward(self, hidden_states):
            with torch.profiler.record_function("profile-sd3 call mine"):
                hidden_states = self.linear(hidden_states)
            with (
                torch.profiler.record_function("profile-sd3 module not.there"),
                torch._C._profiler._RecordFunctionFast("profile-sd3 call mine"),
            ):
                return self.linear(hidden_states)

    pipeline = Pipeline()
    pipeline.transformer = Named()
    with profiler.profile(pipeline, out=tmp_path) as run:
        pipeline()
    loaded = profiler.load(run.path)
    layers = set(loaded.commands.filter(loaded.commands["call"] == 0)["layer"].cast(str))
    assert layers == {"linear"}
    assert loaded.drops == ()


def test_a_range_that_was_entered_before_the_session_fails_no_call():
    """torch raises where one is left that it has not recorded from its begin."""
    run = Run()
    open_range("ours")
    try:
        with run:
            run.source.before(Invocation("transformer", "", "", 0, "cpu:0", {}))
            close_range("ours")
    finally:
        run.source.close()
    assert not is_profiling()


def test_an_unreadable_session_is_a_drop(monkeypatch, tmp_path):
    """Whatever goes wrong while it is cut, the script's call ends as it would."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    run = Run()
    with run:
        run.call()
    assert run.traces() == []
    (drop,) = run.source.summary().drops
    assert "temporary folder" in told(drop)


def of_all_threads(tracing):
    """Two sources whose next session records all threads: a second one has asked for one."""
    first, second = (Run(tracing=tracing, memory=True) for _ in range(2))

    def other():
        with second:
            second.call()

    with first:
        first.call()
        in_thread(other)
    return first, second


class Elsewhere:
    """A pipeline call of `run` that begins and ends on a thread of its own."""

    def __init__(self, run):
        self._run, self._begun, self._end = run, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self):
        with self._run:
            self._begun.set()
            assert self._end.wait(120)

    def __enter__(self):
        self._thread.start()
        assert self._begun.wait(120)

    def __exit__(self, *_):
        self._end.set()
        self._thread.join(timeout=120)
        assert not self._thread.is_alive()


def test_no_session_of_all_threads_is_stopped_beside_a_pipeline_call():
    """torch would free what operators of the other thread write to, and the process would crash:
    the last pipeline call that ends stops the session, and no operators are lost."""
    first, second = of_all_threads(Tracing())
    with Elsewhere(second):
        with first:
            first.call()
        assert is_profiling()
    assert not is_profiling()
    assert [table(trace) for trace in first.traces()] == [MODEL_TABLE] * 2
    assert first.source.summary().drops == ()


def test_closing_beside_a_pipeline_call_of_another_thread_stops_nothing():
    """What that session has is lost, and said; the session ends with that pipeline call, and the
    next has everything."""
    tracing = Tracing()
    first, second = of_all_threads(tracing)
    with Elsewhere(second):
        with first:
            first.call()
        assert len(first.traces()) == 1
        (drop,) = first.source.summary().drops
        assert (drop.kind, drop.count) == ("untraced_call", 1)
        assert "closed on another thread" in told(drop)
        assert is_profiling()
    assert not is_profiling()
    with second:
        second.call()
    assert [table(trace) for trace in second.traces()] == [MODEL_TABLE]


def test_calls_outside_of_pipelines_have_sessions_of_their_thread():
    """Whether a thread outside of pipeline calls executes operators while a session of all threads
    has to be stopped, nobody knows: its calls beside another's are lost, and said."""
    tracing = Tracing()
    first, second = (Run(tracing=tracing, memory=True) for _ in range(2))
    for _ in range(2):
        with first:
            first.call()
            in_thread(second.call)
    assert [len(trace.counters) for trace in first.traces()] == [1, 1]  # none of all threads
    assert second.traces() == []
    (drop,) = second.source.summary().drops
    assert (drop.kind, drop.count) == ("untraced_call", 2)
