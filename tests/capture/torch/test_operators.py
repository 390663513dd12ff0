"""Operators of torch modules as the installed torch records them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from profiler.capture import Invocation, Recorder, RunClock
from profiler.capture.operator_source import NewSessions
from profiler.capture.torch import operators, profiler_session
from profiler.capture.torch.operators import TorchOperators
from profiler.capture.torch.profiler_session import Tracing

torch = pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch


INPUT = torch.ones(2, 8)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.to_q = torch.nn.Linear(8, 4)
        self.layers = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.ReLU()])

    def forward(self, x, *, fail=False):
        x = self.to_q(x)
        for layer in self.layers:
            x = layer(x)
        if fail:
            raise RuntimeError("out of memory")
        return x * 2


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x, *, fail=False):
        return self.block(x, fail=fail) + 1


MODEL_TABLE = [
    ("block.to_q", 0, "aten::linear", "float[2,8] float[4,8] float[4]"),
    ("block.layers.0", 0, "aten::relu", "float[2,4]"),
    ("block.layers.1", 0, "aten::relu", "float[2,4]"),
    ("block", 0, "aten::mul", "float[2,4]"),
    ("Model", 0, "aten::add", "float[2,4]"),
]


class Run:
    """One source on a model, driven as the session drives it."""

    def __init__(self, model=None, tracing=None, *, memory=False, **options):
        self.recorder = Recorder(RunClock.start(), memory=memory)
        self.tracing = tracing or Tracing()
        self.model = Model() if model is None else model
        self.source = TorchOperators(
            "transformer", self.model, self.recorder, tracing=self.tracing, **options
        )
        self.pipeline = SimpleNamespace()

    def call(self, **inputs):
        invocation = Invocation("transformer", "denoise", "cond", 0, "cpu:0", {})
        invocation.recorded = self.recorder.recording
        self.source.before(invocation)
        self.recorder.begin_call(invocation)
        failed = True
        try:
            with torch.no_grad():
                self.model(INPUT, **inputs)
            failed = False
        finally:
            self.recorder.end_call(invocation, failed=failed)
            self.source.after(invocation)

    def __enter__(self):
        self.source.begin_pipeline(self.pipeline)
        return self

    def __exit__(self, *_):
        self.source.end_pipeline(self.pipeline)

    def traces(self):
        self.source.close()
        return list(self.source.traces())


def table(trace):
    """(layer, index, op type, shapes) of the commands, scalars left out."""
    columns = trace.commands
    texts = [[columns.strings[i] for i in c] for c in (columns.layer, columns.op_type)]
    shapes = [columns.strings[i].replace(" double[]", "") for i in columns.shapes]
    shapes = [text.replace(" int64[]", "") for text in shapes]
    return list(zip(texts[0], columns.command_index.tolist(), texts[1], shapes, strict=True))


def hooks_of(model):
    return [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]


def test_operators_have_module_path_index_type_and_shapes():
    """Each invocation of one session gets its own operators, in the same layers."""
    with Run() as run:
        run.call()
        run.call()
    traces = run.traces()
    assert [table(trace) for trace in traces] == [MODEL_TABLE, MODEL_TABLE]
    assert all(trace.invocation.ops_traced for trace in traces)
    assert run.tracing.sessions == 1


def test_operators_lie_within_their_invocation():
    """On the run's clock, in order, without overlap."""
    with Run() as run:
        for _ in range(5):
            run.call()
    for trace in run.traces():
        columns, call = trace.commands, trace.invocation
        assert call.start_ns <= columns.start_ns[0]
        assert columns.end_ns[-1] <= call.end_ns
        assert np.all(columns.start_ns[1:] >= columns.end_ns[:-1])


def test_the_summary_counts_what_belongs_to_modules():
    """The addition after the block runs in the submodule itself."""
    with Run() as run:
        run.call()
    (trace,) = run.traces()
    durations = trace.commands.duration_ns
    summary = run.source.summary()
    assert summary.total_ns == durations.sum()
    assert summary.attributed_ns == durations[:-1].sum()
    assert summary.drops == ()


