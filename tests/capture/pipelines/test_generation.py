"""What pipeline calls made and how their submodules were set up, in the manifest of real runs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import profiler
from profiler.capture import PipelineCall
from profiler.capture.pipelines.script_loops import generation
from profiler.trace import Generation, Scheduler


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (SimpleNamespace(images=np.zeros((2, 8, 16, 3))), (2, None, 16, 8)),
        (SimpleNamespace(images=np.zeros((2, 3, 8, 16))), (2, None, 16, 8)),
        (SimpleNamespace(images=np.zeros((2, 16, 8, 24))), (2, None, None, None)),
        (SimpleNamespace(images=np.zeros((2, 64, 16))), (None, None, None, None)),
        (SimpleNamespace(frames=np.zeros((1, 5, 8, 16, 3))), (1, 5, 16, 8)),
        (SimpleNamespace(frames=np.zeros((1, 5, 3, 8, 16))), (1, 5, 16, 8)),
        (SimpleNamespace(frames=[[SimpleNamespace(width=16, height=8)] * 5]), (1, 5, 16, 8)),
        (SimpleNamespace(images=np.zeros((2, 4, 8, 16))), (2, None, None, None)),
        (([SimpleNamespace(width=16, height=8)],), (1, None, 16, 8)),
        ([SimpleNamespace(width=16, height=8)] * 2, (2, None, 16, 8)),
        (np.zeros((1, 5, 8, 16, 3)), (1, 5, 16, 8)),
        ({"videos": np.zeros((1, 5, 8, 16, 3)), "latents": None}, (1, 5, 16, 8)),
        (SimpleNamespace(values={"images": np.zeros((2, 8, 16, 3))}), (2, None, 16, 8)),
        (SimpleNamespace(audios=np.zeros(5)), (None, None, None, None)),
        (None, (None, None, None, None)),
    ],
)
def test_size_of_results(result, expected):
    """Images and videos of every output type tell their size and number; latents only a number,
    and what is neither tells nothing."""
    found = generation(SimpleNamespace(), None, PipelineCall("pipe", 0), result)
    assert (found.batch, found.frames, found.width, found.height) == expected


class Blocks:
    def __init__(self, inputs):
        self.inputs = inputs


class Modular:
    """A pipeline whose call takes whatever its blocks do."""

    def __init__(self):
        inputs = [
            SimpleNamespace(name=name, default=default)
            for name, default in (("height", 8), ("steps", 50), (None, None), ("latents", None))
        ]
        self._blocks = Blocks(inputs)
        self.transformer = Net()

    def __call__(self, state=None, **kwargs):
        return self.transformer(state)


class Net:
    def forward(self, x):
        return x

    __call__ = forward


def test_arguments_of_a_modular_pipeline(tmp_path):
    """What it was given, and for the rest what its blocks take by default; numbers alone."""
    pipeline = Modular()
    with profiler.profile(pipeline, out=tmp_path, ops="none") as run:
        pipeline(None, steps=3, prompt="a cat")
    assert profiler.load(run.path).info.settings == {"height": 8, "steps": 3}


class Stepper:
    """A scheduler with a configuration."""

    def __init__(self, shift=1.0, kind="linear", sharp=False):
        self.config = {"shift": shift, "kind": kind, "sharp": sharp, "_of": "x", "other": None}
        self.num_inference_steps = 4


def test_scheduler_without_its_defaults():
    """What is its class's default does not stand there; what was set since does."""
    call = PipelineCall("pipe", 0, step_ends_ns=[(2, 10), (3, 20)])
    scheduler = Stepper(kind="cosine")
    scheduler.shift = 3.0
    found = generation(SimpleNamespace(_guidance_scale=2.5), scheduler, call, None)
    assert found == Generation(
        scheduler=Scheduler(name="Stepper", config={"shift": 3.0, "kind": "cosine"}),
        steps=2,
        scheduled_steps=4,
        guidance_scale=2.5,
    )


@pytest.mark.torch
def test_settings_of_pipeline_calls(tmp_path):
    """Calls that made the same are one; a submodule that was changed between two calls has both
    settings; a setting that nobody changed stands there once."""
    diffusers = pytest.importorskip("diffusers", reason="needs the torch extra")
    from tests.capture import tiny_diffusers as tiny

    pipe = tiny.flux()
    with profiler.profile(pipe, out=tmp_path, ops="none") as run:
        for steps in (2, 1, 2):
            pipe("a cat", num_inference_steps=steps, guidance_scale=3.0, **tiny.SIZE)
        pipe.transformer.enable_cache(diffusers.FirstBlockCacheConfig(threshold=0.5))
        pipe("a cat", num_inference_steps=1, guidance_scale=3.0, output_type="np", **tiny.SIZE)
    info = profiler.load(run.path).info
    assert info.drops == ()
    made = [(one.pipelines, one.steps, one.scheduled_steps) for one in info.generations]
    assert made == [((0, 2), 2, 2), ((1, 3), 1, 1)]
    for one in info.generations:
        assert (one.width, one.height, one.batch, one.guidance_scale) == (32, 32, 1, 3.0)
        assert one.scheduler.name == "FlowMatchEulerDiscreteScheduler"
    known = info.submodule_settings
    assert [(one.since, one.cache is not None) for one in known["transformer"]] == [
        (-1, False),
        (3, True),
    ]
    assert {name: len(found) for name, found in known.items()} == {
        "text_encoder": 1,
        "text_encoder_2": 1,
        "transformer": 2,
        "vae": 1,
    }
