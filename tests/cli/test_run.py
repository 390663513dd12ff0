"""`profile-sd3 run` as it is called."""

from __future__ import annotations

import sys

import numpy as np
import polars as pl
import pytest
from PIL import Image

import profiler
from profiler.cli.main import main


@pytest.mark.parametrize(("height", "width"), [(48, 80), (48, 32)])
def test_sizes_with_an_odd_number_of_patches(monkeypatch, tmp_path, height, width):
    """The embedded model makes images of 3 by 5 and 3 by 2 patches: the file has that size and is
    not of one colour, and every operator has a module path."""
    arguments = ["run", "--steps", "1", "--warmup", "0", "--name", "odd", "--out", str(tmp_path)]
    arguments += [
        "--height",
        str(height),
        "--width",
        str(width),
        "--image",
        str(tmp_path / "i.png"),
    ]
    monkeypatch.setattr(sys, "argv", ["profile-sd3", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    with Image.open(tmp_path / "i.png") as image:
        assert image.size == (width, height)
        assert np.asarray(image).std() > 10
    run = profiler.load(tmp_path / "odd")
    calls = run.calls.filter(pl.col("stage").cast(pl.String) == "denoise")
    assert f"[2,16,{height // 8},{width // 8}]" in str(calls["input_shapes"][0])
    assert calls["ops_traced"].all()
    assert {entry["share"] for entry in run.info.attribution.values()} == {1.0}