def test_memory_is_a_counter_of_the_call():
    """It begins at the call's start and knows each allocation; one result was kept alive."""
    with Run(memory=True) as run:
        run.call()
    (trace,) = run.traces()
    (counter,) = trace.counters
    assert (counter.device, counter.unit) == ("cpu:0", "bytes")
    assert counter.values[0] == 0
    assert counter.values.max() >= 2 * 4 * 4
    assert np.all(np.diff(counter.times_ns) >= 0)


def test_the_module_is_as_it_was():
    """No hook is left when the pipeline call has ended."""
    with Run() as run:
        run.call()
        assert sum(hooks_of(run.model)) > 0
    assert hooks_of(run.model) == [0] * 6
    assert "forward" not in vars(run.model.block)


def test_an_invocation_outside_every_pipeline_call_has_its_own_session():
    """A script may call a submodule itself."""
    run = Run()
    run.call()
    run.call()
    assert [table(trace) for trace in run.traces()] == [MODEL_TABLE, MODEL_TABLE]
    assert run.tracing.sessions == 2
    assert hooks_of(run.model) == [0] * 6


def test_a_failed_invocation_has_no_trace_and_disturbs_no_other():
    """Ranges that the exception left open are closed."""
    with Run() as run:
        with pytest.raises(RuntimeError, match="out of memory"):
            run.call(fail=True)
        run.call()
    assert [table(trace) for trace in run.traces()] == [MODEL_TABLE]
    assert run.source.summary().drops == ()


def test_warm_up_starts_no_session():
    """Nothing is recorded then, and nothing is slower."""
    run = Run()
    run.recorder.begin_warmup()
    with run:
        run.call()
        assert hooks_of(run.model) == [0] * 6
    assert run.traces() == []
    assert run.tracing.sessions == 0


def test_a_session_is_renewed_before_it_grows_too_large():
    """The tables are the same, the memory counter goes on, and the renewal is work of ours."""
    with Run(event_cap=1, memory=True) as run:
        for _ in range(3):
            run.call()
    traces = run.traces()
    assert [table(trace) for trace in traces] == [MODEL_TABLE] * 3
    assert run.tracing.sessions == 3
    assert not run.recorder.host_work
    own = [span.name for span in run.recorder.own_work]
    assert Counter(own) == {"start_session": 3, "stop_session": 1, "convert": 3}
    levels = [trace.counters[0].values for trace in traces]
    assert levels[1][0] == levels[0][-1]


def test_a_session_is_renewed_when_its_time_is_up(monkeypatch):
    """Between two calls, so that each has what it has in a session for all."""
    monkeypatch.setattr("profiler.capture.torch.profiler_session.LONGEST_S", 0.0)
    with Run() as run:
        for _ in range(3):
            run.call()
    assert [table(trace) for trace in run.traces()] == [MODEL_TABLE] * 3
    assert run.tracing.sessions == 3


