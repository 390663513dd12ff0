"""RBLN_PROFILER=1 alone: an unchanged script with a pipeline of optimum-rbln, on a fake `rebel`."""

from __future__ import annotations

import pytest

import profiler
from tests.capture.switched_on import Environment, drops, labels
from tests.importers.rbln.importing import import_rbln

pytest.importorskip("diffusers", reason="needs the torch extra")
pytest.importorskip("torch", reason="needs the torch extra")

pytestmark = pytest.mark.torch

SCRIPT = """
    from pathlib import Path

    from diffusers import DiffusionPipeline
    from profiler.capture.profile import FakeClock
    from tests.capture.rbln import fake_rebel

    class RBLNStableDiffusion3Pipeline(
        fake_rebel.RBLNStableDiffusion3Pipeline, DiffusionPipeline
    ):
        def __init__(self, rebel):
            DiffusionPipeline.__init__(self)
            super().__init__(rebel, {"text_encoder_3": {"device": 1}})
            parts = ("text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae")
            self.register_modules(**{name: getattr(self, name) for name in parts})

    Path("shards").mkdir()
    rebel = fake_rebel.FakeRebel(FakeClock(1_000_000), Path("shards"), reports=False)
    pipe = RBLNStableDiffusion3Pipeline(rebel)
    pipe(num_inference_steps=1)
    pipe(num_inference_steps=2)
    rebel.profiler.done()
"""


def test_the_variable_records_the_calls_and_they_name_the_files(tmp_path):
    """Two images in one script: 17 calls with their labels and devices, and 17 files named so."""
    work = tmp_path / "work"
    work.mkdir()
    ended = Environment(tmp_path).at(work).run(SCRIPT)
    assert ended.code == 0, ended.err
    assert drops(ended.bundle) == []
    encoders = ("text_encoder", "text_encoder_2", "text_encoder_3")
    encoded = [
        (name, "encode", branch, -1)
        for branch in ("prompt", "negative_prompt")
        for name in encoders
    ]
    images = [
        [*encoded, *(("transformer", "denoise", "batched", step) for step in range(steps))]
        for steps in (1, 2)
    ]
    expected = [call for image in images for call in [*image, ("vae", "decode", "", -1)]]
    assert labels(ended.bundle) == expected
    named = import_rbln(work / "shards", tmp_path / "imported", run=ended.bundle)
    assert labels(named) == expected
    devices = profiler.load(named).calls.select("submodule", "device").unique().rows()
    assert sorted(devices) == [
        ("text_encoder", "rbln:0"),
        ("text_encoder_2", "rbln:0"),
        ("text_encoder_3", "rbln:1"),
        ("transformer", "rbln:0"),
        ("vae", "rbln:0"),
    ]
