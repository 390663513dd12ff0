"""What torch.compile does in a run, as dynamo itself counts it, and in which call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import profiler
from profiler.capture import Invocation, Recorder, RunClock
from profiler.capture.run_info import RunCompilations
from profiler.trace.manifest_fields import Compilation

torch = pytest.importorskip("torch", reason="needs the torch extra")

from profiler.capture.torch import compile  # noqa: A004, E402
from profiler.capture.torch.compile import DynamoLog  # noqa: E402

pytestmark = pytest.mark.torch

FIXED = {"backend": "eager", "dynamic": False}


class Broken(torch.nn.Module):
    """One graph break: two graphs."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        torch._dynamo.graph_break()
        return torch.relu(y) * 2


class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


class Pipeline:
    """Each call runs the transformer with as many rows as it is told."""

    def __init__(self, module):
        self.transformer = torch.compile(module, **FIXED)

    def __call__(self, *rows):
        with torch.no_grad():
            for count in rows:
                self.transformer(torch.ones(count, 4))


@pytest.fixture(autouse=True)
def dynamo():
    """Dynamo as if nothing had been compiled, before and after."""
    clear()
    yield torch._dynamo.utils
    clear()


def clear():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.clear_compilation_metrics()


def counted():
    counters = torch._dynamo.utils.counters
    return {name: dict(counters[name]) for name in ("frames", "stats", "graph_break")}


def profiled(tmp_path, module, *rows, ops="all"):
    pipeline = Pipeline(module)
    with profiler.profile(pipeline, out=tmp_path, ops=ops) as run:
        pipeline(*rows)
    return profiler.load(run.path)


def test_a_changed_shape_is_a_recompilation_in_its_call(tmp_path):
    """The first call compiles, the third compiles anew and says why, the others do not; a
    compilation lies in its call. Dynamo's own counters say as many, and are as without us."""
    run = profiled(tmp_path, Whole(), 2, 2, 3, 2)
    found, with_us = run.info.compilations, counted()
    assert with_us["stats"]["unique_graphs"] == len(found) == 2
    assert [one.call for one in found] == [0, 2]
    assert [one.function for one in found] == ["forward"] * 2
    assert found[0].recompile_reason == ""
    assert "expected 2, actual 3" in found[1].recompile_reason
    ranges = {
        call: (start, start + duration)
        for call, start, duration in run.calls.select("call", "start_ns", "duration_ns").rows()
    }
    for one in found:
        begin, end = ranges[one.call]
        assert begin <= one.start_ns
        assert 0 < one.start_ns + one.duration_ns <= end + 1_000  # dynamo counts microseconds
    clear()
    Pipeline(Whole())(2, 2, 3, 2)
    assert counted() == with_us


def test_graph_breaks_have_a_reason_and_a_line(tmp_path):
    """As many as dynamo counts, of the compilation that they ended; what dynamo says for its own
    developers is left out."""
    found = profiled(tmp_path, Broken(), 2, 2).info.compilations
    with_us = counted()
    assert [one.call for one in found] == [0, 0]
    broken = [one for one in found if one.graph_breaks]
    assert broken == [found[0]]
    (graph_break,) = found[0].graph_breaks
    assert sum(with_us["graph_break"].values()) == graph_break.times == 1
    assert graph_break.reason.startswith("Call to `torch._dynamo.graph_break()` Explanation: ")
    assert "http" not in graph_break.reason
    line = Broken.forward.__code__.co_firstlineno + 2
    assert graph_break.place == f"test_compilations.py:{line}"
    clear()
    Pipeline(Broken())(2, 2)
    assert counted() == with_us


def test_calls_without_operators_tell_as_much(tmp_path):
    """Compilations do not need torch.profiler."""
    found = profiled(tmp_path, Whole(), 2, 3, ops="none").info.compilations
    assert [one.call for one in found] == [0, 1]


def test_warmup_is_not_in_the_run(tmp_path):
    """What is compiled in warm-up, or before and after the run, is not of the run."""
    pipeline = Pipeline(Broken())
    pipeline(5)
    with profiler.profile(pipeline, out=tmp_path) as run:
        with run.warmup():
            pipeline(2)
        pipeline(2, 3)
    pipeline(4)
    (first, second) = profiler.load(run.path).info.compilations
    assert {first.call, second.call} == {1}
    assert sum(each.times for each in first.graph_breaks) == 1


def test_what_dynamo_forgets_is_counted(dynamo, monkeypatch):
    """It keeps few compilations; how many there were more, and how long they took, is known."""
    log = DynamoLog()
    assert log.new() == ()
    kept = SimpleNamespace(
        compile_id="9/0",
        frame_key="10",
        co_name="forward",
        start_time_us=5,
        end_time_us=7,
        restart_reasons=None,
    )
    monkeypatch.setattr(dynamo, "get_compilation_metrics", lambda: [kept])
    seconds = dynamo.compilation_time_metrics.setdefault("_compile.compile_inner", [])
    monkeypatch.setitem(
        dynamo.compilation_time_metrics, "_compile.compile_inner", [*seconds, 0.5, 0.25, 2e-6]
    )
    assert log.new() == [
        Compilation(
            id="9/0",
            function="forward",
            start_ns=5_000,
            duration_ns=2_000,
            forgotten=2,
            forgotten_ns=750_000_000,
        )
    ]
    assert log.new() == ()


def test_a_torch_that_knows_how_long_alone():
    """Without the end of a compilation, its duration; without either it took no time."""
    for known, duration_ns in (({"duration_us": 3}, 3_000), ({}, 0), ({"end_time_us": 4}, 0)):
        found = compile._compilation(SimpleNamespace(start_time_us=5, **known), ())
        assert (found.start_ns, found.duration_ns) == (5_000, duration_ns)


@pytest.mark.parametrize("dynamo", [None, SimpleNamespace()])
def test_a_torch_that_tells_nothing_is_asked_for_nothing(monkeypatch, dynamo):
    """Neither where dynamo is not imported nor where it has no metrics."""
    monkeypatch.setattr(compile, "_dynamo", lambda: dynamo)
    assert DynamoLog().new() == ()


def test_texts_are_bounded_and_printable():
    """Whatever the program's names are: the manifest refuses longer ones, and lone surrogates."""
    told = compile._reason("a\x1b[31m\ud800 b\n\n c" + "x" * 9_999)
    assert told.startswith("a\ufffd[31m\ufffd b cxx")
    assert len(told) == 500
    assert told.endswith("…")


def test_a_guard_on_a_text_does_not_tell_the_text():
    """It may be a prompt, which nobody expects there."""
    told = compile._reason("0/0: L['prompt'] == 'a cat, it\\'s mine'")
    assert told == "0/0: L['prompt'] == '…'"


def test_of_two_calls_the_one_that_began_last_has_it():
    """In threads nobody can tell more."""
    recorder = Recorder(RunClock(0))
    for index, (start, end) in enumerate([(0, 100), (50, 200), (300, 400)]):
        call = Invocation("transformer", "denoise", "", 0, "cpu:0", {}, start, end, index=index)
        recorder.invocations.append(call)
    found = RunCompilations(recorder)
    found._found = [Compilation(start_ns=at, duration_ns=1) for at in (310, 20, 60, 150, 250)]
    assert [(one.start_ns, one.call) for one in found.of_run()] == [
        (20, 0),
        (60, 1),
        (150, 1),
        (310, 2),
    ]