def test_tracing_imports_no_compiler():
    """torch.profiler's own `start` imports torch's, which takes seconds in the pipeline call."""
    script = """
import sys, torch
from tests.capture.torch.test_operators import Run
with Run() as run:
    run.call()
assert len(run.traces()) == 1
print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_kineto_prints_nothing():
    """Its two lines a session would be on the script's stderr; the variable is not left behind."""
    script = """
import os
from tests.capture.torch.test_operators import Run
with Run() as run:
    run.call()
print(os.environ.get("KINETO_LOG_LEVEL"))
"""
    environment = {k: v for k, v in os.environ.items() if k != "KINETO_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout == "None\n"
    assert "USDT" not in done.stderr


def test_two_submodules_share_the_session_of_a_pipeline_call():
    """Each source gets its own invocations."""
    tracing = Tracing()
    first, second = Run(tracing=tracing), Run(tracing=tracing)
    with first, second:
        first.call()
        second.call()
        first.call()
    assert [len(run.traces()) for run in (first, second)] == [2, 1]
    assert tracing.sessions == 1


@pytest.mark.parametrize(("touched", "counted"), [(7, 7), (10_000, None)])
def test_new_memory_of_a_session_is_part_of_its_cost(monkeypatch, touched, counted):
    """Pages that its thread touched count once, those beyond 1.2 per event are the program's own;
    the host's work around the calls has events, too."""
    pages = iter([100, 100 + touched])
    monkeypatch.setattr(profiler_session, "touched_pages", lambda: next(pages))
    monkeypatch.setattr(operators, "new_memory_cost", lambda count: NewSessions(ns=count))
    with Run() as run:
        run.call()
        run.call()
    run.traces()
    summary = run.source.summary()
    events = summary.events + summary.host_events
    assert summary.new_sessions.ns == (round(1.2 * events) if counted is None else counted)


def test_new_memory_costs_by_the_page():
    """A page is more than 20 ns, which zeroing 4 kB takes; none cost nothing."""
    assert operators.new_memory_cost(0) == NewSessions()
    found = operators.new_memory_cost(1_000)
    assert 20_000 < found.ns < found.most_ns
    assert found.least_ns == 0


def test_a_second_thread_is_lost_once_and_traced_from_then_on():
    """torch records the thread that started a session, or all threads and no memory."""
    tracing = Tracing()
    first, second = (Run(tracing=tracing, memory=True) for _ in range(2))

    def other_thread():
        with second:
            second.call()

    for _ in range(2):
        with first:
            first.call()
            thread = threading.Thread(target=other_thread)
            thread.start()
            thread.join()
    first_traces, second_traces = first.traces(), second.traces()
    assert [table(trace) for trace in first_traces] == [MODEL_TABLE, MODEL_TABLE]
    assert [table(trace) for trace in second_traces] == [MODEL_TABLE]
    assert [len(trace.counters) for trace in first_traces] == [1, 0]
    (drop,) = second.source.summary().drops
    assert (drop.kind, drop.count, drop.where) == ("untraced_call", 1, "transformer")


def test_a_profiler_of_the_script_keeps_its_events():
    """torch has one profiler: ours steps back and says so."""
    run = Run()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as theirs, run:
        run.call()
    assert "aten::relu" in {event.name for event in theirs.events()}
    assert run.traces() == []
    assert [(drop.kind, drop.count) for drop in run.source.summary().drops] == [
        ("untraced_call", 1)
    ]


def test_a_profiler_that_takes_over_is_a_drop():
    """The script starts one inside a traced pipeline call: ours has no events any more."""
    run = Run()
    with run:
        run.call()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            pass
    assert run.traces() == []
    assert [(drop.kind, drop.count) for drop in run.source.summary().drops] == [
        ("untraced_call", 1)
    ]


def test_closing_in_a_pipeline_call_ends_the_session():
    """The process may be about to end; what was traced is there."""
    run = Run()
    run.source.begin_pipeline(run.pipeline)
    run.call()
    assert [table(trace) for trace in run.traces()] == [MODEL_TABLE]
    run.source.end_pipeline(run.pipeline)
    assert hooks_of(run.model) == [0] * 6


def test_compiled_modules_are_one_piece():
    """A block that was compiled in place keeps its path, is not hooked inside, and is not
    compiled again."""
    model = Model()
    model.block.compile(backend="eager")
    with torch.no_grad():
        model(INPUT)
    compiled = model.block._compiled_call_impl
    torch._dynamo.config.error_on_recompile = True
    try:
        with Run(model) as run:
            run.call()
    finally:
        torch._dynamo.config.error_on_recompile = False
    (trace,) = run.traces()
    assert [row[:3] for row in table(trace)] == [
        ("block", 0, "aten::linear"),
        ("block", 1, "aten::relu"),
        ("block", 2, "aten::relu"),
        ("block", 3, "aten::mul"),
        ("Model", 0, "aten::add"),
    ]
    assert model.block._compiled_call_impl is compiled
    assert hooks_of(model) == [0] * 6


def test_a_submodule_compiled_as_a_whole_is_traced():
    """`torch.compile(module)` wraps it: its operators belong to the submodule itself."""
    model = torch.compile(Model(), backend="eager")
    with torch.no_grad():
        model(INPUT)
    with Run(model) as run:
        run.call()
    (trace,) = run.traces()
    assert {row[0] for row in table(trace)} == {"Model"}
    assert [row[2] for row in table(trace)] == [row[2] for row in MODEL_TABLE]
