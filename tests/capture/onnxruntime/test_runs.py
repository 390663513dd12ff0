"""Whose operators a profiled session recorded: failing runs, threads, and every way to run."""

from __future__ import annotations

import json
import threading

import numpy as np
import onnxruntime
import pytest

import profiler
from profiler.capture import EventCost, Invocation
from profiler.capture.onnxruntime import operators
from profiler.capture.onnxruntime.operators import NotedCall, place_runs
from profiler.ort_profiles import ProfiledRun, read_profile
from tests.capture.onnx_pipelines import Part, Pipeline, call_on, gathering, opened, ran, ways
from tests.runs import told

RUN = ways()["run"]


@pytest.fixture(autouse=True)
def quick_estimate(monkeypatch):
    """The cost of an event is measured once per run; its own test measures it for real."""
    monkeypatch.setattr(operators, "onnx_event_cost", lambda _: EventCost(5_000.0))


def wrong_dims(session, x):
    """Refused by ONNX Runtime before it runs: no event at all."""
    session.run(None, {"x": x[:, :2], "i": np.array([0])})


def missing_input(session, x):
    """Refused by ONNX Runtime's Python part."""
    session.run(None, {"x": x})


def beyond_the_rows(session, x):
    """The second node fails: the profile has a `model_run` and nodes."""
    session.run(None, {"x": x, "i": np.array([99])})


def terminated(session, x):
    """Ends ahead of the first node: the profile has a `model_run` alone."""
    options = onnxruntime.RunOptions()
    options.terminate = True
    session.run(None, {"x": x, "i": np.array([0])}, options)


def raises(session, x):
    """The part itself fails after its session has run."""
    session.run(None, {"x": x, "i": np.array([0])})
    raise RuntimeError("no memory left")


FAILURES = [wrong_dims, missing_input, beyond_the_rows, terminated, raises]


@pytest.mark.parametrize("failing", FAILURES)
def test_a_failing_run_shifts_no_operators(tmp_path, failing):
    """Calls after a failed one have the operators of their own run; the failed one, whose exception
    the script caught, is no drop."""
    pipe = Pipeline(text_encoder=Part(opened(gathering())))
    with profiler.profile(pipe, out=tmp_path) as run:
        names = [("text_encoder", rows, failing if rows == 2 else RUN) for rows in (1, 2, 3, 4)]
        assert [y is None for y in pipe(*names)] == [False, True, False, False]
    assert ran(run.path) == [call_on("text_encoder", rows) for rows in (1, 3, 4)]
    assert profiler.load(run.path).drops == ()


@pytest.mark.parametrize("way", ways())
def test_every_way_to_run_inside_a_part(tmp_path, way):
    """A part may run its session in any way; results and labels are the same."""
    pipe = Pipeline(text_encoder=Part(opened(gathering())), transformer=Part(opened(gathering())))
    runs = [("text_encoder", 2, ways()[way]), ("transformer", 3, ways()[way])]
    plain = pipe(*runs)
    with profiler.profile(pipe, out=tmp_path) as run:
        profiled = pipe(*runs)
    assert ran(run.path) == [call_on("text_encoder", 2), call_on("transformer", 3)]
    assert [y.tolist() for y in profiled] == [y.tolist() for y in plain]
    assert profiler.load(run.path).drops == ()


def test_a_call_of_several_runs_or_none(tmp_path):
    """A call has the operators of all runs within it; one without a run is a drop."""

    def twice(session, x):
        RUN(session, x)
        return RUN(session, x)

    pipe = Pipeline(text_encoder=Part(opened(gathering())))
    with profiler.profile(pipe, out=tmp_path) as run:
        pipe(
            ("text_encoder", 1, twice),
            ("text_encoder", 2, lambda _session, x: x),
            ("text_encoder", 3, RUN),
        )
    one, three = call_on("text_encoder", 1), call_on("text_encoder", 3)
    assert ran(run.path) == [
        (*one[:2], one[2] * 2),
        ("text_encoder", "x: float32[2,3]", []),
        three,
    ]
    (drop,) = profiler.load(run.path).drops
    assert (drop.kind, drop.count) == ("untraced_call", 1)
    assert told(drop).startswith("they have no operators, because they did not run their session")


def in_threads(*targets):
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def meeting(parties):
    """A way to run whose calls are all under way before the first session runs."""
    barrier = threading.Barrier(parties)

    def run(session, x):
        barrier.wait()
        result = RUN(session, x)
        barrier.wait()
        return result

    return run


def test_threads_in_one_session(tmp_path):
    """Calls that overlap in one session have their own operators: ONNX Runtime names threads."""
    pipe = Pipeline(text_encoder=Part(opened(gathering())))
    together = meeting(2)

    def work(*rows):
        for n in rows:
            pipe.text_encoder.forward(np.ones((n, 3), np.float32), together)

    with profiler.profile(pipe, out=tmp_path) as run:
        in_threads(lambda: work(1, 2, 3), lambda: work(11, 12, 13))
    expected = [call_on("text_encoder", rows) for rows in (1, 2, 3, 11, 12, 13)]
    assert sorted(ran(run.path)) == sorted(expected)
    assert profiler.load(run.path).drops == ()


def test_threads_that_fail(tmp_path):
    """A run that fails beside another that does not takes none of its operators."""
    pipe = Pipeline(text_encoder=Part(opened(gathering())))
    barrier = threading.Barrier(2)

    def work(rows, way):
        def met(session, x):
            barrier.wait()
            try:
                return way(session, x)
            finally:
                barrier.wait()

        for n in rows:
            pipe(("text_encoder", n, met))

    with profiler.profile(pipe, out=tmp_path) as run:
        in_threads(
            lambda: work((1, 2, 3), RUN),
            lambda: work((11, 12, 13), wrong_dims),
        )
    assert ran(run.path) == [call_on("text_encoder", rows) for rows in (1, 2, 3)]


