"""Branches of a denoiser whose inputs a guider prepares."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import profiler
from profiler.capture.pipelines.steps import Guidance


def batch(result, **inputs):
    """What a guider prepares for one branch, as diffusers' `BlockState` has it."""
    return SimpleNamespace(**inputs, __guidance_identifier__=result)


def branches(guidance, *inputs, submodule="transformer"):
    return [guidance.branch(submodule, {"hidden_states": one}) for one in inputs]


A, B, SHARED = np.zeros((1, 2)), np.ones((1, 2)), np.ones((1, 3))


def test_the_inputs_tell():
    """In whatever order the calls are made; what both branches share tells nothing."""
    guidance = Guidance()
    guidance.prepared([batch("pred_cond", x=A, y=SHARED), batch("pred_uncond", x=B, y=SHARED)])
    assert branches(guidance, B, A, B) == ["uncond", "cond", "uncond"]


@pytest.mark.parametrize("given", [SHARED, np.zeros((9, 9))])
def test_calls_are_in_order_where_inputs_do_not_tell(given):
    """Shared inputs, and copies; each submodule (a ControlNet beside the transformer) by itself,
    and anew in each step."""
    guidance = Guidance()
    for _ in range(2):
        guidance.prepared([batch("pred_cond", y=SHARED), batch("pred_uncond", y=SHARED)])
        assert branches(guidance, given, given) == ["cond", "uncond"]
        assert branches(guidance, given, given, submodule="controlnet") == ["cond", "uncond"]


def test_the_prompt_once_more():
    """Skip-layer guidance has the prompt's inputs twice: the second call is the one with layers
    left out."""
    guidance = Guidance()
    results = ("pred_cond", "pred_uncond", "pred_cond_skip")
    guidance.prepared([batch(r, x=x) for r, x in zip(results, (A, B, A), strict=True)])
    assert branches(guidance, A, B, A) == ["cond", "uncond", "skip_layers"]


def test_no_guider():
    """Nothing prepared, or something that says nothing of results: no branch from here."""
    guidance = Guidance()
    assert branches(guidance, A) == [None]
    for nothing in ([object()], None, [batch("pred_of_another", x=A)]):
        guidance.prepared(nothing)
        assert branches(guidance, A) == [None]


class Guider:
    """As diffusers' are: called for the result, it says what each branch is given."""

    def prepare_inputs(self, inputs):
        return [
            batch("pred_uncond", states=inputs["states"][1]),
            batch("pred_cond", states=inputs["states"][0]),
        ]

    def __call__(self, results):
        return sum(results)


class Scheduler:
    """Two steps."""

    timesteps = (1, 0)

    def set_timesteps(self, steps):
        pass

    def step(self, x):
        return x


class Modular:
    """A loop with a guider, as in modular pipelines: no `cache_context`, no `encode_prompt`."""

    def __init__(self, transformer):
        self.transformer = transformer
        self.guider = Guider()
        self.scheduler = Scheduler()

    def __call__(self):
        self.scheduler.set_timesteps(2)
        states = (A.copy(), B.copy())
        for _ in self.scheduler.timesteps:
            prepared = self.guider.prepare_inputs({"states": states})
            x = self.guider([self.transformer.forward(one.states) for one in prepared])
            self.scheduler.step(x)
        return x


class Denoiser:
    """Takes whatever it is given."""

    def forward(self, hidden_states):
        return hidden_states


def test_a_pipeline_with_a_guider(tmp_path):
    """Both branches of each step have the guider's names, and the guider is as it was after it."""
    pipeline = Modular(Denoiser())
    with profiler.profile(pipeline, out=tmp_path, ops="none") as profiled:
        pipeline()
    run = profiler.load(profiled.path)
    found = run.calls.select("branch", "step").rows()
    assert found == [("uncond", 0), ("cond", 0), ("uncond", 1), ("cond", 1)]
    assert "prepare_inputs" not in vars(pipeline.guider)
