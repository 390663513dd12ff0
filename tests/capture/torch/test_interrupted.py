"""Torch modules whose calls are interrupted in our hooks: the next ones are recorded."""

from __future__ import annotations

import gc
import sys

import pytest

from profiler.capture import FakeClock, PipelineHooks, Recorder
from profiler.capture.calls import Scope, enter
from tests.capture.interrupting import Interruptions

torch = pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]


@pytest.fixture(autouse=True)
def few_objects(monkeypatch):
    """Coverage looks through the objects of the process for modules, again and again here: those
    that other tests have left are not among them."""
    gc.collect()
    gc.freeze()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)  # nobody looks behind it
    yield
    gc.unfreeze()


class Pipeline:
    def __init__(self):
        self.text_encoder = torch.nn.Linear(4, 4)
        self.transformer = torch.nn.Linear(4, 4)

    def encode_prompt(self, prompt):
        return self.text_encoder(prompt)

    def __call__(self, prompt):
        return self.transformer(self.encode_prompt(prompt))


@pytest.mark.parametrize(
    "stride", [pytest.param(1, marks=pytest.mark.nightly), 31]
)  # odd: all kinds
def test_wherever_a_call_is_interrupted_the_next_is_recorded(stride):
    """An exception of a signal's handler, at any place of our code around a pipeline call, reaches
    the caller, though torch tells its hooks nothing of the end of a call that KeyboardInterrupt
    ended; the next call has all of its calls."""
    at, interruptions, prompt = stride // 2, Interruptions(), torch.ones(1, 4)
    while True:
        recorder, pipeline = Recorder(FakeClock()), Pipeline()
        hooks = PipelineHooks(pipeline, recorder, lambda entry: None, lambda pipeline: None)
        hooks.attach()
        with torch.no_grad():
            found = interruptions.run(at, pipeline, prompt)
            pipeline(prompt)
        last = [c.submodule for c in recorder.finished() if c.pipeline is recorder.pipelines[-1]]
        assert last == ["text_encoder", "transformer"], interruptions.where
        assert recorder.at_rest(), interruptions.where
        assert recorder.failures == {}, interruptions.where
        hooks.detach()
        enter(Scope())
        if not found:
            break
        at += stride
    assert at > 100
