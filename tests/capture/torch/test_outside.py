"""Coverage: what a pipeline executes outside captured calls is named, with its time."""

from __future__ import annotations

import gc
import sys

import pytest

import profiler
from profiler.analysis import key_facts
from profiler.capture.pipelines import script_objects, submodules
from profiler.report import document

torch = pytest.importorskip("torch", reason="needs the torch extra")

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def nothing_is_compiled_yet():
    """Where something has been compiled, by other files' tests in this process say, coverage hooks
    next to nothing."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None:
        dynamo.counters.clear()


class Net(torch.nn.Module):
    """A module of two layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.b(self.a(x))


class Pipeline:
    """Calls its part, a piece of that, and a module that it does not hold."""

    def __init__(self):
        self.transformer = Net()
        self.encoder = lambda: None

    def __call__(self, x):
        x = self.transformer(self.transformer.a(x))
        encoder = self.encoder()
        return encoder(encoder(x))


class Outside(Net):
    """Is compiled on its own."""

    def forward(self, x):
        return self.a(x)


class Compiled(Pipeline):
    """Its part is compiled, and a module that no attribute shows."""

    def __init__(self):
        self.transformer = torch.compile(Net(), backend="eager")
        outside = Outside()
        outside.compile(backend="eager")
        self.finish = [outside.__call__]

    @torch.no_grad()
    def __call__(self, x):
        return self.finish[0](self.transformer(x))


X = torch.ones(1, 4)


def recorded(tmp_path, calls, **options):
    def script():
        pipeline, image_encoder = Pipeline(), Net()
        pipeline.encoder = lambda: image_encoder
        with profiler.profile(pipeline, out=tmp_path, **options) as run:
            for _ in range(calls):
                pipeline(X)
        return pipeline, image_encoder, run

    pipeline, image_encoder, run = script()
    modules = (image_encoder, *image_encoder.children(), *pipeline.transformer.modules())
    assert not any(module._forward_hooks for module in modules)
    return profiler.load(run.path)


def test_what_ran_outside_captured_calls(tmp_path):
    """A piece of a submodule and a module of the script's: measured in the first pipeline call."""
    run = recorded(tmp_path, 2, ops="none")
    measured = run.info.coverage
    assert measured.pipelines == 1
    assert {one.name: one.calls for one in measured.uncaptured} == {
        "image_encoder": 2,
        "transformer.a": 1,
    }
    first = run.calls.filter(run.calls["pipeline"] == 0)["duration_ns"].sum()
    assert measured.captured_ns == first
    assert measured.uncaptured_ns == sum(one.duration_ns for one in measured.uncaptured) > 0
    assert measured.share == first / (first + measured.uncaptured_ns)


def test_what_was_frozen_is_measured(tmp_path, monkeypatch):
    """As in a child of a server that has called `gc.freeze()`: what a variable holds is found."""
    monkeypatch.setattr(script_objects, "_MOST_FROZEN", 5_000_000)  # pytest's variables lead far
    pipeline, image_encoder = Pipeline(), Net()
    pipeline.encoder = lambda: image_encoder
    gc.freeze()
    try:
        with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
            pipeline(X)
    finally:
        gc.unfreeze()
    measured = profiler.load(run.path).info.coverage
    assert {one.name: one.calls for one in measured.uncaptured} == {
        "image_encoder": 2,
        "transformer.a": 1,
    }


def test_it_is_told_in_every_report(tmp_path):
    """In the header, in JSON and as a finding."""
    analysis = profiler.analyze(recorded(tmp_path, 1, ops="none"))
    assert document(analysis)["run"]["coverage"]["uncaptured"][0]["calls"] > 0
    assert "uncaptured_modules" in [finding.rule for finding in analysis.findings]
    facts = {str(fact.label): str(fact.note) for fact in key_facts(analysis, 1)}
    assert "of the modules' time; not captured: " in facts["Captured"]
    assert "image_encoder (2 calls, " in facts["Captured"]


def test_with_operators_every_pipeline_call_is_measured(tmp_path):
    """There the hooks cost little beside the operators."""
    assert recorded(tmp_path, 2).info.coverage.pipelines == 2


def test_pieces_that_a_script_calls_itself(tmp_path, monkeypatch):
    """Of a module that no pipeline holds: named with their calls, in the first captured ones."""
    monkeypatch.setattr(submodules, "_MOST_CALLS", 2)
    net = Net()
    with profiler.profile({"net": net}, out=tmp_path, ops="none") as run:
        net(net.a(X))
        net(X)
        net.b(X)
        net(X)  # the third
        net.b(X)
    assert not any(module._forward_hooks for module in net.modules())
    found = profiler.load(run.path)
    measured = found.info.coverage
    assert {one.name: one.calls for one in measured.uncaptured} == {"net.a": 1, "net.b": 1}
    assert measured.pipelines == 0
    assert measured.captured_ns == found.calls["duration_ns"][:2].sum()


def test_without_such_pieces_nothing_is_stated(tmp_path):
    """For nothing else is looked for where there are no pipeline calls."""
    net = Net()
    with profiler.profile({"net": net}, out=tmp_path, ops="none") as run:
        net(X)
    assert profiler.load(run.path).info.coverage is None


def test_what_is_compiled_is_not_compiled_again(tmp_path):
    """Inside a compiled module nothing is hooked, and one that runs outside of calls is measured as
    a whole: dynamo's counters stay as they are."""
    from torch._dynamo.utils import counters

    def compiled():
        return counters["stats"]["unique_graphs"], counters["frames"]["total"]

    pipeline = Compiled()
    with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
        pipeline(X)
        before = compiled()
        pipeline(X)
    assert before == compiled()
    measured = profiler.load(run.path).info.coverage
    assert [(one.name, one.calls) for one in measured.uncaptured] == [("Outside", 1)]