def test_sessions_are_renewed_while_runs_overlap(tmp_path):
    """A session at its cap is replaced while a run is under way in it: that run keeps its
    operators, and nothing is dropped."""
    pipe = Pipeline(text_encoder=Part(opened(gathering())))
    together = meeting(2)

    def work(*rows):
        for n in rows:
            pipe.text_encoder.forward(np.ones((n, 3), np.float32), together)

    with profiler.profile(pipe, out=tmp_path, event_cap=17) as run:
        in_threads(lambda: work(1, 2, 3), lambda: work(11, 12, 13))
    loaded = profiler.load(run.path)
    expected = [call_on("text_encoder", rows) for rows in (1, 2, 3, 11, 12, 13)]
    assert sorted(ran(run.path)) == sorted(expected)
    assert loaded.info.submodules["text_encoder"].profiled_sessions == 3
    assert loaded.drops == ()


def test_calls_that_overlap_in_parallel_execution(tmp_path):
    """`ORT_PARALLEL` hands nodes to threads of its own. Runs that do not overlap are told apart
    by time, also within calls that do."""
    parallel = opened(gathering(), execution_mode=onnxruntime.ExecutionMode.ORT_PARALLEL)
    pipe = Pipeline(text_encoder=Part(parallel))
    began, may_run = threading.Event(), threading.Event()

    def late(session, x):
        began.set()
        may_run.wait()
        return RUN(session, x)

    def second():
        began.wait()
        pipe(("text_encoder", 2, RUN))
        may_run.set()

    with profiler.profile(pipe, out=tmp_path) as run:
        in_threads(lambda: pipe(("text_encoder", 1, late)), second)
    assert sorted(ran(run.path)) == [call_on("text_encoder", rows) for rows in (1, 2)]
    assert profiler.load(run.path).drops == ()


PARALLEL = [
    ("a_kernel_time", "Node", 11, 2, 8),
    ("b_kernel_time", "Node", 12, 2, 9),
    ("model_run", "Session", 10, 10, 1),
    ("model_run", "Session", 11, 10, 2),
    ("c_kernel_time", "Node", 31, 2, 9),
    ("model_run", "Session", 30, 10, 1),
]


def test_runs_that_cannot_be_told_apart_are_mixed(tmp_path):
    """Runs that overlap and whose nodes ran on further threads have none of them; a run that
    stands alone has its own."""
    keys = ("name", "cat", "ts", "dur", "tid")
    lines = [json.dumps({**dict(zip(keys, e, strict=True)), "args": {}}) for e in PARALLEL]
    path = tmp_path / "profile.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    runs = list(read_profile(path))
    assert [([node.name for node in run.nodes.each()], run.mixed) for run in runs] == [
        ([], True),
        ([], True),
        (["c"], False),
    ]


def noted(thread, begin, end, *, traced=True):
    invocation = Invocation("t", "", "", -1, "cpu:0", {})
    return NotedCall(invocation, traced, thread, begin, begin, end)


def placed(runs, calls):
    """Each call's runs by their starts, or "mixed"."""
    list(place_runs(runs, calls))
    return ["mixed" if call.mixed else [run.start_ns for run in call.runs] for call in calls]


US = 10_000


def test_runs_lie_in_their_calls():
    """By time alone, whatever thread they ran on; what lies in no call belongs to none."""
    calls = [noted(1, 0, 10 * US), noted(1, 20 * US, 30 * US), noted(1, 40 * US, 50 * US)]
    runs = [
        ProfiledRun(US, 2 * US, 1),
        ProfiledRun(12 * US, US, 1),
        ProfiledRun(41 * US, 2 * US, 7),
        ProfiledRun(44 * US, 2 * US, 1),
    ]
    assert placed(runs, calls) == [[US], [], [41 * US, 44 * US]]


def test_runs_in_several_calls_go_by_thread():
    """Of two calls around a run it is that of its thread; on a third thread it may be of both."""
    calls = [noted(1, 0, 30 * US), noted(2, US, 20 * US)]
    runs = [ProfiledRun(2 * US, 3 * US, 1), ProfiledRun(2 * US, 4 * US, 2)]
    assert placed(runs, calls) == [[2 * US], [2 * US]]
    calls = [noted(1, 0, 30 * US), noted(2, US, 20 * US)]
    assert placed([*runs, ProfiledRun(8 * US, US, 3)], calls) == ["mixed", "mixed"]


def test_queued_runs_of_one_thread():
    """`run_async` queues runs on one thread: each call ends right after its own run."""
    calls = [noted(5, 0, 11 * US), noted(5, US, 21 * US)]
    runs = [ProfiledRun(2 * US, 8 * US, 5), ProfiledRun(12 * US, 8 * US, 5)]
    assert placed(runs, calls) == [[2 * US], [12 * US]]


def test_a_call_that_was_left_out_takes_its_runs():
    """A run in the time of a call that ran elsewhere is not another call's, and one whose end
    nobody noted ends when the next begins on its thread."""
    calls = [noted(1, 0, -1, traced=False), noted(1, 20 * US, 30 * US)]
    runs = [ProfiledRun(US, 2 * US, 1), ProfiledRun(21 * US, 2 * US, 1)]
    assert placed(runs, calls) == [[US], [21 * US]]
