"""Shapes of pipelines of diffusers at another size, predicted and real."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

pytest.importorskip("diffusers", reason="needs the torch extra")
pytest.importorskip("torch", reason="needs the torch extra")

import profiler
from profiler.analysis.analyze import analyze
from profiler.analysis.prediction.image_sizes import ImageSize, size_by_decoder
from profiler.analysis.prediction.resized import Resizing
from profiler.analysis.roofline.call_costs import CallCosts, KindCost, call_costs
from tests.sweep import cases

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

CASES = {case.name: case for case in cases.all_cases()}
QUICK = ("FluxModularPipeline", "StableDiffusionXLModularPipeline")
OTHERS = (
    "CogView4Pipeline",
    "Flux2KleinPipeline",
    "KandinskyV22CombinedPipeline",
    "LTXModularPipeline",
    "PixArtSigmaPipeline",
    "QwenImageModularPipeline",
    "SanaPipeline",
)
BEFORE, AFTER = 96, 160  # pixels
LEAST_RIGHT = {"transformer": 0.94, "unet": 0.95, "vae": 0.97, "movq": 0.97}  # of the commands


def costs(case: cases.Case, folder, side: int, monkeypatch) -> dict[str, CallCosts]:
    """Of denoiser and decoder, for images of that size."""
    for name in ("height", "width"):
        monkeypatch.setitem(cases.COMMON, name, side)
    pipeline = case.pipeline()
    with profiler.profile(pipeline, ops="all", out=folder / str(side)) as recording:
        case.call(pipeline)
    run = profiler.load(recording.path)
    analysis = analyze(run)
    tables = (analysis.calls, analysis.kinds.table, analysis.device_profiles)
    called = {*run.calls["submodule"].cast(str)} & LEAST_RIGHT.keys()
    return {name: found for name in called if (found := call_costs(*tables, name)) is not None}


def told(kinds: Iterable[KindCost]) -> Counter:
    """How many commands have which shapes."""
    found: Counter = Counter()
    for one in kinds:
        tensors = [] if one.shapes is None else [*one.shapes.inputs, *(one.shapes.outputs or ())]
        found[one.op_type, *((t.dtype, t.dims) for t in tensors)] += one.commands
    return found


def check(name, folder, monkeypatch) -> None:
    before, after = (costs(CASES[name], folder, side, monkeypatch) for side in (BEFORE, AFTER))
    old, new = (ImageSize(side, side) for side in (BEFORE, AFTER))
    decoder = next(one for one in ("vae", "movq") if one in before)
    assert size_by_decoder(before[decoder].kinds) == old
    assert len(before) == 2
    for submodule, found in before.items():
        resizing = Resizing.of(found.kinds, old, new)
        ours, real = told(map(resizing.kind, found.kinds)), told(after[submodule].kinds)
        right = 1 - (ours - real).total() / ours.total()
        assert right >= LEAST_RIGHT[submodule], submodule
        same = 1 - (told(found.kinds) - real).total() / ours.total()
        assert same < 0.8, submodule


@pytest.mark.parametrize("name", QUICK)
def test_resized_shapes_are_those_of_a_real_run(name, tmp_path, monkeypatch):
    """Nearly all commands of denoiser and decoder at 96 pixels, resized, have the shapes that they
    have at 160: of a transformer with text among its tokens, and of a UNet."""
    check(name, tmp_path, monkeypatch)


@pytest.mark.nightly
@pytest.mark.parametrize("name", OTHERS)
def test_of_other_classes_too(name, tmp_path, monkeypatch):
    """As above."""
    check(name, tmp_path, monkeypatch)
