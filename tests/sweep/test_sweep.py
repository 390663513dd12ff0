"""Capture against pipelines of diffusers: a dozen here, the others nightly, the record of all."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("diffusers", reason="needs the torch extra")
pytest.importorskip("torch", reason="needs the torch extra")

from tests.sweep import record
from tests.sweep.cases import Case, all_cases
from tests.sweep.compare import compared

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # diffusers' and torch's own
]

QUICK = (
    "AudioLDM2Pipeline",
    "ChromaPipeline",
    "CogVideoXPipeline",
    "DDIMPipeline",
    "FluxKontextPipeline",
    "LTXImageToVideoPipeline",
    "QwenImageModularPipeline",
    "SanaPipeline",
    "StableCascadePriorPipeline",
    "StableDiffusionUpscalePipeline",
    "WanPipeline",
)
CASES = {case.name: case for case in all_cases()}


@pytest.mark.parametrize("name", QUICK)
def test_a_class_of_each_kind(name, tmp_path):
    """Outputs are the same bit by bit; calls, steps and branches are those of hooks that know
    nothing of capture."""
    assert compared(CASES[name], tmp_path).differences == ()


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(CASES.keys() - set(QUICK)))
def test_all_other_classes(name, tmp_path):
    """As above, for whatever can be built of tiny parts."""
    assert compared(CASES[name], tmp_path).differences == ()


@pytest.mark.parametrize("fault", ["calls", "branch"])
def test_differences_are_seen(tmp_path, monkeypatch, fault):
    """The comparison is none of a thing with itself: capture that loses calls of a component, or
    takes every branch for the prompt's, is found out."""
    from profiler.capture.pipelines import call_hooks

    if fault == "branch":
        monkeypatch.setattr(
            call_hooks.PipelineLabels, "denoiser_branch", lambda *_, **__: "skip_layers"
        )
    else:
        begun = call_hooks.CallHook._begun
        monkeypatch.setattr(
            call_hooks.CallHook,
            "_begun",
            lambda hook, *rest: None if hook._entry.submodule == "unet" else begun(hook, *rest),
        )
    assert compared(CASES["StableDiffusionUpscalePipeline"], tmp_path).differences


def test_the_record():
    """At least a hundred classes, each as it should be, five of them modular; every class of the
    sweep is in it, and the page is that of the record."""
    recorded = json.loads(record.RESULTS.read_text("utf-8"))
    results = recorded["results"]
    assert [result["name"] for result in results if result["differences"]] == []
    assert {result["name"] for result in results} == set(CASES)
    assert len(results) >= 100
    assert sum("Modular" in result["name"] for result in results) >= 5
    assert record.PAGE.read_text("utf-8") == record.page(recorded)


def test_a_class_gets_the_parts_that_it_names():
    """Parts that a class does not take are left out; what it needs and is not there is none."""

    class Kind:
        def __init__(self, unet, scheduler, safety_checker, extra=1):
            self.given = (unet, scheduler, safety_checker, extra)

    from tests.sweep import cases

    assert isinstance(CASES["DDIMPipeline"], Case)
    made = cases._made(Kind, {"unet": 1, "scheduler": 2, "vae": 3})
    assert made.given == (1, 2, None, 1)
