"""`profile-sd3 run` as it is called."""

from __future__ import annotations

import json
import shutil

import numpy as np
import polars as pl
import pytest
from PIL import Image

import profiler
from profiler.pipelines import default_model_folder
from tests.command_line import run_command


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--height", 13), "height is 13"),
        (("--width", 1024), "width is 1024"),
        (("--seed", -3), "the seed is -3"),
        (("--guidance", "nan"), "guidance_scale is nan"),
    ],
)
def test_refused_arguments_leave_nothing(tmp_path, capsys, options, said):
    """What the model does not take is refused before the run has a folder."""
    assert run_command("run", *options, "--steps", 1, "--out", tmp_path / "traces") == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "traces").exists()


@pytest.mark.parametrize(
    ("height", "width"), [(48, 80), pytest.param(48, 32, marks=pytest.mark.nightly)]
)
def test_sizes_with_an_odd_number_of_patches(tmp_path, height, width):
    """The embedded model makes images of 3 by 5 and 3 by 2 patches: the file has that size and is
    not of one colour, and every operator has a module path."""
    options = ("--steps", 1, "--warmup", 0, "--name", "odd", "--out", tmp_path)
    sizes = ("--height", height, "--width", width)
    assert run_command("run", *options, *sizes, "--image", tmp_path / "i.png") == 0
    with Image.open(tmp_path / "i.png") as image:
        assert image.size == (width, height)
        assert np.asarray(image).std() > 10
    run = profiler.load(tmp_path / "odd")
    calls = run.calls.filter(pl.col("stage").cast(pl.String) == "denoise")
    assert f"[2,16,{height // 8},{width // 8}]" in str(calls["input_shapes"][0])
    assert calls["ops_traced"].all()
    assert {entry.share for entry in run.info.attribution.values()} == {1.0}


@pytest.fixture
def model(tmp_path):
    """A copy of the embedded model, to be spoilt."""
    return shutil.copytree(default_model_folder(), tmp_path / "model")


def test_parts_of_different_models_leave_nothing(model, tmp_path, capsys):
    """Encoders that do not fit the denoiser are refused before the run has a folder."""
    file = model / "text_encoder_3" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"d_model": 32}))
    assert run_command("run", "--model", model, "--steps", 1, "--out", tmp_path / "traces") == 2
    assert "more than d_model of text_encoder_3, which is 32" in capsys.readouterr().err
    assert not (tmp_path / "traces").exists()


def test_a_run_that_fails_in_its_warm_up_leaves_no_bundle(model, tmp_path, capsys):
    """What only the first calls tell of is told, and no bundle without calls stays behind."""
    shutil.copy(model / "text_encoder_3" / "model.onnx", model / "text_encoder" / "model.onnx")
    assert run_command("run", "--model", model, "--steps", 1, "--out", tmp_path / "traces") == 2
    assert "needs text_embeds" in capsys.readouterr().err
    assert not (tmp_path / "traces").exists()
