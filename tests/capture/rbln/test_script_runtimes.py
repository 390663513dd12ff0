"""Runtimes that a script calls by itself, outside every pipeline: submodules, on a fake `rebel`."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

import profiler
from profiler.capture import FakeClock
from tests.capture.rbln import fake_rebel


class Runtime(fake_rebel.Runtime):
    """As documented: `runtime.run(x)` is `runtime(x)`. All are equal, and none has a hash."""

    def __eq__(self, other):
        return isinstance(other, Runtime)

    __hash__ = None

    def run(self, *inputs):
        return self(*inputs)


@pytest.fixture
def rebel(tmp_path, monkeypatch):
    """A `rebel` with the class `Runtime`, imported."""
    module = ModuleType("rebel")
    module.Runtime = Runtime
    monkeypatch.setitem(sys.modules, "rebel", module)
    return fake_rebel.FakeRebel(FakeClock(1_000), tmp_path, reports=False)


def script(rebel):
    """What a script does; asserts would hide its variables."""
    encoder = Runtime(rebel, "encoder", device=0, activate_profiler=False)
    decoder = Runtime(rebel, "decoder", device=1, activate_profiler=False)
    x = np.ones((2, 3), np.float32)
    return (encoder, decoder), [encoder.run(x), encoder.run(x), decoder(x)]


@pytest.mark.parametrize("ops", ["none", "all"])
def test_each_call_of_a_runtime_is_a_call(tmp_path, rebel, ops):
    """From the first call on, under the variables' names, on their devices, by `run` or by calling;
    what one calls in the other is one call; afterwards the class is what it was."""
    before = [dict(one.__dict__) for one in Runtime.__mro__]
    profiler.start(out=tmp_path, ops=ops)
    used, outputs = script(rebel)
    run = profiler.load(profiler.done())
    assert [output.shape for output in outputs] == [(1, 4)] * 3
    assert run.calls.select("submodule", "device", "stage", "pipeline").rows() == [
        ("encoder", "rbln:0", "run", -1),
        ("encoder", "rbln:0", "run", -1),
        ("decoder", "rbln:1", "run", -1),
    ]
    assert run.drops == ()
    assert [dict(one.__dict__) for one in Runtime.__mro__] == before
    assert [type(one) for one in used] == [Runtime] * 2


def test_runtimes_of_a_pipeline_are_its_submodules(tmp_path, rebel):
    """What a submodule of optimum-rbln calls inside its own call is no submodule of its own."""
    pipeline = fake_rebel.RBLNStableDiffusion3Pipeline(rebel)
    for name in ("text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae"):
        runtimes = getattr(pipeline, name).model
        runtimes[0] = Runtime(rebel, name, device=0, activate_profiler=False)
    with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
        pipeline(num_inference_steps=1)
    assert set(profiler.load(run.path).calls["submodule"]) == {
        *("text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae")
    }
