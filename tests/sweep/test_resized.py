"""Shapes of pipelines of diffusers at another size, predicted and real."""

from __future__ import annotations

import pytest

pytest.importorskip("diffusers", reason="needs the torch extra")
pytest.importorskip("torch", reason="needs the torch extra")

from profiler.prediction import ImageSize, Resizing
from profiler.prediction.scenario import size_by_decoder
from tests.analysis.prediction.told_shapes import told
from tests.sweep.cases import all_cases
from tests.sweep.resizing import DECODERS, costs

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

CASES = {case.name: case for case in all_cases()}
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
BEFORE, AFTER = (ImageSize(side, side) for side in (96, 160))
LEAST_RIGHT = {"transformer": 0.94, "unet": 0.95, "vae": 0.97, "movq": 0.97}  # of the commands


def check(name, folder) -> None:
    before, after = (costs(CASES[name], folder, size) for size in (BEFORE, AFTER))
    decoder = next(one for one in DECODERS if one in before)
    assert size_by_decoder(before[decoder].kinds) == BEFORE
    assert len(before) == 2
    for submodule, found in before.items():
        resizing = Resizing.of(found.kinds, BEFORE, AFTER)
        ours, real = told(map(resizing.kind, found.kinds)), told(after[submodule].kinds)
        right = 1 - (ours - real).total() / ours.total()
        assert right >= LEAST_RIGHT[submodule], submodule
        same = 1 - (told(found.kinds) - real).total() / ours.total()
        assert same < 0.8, submodule


@pytest.mark.parametrize("name", QUICK)
def test_resized_shapes_are_those_of_a_real_run(name, tmp_path):
    """Nearly all commands of denoiser and decoder at 96 pixels, resized, have the shapes that they
    have at 160: of a transformer with text among its tokens, and of a UNet."""
    check(name, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", OTHERS)
def test_of_other_classes_too(name, tmp_path):
    """As above."""
    check(name, tmp_path)
